//! A model request as it stands when its path is known and nothing of its body has been read.

use std::{
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tollgate_core::{RequestId, Secret, Timestamp};
use tollgate_protocol::{Protocol, Target};

/// Everything about a request but its body. A refusal is written from it, so it exists before the path is known to
/// be right.
#[derive(Clone, Debug)]
pub struct Head {
    /// The protocol answers are written in.
    pub from: Protocol,
    /// The id shown to the caller and the usage record's key.
    pub request_id: RequestId,
    /// When its head was complete.
    pub arrived: Timestamp,
    /// The same moment on the monotonic clock.
    pub started: tokio::time::Instant,
    /// Who connected. IPv4 in IPv6 is unwrapped.
    pub peer: IpAddr,
    /// The key as sent, trimmed; `None` where no accepted place held one.
    pub presented_key: Option<Secret>,
    /// The HTTP method.
    pub http_method: http::Method,
    /// The path as sent, without the query (which may hold a key).
    pub path: String,
    /// All header fields as sent.
    pub headers: HeaderMap,
    /// The caller's own `x-request-id`, cut to 128 visible characters; logged, never used as ours.
    pub client_request_id: Option<String>,
}

/// A model request whose path, method and protocol are known. Its body has not been touched.
#[derive(Debug)]
pub struct Incoming {
    /// Head.
    pub head: Head,
    /// What the path asks for.
    pub target: Target,
    /// Body, still on the wire.
    pub body: RequestBody,
}

/// A request body: on the wire, or already here (tests, in-process calls).
#[derive(Debug)]
pub enum RequestBody {
    /// Still to be read from the connection.
    Wire(hyper::body::Incoming),
    /// Here; `None` once taken.
    Whole(Option<Bytes>),
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Wire(body) => Pin::new(body).poll_frame(context),
            Self::Whole(bytes) => Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Wire(body) => body.is_end_stream(),
            Self::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Wire(body) => body.size_hint(),
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}
