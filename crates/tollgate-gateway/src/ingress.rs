//! Stage 1 of 9. In: the request line and headers of an HTTP request; out: its [`Destination`], or a refusal of its path.
//!
//! Routing uses path and method, and for paths shared by two protocols also the credential headers. Keys and models are not
//! looked up here: an unknown path gets the same answer with and without a valid key.

mod gemini;
pub(crate) mod hint;
mod key;
mod openai;
mod query;
mod well_known;

use http::{HeaderMap, Method as HttpMethod, Uri};
use tollgate_core::Secret;
use tollgate_protocol::{Protocol, Target};

use crate::refusal::Refusal;

pub(crate) use key::presented_key;
pub(crate) use query::Query;
pub(crate) use well_known::WellKnown;

/// The target of a request after routing.
#[derive(Debug)]
pub(crate) enum Destination {
    /// A model request.
    Model(Protocol, Target),
    /// A list of models.
    List(Protocol, ListRequest),
    /// One of the gateway's own pages.
    WellKnown(WellKnown),
    /// A path outside the gateway, passed to the console.
    Fallback,
    /// An unknown path under a gateway prefix, or a method it does not accept.
    Refused(Protocol, Refusal),
}

/// A request for a model list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListRequest {
    /// All models; Gemini paging parameters as sent.
    All {
        /// `pageSize`.
        page_size: Option<String>,
        /// `pageToken`.
        page_token: Option<String>,
    },
    /// One model.
    One(String),
}

/// Routes a request.
pub(crate) fn destination(method: &HttpMethod, uri: &Uri, headers: &HeaderMap) -> Destination {
    let path = uri.path();
    let query = Query::new(uri.query());
    if let Some(page) = WellKnown::at(path) {
        return page.for_method(method);
    }
    match versioned(path) {
        Some(("v1", rest)) => openai::destination(method, rest, headers, query),
        Some((_, rest)) => gemini::destination(method, rest, query),
        None => Destination::Fallback,
    }
}

/// The key of a request, from the first accepted location of its protocol.
pub(crate) fn key_of(from: Protocol, uri: &Uri, headers: &HeaderMap) -> Option<Secret> {
    presented_key(from, headers, Query::new(uri.query()))
}

/// Splits `/v1beta/models` into `v1beta` and `models`; `None` for other versions.
fn versioned(path: &str) -> Option<(&str, &str)> {
    let (version, rest) = match path.strip_prefix('/')?.split_once('/') {
        Some((version, rest)) => (version, rest),
        None => (&path[1..], ""),
    };
    matches!(version, "v1" | "v1beta" | "v1alpha").then_some((version, rest))
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

/// `Allow` of lists and pages.
const READING: &str = "GET, HEAD";

#[cfg(test)]
mod tests;
