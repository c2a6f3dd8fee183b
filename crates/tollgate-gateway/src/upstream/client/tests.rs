//! The connection pool against misbehaving upstreams; every test has its own on a free loopback port.

mod kept;
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

use tollgate_core::{AddressLists, UnlistedAddress};

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
    let (tell, mut told) = mpsc::channel(1);
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
    let request = told.recv().await.unwrap();
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
        let answer = ask(&client, &call).await.expect("a closed idle connection is no fault of the request");
        read(answer.body).await.unwrap();
        // The upstream's FIN may or may not have arrived; the next call must succeed either way.
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn connections_to_addresses_removed_from_dns_are_dropped() {
    let upstream = RawUpstream::answering(ok("{}")).await;
    let (client, call) = (client(), call(&upstream.url.replace("127.0.0.1", "localhost")));
    let whole = async || read(ask(&client, &call).await.unwrap().body).await.unwrap();
    whole().await;
    whole().await;
    let host = client.host(&call.channel).unwrap().0;
    assert_eq!((upstream.accepted(), host.idle_count()), (1, 1));
    host.renamed(vec!["127.0.0.1".parse().unwrap()]);
    assert_eq!(host.idle_count(), 1, "the name still has this address");
    let elsewhere = vec!["192.0.2.1".parse().unwrap()];
    host.renamed(elsewhere.clone());
    assert_eq!(host.idle_count(), 0);
    let under_way = ask(&client, &call).await.unwrap();
    host.renamed(elsewhere);
    assert_eq!(read(under_way.body).await.unwrap(), "{}", "a request in progress completes");
    assert_eq!((upstream.accepted(), host.idle_count()), (2, 0));
}

#[tokio::test]
async fn sweep_resolves_names_of_kept_connections_again() {
    let upstream = RawUpstream::answering(ok("{}")).await;
    let (client, call) = (client(), call(&upstream.url.replace("127.0.0.1", "localhost")));
    read(ask(&client, &call).await.unwrap().body).await.unwrap();
    let host = client.host(&call.channel).unwrap().0;
    // Clears the known addresses; the new resolution contains this one.
    host.renamed(Vec::new());
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(13)).await;
    tokio::time::resume();
    host.follow_name().await;
    assert_eq!(host.idle_count(), 1, "localhost still has this address");
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
async fn loopback_is_denied_without_the_flag() {
    let upstream = RawUpstream::answering(ok("{}")).await;
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]", "169.254.169.254", "10.0.0.1", "2130706433", "0x7f.1"] {
        let port = upstream.url.trim_end_matches("/v1").rsplit_once(':').unwrap().1;
        let mut call = call(&format!("http://{host}:{port}/v1"));
        let mut row = (*call.channel).clone();
        row.spec.private_network = false;
        call.channel = row.into();
        assert_eq!(ask(&client(), &call).await.unwrap_err(), UpstreamError::NotSent(ConnectFault::Denied), "{host}");
    }
    assert_eq!(upstream.accepted(), 0);
}

#[tokio::test]
async fn removing_private_network_drops_the_connections() {
    let upstream = RawUpstream::answering(ok("{}")).await;
    let (client, mut call) = (client(), call(&upstream.url));
    read(ask(&client, &call).await.unwrap().body).await.unwrap();
    let mut row = (*call.channel).clone();
    row.spec.weight = 7;
    call.channel = Arc::new(row.clone());
    read(ask(&client, &call).await.unwrap().body).await.unwrap();
    assert_eq!(upstream.accepted(), 1, "a new weight does not change the destination");
    row.spec.private_network = false;
    call.channel = row.into();
    assert_eq!(ask(&client, &call).await.unwrap_err(), UpstreamError::NotSent(ConnectFault::Denied));
}

fn denied(networks: &[&str]) -> AddressLists {
    AddressLists::new(Vec::new(), networks.iter().map(|network| network.parse().unwrap()).collect())
}

