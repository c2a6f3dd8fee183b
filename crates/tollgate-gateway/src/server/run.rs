//! Starts the cores, waits for shutdown, and drains them.

use std::{error::Error, io, net::SocketAddr, sync::Arc, thread, time::Duration};

use bytes::Bytes;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Core, Listening, ModelPath, Serves, TlsError, connection,
    connection_limiter::{ConnectionLimiter, Entered},
    connection_timers::ConnectionTimers,
    tls,
};
use crate::{
    clock::CoreRng,
    fallback::FallbackService,
    hand_over::{HandOverPhase, MovedConnection},
    state::shared::Shared,
};

/// Pause after a failed accept; without free file descriptors the next one would fail immediately.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time for connections to close once no request is in progress.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);
/// Time for requests to end with an error when the drain time is over.
const CUT_OFF_LIMIT: Duration = Duration::from_secs(1);

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    Complete,
    /// Number of requests that were cut off at the deadline.
    CutOff(usize),
}

/// Why the gateway cannot start, or has to stop.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot set up core {core}: {source}")]
    Core { core: u16, source: Box<dyn Error + Send + Sync> },
    #[error("core {0} ended unexpectedly")]
    Ended(u16),
}

/// Serves until `shutdown` is cancelled, then drains: `/readyz` answers 503, new requests are refused (E61), and requests
/// in progress may complete within [`crate::settings::Settings::drain`]. The same after a hand-over, but then nothing is refused:
/// the successor has the sockets.
///
/// `path` creates the model path of one core; it is called on the core's thread, inside its runtime.
pub async fn run<P, F>(
    shared: Arc<Shared>,
    listening: Listening,
    path: F,
    fallback: Arc<dyn FallbackService>,
    shutdown: CancellationToken,
) -> Result<Drained, RunError>
where
    P: ModelPath,
    F: Fn(u16) -> Result<P, Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
{
    let (draining, closing) = (CancellationToken::new(), CancellationToken::new());
    let _ends_with_the_cores = closing.clone().drop_guard();
    let tls = match &shared.settings.load_full().tls {
        None => None,
        Some(files) => {
            let (acceptor, certificate) = tls::tls_acceptor(files)?;
            shared.tracker.spawn(certificate.follow(closing.clone()));
            Some(acceptor)
        }
    };
    let connection_limiter: Arc<ConnectionLimiter> = Arc::default();
    let path = Arc::new(path);
    let mut cores = Vec::new();
    let mut moved = listening.moved.into_iter();
    for (index, socket) in (0_u16..).zip(listening.sockets) {
        // Without a previous process no connections are moved, so the sender is dropped.
        let moved = moved.next().unwrap_or_else(|| mpsc::channel(1).1);
        let (path, shared, fallback) = (Arc::clone(&path), Arc::clone(&shared), Arc::clone(&fallback));
        let (connection_limiter, tls) = (Arc::clone(&connection_limiter), tls.clone());
        // Child tokens per core avoid lock contention on a shared token.
        let (drain, close) = (draining.child_token(), closing.child_token());
        let body = move |ready: oneshot::Sender<_>| {
            core_thread((socket, moved), ready, move || {
                let rng = CoreRng::from_os().map_err(|error| io::Error::other(error.to_string()))?;
                let tracker = TaskTracker::new();
                Ok(Core {
                    path: path(index)?,
                    serves: Serves::Everything,
                    shared,
                    fallback,
                    connection_limiter,
                    own_limits: None,
                    rng,
                    tls,
                    tracker,
                    draining: drain,
                    closing: close,
                })
            });
        };
        cores.push(start(index, body).await.inspect_err(|_| closing.cancel())?);
    }
    shared.serving.listening();

    if let Some(index) = until_end(&shared, &mut cores, &shutdown).await {
        closing.cancel();
        return Err(RunError::Ended(index));
    }
    draining.cancel();
    let drained = drain(&shared).await;
    closing.cancel();
    for core in cores {
        let _ = core.await;
    }
    Ok(drained)
}

/// Waits for the shutdown, which begins the drain, or for the end of a hand-over. Returns the index of a core that ended before.
async fn until_end(shared: &Shared, cores: &mut [oneshot::Receiver<()>], shutdown: &CancellationToken) -> Option<u16> {
    let ended = futures_util::future::select_all(cores.iter_mut());
    let mut phase = shared.serving.hand_over.subscribe();
    tokio::select! {
        () = shutdown.cancelled() => {
            shared.serving.drain();
            None
        }
        _ = phase.wait_for(|phase| *phase == HandOverPhase::Left) => None,
        (_, index, _) = ended => Some(u16::try_from(index).unwrap_or(u16::MAX)),
    }
}

/// Waits for the requests in progress, and cuts off those that are left when the drain time is over.
async fn drain(shared: &Shared) -> Drained {
    let is_quiet = shared.serving.quiet_within(shared.settings.load().drain).await;
    let left = shared.serving.in_flight();
    if left > 0 {
        shared.serving.cut_off();
        // The requests end with an error in their protocol. A caller that does not read must not delay the exit.
        let _ = timeout(CUT_OFF_LIMIT, shared.serving.quiet()).await;
    }
    if is_quiet { Drained::Complete } else { Drained::CutOff(left) }
}

