//! Profiles: facts about an upstream model that translation needs (`docs/catalog.md`).

mod defaults;

use serde::{Deserialize, Serialize};

pub use defaults::effective_profile;

/// The kind of control over thinking that a model has, with the accepted values.
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

/// Whether thinking can be switched off: a boolean, or `between_tools`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "FlagOrWord", into = "FlagOrWord")]
pub enum CanDisableThinking {
    No,
    Yes,
    /// Only with Anthropic's type `between_tools`.
    BetweenTools,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum FlagOrWord {
    Flag(bool),
    Word(String),
}

impl TryFrom<FlagOrWord> for CanDisableThinking {
    type Error = String;

    fn try_from(value: FlagOrWord) -> Result<Self, String> {
        match value {
            FlagOrWord::Flag(false) => Ok(Self::No),
            FlagOrWord::Flag(true) => Ok(Self::Yes),
            FlagOrWord::Word(word) if word == "between_tools" => Ok(Self::BetweenTools),
            FlagOrWord::Word(word) => Err(format!("expected true, false or \"between_tools\", not \"{word}\"")),
        }
    }
}

impl From<CanDisableThinking> for FlagOrWord {
    fn from(value: CanDisableThinking) -> Self {
        match value {
            CanDisableThinking::No => Self::Flag(false),
            CanDisableThinking::Yes => Self::Flag(true),
            CanDisableThinking::BetweenTools => Self::Word("between_tools".to_owned()),
        }
    }
}

/// A finite number with `Eq`, for configuration values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct F64(pub f64);

impl Eq for F64 {}

/// Declares [`Profile`] with optional members, and [`Profile::or`] over all of them.
macro_rules! profile {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        /// The features of an upstream model. Every member is optional in the catalog; `None` means "not stated" and is filled in
        /// by [`effective_profile`].
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Profile {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<$type>,)*
        }

        impl Profile {
            /// The stated members, completed by those of `defaults`.
            fn or(self, defaults: Self) -> Self {
                Self { $($name: self.$name.or(defaults.$name),)* }
            }
        }
    };
}

profile! {
    thinking: Thinking,
    can_disable_thinking: CanDisableThinking,
    /// Supports `thinking.display` (Anthropic).
    thinking_display: bool,
    /// The last turn may be a model turn.
    prefill: bool,
    forced_tools: bool,
    /// Accepts an effort beside function tools, on chat channels. Otherwise the effort of a request with tools is `none`.
    effort_with_tools: bool,
    /// Member of a message in which chat channels take the thoughts of a history: `reasoning_content`, `reasoning`, or `none`.
    thought_field: String,
    /// Refuses tools whose parameters are an object without `properties`, on chat channels.
    tool_properties: bool,
    /// Function calls must be returned with their signature.
    signature_required: bool,
    /// Signatures of Gemini and sealed thoughts of Responses are accepted only by the account that issued them.
    signatures_bound: bool,
    call_ids: bool,
    /// Supports temperature, `top_p` and `top_k`.
    sampling: bool,
    /// Supports temperature and `top_p` in one request.
    temperature_with_top_p: bool,
    penalties: bool,
    top_k: bool,
    logprobs: bool,
    n_max: u32,
    stop_max: u32,
    /// Supports the JSON Schema members (`parametersJsonSchema`, `responseJsonSchema`).
    json_schema_fields: bool,
    tools_with_json: bool,
    media_in_results: bool,
    part_media_resolution: bool,
    /// Supports function calling mode `VALIDATED`.
    validated_mode: bool,
    /// Name of the output limit: `max_tokens` or `max_completion_tokens`.
    max_tokens_field: String,
    /// Output limit in tokens, sent where the protocol requires one and the caller gave none.
    default_max_tokens: u64,
    temperature_max: F64,
    /// Fetches public URLs of media itself.
    fetches_urls: bool,
    /// Name of the system role (`system`, `developer`).
    system_role: String,
}
