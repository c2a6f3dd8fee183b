//! Facts about an upstream model that translation needs; data, not code (translation reference, section 1.8).

mod defaults;

use serde::{Deserialize, Serialize};

pub use defaults::effective_profile;
pub use f64ord::F64;

/// How a model's thinking is steered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// It does not think.
    None,
    /// Named levels (Gemini 3), lowest first.
    Level(Vec<String>),
    /// A token budget between two bounds (Gemini 2.5, older Claude).
    Budget([u64; 2]),
    /// Efforts of chat completions (`reasoning_effort`), lowest first.
    Effort(Vec<String>),
    /// The model decides, steered by these efforts (newer Claude), lowest first.
    Adaptive(Vec<String>),
}

/// Whether thinking can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CanDisableThinking {
    /// Never.
    No,
    /// With the plain switch.
    Yes,
    /// Only with Anthropic's `between_tools` type.
    BetweenTools,
}

/// What an upstream model takes. Every member is optional in a catalog; what is not stated is pre-filled for known
/// names, else by provider. `None` here means "not stated".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// How thinking is steered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Whether it can be switched off.
    #[serde(with = "can_disable", skip_serializing_if = "Option::is_none")]
    pub can_disable_thinking: Option<CanDisableThinking>,
    /// Knows `display` (Anthropic).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_display: Option<bool>,
    /// The last turn may be the model's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<bool>,
    /// Takes a forced tool choice (any, named).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_tools: Option<bool>,
    /// Function calls must come back signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature_required: Option<bool>,
    /// Function calls carry ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_ids: Option<bool>,
    /// Takes temperature, `top_p` and `top_k`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<bool>,
    /// Takes presence and frequency penalties.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub penalties: Option<bool>,
    /// Takes `top_k`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<bool>,
    /// Takes logprobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<bool>,
    /// Most candidates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_max: Option<u32>,
    /// Most stop sequences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_max: Option<u32>,
    /// Takes real JSON Schema members (`parametersJsonSchema`, `responseJsonSchema`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json_schema_fields: Option<bool>,
    /// Takes tools and a JSON format together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools_with_json: Option<bool>,
    /// Takes media inside function responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_in_results: Option<bool>,
    /// Takes a resolution per part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_media_resolution: Option<bool>,
    /// Knows function calling mode `VALIDATED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validated_mode: Option<bool>,
    /// `max_tokens` or `max_completion_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens_field: Option<String>,
    /// Sent where the protocol demands a limit and the caller gave none, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_max_tokens: Option<u64>,
    /// Highest temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_max: Option<F64>,
    /// Fetches public URLs itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetches_urls: Option<bool>,
    /// Name of the system role (`system`, `developer`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_role: Option<String>,
}

/// A float with equality, for configuration values that are never NaN.
mod f64ord {
    use serde::{Deserialize, Serialize};

    /// A finite configuration number.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(transparent)]
    pub struct F64(pub f64);
    impl Eq for F64 {}
}

mod can_disable {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use super::CanDisableThinking;

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Raw {
        Plain(bool),
        Word(String),
    }

    #[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde fixes the signature")]
    pub(super) fn serialize<S: Serializer>(value: &Option<CanDisableThinking>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            None => to.serialize_none(),
            Some(CanDisableThinking::No) => to.serialize_bool(false),
            Some(CanDisableThinking::Yes) => to.serialize_bool(true),
            Some(CanDisableThinking::BetweenTools) => to.serialize_str("between_tools"),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CanDisableThinking>, D::Error> {
        Ok(match Option::<Raw>::deserialize(from)? {
            None => None,
            Some(Raw::Plain(false)) => Some(CanDisableThinking::No),
            Some(Raw::Plain(true)) => Some(CanDisableThinking::Yes),
            Some(Raw::Word(word)) if word == "between_tools" => Some(CanDisableThinking::BetweenTools),
            Some(Raw::Word(word)) => {
                return Err(D::Error::custom(format!("expected true, false or \"between_tools\", not \"{word}\"")));
            }
        })
    }
}
