//! Members of a chat body that may appear once, because the gateway reads them.

use crate::summary_builder::UniqueMember;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChatMember {
    Model,
    Messages,
    Stream,
    StreamOptions,
    MaxTokens,
    MaxCompletionTokens,
    N,
    BestOf,
    ServiceTier,
    WebSearchOptions,
    Temperature,
    Tools,
    Functions,
    PromptCacheKey,
}

/// `stream_options.include_usage`, and `input` of an embeddings body.
pub(super) const INCLUDE_USAGE: UniqueMember = UniqueMember::new(30, "stream_options.include_usage");
pub(super) const EMBEDDINGS_INPUT: UniqueMember = UniqueMember::new(31, "input");

impl ChatMember {
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "model" => Self::Model,
            "messages" => Self::Messages,
            "stream" => Self::Stream,
            "stream_options" => Self::StreamOptions,
            "max_tokens" => Self::MaxTokens,
            "max_completion_tokens" => Self::MaxCompletionTokens,
            "n" => Self::N,
            "best_of" => Self::BestOf,
            "service_tier" => Self::ServiceTier,
            "web_search_options" => Self::WebSearchOptions,
            "temperature" => Self::Temperature,
            "tools" => Self::Tools,
            "functions" => Self::Functions,
            "prompt_cache_key" => Self::PromptCacheKey,
            _ => return None,
        })
    }

    pub(super) const fn unique(self) -> UniqueMember {
        let name = match self {
            Self::Model => "model",
            Self::Messages => "messages",
            Self::Stream => "stream",
            Self::StreamOptions => "stream_options",
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::N => "n",
            Self::BestOf => "best_of",
            Self::ServiceTier => "service_tier",
            Self::WebSearchOptions => "web_search_options",
            Self::Temperature => "temperature",
            Self::Tools => "tools",
            Self::Functions => "functions",
            Self::PromptCacheKey => "prompt_cache_key",
        };
        UniqueMember::new(self as u8, name)
    }
}
