//! The listener: sockets, TLS, HTTP and its guards.
//!
//! One thread with a runtime of its own for each core. A core accepts, parses and answers by itself; nothing is
//! handed over on the model path. Slow peers are held to the limits of [`crate::settings::HttpLimits`] by the loop that drives
//! their connection.

mod body;
mod client_address;
mod connection;
mod connection_limiter;
mod connection_timers;
mod guard;
mod head_scan;
mod listen;
mod pages;
mod respond;
mod run;
mod tls;
mod wire;

use std::sync::Arc;

use http::Response;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{clock::CoreRng, fallback::FallbackService, request::Incoming, response::AnswerBody, state::shared::Shared};

pub(crate) use connection_limiter::AddressBlock;
pub use listen::{ListenError, Listening, listen};
pub use run::{Drained, RunError, run};
pub use tls::{Certificate, TlsError, tls_acceptor};

/// What answers model requests: the path, or a script in tests. One for each core.
pub trait ModelPath: Send + Sync + 'static {
    /// Answers a request, refusals included.
    fn serve(&self, incoming: Incoming) -> impl Future<Output = Response<AnswerBody>> + Send;
}

/// One core's part of the listener.
struct Core<P> {
    shared: Arc<Shared>,
    path: P,
    fallback: Arc<dyn FallbackService>,
    connection_limiter: Arc<connection_limiter::ConnectionLimiter>,
    dice: CoreRng,
    tls: Option<tokio_rustls::TlsAcceptor>,
    /// The core's connections.
    tracker: TaskTracker,
    /// Cancelled when no new requests are wanted.
    draining: CancellationToken,
    /// Cancelled when connections are to end.
    closing: CancellationToken,
}

#[cfg(test)]
mod tests;
