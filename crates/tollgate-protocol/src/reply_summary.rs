//! Facts read from a reply while it is relayed: usage, finish reason, amount of content.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    Problem, UpstreamProblem,
    scan::{Scanner, SyntaxError},
};

/// Token counts of one answer. Totals include their parts: `prompt_total` includes cached and cache-write tokens,
/// `completion_total` includes reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct Usage {
    /// All input tokens.
    #[n(0)]
    pub prompt_total: u64,
    /// The part of `prompt_total` read from the provider's cache.
    #[n(1)]
    pub cached: u64,
    /// The part of `prompt_total` written to the provider's cache.
    #[n(2)]
    pub cache_write: u64,
    /// The part of `cache_write` that is kept for an hour, which costs more.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[n(3)]
    pub cache_write_1h: u64,
    /// The image tokens in `prompt_total`, if the provider reports them.
    #[n(4)]
    pub image: u64,
    /// The audio tokens in `prompt_total`, if the provider reports them.
    #[n(5)]
    pub audio: u64,
    /// All output tokens.
    #[n(6)]
    pub completion_total: u64,
    /// The reasoning (thinking) tokens in `completion_total`.
    #[n(7)]
    pub reasoning: u64,
}

impl Usage {
    /// Limits every part to its total, so that differences cannot become negative.
    pub(crate) fn bounded(self) -> Self {
        let cached = self.cached.min(self.prompt_total);
        let cache_write = self.cache_write.min(self.prompt_total - cached);
        Self {
            cached,
            cache_write,
            cache_write_1h: self.cache_write_1h.min(cache_write),
            image: self.image.min(self.prompt_total),
            audio: self.audio.min(self.prompt_total),
            reasoning: self.reasoning.min(self.completion_total),
            ..self
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde requires")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Why an answer ended, in the terms of all protocols. The numbers are part of the journal's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum FinishReason {
    /// Natural end.
    #[n(0)]
    Stop,
    #[n(1)]
    Length,
    #[n(2)]
    Tool,
    /// Cut or blocked by a filter.
    #[n(3)]
    Filter,
    /// The upstream failed to produce a usable reply.
    #[n(4)]
    Fail,
    #[n(5)]
    Other,
}

impl FinishReason {
    pub const ALL: [Self; 6] = [Self::Stop, Self::Length, Self::Tool, Self::Filter, Self::Fail, Self::Other];
    /// Their names, in that order.
    pub const WORDS: [&str; 6] = ["stop", "length", "tool", "filter", "fail", "other"];

    pub const fn as_str(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// Facts of a reply so far; constant size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplySummary {
    /// The provider's last readable usage.
    pub usage: Option<Usage>,
    /// Finish reason of the first candidate.
    pub finish: Option<FinishReason>,
    /// Whether there was any content: text, thought, call, media, refusal or block reason.
    pub content: bool,
    /// Bytes of text, thoughts and call arguments; output tokens are estimated from it.
    pub text_bytes: u64,
    /// Number of images and audio pieces.
    pub media: u32,
    /// Web searches by the provider; `None`: the reply reports none.
    pub searches: Option<u32>,
    /// Pieces of content of unknown kinds, which translation dropped.
    pub unknown: u32,
    /// Calls that were left out because the caller takes one at a time.
    pub surplus_calls: u32,
    /// The reply is valid, but also says that the account is limited and will give no other.
    pub account_refused: bool,
}

impl ReplySummary {
    /// Adds the facts of another chunk of the same reply.
    pub(crate) fn add(&mut self, chunk: &Self) {
        self.usage = chunk.usage.or(self.usage);
        self.finish = chunk.finish.or(self.finish);
        self.content |= chunk.content;
        self.text_bytes += chunk.text_bytes;
        self.media = self.media.saturating_add(chunk.media);
        // Each chunk reports the count of the whole reply so far.
        self.searches = self.searches.max(chunk.searches);
        self.account_refused |= chunk.account_refused;
    }

    /// Counts a value as text if it is a string.
    pub(crate) fn add_text(&mut self, scanner: &mut Scanner<'_>) -> Result<(), SyntaxError> {
        if let Some(text) = scanner.optional_string()? {
            self.text_bytes += text.decoded_bytes();
            self.content |= !text.is_empty();
        }
        Ok(())
    }
}

/// The Gemini finish reason that sets [`ReplySummary::account_refused`].
pub(crate) const ACCOUNT_LIMITED: &str = "PUP_LIMITED_DISABLED";

/// A complete answer for the caller, with the figures of its usage record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedReply {
    pub body: Bytes,
    pub summary: ReplySummary,
}

/// A complete 2xx body that cannot be passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReply {
    /// Empty, HTML, not JSON, invalid, or without content (E58). The text is for the log.
    #[error("unreadable answer: {0}")]
    Unreadable(&'static str),
    /// An error object inside the 200.
    #[error("error inside a 200 answer (status {})", .0.status)]
    Problem(Box<UpstreamProblem>),
}

/// Why a streamed answer cannot be continued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// An event that the protocol does not allow, or larger than the limit.
    #[error("malformed event: {0}")]
    Malformed(&'static str),
    #[error("error event (status {})", .0.status)]
    Problem(Box<UpstreamProblem>),
    /// The stream ended before the answer was complete.
    #[error("stream ended before the answer was complete")]
    Truncated,
}

impl From<StreamError> for InvalidReply {
    fn from(fault: StreamError) -> Self {
        match fault {
            StreamError::Malformed(what) => Self::Unreadable(what),
            StreamError::Problem(problem) => Self::Problem(problem),
            StreamError::Truncated => Self::Unreadable("the answer has no end"),
        }
    }
}

/// Relays one streamed reply from an upstream to a caller, passed through with small edits or translated. Chunk boundaries
/// do not matter; memory is bounded by one event.
pub trait StreamRelay: Send {
    /// Reads a chunk from upstream and appends the bytes for the caller. Only whole events are appended, so a keep-alive or an
    /// error event may follow at any time.
    ///
    /// # Errors
    /// When the stream cannot continue. Bytes appended before remain valid.
    fn push(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), StreamError>;

    /// Appends the outstanding bytes (a last event, `[DONE]`) after the upstream ended its body cleanly.
    ///
    /// # Errors
    /// [`StreamError::Truncated`] when the answer was not complete.
    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<(), StreamError>;

    /// The next piece of output after the bytes that [`Self::push`] and [`Self::finish`] appended. Such pieces share memory with the
    /// relay, for example a long text that closing events repeat. Take all of them before the next push or problem.
    fn next_shared(&mut self) -> Option<Bytes> {
        None
    }

    fn summary(&self) -> ReplySummary;

    /// A number that changes with every piece of text, thought or call that arrives, even if the piece is held back until a call is
    /// complete. It distinguishes a working model from one that sends only comments.
    fn received_content_bytes(&self) -> u64 {
        self.summary().text_bytes
    }

    /// Bytes of memory kept between two pushes: an unfinished event, and calls and citations that are sent in one piece. State bounded to
    /// a few KiB may be left out.
    fn held_bytes(&self) -> usize;

    /// True if the body is a JSON document instead of a stream: an error, or the answer of an upstream that does not stream.
    fn reads_document(&self) -> bool {
        false
    }

    /// Appends the beginning of a stream in the caller's protocol, if nothing was written yet. Used when the caller gets the status
    /// before any content, because the model is still thinking.
    fn open(&mut self, _: &mut Vec<Bytes>) {}

    /// Whether the reply is complete: every candidate finished, and the end was received. The end is the protocol's end marker; where
    /// it has none, it is the end of the body.
    fn complete(&self) -> bool;

    /// Whether the reply may be complete although neither an end marker nor the clean end of the body was received: as many
    /// candidates as requested have finished, and nothing followed a finish reason. Otherwise finish reasons do not show the end of
    /// the stream, because candidates may follow one another.
    fn may_end_unmarked(&self, candidates: u32) -> bool;

    /// Whether only the end marker is missing: every candidate that began has finished, and usage was received. If as many
    /// finished as requested and the upstream sends nothing more, [`StreamRelay::finish`] completes the reply.
    fn awaiting_end_marker(&self) -> bool {
        false
    }

    /// Whether only the end of the body is missing, in a protocol without an end marker: every candidate has finished, and nothing
    /// followed a finish reason so far. More may follow.
    fn awaiting_body_end(&self) -> bool {
        false
    }

    /// An error event in the caller's protocol; the body is aborted after it.
    fn problem(&mut self, problem: &Problem) -> Bytes;

    /// A keep-alive that the caller's SDKs accept; may be sent between any two pushes after [`StreamRelay::open`] or the first
    /// content.
    fn keep_alive(&self) -> &'static [u8];
}

/// The candidates of a stream that began and ended, by index.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CandidateProgress {
    begun: u128,
    ended: u128,
    /// The finish reason was an empty string, which some upstreams send instead of a reason and others in every chunk.
    blank: u128,
    content: u128,
    continued: bool,
}

impl CandidateProgress {
    /// Records a candidate. Indexes above 127 share the last bit; no protocol allows as many candidates.
    pub(crate) fn record(&mut self, index: u64, content: bool, ended: bool) {
        let bit = 1_u128 << index.min(127);
        self.begun |= bit;
        if content {
            self.content |= bit;
        }
        if ended {
            self.ended |= bit;
        }
    }