#[tokio::test]
async fn kept_connection_to_an_address_that_is_denied_meanwhile_is_not_used_again() {
    let upstream = RawUpstream::answering(ok("{}")).await;
    let trust = Arc::new(Trust::default());
    let client = Client::new(Arc::clone(&trust), Arc::new(crate::clock::SystemClock));
    for base_url in [upstream.url.clone(), upstream.url.replace("127.0.0.1", "localhost")] {
        let mut call = call(&base_url);
        let mut row = (*call.channel).clone();
        row.id = tollgate_core::ChannelId::from_parts(tollgate_core::Timestamp(0), [u8::try_from(base_url.len()).unwrap(); 10]);
        call.channel = row.into();
        let whole = async || read(ask(&client, &call).await.unwrap().body).await.unwrap();
        let before = upstream.accepted();
        whole().await;
        trust.replace_addresses(denied(&["192.0.2.0/24"]));
        whole().await;
        assert_eq!((upstream.accepted(), client.idle_count(&call.channel)), (before + 1, 1), "lists that permit it keep it");
        let under_way = ask(&client, &call).await.unwrap();
        trust.replace_addresses(denied(&["127.0.0.0/8", "::1/128"]));
        assert_eq!(read(under_way.body).await.unwrap(), "{}", "a request in progress completes");
        let refused = ask(&client, &call).await.unwrap_err();
        assert_eq!(refused, UpstreamError::NotSent(ConnectFault::Unlisted(UnlistedAddress::Denied)), "{base_url}");
        assert_eq!((upstream.accepted(), client.idle_count(&call.channel)), (before + 1, 0));
        trust.replace_addresses(AddressLists::default());
        whole().await;
        assert_eq!(upstream.accepted(), before + 2, "on a new connection");
        trust.replace_addresses(denied(&["127.0.0.0/8", "::1/128"]));
        let host = client.host(&call.channel).unwrap().0;
        assert!(!host.sweep(trust.addresses()) && host.idle_count() == 0, "closed without a request");
        trust.replace_addresses(AddressLists::default());
    }
}

#[tokio::test]
async fn kept_connection_through_a_proxy_follows_the_address_of_the_proxy_and_of_the_destination() {
    // Accepts CONNECT, then answers each request itself.
    let proxy = RawUpstream::start(|mut socket, _| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        while read_request(&mut socket).await.is_some() {
            socket.write_all(ok("{}").as_bytes()).await.unwrap();
        }
    })
    .await;
    let trust = Arc::new(Trust::default());
    let client = Client::new(Arc::clone(&trust), Arc::new(crate::clock::SystemClock));
    let mut call = call("http://8.8.8.8/v1");
    let mut row = (*call.channel).clone();
    row.proxy = Some(tollgate_core::Secret::new(proxy.url.trim_end_matches("/v1").to_owned()));
    call.channel = row.into();
    let mut accepted = 0;
    for network in ["8.8.8.0/24", "127.0.0.0/8"] {
        for _ in 0..2 {
            read(ask(&client, &call).await.unwrap().body).await.unwrap();
        }
        accepted += 1;
        assert_eq!(proxy.accepted(), accepted);
        trust.replace_addresses(denied(&[network]));
        let refused = ask(&client, &call).await.unwrap_err();
        assert_eq!(refused, UpstreamError::NotSent(ConnectFault::Unlisted(UnlistedAddress::Denied)), "{network}");
        trust.replace_addresses(AddressLists::default());
    }
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
    let (tell, mut told) = mpsc::channel(2);
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
    assert_eq!(timeout(TIMEOUT, told.recv()).await.unwrap(), Some("asked"));
    assert_eq!(timeout(Duration::from_millis(500), told.recv()).await.expect("closed at once"), Some("closed"));
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

// === Malformed responses ===

async fn fails_before_the_body(answer: impl Into<Vec<u8>>) -> UpstreamError {
    let upstream = RawUpstream::answering_once(answer).await;
    ask(&client(), &call(&upstream.url)).await.expect_err("no usable head")
}

async fn fails_in_the_body(answer: impl Into<Vec<u8>>) -> UpstreamBodyFault {
    let upstream = RawUpstream::answering_once(answer).await;
    read(ask(&client(), &call(&upstream.url)).await.unwrap().body).await.expect_err("no whole body")
}

#[tokio::test]
async fn garbage_instead_of_http_is_unreadable() {
    let garbage = UpstreamError::Unreadable("not an HTTP answer");
    assert_eq!(fails_before_the_body("\0\u{1}\u{2} garbage\r\n\r\n").await, garbage);
    assert_eq!(fails_before_the_body("HTTP/9.9 200 OK\r\n\r\n").await, garbage);
    assert_eq!(fails_before_the_body("SSH-2.0-OpenSSH_9.2\r\n").await, garbage);
}

#[tokio::test]
async fn head_with_ten_thousand_headers_is_refused() {
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    for i in 0..10_000 {
        head.extend_from_slice(format!("x-{i}: y\r\n").as_bytes());
    }
    head.extend_from_slice(b"content-length: 2\r\n\r\n{}");
    assert_eq!(fails_before_the_body(head).await, UpstreamError::Unreadable("answer head too large"));
}

#[tokio::test]
async fn header_of_a_megabyte_is_refused() {
    let head = format!("HTTP/1.1 200 OK\r\nx-big: {}\r\ncontent-length: 2\r\n\r\n{{}}", "y".repeat(1 << 20));
    assert_eq!(fails_before_the_body(head).await, UpstreamError::Unreadable("answer head too large"));
}

