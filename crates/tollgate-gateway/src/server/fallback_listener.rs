//! A listener for the fallback service alone, on a separate address (`console.listen`). It has the accept loop, timers and head
//! checks of the model listener, so that silent connections on it cannot lock operators out.

use std::{sync::Arc, time::Duration};

use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Core, RefusingPath, Serves, connection_limiter::ConnectionLimits, run::accept};
use crate::{clock::CoreRng, fallback::FallbackService, state::shared::Shared};

/// Limits of the listener.
#[derive(Clone, Copy, Debug)]
pub struct FallbackListenerLimits {
    /// Concurrent connections; further ones are refused (E63).
    pub connections: usize,
    /// Concurrent connections from one address (IPv6: one /64). Loopback is exempt.
    pub connections_per_address: usize,
    /// Longest time for running responses to finish after a stop.
    pub drain: Duration,
}

impl Default for FallbackListenerLimits {
    fn default() -> Self {
        Self { connections: 512, connections_per_address: 64, drain: Duration::from_secs(10) }
    }
}

/// Serves `fallback` until `stop` is cancelled, over TLS if `tls` is set, then lets running responses finish. Cancel `stop` when
/// another process has taken over: the connections stay in this one.
pub async fn serve_fallback(
    shared: Arc<Shared>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    fallback: Arc<dyn FallbackService>,
    (rng, limits): (CoreRng, FallbackListenerLimits),
    stop: CancellationToken,
) {
    let core = Arc::new(Core {
        path: RefusingPath::without_models(Arc::clone(&shared)),
        shared,
        serves: Serves::Fallback,
        fallback,
        connection_limiter: Arc::default(),
        own_limits: Some(ConnectionLimits { all: limits.connections, of_address: limits.connections_per_address }),
        rng,
        tls,
        tracker: TaskTracker::new(),
        draining: CancellationToken::new(),
        closing: CancellationToken::new(),
    });
    let ends = async {
        stop.cancelled().await;
        core.draining.cancel();
        core.tracker.close();
        let _ = timeout(limits.drain, core.tracker.wait()).await;
        core.closing.cancel();
    };
    // No connections of a previous process are moved here, so the sender is dropped.
    tokio::join!(accept(listener, mpsc::channel(1).1, Arc::clone(&core)), ends);
}