/// Starts a core's thread and waits until it listens. The receiver completes when the thread ends.
async fn start<B>(index: u16, body: B) -> Result<oneshot::Receiver<()>, RunError>
where
    B: FnOnce(oneshot::Sender<Result<(), Box<dyn Error + Send + Sync>>>) + Send + 'static,
{
    let failed = |source| RunError::Core { core: index, source };
    let (ready, is_ready) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    thread::Builder::new()
        .name(format!("core-{index}"))
        .spawn(move || {
            body(ready);
            // Fails if the receiver is dropped, which is fine.
            let _ = end.send(());
        })
        .map_err(|error| failed(error.into()))?;
    match is_ready.await {
        Ok(Ok(())) => Ok(ended),
        Ok(Err(source)) => Err(failed(source)),
        Err(_) => Err(RunError::Ended(index)),
    }
}

/// Runs one core: creates its runtime and path, then accepts connections.
fn core_thread<P: ModelPath>(
    (socket, moved): (std::net::TcpListener, mpsc::Receiver<MovedConnection>),
    ready: oneshot::Sender<Result<(), Box<dyn Error + Send + Sync>>>,
    make: impl FnOnce() -> Result<Core<P>, Box<dyn Error + Send + Sync>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(ready.send(Err(error.into()))),
    };
    runtime.block_on(async {
        let made = TcpListener::from_std(socket).map_err(Into::into).and_then(|listener| Ok((listener, make()?)));
        match made {
            Ok((listener, core)) => {
                let _ = ready.send(Ok(()));
                accept(listener, moved, Arc::new(core)).await;
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    });
    // Requests still in progress are cut off here; dropping their usage guards writes the usage records.
    runtime.shutdown_timeout(Duration::ZERO);
}

/// Accepts connections until `closing`, but none while the gateway is handed over. Connections are still accepted while the
/// gateway drains, so that callers get E61 instead of a closed port and `/readyz` keeps answering.
///
/// `moved` are connections of the process before this one.
pub(super) async fn accept<P: ModelPath>(listener: TcpListener, mut moved: mpsc::Receiver<MovedConnection>, core: Arc<Core<P>>) {
    let mut phase = core.shared.serving.hand_over.subscribe();
    loop {
        let accepts = *phase.borrow_and_update() == HandOverPhase::Serving;
        let accepted = tokio::select! {
            biased;
            () = core.closing.cancelled() => break,
            _ = phase.changed() => continue,
            Some(connection) = moved.recv() => continue_connection(connection),
            accepted = listener.accept(), if accepts => accepted.map(|(socket, peer)| (socket, peer, Bytes::new())),
        };
        let (socket, peer, first) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !is_peer_error(&error) {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
                continue;
            }
        };
        let now = core.shared.clock.instant();
        let timers = Arc::new(ConnectionTimers::new(now));
        let entered = core.connection_limiter.enter(peer.ip(), core.connection_limits(), &timers, now);
        report_evictions(&core, &entered);
        let Some(counted) = entered.permit else {
            connection::reject(&core, &socket, peer, timers);
            continue;
        };
        let raised = core.shared.metrics.connection();
        let context = connection::connection_context(peer, timers, counted.targets);
        let serving = connection::serve(Arc::clone(&core), socket, context, first);
        core.tracker.spawn(async move {
            serving.await;
            drop((counted, raised));
        });
    }
    drop(listener);
    // Connections from the previous process that were not continued yet.
    while let Ok(connection) = moved.try_recv() {
        core.shared.serving.hand_over.give(connection).await;
    }
    core.tracker.close();
    let limit =
        if core.moves_connections() && core.shared.serving.hand_over.has_left() { connection::MOVE_LIMIT } else { CLOSE_LIMIT };
    let _ = timeout(limit, core.tracker.wait()).await;
}

/// Counts and logs connections that are closed for a new one.
fn report_evictions<P>(core: &Core<P>, entered: &Entered) {
    if entered.evicted > 0 {
        core.shared.metrics.connections_evicted(entered.evicted);
    }
    if let Some(report) = &entered.report {
        let (evicted, open, most) = (report.evicted, report.open, report.most_of_one_address);
        let listener = if core.serves == Serves::Everything { "model" } else { "console" };
        tracing::warn!(
            evicted,
            open,
            most_of_one_address = most,
            listener,
            "nearly as many connections as the limit allows: those without a request are closed"
        );
    }
}

/// A connection of the process before this one.
fn continue_connection(MovedConnection { socket, first }: MovedConnection) -> io::Result<(TcpStream, SocketAddr, Bytes)> {
    let gone = |_| io::Error::from(io::ErrorKind::ConnectionReset);
    let peer = socket.peer_addr().map_err(gone)?;
    socket.set_nonblocking(true)?;
    Ok((TcpStream::from_std(socket)?, peer, first))
}

/// Whether the peer disconnected before the connection was accepted.
fn is_peer_error(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused)
}
