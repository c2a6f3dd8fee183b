//! The connection pool of one channel on one core. Idle HTTP/1.1 connections are reused, most recently used first; HTTP/2
//! connections are shared.

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;
use tollgate_store::JournalWriter;

use super::{
    connect::{Connected, connect},
    connection_permits::{ConnectionPermits, MAX_HTTP2},
    destination::UpstreamTarget,
    guard::AddressRules,
    http1::Http1Connection,
    lease::{Lease, LeaseKind},
    resolver::Addresses,
    streams::Streams,
    tls::Trust,
};
use crate::{
    clock::Clock,
    state::shares::{FairPermit, Holder},
    upstream::call::ConnectFault,
};

/// Idle connections kept to one channel, per core.
const MAX_IDLE: usize = 512;
/// Idle time after which a connection is closed; below the keep-alive timeout of common servers (60 s and more).
const IDLE_LIMIT: Duration = Duration::from_secs(50);
/// Idle time after which a connection is checked for a close by the peer before a request is given to it.
const CHECK_AFTER: Duration = Duration::from_millis(200);

/// The connections of one channel on one core.
pub(crate) struct Host {
    pub(crate) destination: UpstreamTarget,
    addresses: Addresses,
    idle: Mutex<VecDeque<IdleConnection>>,
    shared: Mutex<Vec<SharedConnection>>,
    speaks_http2: AtomicBool,
    permits: ConnectionPermits,
    pub(super) clock: Arc<dyn Clock>,
    journal: Option<Arc<JournalWriter>>,
}

/// The far end of a connection.
#[derive(Clone, Copy)]
pub(super) struct Peer {
    address: Option<IpAddr>,
    /// Version of the lists that permitted it.
    version: u64,
}

/// An idle connection of HTTP/1.1.
struct IdleConnection {
    connection: Box<Http1Connection>,
    peer: Peer,
    since: Instant,
}

/// A connection of HTTP/2, whose streams requests share.
struct SharedConnection {
    peer: Peer,
    established: Instant,
    sender: http2::SendRequest<Full<Bytes>>,
    streams: Arc<Streams>,
}

/// Constraint on the age of a leased connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// An existing connection if there is one; the upstream may have closed it concurrently.
    Reused,
    /// A connection established after this time, when an older one failed before processing a request.
    NewerThan(Instant),
}

/// The connection that a request needs.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) freshness: Freshness,
    /// When the request began to look for one.
    pub(crate) began: Instant,
    /// Longest wait for a permit, and then longest time to connect.
    pub(crate) limit: Duration,
    /// Holders whose share the connection counts against; none for a request of the gateway itself.
    pub(crate) holders: &'a [Holder],
}

impl Host {
    pub(crate) fn new(destination: UpstreamTarget, clock: Arc<dyn Clock>, journal: Option<Arc<JournalWriter>>) -> Self {
        Self {
            destination,
            addresses: Addresses::default(),
            idle: Mutex::default(),
            shared: Mutex::default(),
            speaks_http2: AtomicBool::new(false),
            permits: ConnectionPermits::new(),
            clock,
            journal,
        }
    }

