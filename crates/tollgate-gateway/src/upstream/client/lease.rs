//! A connection that is leased to one request, and the delivery state of a request that got no response head.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2;
use tokio::time::Instant;

use super::{
    destination::TargetForm,
    host::{Host, Peer},
    http1::{Http1Connection, Http1Fault, Http1Request, ResponseHead},
    request_heads::RequestHead,
    response_body::ResponseBody,
    streams::Streams,
    tls::refused_client,
};
use crate::{
    state::shares::FairPermit,
    upstream::call::{ConnectFault, SentMark, UpstreamError},
};

/// Longest round trip assumed. The peer's FIN arrives up to one round trip after it closed, so a request can be written to
/// a connection that is already dead. A connection that ends later had received the request.
const RACE: Duration = Duration::from_secs(1);

/// A connection leased to one request. Dropping it closes an HTTP/1.1 connection at once.
pub(crate) struct Lease {
    pub(super) host: Arc<Host>,
    pub(super) kind: Option<LeaseKind>,
}

pub(super) enum LeaseKind {
    /// `connection`: until the response head, whose body takes it. `idle_since`: start of its idle time, if the connection is reused.
    Http1 { connection: Option<Box<Http1Connection>>, peer: Peer, idle_since: Option<Instant> },
    /// `was_idle`: the connection is reused and had no stream in progress. `stream`: the permit that counts its stream.
    Http2 { sender: http2::SendRequest<Full<Bytes>>, streams: Arc<Streams>, was_idle: bool, stream: Option<FairPermit> },
}

/// Why a request got no response head.
pub(crate) struct SendFault {
    pub(crate) delivery: DeliveryState,
    pub(crate) error: UpstreamError,
}

/// Delivery state of a request without a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryState {
    /// No byte was written, or the upstream reports that it did not process the request: safe to send again.
    Untouched,
    /// Written to a reused connection that then ended without a response byte. The upstream had almost certainly closed
    /// it before the request arrived, but this cannot be proven (RFC 9110, section 9.2.2).
    Unanswered,
    /// Possibly processed: lost after being written, or answered with an invalid response.
    Lost,
}

impl Lease {
    /// Form of the request target on this connection.
    pub(crate) fn target_form(&self) -> TargetForm {
        match self.kind {
            Some(LeaseKind::Http2 { .. }) => TargetForm::Absolute,
            Some(LeaseKind::Http1 { .. }) | None => TargetForm::Origin,
        }
    }

