//! The body of an answer.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};

/// Why a body ends before its end: the connection or the stream is then aborted (E59), so that no caller takes half
/// an answer for a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("answer aborted")]
pub struct AnswerAborted;

/// The body of every answer of the model path.
pub type AnswerBody = UnsyncBoxBody<Bytes, AnswerAborted>;

/// An answer that is here as a whole.
pub(crate) fn whole(bytes: Bytes) -> AnswerBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}
