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

impl Usage {
    /// The figures with every part held inside its total: what an upstream claims must not make a sum negative.
    #[must_use]
    pub(crate) fn bounded(self) -> Self {
        let cached = self.cached.min(self.prompt_total);
        Self {
            cached,
            cache_write: self.cache_write.min(self.prompt_total - cached),
            image: self.image.min(self.prompt_total),
            audio: self.audio.min(self.prompt_total),
            reasoning: self.reasoning.min(self.completion_total),
            ..self
        }
    }
}

/// Why a candidate ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
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
pub struct ReplySummary {
    /// The provider's own figures, the last complete ones seen; `None` when it sent none that can be read.
    pub usage: Option<Usage>,
    /// Finish of the first candidate.
    pub finish: Option<FinishReason>,
    /// Whether any content (text, thought, call, media, refusal, block reason) has been seen.
    pub content: bool,
    /// Bytes of text, thought and call arguments seen; the local count of output rests on it.
    pub text_bytes: u64,
    /// Items of media (images, audio pieces) seen.
    pub media: u32,
    /// Pieces of content of a kind the translators do not know, which were left out.
    pub unknown: u32,
    /// The answer says beside its content that the account behind it is limited: it is an answer, and the account's last.
    pub account_refused: bool,
}

/// The native finish reason that says so ([`ReplySummary::account_refused`]).
pub(crate) const ACCOUNT_LIMITED: &str = "PUP_LIMITED_DISABLED";

/// A complete answer that was checked and may be handed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedReply {
    /// The body for the caller.
    pub body: Bytes,
    /// What it says.
    pub summary: ReplySummary,
}

/// A complete 2xx answer that cannot be handed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReply {
    /// Not JSON, HTML, empty, wrong shape, or nothing in it (E58). The text says which, for the log.
    #[error("unreadable answer: {0}")]
    Unreadable(&'static str),
    /// An error object inside the 200.
    #[error("error inside a 200 answer (status {})", .0.status)]
    Problem(Box<UpstreamProblem>),
}

/// Why a stream cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
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

/// A complete answer may be read with the means of a stream.
impl From<StreamError> for InvalidReply {
    fn from(fault: StreamError) -> Self {
        match fault {
            StreamError::Malformed(what) => Self::Unreadable(what),
            StreamError::Problem(problem) => Self::Problem(problem),
            StreamError::Truncated => Self::Unreadable("the answer has no end"),
        }
    }
}

/// One streamed answer on its way from an upstream to a caller: same protocol (bytes pass, with small edits) or
/// translated. Where the network cut the bytes does not matter. Memory is bounded by one event.
pub trait StreamRelay: Send {
    /// Takes the next bytes from upstream and appends what the caller is to receive now. Only whole events are
    /// appended, so a keep-alive or an error event may follow at any time.
    ///
    /// # Errors
    /// When the stream cannot go on. What was appended before the fault is still good.
    fn push(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), StreamError>;

    /// The upstream ended its body cleanly: appends what is still due (a last event, `[DONE]`).
    ///
    /// # Errors
    /// [`StreamError::Truncated`] when the answer was not complete.
    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<(), StreamError>;

    /// What has been read so far.
    fn summary(&self) -> ReplySummary;

    /// Whether the answer is complete: every candidate finished (and the terminator seen, where there is one). The
    /// upstream need not be read further than its own end.
    fn complete(&self) -> bool;

    /// Whether nothing but the terminator is missing: every candidate that began has its finish, and usage has come. An
    /// upstream that is silent from now on has said all it had to; [`StreamRelay::finish`] ends the answer well.
    fn awaiting_end_marker(&self) -> bool {
        false
    }

    /// The bytes of an error event in the caller's protocol; the body is aborted behind them.
    fn problem(&mut self, problem: &Problem) -> Bytes;

    /// A keep-alive in the form the caller's SDKs accept; may stand between any two pushes once content went out.
    fn keep_alive(&self) -> &'static [u8];
}

/// Which candidates of a stream began and which ended, by index; constant size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CandidateProgress {
    begun: u128,
    ended: u128,
    /// An empty word stood where the reason belongs: with some upstreams a reason, with others none.
    blank: u128,
}

impl CandidateProgress {
    /// A candidate showed up. Indexes above 127 (no protocol allows more candidates) share the last place.
    pub(crate) fn record(&mut self, index: u64, ended: bool) {
        let bit = 1_u128 << index.min(127);
        self.begun |= bit;
        if ended {
            self.ended |= bit;
        }
    }

    /// Adds what another chunk says.
    pub(crate) fn join(&mut self, other: Self) {
        self.begun |= other.begun;
        self.ended |= other.ended;
        self.blank |= other.blank;
    }

    /// A candidate's reason is the empty word.
    pub(crate) fn record_blank_finish(&mut self, index: u64) {
        self.blank |= 1_u128 << index.min(127);
    }

    /// Like [`CandidateProgress::all_ended`], where the upstream itself said that it is done: then an empty reason is one.
    #[must_use]
    pub(crate) fn all_ended_or_blank(&self) -> bool {
        self.begun != 0 && self.begun == self.ended | (self.blank & self.begun)
    }

    /// Whether any began.
    #[must_use]
    pub(crate) fn any(&self) -> bool {
        self.begun != 0
    }

    /// At least one began, and every one that began has ended.
    #[must_use]
    pub(crate) fn all_ended(&self) -> bool {
        self.begun != 0 && self.begun == self.ended
    }
}

/// Sorts out complete bodies that are plainly no answer, so that the log can say what they are.
pub(crate) fn reject_non_json(body: &[u8]) -> Result<(), InvalidReply> {
    match body.trim_ascii_start().first() {
        None => Err(InvalidReply::Unreadable("an empty body")),
        Some(b'<') => Err(InvalidReply::Unreadable("HTML")),
        Some(_) => Ok(()),
    }
}
