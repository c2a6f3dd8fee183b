//! Names of OpenTelemetry's semantic conventions for generative AI, release 0.1.0, for operations, providers and finish
//! reasons that the gateway records. Used for spans and for metrics, so that both agree.
//!
//! <https://github.com/open-telemetry/semantic-conventions-genai>

use tollgate_core::{AttemptRecord, AttemptResult, Channel, Outcome, Provider};
use tollgate_protocol::{FinishReason, Method, Protocol};
use url::Url;

/// `gen_ai.provider.name` of requests that reached no provider, and of the built-in echo channel.
pub(crate) const OWN_PROVIDER: &str = "tollgate";
/// `gen_ai.provider.name` of servers other than the well-known providers.
pub(crate) const COMPATIBLE: &str = "compatible";

/// Hosts of the well-known providers, which include their subdomains.
const HOSTS: &[(&str, &str)] = &[
    ("api.openai.com", "openai"),
    ("openai.azure.com", "azure.ai.openai"),
    ("cognitiveservices.azure.com", "azure.ai.openai"),
    ("services.ai.azure.com", "azure.ai.inference"),
    ("models.ai.azure.com", "azure.ai.inference"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("api.anthropic.com", "anthropic"),
    ("api.cohere.com", "cohere"),
    ("api.cohere.ai", "cohere"),
    ("api.deepseek.com", "deepseek"),
    ("api.groq.com", "groq"),
    ("ml.cloud.ibm.com", "ibm.watsonx.ai"),
    ("api.mistral.ai", "mistral_ai"),
    ("api.moonshot.ai", "moonshot_ai"),
    ("api.moonshot.cn", "moonshot_ai"),
    ("api.perplexity.ai", "perplexity"),
    ("api.x.ai", "x_ai"),
];

/// `gen_ai.operation.name` of a request in this protocol. Counting tokens and compaction have no name in the conventions.
pub(crate) const fn operation(method: Method, protocol: Protocol) -> &'static str {
    match method {
        Method::CountTokens => "count_tokens",
        Method::Compact => "compact",
        Method::EmbedContent | Method::BatchEmbedContents | Method::Embeddings => "embeddings",
        Method::Chat | Method::Generate | Method::StreamGenerate => match protocol {
            Protocol::Gemini => "generate_content",
            Protocol::OpenAi | Protocol::Anthropic | Protocol::Responses => "chat",
        },
    }
}

/// `gen_ai.provider.name` of a channel. A channel with a base URL of its own is recognised by the host.
pub(crate) fn provider(channel: &Channel) -> &'static str {
    match channel.spec.provider {
        Provider::Echo => OWN_PROVIDER,
        Provider::OpenAi => by_host(&channel.spec.base_url).unwrap_or("openai"),
        Provider::Gemini => by_host(&channel.spec.base_url).unwrap_or("gcp.gemini"),
        Provider::Anthropic => by_host(&channel.spec.base_url).unwrap_or("anthropic"),
        Provider::Compatible => by_host(&channel.spec.base_url).unwrap_or(COMPATIBLE),
    }
}

fn by_host(base_url: &str) -> Option<&'static str> {
    let url = Url::parse(base_url).ok()?;
    let host = url.host_str()?;
    if host.starts_with("bedrock") && host.ends_with(".amazonaws.com") {
        return Some("aws.bedrock");
    }
    let is_of = |known: &str| host.strip_suffix(known).is_some_and(|rest| rest.is_empty() || rest.ends_with(['.', '-']));
    HOSTS.iter().find(|(known, _)| is_of(known)).map(|(_, name)| *name)
}

/// An entry of `gen_ai.response.finish_reasons`.
pub(crate) const fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Tool => "tool_call",
        FinishReason::Filter => "content_filter",
        FinishReason::Fail => "error",
        FinishReason::Other => "other",
    }
}

/// `error.type` of a request: its error id or another reason; `None` if it was answered.
pub(crate) fn request_error(outcome: Outcome, reason: Option<&str>) -> Option<&str> {
    (outcome != Outcome::Completed).then(|| reason.unwrap_or(outcome.as_str()))
}

/// `error.type` of an attempt: its error id, else how it ended; `None` if it was answered.
pub(crate) fn attempt_error(attempt: &AttemptRecord) -> Option<&str> {
    (attempt.result != AttemptResult::Answered).then(|| attempt.error.as_deref().unwrap_or(attempt.result.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider_of(kind: Provider, base_url: &str) -> &'static str {
        let mut channel = crate::testing::channel(base_url);
        channel.spec.provider = kind;
        provider(&channel)
    }

    #[test]
    fn provider_names_follow_the_semantic_conventions() {
        for (kind, base_url, name) in [
            (Provider::OpenAi, "https://api.openai.com/v1", "openai"),
            (Provider::OpenAi, "https://team.openai.azure.com/openai/v1", "azure.ai.openai"),
            (Provider::OpenAi, "http://127.0.0.1:9/v1", "openai"),
            (Provider::Gemini, "https://generativelanguage.googleapis.com/v1beta", "gcp.gemini"),
            (Provider::Gemini, "https://europe-west4-aiplatform.googleapis.com/v1", "gcp.vertex_ai"),
            (Provider::Anthropic, "https://api.anthropic.com/v1", "anthropic"),
            (Provider::Compatible, "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1", "aws.bedrock"),
            (Provider::Compatible, "https://api.mistral.ai/v1", "mistral_ai"),
            (Provider::Compatible, "https://notapi.mistral.ai/v1", "compatible"),
            (Provider::Compatible, "http://127.0.0.1:11434/v1", "compatible"),
            (Provider::Compatible, "not a url", "compatible"),
            (Provider::Echo, "", "tollgate"),
        ] {
            assert_eq!(provider_of(kind, base_url), name, "{base_url}");
        }
    }

    #[test]
    fn operation_name_depends_on_the_upstream_protocol() {
        assert_eq!(operation(Method::Chat, Protocol::OpenAi), "chat");
        assert_eq!(operation(Method::Chat, Protocol::Gemini), "generate_content", "a chat that was translated");
        assert_eq!(operation(Method::StreamGenerate, Protocol::Gemini), "generate_content");
        assert_eq!(operation(Method::Generate, Protocol::Anthropic), "chat");
        assert_eq!(operation(Method::BatchEmbedContents, Protocol::Gemini), "embeddings");
        assert_eq!(operation(Method::CountTokens, Protocol::Gemini), "count_tokens");
    }
}
