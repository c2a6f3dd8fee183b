//! Serves one connection: protocol detection, timeouts and shutdown.

use std::{
    future::poll_fn,
    io,
    mem::MaybeUninit,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use hyper::{server::conn, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::TcpStream,
    time::{Instant, sleep_until, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{
    Core, ModelPath,
    connection_limiter::ServedTargets,
    connection_timers::{Alarm, ConnectionTimers, Eviction},
    respond::{ConnectionContext, anonymous_head, answer},
    wake_gate::WakeGate,
    wire::{Watch, Wire},
};
use crate::{
    clock::with_one_time, executor::TrackedExecutor, hand_over::MovedConnection, in_place::pinned, refusal::Refusal,
    request::UnreadBody, settings::HttpLimits,
};

/// The HTTP/2 connection preface (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Maximum number of bytes of a connection's first read: as many as hyper's first read takes, because with fewer its buffer would
/// grow.
const FIRST_READ_BYTES: usize = 8 * 1024;
/// Largest read buffer of an HTTP/1.1 connection. Twice the default limit of a head, so that a head slightly above the
/// limit gets an error response.
const BUFFER_BYTES: usize = 128 * 1024;
/// Longest graceful shutdown of a connection, and longest write of a final error response.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// Longest graceful shutdown of an evicted connection.
const EVICTION_LIMIT: Duration = Duration::from_millis(100);
/// Time after which the end of an answer, which HTTP/2 may hold for a slow reader, counts as read.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// Longest time, after a hand-over, for the caller to read the rest of an answer before the connection moves to the other
/// process.
pub(super) const MOVE_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of a response that are kept for an HTTP/2 stream whose caller does not read.
const STREAM_BUFFER_BYTES: usize = 64 * 1024;
/// Longest life of a connection that serves only the status endpoints, and longest time until its first byte.
const STATUS_LIMIT: Duration = Duration::from_secs(5);
const STATUS_HEAD_LIMIT: Duration = Duration::from_secs(1);
/// Interval and timeout of HTTP/2 keep-alive pings.
const PING: Duration = Duration::from_secs(30);

/// Serves a connection; `first` are bytes that another process has read from it.
pub(super) async fn serve<P: ModelPath>(core: Arc<Core<P>>, socket: TcpStream, context: ConnectionContext, first: Bytes) {
    // Fails only if the peer has already disconnected; the first read reports that.
    let _ = socket.set_nodelay(true);
    poll_fn(|task| {
        context.timers.driven_by(task.waker());
        Poll::Ready(())
    })
    .await;
    match (core.tls.clone(), context.targets) {
        (None, ServedTargets::Everything) => begin(core, socket, context, first).await,
        (None, ServedTargets::StatusOnly) => drop(timeout(STATUS_LIMIT, Box::pin(begin(core, socket, context, first))).await),
        // Boxed: a TLS stream is large, and plain connections should not allocate space for it.
        (Some(tls), ServedTargets::Everything) => Box::pin(serve_tls(core, tls, socket, context)).await,
        (Some(tls), ServedTargets::StatusOnly) => {
            drop(timeout(STATUS_LIMIT, Box::pin(serve_tls(core, tls, socket, context))).await);
        }
    }
}

async fn serve_tls<P: ModelPath>(core: Arc<Core<P>>, tls: TlsAcceptor, socket: TcpStream, context: ConnectionContext) {
    let limit = core.shared.settings.load().http.header_timeout;
    let accepted = tokio::select! {
        biased;
        accepted = timeout(limit, tls.accept(socket)) => accepted,
        () = context.timers.evicted() => return,
    };
    let Ok(Ok(stream)) = accepted else { return };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        http2(core, stream, Bytes::new(), context).await;
    } else {
        begin(core, stream, context, Bytes::new()).await;
    }
}

/// Detects HTTP/2 with prior knowledge by its preface; everything else is HTTP/1.1.
async fn begin<P: ModelPath, S: Transport>(core: Arc<Core<P>>, mut io: S, context: ConnectionContext, first: Bytes) {
    let HttpLimits { header_timeout, idle_timeout, .. } = core.shared.settings.load().http;
    let hand_over = &core.shared.serving.hand_over;
    let mut phase = hand_over.subscribe();
    let mut first = BytesMut::from(first);
    let moves = S::IS_SOCKET && core.moves_connections();
    let status_only = context.targets == ServedTargets::StatusOnly;
    let mut limit = if status_only { STATUS_HEAD_LIMIT.min(idle_timeout) } else { idle_timeout };
    while PREFACE.starts_with(&first) && first.len() < PREFACE.len() {
        if moves && hand_over.has_left() {
            return give(&core, io, first.freeze()).await;
        }
        tokio::select! {
            biased;
            _ = phase.changed() => {}
            // After a hand-over, `closing` may be observed before the change of phase.
            () = core.closing.cancelled() => if !(moves && hand_over.has_left()) {
                return;
            },
            read = timeout(limit, read_first(&mut io, &mut first)), if !(moves && hand_over.holds_requests()) => match read {
                Ok(Ok(1..)) => limit = header_timeout,
                Ok(Ok(0) | Err(_)) => return,
                Err(_) if first.is_empty() && status_only => {
                    let _ = timeout(CLOSE_LIMIT, io.write_all(&overloaded(&core, &context))).await;
                    return;
                }
                Err(_) if first.is_empty() => return,
                Err(_) => {
                    let response = too_slow(&core, &context);
                    let _ = timeout(CLOSE_LIMIT, io.write_all(&response)).await;
                    return;
                }
            },
            () = context.timers.evicted() => return,
        }
    }
    let first = first.freeze();
    if first.len() >= PREFACE.len() && first.starts_with(PREFACE) {
        http2(core, io, first, context).await;
    } else {
        http1(core, io, first, context).await;
    }
}

/// Reads the received bytes. A connection that sends nothing needs no buffer.
async fn read_first<S: Transport>(io: &mut S, first: &mut BytesMut) -> io::Result<usize> {
    poll_fn(|context| {
        let mut space = [MaybeUninit::uninit(); FIRST_READ_BYTES];
        let mut read = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut *io).poll_read(context, &mut read))?;
        first.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    })
    .await
}