    /// Sends one request and waits for the response head. `mark` is set when the first byte is written.
    pub(crate) async fn send(
        &mut self,
        head: RequestHead,
        body: Bytes,
        mark: &SentMark,
    ) -> Result<(ResponseHead, ResponseBody), SendFault> {
        match (self.kind.as_mut(), head) {
            (Some(LeaseKind::Http1 { connection, idle_since, .. }), RequestHead::Http1(text)) => {
                let connection = connection.take().expect("a lease sends one request");
                send_http1(&self.host, connection, *idle_since, Http1Request { text, body }, mark).await
            }
            (Some(LeaseKind::Http2 { sender, streams, was_idle, .. }), RequestHead::Http2 { method, uri, headers }) => {
                let mut request = Request::new(Full::new(body));
                (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
                send_http2(&self.host, sender, (streams, *was_idle), request, mark).await
            }
            _ => unreachable!("the head is in the form of the connection, which is taken only by release and drop"),
        }
    }

    /// Whether a stream of HTTP/2 is counted.
    pub(super) const fn is_counted(&self) -> bool {
        matches!(self.kind, Some(LeaseKind::Http2 { stream: Some(_), .. }))
    }

    /// Stores the permit that counts the stream.
    pub(super) fn counted(mut self, permit: FairPermit) -> Self {
        if let Some(LeaseKind::Http2 { stream, .. }) = &mut self.kind {
            *stream = Some(permit);
        }
        self
    }

    /// Ends the lease of a request that is sent again, and returns the permit of its stream.
    pub(crate) fn into_stream(mut self) -> Option<FairPermit> {
        match &mut self.kind {
            Some(LeaseKind::Http2 { stream, .. }) => stream.take(),
            Some(LeaseKind::Http1 { .. }) | None => None,
        }
    }

    /// Returns the connection to the pool after a complete response.
    pub(crate) fn release(self, body: ResponseBody) {
        if let (Some(LeaseKind::Http1 { peer, .. }), ResponseBody::Http1(mut connection)) = (&self.kind, body)
            && connection.is_reusable()
        {
            connection.shrink();
            self.host.keep(connection, *peer);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Free the stream before its permit, which goes to the next request.
        if let Some(LeaseKind::Http2 { streams, stream, .. }) = self.kind.take() {
            streams.end();
            drop(stream);
        }
    }
}

/// Sends a request over HTTP/1.1.
async fn send_http1(
    host: &Host,
    mut connection: Box<Http1Connection>,
    idle_since: Option<Instant>,
    request: Http1Request,
    mark: &SentMark,
) -> Result<(ResponseHead, ResponseBody), SendFault> {
    let began = host.clock.instant();
    let fault = match connection.send(request, idle_since.is_some(), mark, &*host.clock).await {
        Ok(head) => return Ok((head, ResponseBody::Http1(connection))),
        Err(fault) => fault,
    };
    let is_silent = !connection.has_received() && host.clock.instant().duration_since(began) < RACE;
    let delivery = match idle_since {
        _ if !connection.has_written() => DeliveryState::Untouched,
        Some(_) if is_silent => DeliveryState::Unanswered,
        _ => DeliveryState::Lost,
    };
    if let (Some(since), DeliveryState::Untouched | DeliveryState::Unanswered) = (idle_since, delivery) {
        host.close_idle_since(since);
    }
    let error = match fault {
        Http1Fault::Lost(cause) => return Err(lost(delivery, Some(&cause))),
        Http1Fault::TooLarge => UpstreamError::Unreadable("answer head too large"),
        Http1Fault::NotHttp => UpstreamError::Unreadable("not an HTTP answer"),
    };
    Err(SendFault { delivery, error })
}

/// Sends a request over HTTP/2. `was_idle`: no other stream was in progress on a reused connection.
async fn send_http2(
    host: &Host,
    sender: &mut http2::SendRequest<Full<Bytes>>,
    (streams, was_idle): (&Arc<Streams>, bool),
    request: Request<Full<Bytes>>,
    mark: &SentMark,
) -> Result<(ResponseHead, ResponseBody), SendFault> {
    let began = host.clock.instant();
    mark.set(began);
    let fault = match sender.try_send_request(request).await {
        Ok(answer) => {
            streams.answered();
            let (head, body) = answer.into_parts();
            let head = ResponseHead { status: head.status.as_u16(), headers: head.headers };
            return Ok((head, ResponseBody::Http2(body)));
        }
        Err(fault) => fault,
    };
    let cause = cause_of::<h2::Error>(fault.error());
    if cause.is_some_and(h2::Error::is_go_away) {
        host.remove_shared(streams);
    }
    let io = cause_of::<io::Error>(fault.error());
    let delivery = if fault.message().is_some() || cause.is_some_and(not_processed) {
        DeliveryState::Untouched
    } else if was_idle && io.is_some() && host.clock.instant().duration_since(began) < RACE {
        DeliveryState::Unanswered
    } else {
        DeliveryState::Lost
    };
    Err(lost(delivery, io))
}

/// The fault of a connection that was lost.
fn lost(delivery: DeliveryState, cause: Option<&io::Error>) -> SendFault {
    // The server reads no request of a client that it does not accept.
    if let Some(fault) = cause.and_then(refused_client) {
        return SendFault { delivery: DeliveryState::Lost, error: UpstreamError::NotSent(ConnectFault::Tls(fault)) };
    }
    let is_sent = delivery != DeliveryState::Untouched;
    SendFault { delivery, error: if is_sent { UpstreamError::Lost } else { UpstreamError::NotSent(ConnectFault::Closed) } }
}

/// Whether the peer reports that it did not process the stream (RFC 9113, sections 6.8 and 8.7): `REFUSED_STREAM`, or a
/// stream above the last id of a GOAWAY with any reason. h2 fails only those streams with the peer's GOAWAY; lower
/// ones continue or fail with the connection's error.
fn not_processed(fault: &h2::Error) -> bool {
    fault.is_remote() && (fault.is_go_away() || fault.reason() == Some(h2::Reason::REFUSED_STREAM))
}

fn cause_of<E: std::error::Error + 'static>(error: &hyper::Error) -> Option<&E> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(fault) = cause.downcast_ref::<E>() {
            return Some(fault);
        }
        source = cause.source();
    }
    None
}
