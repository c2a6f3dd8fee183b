//! The connection pool of one channel on one core. Idle HTTP/1.1 connections are reused, most recently used first; HTTP/2
//! connections are shared.

use std::{
    collections::VecDeque,
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore},
    task::AbortHandle,
    time::Instant,
};
use tokio_util::task::TaskTracker;

use super::{
    checked_io::IoState,
    connect::{Connected, connect},
    destination::{TargetForm, UpstreamTarget},
    resolver::Addresses,
    tls::Trust,
};
use crate::{
    clock::Clock,
    own_limit::no_descriptors_left,
    upstream::call::{ConnectFault, SentMark, UpstreamError},
};

/// Idle connections kept to one channel, per core.
const MAX_IDLE: usize = 512;
/// Idle time after which a connection is closed; below the keep-alive timeout of common servers (60 s and more).
const IDLE_LIMIT: Duration = Duration::from_secs(50);
/// Idle time after which the reactor gets a turn before reuse, to notice that the peer closed the connection.
const CHECK_AFTER: Duration = Duration::from_millis(200);
/// Longest round trip assumed. The peer's FIN arrives up to one round trip after it closed, so a request can be written to
/// a connection that is already dead. A connection that ends later had received the request.
const RACE: Duration = Duration::from_secs(1);
/// Concurrent dials to one channel, per core.
const MAX_DIALS: usize = 256;
/// HTTP/2 connections to one channel, per core.
const MAX_HTTP2: usize = 16;

pub(crate) struct Host {
    pub(crate) destination: UpstreamTarget,
    addresses: Addresses,
    idle: Mutex<VecDeque<Idle>>,
    shared: Mutex<Vec<Shared>>,
    speaks_http2: AtomicBool,
    dials: Semaphore,
    http2_dial: AsyncMutex<()>,
    clock: Arc<dyn Clock>,
}

struct Wire {
    sender: http1::SendRequest<Full<Bytes>>,
    close: AbortHandle,
    io: Arc<IoState>,
    peer: Option<IpAddr>,
}

struct Idle {
    wire: Wire,
    since: Instant,
}

struct Shared {
    peer: Option<IpAddr>,
    made: Instant,
    sender: http2::SendRequest<Full<Bytes>>,
    in_flight: Arc<AtomicUsize>,
    max_streams: Arc<AtomicUsize>,
}

/// Constraint on the age of a leased connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// An existing connection if there is one; the upstream may have closed it concurrently.
    Reused,
    /// A connection established after this time, when an older one failed before processing a request.
    NewerThan(Instant),
}

/// A connection leased to one request. Dropping it before the response's end closes an HTTP/1.1 connection at once.
pub(crate) struct Lease {
    host: Arc<Host>,
    kind: Option<LeaseKind>,
}

enum LeaseKind {
    /// `kept`: start of its idle time, if the connection is reused.
    Http1 { wire: Wire, kept: Option<Instant> },
    /// `kept`: the connection is reused and had no stream in progress.
    Http2 { sender: http2::SendRequest<Full<Bytes>>, in_flight: Arc<AtomicUsize>, kept: bool },
}

/// Why a request got no response head.
pub(crate) struct SendFault {
    pub(crate) fate: DeliveryState,
    pub(crate) error: UpstreamError,
}

/// Delivery state of a request without a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryState {
    /// No byte was written, or the upstream reports that it did not process the request: safe to send again.
    Untouched,
    /// Written to a reused connection that then ended at once without a response byte. The upstream had almost certainly
    /// closed it before, but this cannot be proven (RFC 9110, section 9.2.2).
    Unanswered,
    /// Possibly processed: lost after being written, or answered with an invalid response.
    Lost,
}

impl Host {
    pub(crate) fn new(destination: UpstreamTarget, clock: Arc<dyn Clock>) -> Self {
        Self {
            destination,
            addresses: Addresses::default(),
            idle: Mutex::default(),
            shared: Mutex::default(),
            speaks_http2: AtomicBool::new(false),
            dials: Semaphore::new(MAX_DIALS),
            http2_dial: AsyncMutex::new(()),
            clock,
        }
    }