#[tokio::test]
async fn close_before_the_head_is_complete_is_lost() {
    assert_eq!(fails_before_the_body("").await, UpstreamError::Lost);
    assert_eq!(fails_before_the_body("HTTP/1.1 200 OK\r\ncontent-le").await, UpstreamError::Lost);
}

#[tokio::test]
async fn reset_before_the_head_is_lost() {
    let upstream = RawUpstream::start(|mut socket, _| async move {
        read_request(&mut socket).await.unwrap();
        socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
    })
    .await;
    assert_eq!(ask(&client(), &call(&upstream.url)).await.unwrap_err(), UpstreamError::Lost);
}

#[tokio::test]
async fn reset_after_the_head_or_mid_chunk_is_lost() {
    for before in
        ["HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n50\r\nhel"]
    {
        let (go, wait) = mpsc::channel::<()>(1);
        let wait = Arc::new(tokio::sync::Mutex::new(wait));
        let upstream = RawUpstream::start(move |mut socket, _| {
            let wait = Arc::clone(&wait);
            async move {
                read_request(&mut socket).await.unwrap();
                socket.write_all(before.as_bytes()).await.unwrap();
                wait.lock().await.recv().await;
                socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
            }
        })
        .await;
        let answer = ask(&client(), &call(&upstream.url)).await.unwrap();
        go.send(()).await.unwrap();
        assert_eq!(read(answer.body).await.unwrap_err(), UpstreamBodyFault::Lost);
    }
}

#[tokio::test]
async fn body_shorter_than_declared_is_lost() {
    assert_eq!(fails_in_the_body("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}").await, UpstreamBodyFault::Lost);
    assert_eq!(
        fails_in_the_body("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n").await,
        UpstreamBodyFault::Lost
    );
}

#[tokio::test]
async fn invalid_chunk_size_is_a_fault() {
    let faults = [
        fails_in_the_body("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n").await,
        fails_in_the_body("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n").await,
    ];
    assert!(faults.iter().all(|fault| matches!(fault, UpstreamBodyFault::Unreadable | UpstreamBodyFault::Lost)), "{faults:?}");
}

#[tokio::test]
async fn body_longer_than_declared_is_truncated() {
    let upstream = RawUpstream::answering_once(
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
    )
    .await;
    let (client, call) = (client(), call(&upstream.url));
    assert_eq!(read(ask(&client, &call).await.unwrap().body).await.unwrap(), "{}");
    // The excess bytes must not become the next caller's response.
    let next = ask(&client, &call).await;
    if let Ok(next) = next {
        assert_eq!(read(next.body).await.unwrap(), "{}");
    }
    assert!(upstream.accepted() >= 2);
}

#[tokio::test]
async fn body_of_204_is_ignored() {
    let upstream = RawUpstream::answering_once("HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\nevil").await;
    let answer = ask(&client(), &call(&upstream.url)).await.unwrap();
    assert_eq!((answer.status, read(answer.body).await.unwrap().len()), (204, 0));
}

#[tokio::test]
async fn interim_answers_are_skipped() {
    let flood = format!("{}{}", "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".repeat(20_000), ok("{}"));
    let upstream = RawUpstream::answering_once(flood).await;
    assert_eq!(ask(&client(), &call(&upstream.url)).await.unwrap().status, 200);
}

#[tokio::test]
async fn unsolicited_101_is_not_a_success() {
    let upstream =
        RawUpstream::answering_once("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nevil").await;
    match ask(&client(), &call(&upstream.url)).await {
        Ok(answer) => assert_eq!(answer.status, 101),
        Err(fault) => assert!(!matches!(fault, UpstreamError::NotSent(_)), "{fault}"),
    }
}

#[tokio::test]
async fn answer_before_the_request_was_read_is_returned_or_refused() {
    let upstream = RawUpstream::start(|mut socket, _| async move {
        socket.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").await.unwrap();
        let mut rest = [0; 1024];
        while socket.read(&mut rest).await.is_ok_and(|n| n > 0) {}
    })
    .await;
    let mut call = call(&upstream.url);
    call.body = Bytes::from(vec![b' '; 4 << 20]);
    match ask(&client(), &call).await {
        Ok(answer) => assert_eq!(answer.status, 413),
        // A response that arrived before the request belongs to no request.
        Err(fault) => assert!(matches!(
            fault,
            UpstreamError::Lost | UpstreamError::Unreadable(_) | UpstreamError::NotSent(ConnectFault::Closed)
        )),
    }
}
