//! What a request, an answer and a stream mean, apart from any wire format (translation reference, section 1.2).
//!
//! The unit is the part, with attributes on the part. These values never reach a disk or a wire, so they may
//! change freely.

use bytes::Bytes;

use crate::{FieldPath, Framing, Protocol};
pub use crate::{Finish, Usage};

/// A request as it is meant.
#[derive(Clone, Debug)]
pub struct Request {
    /// Model as the caller named it.
    pub model: String,
    /// Protocol it came in.
    pub origin: Protocol,
    /// Leading system texts, in order.
    pub system: Vec<Part>,
    /// The conversation.
    pub turns: Vec<Turn>,
    /// Tools offered.
    pub tools: Vec<Tool>,
    /// How they may be chosen.
    pub choice: Option<Choice>,
    /// Everything optional.
    pub params: Params,
    /// Unknown or inexpressible fields found while parsing, in the caller's spelling; refused or dropped by policy.
    pub unknown: Vec<FieldPath>,
    /// Entries for `x-tollgate-dropped` (paths, or `path=value` for adjusted ones).
    pub dropped: Vec<String>,
}

/// One turn.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub parts: Vec<Part>,
    /// Path of the turn in the caller's body.
    pub src: FieldPath,
}

/// Who speaks in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// System text that does not stand at the beginning.
    System,
    /// The person or program that asks.
    User,
    /// The model.
    Model,
    /// Tool results that belong to the model turn before.
    Results,
}

/// One part of a turn or of an answer.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it is.
    pub kind: PartKind,
    /// Opaque state that must travel with it.
    pub signature: Option<Signature>,
    /// Path in the caller's body, for error messages; empty in answers.
    pub src: FieldPath,
}

/// What a part is.
#[derive(Clone, Debug)]
pub enum PartKind {
    /// Text.
    Text(String),
    /// Thinking text; `redacted` when only opaque data came.
    Think {
        /// The text, possibly empty.
        text: String,
        /// Opaque data instead of text.
        redacted: Option<String>,
    },
    /// Image, audio, document, video.
    Media(Media),
    /// A tool call. `args` is JSON text exactly as received, or compact JSON.
    Call {
        /// Id, empty when the wire had none.
        id: String,
        /// Name.
        name: String,
        /// Arguments as JSON text (custom tools: plain text).
        args: String,
        /// A custom (free text) tool.
        custom: bool,
    },
    /// A tool result.
    Result {
        /// Id of the call it answers, empty when the wire had none.
        call_id: String,
        /// Name of the function, empty when the wire had none.
        name: String,
        /// Text content.
        content: String,
        /// Whether `content` is JSON that was an object on the wire (native `response`).
        json: bool,
        /// Media beside the text.
        media: Vec<Media>,
        /// The tool reported a failure.
        is_error: bool,
    },
    /// Code the model wrote to run.
    Code {
        /// Language name, lower case.
        language: String,
        /// The code.
        text: String,
    },
    /// What running it gave.
    CodeOutput {
        /// `OUTCOME_OK` and the like.
        outcome: String,
        /// Output text.
        text: String,
    },
    /// Something only its own protocol can carry.
    Opaque {
        /// Which protocol.
        protocol: Protocol,
        /// Raw JSON.
        raw: String,
    },
}

/// Image, audio, document or video.
#[derive(Clone, Debug)]
pub struct Media {
    /// Mime type, lower case, without parameters; empty when unknown.
    pub mime: String,
    /// The bytes or where they are.
    pub source: MediaSource,
    /// File name.
    pub name: Option<String>,
    /// `low`, `high`, `auto`.
    pub detail: Option<String>,
}

/// Where media comes from.
#[derive(Clone, Debug)]
pub enum MediaSource {
    /// Standard padded base64.
    Inline(String),
    /// A provider's own file address (`gs://`, Files API).
    Uri(String),
    /// A public http(s) address.
    Remote(String),
}

