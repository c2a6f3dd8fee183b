//! Optional parameters of a request. Unset differs from zero. Values that equal the default are dropped when a request is
//! decoded, so that no upstream refuses them.

use super::Schema;
use crate::FieldPath;

/// A parameter with its path in the caller's spelling.
#[derive(Clone, Debug, PartialEq)]
pub struct Located<T> {
    pub value: T,
    pub path: FieldPath,
}

impl<T> Located<T> {
    pub fn new(value: impl Into<T>, path: impl Into<FieldPath>) -> Self {
        Self { value: value.into(), path: path.into() }
    }
}

/// Optional parameters, each with its path in the caller's body. Unset differs from the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    pub temperature: Option<Located<serde_json::Number>>,
    pub top_p: Option<Located<serde_json::Number>>,
    pub top_k: Option<Located<serde_json::Number>>,
    /// Output limit in tokens, at least 1.
    pub max_tokens: Option<Located<u64>>,
    /// Number of candidates, at least 2 (1 is the default).
    pub n: Option<Located<u32>>,
    pub stop: Option<Located<Vec<String>>>,
    pub seed: Option<Located<i64>>,
    /// Presence penalty, not zero.
    pub presence: Option<Located<serde_json::Number>>,
    pub frequency: Option<Located<serde_json::Number>>,
    /// Log probabilities requested; always `true`.
    pub logprobs: Option<Located<bool>>,
    pub top_logprobs: Option<Located<u32>>,
    /// Output format; `None` for plain text.
    pub format: Option<Located<Format>>,
    pub thinking: ThinkingParams,
    /// Parallel calls disabled; always `false`.
    pub parallel: Option<Located<bool>>,
    /// The caller declared `functions`, the deprecated form, and expects a `function_call`: one call without an id.
    pub legacy_calls: bool,
    /// Length of the answer, not `medium` (`verbosity`).
    pub verbosity: Option<Located<String>>,
    /// Service tier: `flex` or `priority`.
    pub tier: Option<Located<String>>,
    /// Resolution of all media, lower case: `low`, `medium`, `high` (Gemini `mediaResolution`).
    pub media_resolution: Option<Located<String>>,
    /// End-user id (`user`, `metadata.user_id`).
    pub user: Option<Located<String>>,
    /// Bookkeeping that only OpenAI's protocols have.
    pub labels: Vec<Label>,
    /// Web search by the provider (`web_search_options`), as JSON text.
    pub web_search: Option<Located<String>>,
    /// Parameters of Gemini without a counterpart.
    pub google: GoogleParams,
    pub stream: bool,
    /// The caller requested a usage chunk at the end of the stream.
    pub include_usage: bool,
}

/// The caller's thinking settings. At most one of `effort`, `budget` and `level` is set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThinkingParams {
    /// `none` … `max`.
    pub effort: Option<Located<String>>,
    /// Tokens; 0 disables thinking, -1 lets the model choose.
    pub budget: Option<Located<i64>>,
    /// Level name, lower case.
    pub level: Option<Located<String>>,
    /// Thinking is on and the model chooses the depth (Anthropic `adaptive` without an effort).
    pub adaptive: Option<Located<()>>,
    pub include: Option<Located<bool>>,
    /// Thinking is on and its text is left out (Anthropic `display: "omitted"`).
    pub omitted: bool,
}

/// Parameters of Gemini without a counterpart in other protocols.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GoogleParams {
    /// `cachedContents/…`.
    pub cached_content: Option<Located<String>>,
    /// `safetySettings`, JSON text with camelCase names.
    pub safety_settings: Option<Located<String>>,
}

/// Structured output: JSON mode, or a schema (chat `response_format`, Responses `text.format`, Gemini `responseSchema`, Anthropic
/// `output_config.format`).
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    Json,
    Schema { schema: Schema, name: Option<String>, description: Option<Located<String>>, strict: Option<bool> },
}

/// A field that labels a request and cannot change its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub name: &'static str,
    /// JSON text.
    pub value: String,
    pub path: FieldPath,
}
