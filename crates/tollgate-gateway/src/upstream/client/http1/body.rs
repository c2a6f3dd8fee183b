//! The body of a response (RFC 9112, sections 6 and 7), decoded from the bytes that its connection has received.

use bytes::{Buf as _, Bytes, BytesMut};
use httparse::Status;

/// Longest line of a chunk's size, with its extensions, which are ignored.
const MAX_SIZE_LINE: usize = 4 * 1024;
/// Most bytes of trailers, which are ignored.
const MAX_TRAILERS: usize = 16 * 1024;

/// What is left of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyDecoder {
    /// This many bytes.
    Length(u64),
    /// A chunk, beginning with its size.
    Size,
    /// This many bytes of a chunk, and further chunks.
    Chunk(u64),
    /// The end of a chunk's line, and further chunks.
    ChunkEnd,
    /// Trailers, of which this many bytes were read.
    Trailers(usize),
    /// Everything until the connection is closed.
    UntilClose,
}

/// The result of decoding what was received.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// The next bytes of the body, never empty.
    Data(Bytes),
    /// More bytes must be received first.
    Incomplete,
    /// The body is complete.
    End,
}

/// The framing of a body is invalid.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidFraming;

impl BodyDecoder {
    pub(super) const EMPTY: Self = Self::Length(0);

    /// Takes the next bytes of the body, or its framing, from `received`.
    pub(super) fn decode(&mut self, received: &mut BytesMut) -> Result<Decoded, InvalidFraming> {
        loop {
            match self {
                Self::Length(0) => return Ok(Decoded::End),
                Self::Chunk(0) => *self = Self::ChunkEnd,
                Self::Length(left) | Self::Chunk(left) => return Ok(take(received, left)),
                Self::UntilClose if received.is_empty() => return Ok(Decoded::Incomplete),
                Self::UntilClose => return Ok(Decoded::Data(received.split().freeze())),
                // httparse takes a line without digits for the last chunk.
                Self::Size if received.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) => return Err(InvalidFraming),
                Self::Size => match httparse::parse_chunk_size(received) {
                    Ok(Status::Complete((line, size))) => {
                        received.advance(line);
                        *self = if size == 0 { Self::Trailers(0) } else { Self::Chunk(size) };
                    }
                    Ok(Status::Partial) if received.len() < MAX_SIZE_LINE => return Ok(Decoded::Incomplete),
                    Ok(Status::Partial) | Err(_) => return Err(InvalidFraming),
                },
                Self::ChunkEnd => match **received {
                    [b'\r', b'\n', ..] => {
                        received.advance(2);
                        *self = Self::Size;
                    }
                    [] | [b'\r'] => return Ok(Decoded::Incomplete),
                    _ => return Err(InvalidFraming),
                },
                Self::Trailers(read) => {
                    let line = memchr::memchr(b'\n', received).map(|at| at + 1);
                    if *read + line.unwrap_or(received.len()) > MAX_TRAILERS {
                        return Err(InvalidFraming);
                    }
                    let Some(line) = line else { return Ok(Decoded::Incomplete) };
                    let is_last = matches!(received[..line], [b'\n'] | [b'\r', b'\n']);
                    received.advance(line);
                    *self = if is_last { Self::EMPTY } else { Self::Trailers(*read + line) };
                }
            }
        }
    }

    /// Ends the body because the connection was closed. False if bytes are missing.
    pub(super) fn end_at_close(&mut self) -> bool {
        let is_complete = matches!(self, Self::UntilClose | Self::Length(0));
        *self = Self::EMPTY;
        is_complete
    }

    /// Whether the body is known to be complete.
    pub(super) const fn is_end(self) -> bool {
        matches!(self, Self::Length(0))
    }

    /// A lower bound of the bytes that are left.
    pub(super) const fn at_least(self) -> u64 {
        match self {
            Self::Length(left) | Self::Chunk(left) => left,
            Self::Size | Self::ChunkEnd | Self::Trailers(_) | Self::UntilClose => 0,
        }
    }
}

