//! The gateway's own pages: health, readiness, version, metrics. They require no key.

use http::Method as HttpMethod;
use tollgate_protocol::Protocol;

use super::{Destination, READING, not_allowed, reads};

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WellKnown {
    /// `/healthz`: the process answers.
    Health,
    /// `/readyz`: the gateway accepts requests.
    Ready,
    /// `/version`.
    Version,
    /// `/metrics`.
    Metrics,
}

impl WellKnown {
    /// The page at a path.
    pub(super) fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/healthz" => Self::Health,
            "/readyz" => Self::Ready,
            "/version" => Self::Version,
            "/metrics" => Self::Metrics,
            _ => return None,
        })
    }

    /// Pages accept only GET and HEAD.
    pub(super) fn for_method(self, method: &HttpMethod) -> Destination {
        if reads(method) { Destination::WellKnown(self) } else { not_allowed(Protocol::OpenAi, READING) }
    }
}
