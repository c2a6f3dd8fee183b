//! Routing, key extraction and path hints.

use http::{HeaderValue, Method as HttpMethod, Uri};
use tollgate_core::Secret;
use tollgate_protocol::{Framing, Method, Protocol, lists::PageQuery};

use super::*;
use crate::refusal::{ApiNotOffered, PathHint};

fn headers(fields: &[(&'static str, &str)]) -> HeaderFields {
    fields.iter().fold(HeaderFields::default(), |mut map, (name, value)| {
        map.append(name, HeaderValue::from_str(value).unwrap());
        map
    })
}

fn at(method: &HttpMethod, target: &str, fields: &[(&'static str, &str)]) -> Destination {
    destination(method, &target.parse().unwrap(), &headers(fields))
}

fn shown(destination: &Destination) -> String {
    match destination {
        Destination::Model(from, target) => {
            format!("{} {:?} {}", from.as_str(), target.method, target.model.as_deref().unwrap_or("-"))
        }
        Destination::List(from, ListRequest::All(PageQuery { size, after, .. })) => {
            format!("{} list {} {}", from.as_str(), size.as_deref().unwrap_or("-"), after.as_deref().unwrap_or("-"))
        }
        Destination::List(from, ListRequest::One(model)) => format!("{} one {model}", from.as_str()),
        Destination::Status(endpoint) => format!("{endpoint:?}"),
        Destination::NotStored(from, what) => format!("{} {what:?}", from.as_str()),
        Destination::Fallback => "elsewhere".to_owned(),
        Destination::Refused(from, refusal) => format!("{} {}", from.as_str(), refusal.id(*from)),
    }
}

#[test]
fn post_paths_are_routed() {
    for (target, expected) in [
        ("/v1/chat/completions", "openai Chat -"),
        ("/v1/chat/completions?key=x", "openai Chat -"),
        ("/v1/embeddings", "openai Embeddings -"),
        ("/v1/messages", "anthropic Chat -"),
        ("/v1/messages?beta=true", "anthropic Chat -"),
        ("/v1/messages/count_tokens?beta=true", "anthropic CountTokens -"),
        ("/v1/messages/batches", "anthropic E10"),
        ("/v1/complete", "anthropic E10"),
        ("/v1/responses", "responses Chat -"),
        ("/v1/responses?beta=true", "responses Chat -"),
        ("/v1/responses/input_tokens", "responses CountTokens -"),
        ("/v1/responses/resp_1", "responses E11"),
        ("/v1/responses/resp_1/cancel", "responses Response(\"resp_1\")"),
        ("/v1/responses/resp_1/input_items", "responses E11"),
        ("/v1/responses/compact", "responses Compact -"),
        ("/v1/responses/", "responses E10"),
        ("/v1/conversations", "responses Conversations"),
        ("/v1beta/models/m:generateContent", "gemini Generate m"),
        ("/v1/models/m:generateContent", "gemini Generate m"),
        ("/v1alpha/models/m:countTokens", "gemini CountTokens m"),
        ("/v1/models/openai/gpt-4o:streamGenerateContent?alt=sse", "gemini StreamGenerate openai/gpt-4o"),
        ("/v1beta/models/a:b:embedContent", "gemini EmbedContent a:b"),
        ("/v1beta/models/m%3AbatchEmbedContents", "gemini BatchEmbedContents m"),
        ("/v1beta/models/models/m:generateContent", "gemini Generate models/m"),
        ("/v1beta/models/m", "gemini E12"),
        ("/v1beta/models/m:predict", "gemini E12"),
        ("/v1beta/models/m:GenerateContent", "gemini E12"),
        ("/v1beta/models/m:generateContent/", "gemini E12"),
        ("/v1/models/m", "openai E12"),
        ("/v1/models/m:predict", "gemini E12"),
        ("/v1beta/models", "gemini E11"),
        ("/v1/models", "openai E11"),
        ("/v1beta/models/x%", "gemini E10"),
        ("/v1beta/models/%ff:generateContent", "gemini E10"),
        ("/v1beta/models/x%00:generateContent", "gemini E10"),
        ("/v1beta/tunedModels/x:generateContent", "gemini E10"),
        ("/v1beta/files", "gemini E10"),
        ("/v1beta/v1beta/models/m:generateContent", "gemini E10"),
        ("/v1", "openai E10"),
        ("/v1/chat/completions/", "openai E10"),
        ("/v1/./chat/completions", "openai E10"),
        ("/v1//chat/completions", "openai E10"),
        ("/v1/Chat/Completions", "openai E10"),
        ("/healthz", "openai E11"),
        ("/chat/completions", "elsewhere"),
        ("/v2/chat/completions", "elsewhere"),
        ("/", "elsewhere"),
    ] {
        assert_eq!(shown(&at(&HttpMethod::POST, target, &[])), expected, "POST {target}");
    }
}

#[test]
fn get_paths_are_routed() {
    for (target, expected) in [
        ("/healthz", "Health"),
        ("/readyz?verbose", "Ready"),
        ("/version", "Version"),
        ("/metrics", "Metrics"),
        ("/v1/chat/completions", "openai E11"),
        ("/v1/messages", "anthropic E11"),
        ("/v1/responses", "responses E11"),
        ("/v1/responses/input_tokens", "responses E11"),
        ("/v1/responses/resp_1", "responses Response(\"resp_1\")"),
        ("/v1/responses/resp_1/input_items", "responses Response(\"resp_1\")"),
        ("/v1/conversations/conv_1/items", "responses Conversations"),
        ("/v1/messages/count_tokens", "anthropic E11"),
        ("/v1beta/models", "gemini list - -"),
        ("/v1alpha/models?pageSize=2&pageToken=t", "gemini list 2 t"),
        ("/v1beta/models/a/b", "gemini one a/b"),
        ("/v1beta/models/a%2Fb", "gemini one a/b"),
        ("/v1beta/models/m:generateContent", "gemini E11"),
        ("/v1beta/models/m:tag", "gemini one m:tag"),
        ("/v1beta/models/", "gemini E10"),
        ("/v1/models", "openai list - -"),
        ("/v1/models/m", "openai one m"),
        ("/v1/models/", "openai E10"),
        ("/v1/models?pageSize=3", "gemini list 3 -"),
        ("/v1/models?key=k", "gemini list - -"),
        ("/v1/models/m?key=k", "gemini one m"),
        ("/favicon.ico", "elsewhere"),
        ("/v1/key", "elsewhere"),
        ("/v1/usage/records", "elsewhere"),
        ("/v1/user/balance", "elsewhere"),
        ("/v1/openapi.json", "elsewhere"),
        ("/v1/usage/other", "openai E10"),
    ] {
        assert_eq!(shown(&at(&HttpMethod::GET, target, &[])), expected, "GET {target}");
        assert_eq!(shown(&at(&HttpMethod::HEAD, target, &[])), expected, "HEAD {target}");
    }
    assert_eq!(shown(&at(&HttpMethod::DELETE, "/v1/models/m", &[])), "openai E11");
    assert_eq!(shown(&at(&HttpMethod::DELETE, "/v1/responses/r", &[])), "responses Response(\"r\")");
    assert_eq!(shown(&at(&HttpMethod::GET, "/v1/responses", &[("upgrade", "websocket")])), "responses E70");
    assert_eq!(shown(&at(&HttpMethod::DELETE, "/v1beta/models/m", &[])), "gemini E11");
    assert_eq!(shown(&at(&HttpMethod::PUT, "/v1beta/models/m:generateContent", &[])), "gemini E11");
}

#[test]
fn credentials_select_the_model_list() {
    for (fields, expected) in [
        (&[("authorization", "Bearer k")][..], "openai list - -"),
        (&[("x-goog-api-key", "k")], "gemini list - -"),
        (&[("x-native-api-key", "k")], "gemini list - -"),
        (&[("x-goog-api-client", "google-genai-sdk/3.4.0"), ("authorization", "Bearer k")], "gemini list - -"),
    ] {
        assert_eq!(shown(&at(&HttpMethod::GET, "/v1/models", fields)), expected, "{fields:?}");
    }
}

#[test]
fn version_header_selects_anthropics_forms() {
    let version = ("anthropic-version", "2023-06-01");
    for (method, target, expected) in [
        (HttpMethod::GET, "/v1/models", "anthropic list - -"),
        (HttpMethod::GET, "/v1/models?limit=1000&after_id=m", "anthropic list 1000 m"),
        (HttpMethod::GET, "/v1/models/a%2Fb", "anthropic one a/b"),
        (HttpMethod::GET, "/v1/models/", "anthropic E10"),
        (HttpMethod::DELETE, "/v1/models/m", "anthropic E11"),
        (HttpMethod::POST, "/v1/models/m:generateContent", "gemini Generate m"),
        (HttpMethod::POST, "/v1/files", "anthropic E10"),
        (HttpMethod::POST, "/v1/chat/completions", "openai Chat -"),
        (HttpMethod::GET, "/v1beta/models", "gemini list - -"),
    ] {
        assert_eq!(shown(&at(&method, target, &[version])), expected, "{method} {target}");
    }
    let native = [version, ("x-goog-api-key", "k")];
    assert_eq!(shown(&at(&HttpMethod::GET, "/v1/models", &native)), "anthropic list - -");
    assert_eq!(shown(&at(&HttpMethod::POST, "/v1/files", &native)), "openai E10");
}

#[test]
fn only_alt_sse_selects_events() {
    for (target, framing) in [
        ("/v1beta/models/m:streamGenerateContent?alt=sse", Framing::Sse),
        ("/v1beta/models/m:streamGenerateContent?a=1&alt=sse", Framing::Sse),
        ("/v1beta/models/m:streamGenerateContent", Framing::JsonArray),
        ("/v1beta/models/m:streamGenerateContent?alt=json", Framing::JsonArray),
        ("/v1beta/models/m:streamGenerateContent?$alt=json;enum-encoding%3Dint", Framing::JsonArray),
    ] {
        let Destination::Model(Protocol::Gemini, target) = at(&HttpMethod::POST, target, &[]) else { panic!("{target}") };
        assert_eq!((target.method, target.framing), (Method::StreamGenerate, framing));
    }
}

const GOOGLES: &str = "Your base URL ends with /v1beta/openai; here it ends with /v1.";

/// The similar path that is suggested, and the fault of the base URL.
fn similar(method: &HttpMethod, path: &str) -> Option<(String, Option<&'static str>)> {
    match hint(method, path)? {
        PathHint::Similar { path, base_url } => Some((path, base_url)),
        PathHint::NotOffered(api) => panic!("{path}: {api:?}"),
    }
}

#[test]
fn path_hints_are_valid_paths() {
    for (method, path, expected) in [
        (HttpMethod::POST, "/chat/completions", Some("/v1/chat/completions")),
        (HttpMethod::POST, "/chat/completions/", Some("/v1/chat/completions")),
        (HttpMethod::POST, "/v1/chat/completions/", Some("/v1/chat/completions")),
        (HttpMethod::POST, "/v1/v1/chat/completions", Some("/v1/chat/completions")),
        (HttpMethod::POST, "/v1beta/v1beta/models/m:generateContent", Some("/v1beta/models/m:generateContent")),
        (HttpMethod::POST, "/v1beta/v1/models/m:generateContent", Some("/v1/models/m:generateContent")),
        (HttpMethod::POST, "/models/m:generateContent", Some("/v1/models/m:generateContent")),
        (HttpMethod::GET, "/models", Some("/v1/models")),
        (HttpMethod::GET, "/v1beta/models/", Some("/v1beta/models")),
        (HttpMethod::GET, "/chat/completions", None),
        (HttpMethod::POST, "/foo", None),
        (HttpMethod::GET, "/", None),
        (HttpMethod::POST, "/v1/./chat/completions", Some("/v1/chat/completions")),
    ] {
        assert_eq!(similar(&method, path).map(|(path, _)| path).as_deref(), expected, "{method} {path}");
    }
}

#[test]
fn every_near_miss_of_a_path_gets_a_hint() {
    let chat = "/v1/chat/completions";
    for (path, expected, base_url) in [
        ("/chat/completions", chat, Some("Your base URL lacks /v1.")),
        ("/embeddings", "/v1/embeddings", Some("Your base URL lacks /v1.")),
        ("/v1/chat/completion", chat, None),
        ("/v1/Chat/Completions", chat, None),
        ("/v1/chat/completitions", chat, None),
        ("/v1/chat", chat, None),
        ("/v1/completions", chat, None),
        ("/v1/chat/completions/completions", chat, None),
        ("/v1//chat/completions", chat, None),
        ("//v1/chat/completions", chat, None),
        ("/v1/embedding", "/v1/embeddings", None),
        ("/v1/v1/chat/completions", chat, Some("Your base URL has the version twice.")),
        ("/api/v1/chat/completions", chat, Some("Your base URL has extra path segments.")),
        ("/v1beta/openai/chat/completions", chat, Some(GOOGLES)),
        ("/chat/completion", chat, Some("Your base URL lacks /v1.")),
        ("/v1beta/m:generateContent", "/v1beta/models/m:generateContent", None),
        ("/v1beta/model/m:generateContent", "/v1beta/models/m:generateContent", None),
        ("/m:streamGenerateContent", "/v1beta/models/m:streamGenerateContent", None),
        ("/messages", "/v1/messages", Some("Your base URL lacks /v1.")),
        ("/v1/v1/messages", "/v1/messages", Some("Your base URL has the version twice.")),
        ("/v1//messages/", "/v1/messages", None),
        ("/v1/v1/messages/count_tokens", "/v1/messages/count_tokens", Some("Your base URL has the version twice.")),
        ("/api/v1/messages", "/v1/messages", Some("Your base URL has extra path segments.")),
        ("/responses", "/v1/responses", Some("Your base URL lacks /v1.")),
        ("/v1/v1/responses", "/v1/responses", Some("Your base URL has the version twice.")),
        ("/v1beta/openai/responses", "/v1/responses", Some(GOOGLES)),
    ] {
        assert_eq!(similar(&HttpMethod::POST, path), Some((expected.to_owned(), base_url)), "{path}");
    }
    for (path, expected, base_url) in [
        ("/v1/model", "/v1/models", None),
        ("/models", "/v1/models", Some("Your base URL lacks /v1.")),
        ("/v1beta/openai/models", "/v1/models", Some(GOOGLES)),
    ] {
        assert_eq!(similar(&HttpMethod::GET, path), Some((expected.to_owned(), base_url)), "{path}");
    }
    for path in ["/v1/nothing", "/", "/favicon.ico", "/admin/v1/me", "/v1/filesystem", &"/x".repeat(2_000)] {
        assert_eq!(hint(&HttpMethod::POST, path), None, "{path}");
    }
}

#[test]
fn apis_that_are_not_offered_are_named() {
    let chat = Some("POST /v1/chat/completions");
    for (path, name, instead) in [
        ("/v1/messages/batches/b/results", "batch processing", None),
        ("/v1/complete", "the Text Completions API of Anthropic", Some("POST /v1/messages")),
        ("/v1/skills", "the Skills API of Anthropic", None),
        ("/v1/threads/t/messages", "the Assistants API", chat),
        ("/v1/images/generations", "image generation by the Images API", None),
        ("/v1/audio/transcriptions", "the Audio API", None),
        ("/v1/files", "the Files API; send files in the body of the request", None),
        ("/upload/v1beta/files", "the Files API; send files in the body of the request", None),
        ("/v1beta/cachedContents/c", "explicit context caching; send the contents with each request", None),
        ("/api/tags", "Ollama's own API", Some("GET /v1/models")),
        ("/v2/chat", "Cohere's own API", chat),
    ] {
        for method in [HttpMethod::GET, HttpMethod::POST] {
            assert_eq!(hint(&method, path), Some(PathHint::NotOffered(ApiNotOffered { name, instead })), "{method} {path}");
        }
    }
}

#[test]
fn suggested_alternatives_to_unsupported_apis_are_valid_paths() {
    for (prefix, api) in not_offered::APIS {
        let Some((method, path)) = api.instead.map(|instead| instead.split_once(' ').unwrap()) else { continue };
        let target = path.replace("{model}", "m");
        let destination = at(&method.parse().unwrap(), &target, &[]);
        assert!(matches!(destination, Destination::Model(..) | Destination::List(..)), "{prefix}: {method} {path}");
    }
}

#[test]
fn unknown_paths_of_the_messages_api_are_refused_in_its_format() {
    for path in ["/v1/messages/other", "/v1/complete", "/v1/v1/messages"] {
        assert!(matches!(at(&HttpMethod::POST, path, &[]), Destination::Refused(Protocol::Anthropic, _)), "{path}");
    }
    for path in ["/v1/threads/t/messages", "/v1/message"] {
        assert!(matches!(at(&HttpMethod::POST, path, &[]), Destination::Refused(Protocol::OpenAi, _)), "{path}");
    }
}

#[test]
fn first_location_with_a_key_decides() {
    let all = [("authorization", "Bearer one"), ("x-native-api-key", "two"), ("x-goog-api-key", "three")];
    for (from, fields, target, expected) in [
        (Protocol::OpenAi, &all[..], "/?key=four", Some("one")),
        (Protocol::OpenAi, &all[1..], "/?key=four", Some("two")),
        (Protocol::OpenAi, &all[2..], "/?key=four", Some("three")),
        (Protocol::OpenAi, &[], "/?key=four", Some("four")),
        (Protocol::OpenAi, &[], "/", None),
        (Protocol::OpenAi, &[("authorization", "Basic eA=="), ("x-goog-api-key", "three")], "/", None),
        (Protocol::OpenAi, &[("authorization", "sk-bare-key")], "/", None),
        (Protocol::OpenAi, &[("authorization", "bearer   one  ")], "/", Some("one")),
        (Protocol::OpenAi, &[("authorization", "Bearer ")], "/", None),
        (Protocol::OpenAi, &[("authorization", "Bearer a"), ("authorization", "Bearer b")], "/", Some("")),
        (Protocol::Gemini, &all[..], "/?key=four", Some("two")),
        (Protocol::Gemini, &[("authorization", "Bearer one"), ("x-goog-api-key", "three")], "/", Some("three")),
        (Protocol::Gemini, &[("x-native-api-key", " "), ("x-goog-api-key", "three")], "/", Some("three")),
        (Protocol::Gemini, &all[..1], "/?key=four", Some("one")),
        (Protocol::Gemini, &[("authorization", "Basic eA==")], "/?key=f%6Fur", Some("four")),
        (Protocol::Gemini, &[("cookie", "key=x")], "/", None),
    ] {
        let keys = keys_of(from, &Uri::from_static(target), &headers(fields));
        assert_eq!(keys.first.as_ref().map(Secret::expose), expected, "{from:?} {fields:?} {target}");
        assert!(keys.other.is_none());
    }
}

#[test]
fn anthropics_clients_may_send_two_keys() {
    let (own, bearer) = (("x-api-key", " one "), ("authorization", "Bearer two"));
    for (fields, first, other) in [
        (&[own, bearer][..], Some("one"), Some("two")),
        (&[own], Some("one"), None),
        (&[bearer], Some("two"), None),
        (&[("x-api-key", ""), bearer], Some("two"), None),
        (&[("x-goog-api-key", "three")], None, None),
    ] {
        let keys = keys_of(Protocol::Anthropic, &Uri::from_static("/v1/messages?key=four"), &headers(fields));
        assert_eq!(
            (keys.first.as_ref().map(Secret::expose), keys.other.as_ref().map(Secret::expose)),
            (first, other),
            "{fields:?}"
        );
    }
}

#[test]
fn path_that_a_proxy_leaves_is_removed() {
    for (target, base, expected) in [
        ("/llm/v1/chat/completions", "/llm", "/v1/chat/completions"),
        ("/llm/v1beta/models/m:streamGenerateContent?alt=sse", "/llm", "/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("https://gate.example.com/llm/models?q=a", "/llm", "https://gate.example.com/models?q=a"),
        ("/llm", "/llm", "/"),
        ("/llm?a=b", "/llm", "/?a=b"),
        ("/llm/", "/llm", "/"),
        ("/llms/v1/chat/completions", "/llm", "/llms/v1/chat/completions"),
        ("/v1/chat/completions", "/llm", "/v1/chat/completions"),
        ("/v1/models", "/v1", "/v1/models"),
        ("/llm/v1/models", "", "/llm/v1/models"),
    ] {
        let mut uri: Uri = target.parse().unwrap();
        remove_base_path(&mut uri, base);
        assert_eq!(uri.to_string(), expected, "{target} below {base:?}");
    }
}
