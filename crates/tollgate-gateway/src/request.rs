//! A model request after its request line is parsed and before its body is read.

mod unread_body;

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
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tollgate_core::{RequestId, Secret, ShortText, Timestamp};
use tollgate_protocol::{Protocol, Target};

pub(crate) use self::unread_body::UnreadBody;
use crate::{
    header_fields::HeaderFields,
    in_place::boxed,
    settings::{Bounds, RequestSettings},
    state::{authenticator::RecentKey, shares::InFlightRequest},
};

/// A request without its body. Refusals are written from it, so it exists before the path is checked.
#[derive(Clone, Debug)]
pub struct Head {
    /// Protocol of the answer.
    pub from: Protocol,
    /// The settings in force when it arrived.
    pub settings: RequestSettings,
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
    /// Another key of the request, which is used if the first one is not valid.
    pub other_key: Option<Secret>,
    /// The last key of the connection's requests; `None` without a connection.
    pub(crate) recent_key: Option<Arc<RecentKey>>,
    pub http_method: http::Method,
    /// The path as sent, without the query (which may hold a key).
    pub path: String,
    pub headers: HeaderFields,
    /// The caller's own `x-request-id`, cut to 128 visible characters. Only logged.
    pub client_request_id: Option<ShortText>,
}

/// A model request whose path, method and protocol are known. Its body is unread.
#[derive(Debug)]
pub struct Incoming {
    /// Boxed: it is large, and moves through every stage.
    pub head: Box<Head>,
    pub target: Target,
    pub body: RequestBody,
}

/// Why reading a request body failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyFault {
    /// Nothing arrived for this long, or the body fell behind the minimum rate.
    #[error("too slow for {} s", .0.as_secs())]
    TooSlow(Duration),
    #[error("memory limit for bodies and answers reached")]
    MemoryExhausted,
    /// The connection was lost, or the framing is invalid.
    #[error("the body ended early")]
    Broken(#[source] hyper::Error),
}

/// A request body: on the wire, or in memory (tests, in-process calls).
pub struct RequestBody {
    source: Source,
    memory: Option<Arc<InFlightRequest>>,
    /// Bytes that are accounted for and have not arrived.
    declared: usize,
}

/// How fast a body has to arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyPace {
    /// Longest time between two chunks, and the longest delay by which a body may fall behind the minimum rate.
    idle: Duration,
    /// When the whole body must have arrived.
    until: Instant,
    /// When the request began.
    began: Instant,
    /// Minimum average rate in bytes per second; 0: none.
    min_rate: u64,
}

impl BodyPace {
    /// The pace for the body of a request that began at `began`.
    pub(crate) fn new(bounds: &Bounds, began: Instant) -> Self {
        let Bounds { body_timeout: idle, body_total_timeout, min_rate, .. } = *bounds;
        Self { idle, until: began + body_total_timeout, began, min_rate }
    }

    /// When the next chunk must have arrived, after `received` bytes. `idle` is the end of the time between two chunks.
    fn deadline(&self, idle: Instant, received: u64) -> Instant {
        let min_ms = received.saturating_mul(1_000).checked_div(self.min_rate);
        let behind = min_ms.map(|millis| self.began + self.idle + Duration::from_millis(millis));
        idle.min(self.until).min(behind.unwrap_or(self.until))
    }
}

enum Source {
    /// Boxed: it is large, and moves through every stage until the body is read.
    Wire(Box<WireBody>),
    Memory(Option<Bytes>),
}

struct WireBody {
    /// `None` once dropped.
    body: Option<hyper::body::Incoming>,
    pace: BodyPace,
    received: u64,
    timer: Option<Pin<Box<Sleep>>>,
    /// Receives the part of the body that is not read; `None` over HTTP/2, where streams end independently of the connection.
    unread: Option<UnreadBody>,
}

impl Drop for WireBody {
    fn drop(&mut self) {
        if let (Some(body), Some(unread)) = (self.body.take(), &self.unread)
            && !body.is_end_stream()
        {
            unread.put(body);
        }
    }
}

impl RequestBody {
    /// A body on the wire. Reading fails if it arrives more slowly than `pace`. The unread rest goes to `unread`.
    pub(crate) fn wire(body: hyper::body::Incoming, pace: BodyPace, unread: Option<UnreadBody>) -> Self {
        let source = Source::Wire(boxed(|| WireBody { body: Some(body), pace, received: 0, timer: None, unread }));
        Self { source, memory: None, declared: 0 }
    }

    /// Accounts for the declared length before any of it is read.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn reserve_declared(&mut self) -> Result<(), RequestBodyFault> {
        let declared = usize::try_from(self.size_hint().lower()).unwrap_or(usize::MAX);
        if let Some(memory) = &self.memory {
            memory.reserve_bytes(declared).map_err(|_| RequestBodyFault::MemoryExhausted)?;
            self.declared = declared;
        }
        Ok(())
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
        Self { source: Source::Memory(Some(bytes)), memory: None, declared: 0 }
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
        let Self { source, memory, declared } = self.get_mut();
        match source {
            Source::Memory(bytes) => {
                Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))))
            }
            Source::Wire(wire) => {
                let WireBody { body, pace, received, timer, unread: _ } = &mut **wire;
                let Some(body) = body else { return Poll::Ready(None) };
                if let Poll::Ready(frame) = Pin::new(body).poll_frame(context) {
                    *timer = None;
                    if let Some(Ok(frame)) = &frame
                        && let Some(data) = frame.data_ref()
                    {
                        *received += data.len() as u64;
                        let undeclared = data.len().saturating_sub(*declared);
                        *declared = declared.saturating_sub(data.len());
                        let reserved = memory.as_ref().map_or(Ok(()), |memory| memory.reserve_bytes(undeclared));
                        reserved.map_err(|_| RequestBodyFault::MemoryExhausted)?;
                    }
                    return Poll::Ready(frame.map(|frame| frame.map_err(RequestBodyFault::Broken)));
                }
                // Created on the first pending read, so that a body that has arrived already needs no timer.
                let timer = timer.get_or_insert_with(|| {
                    let idle = sleep(pace.idle);
                    let deadline = pace.deadline(idle.deadline(), *received);
                    Box::pin(if deadline < idle.deadline() { sleep_until(deadline) } else { idle })
                });
                ready!(timer.as_mut().poll(context));
                Poll::Ready(Some(Err(RequestBodyFault::TooSlow(timer.deadline().saturating_duration_since(pace.began)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Wire(wire) => wire.body.as_ref().is_none_or(Body::is_end_stream),
            Source::Memory(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Wire(wire) => wire.body.as_ref().map_or_else(SizeHint::default, Body::size_hint),
            Source::Memory(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}
