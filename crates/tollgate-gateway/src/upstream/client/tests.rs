//! Tests the connection pool against misbehaving upstreams. Each test has its own upstream on a free loopback port.

mod addresses;
mod kept;
mod malformed;
mod tls;
mod turns;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::mpsc,
    time::timeout,
};

use super::*;
use crate::{
    testing::{
        after_journal::AfterJournal,
        call,
        raw_upstream::{RawUpstream, read_request},
        usage_record,
    },
    upstream::call::{ConnectFault, TlsFault, UpstreamBody, UpstreamBodyFault, UpstreamCall, UpstreamError},
};

/// Longest wait in a test.
const TIMEOUT: Duration = Duration::from_secs(20);

impl Client {
    fn idle_count(&self, channel: &Arc<Channel>) -> usize {
        self.host(channel).unwrap().0.idle_count()
    }
}

fn client() -> Client {
    Client::new(Arc::new(Trust::default()), Arc::new(crate::clock::SystemClock))
}

async fn ask(client: &Client, call: &UpstreamCall) -> Result<UpstreamAnswer, UpstreamError> {
    timeout(TIMEOUT, client.call(call.clone())).await.expect("an answer or an error in time")
}

async fn read(body: UpstreamBody) -> Result<Bytes, UpstreamBodyFault> {
    timeout(TIMEOUT, body.collect()).await.expect("a body's end in time").map(http_body_util::Collected::to_bytes)
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

// === Connections ===

#[tokio::test]
async fn connection_is_reused() {
    let upstream = RawUpstream::answering(ok("{}")).await;
    let (client, call) = (client(), call(&upstream.url));
    for _ in 0..5 {
        let answer = ask(&client, &call).await.unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(read(answer.body).await.unwrap(), "{}");
    }
    assert_eq!(upstream.accepted(), 1);
}

#[tokio::test]
async fn connection_is_reused_after_a_chunked_response() {
    let upstream =
        RawUpstream::answering("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx-trailer: 1\r\n\r\n").await;
    let (client, call) = (client(), call(&upstream.url));
    for _ in 0..3 {
        assert_eq!(read(ask(&client, &call).await.unwrap().body).await.unwrap(), "{}");
    }
    assert_eq!(upstream.accepted(), 1);
}

#[tokio::test]
async fn request_bytes_are_as_expected() {
    let (tell, mut reports) = mpsc::channel(1);
    let upstream = RawUpstream::start(move |mut socket, _| {
        let tell = tell.clone();
        async move {
            let request = read_request(&mut socket).await.unwrap();
            socket.write_all(ok("{}").as_bytes()).await.unwrap();
            tell.send(request).await.unwrap();
        }
    })
    .await;
    let call = call(&upstream.url);
    ask(&client(), &call).await.unwrap();
    let request = reports.recv().await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<_> = head.lines().collect();
    assert_eq!(lines.remove(0), "POST /v1/chat/completions HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: {}", upstream.url.trim_start_matches("http://").trim_end_matches("/v1"));
    assert_eq!(
        lines,
        [
            "accept-encoding: identity",
            "accept: application/json",
            "authorization: Bearer sk-upstream-secret",
            "content-length: 30",
            "content-type: application/json",
            host.as_str(),
            concat!("user-agent: tollgate/", env!("CARGO_PKG_VERSION")),
        ]
    );
    assert_eq!(body, r#"{"model":"up-m","messages":[]}"#);
}

#[tokio::test]
async fn request_is_sent_after_its_entry_is_in_the_journal() {
    let (_peer, writer) = AfterJournal::new();
    let journal = Arc::clone(&writer);
    let upstream = RawUpstream::start(move |mut socket, _| {
        let journal = Arc::clone(&journal);
        async move {
            while read_request(&mut socket).await.is_some() {
                let answer = if journal.has_collected() { "early" } else { "{}" };
                socket.write_all(ok(answer).as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    let (client, call) = (client().with_journal(&writer), call(&upstream.url));
    for _ in 0..3 {
        drop(writer.end(&usage_record("m")).unwrap());
        assert!(writer.has_collected());
        assert_eq!(read(ask(&client, &call).await.unwrap().body).await.unwrap(), "{}");
    }
    assert_eq!(upstream.accepted(), 1);
}

#[tokio::test]
async fn answer_that_begins_before_the_request_is_read_is_received_and_the_rest_sent() {
    let upstream = RawUpstream::start(|mut socket, _| async move {
        let mut rest = [0; 1024];
        assert!(socket.read(&mut rest).await.unwrap() > 0);
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{").await.unwrap();
        let mut received = 0;
        while received < 4 << 20 {
            received += socket.read(&mut rest).await.unwrap();
        }
        socket.write_all(b" }").await.unwrap();
    })
    .await;
    let mut call = call(&upstream.url);
    call.body = Bytes::from(vec![b' '; 5 << 20]);
    let answer = ask(&client(), &call).await.unwrap();
    assert_eq!(read(answer.body).await.unwrap(), "{ }");
}

#[tokio::test]
async fn keep_alive_race_is_retried_on_a_new_connection() {
    let upstream = RawUpstream::start(|mut socket, _| async move {
        read_request(&mut socket).await.unwrap();
        socket.write_all(ok("{}").as_bytes()).await.unwrap();
    })
    .await;
    let (client, call) = (client(), call(&upstream.url));
    for _ in 0..20 {
        let answer = ask(&client, &call).await.expect("a closed idle connection is not a fault of the request");
        read(answer.body).await.unwrap();
        // The upstream's FIN may or may not have arrived; the next call must succeed either way.
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn refused_connection_counts_as_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let call = call(&format!("http://{}/v1", listener.local_addr().unwrap()));
    drop(listener);
    assert_eq!(ask(&client(), &call).await.unwrap_err(), UpstreamError::NotSent(ConnectFault::Refused));
    assert_eq!(call.sent.at(), None);
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let elsewhere = RawUpstream::answering(ok("{}")).await;
    let answer =
        format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {}/chat/completions\r\ncontent-length: 0\r\n\r\n", elsewhere.url);
    let upstream = RawUpstream::answering(answer).await;
    assert_eq!(ask(&client(), &call(&upstream.url)).await.unwrap().status, 307);
    assert_eq!(elsewhere.accepted(), 0, "the credential must not travel");
}

// === Cancellation ===

/// Checks that dropping a call or body closes the connection, as seen by the upstream.
async fn closes(dropped: impl AsyncFnOnce(Client, UpstreamCall), before: &'static [u8]) {
    let (tell, mut reports) = mpsc::channel(2);
    let upstream = RawUpstream::start(move |mut socket, _| {
        let tell = tell.clone();
        async move {
            read_request(&mut socket).await.unwrap();
            socket.write_all(before).await.unwrap();
            tell.send("asked").await.unwrap();
            let mut rest = [0; 16];
            while socket.read(&mut rest).await.is_ok_and(|n| n > 0) {}
            tell.send("closed").await.unwrap();
        }
    })
    .await;
    let (client, call) = (client(), call(&upstream.url));
    dropped(client, call).await;
    assert_eq!(timeout(TIMEOUT, reports.recv()).await.unwrap(), Some("asked"));
    assert_eq!(timeout(Duration::from_millis(500), reports.recv()).await.expect("closed at once"), Some("closed"));
}

#[tokio::test]
async fn dropped_body_closes_the_upstream_at_once() {
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
    closes(
        async |client, call| {
            let mut answer = ask(&client, &call).await.unwrap();
            assert_eq!(answer.body.frame().await.unwrap().unwrap().into_data().unwrap(), "hello");
            drop(answer);
        },
        head,
    )
    .await;
}

#[tokio::test]
async fn dropped_call_closes_the_upstream_at_once() {
    closes(
        async |client, call| {
            let sent = call.sent.clone();
            let under_way = client.call(call);
            // Dropped after the request was sent and some time has passed.
            let waited = timeout(Duration::from_millis(100), under_way).await;
            assert!(waited.is_err() && sent.at().is_some());
        },
        b"",
    )
    .await;
}
