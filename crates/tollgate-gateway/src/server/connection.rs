//! One connection from its first byte to its last: which protocol it speaks, its timers, and its end.

use std::{
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use hyper::{server::conn, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep_until, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::{
    Core, ModelPath,
    connection_timers::{Alarm, ConnectionTimers},
    respond::{ConnectionContext, anonymous_head, answer},
    wire::{Watch, Wire},
};
use crate::refusal::Refusal;

/// How an HTTP/2 connection begins (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Largest buffer of an HTTP/1.1 connection. Twice the bound of a head, so that a head a little too large is answered
/// in words.
const BUFFER: usize = 128 * 1024;
/// How long a polite end may take.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Pings that find out whether the far end of an HTTP/2 connection is still there.
const PING: Duration = Duration::from_secs(30);

/// Serves a connection to its end.
pub(super) async fn serve<P: ModelPath>(core: Arc<Core<P>>, socket: TcpStream, peer: SocketAddr) {
    // A socket that cannot be set up is a caller that is gone.
    let _ = socket.set_nodelay(true);
    match core.tls.clone() {
        None => begin(core, socket, peer).await,
        // Boxed: a TLS stream is large, and plain connections should not keep its room.
        Some(tls) => Box::pin(serve_tls(core, tls, socket, peer)).await,
    }
}

async fn serve_tls<P: ModelPath>(core: Arc<Core<P>>, tls: TlsAcceptor, socket: TcpStream, peer: SocketAddr) {
    let Ok(Ok(stream)) = timeout(core.shared.settings.http.header_timeout, tls.accept(socket)).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let line = line(&core, peer);
        http2(core, stream, Bytes::new(), line).await;
    } else {
        begin(core, stream, peer).await;
    }
}

/// Tells the protocols apart by the first bytes.
async fn begin<P: ModelPath, S>(core: Arc<Core<P>>, mut io: S, peer: SocketAddr)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let line = line(&core, peer);
    let limits = &core.shared.settings.http;
    let mut first = BytesMut::with_capacity(PREFACE.len());
    let mut idle_timeout = limits.idle_timeout;
    while PREFACE.starts_with(&first) && first.len() < PREFACE.len() {
        tokio::select! {
            () = core.closing.cancelled() => return,
            read = timeout(idle_timeout, io.read_buf(&mut first)) => match read {
                Ok(Ok(1..)) => idle_timeout = limits.header_timeout,
                Ok(Ok(0) | Err(_)) => return,
                Err(_) if first.is_empty() => return,
                Err(_) => {
                    let words = too_slow(&core, &line);
                    let _ = timeout(LAST_WORDS, io.write_all(&words)).await;
                    return;
                }
            },
        }
    }
    let first = first.freeze();
    if first.len() >= PREFACE.len() && first.starts_with(PREFACE) {
        http2(core, io, first, line).await;
    } else {
        http1(core, io, first, line).await;
    }
}

fn line<P>(core: &Core<P>, peer: SocketAddr) -> ConnectionContext {
    ConnectionContext { peer, timers: Arc::new(ConnectionTimers::new(core.shared.clock.instant())) }
}

async fn http1<P: ModelPath, S>(core: Arc<Core<P>>, io: S, first: Bytes, line: ConnectionContext)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let wire = Wire::new(io, first, Arc::clone(&line.timers), Arc::clone(&core.shared.clock), Watch::Heads);
    let mut builder = conn::http1::Builder::new();
    // Its own timer would count the pause between two requests as part of the head.
    builder.header_read_timeout(None).max_buf_size(BUFFER);
    let (inner, of) = (Arc::clone(&core), line.clone());
    // Boxed, so that an idle connection does not keep the room of a request.
    let service = service_fn(move |request| Box::pin(answer(Arc::clone(&inner), of.clone(), request)));
    drive(&core, &line, Box::pin(builder.serve_connection(TokioIo::new(wire), service))).await;
}

async fn http2<P: ModelPath, S>(core: Arc<Core<P>>, io: S, first: Bytes, line: ConnectionContext)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &core.shared.settings.http;
    let wire = Wire::new(io, first, Arc::clone(&line.timers), Arc::clone(&core.shared.clock), Watch::Nothing);
    let mut builder = conn::http2::Builder::new(Tasks(core.tracker.clone()));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.h2_streams)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    let (inner, of) = (Arc::clone(&core), line.clone());
    // Boxed, so that an idle connection does not keep the room of a request.
    let service = service_fn(move |request| Box::pin(answer(Arc::clone(&inner), of.clone(), request)));
    drive(&core, &line, Box::pin(builder.serve_connection(TokioIo::new(wire), service))).await;
}

/// Runs the streams of HTTP/2 connections where a shutdown waits for them.
#[derive(Clone)]
struct Tasks(TaskTracker);

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

/// Drives a connection, holds it to its limits and ends it when the gateway drains.
async fn drive<P: ModelPath, C: GracefulConnection>(core: &Core<P>, line: &ConnectionContext, mut connection: Pin<Box<C>>) {
    let limits = &core.shared.settings.http;
    let now = || core.shared.clock.instant();
    let mut alarm = pin!(sleep_until(now() + limits.header_timeout.min(limits.idle_timeout)));
    let mut draining = pin!(core.draining.cancelled());
    let mut closing = pin!(core.closing.cancelled());
    let (mut drained, mut ending) = (false, false);
    loop {
        tokio::select! {
            biased;
            // What went wrong is the caller's business; it has been answered where it could be.
            _ = connection.as_mut() => return,
            () = draining.as_mut(), if !drained => {
                drained = true;
                connection.as_mut().graceful_shutdown();
            }
            () = closing.as_mut(), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
                alarm.as_mut().reset(now() + LAST_WORDS);
            }
            () = alarm.as_mut() => {
                if ending {
                    return;
                }
                match line.timers.alarm(now(), limits) {
                    Alarm::Wait(until) => {
                        alarm.as_mut().reset(until);
                        continue;
                    }
                    Alarm::Stalled => return,
                    Alarm::Idle => connection.as_mut().graceful_shutdown(),
                    Alarm::HeadTooSlow => line.timers.part(too_slow(core, line)),
                }
                ending = true;
                alarm.as_mut().reset(now() + LAST_WORDS);
            }
        }
    }
}

/// The answer to a head that does not come, as raw HTTP/1.1.
fn too_slow<P>(core: &Core<P>, line: &ConnectionContext) -> Bytes {
    let refusal = Refusal::TooSlow { secs: core.shared.settings.http.header_timeout.as_secs() };
    let head = anonymous_head(core, line, core.shared.clock.instant());
    core.shared.metrics.refused(refusal.id(head.from));
    refusal.raw(&head)
}

/// Turns a connection away that there is no room for: one answer, if it can be written at once.
pub(super) fn turn_away<P>(core: &Core<P>, socket: &TcpStream, peer: SocketAddr) {
    let refusal = Refusal::Overloaded;
    let head = anonymous_head(core, &line(core, peer), core.shared.clock.instant());
    core.shared.metrics.refused(refusal.id(head.from));
    if core.tls.is_none() {
        let _: io::Result<usize> = socket.try_write(&refusal.raw(&head));
    }
}
