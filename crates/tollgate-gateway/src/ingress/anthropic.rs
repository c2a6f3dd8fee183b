//! Paths of the Messages API under `/v1` (Anthropic API reference).

use http::Method as HttpMethod;
use tollgate_protocol::{Framing, Method, Protocol, Target};

use super::{Destination, ListRequest, Query, READING, not_allowed, page_query, query, reads, unknown};
use crate::header_fields::HeaderFields;

/// Header that every client of the protocol sends, and clients of other protocols do not.
const VERSION: &str = "anthropic-version";

/// True if a request for a path that several protocols share comes from an Anthropic client.
pub(super) fn is_client(headers: &HeaderFields) -> bool {
    headers.contains(VERSION)
}

/// Routes the part after `/v1/` if the protocol has the path.
pub(super) fn destination(method: &HttpMethod, rest: &str) -> Option<Destination> {
    let what = match rest {
        "messages" => Method::Chat,
        "messages/count_tokens" => Method::CountTokens,
        _ => return is_own(rest).then(|| unknown(Protocol::Anthropic)),
    };
    Some(if *method == HttpMethod::POST {
        Destination::Model(Protocol::Anthropic, Target { method: what, model: None, framing: Framing::Sse })
    } else {
        not_allowed(Protocol::Anthropic, "POST")
    })
}

/// `models`, or `models/{name}`.
pub(super) fn models(method: &HttpMethod, rest: &str, query: Query<'_>) -> Destination {
    if !reads(method) {
        return not_allowed(Protocol::Anthropic, READING);
    }
    let Some(name) = rest.strip_prefix("models/") else {
        return Destination::List(Protocol::Anthropic, ListRequest::All(page_query(Protocol::Anthropic, query)));
    };
    match query::decode(name) {
        Some(name) if !name.is_empty() => Destination::List(Protocol::Anthropic, ListRequest::One(name)),
        Some(_) | None => unknown(Protocol::Anthropic),
    }
}

/// True if a path belongs to the Messages API or to its predecessor (`complete`), with any prefix that the base URL adds.
/// Anthropic's SDKs expect errors in Anthropic's format.
fn is_own(rest: &str) -> bool {
    matches!(super::not_offered::after_version(rest).split('/').next(), Some("messages" | "complete"))
}
