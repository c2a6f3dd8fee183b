//! Stage 1 of 9. In: an HTTP request line with its headers; out: what it asks for, or a refusal of its path.
//!
//! Decides by path and method alone, apart from the key's headers where one path means two things. Nothing here
//! knows whether a key or a model is good: a wrong path is answered the same for everybody.

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

/// What a request is for.
#[derive(Debug)]
pub(crate) enum Destination {
    /// A model request.
    Model(Protocol, Target),
    /// A list of models.
    List(Protocol, ListRequest),
    /// One of the gateway's own pages.
    WellKnown(WellKnown),
    /// Nothing of ours; the console may know it.
    Fallback,
    /// A path of ours that does not exist, or not with this method.
    Refused(Protocol, Refusal),
}

/// Which list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListRequest {
    /// All models, with native paging figures as sent.
    All {
        /// `pageSize`.
        page_size: Option<String>,
        /// `pageToken`.
        page_token: Option<String>,
    },
    /// One model.
    One(String),
}

/// Reads the request line.
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

/// The key of a request, from the first accepted place its protocol knows.
pub(crate) fn key_of(from: Protocol, uri: &Uri, headers: &HeaderMap) -> Option<Secret> {
    presented_key(from, headers, Query::new(uri.query()))
}

/// Splits `/v1beta/models` into `v1beta` and `models`; `None` outside the versions we serve.
fn versioned(path: &str) -> Option<(&str, &str)> {
    let (version, rest) = match path.strip_prefix('/')?.split_once('/') {
        Some((version, rest)) => (version, rest),
        None => (&path[1..], ""),
    };
    matches!(version, "v1" | "v1beta" | "v1alpha").then_some((version, rest))
}

/// A path of ours that does not exist.
fn unknown(from: Protocol) -> Destination {
    // The hint is found where the refusal is written: only then is the whole path at hand.
    Destination::Refused(from, Refusal::UnknownPath { hint: None })
}

/// A path of ours with a method it does not take.
fn not_allowed(from: Protocol, allow: &'static str) -> Destination {
    Destination::Refused(from, Refusal::MethodNotAllowed { allow })
}

/// Whether a method only reads.
fn reads(method: &HttpMethod) -> bool {
    matches!(*method, HttpMethod::GET | HttpMethod::HEAD)
}

/// What lists and pages allow.
const READING: &str = "GET, HEAD";

#[cfg(test)]
mod tests;
