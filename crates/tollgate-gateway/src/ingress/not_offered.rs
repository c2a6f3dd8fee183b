//! Paths of well-known APIs that the gateway does not offer. A caller that uses one gets E10 with the name of the API and an
//! alternative, because no path of the gateway is similar enough to suggest.

use crate::refusal::ApiNotOffered;

/// The APIs by the first segments of their paths after the version.
pub(super) const APIS: &[(&str, ApiNotOffered)] = &[
    ("messages/batches", none("batch processing")),
    ("complete", instead("the Text Completions API of Anthropic", MESSAGES)),
    ("assistants", instead("the Assistants API", CHAT)),
    ("threads", instead("the Assistants API", CHAT)),
    ("interactions", instead("the Interactions API", GENERATE)),
    ("images", none("image generation by the Images API")),
    ("videos", none("video generation")),
    ("audio", none("the Audio API")),
    ("realtime", none("the Realtime API")),
    ("moderations", none("the Moderations API")),
    ("rerank", none("reranking")),
    ("reranking", none("reranking")),
    ("score", none("scoring")),
    ("files", none("the Files API; send files in the body of the request")),
    ("uploads", none("the Files API; send files in the body of the request")),
    ("cachedContents", none("explicit context caching; send the contents with each request")),
    ("batches", none("batch processing")),
    ("skills", none("the Skills API of Anthropic")),
    ("agents", none("the Managed Agents API of Anthropic")),
    ("sessions", none("the Managed Agents API of Anthropic")),
    ("environments", none("the Managed Agents API of Anthropic")),
    ("fine_tuning", none("fine-tuning")),
    ("fine-tunes", none("fine-tuning")),
    ("tunedModels", none("fine-tuning")),
    ("vector_stores", none("vector stores")),
    ("fileSearchStores", none("vector stores")),
    ("corpora", none("vector stores")),
    ("containers", none("the Containers API")),
    ("evals", none("the Evals API")),
    ("operations", none("long-running operations")),
    ("organization", none("the administration of an organization; operators use /admin/v1")),
    ("organizations", none("the administration of an organization; operators use /admin/v1")),
    ("dashboard/billing", none("billing by this API; operators use /admin/v1")),
    ("api/chat", instead("Ollama's own API", CHAT)),
    ("api/generate", instead("Ollama's own API", CHAT)),
    ("api/embed", instead("Ollama's own API", EMBEDDINGS)),
    ("api/embeddings", instead("Ollama's own API", EMBEDDINGS)),
    ("api/tags", instead("Ollama's own API", "GET /v1/models")),
    ("api/show", instead("Ollama's own API", "GET /v1/models")),
    ("v2/chat", instead("Cohere's own API", CHAT)),
    ("v2/rerank", none("reranking")),
];

const CHAT: &str = "POST /v1/chat/completions";
const MESSAGES: &str = "POST /v1/messages";
const EMBEDDINGS: &str = "POST /v1/embeddings";
const GENERATE: &str = "POST /v1beta/models/{model}:generateContent";

const fn instead(name: &'static str, instead: &'static str) -> ApiNotOffered {
    ApiNotOffered { name, instead: Some(instead) }
}

const fn none(name: &'static str) -> ApiNotOffered {
    ApiNotOffered { name, instead: None }
}

/// The API of a path without empty segments, if it is a known one.
pub(super) fn api_of(path: &str) -> Option<ApiNotOffered> {
    let tail = after_version(path);
    let begins = |prefix: &str| tail.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    APIS.iter().find(|(prefix, _)| begins(prefix)).map(|(_, api)| *api)
}

/// The part of a path after its last version, or after the leading slash where it has none.
pub(super) fn after_version(path: &str) -> &str {
    let mut tail = path.trim_start_matches('/');
    let mut rest = tail;
    while let Some((segment, after)) = rest.split_once('/') {
        if matches!(segment, "v1" | "v1beta" | "v1alpha") {
            tail = after;
        }
        rest = after;
    }
    tail.strip_prefix("openai/").unwrap_or(tail)
}
