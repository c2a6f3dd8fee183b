//! Passes requests to the console: from the gateway's address through a bounded queue, and from a separate address.

use std::{
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_console::{Console, NotOfConsole, RequestMeta, is_caller_path, is_set_up_path};
use tollgate_gateway::{
    clock::CoreRng,
    fallback::{FallbackQueue, FallbackRequest, FallbackRequests, FallbackResponse, FallbackService},
    server::{FallbackListenerLimits, names_loopback, serve_fallback},
    state::shared::Shared,
};
use tollgate_store::{LoginMember, RowFilter, RowKind, Store};

use super::socket::ConsoleSocket;

/// Concurrent requests from the gateway's queue, counted until the last byte of the response.
const MAX_CONCURRENT: usize = 256;
/// Interval of checks for the first admin.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The console's own address.
#[derive(Clone, Debug)]
pub(crate) struct OwnAddress {
    pub(crate) address: SocketAddr,
    /// The console's own path.
    base: String,
    socket: ConsoleSocket,
    /// Ends serving on this address. Requests that were passed on are still answered.
    stop: CancellationToken,
}

impl OwnAddress {
    pub(super) fn new(address: SocketAddr, base: String, stop: CancellationToken) -> Self {
        Self { address, base, socket: ConsoleSocket::default(), stop }
    }

    /// The socket, for another process, if it is open.
    pub(crate) fn duplicate(&self) -> io::Result<Option<OwnedFd>> {
        self.socket.duplicate()
    }

    /// Leaves the address to another process; running responses finish.
    pub(crate) fn leave(&self) {
        self.stop.cancel();
    }
}

/// Passes requests from the gateway to the console. Requests of callers about themselves are always passed on; on a non-loopback
/// address, others only once an admin key exists or an admin can sign in, and until then only those of a set-up link.
#[derive(Debug)]
pub(super) struct ConsoleFallback {
    callers: FallbackQueue,
    /// The queue of the console and whether it is open, unless it has an address of its own.
    console: Option<(FallbackQueue, Arc<AtomicBool>)>,
    /// The console's own path.
    base: String,
}

impl ConsoleFallback {
    /// `console` is its queue, and whether it is open.
    pub(super) const fn new(callers: FallbackQueue, console: (FallbackQueue, Arc<AtomicBool>), base: String) -> Self {
        Self { callers, console: Some(console), base }
    }

    /// Passes on only requests of callers about themselves.
    pub(super) const fn for_callers(callers: FallbackQueue) -> Self {
        Self { callers, console: None, base: String::new() }
    }
}

#[async_trait]
impl FallbackService for ConsoleFallback {
    async fn call(&self, request: FallbackRequest) -> FallbackResponse {
        let path = request.request.uri().path();
        if is_caller_path(path) {
            return self.callers.call(request).await;
        }
        match &self.console {
            Some((queue, open)) if open.load(Ordering::Acquire) || is_set_up_path(&self.base, path) => queue.call(request).await,
            Some(_) | None => FallbackResponse::NotFound,
        }
    }
}

/// Whether an admin or an admin key can use the console.
async fn has_admin(store: &Store) -> bool {
    store.listing.page(&RowFilter::of(RowKind::AdminKey, 1)).await.is_ok_and(|keys| !keys.is_empty())
        || store.identity.admins().await.is_ok_and(|admins| admins.iter().any(LoginMember::can_sign_in))
}

/// Sets `open` once an admin key exists or an admin can sign in.
pub(super) async fn open_after_first_admin(store: Store, open: Arc<AtomicBool>, stop: CancellationToken) {
    while !open.load(Ordering::Acquire) {
        if has_admin(&store).await {
            open.store(true, Ordering::Release);
            return;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

/// Answers requests from the gateway's queue.
pub(super) async fn serve_queue(console: Console, mut requests: FallbackRequests, stop: CancellationToken) {
    let (tasks, permits) = (TaskTracker::new(), Arc::new(Semaphore::new(MAX_CONCURRENT)));
    loop {
        // Acquire before taking a request, so that requests wait in the gateway's bounded queue.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let waiting = tokio::select! {
            () = stop.cancelled() => return,
            waiting = requests.next() => waiting,
        };
        let Some(waiting) = waiting else { return };
        let console = console.clone();
        tasks.spawn(async move {
            let FallbackRequest { id, peer, request } = waiting.request;
            let is_local = peer.is_some_and(|peer| peer.is_loopback()) && names_loopback(request.uri(), request.headers());
            let response = console.answer(RequestMeta { id, address: peer, is_local }, request).await;
            if response.extensions().get::<NotOfConsole>().is_some() {
                waiting.reply.not_found();
            } else {
                waiting.reply.send(response).await;
            }
            drop(permit);
        });
    }
}

/// Serves on a separate address; a non-loopback one opens once there is an admin.
pub(super) async fn serve_own_address(
    shared: Arc<Shared>,
    (listener, OwnAddress { address, base, socket, stop }): (std::net::TcpListener, OwnAddress),
    tls: Option<TlsAcceptor>,
    (callers, queue, rng): (FallbackQueue, FallbackQueue, CoreRng),
    store: Store,
) {
    let open = Arc::new(AtomicBool::new(address.ip().is_loopback() || has_admin(&store).await));
    if !open.load(Ordering::Acquire) {
        tracing::warn!(
            %address,
            "the console opens on this address once an admin can sign in (`tollgate setup-link`) or there is an admin key \
             (`tollgate admin-key create NAME`)"
        );
    }
    let opening = open_after_first_admin(store, Arc::clone(&open), stop.clone());
    let fallback = Arc::new(ConsoleFallback::new(callers, (queue, open), base));
    match TcpListener::from_std(listener) {
        Ok(listener) => {
            socket.open(&listener);
            let serving = serve_fallback(shared, listener, tls, fallback, (rng, FallbackListenerLimits::default()), stop);
            tokio::join!(serving, opening);
            socket.close();
        }
        Err(error) => tracing::error!(%address, %error, "the console cannot listen"),
    }
}