/// Takes up to `left` bytes and subtracts them.
fn take(received: &mut BytesMut, left: &mut u64) -> Decoded {
    if received.is_empty() {
        return Decoded::Incomplete;
    }
    let count = usize::try_from(*left).map_or(received.len(), |left| left.min(received.len()));
    *left -= count as u64;
    Decoded::Data(received.split_to(count).freeze())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes a body that arrives in pieces of this size. Returns the data, and the bytes after the body.
    fn decode(mut decoder: BodyDecoder, body: &[u8], piece: usize) -> Result<Option<(Vec<u8>, usize)>, InvalidFraming> {
        let (mut received, mut data, mut sent) = (BytesMut::new(), Vec::new(), 0);
        loop {
            match decoder.decode(&mut received)? {
                Decoded::Data(bytes) => {
                    assert!(!bytes.is_empty());
                    data.extend_from_slice(&bytes);
                }
                Decoded::End => {
                    assert!(decoder.is_end());
                    return Ok(Some((data, received.len() + body.len() - sent)));
                }
                Decoded::Incomplete if sent == body.len() => return Ok(None),
                Decoded::Incomplete => {
                    let next = body.len().min(sent + piece);
                    received.extend_from_slice(&body[sent..next]);
                    sent = next;
                }
            }
        }
    }

    #[track_caller]
    fn check(decoder: BodyDecoder, body: &str, expected: Result<Option<(&str, usize)>, InvalidFraming>) {
        let expected = expected.map(|whole| whole.map(|(data, rest)| (data.as_bytes().to_vec(), rest)));
        for piece in [1, 2, 3, 7, 1000] {
            assert_eq!(decode(decoder, body.as_bytes(), piece), expected, "in pieces of {piece}: {body:?}");
        }
    }

    #[test]
    fn bodies_are_decoded_at_any_chunk_boundary() {
        check(BodyDecoder::Length(5), "hello", Ok(Some(("hello", 0))));
        check(BodyDecoder::Length(5), "hellooo", Ok(Some(("hello", 2))));
        check(BodyDecoder::Length(5), "hell", Ok(None));
        check(BodyDecoder::EMPTY, "x", Ok(Some(("", 1))));
        check(BodyDecoder::Size, "5\r\nhello\r\n0\r\n\r\n", Ok(Some(("hello", 0))));
        check(BodyDecoder::Size, "2;a=b\r\nhe\r\n0003 \r\nllo\r\n00\r\nx: y\r\nz: w\n\r\nrest", Ok(Some(("hello", 4))));
        check(BodyDecoder::Size, "A\r\n0123456789\r\n0\r\n\n", Ok(Some(("0123456789", 0))));
        for cut in
            ["", "5", "5\r", "5\r\n", "5\r\nhello", "5\r\nhello\r", "5\r\nhello\r\n", "0\r\n", "0\r\nx: y", "0\r\nx: y\r\n\r"]
        {
            check(BodyDecoder::Size, cut, Ok(None));
        }
        check(BodyDecoder::UntilClose, "hello", Ok(None));
    }

    #[test]
    fn invalid_framing_is_refused() {
        for bad in [
            "xyz\r\n",
            "\r\n",
            ";a=b\r\n",
            " 5\r\n",
            "5\r\nhello\r\n\r\n",
            "-1\r\n",
            "fffffffffffffffff\r\nx",
            "5\r\nhelloo",
            "5\r\nhello\n5\r\n",
            "5\nhello\r\n",
        ] {
            check(BodyDecoder::Size, bad, Err(InvalidFraming));
        }
        check(BodyDecoder::Size, &format!("1;{}", "x".repeat(MAX_SIZE_LINE)), Err(InvalidFraming));
        check(BodyDecoder::Size, &format!("0\r\nx: {}", "y".repeat(MAX_TRAILERS)), Err(InvalidFraming));
        check(BodyDecoder::Size, &format!("0\r\n{}", "x: y\r\n".repeat(MAX_TRAILERS)), Err(InvalidFraming));
    }

    #[test]
    fn only_a_body_without_a_length_ends_with_the_connection() {
        for (mut decoder, is_complete) in [
            (BodyDecoder::UntilClose, true),
            (BodyDecoder::EMPTY, true),
            (BodyDecoder::Length(1), false),
            (BodyDecoder::Size, false),
            (BodyDecoder::Chunk(1), false),
            (BodyDecoder::ChunkEnd, false),
            (BodyDecoder::Trailers(0), false),
        ] {
            assert_eq!(decoder.end_at_close(), is_complete);
            assert!(decoder.is_end());
        }
    }
    proptest! {
        #[test]
        fn any_bytes_are_decoded_equally_at_any_chunk_boundary(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"\r\n;0123456789abF".to_vec())], 0..80),
            piece in 1_usize..20,
        ) {
            for decoder in [BodyDecoder::Size, BodyDecoder::Length(7), BodyDecoder::UntilClose] {
                prop_assert_eq!(decode(decoder, &bytes, piece), decode(decoder, &bytes, usize::MAX / 2));
            }
        }

        #[test]
        fn chunks_are_joined(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8), piece in 1_usize..50) {
            let mut body: Vec<u8> = chunks.iter().flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat()).collect();
            body.extend_from_slice(b"0\r\n\r\n");
            prop_assert_eq!(decode(BodyDecoder::Size, &body, piece), Ok(Some((chunks.concat(), 0))));
        }
    }
}
