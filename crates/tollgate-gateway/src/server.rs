//! The listener: sockets, TLS, HTTP and the checks of request heads.
//!
//! Each core is a thread with its own single-threaded runtime. It accepts, parses and answers requests without passing
//! them to another thread. The loop that drives a connection enforces the timeouts of
//! [`crate::settings::HttpLimits`].

mod body;
mod client_address;
mod connection;
mod connection_eviction;
pub(crate) mod connection_limiter;
pub(crate) mod connection_timers;
mod cors;
mod fallback_listener;
mod guard;
mod head_scan;
mod listen;
mod refusing_path;
mod respond;
mod run;
mod tls;
mod wake_gate;
mod wire;

use std::sync::Arc;

use http::Response;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_store::JournalWriter;

use crate::{clock::CoreRng, fallback::FallbackService, request::Incoming, response::AnswerBody, state::shared::Shared};

use connection_limiter::{ConnectionLimiter, ConnectionLimits};

pub use fallback_listener::{FallbackListenerLimits, serve_fallback};
pub use guard::names_loopback;
pub use listen::{ListenError, Listening, can_listen, listen};
pub use refusing_path::RefusingPath;
pub use run::{Drained, RunError, run};
pub use tls::{Certificate, TlsError, tls_acceptor};

/// The service that answers model requests, one instance per core. Tests use a scripted one.
pub trait ModelPath: Send + Sync + 'static {
    /// Answers a request; refusals are responses too.
    fn serve(&self, incoming: Incoming) -> impl Future<Output = Response<AnswerBody>> + Send;

    /// The journal of this core, if it has one. What it has collected is written before anything is sent to a caller.
    fn journal(&self) -> Option<&Arc<JournalWriter>> {
        None
    }
}

/// The paths a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serves {
    /// Models, the status endpoints, and the fallback service for other paths.
    Everything,
    /// The fallback service alone.
    Fallback,
}

struct Core<P> {
    shared: Arc<Shared>,
    path: P,
    serves: Serves,
    fallback: Arc<dyn FallbackService>,
    connection_limiter: Arc<ConnectionLimiter>,
    /// Limits of a listener that does not have those of the settings.
    own_limits: Option<ConnectionLimits>,
    rng: CoreRng,
    tls: Option<tokio_rustls::TlsAcceptor>,
    tracker: TaskTracker,
    /// Cancelled when new requests are refused.
    draining: CancellationToken,
    /// Cancelled when connections must close.
    closing: CancellationToken,
}

impl<P> Core<P> {
    /// The current limits on the listener's connections.
    fn connection_limits(&self) -> ConnectionLimits {
        self.own_limits.unwrap_or_else(|| {
            let http = &self.shared.settings.load().http;
            ConnectionLimits { all: http.connections, of_address: http.connections_per_address }
        })
    }

    /// True if its connections move to the successor, which continues them as connections of the model listener.
    fn moves_connections(&self) -> bool {
        self.serves == Serves::Everything
    }
}

#[cfg(test)]
mod tests;
