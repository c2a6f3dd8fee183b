//! The listener: sockets, TLS, HTTP and its guards.
//!
//! One thread with a runtime of its own for each core. A core accepts, parses and answers by itself; nothing is
//! handed over on the model path. Slow peers are held to the limits of [`crate::HttpLimits`] by the loop that drives
//! their connection.

mod answering;
mod beat;
mod body;
mod census;
mod client_address;
mod connection;
mod guard;
mod head_scan;
mod listen;
mod pages;
mod run;
mod tls;
mod wire;

use std::sync::Arc;

use http::Response;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{AnswerBody, CoreRng, FallbackService, Incoming, Shared};

pub(crate) use census::AddressBlock;
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
    connection_limiter: Arc<census::ConnectionLimiter>,
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
