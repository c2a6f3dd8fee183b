//! What an answer and a stream mean, apart from any wire format.

use super::{Media, Part, Signature};
use crate::{Finish, Framing, Usage};

/// A complete answer as it is meant.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// Candidates, in order of index.
    pub candidates: Vec<Candidate>,
    /// The prompt was blocked: native reason and message.
    pub blocked: Option<Blocked>,
    /// Usage, if the upstream sent any.
    pub usage: Option<Usage>,
}

/// A blocked prompt.
#[derive(Clone, Debug)]
pub struct Blocked {
    /// Native reason, such as `SAFETY`.
    pub reason: String,
    /// The upstream's words.
    pub message: Option<String>,
}

/// One candidate.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Index.
    pub index: u32,
    /// Its parts.
    pub parts: Vec<Part>,
    /// Why it ended; `None` when the wire did not say.
    pub finish: Option<Finish>,
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
#[derive(Clone, Debug)]
pub struct TokenLogprob {
    /// Token text.
    pub token: String,
    /// Log probability.
    pub logprob: serde_json::Number,
    /// Alternatives.
    pub top: Vec<(String, serde_json::Number)>,
}

/// A source the answer names.
#[derive(Clone, Debug)]
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

/// One event of a streamed answer. `c` is the candidate's index, `k` counts the calls of the whole stream.
#[derive(Clone, Debug)]
pub enum Event {
    /// Text.
    Text { c: u32, text: String, signature: Option<Signature> },
    /// Thinking text.
    Think { c: u32, text: String, redacted: Option<String>, signature: Option<Signature> },
    /// A call begins.
    CallOpen { c: u32, k: u32, id: String, name: String, custom: bool, signature: Option<Signature> },
    /// A piece of its arguments.
    CallArgs { c: u32, k: u32, fragment: String },
    /// A call is whole.
    CallDone { c: u32, k: u32 },
    /// Media.
    Media { c: u32, media: Media },
    /// Refusal text.
    Refusal { c: u32, text: String },
    /// A candidate ended.
    Finish { c: u32, finish: Finish, native: Option<String>, message: Option<String> },
    /// The prompt was blocked.
    Blocked(Blocked),
    /// Cumulative usage.
    Usage(Usage),
    /// The upstream's error event.
    Problem(Box<crate::UpstreamProblem>),
    /// The stream's own end mark.
    End,
}

/// What an answer's translation must remember of its request.
#[derive(Clone, Debug)]
pub struct ReplyContext {
    /// Our request id without `req_` (stands in generated ids).
    pub request_id: String,
    /// Unix seconds for `created`.
    pub now: i64,
    /// The caller's name of the model.
    pub model: String,
    /// The caller's answer is streamed this way.
    pub framing: Framing,
    /// Streamed at all.
    pub stream: bool,
    /// Usage chunk wanted.
    pub include_usage: bool,
    /// Thoughts wanted (native callers).
    pub include_thoughts: bool,
    /// `false`: only the first call of a candidate is handed on.
    pub parallel: bool,
    /// Names of custom tools.
    pub custom_tools: Vec<String>,
    /// Upstream tool name to caller's tool name.
    pub name_map: Vec<(String, String)>,
}
