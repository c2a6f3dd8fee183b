//! Paths under `/v1`: the OpenAI API, and the Gemini API's stable version.

use http::Method as HttpMethod;
use tollgate_protocol::{Framing, Method, Protocol, Target, lists::PageQuery};

use super::{
    Destination, ListRequest, Query, READING, anthropic, gemini, key::has_gemini_credentials, not_allowed, query, reads, responses,
    unknown,
};
use crate::header_fields::HeaderFields;

/// Paths at which callers ask about their key, its usage and this API. The console answers them.
const OF_CONSOLE: [&str; 7] =
    ["key", "usage", "usage/records", "dashboard/billing/subscription", "dashboard/billing/usage", "user/balance", "openapi.json"];

pub(super) fn destination(method: &HttpMethod, rest: &str, headers: &HeaderFields, query: Query<'_>) -> Destination {
    match rest {
        "chat/completions" => return body(method, Method::Chat),
        "embeddings" => return body(method, Method::Embeddings),
        _ => {}
    }
    if let Some(destination) = anthropic::destination(method, rest).or_else(|| responses::destination(method, rest, headers)) {
        return destination;
    }
    match rest {
        _ if rest == "models" || rest.starts_with("models/") => models(method, rest, headers, query),
        _ if OF_CONSOLE.contains(&rest) => Destination::Fallback,
        _ if anthropic::is_client(headers) && !has_gemini_credentials(headers, query) => unknown(Protocol::Anthropic),
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

/// `/v1/models…` exists in all protocols. With a verb it is Gemini; otherwise the headers decide.
fn models(method: &HttpMethod, rest: &str, headers: &HeaderFields, query: Query<'_>) -> Destination {
    let has_verb = rest.contains(':') && *method == HttpMethod::POST;
    if anthropic::is_client(headers) && !has_verb {
        return anthropic::models(method, rest, query);
    }
    let is_gemini = has_gemini_credentials(headers, query);
    let Some(name) = rest.strip_prefix("models/") else {
        return match (reads(method), is_gemini) {
            (true, true) => gemini::list(query),
            (true, false) => Destination::List(Protocol::OpenAi, ListRequest::All(PageQuery::default())),
            (false, gemini) => not_allowed(if gemini { Protocol::Gemini } else { Protocol::OpenAi }, READING),
        };
    };
    let Some(name) = query::decode(name) else { return unknown(if is_gemini { Protocol::Gemini } else { Protocol::OpenAi }) };
    if is_gemini || *method == HttpMethod::POST || gemini::verb_of(&name).is_some() {
        let protocol = if is_gemini || name.contains(':') { Protocol::Gemini } else { Protocol::OpenAi };
        return gemini::model(method, name, query, protocol);
    }
    match (reads(method), name.is_empty()) {
        (_, true) => unknown(Protocol::OpenAi),
        (true, false) => Destination::List(Protocol::OpenAi, ListRequest::One(name)),
        (false, false) => not_allowed(Protocol::OpenAi, READING),
    }
}
