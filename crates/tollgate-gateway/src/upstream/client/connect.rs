//! Establishes connections: dial, TLS, and the HTTP/1.1 or HTTP/2 handshake.

use std::{
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::AbortHandle,
};
use tokio_util::task::TaskTracker;
use tollgate_store::JournalWriter;

use super::{
    checked_io::{CheckedIo, IoState, OverTcp},
    destination::UpstreamTarget,
    dial::dial,
    journaled_io::JournaledIo,
    proxy,
    streams::Streams,
    tls,
    tls::Trust,
};
use crate::{executor::TrackedExecutor, upstream::call::ConnectFault};

/// Most bytes of a response head.
const HEAD_BYTES: u32 = 128 * 1024;
/// Largest read buffer of a connection.
const BUFFER_BYTES: usize = 192 * 1024;
/// Flow-control window of an HTTP/2 stream; the connection's is sixteen of them.
const STREAM_WINDOW: u32 = 256 * 1024;

/// An established connection. Aborting its task closes it at once.
pub(crate) enum Connected {
    /// HTTP/1.1: one request at a time.
    Http1(http1::SendRequest<Full<Bytes>>, AbortHandle, Arc<IoState>),
    /// HTTP/2, shared by requests.
    Http2(http2::SendRequest<Full<Bytes>>, Arc<Streams>),
}

/// Connects to a destination at one of `addresses`, or through its proxy, which resolves the name itself: `addresses`
/// is not used then. What `journal` has collected is written before anything is sent. Also returns the address connected to, which is
/// that of the proxy if there is one. The caller bounds the time.
pub(crate) async fn connect(
    destination: &UpstreamTarget,
    addresses: Vec<SocketAddr>,
    trust: &Trust,
    tasks: &TaskTracker,
    journal: Option<&Arc<JournalWriter>>,
) -> Result<(Connected, Option<IpAddr>), ConnectFault> {
    let socket = match &destination.proxy {
        None => dial(addresses).await.map_err(|_| ConnectFault::Refused)?,
        Some(proxy) => proxy::tunnel(proxy, destination, trust.addresses()).await?,
    };
    let peer = socket.peer_addr().ok().map(|peer| peer.ip());
    Ok((handshake(socket, destination, trust, tasks, journal).await?, peer))
}

/// The TLS handshake for `https`, then the HTTP handshake.
async fn handshake(
    socket: TcpStream,
    destination: &UpstreamTarget,
    trust: &Trust,
    tasks: &TaskTracker,
    journal: Option<&Arc<JournalWriter>>,
) -> Result<Connected, ConnectFault> {
    if !destination.tls {
        return http1(JournaledIo::new(socket, journal), tasks).await;
    }
    let stream = tls::handshake(trust.config(destination).await?, destination, socket).await?;
    let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = JournaledIo::new(stream, journal);
    if speaks_http2 { http2(stream, tasks).await } else { http1(stream, tasks).await }
}

async fn http1(stream: impl OverTcp, tasks: &TaskTracker) -> Result<Connected, ConnectFault> {
    let (stream, state) = CheckedIo::new(stream);
    // Without a limit of header fields of our own: hyper reads up to its default of 100 without allocating memory.
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(BUFFER_BYTES)
        .max_header_size(HEAD_BYTES as usize)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| ConnectFault::Closed)?;
    let task = tasks.spawn(async move {
        if let Err(fault) = connection.await {
            tracing::debug!(%fault, "upstream connection ended");
        }
    });
    Ok(Connected::Http1(sender, task.abort_handle(), state))
}

async fn http2<S>(stream: S, tasks: &TaskTracker) -> Result<Connected, ConnectFault>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, mut connection) = http2::Builder::new(TrackedExecutor(tasks.clone()))
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(16 * STREAM_WINDOW)
        .max_header_list_size(HEAD_BYTES)
        .max_send_buf_size(BUFFER_BYTES)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10))
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| ConnectFault::Closed)?;
    let streams = Arc::new(Streams::new(connection.current_max_send_streams()));
    let updated = Arc::clone(&streams);
    tasks.spawn(async move {
        let ended = poll_fn(|context| {
            let polled = Pin::new(&mut connection).poll(context);
            updated.set_limit(connection.current_max_send_streams(), context.waker());
            polled
        });
        if let Err(fault) = ended.await {
            tracing::debug!(%fault, "upstream connection ended");
        }
    });
    Ok(Connected::Http2(sender, streams))
}
