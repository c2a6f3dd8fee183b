//! Media: data URLs, base64, MIME types, and provider file URIs versus public URLs. Nothing here accesses the network.

use base64::{Engine, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;

use super::{Media, MediaSource};
use crate::{FieldPath, RemoteMedia};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadMedia {
    Base64,
    /// Not a `data:`, `gs://`, `https://` or `http://` URL.
    Url,
}

/// Media at a caller's URL: a data URL, a provider file or a public URL.
pub(crate) fn from_url(url: &str, path: FieldPath) -> Result<Media, BadMedia> {
    if let Some(rest) = strip_prefix_ignoring_case(url, "data:") {
        return from_data_url(rest, path);
    }
    let source = classify_url(url).ok_or(BadMedia::Url)?;
    let mime = mime_by_name(url).unwrap_or_default().to_owned();
    Ok(Media { mime, source, name: None, detail: None, path })
}

/// Classifies a URL as provider file or public URL; `None` for other schemes.
pub(crate) fn classify_url(url: &str) -> Option<MediaSource> {
    if strip_prefix_ignoring_case(url, "gs://").is_some() {
        return Some(MediaSource::Uri(url.to_owned()));
    }
    let rest = strip_prefix_ignoring_case(url, "https://").or_else(|| strip_prefix_ignoring_case(url, "http://"))?;
    let host = rest.split('/').next().unwrap_or_default();
    if host == "generativelanguage.googleapis.com" && rest.contains("/files/") {
        return Some(MediaSource::Uri(url.to_owned()));
    }
    Some(MediaSource::Remote(url.to_owned()))
}

pub(crate) fn inline(mime: &str, base64: &str, path: FieldPath) -> Result<Media, BadMedia> {
    let data = standard_base64(base64).ok_or(BadMedia::Base64)?;
    Ok(Media { mime: mime_type(mime), source: MediaSource::Inline(data), name: None, detail: None, path })
}

/// Remote media as inline media: the downloaded bytes with the type the server gave, or an empty placeholder while the
/// download is deferred. The error is shown in parentheses in the message to the caller.
pub(crate) fn downloaded(media: &Media, remote: RemoteMedia<'_>) -> Result<Media, &'static str> {
    const SWITCHED_OFF: &str = "remote media is switched off";
    let MediaSource::Remote(url) = &media.source else { return Err(SWITCHED_OFF) };
    let (mime, data) = match remote {
        RemoteMedia::Refused => return Err(SWITCHED_OFF),
        RemoteMedia::Deferred if media.mime.is_empty() => ("image/png".to_owned(), String::new()),
        RemoteMedia::Deferred => (media.mime.clone(), String::new()),
        RemoteMedia::Fetched(fetched) => {
            let found = fetched.get(url).ok_or(SWITCHED_OFF)?.as_ref().map_err(|reason| *reason)?;
            let data = standard_base64(&found.data).ok_or("what the address gave is not base64")?;
            (mime_type(&found.mime), data)
        }
    };
    Ok(Media { mime, source: MediaSource::Inline(data), ..media.clone() })
}

fn from_data_url(rest: &str, path: FieldPath) -> Result<Media, BadMedia> {
    let (head, payload) = rest.split_once(',').ok_or(BadMedia::Url)?;
    let mime = if head.is_empty() || head.starts_with(';') { "text/plain" } else { head };
    let is_base64 = head.rsplit(';').next().is_some_and(|last| last.trim().eq_ignore_ascii_case("base64"));
    if is_base64 {
        return inline(mime, payload, path);
    }
    let data = STANDARD.encode(percent_decode_str(payload).collect::<Vec<u8>>());
    Ok(Media { mime: mime_type(mime), source: MediaSource::Inline(data), name: None, detail: None, path })
}

/// Converts base64 of either alphabet, padded or not, to standard padded base64.
pub(crate) fn standard_base64(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len() + 2);
    for letter in text.bytes() {
        match letter {
            b'-' => out.push('+'),
            b'_' => out.push('/'),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => out.push(char::from(letter)),
            b'=' | b' ' | b'\n' | b'\r' | b'\t' => {}
            _ => return None,
        }
    }
    match out.len() % 4 {
        1 => return None,
        2 => out.push_str("=="),
        3 => out.push('='),
        _ => {}
    }
    Some(out)
}

/// Normalises a MIME type: lower case, without parameters, under its usual name.
pub(crate) fn mime_type(mime: &str) -> String {
    let bare = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match bare.as_str() {
        "image/jpg" => "image/jpeg".to_owned(),
        "audio/mpeg" => "audio/mp3".to_owned(),
        "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => "audio/wav".to_owned(),
        _ => bare,
    }
}

/// MIME type by the extension of a file name or URL.
pub(crate) fn mime_by_name(name: &str) -> Option<&'static str> {
    let path = name.split(['?', '#']).next().unwrap_or_default();
    let (_, extension) = path.rsplit('/').next().unwrap_or_default().rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "heic" => "image/heic",
        "pdf" => "application/pdf",
        "wav" => "audio/wav",
        "mp3" => "audio/mp3",
        "mp4" => "video/mp4",
        "txt" => "text/plain",
        _ => return None,
    })
}

