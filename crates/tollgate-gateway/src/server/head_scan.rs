//! Scans the raw bytes of an HTTP/1.1 connection for heads of ambiguous framing, which hyper resolves silently: a repeated
//! `Content-Length` or `Transfer-Encoding`, or both together. Such requests are refused, because a proxy in front may frame them
//! differently (request smuggling, RFC 9112, section 11.2). Bodies are skipped as hyper reads them, so that every head is found:
//! after empty lines, or in the same packet as the request before it.

/// Bytes kept of each line: the longest name compared and a length.
const KEPT: usize = 64;

/// Framing of a message according to its raw head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Framing {
    #[default]
    Plain,
    Ambiguous,
}

/// Position of the scan in the connection.
#[derive(Clone, Copy, Debug, Default)]
enum FramePosition {
    #[default]
    Head,
    /// This many bytes of a body, or of a chunk with its line end, are left.
    Body {
        left: u64,
        chunked: bool,
    },
    ChunkSize,
    Trailers,
    /// An ambiguous head, or bytes that hyper refuses: the connection ends.
    Lost,
}

/// Incremental scan of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadScan {
    position: FramePosition,
    line: [u8; KEPT],
    /// Length of the line so far; may exceed [`KEPT`].
    length: usize,
    /// Whether the head has a line that is not empty.
    started: bool,
    lengths: u8,
    encodings: u8,
    body: u64,
    /// Heads of plain framing whose requests have not begun.
    plain: u32,
}

impl Default for HeadScan {
    fn default() -> Self {
        let position = FramePosition::default();
        Self { position, line: [0; KEPT], length: 0, started: false, lengths: 0, encodings: 0, body: 0, plain: 0 }
    }
}

impl HeadScan {
    /// Scans the next bytes of the connection.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.position {
                FramePosition::Lost => return,
                FramePosition::Body { left, chunked } => {
                    let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    let left = left - skipped as u64;
                    self.position = match (left, chunked) {
                        (0, true) => FramePosition::ChunkSize,
                        (0, false) => FramePosition::Head,
                        (left, chunked) => FramePosition::Body { left, chunked },
                    };
                    &bytes[skipped..]
                }
                FramePosition::Head | FramePosition::ChunkSize | FramePosition::Trailers => self.line(bytes),
            };
        }
    }

    /// Reads up to the end of a line; returns the bytes behind it.
    fn line<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            self.keep(bytes);
            return &[];
        };
        let piece = &bytes[..end];
        // Nearly all lines arrive whole.
        if self.length == 0 {
            self.finish_line(&piece[..piece.len().min(KEPT)], piece.len() <= KEPT);
        } else {
            self.keep(piece);
            let (kept, length) = (self.line, self.length);
            self.finish_line(&kept[..length.min(KEPT)], length <= KEPT);
            self.length = 0;
        }
        &bytes[end + 1..]
    }

    /// Keeps a part of a line.
    fn keep(&mut self, piece: &[u8]) {
        if self.length < KEPT {
            let kept = piece.len().min(KEPT - self.length);
            self.line[self.length..self.length + kept].copy_from_slice(&piece[..kept]);
        }
        self.length += piece.len();
    }

    /// Reads a line, of which `line` is the beginning, or all of it if `whole`.
    fn finish_line(&mut self, line: &[u8], whole: bool) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.position {
            FramePosition::Head if line.is_empty() => {
                // Empty lines before the request line do not count.
                if self.started {
                    self.finish_head();
                }
            }
            FramePosition::Head => {
                self.started = true;
                self.field(line, whole);
            }
            FramePosition::ChunkSize => {
                let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
                self.position = match number(size, 16) {
                    Some(0) => FramePosition::Trailers,
                    // A line end follows the chunk.
                    Some(size) => FramePosition::Body { left: size.saturating_add(2), chunked: true },
                    None => FramePosition::Lost,
                };
            }
            FramePosition::Trailers if line.is_empty() => self.position = FramePosition::Head,
            FramePosition::Trailers | FramePosition::Body { .. } | FramePosition::Lost => {}
        }
    }

    fn field(&mut self, line: &[u8], whole: bool) {
        if let Some(value) = after(line, b"content-length:") {
            self.lengths = self.lengths.saturating_add(1);
            match number(value, 10).filter(|_| whole) {
                Some(length) => self.body = length,
                None => self.position = FramePosition::Lost,
            }
        } else if after(line, b"transfer-encoding:").is_some() {
            self.encodings = self.encodings.saturating_add(1);
        }
    }

    fn finish_head(&mut self) {
        let (lengths, encodings, body) = (self.lengths, self.encodings, self.body);
        (self.started, self.lengths, self.encodings, self.body) = (false, 0, 0, 0);
        if lengths > 1 || encodings > 1 || lengths > 0 && encodings > 0 {
            self.position = FramePosition::Lost;
            return;
        }
        self.plain = self.plain.saturating_add(1);
        self.position = match (encodings, body) {
            (0, 0) => FramePosition::Head,
            (0, left) => FramePosition::Body { left, chunked: false },
            _ => FramePosition::ChunkSize,
        };
    }

    /// The framing of the next request that begins.
    pub(super) fn next_framing(&mut self) -> Framing {
        if let Some(rest) = self.plain.checked_sub(1) {
            self.plain = rest;
            return Framing::Plain;
        }
        if matches!(self.position, FramePosition::Lost) { Framing::Ambiguous } else { Framing::Plain }
    }
}

/// The bytes after a field's name.
fn after<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    // Most other names have another length, so comparing the colon first rules them out.
    (start.last() == name.last() && start.eq_ignore_ascii_case(name)).then_some(value)
}

fn number(text: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    if text.starts_with('+') {
        return None;
    }
    u64::from_str_radix(text, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(head: &str, cut: usize) -> Framing {
        let mut scan = HeadScan::default();
        for piece in head.as_bytes().chunks(cut) {
            scan.push(piece);
        }
        scan.next_framing()
    }

    /// The framings of the requests in these bytes.
    fn scan_all(bytes: &str, cut: usize, requests: usize) -> Vec<Framing> {
        let mut scan = HeadScan::default();
        for piece in bytes.as_bytes().chunks(cut) {
            scan.push(piece);
        }
        (0..requests).map(|_| scan.next_framing()).collect()
    }

    #[test]
    fn ambiguous_head_behind_empty_lines_or_another_request_is_detected() {
        const BOTH: &str = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n";
        const TWICE: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        let (plain, bad) = (Framing::Plain, Framing::Ambiguous);
        for (bytes, expected) in [
            (format!("\r\n{BOTH}"), vec![bad]),
            (format!("\r\n\n\r\n{BOTH}"), vec![bad]),
            (TWICE.to_owned(), vec![bad]),
            (format!("GET / HTTP/1.1\r\nHost: x\r\n\r\n{BOTH}"), vec![plain, bad]),
            (format!("POST / HTTP/1.1\r\nContent-Length: 8\r\n\r\n{{\n\n\n\n\n\n}}{BOTH}"), vec![plain, bad]),
            (
                format!(
                    "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\n\n\n\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n{TWICE}"
                ),
                vec![plain, bad],
            ),
            (format!("GET / HTTP/1.1\r\n\r\n{}", "GET / HTTP/1.1\r\n\r\n".repeat(2)), vec![plain; 3]),
        ] {
            for cut in 1..=bytes.len() {
                assert_eq!(scan_all(&bytes, cut, expected.len()), expected, "{bytes:?} cut every {cut} bytes");
            }
        }
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
