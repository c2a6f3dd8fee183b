//! Detects media types by signature (WHATWG MIME Sniffing, section 6, extended by formats that models accept).

/// The media type of a file; `None` for anything but supported media, in particular HTML and scripts.
pub(super) fn mime_of(bytes: &[u8]) -> Option<&'static str> {
    const SIGNATURES: [(&[u8], &str); 16] = [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"BM", "image/bmp"),
        (b"II*\0", "image/tiff"),
        (b"MM\0*", "image/tiff"),
        (b"%PDF-", "application/pdf"),
        (b"ID3", "audio/mp3"),
        (b"fLaC", "audio/flac"),
        (b"OggS", "audio/ogg"),
        (b"\x1a\x45\xdf\xa3", "video/webm"),
        (b"FLV\x01", "video/x-flv"),
        (b"\0\0\x01\xba", "video/mpeg"),
        (b"\0\0\x01\xb3", "video/mpeg"),
        (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "video/wmv"),
    ];
    SIGNATURES
        .iter()
        .find(|(signature, _)| bytes.starts_with(signature))
        .map(|(_, mime)| *mime)
        .or_else(|| container(bytes))
        .or_else(|| audio_frame(bytes))
}

/// Container formats: RIFF, AIFF, and ISO base media by brand.
fn container(bytes: &[u8]) -> Option<&'static str> {
    let (outer, kind) = (bytes.get(..4)?, bytes.get(8..12)?);
    match (outer, kind) {
        (b"RIFF", b"WEBP") => return Some("image/webp"),
        (b"RIFF", b"WAVE") => return Some("audio/wav"),
        (b"RIFF", b"AVI ") => return Some("video/avi"),
        (b"FORM", b"AIFF" | b"AIFC") => return Some("audio/aiff"),
        _ => {}
    }
    if bytes.get(4..8) != Some(b"ftyp") {
        return None;
    }
    Some(match kind {
        b"heic" | b"heix" | b"hevc" | b"hevx" => "image/heic",
        b"mif1" | b"msf1" | b"heim" | b"heis" => "image/heif",
        b"avif" | b"avis" => "image/avif",
        b"M4A " | b"M4B " => "audio/mp4",
        b"qt  " => "video/mov",
        [b'3', b'g', ..] => "video/3gpp",
        _ => "video/mp4",
    })
}

/// Audio frames without a file header: the sync word, and the layer bits that tell AAC from MP3.
fn audio_frame(bytes: &[u8]) -> Option<&'static str> {
    match *bytes {
        [0xff, second, ..] if second & 0xf6 == 0xf0 => Some("audio/aac"),
        [0xff, second, ..] if second & 0xe6 == 0xe2 => Some("audio/mp3"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_detected() {
        let cases: [(&[u8], &str); 18] = [
            (b"\x89PNG\r\n\x1a\n....", "image/png"),
            (b"\xff\xd8\xff\xe0", "image/jpeg"),
            (b"GIF89a", "image/gif"),
            (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
            (b"\0\0\0\x18ftypheic\0\0", "image/heic"),
            (b"\0\0\0\x18ftypmif1\0\0", "image/heif"),
            (b"\0\0\0\x18ftypavif\0\0", "image/avif"),
            (b"%PDF-1.7", "application/pdf"),
            (b"RIFF\x10\0\0\0WAVEfmt ", "audio/wav"),
            (b"ID3\x04", "audio/mp3"),
            (b"\xff\xfb\x90\x64", "audio/mp3"),
            (b"\xff\xf1\x50\x80", "audio/aac"),
            (b"fLaC\0", "audio/flac"),
            (b"OggS\0", "audio/ogg"),
            (b"\0\0\0\x20ftypisom\0\0", "video/mp4"),
            (b"\0\0\0\x14ftypqt  \0\0", "video/mov"),
            (b"\0\0\0\x14ftyp3gp5\0\0", "video/3gpp"),
            (b"\x1a\x45\xdf\xa3\x01", "video/webm"),
        ];
        for (bytes, mime) in cases {
            assert_eq!(mime_of(bytes), Some(mime), "{bytes:?}");
        }
    }

    #[test]
    fn html_scripts_and_empty_input_are_not_media() {
        for bytes in [&b""[..], b"<!doctype html>", b"<svg xmlns=", b"{\"a\":1}", b"#!/bin/sh", b"RIFF", b"\xff", b"\0\0\0\x18free"]
        {
            assert_eq!(mime_of(bytes), None, "{bytes:?}");
        }
    }
}
