//! The connections of one channel on one core: idle ones are used again, latest first; the rest is made anew.

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
    sync::{Mutex as TurnMutex, Semaphore},
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
use crate::upstream::call::{ConnectFault, SentMark, UpstreamError};

/// Idle connections kept to one channel, per core.
const MOST_IDLE: usize = 512;
/// How long one is kept: below what the usual front ends allow (60 s and more).
const OLDEST_IDLE: Duration = Duration::from_secs(50);
/// Idle for longer than this, a connection may have been closed without our having looked.
const LOOK_AFTER: Duration = Duration::from_millis(200);
/// The peer's FIN arrives up to one round trip after it closed the connection; what ends
/// later had the request before it.
const RACE: Duration = Duration::from_secs(1);
/// Connections made at once to one channel, per core.
const MOST_DIALS: usize = 256;
/// HTTP/2 connections to one channel, per core.
const MOST_HTTP2: usize = 16;

/// One channel's connections.
pub(crate) struct Host {
    pub(crate) destination: UpstreamTarget,
    addresses: Addresses,
    idle: Mutex<VecDeque<Idle>>,
    shared: Mutex<Vec<Shared>>,
    speaks_http2: AtomicBool,
    dials: Semaphore,
    http2_turn: TurnMutex<()>,
}

/// An HTTP/1.1 connection.
struct Wire {
    sender: http1::SendRequest<Full<Bytes>>,
    close: AbortHandle,
    line: Arc<IoState>,
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
    most: Arc<AtomicUsize>,
}

/// Which connection is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// One that was used before, if there is one; the far side may have closed it meanwhile.
    Reused,
    /// None that stood at that moment, when one of them turned out not to have looked at a request.
    NewerThan(Instant),
}

/// One request's hold on a connection. Dropped before the answer's end, an HTTP/1.1 connection is closed at once.
pub(crate) struct Lease {
    host: Arc<Host>,
    grip: Option<LeaseKind>,
}

enum LeaseKind {
    /// `kept`: since when it had lain idle, if it was used before.
    Http1 { wire: Wire, kept: Option<Instant> },
    /// `kept`: it was used before, and nothing was under way on it.
    Http2 { sender: http2::SendRequest<Full<Bytes>>, in_flight: Arc<AtomicUsize>, kept: bool },
}

/// Why a request got no answer's head.
pub(crate) struct SendFault {
    pub(crate) fate: DeliveryState,
    pub(crate) error: UpstreamError,
}

/// What is known of a request that got no answer's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryState {
    /// No byte of it left, or the far side says that it was not looked at: it may be sent again, on another connection.
    Untouched,
    /// It left on a connection that had lain idle and ended at once, without a byte of an answer: almost certainly it was
    /// closed before the request came there, but that is unknown (RFC 9110, section 9.2.2).
    Unanswered,
    /// It was lost on its way or later, or what came is no answer.
    Lost,
}

impl Host {
    pub(crate) fn new(destination: UpstreamTarget) -> Self {
        Self {
            destination,
            addresses: Addresses::default(),
            idle: Mutex::default(),
            shared: Mutex::default(),
            speaks_http2: AtomicBool::new(false),
            dials: Semaphore::new(MOST_DIALS),
            http2_turn: TurnMutex::new(()),
        }
    }

