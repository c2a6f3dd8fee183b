//! Runs a relay over a stream split at given positions.

use bytes::Bytes;

use crate::{ReplySummary, StreamError, StreamRelay};

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
