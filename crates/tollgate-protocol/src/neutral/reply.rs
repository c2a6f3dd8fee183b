//! Protocol-neutral answers and stream events.

use super::{Media, Part, Signature};
use crate::{FinishReason, Framing, Usage};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Candidates, in order of index.
    pub candidates: Vec<Candidate>,
    pub blocked: Option<BlockedPrompt>,
    /// Token usage, if the upstream reported it.
    pub usage: Option<Usage>,
}

/// Embedding vectors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embeddings {
    /// One compact JSON array of numbers per input, as the upstream sent them, in order of the inputs.
    pub items: Vec<String>,
    /// Input tokens, if the upstream reported them.
    pub prompt_tokens: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BlockedPrompt {
    /// Gemini block reason, such as `SAFETY`.
    pub reason: String,
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub index: u32,
    pub parts: Vec<Part>,
    /// Finish reason; `None` where the upstream gave none.
    pub finish: Option<FinishReason>,
    /// The upstream's own finish reason.
    pub native: Option<String>,
    /// The upstream's explanation.
    pub message: Option<String>,
    /// Refusal text (chat completions).
    pub refusal: Option<String>,
    /// Log probabilities.
    pub logprobs: Option<Vec<TokenLogprob>>,
    /// Citations, with byte offsets into the joined text.
    pub citations: Vec<Citation>,
}

/// A token with its log probability.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    pub token: String,
    /// Log probability.
    pub logprob: serde_json::Number,
    /// Alternatives with their log probabilities.
    pub top: Vec<(String, serde_json::Number)>,
}

/// A source cited by the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Citation {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
    pub url: String,
    pub title: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Text {
        /// Index of the candidate.
        candidate: u32,
        /// The text; empty for a signature alone.
        text: String,
        /// Opaque state to return with it.
        signature: Option<Signature>,
    },
    /// Thinking text. In a stream, an empty text with a signature closes the block of the preceding pieces; without preceding
    /// pieces it is a block of its own.
    Think {
        candidate: u32,
        /// The text, possibly empty.
        text: String,
        /// Opaque data instead of text.
        redacted: Option<String>,
        /// The block's signature.
        signature: Option<Signature>,
    },
    CallOpen {
        candidate: u32,
        /// Number of the call, counted over the whole answer.
        call: u32,
        /// Id; empty where the upstream gave none.
        id: String,
        name: String,
        /// True for a custom (free-text) tool: the arguments are plain text.
        custom: bool,
        /// Opaque state to return with it.
        signature: Option<Signature>,
    },
    /// A piece of a call's arguments.
    CallArgs {
        candidate: u32,
        /// Number of the call, counted over the whole answer.
        call: u32,
        fragment: String,
    },
    CallDone {
        candidate: u32,
        /// Number of the call, counted over the whole answer.
        call: u32,
    },
    Media {
        candidate: u32,
        media: Media,
    },
    /// Refusal text (chat completions).
    Refusal {
        candidate: u32,
        text: String,
    },
    /// Log probabilities of text that follows.
    Logprobs {
        candidate: u32,
        tokens: Vec<TokenLogprob>,
    },
    /// Citations of preceding text.
    Citations {
        candidate: u32,
        citations: Vec<Citation>,
    },
    Finish {
        candidate: u32,
        finish: FinishReason,
        /// The upstream's own finish reason.
        native: Option<String>,
        /// The upstream's explanation.
        message: Option<String>,
    },
    BlockedPrompt(BlockedPrompt),
    /// Cumulative token usage; a later event replaces an earlier one.
    Usage(Usage),
    /// Content of an unknown kind: counted, not forwarded.
    Unknown {
        candidate: u32,
    },
    /// End of the answer: the stream's end marker, or the end of a complete body.
    End,
}

impl Event {
    /// True for content of an answer. Signatures, citations and log probabilities alone are not content.
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerKind {
    #[default]
    Generated,
    Count,
    /// Embedding vectors.
    Embeddings {
        /// The caller expects a list (every form except Gemini's `:embedContent`).
        list: bool,
        /// Vectors are encoded as base64 of little-endian floats.
        base64: bool,
        /// Number of inputs, and so of expected vectors.
        count: usize,
    },
}

/// Facts about a request that the translation of its answer needs.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplyContext {
    /// Request id of the gateway without `req_`, used in generated ids.
    pub request_id: String,
    /// Request id of the gateway as callers see it (`req_…`): Gemini `responseId`.
    pub response_id: String,
    /// Unix time in seconds, for `created`.
    pub now: i64,
    pub model: String,
    pub kind: AnswerKind,
    pub framing: Framing,
    pub stream: bool,
    /// The caller wants a usage chunk.
    pub include_usage: bool,
    /// Include thoughts in the answer. OpenAI callers always get them.
    pub include_thoughts: bool,
    /// Send thinking blocks without visible text to a Gemini caller as signatures on the following parts, so that they
    /// return with the history (`docs/translation.md`). True with `include_thoughts`, and where the upstream was asked to
    /// omit the text.
    pub carry_thinking: bool,
    /// Also append Gemini's signature of a call to the call id, for callers that drop unknown members.
    pub id_signatures: bool,
    /// `false`: forward only the first call of a candidate.
    pub parallel: bool,
    pub custom_tools: Vec<String>,
    /// Pairs of upstream tool name and caller's tool name.
    pub name_map: Vec<(String, String)>,
}

impl ReplyContext {
    /// Context of a plain request: not streamed, no thoughts, no renamed tools. `request_id` is given without `req_`, `now`
    /// in Unix seconds.
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