    /// Leases a connection, an idle one if available. `stream` is the permit of an earlier lease of the request.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
        mut stream: Option<FairPermit>,
        trust: &Trust,
        tasks: &TaskTracker,
    ) -> Result<Lease, ConnectFault> {
        let Wanted { freshness, began, limit, holders } = wanted;
        let by = began + limit;
        if freshness == Freshness::Reused
            && let Some(lease) = self.idle_lease(began, trust.addresses())
        {
            return Ok(lease);
        }
        let mut dial_permit = None;
        loop {
            let speaks_http2 = self.speaks_http2.load(Ordering::Relaxed);
            if speaks_http2 && stream.is_none() {
                stream = Some(self.permits.stream(holders, by).await?);
            }
            if let Some(lease) = self.shared_lease(freshness, &mut stream, trust.addresses()) {
                return Ok(lease);
            }
            if dial_permit.is_some() {
                break;
            }
            // Another request may have established a connection by then.
            dial_permit = Some(self.permits.dial(holders, by, speaks_http2).await?);
        }
        // The limit excludes the wait for the permit. Boxed, because the future takes kilobytes, also in requests on an idle connection.
        let connected = timeout_at(self.clock.instant() + limit, Box::pin(self.connect(trust, tasks))).await;
        let (connected, peer) = connected.map_err(|_| ConnectFault::TimedOut)??;
        self.permits.count_connection();
        let (sender, streams) = match connected {
            Connected::Http1(connection) => {
                let kind = LeaseKind::Http1 { connection: Some(connection), peer, idle_since: None };
                return Ok(Lease { host: Arc::clone(self), kind: Some(kind) });
            }
            Connected::Http2(sender, streams) => (sender, streams),
        };
        self.speaks_http2.store(true, Ordering::Relaxed);
        let lease = self.share(sender, streams, peer, stream);
        if lease.is_counted() {
            return Ok(lease);
        }
        // The protocol was unknown before the handshake, so the stream is not counted yet.
        let stream = self.permits.stream(holders, self.clock.instant() + limit).await?;
        Ok(lease.counted(stream))
    }

    /// Keeps a new HTTP/2 connection for other requests too, and leases its first stream.
    fn share(
        self: &Arc<Self>,
        sender: http2::SendRequest<Full<Bytes>>,
        streams: Arc<Streams>,
        peer: Peer,
        stream: Option<FairPermit>,
    ) -> Lease {
        streams.begin();
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the upstream was known to speak HTTP/2, each request made its own connection. Those above the limit are not kept for
        // other requests.
        if shared.len() < MAX_HTTP2 {
            let (established, sender, streams) = (self.clock.instant(), sender.clone(), Arc::clone(&streams));
            shared.push(SharedConnection { peer, established, sender, streams });
        }
        drop(shared);
        Lease { host: Arc::clone(self), kind: Some(LeaseKind::Http2 { sender, streams, was_idle: false, stream }) }
    }

    async fn connect(&self, trust: &Trust, tasks: &TaskTracker) -> Result<(Connected, Peer), ConnectFault> {
        let rules = trust.addresses();
        let version = rules.version();
        let connected = async {
            let addresses = match &self.destination.proxy {
                None => self.addresses.of(&self.destination, rules, &*self.clock).await?,
                Some(_) => Vec::new(),
            };
            connect(&self.destination, addresses, trust, tasks, self.journal.as_ref()).await
        };
        let (connected, address) = connected.await.map_err(ConnectFault::or_own_limit)?;
        Ok((connected, Peer { address, version }))
    }

    /// Whether a pooled connection may be used: the lists have not changed since it was permitted, or still permit it.
    fn is_permitted(&self, peer: &mut Peer, rules: &AddressRules) -> bool {
        let version = rules.version();
        if peer.version == version {
            return true;
        }
        peer.version = version;
        let permits = |address| rules.check(address).is_ok();
        peer.address.is_some_and(permits) && self.destination.address.is_none_or(permits)
    }

    fn idle_lease(self: &Arc<Self>, now: Instant, rules: &AddressRules) -> Option<Lease> {
        loop {
            let IdleConnection { connection, mut peer, since } =
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop_back()?;
            let age = now.saturating_duration_since(since);
            if age > IDLE_LIMIT || !self.is_permitted(&mut peer, rules) || age > CHECK_AFTER && connection.check_idle().is_err() {
                continue;
            }
            let kind = Some(LeaseKind::Http1 { connection: Some(connection), peer, idle_since: Some(since) });
            return Some(Lease { host: Arc::clone(self), kind });
        }
    }

    /// A stream on the least busy HTTP/2 connection, which takes `stream`; `None` when all are full and another may be established, or
    /// without `stream`.
    fn shared_lease(self: &Arc<Self>, wanted: Freshness, stream: &mut Option<FairPermit>, rules: &AddressRules) -> Option<Lease> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain_mut(|one| !one.sender.is_closed() && self.is_permitted(&mut one.peer, rules));
        // A new connection has not received the upstream's limit yet, but the others have.
        let each = shared.iter().map(|one| one.streams.limit()).min()?;
        self.permits.set_streams(each);
        let at_limit = shared.len() >= MAX_HTTP2;
        let serves = |one: &&SharedConnection| match wanted {
            Freshness::Reused => true,
            Freshness::NewerThan(moment) => at_limit || one.established > moment,
        };
        let least_busy = shared.iter().filter(serves).min_by_key(|one| one.streams.in_progress())?;
        let has_capacity = least_busy.streams.in_progress() < each;
        if !has_capacity && !at_limit {
            return None;
        }
        let stream = Some(stream.take()?);
        let was_idle = least_busy.streams.begin() == 0;
        let (sender, streams) = (least_busy.sender.clone(), Arc::clone(&least_busy.streams));
        let kind = LeaseKind::Http2 { sender, streams, was_idle, stream };
        Some(Lease { host: Arc::clone(self), kind: Some(kind) })
    }

    /// Removes an HTTP/2 connection from the pool; its streams in progress complete.
    pub(super) fn remove_shared(&self, streams: &Arc<Streams>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|one| !Arc::ptr_eq(&one.streams, streams));
    }

    /// Closes the connections that have been idle since `since` or longer, after the peer was found to have closed such
    /// a connection.
    pub(super) fn close_idle_since(&self, since: Instant) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| one.since > since);
    }

    pub(super) fn keep(&self, connection: Box<Http1Connection>, peer: Peer) {
        if !self.is_named(peer) {
            return;
        }
        let now = self.clock.instant();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while idle.front().is_some_and(|oldest| idle.len() >= MAX_IDLE || now.duration_since(oldest.since) > IDLE_LIMIT) {
            idle.pop_front();
        }
        idle.push_back(IdleConnection { connection, peer, since: now });
    }

    /// Resolves the name again and drops connections to addresses it no longer has; requests in progress complete.
    pub(crate) async fn follow_name(&self) {
        if self.resolves_name() && self.addresses.renew(&self.destination.host, &*self.clock).await {
            self.drop_unnamed();
        }
    }

    /// Whether this gateway resolves the destination: it is a name, and there is no proxy.
    const fn resolves_name(&self) -> bool {
        self.destination.address.is_none() && self.destination.proxy.is_none()
    }

    /// Whether the name of the destination still has the address of a connection.
    fn is_named(&self, peer: Peer) -> bool {
        !self.resolves_name() || peer.address.is_none_or(|address| self.addresses.names(address))
    }

    fn drop_unnamed(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| self.is_named(one.peer));
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| self.is_named(one.peer));
    }

    #[cfg(test)]
    pub(crate) fn renamed(&self, addresses: Vec<IpAddr>) {
        self.addresses.set(addresses);
        self.drop_unnamed();
    }

    /// Closes idle connections that have expired, that the peer has closed, or that are no longer permitted. Returns whether any
    /// connection is left.
    pub(crate) fn sweep(&self, rules: &AddressRules) -> bool {
        let now = self.clock.instant();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain_mut(|one| {
            let is_alive = now.duration_since(one.since) <= IDLE_LIMIT && one.connection.check_idle().is_ok();
            is_alive && self.is_permitted(&mut one.peer, rules)
        });
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain_mut(|one| !one.sender.is_closed() && self.is_permitted(&mut one.peer, rules));
        !idle.is_empty() || !shared.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn idle_count(&self) -> usize {
        self.idle.lock().unwrap().len()
    }
}
