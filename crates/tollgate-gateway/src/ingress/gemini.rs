//! Gemini paths: `/v1beta`, `/v1alpha`, and those under `/v1` (Gemini API reference).

use http::Method as HttpMethod;
use tollgate_protocol::{Framing, Method, Protocol, Target};

use super::{Destination, ListRequest, Query, READING, not_allowed, page_query, query, reads, unknown};
use crate::refusal::Refusal;

/// Routes the part after `/v1beta/`.
pub(super) fn destination(method: &HttpMethod, rest: &str, query: Query<'_>) -> Destination {
    if rest == "models" {
        return if reads(method) { list(query) } else { not_allowed(Protocol::Gemini, READING) };
    }
    match rest.strip_prefix("models/").map(query::decode) {
        Some(Some(name)) => model(method, name, query, Protocol::Gemini),
        Some(None) | None => unknown(Protocol::Gemini),
    }
}

pub(super) fn list(query: Query<'_>) -> Destination {
    Destination::List(Protocol::Gemini, ListRequest::All(page_query(Protocol::Gemini, query)))
}

/// Splits `model:verb` at the last `:` if the verb is known.
pub(super) fn verb_of(name: &str) -> Option<(&str, Method)> {
    let (model, verb) = name.rsplit_once(':')?;
    Some((model, Method::from_gemini_verb(verb)?))
}

/// `models/{name}`, with or without a verb. `protocol` is that of refusals of a path without verb.
pub(super) fn model(method: &HttpMethod, name: String, query: Query<'_>, protocol: Protocol) -> Destination {
    if let Some((model, verb)) = verb_of(&name) {
        if *method != HttpMethod::POST {
            return not_allowed(Protocol::Gemini, "POST");
        }
        let framing = if query.get("alt").as_deref() == Some("sse") { Framing::Sse } else { Framing::JsonArray };
        return Destination::Model(Protocol::Gemini, Target { method: verb, model: Some(model.to_owned()), framing });
    }
    match *method {
        HttpMethod::POST => Destination::Refused(protocol, Refusal::UnknownVerb),
        _ if name.is_empty() => unknown(protocol),
        HttpMethod::GET | HttpMethod::HEAD => Destination::List(protocol, ListRequest::One(name)),
        _ => not_allowed(protocol, READING),
    }
}