pub(super) fn connection_context(peer: SocketAddr, timers: Arc<ConnectionTimers>, targets: ServedTargets) -> ConnectionContext {
    ConnectionContext { peer, timers, recent_key: Arc::default(), targets, unread: UnreadBody::default() }
}

async fn http1<P: ModelPath, S: Transport>(core: Arc<Core<P>>, io: S, first: Bytes, context: ConnectionContext) {
    let wire = Wire::new(io, first, Arc::clone(&context.timers), &core.shared, Watch::Heads).after(core.path.journal());
    let (wire, moves) =
        if S::IS_SOCKET && core.moves_connections() { (wire.holding(), Moves::AtRest) } else { (wire, Moves::Never) };
    let mut builder = conn::http1::Builder::new();
    // hyper's timer would count the idle time between two requests as part of the head.
    builder.header_read_timeout(None).max_buf_size(BUFFER_BYTES);
    let (service_core, service_context) = (Arc::clone(&core), context.clone());
    // Boxed, so that an idle connection does not allocate space for a request.
    let service = service_fn(move |request| pinned(|| answer(Arc::clone(&service_core), service_context.clone(), request)));
    let connection = Box::pin(builder.serve_connection(TokioIo::new(wire), service));
    let Some(connection) = drive(&core, &context, connection, moves).await else { return };
    let mut connection = Pin::into_inner(connection);
    if context.timers.has_answered() {
        // hyper ends a connection immediately only between two requests. It sends nothing, and the socket stays open.
        Pin::new(&mut *connection).graceful_shutdown();
        let ended = poll_fn(|cx| Poll::Ready(connection.poll_without_shutdown(cx))).await;
        if !matches!(ended, Poll::Ready(Ok(()))) {
            let _ = timeout(CLOSE_LIMIT, connection).await;
            return;
        }
    }
    let parts = connection.into_parts();
    let (io, unread) = parts.io.into_inner().into_parts();
    let mut first = BytesMut::from(parts.read_buf);
    first.extend_from_slice(&unread);
    give(&core, io, first.freeze()).await;
}

/// Moves a connection to the process that takes over.
async fn give<P, S: Transport>(core: &Core<P>, io: S, first: Bytes) {
    if let Some(socket) = io.into_socket().and_then(|socket| socket.into_std().ok()) {
        core.shared.serving.hand_over.give(MovedConnection { socket, first }).await;
    }
}