/// MIME type by the magic bytes of a file, in base64.
pub(crate) fn mime_by_magic(base64: &str) -> Option<&'static str> {
    const MAGIC: [(&str, &str); 5] = [
        ("JVBER", "application/pdf"),
        ("iVBOR", "image/png"),
        ("/9j/", "image/jpeg"),
        ("R0lGOD", "image/gif"),
        ("SUQz", "audio/mp3"),
    ];
    MAGIC.iter().find(|(magic, _)| base64.starts_with(magic)).map(|(_, mime)| *mime)
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{DownloadedMedia, FetchedMedia};

    fn check(url: &str, mime: &str, source: MediaSource) {
        let media = from_url(url, String::new()).unwrap();
        assert_eq!((media.mime.as_str(), media.source), (mime, source), "{url}");
    }

    #[test]
    fn data_urls_become_standard_base64() {
        check("data:image/jpg;base64,_-8", "image/jpeg", MediaSource::Inline("/+8=".into()));
        check("DATA:image/png;charset=x;base64,iV BO\n", "image/png", MediaSource::Inline("iVBO".into()));
        check("data:,a%20b", "text/plain", MediaSource::Inline("YSBi".into()));
    }

    #[test]
    fn provider_files_and_public_urls_are_distinguished() {
        check("gs://b/a.png", "image/png", MediaSource::Uri("gs://b/a.png".into()));
        let file = "https://generativelanguage.googleapis.com/v1beta/files/abc";
        check(file, "", MediaSource::Uri(file.into()));
        check("https://x.test/a.PNG?q=1", "image/png", MediaSource::Remote("https://x.test/a.PNG?q=1".into()));
        assert_eq!(from_url("file:///etc/passwd", String::new()).unwrap_err(), BadMedia::Url);
    }

    #[test]
    fn invalid_base64_is_refused() {
        assert_eq!(inline("image/png", "a", String::new()).unwrap_err(), BadMedia::Base64);
        assert_eq!(inline("image/png", "a!bc", String::new()).unwrap_err(), BadMedia::Base64);
    }

    #[test]
    fn served_type_wins_over_the_extension() {
        let media = from_url("https://img.test/cat.jpg", String::new()).unwrap();
        let found = DownloadedMedia { mime: "image/png; charset=binary".into(), data: "iVBO".into() };
        let map = FetchedMedia::from([("https://img.test/cat.jpg".to_owned(), Ok(Arc::new(found)))]);
        let inline = downloaded(&media, RemoteMedia::Fetched(&map)).unwrap();
        assert_eq!((inline.mime.as_str(), inline.source), ("image/png", MediaSource::Inline("iVBO".into())));
    }
}
