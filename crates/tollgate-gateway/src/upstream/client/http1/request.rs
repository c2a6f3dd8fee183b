//! The text of a request (RFC 9112, sections 3 and 6.2).

use std::{
    fmt,
    io::{Cursor, IoSlice},
};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Method, Uri, header::CONTENT_LENGTH};

/// A request: its text and its body.
#[derive(Clone, Debug)]
pub(crate) struct Http1Request {
    pub(crate) text: RequestText,
    pub(crate) body: Bytes,
}

/// The head of a request as it is sent, without the length of its body, so that requests that differ in their bodies share it. Its
/// `Debug` output does not contain the fields, one of which is a credential.
#[derive(Clone)]
pub(crate) struct RequestText {
    text: Bytes,
    /// Whether the length of the body is sent even if there is none (RFC 9110, section 8.6).
    has_length: bool,
}

impl RequestText {
    /// The head of a request for a path and query.
    pub(crate) fn new(method: &Method, target: &Uri, headers: &HeaderMap) -> Self {
        let mut text = BytesMut::with_capacity(512);
        for part in [method.as_str(), " ", target.path_and_query().map_or("/", |target| target.as_str()), " HTTP/1.1\r\n"] {
            text.extend_from_slice(part.as_bytes());
        }
        for (name, value) in headers.iter().filter(|(name, _)| **name != CONTENT_LENGTH) {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                text.extend_from_slice(part);
            }
        }
        Self { text: text.freeze(), has_length: method != Method::GET }
    }

    #[cfg(test)]
    pub(in crate::upstream::client) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text).unwrap()
    }
}

impl fmt::Debug for RequestText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestText").finish_non_exhaustive()
    }
}

/// What is left to send of a request.
#[derive(Debug)]
pub(super) struct Outgoing {
    text: Bytes,
    /// The last field and the end of the head.
    end: Cursor<HeadEnd>,
    body: Bytes,
}

impl Outgoing {
    /// The parts that are sent with one call.
    pub(super) const PARTS: usize = 3;

    pub(super) fn new(request: Http1Request) -> Self {
        let Http1Request { text: RequestText { text, has_length }, body } = request;
        let end = head_end((has_length || !body.is_empty()).then_some(body.len()));
        Self { text, end, body }
    }

    /// The parts of the request that are left, in their order.
    pub(super) fn slices<'a, 's>(&'a self, slices: &'s mut [IoSlice<'a>; Self::PARTS]) -> &'s [IoSlice<'a>] {
        let mut count = 0;
        for part in [self.text.chunk(), self.end.chunk(), self.body.chunk()] {
            if !part.is_empty() {
                slices[count] = IoSlice::new(part);
                count += 1;
            }
        }
        &slices[..count]
    }

    /// Removes bytes that were sent.
    pub(super) fn advance(&mut self, count: usize) {
        let count = advance(&mut self.text, count);
        let count = advance(&mut self.end, count);
        advance(&mut self.body, count);
    }
}

/// Removes up to `count` bytes and returns how many more there are to remove.
fn advance(part: &mut impl Buf, count: usize) -> usize {
    let removed = count.min(part.remaining());
    part.advance(removed);
    count - removed
}

const LENGTH_FIELD: &[u8] = b"content-length: ";
const EMPTY_LINE: &[u8] = b"\r\n";
/// Most digits of a length.
const DIGITS: usize = 20;

type HeadEnd = [u8; LENGTH_FIELD.len() + DIGITS + 2 * EMPTY_LINE.len()];

/// The end of a head, with the length of a body.
fn head_end(length: Option<usize>) -> Cursor<HeadEnd> {
    let mut bytes = [0; size_of::<HeadEnd>()];
    let mut begin = bytes.len();
    let mut prepend = |part: &[u8]| {
        begin -= part.len();
        bytes[begin..][..part.len()].copy_from_slice(part);
    };
    prepend(EMPTY_LINE);
    if let Some(length) = length {
        prepend(EMPTY_LINE);
        let mut left = length;
        loop {
            prepend(&[b'0' + u8::try_from(left % 10).unwrap_or_default()]);
            left /= 10;
            if left == 0 {
                break;
            }
        }
        prepend(LENGTH_FIELD);
    }
    let mut end = Cursor::new(bytes);
    end.set_position(begin as u64);
    end
}

#[cfg(test)]
mod tests {
    use http::{
        HeaderValue,
        header::{AUTHORIZATION, HOST},
    };

    use super::*;

    fn text(method: &Method) -> RequestText {
        let headers = HeaderMap::from_iter([
            (HOST, HeaderValue::from_static("h")),
            (CONTENT_LENGTH, HeaderValue::from_static("77")),
            (AUTHORIZATION, HeaderValue::from_static("Bearer secret")),
        ]);
        RequestText::new(method, &Uri::from_static("/v1/x?y=z"), &headers)
    }

    /// The bytes sent if every call sends at most this many.
    fn sent(method: &Method, body: &'static str, each: usize) -> String {
        let mut outgoing = Outgoing::new(Http1Request { text: text(method), body: body.into() });
        let mut sent = Vec::new();
        loop {
            let mut slices = [IoSlice::new(&[]); Outgoing::PARTS];
            let next: Vec<u8> = outgoing.slices(&mut slices).iter().flat_map(|slice| slice.iter().copied()).take(each).collect();
            if next.is_empty() {
                return String::from_utf8(sent).unwrap();
            }
            outgoing.advance(next.len());
            sent.extend(next);
        }
    }

    #[test]
    fn request_bytes_do_not_depend_on_the_size_of_writes() {
        for each in [1, 7, 60, 1000] {
            let post =
                "POST /v1/x?y=z HTTP/1.1\r\nhost: h\r\nauthorization: Bearer secret\r\ncontent-length: 12\r\n\r\n{\"model\":1}\n";
            assert_eq!(sent(&Method::POST, "{\"model\":1}\n", each), post);
            let get = "GET /v1/x?y=z HTTP/1.1\r\nhost: h\r\nauthorization: Bearer secret\r\n\r\n";
            assert_eq!(sent(&Method::GET, "", each), get);
        }
        assert!(sent(&Method::POST, "", 1000).ends_with("\r\ncontent-length: 0\r\n\r\n"));
    }

    #[test]
    fn lengths_are_decimal() {
        for length in [0, 9, 10, 4_096, 1_234_567_890, usize::MAX] {
            let mut end = head_end(Some(length));
            assert_eq!(end.copy_to_bytes(end.remaining()), format!("content-length: {length}\r\n\r\n"));
        }
        assert_eq!(head_end(None).chunk(), b"\r\n");
    }

    #[test]
    fn credential_is_not_printed() {
        assert!(!format!("{:?}", text(&Method::POST)).contains("secret"));
    }
}
