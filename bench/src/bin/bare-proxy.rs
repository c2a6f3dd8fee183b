//! A proxy that does nothing but HTTP: the libraries and the threads of the gateway without its work. Its cost is the lower bound
//! for a request with these libraries, as nginx's cost is for the kernel and a proxy written in C.
//!
//! Two threads, each with its own listener on the same port and its own connections to the upstream. HTTP/1.1 on both sides; bodies
//! are passed on as they arrive. Options: `--listen ADDR --upstream ADDR`.

#![expect(clippy::disallowed_methods, reason = "the tasks of this program end with its process")]

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    thread,
};

use bytes::Bytes;
use hyper::{
    Request, Response, Uri,
    body::{Body, Frame, Incoming, SizeHint},
    client::conn::http1::{SendRequest, handshake},
    header::{self, HeaderMap, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::Builder,
};

/// The allocator of the gateway.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const THREADS: usize = 2;

type Connection = SendRequest<Incoming>;

/// State of one thread.
struct Core {
    upstream: SocketAddr,
    host: HeaderValue,
    idle: Mutex<Vec<Connection>>,
}

fn main() {
    let argument = |name: &str| {
        let value = std::env::args().skip_while(|argument| argument != name).nth(1).and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("{name} ADDR is missing"))
    };
    let (listen, upstream): (SocketAddr, SocketAddr) = (argument("--listen"), argument("--upstream"));
    let threads: Vec<_> =
        (0..THREADS).map(|_| thread::spawn(move || run(listen, upstream).expect("an address that is free"))).collect();
    for thread in threads {
        thread.join().expect("a thread serves until the process ends");
    }
}

fn run(listen: SocketAddr, upstream: SocketAddr) -> io::Result<()> {
    Builder::new_current_thread().enable_all().build()?.block_on(async move {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)?;
        socket.bind(listen)?;
        let listener = socket.listen(4_096)?;
        let host = HeaderValue::try_from(upstream.to_string()).map_err(io::Error::other)?;
        accept(listener, Arc::new(Core { upstream, host, idle: Mutex::default() })).await
    })
}

async fn accept(listener: TcpListener, core: Arc<Core>) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let core = Arc::clone(&core);
        tokio::spawn(async move {
            let service = service_fn(move |request| forward(Arc::clone(&core), request));
            // An error concerns only the peer.
            let _ = http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Passes a request to the upstream and its answer back. An error closes the connection.
async fn forward(core: Arc<Core>, request: Request<Incoming>) -> Result<Response<UpstreamAnswer>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let mut outgoing = Request::new(body);
    *outgoing.method_mut() = parts.method;
    *outgoing.uri_mut() = parts.uri.path_and_query().map_or(Uri::from_static("/"), |target| Uri::from(target.clone()));
    *outgoing.headers_mut() = passed_on(parts.headers);
    outgoing.headers_mut().insert(header::HOST, core.host.clone());
    let mut connection = core.connection().await?;
    let (mut head, body) = connection.send_request(outgoing).await?.into_parts();
    head.headers = passed_on(head.headers);
    Ok(Response::from_parts(head, UpstreamAnswer { body, kept: Some((core, connection)) }))
}

/// The body of an answer. At its end the connection is idle.
struct UpstreamAnswer {
    body: Incoming,
    kept: Option<(Arc<Core>, Connection)>,
}

impl Body for UpstreamAnswer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if (frame.is_none() || self.body.is_end_stream())
            && let Some((core, connection)) = self.kept.take()
        {
            core.keep(connection);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The headers without those that belong to one connection.
fn passed_on(mut headers: HeaderMap) -> HeaderMap {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH] {
        headers.remove(name);
    }
    headers
}

impl Core {
    fn take(&self) -> Option<Connection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn keep(&self, connection: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    /// An idle connection to the upstream, or a new one.
    async fn connection(&self) -> Result<Connection, hyper::Error> {
        loop {
            let Some(mut kept) = self.take() else { break };
            if !kept.is_closed() && kept.ready().await.is_ok() {
                return Ok(kept);
            }
        }
        let stream = TcpStream::connect(self.upstream).await.expect("the upstream runs");
        stream.set_nodelay(true).expect("a connected socket");
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // An error concerns only the request in progress, which receives it.
            let _ = connection.await;
        });
        Ok(sender)
    }
}
