//! Listener for a separate console address (`console.listen`): HTTP/1.1 and HTTP/2, optionally over TLS, with bounds on
//! connections, headers and shutdown.

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

/// Concurrent connections; further ones stay in the accept queue.
const MAX_CONNECTIONS: usize = 512;
/// Longest time for the TLS handshake, and for each request head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for running responses to finish after a stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves the console on a listener until `stop` is cancelled; over TLS if `tls` is set. `next_id` generates request ids.
pub async fn serve(
    console: Console,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    next_id: Arc<dyn Fn() -> RequestId + Send + Sync>,
    stop: CancellationToken,
) {
    let tracker = TaskTracker::new();
    let graceful = GracefulShutdown::new();
    let connection_permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut server = Server::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_headers(100).max_buf_size(64 << 10);
    server.http2().timer(TokioTimer::new()).max_concurrent_streams(64).max_header_list_size(64 << 10);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &connection_permits) => accepted,
        };
        let Some((stream, address, permit)) = accepted else { continue };
        let (console, next_id, server, watcher) = (console.clone(), Arc::clone(&next_id), server.clone(), graceful.watcher());
        let (tls, stop) = (tls.clone(), stop.clone());
        tracker.spawn(async move {
            let request_meta = move || RequestMeta { id: next_id(), address };
            match tls {
                None => serve_connection(&server, watcher, stream, console, request_meta).await,
                Some(tls) => {
                    // Handshakes in progress do not delay a stop.
                    let handshake = tokio::select! {
                        () = stop.cancelled() => return,
                        handshake = timeout(HEADER_TIMEOUT, tls.accept(stream)) => handshake,
                    };
                    if let Ok(Ok(stream)) = handshake {
                        Box::pin(serve_connection(&server, watcher, stream, console, request_meta)).await;
                    }
                }
            }
            drop(permit);
        });
    }
    drop(listener);
    tracker.close();
    let _ = timeout(DRAIN_TIMEOUT, graceful.shutdown()).await;
}

type Server = auto::Builder<TokioExecutor>;

/// Serves one connection until it is closed.
async fn serve_connection<S>(server: &Server, watcher: Watcher, stream: S, console: Console, request_meta: impl Fn() -> RequestMeta)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(|request| {
        let (console, request_meta) = (console.clone(), request_meta());
        async move { Ok::<_, std::convert::Infallible>(answer(&console, request_meta, request).await) }
    });
    let connection = server.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "console connection ended with an error");
    }
}

type AcceptedConnection = (tokio::net::TcpStream, IpAddr, tokio::sync::OwnedSemaphorePermit);

/// Accepts the next connection once a permit is free. Returns `None` after a failed accept, following a short pause.
async fn accept(listener: &TcpListener, connection_permits: &Arc<Semaphore>) -> Option<AcceptedConnection> {
    let permit = Arc::clone(connection_permits).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => {
            let _ = stream.set_nodelay(true);
            Some((stream, peer.ip().to_canonical(), permit))
        }
        Err(error) => {
            tracing::warn!(%error, "console: accepting a connection failed");
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

/// Requires exactly one host, as the model address does, then calls the console.
async fn answer(console: &Console, request_meta: RequestMeta, request: Request<Incoming>) -> Response<Body> {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    let has_one_host = match request.version() {
        Version::HTTP_2 => hosts <= 1 && request.uri().authority().is_some(),
        Version::HTTP_10 => hosts <= 1,
        _ => hosts == 1,
    };
    if !has_one_host {
        let mut response = ApiError::value("Host", "expected exactly one").answer().response();
        response.headers_mut().insert(header::CONNECTION, http::HeaderValue::from_static("close"));
        return response;
    }
    console.answer(request_meta, request).await
}
