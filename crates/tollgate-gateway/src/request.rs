//! A model request as it stands when its path is known and nothing of its body has been read.

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

use crate::state::shared::InFlightRequest;

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
    pub started: Instant,
    /// Who sent it: the other end of the connection, or whom a trusted proxy there names. IPv4 in IPv6 is unwrapped.
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

/// Why a request body ends before its end.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyFault {
    /// Nothing came for this long.
    #[error("nothing came for {} s", .0.as_secs())]
    TooSlow(Duration),
    /// All bodies together need more memory than there is for them.
    #[error("no room for another body")]
    NoRoom,
    /// The connection broke, or its framing did.
    #[error("the body broke off")]
    Broken(#[source] hyper::Error),
}

/// A request body: on the wire, or already here (tests, in-process calls).
pub struct RequestBody {
    source: Source,
    room: Option<BodyMemory>,
}

/// Room for the bytes of one request's body among all others.
#[derive(Clone, Debug)]
pub(crate) struct BodyMemory {
    present: Arc<InFlightRequest>,
    most: usize,
}

impl BodyMemory {
    /// Room for the body of `present`, while all bodies together stay within `most` bytes.
    pub(crate) fn new(present: Arc<InFlightRequest>, most: usize) -> Self {
        Self { present, most }
    }

    /// Takes room for bytes.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), RequestBodyFault> {
        if self.present.reserve_body(bytes, self.most) { Ok(()) } else { Err(RequestBodyFault::NoRoom) }
    }
}

enum Source {
    Wire { body: hyper::body::Incoming, idle_timeout: Duration, silence: Option<Pin<Box<Sleep>>> },
    Here(Option<Bytes>),
}

impl RequestBody {
    /// A body on the wire that may be silent for so long between two pieces.
    pub(crate) fn wire(body: hyper::body::Incoming, idle_timeout: Duration) -> Self {
        Self { source: Source::Wire { body, idle_timeout, silence: None }, room: None }
    }

    /// Its bytes are to be counted.
    pub(crate) fn within(mut self, room: BodyMemory) -> Self {
        self.room = Some(room);
        self
    }

    /// Where its bytes are counted.
    pub(crate) fn memory(&self) -> Option<BodyMemory> {
        self.room.clone()
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self { source: Source::Here(Some(bytes)), room: None }
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
        let Self { source, room } = self.get_mut();
        match source {
            Source::Here(bytes) => Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes)))),
            Source::Wire { body, idle_timeout, silence } => {
                if let Poll::Ready(frame) = Pin::new(body).poll_frame(context) {
                    *silence = None;
                    if let (Some(room), Some(Ok(frame))) = (room, &frame)
                        && let Some(data) = frame.data_ref()
                    {
                        room.take(data.len())?;
                    }
                    return Poll::Ready(frame.map(|frame| frame.map_err(RequestBodyFault::Broken)));
                }
                // The timer exists only while nothing is there, so that a body that is already here costs none.
                let silence = silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(*idle_timeout)));
                ready!(silence.as_mut().poll(context));
                Poll::Ready(Some(Err(RequestBodyFault::TooSlow(*idle_timeout))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Wire { body, .. } => body.is_end_stream(),
            Source::Here(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Wire { body, .. } => body.size_hint(),
            Source::Here(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}
