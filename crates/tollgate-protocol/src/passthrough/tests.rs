//! Runs a relay over a stream split at given positions; tests of the shared parts.

use super::*;
use crate::{ReplySummary, StreamRelay};

/// The output, the result and the summary of a relay.
pub(crate) type Run = (String, Result<(), StreamError>, ReplySummary);

/// Feeds `pieces`, then ends the stream.
pub(crate) fn run<'a>(mut relay: Box<dyn StreamRelay>, pieces: impl IntoIterator<Item = &'a [u8]>) -> Run {
    let mut out = Vec::new();
    let mut result = Ok(());
    for piece in pieces {
        result = relay.push(&Bytes::copy_from_slice(piece), &mut out);
        if result.is_err() {
            break;
        }
    }
    if result.is_ok() {
        result = relay.finish(&mut out);
        assert_eq!(relay.complete(), result.is_ok());
    }
    (String::from_utf8_lossy(&out.concat()).into_owned(), result, relay.summary())
}

/// Asserts that every split gives the same result as the whole stream, and returns that result.
pub(crate) fn run_cut_everywhere(make: impl Fn() -> Box<dyn StreamRelay>, stream: &[u8]) -> Run {
    let whole = run(make(), [stream]);
    for cut in 0..=stream.len() {
        let (left, right) = stream.split_at(cut);
        assert_eq!(run(make(), [left, right]), whole, "cut at {cut}");
    }
    assert_eq!(run(make(), stream.chunks(1)), whole, "one byte at a time");
    whole
}

#[test]
fn line_ends_between_tokens_become_spaces() {
    assert_eq!(*one_line(b"{\n\"a\":\r\n1}"), *b"{ \"a\":  1}");
    assert!(matches!(one_line(b"{}"), std::borrow::Cow::Borrowed(_)));
}

#[test]
fn body_kind_is_detected_at_any_boundary() {
    for (text, expected) in [("\n\ndata: {}\n\n", "Events"), (" [{}", "Array"), (" \n{\"error\"", "Document"), (": x\n", "Events")]
    {
        for cut in 0..text.len() {
            let mut opening = BodyKind::default();
            opening.inspect(&text.as_bytes()[..cut]).unwrap();
            opening.inspect(&text.as_bytes()[cut..]).unwrap();
            assert!(format!("{opening:?}").starts_with(expected), "{text:?} cut at {cut}");
        }
    }
    assert!(BodyKind::default().inspect(b" <html>").is_err());
}

#[test]
fn buffered_document_is_bounded() {
    let mut opening = BodyKind::default();
    opening.inspect(b"{").unwrap();
    let piece = vec![b' '; 1024];
    let taken = (0..1000).take_while(|_| opening.inspect(&piece).is_ok()).count();
    assert_eq!(taken, 63);
}
