//! The head of a response (RFC 9112, sections 4, 5, 6.3 and 9.3).

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING},
};
use httparse::{ParserConfig, Status};

use super::body::BodyDecoder;

/// Most header fields of a response.
const MAX_FIELDS: usize = 100;
/// Most bytes of a response head.
pub(super) const MAX_HEAD: usize = 128 * 1024;

/// The head of a response.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
}

/// A head, and what follows it.
#[derive(Debug)]
pub(super) struct ParsedHead {
    pub(super) head: ResponseHead,
    pub(super) body: BodyDecoder,
    /// Whether the connection may be used again after the body.
    pub(super) keeps_alive: bool,
}

/// Why a head cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InvalidHead {
    TooLarge,
    NotHttp,
}

/// Finds the end of a head.
#[derive(Debug, Default)]
pub(super) struct HeadScanner {
    /// Bytes that are known not to contain the end.
    scanned: usize,
}

impl HeadScanner {
    /// Takes a complete head from `received`; `None` if it is not complete yet. Bytes that no response begins with are refused as
    /// soon as they are received.
    pub(super) fn take_head(&mut self, received: &mut BytesMut) -> Result<Option<ParsedHead>, InvalidHead> {
        if received.is_empty() {
            return Ok(None);
        }
        let Some(end) = head_end(received, self.scanned) else {
            if received.len() > MAX_HEAD {
                return Err(InvalidHead::TooLarge);
            }
            if self.scanned == 0 {
                check_beginning(received)?;
            }
            // An end of up to three bytes may have begun.
            self.scanned = received.len().saturating_sub(2);
            return Ok(None);
        };
        self.scanned = 0;
        if end > MAX_HEAD {
            return Err(InvalidHead::TooLarge);
        }
        parse(&received.split_to(end).freeze()).map(Some)
    }
}

/// Where the first empty line after the position ends.
fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    memchr::memchr_iter(b'\n', &bytes[from..]).map(|at| from + at + 1).find_map(|next| match bytes[next..] {
        [b'\n', ..] => Some(next + 1),
        [b'\r', b'\n', ..] => Some(next + 2),
        _ => None,
    })
}

/// Refuses bytes that no response begins with.
fn check_beginning(bytes: &[u8]) -> Result<(), InvalidHead> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    match ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut fields) {
        Ok(_) => Ok(()),
        Err(fault) => Err(invalid(fault)),
    }
}

const fn invalid(fault: httparse::Error) -> InvalidHead {
    if matches!(fault, httparse::Error::TooManyHeaders) { InvalidHead::TooLarge } else { InvalidHead::NotHttp }
}

fn parse(bytes: &Bytes) -> Result<ParsedHead, InvalidHead> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    match ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut fields) {
        Ok(Status::Complete(_)) => {}
        Ok(Status::Partial) => return Err(InvalidHead::NotHttp),
        Err(fault) => return Err(invalid(fault)),
    }
    let (Some(status), Some(minor_version)) = (response.code, response.version) else { return Err(InvalidHead::NotHttp) };
    let mut headers = HeaderMap::with_capacity(response.headers.len());
    let mut framing = FramingFields::new(minor_version);
    for field in response.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| InvalidHead::NotHttp)?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).map_err(|_| InvalidHead::NotHttp)?;
        framing.add(&name, value.as_bytes());
        headers.append(name, value);
    }
    let body = framing.body(status)?;
    let keeps_alive = framing.keeps_alive(body) && status != 101;
    Ok(ParsedHead { head: ResponseHead { status, headers }, body, keeps_alive })
}

/// The framing and the reuse of the connection as the fields of a head state them, collected while they are parsed: looking each
/// name up afterwards costs more.
#[derive(Clone, Copy, Debug)]
struct FramingFields {
    minor_version: u8,
    /// Whether the last transfer coding is `chunked`; `None` without one.
    chunked: Option<bool>,
    length: ContentLength,
    /// Whether version and `Connection` permit another request on the connection.
    keeps_alive: bool,
    closes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContentLength {
    Absent,
    Invalid,
    Bytes(u64),
}

impl FramingFields {
    const fn new(minor_version: u8) -> Self {
        Self { minor_version, chunked: None, length: ContentLength::Absent, keeps_alive: minor_version > 0, closes: false }
    }

