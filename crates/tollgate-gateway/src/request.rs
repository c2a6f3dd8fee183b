//! A model request after its request line is parsed and before its body is read.

use std::{
    fmt,
    future::Future as _,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tollgate_core::{RequestId, Secret, Timestamp};
use tollgate_protocol::{Protocol, Target};

use crate::condition::InFlightRequest;

/// A request without its body. Refusals are written from it, so it exists before the path is checked.
#[derive(Clone, Debug)]
pub struct Head {
    /// Protocol of the answer.
    pub from: Protocol,
    /// The id shown to the caller and the usage record's key.
    pub request_id: RequestId,
    /// Wall-clock time at the end of the head.
    pub arrived: Timestamp,
    /// Monotonic time at the end of the head.
    pub started: Instant,
    /// Address of the caller: the peer of the connection, or the address a trusted proxy reports; `None` if it reports
    /// none. IPv4-mapped IPv6 is unwrapped.
    pub peer: Option<IpAddr>,
    /// The key as sent, trimmed; `None` when the request has none.
    pub presented_key: Option<Secret>,
    pub http_method: http::Method,
    /// The path as sent, without the query (which may hold a key).
    pub path: String,
    pub headers: HeaderMap,
    /// The caller's own `x-request-id`, cut to 128 visible characters. Only logged.
    pub client_request_id: Option<String>,
}

/// A model request whose path, method and protocol are known. Its body is unread.
#[derive(Debug)]
pub struct Incoming {
    pub head: Head,
    pub target: Target,
    pub body: RequestBody,
}

/// Why reading a request body failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyFault {
    /// No data arrived for this long.
    #[error("no data for {} s", .0.as_secs())]
    TooSlow(Duration),
    #[error("memory limit for request bodies reached")]
    MemoryExhausted,
    /// The connection was lost, or the framing is invalid.
    #[error("the body ended early")]
    Broken(#[source] hyper::Error),
}

/// A request body: on the wire, or in memory (tests, in-process calls).
pub struct RequestBody {
    source: Source,
    memory: Option<Arc<InFlightRequest>>,
}

enum Source {
    Wire { body: hyper::body::Incoming, idle_limit: Duration, idle: Option<Pin<Box<Sleep>>> },
    Memory(Option<Bytes>),
}

impl RequestBody {
    /// A body on the wire; reading fails when no chunk arrives for `idle_limit`.
    pub(crate) fn wire(body: hyper::body::Incoming, idle_limit: Duration) -> Self {
        Self { source: Source::Wire { body, idle_limit, idle: None }, memory: None }
    }

    /// Counts the body's bytes against the limit for all bodies.
    pub(crate) fn within(mut self, memory: Arc<InFlightRequest>) -> Self {
        self.memory = Some(memory);
        self
    }

    pub(crate) fn memory(&self) -> Option<Arc<InFlightRequest>> {
        self.memory.clone()
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self { source: Source::Memory(Some(bytes)), memory: None }
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("size", &self.size_hint()).finish_non_exhaustive()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyFault;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RequestBodyFault>>> {
        let Self { source, memory } = self.get_mut();
        match source {
            Source::Memory(bytes) => {
                Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))))
            }
            Source::Wire { body, idle_limit, idle } => {
                if let Poll::Ready(frame) = Pin::new(body).poll_frame(context) {
                    *idle = None;
                    if let (Some(memory), Some(Ok(frame))) = (memory, &frame)
                        && let Some(data) = frame.data_ref()
                    {
                        memory.reserve_body(data.len()).map_err(|_| RequestBodyFault::MemoryExhausted)?;
                    }
                    return Poll::Ready(frame.map(|frame| frame.map_err(RequestBodyFault::Broken)));
                }
                // Created on the first pending read, so that a body that has arrived already needs no timer.
                let idle = idle.get_or_insert_with(|| Box::pin(tokio::time::sleep(*idle_limit)));
                ready!(idle.as_mut().poll(context));
                Poll::Ready(Some(Err(RequestBodyFault::TooSlow(*idle_limit))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Wire { body, .. } => body.is_end_stream(),
            Source::Memory(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Wire { body, .. } => body.size_hint(),
            Source::Memory(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}
