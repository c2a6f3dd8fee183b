//! Pages of the gateway itself: health, readiness, version, metrics. They need no key.

use http::Method as HttpMethod;
use tollgate_protocol::Protocol;

use super::{Destination, READING, not_allowed, reads};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WellKnown {
    /// `/healthz`: the process answers.
    Health,
    /// `/readyz`: requests may be sent here.
    Ready,
    /// `/version`.
    Version,
    /// `/metrics`.
    Metrics,
}

impl WellKnown {
    /// Which page a path names.
    pub(super) fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/healthz" => Self::Health,
            "/readyz" => Self::Ready,
            "/version" => Self::Version,
            "/metrics" => Self::Metrics,
            _ => return None,
        })
    }

    /// They can only be read.
    pub(super) fn for_method(self, method: &HttpMethod) -> Destination {
        if reads(method) { Destination::WellKnown(self) } else { not_allowed(Protocol::OpenAi, READING) }
    }
}
