//! The [`Upstream`] trait: sends one request for one account and returns the response head and body stream. Implemented by
//! the HTTP client, the echo channel and the scripted upstream of tests.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header::CONTENT_TYPE};
use http_body::Body;
use tokio::time::Instant;
use tollgate_core::{Account, Channel, RequestId, Requester, UnlistedAddress};
use tollgate_protocol::{Framing, Method, Protocol};

use crate::{header_fields::HeaderFields, own_limit::no_descriptors_left};

/// A service that answers model requests.
#[async_trait]
pub trait Upstream: Send + Sync + fmt::Debug {
    /// Sends one request and waits for the response head. Dropping the future, or the body before its end, closes the
    /// connection (HTTP/2: the stream) at once.
    ///
    /// The implementation enforces the channel's connect timeout, which also bounds a wait for its own limits, and calls
    /// [`SentMark::set`] when the first byte of the request is written. The caller enforces the first-byte and idle timeouts.
    async fn call(&self, call: UpstreamCall) -> Result<UpstreamAnswer, UpstreamError>;
}

/// One request for one account.
#[derive(Clone, Debug)]
pub struct UpstreamCall {
    /// The gateway's id of the request.
    pub request_id: RequestId,
    /// The key that sent the request, with its member; `None` for a request of the gateway itself.
    pub by: Option<Requester>,
    pub channel: Arc<Channel>,
    /// Account whose credential is sent.
    pub account: Arc<Account>,
    /// Protocol of the request; for the echo channel the caller's.
    pub protocol: Protocol,
    pub method: Method,
    pub upstream_model: String,
    /// Framing of a streamed response; `None`: not streamed.
    pub stream: Option<Framing>,
    /// Path and query, appended to the channel's base URL.
    pub path: String,
    /// Headers of the caller that the upstream gets.
    pub forwarded: Vec<(HeaderName, HeaderValue)>,
    /// Body of a `POST`; empty: a `GET`.
    pub body: Bytes,
    pub sent: SentMark,
}

impl UpstreamCall {
    /// A `GET` that belongs to no caller's request, such as a probe.
    pub(crate) fn of_gateway(channel: &Arc<Channel>, account: &Arc<Account>, path: String) -> Self {
        Self {
            request_id: RequestId::from_uuid(uuid::Uuid::nil()),
            by: None,
            channel: Arc::clone(channel),
            account: Arc::clone(account),
            protocol: channel.spec.protocol,
            method: Method::Chat,
            upstream_model: String::new(),
            stream: None,
            path,
            forwarded: Vec::new(),
            body: Bytes::new(),
            sent: SentMark::default(),
        }
    }
}

/// Time at which the first byte of a request was written. Before that a retry is always safe; the first-byte timeout
/// starts there.
#[derive(Clone, Debug, Default)]
pub struct SentMark(Arc<OnceLock<Instant>>);

impl SentMark {
    /// Records that the first byte is written at `now`. Later calls have no effect.
    pub fn set(&self, now: Instant) {
        let _ = self.0.set(now);
    }

    /// When the first byte was written; `None`: not yet.
    #[must_use]
    pub fn at(&self) -> Option<Instant> {
        self.0.get().copied()
    }
}

/// Body of an upstream's response. Dropping it before its end closes the connection.
pub type UpstreamBody = Pin<Box<dyn Body<Data = Bytes, Error = UpstreamBodyFault> + Send>>;

/// A response whose body is unread.
pub struct UpstreamAnswer {
    pub status: u16,
    /// Header fields; none of them is forwarded to the caller.
    pub headers: HeaderFields,
    pub body: UpstreamBody,
}

impl UpstreamAnswer {
    /// Whether the body may be JSON. A missing or generic type counts as JSON; parsing decides then.
    pub(crate) fn may_be_json(&self) -> bool {
        let Some(kind) = self.headers.get(&CONTENT_TYPE) else { return true };
        let kind = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let kinds: [&[u8]; 5] = [b"application/json", b"", b"text/json", b"application/octet-stream", b"binary/octet-stream"];
        let suffix = kind.get(kind.len().saturating_sub(b"+json".len())..).unwrap_or_default();
        kinds.iter().any(|known| kind.eq_ignore_ascii_case(known)) || suffix.eq_ignore_ascii_case(b"+json")
    }
}

impl fmt::Debug for UpstreamAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamAnswer").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Why no response head was received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// Nothing was sent; a retry is safe.
    #[error("not sent: {0}")]
    NotSent(ConnectFault),
    /// The request was sent, at least in part, and the connection was lost before a response head.
    #[error("connection lost before an answer")]
    Lost,
    /// The received bytes are not a valid response head.
    #[error("unreadable answer head: {0}")]
    Unreadable(&'static str),
}

/// Why no connection was established.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectFault {
    #[error("bad base URL")]
    BadUrl,
    #[error("name not resolved")]
    Resolve,
    /// The channel must not reach any address of the host.
    #[error("address not allowed for this channel")]
    Denied,
    /// The settings permit no address of the host.
    #[error(transparent)]
    Unlisted(UnlistedAddress),
    #[error("connection refused or unreachable")]
    Refused,
    #[error("TLS handshake failed: {0}")]
    Tls(TlsFault),
    #[error("CA file cannot be used")]
    CaFile,
    #[error("client certificate or its private key cannot be used")]
    ClientCertificate,
    #[error("proxy failed")]
    Proxy,
    #[error("not connected in time")]
    TimedOut,
    /// A header of the channel, or the credential, is not a valid header value.
    #[error("header value not allowed in HTTP")]
    BadHeader,
    /// This process can open no further socket.
    #[error("this gateway has no file descriptor left")]
    OwnLimit,
    /// All connections that this gateway makes to the channel are in use, or those that the key may use.
    #[error("all connections to the channel are in use")]
    AllTaken,
    /// The upstream closed the connection or refused the stream before processing the request.
    #[error("closed before the request was sent")]
    Closed,
}

/// Why a TLS handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFault {
    #[error("the certificate has expired, or this machine's clock is wrong")]
    Expired,
    #[error("the certificate is not valid yet, or this machine's clock is wrong")]
    NotValidYet,
    #[error("the certificate is for another name")]
    OtherName,
    #[error("the certificate is signed by an authority that is not trusted")]
    UnknownIssuer,
    #[error("the certificate is not acceptable")]
    Certificate,
    #[error("the server does not accept the client certificate of the channel, or the channel has none")]
    ClientRefused,
    #[error("the server refused it")]
    Refused,
    #[error("the server does not speak TLS on this port")]
    NoTls,
    #[error("the connection was lost")]
    Lost,
}

impl ConnectFault {
    /// The fault of a connection that failed now. Without descriptors names cannot be resolved and sockets and files not opened,
    /// whatever the upstream's state.
    #[must_use]
    pub(crate) fn or_own_limit(self) -> Self {
        let may_be_own = matches!(self, Self::Resolve | Self::Refused | Self::Tls(_) | Self::CaFile | Self::Proxy | Self::Closed);
        if may_be_own && no_descriptors_left() { Self::OwnLimit } else { self }
    }
}

/// Why a body is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamBodyFault {
    /// The connection was lost, reset, or closed early.
    #[error("connection lost")]
    Lost,
    #[error("unreadable framing")]
    Unreadable,
}
