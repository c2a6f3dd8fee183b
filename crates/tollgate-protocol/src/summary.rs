//! The summary of a request body that one scan gives, without building a tree.

use std::ops::Range;

use smallvec::SmallVec;

use crate::{Method, fingerprint::Fingerprint};

/// A field's path in the caller's spelling: `temperature`, `generationConfig.topK`, `messages[0].role`.
pub type FieldPath = String;

/// Facts of a request body for routing, limits, capability checks and pricing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSummary {
    /// The model named by the caller (in the body for chat completions, in the path for Gemini).
    pub model: String,
    pub method: Method,
    pub stream: bool,
    /// Whether the caller asked for a usage chunk (`stream_options.include_usage`).
    pub include_usage: bool,
    /// The caller's output limit in tokens; the largest where several fields give one.
    pub max_output: Option<u64>,
    /// Number of candidates requested; 1 when absent.
    pub candidates: u32,
    /// Every optional top-level field and every member of a config object that is present and not `null`, in the caller's
    /// spelling. Config objects are `generationConfig`, `toolConfig`, `embedContentConfig` and `output_config`; they are not listed
    /// themselves.
    /// `model`, the input itself (`messages`, `contents`, `input`, `content`, `requests`) and the members of a
    /// `generateContentRequest` are left out.
    pub fields: Vec<FieldPath>,
    /// Bytes of input text with escapes decoded: messages, parts, system instructions, calls and results (raw JSON where they
    /// are objects), tool definitions (raw JSON). A token id counts as 4.
    pub text_bytes: u64,
    /// Turns of the conversation, instructions included. Each costs a few tokens besides its text.
    pub turns: u32,
    pub images: u32,
    /// Bytes of inline audio, decoded size.
    pub audio_bytes: u64,
    /// Bytes of inline documents (PDF and the like, video), decoded size.
    pub document_bytes: u64,
    /// Number of tools (Gemini: function declarations).
    pub tools: u32,
    pub extras: RequestExtras,
    /// Paths of the tools of [`RequestExtras::own_search`], and of other fields that name them, if the request works without
    /// them: it offers them but does not demand their use.
    pub offered_searches: Vec<FieldPath>,
    /// Maximum number of web searches by the provider; `None`: the request states none.
    pub max_searches: Option<u64>,
    /// Path of the first of [`UnseenInput::files`].
    pub first_file: Option<FieldPath>,
    /// Short texts in the request's `metadata` (chat completions) with their names; at most [`MAX_METADATA`].
    pub metadata: Vec<(String, String)>,
    /// A stable hash of the prompt-cache key, or of the conversation's stable beginning (system text, tools,
    /// first turn). Equal for every turn of one conversation.
    pub affinity: Option<u64>,
    pub splices: SplicePoints,
}

impl RequestSummary {
    /// Keeps the requests of this session together in place of those of a conversation.
    pub fn join_session(&mut self, session: &[u8]) {
        if self.affinity.is_some() && !session.is_empty() {
            let mut fingerprint = Fingerprint::new();
            fingerprint.add(b"session");
            fingerprint.add(session);
            self.affinity = Some(fingerprint.finish());
        }
    }

    /// The summary of a request with one candidate and without content or options.
    #[must_use]
    pub fn minimal(model: &str, method: Method) -> Self {
        Self {
            model: model.to_owned(),
            method,
            stream: false,
            include_usage: false,
            max_output: None,
            candidates: 1,
            fields: Vec::new(),
            text_bytes: 0,
            turns: 0,
            images: 0,
            audio_bytes: 0,
            document_bytes: 0,
            tools: 0,
            extras: RequestExtras::default(),
            offered_searches: Vec::new(),
            max_searches: None,
            first_file: None,
            metadata: Vec::new(),
            affinity: None,
            splices: SplicePoints::default(),
        }
    }
}

/// Entries of `metadata` that a summary has: as many as the API takes.
pub const MAX_METADATA: usize = 16;

