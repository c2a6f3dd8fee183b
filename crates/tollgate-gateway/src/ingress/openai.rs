//! Paths under `/v1`: chat completions, and the native protocol's newer base path.

use http::{HeaderMap, Method as HttpMethod};
use tollgate_protocol::{Framing, Method, Protocol, Target};

use super::{Destination, ListRequest, Query, READING, gemini, key::has_native_credentials, not_allowed, query, reads, unknown};

pub(super) fn destination(method: &HttpMethod, rest: &str, headers: &HeaderMap, query: Query<'_>) -> Destination {
    match rest {
        "chat/completions" => body(method, Method::Chat),
        "embeddings" => body(method, Method::Embeddings),
        _ if rest == "models" || rest.starts_with("models/") => models(method, rest, headers, query),
        _ => unknown(Protocol::OpenAi),
    }
}

fn body(method: &HttpMethod, what: Method) -> Destination {
    if *method == HttpMethod::POST {
        Destination::Model(Protocol::OpenAi, Target { method: what, model: None, framing: Framing::Sse })
    } else {
        not_allowed(Protocol::OpenAi, "POST")
    }
}

/// `/v1/models…` means two things. With a verb it is native; without one the credentials tell.
fn models(method: &HttpMethod, rest: &str, headers: &HeaderMap, query: Query<'_>) -> Destination {
    let native = has_native_credentials(headers, query);
    let Some(name) = rest.strip_prefix("models/") else {
        return match (reads(method), native) {
            (true, true) => gemini::list(query),
            (true, false) => Destination::List(Protocol::OpenAi, ListRequest::All { page_size: None, page_token: None }),
            (false, native) => not_allowed(if native { Protocol::Gemini } else { Protocol::OpenAi }, READING),
        };
    };
    let Some(name) = query::decode(name) else { return unknown(if native { Protocol::Gemini } else { Protocol::OpenAi }) };
    if native || *method == HttpMethod::POST || gemini::verb_of(&name).is_some() {
        let shape = if native || name.contains(':') { Protocol::Gemini } else { Protocol::OpenAi };
        return gemini::model(method, name, query, shape);
    }
    match (reads(method), name.is_empty()) {
        (_, true) => unknown(Protocol::OpenAi),
        (true, false) => Destination::List(Protocol::OpenAi, ListRequest::One(name)),
        (false, false) => not_allowed(Protocol::OpenAi, READING),
    }
}
