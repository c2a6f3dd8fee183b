//! What an answer and a stream mean, apart from any wire format.

use super::{Media, Part, Signature};
use crate::{FinishReason, Framing, Usage};

/// A complete answer as it is meant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Candidates, in order of index.
    pub candidates: Vec<Candidate>,
    /// The prompt was blocked: native reason and message.
    pub blocked: Option<BlockedPrompt>,
    /// Usage, if the upstream sent any.
    pub usage: Option<Usage>,
}

/// Embeddings of texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embeddings {
    /// Each a compact JSON array of numbers, as the upstream wrote them, in order of the texts.
    pub items: Vec<String>,
    /// Input tokens, if the upstream sent them.
    pub prompt_tokens: Option<u64>,
}

/// A blocked prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockedPrompt {
    /// Native reason, such as `SAFETY`.
    pub reason: String,
    /// The upstream's words.
    pub message: Option<String>,
}

/// One candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Index.
    pub index: u32,
    /// Its parts.
    pub parts: Vec<Part>,
    /// Why it ended; `None` when the wire did not say.
    pub finish: Option<FinishReason>,
    /// The upstream's own word.
    pub native: Option<String>,
    /// The upstream's explanation.
    pub message: Option<String>,
    /// Refusal text (chat completions).
    pub refusal: Option<String>,
    /// Log probabilities, neutral form.
    pub logprobs: Option<Vec<TokenLogprob>>,
    /// Citations, byte offsets into the joined text.
    pub citations: Vec<Citation>,
}

/// A token with its log probability.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Token text.
    pub token: String,
    /// Log probability.
    pub logprob: serde_json::Number,
    /// Alternatives.
    pub top: Vec<(String, serde_json::Number)>,
}

/// A source the answer names.
#[derive(Clone, Debug, PartialEq)]
pub struct Citation {
    /// First byte.
    pub start: usize,
    /// Behind the last byte.
    pub end: usize,
    /// Address.
    pub url: String,
    /// Title.
    pub title: String,
}

/// One event of an answer, streamed or not. `candidate` is the candidate's index, `call` counts the calls of the whole answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Text.
    Text {
        /// Candidate.
        candidate: u32,
        /// The text; empty where only a signature came.
        text: String,
        /// State that travels with it.
        signature: Option<Signature>,
    },
    /// Thinking text. In a stream an empty text with a signature closes the block whose pieces came before, and is a
    /// block of its own when none came.
    Think {
        /// Candidate.
        candidate: u32,
        /// The text, possibly empty.
        text: String,
        /// Opaque data instead of text.
        redacted: Option<String>,
        /// The block's signature.
        signature: Option<Signature>,
    },
    /// A call begins.
    CallOpen {
        /// Candidate.
        candidate: u32,
        /// Call.
        call: u32,
        /// Id, empty when the wire had none.
        id: String,
        /// Name.
        name: String,
        /// A custom (free text) tool: the arguments are plain text.
        custom: bool,
        /// State that travels with it.
        signature: Option<Signature>,
    },
    /// A piece of its arguments.
    CallArgs {
        /// Candidate.
        candidate: u32,
        /// Call.
        call: u32,
        /// The piece.
        fragment: String,
    },
    /// A call is whole.
    CallDone {
        /// Candidate.
        candidate: u32,
        /// Call.
        call: u32,
    },
    /// Media.
    Media {
        /// Candidate.
        candidate: u32,
        /// What and where.
        media: Media,
    },
    /// Refusal text (chat completions).
    Refusal {
        /// Candidate.
        candidate: u32,
        /// The text.
        text: String,
    },
    /// Log probabilities of text that follows.
    Logprobs {
        /// Candidate.
        candidate: u32,
        /// The tokens.
        tokens: Vec<TokenLogprob>,
    },
    /// Sources of text that came before.
    Citations {
        /// Candidate.
        candidate: u32,
        /// The sources.
        citations: Vec<Citation>,
    },
    /// A candidate ended.
    Finish {
        /// Candidate.
        candidate: u32,
        /// Why.
        finish: FinishReason,
        /// The upstream's own word.
        native: Option<String>,
        /// The upstream's explanation.
        message: Option<String>,
    },
    /// The prompt was blocked.
    BlockedPrompt(BlockedPrompt),
    /// Cumulative usage: the last one counts.
    Usage(Usage),
    /// Content of a kind nobody here knows: it is counted and not handed on.
    Unknown {
        /// Candidate.
        candidate: u32,
    },
    /// The end: the stream's own mark, or the end of a body.
    End,
}

impl Event {
    /// Whether the event holds something of an answer. Signatures, sources and probabilities alone are none.
    pub(crate) fn is_content(&self) -> bool {
        match self {
            Self::Text { text, .. } | Self::Think { text, .. } | Self::Refusal { text, .. } => !text.is_empty(),
            Self::CallOpen { .. } | Self::Media { .. } | Self::BlockedPrompt(_) => true,
            Self::CallArgs { .. }
            | Self::CallDone { .. }
            | Self::Logprobs { .. }
            | Self::Citations { .. }
            | Self::Finish { .. }
            | Self::Usage(_)
            | Self::Unknown { .. }
            | Self::End => false,
        }
    }
}

/// What an answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerKind {
    /// Text a model writes.
    #[default]
    Generated,
    /// A number of tokens.
    Count,
    /// Embeddings.
    Embeddings {
        /// The caller's form is a list (everything but native `:embedContent`).
        list: bool,
        /// Written as base64 of little-endian floats (chat callers that ask for it).
        base64: bool,
        /// How many texts were sent: as many vectors have to come back.
        count: usize,
    },
}

/// What an answer's translation must remember of its request.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplyContext {
    /// Our request id without `req_` (stands in generated ids).
    pub request_id: String,
    /// Our request id as callers see it (`req_…`): the native `responseId`.
    pub response_id: String,
    /// Unix seconds for `created`.
    pub now: i64,
    /// The caller's name of the model.
    pub model: String,
    /// What was asked for.
    pub kind: AnswerKind,
    /// The caller's answer is streamed this way.
    pub framing: Framing,
    /// Streamed at all.
    pub stream: bool,
    /// Usage chunk wanted.
    pub include_usage: bool,
    /// Thoughts wanted (native callers; chat callers see whatever comes).
    pub include_thoughts: bool,
    /// Thinking blocks without visible text travel to a native caller as signatures on the parts that follow, to come
    /// back with the history (translation reference, section 1.6). True with `include_thoughts`, and where the
    /// upstream was asked to omit the text.
    pub carry_thinking: bool,
    /// Google's signature of a call travels behind its id too, for callers that drop members they do not know.
    pub id_signatures: bool,
    /// `false`: only the first call of a candidate is handed on.
    pub parallel: bool,
    /// Names of custom tools.
    pub custom_tools: Vec<String>,
    /// Upstream tool name to caller's tool name.
    pub name_map: Vec<(String, String)>,
}

impl ReplyContext {
    /// The context of a request that asked for nothing special: not streamed, no thoughts, no tools renamed.
    /// `request_id` is ours without `req_`.
    #[must_use]
    pub fn new(request_id: &str, now: i64, model: &str) -> Self {
        Self {
            request_id: request_id.to_owned(),
            response_id: format!("req_{request_id}"),
            now,
            model: model.to_owned(),
            kind: AnswerKind::Generated,
            framing: Framing::Sse,
            stream: false,
            include_usage: false,
            include_thoughts: false,
            carry_thinking: false,
            id_signatures: true,
            parallel: true,
            custom_tools: Vec::new(),
            name_map: Vec::new(),
        }
    }
}
