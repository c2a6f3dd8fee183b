//! What is read from an answer while it passes: usage, finish, whether there was content.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Problem, UpstreamProblem};

/// Token counts of one answer. Totals include their parts: `prompt_total` includes cached and cache-write tokens,
/// `completion_total` includes reasoning (translation reference, section 2.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// All input tokens.
    pub prompt_total: u64,
    /// Of those, read from the provider's cache.
    pub cached: u64,
    /// Of those, written to the provider's cache.
    pub cache_write: u64,
    /// Of those, image tokens, where the provider tells them apart.
    pub image: u64,
    /// Of those, audio tokens, where the provider tells them apart.
    pub audio: u64,
    /// All output tokens.
    pub completion_total: u64,
    /// Of those, reasoning (thinking) tokens.
    pub reasoning: u64,
}

/// Why a candidate ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// Natural end.
    Stop,
    /// Token limit.
    Length,
    /// At least one tool call.
    Tool,
    /// Cut or blocked by a filter.
    Filter,
    /// The upstream's own failure to make a usable answer.
    Fail,
    /// Anything else.
    Other,
}

/// What is known of an answer so far. Cheap to copy; constant size whatever the answer's length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The provider's own figures, the last complete ones seen; `None` when it sent none that can be read.
    pub usage: Option<Usage>,
    /// Finish of the first candidate.
    pub finish: Option<Finish>,
    /// Whether any content (text, thought, call, media, refusal, block reason) has been seen.
    pub content: bool,
    /// Bytes of text, thought and call arguments seen; the local count of output rests on it.
    pub text_bytes: u64,
    /// Items of media (images, audio pieces) seen.
    pub media: u32,
}

/// A complete answer that was checked and may be handed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedReply {
    /// The body for the caller.
    pub body: Bytes,
    /// What it says.
    pub reading: Reading,
}

/// A complete 2xx answer that cannot be handed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReply {
    /// Not JSON, HTML, empty, wrong shape, or nothing in it (E58). The text says which, for the log.
    #[error("unreadable answer: {0}")]
    Unreadable(&'static str),
    /// An error object inside the 200.
    #[error("error inside a 200 answer (status {})", .0.status)]
    Problem(Box<UpstreamProblem>),
}

/// Why a stream cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamFault {
    /// An event that is not what the protocol allows, or larger than the limit.
    #[error("malformed event: {0}")]
    Malformed(&'static str),
    /// The upstream sent an error event.
    #[error("error event (status {})", .0.status)]
    Problem(Box<UpstreamProblem>),
    /// The stream ended before the answer was complete.
    #[error("stream ended before the answer was complete")]
    Truncated,
}

/// One streamed answer on its way from an upstream to a caller: same protocol (bytes pass, with small edits) or
/// translated. Where the network cut the bytes does not matter. Memory is bounded by one event.
pub trait StreamRelay: Send {
    /// Takes the next bytes from upstream and appends what the caller is to receive now. Only whole events are
    /// appended, so a keep-alive or an error event may follow at any time.
    ///
    /// # Errors
    /// When the stream cannot go on. What was appended before the fault is still good.
    fn push(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), StreamFault>;

    /// The upstream ended its body cleanly: appends what is still due (a last event, `[DONE]`).
    ///
    /// # Errors
    /// [`StreamFault::Truncated`] when the answer was not complete.
    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<(), StreamFault>;

    /// What has been read so far.
    fn reading(&self) -> Reading;

    /// Whether the answer is complete: every candidate finished (and the terminator seen, where there is one). The
    /// upstream need not be read further than its own end.
    fn complete(&self) -> bool;

    /// The bytes of an error event in the caller's protocol; the body is aborted behind them.
    fn problem(&mut self, problem: &Problem) -> Bytes;

    /// A keep-alive in the form the caller's SDKs accept; may stand between any two pushes once content went out.
    fn keep_alive(&self) -> &'static [u8];
}