    /// Adds the facts of the next chunk.
    pub(crate) fn join(&mut self, other: Self) {
        self.continued |= self.ended & other.content != 0;
        self.begun |= other.begun;
        self.ended |= other.ended;
        self.blank |= other.blank;
    }

    pub(crate) fn record_blank_finish(&mut self, index: u64) {
        self.blank |= 1_u128 << index.min(127);
    }

    /// Like [`CandidateProgress::all_ended`] once the end marker was received: an empty finish reason counts.
    pub(crate) fn all_ended_or_blank(&self) -> bool {
        self.begun != 0 && self.begun == self.ended | (self.blank & self.begun)
    }

    pub(crate) fn any(&self) -> bool {
        self.begun != 0
    }

    /// Whether content of a candidate followed its finish reason.
    pub(crate) fn continued(&self) -> bool {
        self.continued
    }

    /// At least `candidates` have ended, and no content followed the finish reason of one.
    pub(crate) fn ended_for_good(&self, candidates: u32) -> bool {
        self.ended.count_ones() >= candidates.min(u128::BITS) && !self.continued
    }

    /// At least one began, and every one that began has ended.
    pub(crate) fn all_ended(&self) -> bool {
        self.begun != 0 && self.begun == self.ended
    }
}

/// Rejects empty bodies and HTML, with a reason for the log.
pub(crate) fn reject_non_json(body: &[u8]) -> Result<(), InvalidReply> {
    match body.trim_ascii_start().first() {
        None => Err(InvalidReply::Unreadable("an empty body")),
        Some(b'<') => Err(InvalidReply::Unreadable("HTML")),
        Some(_) => Ok(()),
    }
}
