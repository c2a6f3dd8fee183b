//! What a light scan of a request tells, without building a tree of it.

use std::ops::Range;

use crate::Method;

/// A field's path in the caller's spelling: `temperature`, `generationConfig.topK`, `messages[0].role`.
pub type FieldPath = String;

/// What routing, limits, capability checks and money need to know of a request body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSummary {
    /// The model the caller named (body on chat, path on native).
    pub model: String,
    /// What is asked.
    pub method: Method,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// Whether the caller asked for a usage chunk (`stream_options.include_usage`).
    pub include_usage: bool,
    /// The output limit the caller asked for, in tokens: `max_completion_tokens`, else `max_tokens`; native: the largest
    /// where both spellings are given.
    pub max_output: Option<u64>,
    /// How many candidates are asked for; 1 when absent.
    pub candidates: u32,
    /// Every optional top-level field, and every field of the config objects, that is present and not `null`,
    /// in the caller's spelling. `model` and what is asked itself (`messages`, `contents`, `input`, `content`, `requests`)
    /// are left out; so is what stands inside a `generateContentRequest` whose tokens are counted. Config objects are
    /// `generationConfig`, `toolConfig` and `embedContentConfig`; of them only the members are listed.
    pub fields: Vec<FieldPath>,
    /// Bytes of text the model reads, escapes decoded: messages, parts, system instructions, calls and their results (raw
    /// JSON where they are objects), tool definitions (raw JSON). A token id counts as 4.
    pub text_bytes: u64,
    /// Turns of the conversation, instructions included: each costs a few tokens beside its text.
    pub turns: u32,
    /// Number of images, wherever they are.
    pub images: u32,
    /// Bytes of inline audio, decoded size.
    pub audio_bytes: u64,
    /// Bytes of inline documents (PDF and the like, video), decoded size.
    pub document_bytes: u64,
    /// Number of tools (native: function declarations).
    pub tools: u32,
    /// A stable hash of the prompt-cache key, or of the conversation's stable beginning (system text, tools,
    /// first turn). Equal for every turn of one conversation.
    pub affinity: Option<u64>,
    /// Where bytes may be replaced or inserted.
    pub splices: SplicePoints,
}

/// Byte ranges of the body that pass-through may touch. Everything else stays as the caller wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplicePoints {
    /// Just behind the `{` that opens the body.
    pub body_open: usize,
    /// The value of the top-level `model`, quotes included.
    pub model: Option<Range<usize>>,
    /// The value of the top-level `stream_options`, braces included; also where it is `null`.
    pub stream_options: Option<Range<usize>>,
    /// The value of `stream_options.include_usage`.
    pub include_usage: Option<Range<usize>>,
    /// The values of every output-limit field present (`max_tokens`, `max_completion_tokens`,
    /// `generationConfig.maxOutputTokens`), `null` included.
    pub max_output: Vec<Range<usize>>,
    /// Native: just behind the `{` of `generationConfig`, if there is one.
    pub config_open: Option<usize>,
    /// Whether the body may hold something we write into histories for one provider that another must not see; if not,
    /// nothing needs cleaning.
    pub markers: bool,
}

/// A body that is refused before any upstream call, on either protocol (E16, E18, E20, E21 of the error table).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Malformed {
    /// Which row of the error table.
    pub kind: MalformedKind,
    /// The whole sentence for the caller.
    pub message: String,
    /// The faults, first one first; at most 20. Empty for `NotJson`.
    pub violations: Vec<FieldViolation>,
}

/// Which kind of fault a body has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedKind {
    /// E18: not JSON, not an object, nested too deep, something behind it, a member twice.
    NotJson,
    /// E16, E21 `missing_required_parameter`; E20 on native.
    Missing,
    /// E16, E21 `invalid_type`; E20 on native.
    WrongType,
    /// E21 `invalid_value`; E20 on native.
    InvalidValue,
}

/// One fault of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Where, in the caller's spelling.
    pub field: FieldPath,
    /// What is wrong, one sentence (native `BadRequest.fieldViolations[].description`).
    pub description: String,
}