    /// Leases a connection, an idle one if available. The caller bounds the time.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        wanted: Freshness,
        now: Instant,
        trust: &Trust,
        tasks: &TaskTracker,
    ) -> Result<Lease, ConnectFault> {
        if wanted == Freshness::Reused
            && let Some(lease) = self.idle_lease(now).await
        {
            return Ok(lease);
        }
        if let Some(lease) = self.shared_lease(wanted) {
            return Ok(lease);
        }
        // One HTTP/2 connection serves all waiting requests, so only one of them dials.
        let _guard = if self.speaks_http2.load(Ordering::Relaxed) {
            let guard = self.http2_dial.lock().await;
            if let Some(lease) = self.shared_lease(wanted) {
                return Ok(lease);
            }
            Some(guard)
        } else {
            None
        };
        let _dial = self.dials.acquire().await.map_err(|_| ConnectFault::Closed)?;
        if let Some(lease) = self.shared_lease(wanted) {
            return Ok(lease);
        }
        // Boxed: the future takes kilobytes, which requests on an idle connection would carry too.
        let (connected, peer) = Box::pin(self.connect(trust, tasks)).await?;
        let kind = match connected {
            Connected::Http1(sender, close, io) => LeaseKind::Http1 { wire: Wire { sender, close, io, peer }, kept: None },
            Connected::Http2(sender, max_streams) => {
                self.speaks_http2.store(true, Ordering::Relaxed);
                let in_flight = Arc::new(AtomicUsize::new(1));
                let made = self.clock.instant();
                let kept = Shared { peer, made, sender: sender.clone(), in_flight: Arc::clone(&in_flight), max_streams };
                self.shared.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
                LeaseKind::Http2 { sender, in_flight, kept: false }
            }
        };
        Ok(Lease { host: Arc::clone(self), kind: Some(kind) })
    }

    async fn connect(&self, trust: &Trust, tasks: &TaskTracker) -> Result<(Connected, Option<IpAddr>), ConnectFault> {
        let connected = async {
            let addresses = match &self.destination.proxy {
                None => self.addresses.of(&self.destination, &*self.clock).await?,
                Some(_) => Vec::new(),
            };
            connect(&self.destination, addresses, trust, tasks).await
        };
        // Without descriptors names cannot be resolved and sockets not opened, whatever the upstream's state.
        connected.await.map_err(|fault| if no_descriptors_left() { ConnectFault::OwnLimit } else { fault })
    }

    async fn idle_lease(self: &Arc<Self>, now: Instant) -> Option<Lease> {
        loop {
            let Idle { mut wire, since } = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop_back()?;
            let age = now.saturating_duration_since(since);
            if wire.sender.is_closed() || age > IDLE_LIMIT {
                continue;
            }
            if age > CHECK_AFTER {
                // One turn of the reactor, so that the connection's task notices a close by the peer.
                tokio::task::yield_now().await;
            }
            if !wire.sender.is_closed() && (wire.sender.is_ready() || wire.sender.ready().await.is_ok()) {
                let kind = Some(LeaseKind::Http1 { wire, kept: Some(since) });
                return Some(Lease { host: Arc::clone(self), kind });
            }
        }
    }

    /// A stream on the least busy HTTP/2 connection; `None` when all are full and another may be established.
    fn shared_lease(self: &Arc<Self>, wanted: Freshness) -> Option<Lease> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|one| !one.sender.is_closed());
        let at_limit = shared.len() >= MAX_HTTP2;
        let serves = |one: &&Shared| match wanted {
            Freshness::Reused => true,
            Freshness::NewerThan(moment) => at_limit || one.made > moment,
        };
        let least_busy = shared.iter().filter(serves).min_by_key(|one| one.in_flight.load(Ordering::Relaxed))?;
        let has_capacity = least_busy.in_flight.load(Ordering::Relaxed) < least_busy.max_streams.load(Ordering::Relaxed);
        if !has_capacity && !at_limit {
            return None;
        }
        let kept = least_busy.in_flight.fetch_add(1, Ordering::Relaxed) == 0;
        let kind = LeaseKind::Http2 { sender: least_busy.sender.clone(), in_flight: Arc::clone(&least_busy.in_flight), kept };
        Some(Lease { host: Arc::clone(self), kind: Some(kind) })
    }

    /// Removes an HTTP/2 connection from the pool; its streams in progress complete.
    fn remove_shared(&self, in_flight: &Arc<AtomicUsize>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|one| !Arc::ptr_eq(&one.in_flight, in_flight));
    }

    /// Closes the connections idle since `since` or longer, after one idle since then was found closed by the peer.
    fn close_idle_since(&self, since: Instant) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| one.since > since);
    }

    fn keep(&self, wire: Wire) {
        if wire.peer.is_some_and(|peer| !self.addresses.names(peer)) {
            return;
        }
        let now = self.clock.instant();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while idle.front().is_some_and(|oldest| idle.len() >= MAX_IDLE || now.duration_since(oldest.since) > IDLE_LIMIT) {
            idle.pop_front();
        }
        idle.push_back(Idle { wire, since: now });
    }

    /// Resolves the name again and drops connections to addresses it no longer has; requests in progress complete.
    pub(crate) async fn follow_name(&self) {
        if self.destination.address.is_none()
            && self.destination.proxy.is_none()
            && self.addresses.renew(&self.destination.host, &*self.clock).await
        {
            self.drop_unnamed();
        }
    }

    fn drop_unnamed(&self) {
        let stays = |peer: Option<IpAddr>| peer.is_none_or(|peer| self.addresses.names(peer));
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| stays(one.wire.peer));
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| stays(one.peer));
    }

    #[cfg(test)]
    pub(crate) fn renamed(&self, addresses: Vec<IpAddr>) {
        self.addresses.set(addresses);
        self.drop_unnamed();
    }

    /// Closes expired idle connections. Returns whether any connection is left.
    pub(crate) fn sweep(&self) -> bool {
        let now = self.clock.instant();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|one| !one.wire.sender.is_closed() && now.duration_since(one.since) <= IDLE_LIMIT);
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|one| !one.sender.is_closed());
        !idle.is_empty() || !shared.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn idle_count(&self) -> usize {
        self.idle.lock().unwrap().len()
    }
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
    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>, mark: &SentMark) -> Result<Response<Incoming>, SendFault> {
        let host = Arc::clone(&self.host);
        let began = host.clock.instant();
        let since_begin = || host.clock.instant().duration_since(began);
        match self.kind.as_mut().expect("the connection is taken only by release and drop") {
            LeaseKind::Http1 { wire, kept } => {
                wire.io.begin(mark.clone(), Arc::clone(&host.clock), kept.is_some());
                let done = wire.sender.try_send_request(request).await;
                done.map_err(|fault| {
                    let silent = !wire.io.is_answered() && since_begin() < RACE;
                    let fate = match kept {
                        _ if fault.message().is_some() || !wire.io.is_written() => DeliveryState::Untouched,
                        Some(_) if silent => DeliveryState::Unanswered,
                        _ => DeliveryState::Lost,
                    };
                    if let (Some(since), DeliveryState::Untouched | DeliveryState::Unanswered) = (kept, fate) {
                        host.close_idle_since(*since);
                    }
                    send_fault(fault.error(), fate)
                })
            }
            LeaseKind::Http2 { sender, in_flight, kept } => {
                mark.set(began);
                let done = sender.try_send_request(request).await;
                done.map_err(|fault| {
                    let cause = cause_of::<h2::Error>(fault.error());
                    if cause.is_some_and(h2::Error::is_go_away) {
                        host.remove_shared(in_flight);
                    }
                    let ended = cause_of::<io::Error>(fault.error()).is_some() && since_begin() < RACE;
                    let fate = if fault.message().is_some() || cause.is_some_and(not_processed) {
                        DeliveryState::Untouched
                    } else if *kept && ended {
                        DeliveryState::Unanswered
                    } else {
                        DeliveryState::Lost
                    };
                    send_fault(fault.error(), fate)
                })
            }
        }
    }

    /// Returns the connection to the pool after a complete response.
    pub(crate) fn release(mut self) {
        if let Some(LeaseKind::Http1 { wire, .. }) = self.kind.take_if(|kind| matches!(kind, LeaseKind::Http1 { .. }))
            && !wire.sender.is_closed()
        {
            self.host.keep(wire);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.kind.take() {
            Some(LeaseKind::Http1 { wire, .. }) => wire.close.abort(),
            Some(LeaseKind::Http2 { in_flight, .. }) => {
                in_flight.fetch_sub(1, Ordering::Relaxed);
            }
            None => {}
        }
    }
}

fn send_fault(error: &hyper::Error, fate: DeliveryState) -> SendFault {
    let error = if fate == DeliveryState::Untouched {
        UpstreamError::NotSent(ConnectFault::Closed)
    } else if error.is_parse_too_large() {
        UpstreamError::Unreadable("answer head too large")
    } else if error.is_parse() {
        UpstreamError::Unreadable("not an HTTP answer")
    } else {
        UpstreamError::Lost
    };
    SendFault { fate, error }
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
