//! Routes HTTP requests: from the request line and headers to a [`Destination`], or a refusal of the path.
//!
//! Routing uses path and method, and for paths that several protocols have also headers by which their clients differ. Keys and models
//! are not looked up here: an unknown path gets the same answer with and without a valid key.

mod anthropic;
mod gemini;
mod hint;
mod key;
mod not_offered;
mod openai;
mod query;
mod responses;

use http::{Method as HttpMethod, Uri, uri::PathAndQuery};
use tollgate_protocol::{Protocol, Target, lists::PageQuery};

use crate::{
    header_fields::HeaderFields,
    refusal::{NotStored, Refusal},
};

pub(crate) use hint::hint;
pub(crate) use key::{PresentedKeys, presented_keys};
pub(crate) use query::Query;

/// The target of a request after routing.
#[derive(Debug)]
pub(crate) enum Destination {
    Model(Protocol, Target),
    List(Protocol, ListRequest),
    /// An object that the protocol's own service stores, and this gateway does not (E69).
    NotStored(Protocol, NotStored),
    Status(StatusEndpoint),
    /// A path outside the gateway, passed to the console.
    Fallback,
    /// An unknown path under a gateway prefix, or a method it does not accept.
    Refused(Protocol, Refusal),
}

/// An endpoint that reports on the gateway and requires no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusEndpoint {
    Health,
    Ready,
    Version,
    Metrics,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListRequest {
    /// A page of all models.
    All(PageQuery),
    One(String),
}

pub(crate) fn destination(method: &HttpMethod, uri: &Uri, headers: &HeaderFields) -> Destination {
    let path = uri.path();
    let query = Query::new(uri.query());
    let endpoint = match path {
        "/healthz" => Some(StatusEndpoint::Health),
        "/readyz" => Some(StatusEndpoint::Ready),
        "/version" => Some(StatusEndpoint::Version),
        "/metrics" => Some(StatusEndpoint::Metrics),
        _ => None,
    };
    if let Some(endpoint) = endpoint {
        return if reads(method) { Destination::Status(endpoint) } else { not_allowed(Protocol::OpenAi, READING) };
    }
    match versioned(path) {
        Some(("v1", rest)) => openai::destination(method, rest, headers, query),
        Some((_, rest)) => gemini::destination(method, rest, query),
        None => Destination::Fallback,
    }
}

/// Whether a path is one of the model API, known or not: model requests, lists, and requests of callers about their key.
pub(crate) fn is_model_api(path: &str) -> bool {
    versioned(path).is_some()
}

/// Removes the path at which a proxy serves the gateway, if the proxy left it. Requests without it, and those whose path already
/// belongs to the model API, are unchanged.
pub(crate) fn remove_base_path(uri: &mut Uri, base: &str) {
    if base.is_empty() || is_model_api(uri.path()) {
        return;
    }
    let path = uri.path_and_query().map_or("", PathAndQuery::as_str);
    let Some(rest) = path.strip_prefix(base).filter(|rest| rest.is_empty() || rest.starts_with(['/', '?'])) else { return };
    let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = rest.parse().ok();
    *uri = Uri::from_parts(parts).unwrap_or_default();
}

/// The keys of a request, from the accepted locations of its protocol.
pub(crate) fn keys_of(from: Protocol, uri: &Uri, headers: &HeaderFields) -> PresentedKeys {
    presented_keys(from, headers, Query::new(uri.query()))
}

/// The paging parameters of a model list's query.
fn page_query(from: Protocol, query: Query<'_>) -> PageQuery {
    from.spec().model_list.parameters.read(|name| query.get(name))
}

/// Splits `/v1beta/models` into `v1beta` and `models`; `None` for other versions.
fn versioned(path: &str) -> Option<(&str, &str)> {
    const VERSIONS: [&str; 3] = ["v1", "v1beta", "v1alpha"];
    let path = path.strip_prefix('/')?;
    VERSIONS.iter().find_map(|version| {
        let rest = path.strip_prefix(version)?;
        let rest = if rest.is_empty() { rest } else { rest.strip_prefix('/')? };
        Some((*version, rest))
    })
}

/// An unknown path under a gateway prefix.
fn unknown(from: Protocol) -> Destination {
    // The hint needs the full path, which is available where the refusal is rendered.
    Destination::Refused(from, Refusal::UnknownPath { hint: None })
}

/// A known path with a method it does not accept.
fn not_allowed(from: Protocol, allow: &'static str) -> Destination {
    Destination::Refused(from, Refusal::MethodNotAllowed { allow })
}

/// Whether a method is GET or HEAD.
fn reads(method: &HttpMethod) -> bool {
    matches!(*method, HttpMethod::GET | HttpMethod::HEAD)
}

/// `Allow` of model lists and status endpoints.
const READING: &str = "GET, HEAD";

#[cfg(test)]
mod tests;
