//! The whole data plane on sockets: a raw caller, the listener, the path, the pool, a raw upstream.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tollgate_core::Outcome;

use super::*;
use crate::{
    clock::SystemClock,
    fallback::NotFound,
    server::{Drained, listen, run},
    testing::raw_upstream::{RawUpstream, read_request},
    upstream::{client::Client, echo::UpstreamDispatch},
};

const TIMEOUT: Duration = Duration::from_secs(20);
/// Time within which an upstream must be closed after its caller has left.
const AT_ONCE: Duration = Duration::from_millis(500);

struct Gate {
    address: SocketAddr,
    usage_writer: UsageWriter,
    shutdown: CancellationToken,
    running: tokio::task::JoinHandle<Drained>,
    _dir: TempDir,
}

impl Gate {
    fn before(upstream: &RawUpstream) -> Self {
        let mut channel = channel(&upstream.url);
        channel.accounts = vec![Arc::new(account(1))];
        let group = group(&channel);
        let mut key = key();
        key.groups = vec![group.id];
        let catalog = Catalog::from_parts(Revision(1), vec![channel], vec![group], Vec::new());
        let dir = TempDir::new().unwrap();
        let (journal, _) = Journal::open(JournalOptions::new(dir.path().to_owned(), uuid::Uuid::nil())).unwrap();
        let (journal, registry, store) = (Arc::new(journal), Arc::new(HealthRegistry::default()), MemoryStore::new(key));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let shared = shared_with(store.clone(), Settings::default(), catalog, Arc::clone(&clock));
        let (queue, usage_writer) =
            UsageWriter::new(store.clone(), store, Arc::clone(&journal), Arc::clone(&registry), Arc::clone(&shared));
        let settings = crate::settings::Settings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            cores: 1,
            ..crate::settings::Settings::default()
        };
        let listening = listen(&settings).unwrap();
        let address = listening.address();
        let shutdown = CancellationToken::new();
        let path = {
            let (shared, trust) = (Arc::clone(&shared), Arc::clone(&shared.trust));
            move |core| {
                let recorder = UsageRecorder::open(Arc::clone(&shared), &journal, core, queue.clone(), Arc::clone(&registry))?;
                let client = Client::new(Arc::clone(&trust), Arc::clone(&clock)).with_journal(&recorder.journal);
                let outside = UpstreamDispatch::new(client, Arc::clone(&clock));
                Ok(Worker::new(recorder, Arc::new(outside))?)
            }
        };
        let serving = run(Arc::clone(&shared), listening, path, Arc::new(NotFound), shutdown.clone());
        let running = shared.tracker.spawn(async move { serving.await.unwrap() });
        Self { address, usage_writer, shutdown, running, _dir: dir }
    }

    async fn ask(&self, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: gate\r\nauthorization: Bearer {SECRET}\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        socket
    }

    async fn record(&mut self) -> UsageRecord {
        timeout(TIMEOUT, self.usage_writer.next()).await.expect("a record in time").unwrap()
    }

    async fn close(self) {
        self.shutdown.cancel();
        assert_eq!(timeout(TIMEOUT, self.running).await.unwrap().unwrap(), Drained::Complete);
    }
}

async fn read_all(mut socket: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = timeout(TIMEOUT, socket.read_to_end(&mut bytes)).await.expect("the connection ends");
    String::from_utf8(bytes).unwrap()
}

async fn read_until(socket: &mut TcpStream, mark: &str) -> String {
    let mut text = String::new();
    while !text.contains(mark) {
        let mut piece = [0; 4_096];
        let n = timeout(TIMEOUT, socket.read(&mut piece)).await.expect("more in time").unwrap();
        assert!(n > 0, "ended before {mark}: {text}");
        text.push_str(std::str::from_utf8(&piece[..n]).unwrap());
    }
    text
}

