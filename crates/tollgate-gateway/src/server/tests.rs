//! The listener on loopback sockets, with a scripted model path.

mod draining;
mod evictions;
mod handing_over;
mod heads;
mod limits;
mod protocols;

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};
use tollgate_core::Catalog;

use super::*;
use crate::{
    fallback::NotFound,
    path::receive::receive,
    response::{AnswerAborted, whole},
    settings::Settings,
    testing::{SECRET, shared},
};

/// Longest wait in a test.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of an answer that is larger than small socket buffers.
const LARGE: usize = 60 * 1024;

/// Checks key and body like the model path, then follows the header `x-script`; by default it answers with the length
/// of the body.
struct Script(Arc<Shared>);

impl ModelPath for Script {
    async fn serve(&self, incoming: Incoming) -> Response<AnswerBody> {
        let Incoming { head, body, .. } = incoming;
        let refused = |refusal: crate::refusal::Refusal| refusal.respond(&head, &refusal.problem(&head));
        if let Err(error) = self.0.keys.caller_of(&Catalog::default(), &head, head.arrived).await {
            return refused(error.refusal);
        }
        let body = match receive(&head, body, &head.settings.bounds).await {
            Ok(body) => body,
            Err(refusal) => return refused(refusal),
        };
        match head.headers.get("x-script").map(http::HeaderValue::as_bytes) {
            Some(b"panic") => panic!("as the script says"),
            Some(b"panic midway") => {
                stream(2, |n| if n == 1 { panic!("as the script says") } else { Bytes::from_static(b"piece") })
            }
            Some(b"hang") => std::future::pending().await,
            Some(b"hang midway") => {
                let pieces = futures_util::stream::iter([Ok(http_body::Frame::data(Bytes::from_static(b"piece")))]);
                let pieces = futures_util::StreamExt::chain(pieces, futures_util::stream::pending::<Result<_, AnswerAborted>>());
                Response::new(AnswerBody::of(StreamBody::new(pieces)))
            }
            Some(b"large") => Response::new(whole(Bytes::from(vec![b'x'; LARGE]))),
            Some(b"flood") => stream(100_000, |_| Bytes::from_static(&[b'x'; 16 * 1024])),
            _ => Response::new(whole(Bytes::from(format!("length {}", body.len())))),
        }
    }
}

fn stream(pieces: usize, piece: impl Fn(usize) -> Bytes + Send + 'static) -> Response<AnswerBody> {
    let pieces = futures_util::stream::iter((0..pieces).map(move |n| Ok::<_, Infallible>(http_body::Frame::data(piece(n)))));
    Response::new(AnswerBody::of(StreamBody::new(pieces).map_err(|never| match never {})))
}

/// A running gateway.
struct Gate {
    address: SocketAddr,
    shared: Arc<Shared>,
    shutdown: CancellationToken,
    run: JoinHandle<Result<Drained, RunError>>,
}

impl Gate {
    fn open(settings: Settings) -> Self {
        Self::with(settings, Arc::new(NotFound))
    }

    fn with(mut settings: Settings, fallback: Arc<dyn FallbackService>) -> Self {
        settings.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        settings.cores = 1;
        let listening = listen(&settings).unwrap();
        Self::on(listening, settings, fallback)
    }

    fn on(listening: Listening, settings: Settings, fallback: Arc<dyn FallbackService>) -> Self {
        let address = listening.address();
        let shared = shared(settings, Catalog::default());
        let shutdown = CancellationToken::new();
        let path = {
            let shared = Arc::clone(&shared);
            move |_| Ok(Script(Arc::clone(&shared)))
        };
        let run = shared.tracker.spawn(run(Arc::clone(&shared), listening, path, fallback, shutdown.clone()));
        Self { address, shared, shutdown, run }
    }

    async fn connect(&self) -> Caller {
        Caller { socket: TcpStream::connect(self.address).await.unwrap(), read: Vec::new() }
    }

    /// Sends bytes on a new connection and reads everything up to its end.
    async fn say(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut caller = self.connect().await;
        caller.send(bytes).await;
        caller.rest().await
    }

    /// Waits until no request is in progress.
    async fn quiet(&self) {
        let quiet = async {
            while self.shared.serving.in_flight() > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(TIMEOUT, quiet).await.expect("a request is stuck");
    }

    async fn close(self) -> Drained {
        self.shutdown.cancel();
        timeout(TIMEOUT, self.run).await.expect("the gateway ends").unwrap().unwrap()
    }
}

/// A caller on a raw socket.
struct Caller {
    socket: TcpStream,
    read: Vec<u8>,
}

impl Caller {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Everything up to the end of the connection.
    async fn rest(&mut self) -> String {
        let mut text = String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned();
        let mut bytes = Vec::new();
        // A reset ends the connection too.
        let _ = timeout(TIMEOUT, self.socket.read_to_end(&mut bytes)).await.expect("the connection ends");
        text.push_str(&String::from_utf8_lossy(&bytes));
        text
    }

    /// Reads until `end` has arrived; returns everything up to and including it.
    async fn until(&mut self, end: &str) -> String {
        let reading = async {
            loop {
                if let Some(at) = memchr::memmem::find(&self.read, end.as_bytes()) {
                    let rest = self.read.split_off(at + end.len());
                    return String::from_utf8_lossy(&std::mem::replace(&mut self.read, rest)).into_owned();
                }
                let read = self.socket.read_buf(&mut self.read).await.unwrap();
                assert_ne!(read, 0, "ended before '{end}': {}", String::from_utf8_lossy(&self.read));
            }
        };
        timeout(TIMEOUT, reading).await.unwrap_or_else(|_| panic!("'{end}' did not come"))
    }
}

/// A chat request with a known key, further header lines and a body.
fn chat(lines: &str, body: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n{lines}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The statuses of a sequence of HTTP/1.1 responses.
fn statuses(text: &str) -> Vec<u16> {
    text.split("HTTP/1.").skip(1).filter_map(|answer| answer.get(2..)).filter_map(|answer| answer.get(..3)?.parse().ok()).collect()
}
