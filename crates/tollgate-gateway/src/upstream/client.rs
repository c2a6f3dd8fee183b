//! The HTTP client for upstreams: one connection pool per core. Connections of HTTP/1.1 are driven by the request that uses them
//! ([`http1`]), those of HTTP/2 by a task of hyper's. A pooling client would hide whether a request was written at all, which
//! determines whether it may be retried, and would keep connections of abandoned responses open.
//!
//! Limits per channel and core: 512 idle connections, idle for at most 50 s; 256 concurrent dials; 16 HTTP/2 connections. Limits per response:
//! 100 header fields (HTTP/1.1), 128 KiB of head. Redirects, cookies and decompression are not supported.

mod connect;
pub(crate) mod connection_permits;
pub(crate) mod destination;
pub(crate) mod dial;
pub(crate) mod fetch;
mod guard;
mod host;
mod http1;
mod journaled_io;
mod lease;
mod leased_body;
mod model_list;
mod probe;
mod proxy;
mod request_heads;
pub(crate) mod resolver;
mod response_body;
mod streams;
pub(crate) mod tls;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tollgate_core::{Channel, ChannelId, IdHash};
use tollgate_store::JournalWriter;

pub(crate) use self::guard::AddressPolicy;
use self::{
    destination::UpstreamTarget,
    host::{Freshness, Host, Wanted},
    http1::ResponseHead,
    lease::DeliveryState,
    leased_body::LeasedBody,
    request_heads::RequestHeads,
};
pub use self::{
    fetch::{fetch_document, send_document},
    guard::unlisted,
    model_list::list_models,
    probe::{ProbeFault, ProbeStep, probe, probe_connection},
    tls::Trust,
};
use super::call::{ConnectFault, Upstream, UpstreamAnswer, UpstreamCall, UpstreamError};
use crate::{clock::Clock, in_place::pinned, state::shares::Holder};

/// Interval of the sweep that closes expired idle connections and resolves names again.
const SWEEP_EVERY: Duration = Duration::from_secs(15);
/// Longest time for all name resolutions of one sweep.
const RESOLVE_LIMIT: Duration = Duration::from_secs(5);

/// The HTTP client of one core, with a connection pool for each channel.
pub struct Client {
    hosts: Arc<Mutex<HashMap<ChannelId, Entry, IdHash>>>,
    trust: Arc<Trust>,
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
    journal: Option<Arc<JournalWriter>>,
}

struct Entry {
    channel: Arc<Channel>,
    host: Arc<Host>,
    /// Heads of requests with this row of the channel.
    heads: Arc<RequestHeads>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client without connections. Must be called inside the runtime that will use it.
    #[must_use]
    pub fn new(trust: Arc<Trust>, clock: Arc<dyn Clock>) -> Self {
        let hosts = Arc::new(Mutex::new(HashMap::default()));
        let tasks = TaskTracker::new();
        let (swept, shared_trust) = (Arc::downgrade(&hosts), Arc::clone(&trust));
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP_EVERY).await;
                let Some(hosts) = swept.upgrade() else { return };
                let left = sweep(&hosts, &shared_trust);
                drop(hosts);
                let followed = join_all(left.iter().map(|host| host.follow_name()));
                // On timeout the cached addresses stay in use.
                let _ = timeout(RESOLVE_LIMIT, followed).await;
            }
        });
        Self { hosts, trust, clock, tasks, journal: None }
    }

    /// Writes what this journal has collected before anything is sent to an upstream.
    #[must_use]
    pub fn with_journal(self, journal: &Arc<JournalWriter>) -> Self {
        Self { journal: Some(Arc::clone(journal)), ..self }
    }

    /// The channel's connections. After a change of the channel's configuration they are kept only if destination,
    /// proxy, CA file, client certificate and address policy are unchanged.
    fn host(&self, channel: &Arc<Channel>) -> Result<(Arc<Host>, Arc<RequestHeads>), ConnectFault> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = hosts.get_mut(&channel.id) {
            if Arc::ptr_eq(&entry.channel, channel) {
                return Ok((Arc::clone(&entry.host), Arc::clone(&entry.heads)));
            }
            if UpstreamTarget::of(channel)? == entry.host.destination {
                entry.channel = Arc::clone(channel);
                entry.heads = Arc::default();
                return Ok((Arc::clone(&entry.host), Arc::clone(&entry.heads)));
            }
        }
        let host = Arc::new(Host::new(UpstreamTarget::of(channel)?, Arc::clone(&self.clock), self.journal.clone()));
        let heads = Arc::default();
        let entry = Entry { channel: Arc::clone(channel), host: Arc::clone(&host), heads: Arc::clone(&heads) };
        hosts.insert(channel.id, entry);
        Ok((host, heads))
    }
}

/// Closes expired idle connections and removes channels without connections or requests. Returns the remaining hosts.
fn sweep(hosts: &Mutex<HashMap<ChannelId, Entry, IdHash>>, trust: &Trust) -> Vec<Arc<Host>> {
    let mut hosts = hosts.lock().unwrap_or_else(PoisonError::into_inner);
    hosts.retain(|_, entry| entry.host.sweep(trust.addresses()) || Arc::strong_count(&entry.host) > 1);
    hosts.values().map(|entry| Arc::clone(&entry.host)).collect()
}

impl Upstream for Client {
    // Expanded by hand as `async_trait` would, but without copying the future.
    fn call<'s, 'f>(
        &'s self,
        call: UpstreamCall,
    ) -> Pin<Box<dyn Future<Output = Result<UpstreamAnswer, UpstreamError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        pinned(|| self.send(call))
    }
}

impl Client {
    async fn send(&self, call: UpstreamCall) -> Result<UpstreamAnswer, UpstreamError> {
        let (host, heads) = self.host(&call.channel).map_err(UpstreamError::NotSent)?;
        let holders = call.by.map(Holder::of_caller);
        let holders = holders.as_ref().map_or(&[][..], |holders| holders.as_slice());
        let limit = Duration::from_millis(call.channel.spec.timeouts.connect_ms);
        let (mut freshness, mut stream) = (Freshness::Reused, None);
        loop {
            let wanted = Wanted { freshness, began: self.clock.instant(), limit, holders };
            let lease = host.lease(wanted, stream, &self.trust, &self.tasks).await;
            let mut lease = lease.map_err(UpstreamError::NotSent)?;
            let head = heads.head_for(&call, &host.destination, lease.target_form()).map_err(UpstreamError::NotSent)?;
            match lease.send(head, call.body.clone(), &call.sent).await {
                Ok((ResponseHead { status, headers }, body)) => {
                    return Ok(UpstreamAnswer { status, headers: headers.into(), body: Box::pin(LeasedBody::new(body, lease)) });
                }
                // The upstream closed the idle connection concurrently (the keep-alive race), refused the stream, or sent
                // GOAWAY before processing it. Retry once, on a connection established after this point.
                Err(fault) if freshness == Freshness::Reused && may_resend(fault.delivery, &call.channel) => {
                    tracing::debug!(delivery = ?fault.delivery, "an idle connection was closed; retrying on a new one");
                    (freshness, stream) = (Freshness::NewerThan(self.clock.instant()), lease.into_stream());
                }
                Err(fault) => return Err(fault.error),
            }
        }
    }
}

/// Whether a request may be sent again. If it is unknown whether the upstream processed it, the channel's
/// `retry_uncertain` decides.
fn may_resend(delivery: DeliveryState, channel: &Channel) -> bool {
    match delivery {
        DeliveryState::Untouched => true,
        DeliveryState::Unanswered => channel.spec.retry_uncertain,
        DeliveryState::Lost => false,
    }
}
