//! Paths of the Responses API under `/v1` (OpenAI API reference). Stored responses and conversations are not offered.

use http::{Method as HttpMethod, header};
use tollgate_protocol::{Framing, Method, Protocol, Target};

use super::{Destination, not_allowed, query, unknown};
use crate::{
    header_fields::HeaderFields,
    refusal::{NotStored, Refusal},
};

/// Routes the part after `/v1/` if the protocol has the path.
pub(super) fn destination(method: &HttpMethod, rest: &str, headers: &HeaderFields) -> Option<Destination> {
    if rest == "conversations" || rest.starts_with("conversations/") {
        return Some(Destination::NotStored(Protocol::Responses, NotStored::Conversations));
    }
    if rest == "responses" {
        let upgrades = *method == HttpMethod::GET && headers.contains(header::UPGRADE);
        let refused = upgrades.then_some(Destination::Refused(Protocol::Responses, Refusal::UpgradeRequired));
        return Some(refused.unwrap_or_else(|| body(method, Method::Chat)));
    }
    let rest = rest.strip_prefix("responses/")?;
    Some(match rest.split_once('/') {
        None if rest == "input_tokens" => body(method, Method::CountTokens),
        None if rest == "compact" => body(method, Method::Compact),
        None if is_stored(rest) => {
            stored(method, rest, &[HttpMethod::GET, HttpMethod::HEAD, HttpMethod::DELETE], "GET, HEAD, DELETE")
        }
        Some((id, "cancel")) if is_stored(id) => stored(method, id, &[HttpMethod::POST], "POST"),
        Some((id, "input_items")) if is_stored(id) => stored(method, id, &[HttpMethod::GET, HttpMethod::HEAD], "GET, HEAD"),
        None | Some(_) => unknown(Protocol::Responses),
    })
}

fn body(method: &HttpMethod, what: Method) -> Destination {
    if *method == HttpMethod::POST {
        Destination::Model(Protocol::Responses, Target { method: what, model: None, framing: Framing::Sse })
    } else {
        not_allowed(Protocol::Responses, "POST")
    }
}

/// Whether a segment is the id of a response, and not the name of another endpoint.
fn is_stored(segment: &str) -> bool {
    !segment.is_empty() && segment != "compact"
}

fn stored(method: &HttpMethod, id: &str, methods: &[HttpMethod], allow: &'static str) -> Destination {
    if !methods.contains(method) {
        return not_allowed(Protocol::Responses, allow);
    }
    match query::decode(id) {
        Some(id) => Destination::NotStored(Protocol::Responses, NotStored::Response(id)),
        None => unknown(Protocol::Responses),
    }
}
