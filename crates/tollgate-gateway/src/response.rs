//! The response body type of the model path.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};

/// Aborts a response body (E59): the connection or stream is reset, so that the caller does not mistake a truncated
/// answer for a complete one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("answer aborted")]
pub struct AnswerAborted;

/// Body of every response of the model path.
pub type AnswerBody = UnsyncBoxBody<Bytes, AnswerAborted>;

/// A body that is complete in memory.
pub(crate) fn whole(bytes: Bytes) -> AnswerBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}
