//! The real upstream: a pool of HTTP connections for each core (hyper's connections, no client in between), so that
//! it is known whether anything was sent, and an abandoned call costs nothing from then on.
//!
//! Bounds: 512 idle connections a channel and core, idle for at most 50 s; 256 dials at once; 256 header fields and
//! 128 KiB of head in an answer; no redirects, no cookies, no decompression.

mod checked_io;
mod connect;
mod destination;
pub(crate) mod fetch;
mod guard;
mod host;
mod leased;
mod probe;
mod proxy;
mod resolver;
mod tls;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join_all;
use http::{Method, Request, header::HOST};
use http_body_util::Full;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;
use tollgate_core::{Channel, ChannelId};

pub(crate) use self::guard::AddressPolicy;
use self::{
    destination::{TargetForm, UpstreamTarget},
    host::{DeliveryState, Freshness, Host},
    leased::LeasedBody,
};
pub use self::{
    guard::is_public,
    probe::{ProbeFault, ProbeStep, probe},
    tls::Trust,
};
use super::{
    call::{ConnectFault, Upstream, UpstreamAnswer, UpstreamCall, UpstreamError},
    credentials::headers_for,
};

/// Interval of the search for unused connections and moved names.
const SWEEP_EVERY: Duration = Duration::from_secs(15);
/// Longest look-up of all names together behind the requests' backs.
const LOOK_UPS: Duration = Duration::from_secs(5);

/// The connections of one core.
pub struct Client {
    hosts: Arc<Mutex<HashMap<ChannelId, Entry>>>,
    trust: Arc<Trust>,
    tasks: TaskTracker,
}

struct Entry {
    channel: Arc<Channel>,
    host: Arc<Host>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// A client without connections. Must be made inside the runtime that will use it.
    #[must_use]
    pub fn new(trust: Arc<Trust>) -> Self {
        let hosts = Arc::new(Mutex::new(HashMap::new()));
        let tasks = TaskTracker::new();
        let swept = Arc::downgrade(&hosts);
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP_EVERY).await;
                let Some(hosts) = swept.upgrade() else { return };
                let left = sweep(&hosts);
                drop(hosts);
                let followed = join_all(left.iter().map(|host| host.follow_name()));
                // A name service that does not answer leaves everything as it is.
                let _ = timeout_at(Instant::now() + LOOK_UPS, followed).await;
            }
        });
        Self { hosts, trust, tasks }
    }

    /// The channel's connections. When the channel's row changed, they are kept only if they still lead to the same
    /// place under the same rules.
    fn host(&self, channel: &Arc<Channel>) -> Result<Arc<Host>, ConnectFault> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = hosts.get_mut(&channel.id) {
            if Arc::ptr_eq(&entry.channel, channel) {
                return Ok(Arc::clone(&entry.host));
            }
            if UpstreamTarget::of(channel)? == entry.host.destination {
                entry.channel = Arc::clone(channel);
                return Ok(Arc::clone(&entry.host));
            }
        }
        let host = Arc::new(Host::new(UpstreamTarget::of(channel)?));
        hosts.insert(channel.id, Entry { channel: Arc::clone(channel), host: Arc::clone(&host) });
        Ok(host)
    }

    #[cfg(test)]
    fn idle_count(&self, channel: &Arc<Channel>) -> usize {
        self.host(channel).unwrap().idle_count()
    }
}

/// Closes what is too old, and forgets unused channels without a connection. Returns those left.
fn sweep(hosts: &Mutex<HashMap<ChannelId, Entry>>) -> Vec<Arc<Host>> {
    let mut hosts = hosts.lock().unwrap_or_else(PoisonError::into_inner);
    hosts.retain(|_, entry| entry.host.sweep() || Arc::strong_count(&entry.host) > 1);
    hosts.values().map(|entry| Arc::clone(&entry.host)).collect()
}

#[async_trait]
impl Upstream for Client {
    async fn call(&self, call: UpstreamCall) -> Result<UpstreamAnswer, UpstreamError> {
        let host = self.host(&call.channel).map_err(UpstreamError::NotSent)?;
        let mut wanted = Freshness::Reused;
        loop {
            let deadline = Instant::now() + Duration::from_millis(call.channel.timeouts.connect_ms);
            let mut lease = match timeout_at(deadline, host.lease(wanted, &self.trust, &self.tasks)).await {
                Ok(lease) => lease.map_err(UpstreamError::NotSent)?,
                Err(_) => return Err(UpstreamError::NotSent(ConnectFault::TimedOut)),
            };
            let request = request(&call, &host.destination, lease.target_form()).map_err(UpstreamError::NotSent)?;
            match lease.send(request, &call.sent).await {
                Ok(answer) => {
                    let (head, body) = answer.into_parts();
                    let body = Box::pin(LeasedBody::new(body, lease));
                    return Ok(UpstreamAnswer { status: head.status.as_u16(), headers: head.headers, body });
                }
                // The far side closed while we took the connection up (the keep-alive race), or refused the stream
                // unseen, or went away before it. Once more, on a connection that did not stand until now.
                Err(fault) if wanted == Freshness::Reused && may_go_again(fault.fate, &call.channel) => {
                    tracing::debug!(fate = ?fault.fate, "a kept connection was closed; sending on a new one");
                    wanted = Freshness::NewerThan(Instant::now());
                }
                Err(fault) => return Err(fault.error),
            }
        }
    }
}

/// Whether a request may be sent once more. An unknown outcome is the channel's to decide, as for every other attempt.
fn may_go_again(fate: DeliveryState, channel: &Channel) -> bool {
    match fate {
        DeliveryState::Untouched => true,
        DeliveryState::Unanswered => channel.retry_uncertain,
        DeliveryState::Lost => false,
    }
}

fn request(
    call: &UpstreamCall,
    destination: &UpstreamTarget,
    form: TargetForm,
) -> Result<Request<Full<bytes::Bytes>>, ConnectFault> {
    let mut request = Request::new(Full::new(call.body.clone()));
    *request.method_mut() = if call.body.is_empty() { Method::GET } else { Method::POST };
    *request.uri_mut() = destination.target(&call.path, form)?;
    let headers = headers_for(call)?;
    *request.headers_mut() = headers;
    if form == TargetForm::Origin {
        request.headers_mut().insert(HOST, destination.authority.clone());
    }
    Ok(request)
}
