//! Establishes connections: dial, TLS, and the handshake of HTTP/2.

use std::{
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_util::task::TaskTracker;
use tollgate_store::JournalWriter;

use super::{
    destination::UpstreamTarget, dial::dial, http1::Http1Connection, journaled_io::JournaledIo, proxy, streams::Streams, tls,
    tls::Trust,
};
use crate::{executor::TrackedExecutor, upstream::call::ConnectFault};

/// Most bytes of a response head over HTTP/2.
const HEAD_BYTES: u32 = 128 * 1024;
/// Most bytes of a request that an HTTP/2 stream buffers.
const BUFFER_BYTES: usize = 192 * 1024;
/// Flow-control window of an HTTP/2 stream; the connection's is sixteen of them.
const STREAM_WINDOW: u32 = 256 * 1024;

/// An established connection.
pub(crate) enum Connected {
    /// HTTP/1.1: one request at a time.
    Http1(Box<Http1Connection>),
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

/// The TLS handshake for `https`, then that of HTTP/2 if the upstream has chosen it.
async fn handshake(
    socket: TcpStream,
    destination: &UpstreamTarget,
    trust: &Trust,
    tasks: &TaskTracker,
    journal: Option<&Arc<JournalWriter>>,
) -> Result<Connected, ConnectFault> {
    if !destination.tls {
        return Ok(Connected::Http1(Box::new(Http1Connection::new(socket, journal))));
    }
    let stream = tls::handshake(trust.config(destination).await?, destination, socket).await?;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        return http2(JournaledIo::new(stream, journal), tasks).await;
    }
    Ok(Connected::Http1(Box::new(Http1Connection::new(stream, journal))))
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
