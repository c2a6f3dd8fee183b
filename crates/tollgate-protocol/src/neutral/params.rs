//! Everything optional in a request. Unset is not zero; values that ask for what happens anyway are left out when a
//! request is read, so that no protocol has to answer for them.

use super::Schema;
use crate::FieldPath;

/// A parameter with its path in the caller's spelling.
#[derive(Clone, Debug, PartialEq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it stood.
    pub path: FieldPath,
}

impl<T> Located<T> {
    /// A value and where it stood.
    pub fn new(value: impl Into<T>, path: impl Into<FieldPath>) -> Self {
        Self { value: value.into(), path: path.into() }
    }
}

/// Optional parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    /// Temperature.
    pub temperature: Option<Located<serde_json::Number>>,
    /// `top_p`.
    pub top_p: Option<Located<serde_json::Number>>,
    /// `top_k`.
    pub top_k: Option<Located<serde_json::Number>>,
    /// Output limit, tokens, at least 1.
    pub max_tokens: Option<Located<u64>>,
    /// Candidates, at least 2 (one is what happens anyway).
    pub n: Option<Located<u32>>,
    /// Stop sequences, at least one.
    pub stop: Option<Located<Vec<String>>>,
    /// Seed.
    pub seed: Option<Located<i64>>,
    /// Presence penalty, not zero.
    pub presence: Option<Located<serde_json::Number>>,
    /// Frequency penalty, not zero.
    pub frequency: Option<Located<serde_json::Number>>,
    /// Log probabilities wanted; the value is always `true`.
    pub logprobs: Option<Located<bool>>,
    /// How many alternatives.
    pub top_logprobs: Option<Located<u32>>,
    /// Output format; plain text is left out.
    pub format: Option<Located<Format>>,
    /// Thinking.
    pub thinking: ThinkingParams,
    /// Parallel calls allowed; the value is always `false`.
    pub parallel: Option<Located<bool>>,
    /// Service tier: `flex` or `priority`.
    pub tier: Option<Located<String>>,
    /// Resolution of all media, lower case: `low`, `medium`, `high` (native `mediaResolution`).
    pub media_resolution: Option<Located<String>>,
    /// Id of the person behind the caller (`user`, `metadata.user_id`).
    pub user: Option<Located<String>>,
    /// Web search by the provider (`web_search_options`), as JSON text.
    pub web_search: Option<Located<String>>,
    /// What only Google's service knows.
    pub google: GoogleParams,
    /// Streamed answer.
    pub stream: bool,
    /// Usage chunk wanted.
    pub include_usage: bool,
}

/// What the caller said about thinking. At most one of `effort`, `budget`, `level` is set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThinkingParams {
    /// `none` … `max`.
    pub effort: Option<Located<String>>,
    /// Tokens; 0 off, -1 the model decides.
    pub budget: Option<Located<i64>>,
    /// Level name, lower case.
    pub level: Option<Located<String>>,
    /// Thinking is on and its depth is left to the model (Anthropic `adaptive` without an effort).
    pub adaptive: Option<Located<()>>,
    /// Thoughts wanted in the answer.
    pub include: Option<Located<bool>>,
}

impl ThinkingParams {
    /// Whether nothing was said.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.effort.is_none() && self.budget.is_none() && self.level.is_none() && self.adaptive.is_none() && self.include.is_none()
    }
}

/// Parameters of Google's service without a counterpart elsewhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GoogleParams {
    /// `cachedContents/…`.
    pub cached_content: Option<Located<String>>,
    /// `safetySettings`, JSON text with camelCase names.
    pub safety_settings: Option<Located<String>>,
}

/// Output format.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// Any JSON.
    Json,
    /// JSON of this schema.
    Schema {
        /// The schema.
        schema: Schema,
        /// Name.
        name: Option<String>,
        /// Strict.
        strict: Option<bool>,
    },
}