    fn add(&mut self, name: &HeaderName, value: &[u8]) {
        let items = || value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        if *name == CONTENT_LENGTH {
            for item in items() {
                self.length = self.length.and(item);
            }
        } else if *name == TRANSFER_ENCODING {
            self.chunked = items().next_back().map(|coding| coding.eq_ignore_ascii_case(b"chunked"));
        } else if *name == CONNECTION {
            for option in items() {
                self.closes |= option.eq_ignore_ascii_case(b"close");
                self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        }
    }

    /// How the body of a response to a GET or POST is framed.
    fn body(&self, status: u16) -> Result<BodyDecoder, InvalidHead> {
        if matches!(status, 100..=199 | 204 | 304) {
            return Ok(BodyDecoder::EMPTY);
        }
        match (self.chunked, self.length) {
            // HTTP/1.0 has no transfer codings (RFC 9112, section 6.1).
            (Some(_), _) if self.minor_version == 0 => Err(InvalidHead::NotHttp),
            (Some(true), _) => Ok(BodyDecoder::Size),
            (Some(false), _) | (None, ContentLength::Absent) => Ok(BodyDecoder::UntilClose),
            (None, ContentLength::Bytes(length)) => Ok(BodyDecoder::Length(length)),
            (None, ContentLength::Invalid) => Err(InvalidHead::NotHttp),
        }
    }

    fn keeps_alive(&self, body: BodyDecoder) -> bool {
        let has_both = self.chunked.is_some() && self.length != ContentLength::Absent;
        self.keeps_alive && !self.closes && !has_both && body != BodyDecoder::UntilClose
    }
}

impl ContentLength {
    /// With a further length, which may be the same one again (RFC 9110, section 8.6).
    fn and(self, digits: &[u8]) -> Self {
        match (self, length_of(digits)) {
            (Self::Absent, Some(length)) => Self::Bytes(length),
            (Self::Bytes(length), Some(again)) if length == again => self,
            _ => Self::Invalid,
        }
    }
}

/// A number of decimal digits alone.
fn length_of(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(head: &str) -> Result<Option<ParsedHead>, InvalidHead> {
        HeadScanner::default().take_head(&mut BytesMut::from(head))
    }

    #[track_caller]
    fn check(head: &str, body: BodyDecoder, keeps_alive: bool) {
        let parsed = scan(&format!("{head}\r\n\r\n")).unwrap().expect("a whole head");
        assert_eq!((parsed.body, parsed.keeps_alive), (body, keeps_alive), "{head}");
    }

    #[test]
    fn head_is_parsed_and_following_bytes_are_left() {
        let text = "HTTP/1.1 429 Slow Down\r\nRetry-After: 3\r\nx-a: 1\r\nX-A:  2 \r\ncontent-length: 2\r\n\r\n{}";
        for first in 0..text.len() {
            let (mut scanner, mut received) = (HeadScanner::default(), BytesMut::from(&text[..first]));
            let before = scanner.take_head(&mut received).unwrap();
            received.extend_from_slice(&text.as_bytes()[first..]);
            let ParsedHead { head, body, keeps_alive } = match before {
                Some(parsed) => parsed,
                None => scanner.take_head(&mut received).unwrap().expect("the head is whole"),
            };
            assert_eq!((head.status, body, keeps_alive), (429, BodyDecoder::Length(2), true));
            assert_eq!(head.headers["retry-after"], "3");
            assert_eq!(head.headers.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
            assert_eq!(received, "{}");
        }
    }

    #[test]
    fn lines_may_end_with_a_line_feed_alone() {
        for head in ["HTTP/1.1 200 OK\nx: y\n\n", "HTTP/1.1 200 OK\r\nx: y\n\r\n", "HTTP/1.1 200\n\n"] {
            assert_eq!(scan(head).unwrap().expect(head).head.status, 200);
        }
    }

    #[test]
    fn framing_follows_the_fields() {
        use BodyDecoder::{Length, Size, UntilClose};
        check("HTTP/1.1 200 OK\r\ncontent-length: 7", Length(7), true);
        check("HTTP/1.1 200 OK\r\ncontent-length: 7, 7\r\ncontent-length: 7", Length(7), true);
        check("HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: x, Close", Length(7), false);
        check("HTTP/1.0 200 OK\r\ncontent-length: 7", Length(7), false);
        check("HTTP/1.0 200 OK\r\ncontent-length: 7\r\nconnection: Keep-Alive", Length(7), true);
        check("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked", Size, true);
        check("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked", Size, true);
        check("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 7", Size, false);
        check("HTTP/1.1 200 OK\r\ntransfer-encoding: identity", UntilClose, false);
        check("HTTP/1.1 200 OK", UntilClose, false);
        check("HTTP/1.1 204 No Content\r\ncontent-length: 4", BodyDecoder::EMPTY, true);
        check("HTTP/1.1 304 Not Modified", BodyDecoder::EMPTY, true);
        check("HTTP/1.1 101 Switching Protocols\r\nupgrade: x", BodyDecoder::EMPTY, false);
    }

    #[test]
    fn invalid_heads_are_refused() {
        for bad in [
            "SSH-2.0-OpenSSH_9.2\r\n",
            "\0\u{1} garbage",
            "HTTP/9.9 200 OK\r\n\r\n",
            "HTTP/1.1 2x0 OK\r\n\r\n",
            "\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx : y\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx: y\r\n z\r\n\r\n",
        ] {
            assert_eq!(scan(bad).unwrap_err(), InvalidHead::NotHttp, "{bad:?}");
        }
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(MAX_FIELDS + 1));
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MAX_HEAD));
        let whole = format!("{long}\r\n\r\n");
        for large in [many, long, whole] {
            assert_eq!(scan(&large).unwrap_err(), InvalidHead::TooLarge);
        }
        let most = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(MAX_FIELDS));
        assert_eq!(scan(&most).unwrap().unwrap().head.headers.len(), MAX_FIELDS);
    }
    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused_regardless_of_chunk_boundaries(
            start in prop::sample::select(vec!["", "HTTP/1.1 200 OK\r\n", "HTTP/1.0 204 x\n", "HTTP/1.1 200 OK\r\ncontent-length: 3"]),
            rest in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"\r\n: ,;a0".to_vec())], 0..60),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = [start.as_bytes(), &rest].concat();
            let summary = |parsed: &ParsedHead| (parsed.head.status, parsed.head.headers.len(), parsed.body, parsed.keeps_alive);
            let mut whole = BytesMut::from(&*bytes);
            let at_once = HeadScanner::default().take_head(&mut whole).map(|parsed| parsed.as_ref().map(summary));
            let cut = cut.index(bytes.len() + 1);
            let (mut scanner, mut received) = (HeadScanner::default(), BytesMut::from(&bytes[..cut]));
            let mut in_two = scanner.take_head(&mut received);
            received.extend_from_slice(&bytes[cut..]);
            if matches!(in_two, Ok(None)) {
                in_two = scanner.take_head(&mut received);
            }
            match (at_once, in_two.map(|parsed| parsed.as_ref().map(summary))) {
                // Both are refused or incomplete: in two parts, a wrong head may be refused before it is complete.
                (Ok(None) | Err(_), Ok(None) | Err(_)) => {}
                (Ok(Some(one)), Ok(Some(other))) => {
                    prop_assert_eq!(one, other);
                    prop_assert_eq!(whole, received);
                }
                (one, other) => prop_assert!(false, "{:?} at once, {:?} in two pieces", one, other),
            }
        }
    }
}