/// Opaque state and whose it is: where it came from decides where it may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Whose.
    pub owner: Protocol,
    /// As on the wire.
    pub value: String,
}

/// A tool offered.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Name.
    pub name: String,
    /// Description.
    pub description: Option<String>,
    /// Parameter schema.
    pub schema: Option<Schema>,
    /// `strict` of chat completions.
    pub strict: Option<bool>,
    /// Free-text tool of chat completions.
    pub custom: bool,
    /// Path in the caller's body.
    pub src: FieldPath,
}

/// A schema: real JSON Schema, or Google's OpenAPI subset. Member order is kept.
#[derive(Clone, Debug)]
pub enum Schema {
    /// JSON Schema.
    Json(serde_json::Value),
    /// Google's `Schema` message, names normalised to camelCase.
    Google(serde_json::Value),
}

/// How tools may be chosen.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Mode.
    pub mode: ChoiceMode,
    /// Restricts to these names when not empty.
    pub names: Vec<String>,
    /// Path in the caller's body.
    pub src: FieldPath,
}

/// Mode of tool choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceMode {
    /// The model decides.
    Auto,
    /// No tool.
    None,
    /// Some tool.
    Any,
}

/// A parameter with its path in the caller's spelling.
#[derive(Clone, Debug, PartialEq)]
pub struct Given<T> {
    /// The value.
    pub value: T,
    /// Where it stood.
    pub src: FieldPath,
}

/// Optional parameters. Unset is not zero.
#[derive(Clone, Debug, Default)]
pub struct Params {
    /// Temperature, as the number was written.
    pub temperature: Option<Given<serde_json::Number>>,
    /// `top_p`.
    pub top_p: Option<Given<serde_json::Number>>,
    /// `top_k`.
    pub top_k: Option<Given<serde_json::Number>>,
    /// Output limit, tokens.
    pub max_tokens: Option<Given<u64>>,
    /// Candidates.
    pub n: Option<Given<u32>>,
    /// Stop sequences.
    pub stop: Option<Given<Vec<String>>>,
    /// Seed.
    pub seed: Option<Given<i64>>,
    /// Presence penalty.
    pub presence: Option<Given<serde_json::Number>>,
    /// Frequency penalty.
    pub frequency: Option<Given<serde_json::Number>>,
    /// Log probabilities wanted.
    pub logprobs: Option<Given<bool>>,
    /// How many alternatives.
    pub top_logprobs: Option<Given<u32>>,
    /// Output format.
    pub format: Option<Given<Format>>,
    /// Thinking.
    pub thinking: ThinkingParams,
    /// Parallel calls allowed.
    pub parallel: Option<Given<bool>>,
    /// Service tier.
    pub tier: Option<Given<String>>,
    /// Streamed answer.
    pub stream: bool,
    /// Usage chunk wanted.
    pub include_usage: bool,
}

/// What the caller said about thinking.
#[derive(Clone, Debug, Default)]
pub struct ThinkingParams {
    /// `none` … `max`.
    pub effort: Option<Given<String>>,
    /// Tokens; 0 off, -1 dynamic.
    pub budget: Option<Given<i64>>,
    /// Level name, lower case.
    pub level: Option<Given<String>>,
    /// Thoughts wanted in the answer.
    pub include: Option<Given<bool>>,
}

/// Output format.
#[derive(Clone, Debug)]
pub enum Format {
    /// Plain text.
    Text,
    /// Any JSON.
    Json,
    /// JSON of this schema.
    Schema {
        /// The schema.
        schema: Schema,
        /// Name.
        name: String,
        /// Strict.
        strict: Option<bool>,
    },
}

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

/// A request written for an upstream.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Body.
    pub body: Bytes,
    /// Entries for `x-tollgate-dropped`.
    pub dropped: Vec<String>,
    /// Upstream tool name to caller's tool name, for the way back.
    pub name_map: Vec<(String, String)>,
}