async fn http2<P: ModelPath, S: Transport>(core: Arc<Core<P>>, io: S, first: Bytes, context: ConnectionContext) {
    let HttpLimits { h2_streams, header_bytes, .. } = core.shared.settings.load().http;
    let wire = Wire::new(io, first, Arc::clone(&context.timers), &core.shared, Watch::Nothing).after(core.path.journal());
    let mut builder = conn::http2::Builder::new(TrackedExecutor(core.tracker.clone()));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(h2_streams)
        .max_send_buf_size(STREAM_BUFFER_BYTES)
        .max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    let (service_core, service_context) = (Arc::clone(&core), context.clone());
    // Boxed, so that an idle connection does not allocate space for a request.
    let service = service_fn(move |request| pinned(|| answer(Arc::clone(&service_core), service_context.clone(), request)));
    drive(&core, &context, Box::pin(builder.serve_connection(TokioIo::new(wire), service)), Moves::Never).await;
}

/// Whether a connection can move to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moves {
    Never,
    /// Between two requests.
    AtRest,
}

/// A byte stream below HTTP.
trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// True if it has no state but the socket's, so that another process can continue it.
    const IS_SOCKET: bool;

    fn into_socket(self) -> Option<TcpStream>;
}

impl Transport for TcpStream {
    const IS_SOCKET: bool = true;

    fn into_socket(self) -> Option<TcpStream> {
        Some(self)
    }
}

impl Transport for TlsStream<TcpStream> {
    const IS_SOCKET: bool = false;

    fn into_socket(self) -> Option<TcpStream> {
        None
    }
}

/// Drives a connection, enforces its timeouts and closes it when the gateway drains. Returns it if the process that takes over
/// continues it.
async fn drive<P: ModelPath, C: GracefulConnection>(
    core: &Core<P>,
    context: &ConnectionContext,
    mut connection: Pin<Box<C>>,
    moves: Moves,
) -> Option<Pin<Box<C>>> {
    let hand_over = &core.shared.serving.hand_over;
    let now = || core.shared.clock.instant();
    let moves = || moves == Moves::AtRest && hand_over.has_left();
    let HttpLimits { header_timeout, idle_timeout, .. } = core.shared.settings.load().http;
    let mut alarm = pin!(sleep_until(now() + header_timeout.min(idle_timeout)));
    let mut draining = pin!(core.draining.cancelled());
    let mut closing = pin!(core.closing.cancelled());
    let mut phase = hand_over.subscribe();
    let (mut drained, mut ending, mut is_notified) = (false, Ending::Open, false);
    let gate = WakeGate::of_task().await;
    loop {
        let event = {
            let mut signals = pin!(async {
                tokio::select! {
                    biased;
                    _ = phase.changed(), if ending == Ending::Open => Event::PhaseChanged,
                    () = draining.as_mut(), if !drained => Event::Draining,
                    () = closing.as_mut(), if ending != Ending::Cut => Event::Closing,
                    () = alarm.as_mut() => Event::Alarm,
                }
            });
            gate.open();
            let mut poll = |cx: &mut Context<'_>| match connection.as_mut().poll(cx) {
                // A connection error concerns only the peer; if a response was possible, it has been sent.
                Poll::Ready(_) => Poll::Ready(Event::Ended),
                Poll::Pending if moves() && context.timers.is_at_rest() => Poll::Ready(Event::Rests),
                Poll::Pending => match context.timers.eviction(now) {
                    Some(eviction) if ending == Ending::Open && !(is_notified && eviction == Eviction::AfterAnswer) => {
                        Poll::Ready(Event::Evicted(eviction))
                    }
                    Some(_) | None => gate.poll(signals.as_mut()),
                },
            };
            poll_fn(|cx| with_one_time(|| poll(cx))).await
        };
        match event {
            Event::Ended => return None,
            Event::Rests => return Some(connection),
            Event::Evicted(eviction) => {
                is_notified = true;
                if let Some(limit) = evict(core, context, connection.as_mut(), eviction) {
                    ending = Ending::Graceful;
                    alarm.as_mut().reset(now() + limit);
                }
            }
            Event::PhaseChanged => {}
            Event::Draining => {
                drained = true;
                if !moves() {
                    connection.as_mut().graceful_shutdown();
                }
            }
            Event::Closing => {
                ending = Ending::Cut;
                let limit = if hand_over.has_left() { MOVE_LIMIT } else { CLOSE_LIMIT };
                alarm.as_mut().reset(now() + limit);
                // A connection that can move still sends an answer, and moves after that.
                if !moves() {
                    connection.as_mut().graceful_shutdown();
                }
            }
            Event::Alarm => {
                let (until, next) = time_over(core, context, connection.as_mut(), ending)?;
                ending = next;
                alarm.as_mut().reset(until);
            }
        }
    }
}