/// Options that make a request cost more, or less, than its tokens at the usual prices; the fields are in
/// [`price_effects`](crate::price_effects).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestExtras {
    pub tier: ServiceTier,
    /// Web search by the provider, which charges for it besides tokens.
    pub web_search: bool,
    /// Web search that only upstreams of the caller's protocol receive; others answer without it.
    pub own_search: bool,
    /// Other tools of the provider that it may charge for besides tokens.
    pub server_tools: bool,
    /// Images or audio in the answer.
    pub output_media: bool,
    /// The upstream may choose another model or provider, at other prices.
    pub other_routes: bool,
    /// An option that is charged separately, at a price that no price list has.
    pub surcharge: bool,
    pub unseen: UnseenInput,
}

impl RequestExtras {
    /// The extras over several upstreams; `some_speak_it`: at least one of them speaks the caller's protocol.
    #[must_use]
    pub fn at_upstreams(mut self, some_speak_it: bool) -> Self {
        let searches = self.own_search && some_speak_it;
        self.web_search |= searches;
        self.unseen.tools |= searches;
        self
    }

    /// The extras at one upstream; `speaks_it`: it speaks the caller's protocol.
    #[must_use]
    pub fn at_upstream(mut self, speaks_it: bool) -> Self {
        self.web_search &= speaks_it || !self.own_search;
        self
    }
}

/// Input that the body does not show, and that only the model's context window limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnseenInput {
    /// Content that the provider keeps and reads as input.
    pub cached_content: bool,
    /// Files by address or id, other than images, and items of a conversation by id.
    pub files: bool,
    /// Pages, files and results of code that the provider's tools find.
    pub tools: bool,
    /// The conversation a second time, if the provider summarises it first. The summary is output beyond the limit.
    pub compaction: bool,
}

impl UnseenInput {
    /// Whether there may be unseen input.
    #[must_use]
    pub const fn any(self) -> bool {
        self.cached_content || self.files || self.tools || self.compaction
    }
}

/// The service tier a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceTier {
    #[default]
    Standard,
    Priority,
    Flex,
    /// A tier without a price of its own.
    Other,
}

impl ServiceTier {
    /// The tier of a field's value. `auto` and unset are the usual price.
    pub(crate) fn named(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match name.strip_prefix("service_tier_").unwrap_or(&name) {
            "" | "auto" | "default" | "standard" | "standard_only" | "unspecified" => Self::Standard,
            "priority" => Self::Priority,
            "flex" => Self::Flex,
            _ => Self::Other,
        }
    }
}

/// Byte ranges of the body that pass-through may edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplicePoints {
    /// Offset after the `{` that opens the body.
    pub body_open: usize,
    /// The value of the top-level `model`, quotes included.
    pub model: Option<Range<usize>>,
    /// The value of the top-level `stream_options`, including braces or a `null`.
    pub stream_options: Option<Range<usize>>,
    pub include_usage: Option<Range<usize>>,
    /// The values of every output-limit field present (`max_tokens`, `max_completion_tokens`,
    /// `generationConfig.maxOutputTokens`), `null` included.
    pub max_output: SmallVec<[Range<usize>; 2]>,
    /// Gemini: offset after the `{` of `generationConfig`, if present.
    pub config_open: Option<usize>,
    /// Whether the body may contain marks that the gateway puts into histories for one provider and that must not be sent to another.
    pub markers: bool,
}

/// A body that is refused before any upstream call (E16, E18, E20, E21).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Malformed {
    /// The row in docs/errors.md.
    pub kind: MalformedKind,
    pub message: String,
    /// The invalid fields in the order of the body, at most 20. Empty for `NotJson`.
    pub violations: Vec<FieldViolation>,
}

/// The kind of fault in a request body, with the error ids of docs/errors.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedKind {
    /// E18: not JSON, not an object, nested too deep, trailing bytes, or a duplicate member.
    NotJson,
    /// E16, E21 `missing_required_parameter`; E20 on native.
    Missing,
    /// E16, E21 `invalid_type`; E20 on native.
    WrongType,
    /// E21 `invalid_value`; E20 on native.
    InvalidValue,
}

/// A faulty field of a request body, as google.rpc `BadRequest` lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    pub field: FieldPath,
    /// One sentence (Gemini `BadRequest.fieldViolations[].description`).
    pub description: String,
}
