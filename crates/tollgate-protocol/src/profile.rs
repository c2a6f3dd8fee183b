//! Profiles: facts about an upstream model that translation needs (`docs/catalog.md`).

mod defaults;

use serde::{Deserialize, Serialize};

pub use defaults::effective_profile;
pub use f64ord::F64;

/// How a model's thinking is controlled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    None,
    /// Named levels (Gemini 3), lowest first.
    Level(Vec<String>),
    /// A token budget within bounds (Gemini 2.5, older Claude models).
    Budget([u64; 2]),
    /// Efforts of OpenAI (`reasoning_effort`), lowest first.
    Effort(Vec<String>),
    /// Adaptive thinking guided by an effort (newer Claude models), lowest first.
    Adaptive(Vec<String>),
}

/// Whether thinking can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CanDisableThinking {
    No,
    /// With the regular setting.
    Yes,
    /// Only with Anthropic's type `between_tools`.
    BetweenTools,
}

/// What an upstream model supports. Every member is optional in the catalog; `None` means "not stated" and is filled in by
/// [`effective_profile`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// How thinking is controlled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Whether thinking can be switched off.
    #[serde(with = "can_disable", skip_serializing_if = "Option::is_none")]
    pub can_disable_thinking: Option<CanDisableThinking>,
    /// Supports `thinking.display` (Anthropic).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_display: Option<bool>,
    /// The last turn may be a model turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<bool>,
    /// Supports forced tool choice (any or named tool).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_tools: Option<bool>,
    /// Function calls must be returned with their signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature_required: Option<bool>,
    /// Function calls carry ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_ids: Option<bool>,
    /// Supports temperature, `top_p` and `top_k`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<bool>,
    /// Supports presence and frequency penalties.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub penalties: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<bool>,
    /// Supports log probabilities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<bool>,
    /// Maximum number of candidates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_max: Option<u32>,
    /// Maximum number of stop sequences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_max: Option<u32>,
    /// Supports the JSON Schema members (`parametersJsonSchema`, `responseJsonSchema`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json_schema_fields: Option<bool>,
    /// Supports tools and a JSON format together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools_with_json: Option<bool>,
    /// Supports media in function responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_in_results: Option<bool>,
    /// Supports a media resolution per part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_media_resolution: Option<bool>,
    /// Supports function calling mode `VALIDATED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validated_mode: Option<bool>,
    /// Name of the output limit: `max_tokens` or `max_completion_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens_field: Option<String>,
    /// Output limit in tokens, sent where the protocol requires one and the caller gave none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_max: Option<F64>,
    /// Fetches public URLs of media itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetches_urls: Option<bool>,
    /// Name of the system role (`system`, `developer`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_role: Option<String>,
}

mod f64ord {
    use serde::{Deserialize, Serialize};

    /// A finite number with `Eq`, for configuration values.
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
        Flag(bool),
        Name(String),
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
            Some(Raw::Flag(false)) => Some(CanDisableThinking::No),
            Some(Raw::Flag(true)) => Some(CanDisableThinking::Yes),
            Some(Raw::Name(name)) if name == "between_tools" => Some(CanDisableThinking::BetweenTools),
            Some(Raw::Name(name)) => {
                return Err(D::Error::custom(format!("expected true, false or \"between_tools\", not \"{name}\"")));
            }
        })
    }
}