    /// A connection, idle if there is one. The caller bounds the time.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        wanted: Freshness,
        trust: &Trust,
        tasks: &TaskTracker,
    ) -> Result<Lease, ConnectFault> {
        if wanted == Freshness::Reused
            && let Some(lease) = self.idle_lease().await
        {
            return Ok(lease);
        }
        if let Some(lease) = self.shared_lease(wanted) {
            return Ok(lease);
        }
        // Where HTTP/2 is spoken one connection serves all who wait, so only one of them makes it.
        let _turn = if self.speaks_http2.load(Ordering::Relaxed) {
            let turn = self.http2_turn.lock().await;
            if let Some(lease) = self.shared_lease(wanted) {
                return Ok(lease);
            }
            Some(turn)
        } else {
            None
        };
        let _dial = self.dials.acquire().await.map_err(|_| ConnectFault::Closed)?;
        if let Some(lease) = self.shared_lease(wanted) {
            return Ok(lease);
        }
        // Boxed: making a connection takes kilobytes, which requests on an idle one would all carry.
        let (connected, peer) = Box::pin(connect(&self.destination, &self.addresses, trust, tasks)).await?;
        let grip = match connected {
            Connected::Http1(sender, close, line) => LeaseKind::Http1 { wire: Wire { sender, close, line, peer }, kept: None },
            Connected::Http2(sender, most) => {
                self.speaks_http2.store(true, Ordering::Relaxed);
                let in_flight = Arc::new(AtomicUsize::new(1));
                let kept = Shared { peer, made: Instant::now(), sender: sender.clone(), in_flight: Arc::clone(&in_flight), most };
                self.shared.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
                LeaseKind::Http2 { sender, in_flight, kept: false }
            }
        };
        Ok(Lease { host: Arc::clone(self), grip: Some(grip) })
    }

    async fn idle_lease(self: &Arc<Self>) -> Option<Lease> {
        loop {
            let Idle { mut wire, since } = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop_back()?;
            let age = since.elapsed();
            if wire.sender.is_closed() || age > OLDEST_IDLE {
                continue;
            }
            if age > LOOK_AFTER {
                // One turn of the reactor: if the far side has closed meanwhile, the connection's task learns it now.
                tokio::task::yield_now().await;
            }
            if !wire.sender.is_closed() && (wire.sender.is_ready() || wire.sender.ready().await.is_ok()) {
                let grip = Some(LeaseKind::Http1 { wire, kept: Some(since) });
                return Some(Lease { host: Arc::clone(self), grip });
            }
        }
    }

    /// A place on an HTTP/2 connection; when all are full and no more may be made, the least busy one.
    fn shared_lease(self: &Arc<Self>, wanted: Freshness) -> Option<Lease> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|one| !one.sender.is_closed());
        let at_bound = shared.len() >= MOST_HTTP2;
        let serves = |one: &&Shared| match wanted {
            Freshness::Reused => true,
            Freshness::NewerThan(moment) => at_bound || one.made > moment,
        };
        let least = shared.iter().filter(serves).min_by_key(|one| one.in_flight.load(Ordering::Relaxed))?;
        let room = least.in_flight.load(Ordering::Relaxed) < least.most.load(Ordering::Relaxed);
        if !room && !at_bound {
            return None;
        }
        let kept = least.in_flight.fetch_add(1, Ordering::Relaxed) == 0;
        let grip = LeaseKind::Http2 { sender: least.sender.clone(), in_flight: Arc::clone(&least.in_flight), kept };
        Some(Lease { host: Arc::clone(self), grip: Some(grip) })
    }

    /// An HTTP/2 connection takes no more requests; those under way on it end where they are.
    fn forget(&self, in_flight: &Arc<AtomicUsize>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|one| !Arc::ptr_eq(&one.in_flight, in_flight));
    }

    /// A connection that had lain idle since then was closed by the far side: those that lay idle for longer are no better.
    fn let_go(&self, since: Instant) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| one.since > since);
    }

    fn keep(&self, wire: Wire) {
        if wire.peer.is_some_and(|peer| !self.addresses.names(peer)) {
            return;
        }
        let now = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while idle.front().is_some_and(|oldest| idle.len() >= MOST_IDLE || now.duration_since(oldest.since) > OLDEST_IDLE) {
            idle.pop_front();
        }
        idle.push_back(Idle { wire, since: now });
    }

    /// Looks the name up anew and lets connections go to addresses it no longer stands for; requests under way on them
    /// end where they are.
    pub(crate) async fn follow_name(&self) {
        if self.destination.address.is_none()
            && self.destination.proxy.is_none()
            && self.addresses.renew(&self.destination.host).await
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

    /// Closes connections that were unused for long. Returns whether any is left.
    pub(crate) fn sweep(&self) -> bool {
        let now = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|one| !one.wire.sender.is_closed() && now.duration_since(one.since) <= OLDEST_IDLE);
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
    /// How a request on this connection names its target.
    pub(crate) fn target_form(&self) -> TargetForm {
        match self.grip {
            Some(LeaseKind::Http2 { .. }) => TargetForm::Whole,
            Some(LeaseKind::Http1 { .. }) | None => TargetForm::Origin,
        }
    }

    /// Sends one request and waits for the head of its answer; `mark` is set when its bytes begin to leave.
    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>, mark: &SentMark) -> Result<Response<Incoming>, SendFault> {
        let host = Arc::clone(&self.host);
        let began = Instant::now();
        match self.grip.as_mut().expect("a lease holds its connection until it is dropped") {
            LeaseKind::Http1 { wire, kept } => {
                wire.line.begin(mark.clone(), kept.is_some());
                let done = wire.sender.try_send_request(request).await;
                done.map_err(|fault| {
                    let silent = !wire.line.is_answered() && began.elapsed() < RACE;
                    let fate = match kept {
                        _ if fault.message().is_some() || !wire.line.is_written() => DeliveryState::Untouched,
                        Some(_) if silent => DeliveryState::Unanswered,
                        _ => DeliveryState::Lost,
                    };
                    if let (Some(since), DeliveryState::Untouched | DeliveryState::Unanswered) = (kept, fate) {
                        host.let_go(*since);
                    }
                    judge(fault.error(), fate)
                })
            }
            LeaseKind::Http2 { sender, in_flight, kept } => {
                mark.set();
                let done = sender.try_send_request(request).await;
                done.map_err(|fault| {
                    let cause = cause_of::<h2::Error>(fault.error());
                    if cause.is_some_and(h2::Error::is_go_away) {
                        host.forget(in_flight);
                    }
                    let ended = cause_of::<io::Error>(fault.error()).is_some() && began.elapsed() < RACE;
                    let fate = if fault.message().is_some() || cause.is_some_and(not_looked_at) {
                        DeliveryState::Untouched
                    } else if *kept && ended {
                        DeliveryState::Unanswered
                    } else {
                        DeliveryState::Lost
                    };
                    judge(fault.error(), fate)
                })
            }
        }
    }

    /// The answer has ended properly: the connection may carry the next request.
    pub(crate) fn release(mut self) {
        if let Some(LeaseKind::Http1 { wire, .. }) = self.grip.take_if(|grip| matches!(grip, LeaseKind::Http1 { .. }))
            && !wire.sender.is_closed()
        {
            self.host.keep(wire);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.grip.take() {
            Some(LeaseKind::Http1 { wire, .. }) => wire.close.abort(),
            Some(LeaseKind::Http2 { in_flight, .. }) => {
                in_flight.fetch_sub(1, Ordering::Relaxed);
            }
            None => {}
        }
    }
}

fn judge(error: &hyper::Error, fate: DeliveryState) -> SendFault {
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

/// HTTP/2 says of some streams that they were never looked at (RFC 9113, sections 6.8 and 8.7): those it refuses, and
/// at a GOAWAY, whatever its reason, those above the last one it names. h2 ends only these with the far side's GOAWAY;
/// the others go on, and end with the connection's error where they do not.
fn not_looked_at(fault: &h2::Error) -> bool {
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
