//! Reads the raw lines of an HTTP/1.1 head for what the HTTP library settles silently: a length stated twice, or both
//! a length and a transfer encoding. The library frames such messages safely, but two parties that read them
//! differently must never get the chance, so they are refused.

/// Bytes of a line that are kept: enough for the longest name looked for.
const KEPT: usize = 18;

/// What the raw head says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Framing {
    /// One way to read it.
    #[default]
    Plain,
    /// More than one.
    Ambiguous,
}

/// A scan of one head, fed as its bytes come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadScan {
    line: [u8; KEPT],
    /// Length of the line so far; may be longer than what is kept of it.
    length: usize,
    lengths: u8,
    encodings: u8,
    done: bool,
}

impl HeadScan {
    /// The next bytes of the connection. What stands behind the head is ignored.
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
        if begins_with(line, b"content-length:") {
            self.lengths = self.lengths.saturating_add(1);
        } else if begins_with(line, b"transfer-encoding:") {
            self.encodings = self.encodings.saturating_add(1);
        }
        // Empty lines before the request line do not end a head, but there is nothing to find in them either: the
        // library skips them, and the scan of a head behind them is given up.
        self.done = line.is_empty() || line == b"\r";
        self.length = 0;
    }

    pub(super) fn framing(self) -> Framing {
        if self.lengths > 1 || self.lengths > 0 && self.encodings > 0 { Framing::Ambiguous } else { Framing::Plain }
    }
}

fn begins_with(line: &[u8], name: &[u8]) -> bool {
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
    fn two_ways_to_read_a_head_are_noticed_wherever_it_is_cut() {
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