fn text(piece: &Piece) -> String {
    let Piece::Data(bytes) = piece else { unreachable!("only data here") };
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn chunked(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// An upstream that gives this answer, and signals when the request has arrived and when its connection is closed.
async fn reporting(answer: String) -> (RawUpstream, mpsc::Receiver<&'static str>) {
    let (sender, seen) = mpsc::channel(4);
    let upstream = RawUpstream::start(move |mut socket, _| {
        let (sender, answer) = (sender.clone(), answer.clone());
        async move {
            read_request(&mut socket).await.unwrap();
            socket.write_all(answer.as_bytes()).await.unwrap();
            sender.send("asked").await.unwrap();
            let mut rest = [0; 64];
            while socket.read(&mut rest).await.is_ok_and(|n| n > 0) {}
            sender.send("closed").await.unwrap();
        }
    })
    .await;
    (upstream, seen)
}

#[tokio::test]
async fn complete_answer_has_a_length_and_keeps_the_connection() {
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{REPLY}", REPLY.len());
    let upstream = RawUpstream::answering(answer).await;
    let mut gate = Gate::before(&upstream);
    let mut socket = gate.ask(CHAT).await;
    let seen = read_until(&mut socket, "\"total_tokens\":4}}").await;
    assert!(seen.starts_with("HTTP/1.1 200 OK\r\n") && seen.contains("content-length: "), "{seen}");
    assert!(!seen.contains("transfer-encoding"), "{seen}");
    assert_eq!(gate.record().await.outcome, Outcome::Completed);
    drop(socket);
    gate.close().await;
}

#[tokio::test]
async fn broken_stream_ends_with_the_error_event_and_without_the_last_chunk() {
    let broken = format!("{STREAM_HEAD}{}{}", chunked(&text(&role())), chunked(&text(&chunk("hello"))));
    let upstream = RawUpstream::answering_once(broken).await;
    let mut gate = Gate::before(&upstream);
    let seen = read_all(gate.ask(STREAM).await).await;
    assert!(seen.contains("hello"), "{seen}");
    let (_, tail) = seen.split_once("upstream_stream_interrupted\"}}\n\n").expect("the error event arrives");
    assert_eq!(tail, "\r\n", "its own chunk ends, and nothing follows");
    assert_eq!(gate.record().await.reason.as_deref(), Some("E59"));
    gate.close().await;
}

#[tokio::test]
async fn complete_stream_ends_with_the_last_chunk() {
    let whole = format!("{STREAM_HEAD}{}{}0\r\n\r\n", chunked(&text(&chunk("hello"))), chunked(&text(&tail())));
    let upstream = RawUpstream::answering(whole).await;
    let mut gate = Gate::before(&upstream);
    let mut socket = gate.ask(STREAM).await;
    let seen = read_until(&mut socket, "0\r\n\r\n").await;
    assert!(seen.contains("data: [DONE]\n\n"), "{seen}");
    assert_eq!(gate.record().await.tokens.output, 2);
    drop(socket);
    gate.close().await;
}

#[tokio::test]
async fn disconnect_during_a_stream_closes_the_upstream_at_once() {
    let (upstream, mut seen) = reporting(format!("{STREAM_HEAD}{}", chunked(&text(&chunk("hello"))))).await;
    let mut gate = Gate::before(&upstream);
    let mut socket = gate.ask(STREAM).await;
    read_until(&mut socket, "hello").await;
    assert_eq!(seen.recv().await, Some("asked"));
    drop(socket);
    assert_eq!(timeout(AT_ONCE, seen.recv()).await.expect("closed at once"), Some("closed"));
    let record = gate.record().await;
    assert_eq!((record.outcome, record.status), (Outcome::CallerLeft, 200));
    assert!(record.tokens.output > 0);
    gate.close().await;
}

#[tokio::test]
async fn disconnect_while_waiting_closes_the_upstream_at_once() {
    for body in [CHAT, STREAM] {
        let (upstream, mut seen) = reporting(String::new()).await;
        let mut gate = Gate::before(&upstream);
        let socket = gate.ask(body).await;
        assert_eq!(timeout(TIMEOUT, seen.recv()).await.unwrap(), Some("asked"));
        drop(socket);
        assert_eq!(timeout(AT_ONCE, seen.recv()).await.expect("closed at once"), Some("closed"));
        let record = gate.record().await;
        assert_eq!((record.outcome, record.status), (Outcome::CallerLeft, 499));
        gate.close().await;
    }
}
