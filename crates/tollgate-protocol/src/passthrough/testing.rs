//! Runs a relay over a stream that is cut in a given way.

use bytes::Bytes;

use crate::{ReplySummary, StreamError, StreamRelay};

/// What a caller received, how it ended, what was read.
pub(crate) type Run = (String, Result<(), StreamError>, ReplySummary);

/// Feeds `pieces`, then the clean end.
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

/// Asserts that every cut gives what the whole stream gives, and returns that.
pub(crate) fn run_cut_everywhere(make: impl Fn() -> Box<dyn StreamRelay>, stream: &[u8]) -> Run {
    let whole = run(make(), [stream]);
    for cut in 0..=stream.len() {
        let (left, right) = stream.split_at(cut);
        assert_eq!(run(make(), [left, right]), whole, "cut at {cut}");
    }
    assert_eq!(run(make(), stream.chunks(1)), whole, "one byte at a time");
    whole
}
