//! Scans the raw lines of an HTTP/1.1 head for ambiguous framing, which hyper resolves silently: a repeated
//! `Content-Length`, or `Content-Length` together with `Transfer-Encoding`. Such requests are refused, because a proxy in
//! front may frame them differently (request smuggling, RFC 9112, section 11.2).

/// Bytes kept of each line: the length of the longest name compared.
const KEPT: usize = 18;

/// Framing of a message according to its raw head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Framing {
    #[default]
    Plain,
    Ambiguous,
}

/// Incremental scan of one head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadScan {
    line: [u8; KEPT],
    /// Length of the line so far; may exceed [`KEPT`].
    length: usize,
    lengths: u8,
    encodings: u8,
    done: bool,
}

impl HeadScan {
    /// Scans the next bytes of the connection. Bytes after the head are ignored.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !self.done && !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes);
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            if self.length < KEPT {
                let kept = piece.len().min(KEPT - self.length);
                self.line[self.length..self.length + kept].copy_from_slice(&piece[..kept]);
            }
            self.length += piece.len();
            let Some(end) = end else { return };
            self.finish_line();
            bytes = &bytes[end + 1..];
        }
    }

    fn finish_line(&mut self) {
        let line = &self.line[..self.length.min(KEPT)];
        if starts_with(line, b"content-length:") {
            self.lengths = self.lengths.saturating_add(1);
        } else if starts_with(line, b"transfer-encoding:") {
            self.encodings = self.encodings.saturating_add(1);
        }
        // hyper skips empty lines before the request line. The scan ends there, so a head after them is not scanned.
        self.done = line.is_empty() || line == b"\r";
        self.length = 0;
    }

    pub(super) fn framing(self) -> Framing {
        if self.lengths > 1 || self.lengths > 0 && self.encodings > 0 { Framing::Ambiguous } else { Framing::Plain }
    }
}

fn starts_with(line: &[u8], name: &[u8]) -> bool {
    line.len() >= name.len() && line[..name.len()].eq_ignore_ascii_case(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(head: &str, cut: usize) -> Framing {
        let mut scan = HeadScan::default();
        for piece in head.as_bytes().chunks(cut) {
            scan.push(piece);
        }
        scan.framing()
    }

    #[test]
    fn ambiguous_framing_is_detected_at_every_split() {
        for (head, expected) in [
            ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", Framing::Plain),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: x\r\n\r\n", Framing::Plain),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n", Framing::Ambiguous),
            ("POST / HTTP/1.1\r\ncontent-length: 4\r\nX: y\r\ntransfer-ENCODING: chunked\r\n\r\n", Framing::Ambiguous),
            ("POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\n", Framing::Ambiguous),
            ("POST / HTTP/1.1\nContent-Length: 4\nContent-Length: 4\n\n", Framing::Ambiguous),
            ("POST / HTTP/1.1\r\nX-Content-Length: 4\r\nContent-Length: 4\r\n\r\n", Framing::Plain),
            ("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\n", Framing::Plain),
        ] {
            for cut in 1..=head.len() {
                assert_eq!(scan(head, cut), expected, "{head:?} cut every {cut} bytes");
            }
        }
    }
}
