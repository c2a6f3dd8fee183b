//! An address of the console's own: connections, their bounds, and HTTP/1.1 and HTTP/2 on them.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::body::Body;
use http::{Request, Response, Version, header};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_core::RequestId;

use crate::{api_error::ApiError, console::Console, state::RequestMeta};

/// Bounds of the console's own address.
#[derive(Clone, Copy, Debug)]
pub struct ListenerLimits {
    /// Connections at once; more wait to be accepted.
    pub connections: usize,
    /// A request's head has to be complete within this time, and so has the handshake before it.
    pub header_timeout: Duration,
    /// How long answers under way may go on once it stops.
    pub drain: Duration,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self { connections: 512, header_timeout: Duration::from_secs(10), drain: Duration::from_secs(10) }
    }
}

/// Serves the console on a listener until it is told to stop, over TLS where there is a certificate. `id` draws the id of a
/// request.
pub async fn serve(
    console: Console,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    limits: ListenerLimits,
    id: Arc<dyn Fn() -> RequestId + Send + Sync>,
    stop: CancellationToken,
) {
    let tracker = TaskTracker::new();
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(limits.connections));
    let mut server = Server::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(limits.header_timeout).max_headers(100).max_buf_size(64 << 10);
    server.http2().timer(TokioTimer::new()).max_concurrent_streams(64).max_header_list_size(64 << 10);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &room) => accepted,
        };
        let Some((stream, address, permit)) = accepted else { continue };
        let (console, id, server, watcher) = (console.clone(), Arc::clone(&id), server.clone(), graceful.watcher());
        let (tls, stop) = (tls.clone(), stop.clone());
        tracker.spawn(async move {
            let made = move || RequestMeta { id: id(), address };
            match tls {
                None => talk(&server, watcher, stream, console, made).await,
                Some(tls) => {
                    // Who has not shaken hands yet is not waited for.
                    let shaken = tokio::select! {
                        () = stop.cancelled() => return,
                        shaken = timeout(limits.header_timeout, tls.accept(stream)) => shaken,
                    };
                    if let Ok(Ok(stream)) = shaken {
                        Box::pin(talk(&server, watcher, stream, console, made)).await;
                    }
                }
            }
            drop(permit);
        });
    }
    drop(listener);
    tracker.close();
    let _ = timeout(limits.drain, graceful.shutdown()).await;
}

type Server = auto::Builder<TokioExecutor>;

/// Answers the requests of a connection.
async fn talk<S>(server: &Server, watcher: Watcher, stream: S, console: Console, request_meta: impl Fn() -> RequestMeta)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(|request| {
        let (console, request_meta) = (console.clone(), request_meta());
        async move { Ok::<_, std::convert::Infallible>(answer(&console, request_meta, request).await) }
    });
    let connection = server.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection to the console ended");
    }
}

type AcceptedConnection = (tokio::net::TcpStream, IpAddr, tokio::sync::OwnedSemaphorePermit);

/// The next connection, once there is room for it. A failure to accept is waited out.
async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> Option<AcceptedConnection> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => {
            let _ = stream.set_nodelay(true);
            Some((stream, peer.ip().to_canonical(), permit))
        }
        Err(error) => {
            tracing::warn!(%error, "the console cannot accept a connection");
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

/// Exactly one host, as on the model address, then the console.
async fn answer(console: &Console, request_meta: RequestMeta, request: Request<Incoming>) -> Response<Body> {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    let named = match request.version() {
        Version::HTTP_2 => hosts <= 1 && request.uri().authority().is_some(),
        Version::HTTP_10 => hosts <= 1,
        _ => hosts == 1,
    };
    if !named {
        let mut response = ApiError::value("Host", "expected exactly one").answer().response();
        response.headers_mut().insert(header::CONNECTION, http::HeaderValue::from_static("close"));
        return response;
    }
    console.answer(request_meta, request).await
}
