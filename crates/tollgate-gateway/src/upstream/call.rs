//! The outside world as one trait: a call goes out, an answer's head comes back, its body is pulled. Tests put a
//! script behind it.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use tokio::time::Instant;
use tollgate_core::{Account, Channel, RequestId};
use tollgate_protocol::{Framing, Method, Protocol};

/// Something that answers model requests.
#[async_trait]
pub trait Upstream: Send + Sync {
    /// Sends one request and waits for the head of its answer. Dropping the future, or the answer's body before
    /// its end, closes the way to the upstream at once.
    ///
    /// An implementation keeps the channel's connect limit and calls [`SentMark::set`] when the request's bytes
    /// begin to leave; the first-byte and idle limits are enforced by the caller.
    ///
    /// # Errors
    /// When no head of an answer came.
    async fn call(&self, call: UpstreamCall) -> Result<UpstreamAnswer, UpstreamError>;
}

/// One request for one account.
#[derive(Clone, Debug)]
pub struct UpstreamCall {
    /// Our id of the request.
    pub request_id: RequestId,
    /// Where it goes.
    pub channel: Arc<Channel>,
    /// Whose credential it carries.
    pub account: Arc<Account>,
    /// The protocol spoken there; for the echo channel the caller's.
    pub protocol: Protocol,
    /// What is asked.
    pub method: Method,
    /// The name the upstream knows the model by.
    pub upstream_model: String,
    /// Whether the answer streams, and how it is cut.
    pub stream: Option<Framing>,
    /// Path and query behind the channel's base URL.
    pub path: String,
    /// The body; empty: nothing is posted, something is looked up (`GET`).
    pub body: Bytes,
    /// Set when the request's bytes begin to leave.
    pub sent: SentMark,
}

/// Remembers when a request's bytes began to leave: until then another attempt is safe, and the first-byte limit
/// counts from then on.
#[derive(Clone, Debug, Default)]
pub struct SentMark(Arc<OnceLock<Instant>>);

impl SentMark {
    /// The bytes leave now. Later calls change nothing.
    pub fn set(&self) {
        let _ = self.0.set(Instant::now());
    }

    /// When they left.
    #[must_use]
    pub fn at(&self) -> Option<Instant> {
        self.0.get().copied()
    }
}

/// The body of an upstream's answer; dropping it early closes the connection it came over.
pub type UpstreamBody = Pin<Box<dyn Body<Data = Bytes, Error = UpstreamBodyFault> + Send>>;

/// An answer, its body still on the wire.
pub struct UpstreamAnswer {
    /// HTTP status.
    pub status: u16,
    /// Its header fields; none of them is handed on.
    pub headers: HeaderMap,
    /// Its body.
    pub body: UpstreamBody,
}

impl fmt::Debug for UpstreamAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamAnswer").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Why no head of an answer came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// Nothing was sent, so that another attempt is safe.
    #[error("not sent: {0}")]
    NotSent(ConnectFault),
    /// The request left, wholly or in part, and the connection was lost before a status line.
    #[error("connection lost before an answer")]
    Lost,
    /// Something came that is no readable answer head.
    #[error("unreadable answer head: {0}")]
    Unreadable(&'static str),
}

/// Why there was no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectFault {
    /// The base URL cannot be used.
    #[error("bad base URL")]
    BadUrl,
    /// The host name cannot be resolved.
    #[error("name not resolved")]
    Resolve,
    /// Every address of the host is one the channel must not reach.
    #[error("address not allowed for this channel")]
    Denied,
    /// TCP.
    #[error("connection refused or unreachable")]
    Refused,
    /// TLS: certificate, name or handshake.
    #[error("TLS handshake failed")]
    Tls,
    /// The channel's CA file cannot be used.
    #[error("CA file cannot be used")]
    CaFile,
    /// The proxy refused or could not be used.
    #[error("proxy failed")]
    Proxy,
    /// Not within the connect limit.
    #[error("not connected in time")]
    TimedOut,
    /// A header of the channel, or the credential, cannot stand in a request.
    #[error("header value not allowed in HTTP")]
    BadHeader,
    /// The connection closed, or the far side refused the stream, before anything was processed.
    #[error("closed before the request was sent")]
    Closed,
}

/// Why a body ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamBodyFault {
    /// Connection lost, reset, or ended early.
    #[error("connection lost")]
    Lost,
    /// Framing that cannot be read.
    #[error("unreadable framing")]
    Unreadable,
}