/// Handles a timeout. Returns when to check again and whether the connection is about to end then; `None` if it ends at once.
fn time_over<P, C: GracefulConnection>(
    core: &Core<P>,
    context: &ConnectionContext,
    connection: Pin<&mut C>,
    ending: Ending,
) -> Option<(Instant, Ending)> {
    let now = core.shared.clock.instant();
    match context.timers.alarm(now, &core.shared.settings.load().http) {
        Alarm::Wait(until) if ending == Ending::Open => return Some((until, Ending::Open)),
        // A request that was sent before its caller saw the end is still answered.
        Alarm::Wait(_) if ending == Ending::Graceful && context.timers.is_answering() => {}
        Alarm::Idle if ending == Ending::Open => connection.graceful_shutdown(),
        Alarm::HeadTooSlow if ending == Ending::Open => context.timers.abort_with(too_slow(core, context)),
        Alarm::Wait(_) | Alarm::Idle | Alarm::HeadTooSlow | Alarm::Stalled => return None,
    }
    Some((now + CLOSE_LIMIT, Ending::Graceful))
}

/// Begins to close an evicted connection. Returns how long that may take; `None` if it answers a request first.
fn evict<P, C: GracefulConnection>(
    core: &Core<P>,
    context: &ConnectionContext,
    connection: Pin<&mut C>,
    eviction: Eviction,
) -> Option<Duration> {
    let timers = &context.timers;
    match eviction {
        Eviction::AfterAnswer => {
            connection.graceful_shutdown();
            return None;
        }
        Eviction::AtRest => connection.graceful_shutdown(),
        Eviction::SlowHead => timers.abort_with(overloaded(core, context)),
    }
    timers.close_at_once();
    let is_read =
        !timers.has_answered() || timers.rest_since().is_some_and(|since| since + READ_LIMIT <= core.shared.clock.instant());
    Some(if is_read { EVICTION_LIMIT } else { CLOSE_LIMIT })
}

/// Events of the loop that drives a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Ended,
    /// The connection is between two requests and moves to another process.
    Rests,
    /// The connection is evicted, so that others can be accepted.
    Evicted(Eviction),
    /// A hand-over begins or ends.
    PhaseChanged,
    /// New requests are refused.
    Draining,
    /// All connections have to close.
    Closing,
    /// A timeout has passed.
    Alarm,
}

/// Whether a connection is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Open,
    /// Ends when it carries no request.
    Graceful,
    /// Ends after a time limit.
    Cut,
}

/// The response to a head that did not arrive in time (E65), as raw HTTP/1.1.
fn too_slow<P>(core: &Core<P>, context: &ConnectionContext) -> Bytes {
    let refusal = Refusal::TooSlow { secs: core.shared.settings.load().http.header_timeout.as_secs() };
    let head = anonymous_head(core, context, core.shared.clock.instant());
    core.shared.metrics.refused(refusal.id(head.from));
    refusal.raw(&head)
}

/// Rejects a connection above all limits with E63, if the response can be written without waiting.
pub(super) fn reject<P>(core: &Core<P>, socket: &TcpStream, peer: SocketAddr, timers: Arc<ConnectionTimers>) {
    let response = overloaded(core, &connection_context(peer, timers, ServedTargets::StatusOnly));
    if core.tls.is_none() {
        let _: io::Result<usize> = socket.try_write(&response);
    }
}

/// E63 without a request, as raw HTTP/1.1.
fn overloaded<P>(core: &Core<P>, context: &ConnectionContext) -> Bytes {
    let refusal = Refusal::Overloaded;
    let head = anonymous_head(core, context, core.shared.clock.instant());
    core.shared.metrics.refused(refusal.id(head.from));
    refusal.raw(&head)
}
