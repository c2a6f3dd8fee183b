//! Upstream faults below HTTP: untrusted certificates, TLS alerts, HTTP/2 connections and streams closed by the upstream.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tollgate_testkit::TestGateway;

use super::chat_body;
use crate::support::{self, PROGRAM};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tollgate-gateway/fixtures/tls");

fn acceptor(certificate: &str) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(format!("{FIXTURES}/{certificate}")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(format!("{FIXTURES}/server.key")).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

type Connection = h2::server::Connection<TlsStream<TcpStream>, Bytes>;
type Respond = h2::server::SendResponse<Bytes>;

/// An HTTP/2 upstream that calls `answer` for every request, with the request's number from 0.
struct Http2 {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Http2 {
    fn start(certificate: &'static str, answer: impl Fn(usize, Respond, &mut Connection) + Send + Sync + 'static) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let (counted, answer) = (Arc::clone(&requests), Arc::new(answer));
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (counted, answer) = (Arc::clone(&counted), Arc::clone(&answer));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor(certificate).accept(socket).await else { return };
                    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                    while let Some(Ok((_request, respond))) = connection.accept().await {
                        answer(counted.fetch_add(1, Ordering::SeqCst), respond, &mut connection);
                    }
                });
            }
        });
        Self { address, requests, _runtime: runtime }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn gateway(address: SocketAddr) -> TestGateway {
    let url = format!("https://localhost:{}/v1", address.port());
    let lines = format!("cooling = false\nca_file = \"{FIXTURES}/ca.pem\"");
    let catalog = support::channel("chat", "openai", &url, "chat-model", &lines)
        + &support::prices(&["chat-model"])
        + &support::group(&["chat"]);
    TestGateway::builder(PROGRAM).catalog(&catalog).spawn()
}

fn head(content_type: &str) -> http::Response<()> {
    http::Response::builder().header("content-type", content_type).body(()).unwrap()
}

fn whole(mut respond: Respond) {
    let mut body = respond.send_response(head("application/json"), false).unwrap();
    body.send_data(Bytes::from(chat_body()), true).unwrap();
}

#[test]
fn refused_stream_is_retried_transparently() {
    let upstream =
        Http2::start(
            "server.pem",
            |number, mut respond, _| {
                if number == 0 { respond.send_reset(h2::Reason::REFUSED_STREAM) } else { whole(respond) }
            },
        );
    let gateway = gateway(upstream.address);
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("1")), "{}", answer.text());
    assert_eq!(upstream.requests(), 2);
}

/// Writes settings, the acknowledgement of ours, and a GOAWAY with `NO_ERROR` and last stream id 0, which says that the first
/// request was not processed.
async fn go_away(mut stream: TlsStream<TcpStream>) {
    const FRAMES: [[u8; 9]; 3] = [[0, 0, 0, 4, 0, 0, 0, 0, 0], [0, 0, 0, 4, 1, 0, 0, 0, 0], [0, 0, 8, 7, 0, 0, 0, 0, 0]];
    let mut read = Vec::new();
    // The last frame holds the body's text unencoded; when it arrived, so did the request.
    while !read.windows(13).any(|piece| piece == b"prompt-canary") {
        if !matches!(stream.read_buf(&mut read).await, Ok(1..)) {
            return;
        }
    }
    let goodbye = [FRAMES.as_flattened(), &[0; 8]].concat();
    let _ = stream.write_all(&goodbye).await;
    while matches!(stream.read_buf(&mut read).await, Ok(1..)) {}
}

#[test]
fn stream_above_the_goaway_last_stream_id_is_retried_transparently() {
    let runtime = Runtime::new().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&connections);
    runtime.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(stream) = acceptor("server.pem").accept(socket).await else { continue };
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                tokio::spawn(go_away(stream));
                continue;
            }
            tokio::spawn(async move {
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((_request, respond))) = connection.accept().await {
                    whole(respond);
                }
            });
        }
    });
    let gateway = gateway(address);
    for _ in 0..2 {
        let answer = gateway.chat(&support::chat("chat-model"));
        assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("1")), "{}", answer.text());
    }
    assert!(!gateway.log().contains("an attempt failed"), "no account is blamed: {}", gateway.log());
    assert!(connections.load(Ordering::SeqCst) > 1);
}

#[test]
fn goaway_during_a_stream_is_reported_and_the_next_request_reconnects() {
    let upstream = Http2::start("server.pem", |number, mut respond, connection| {
        if number > 0 {
            return whole(respond);
        }
        let mut body = respond.send_response(head("text/event-stream"), false).unwrap();
        let event = format!("data: {}\n\n", super::delta("\"hello\"", "null"));
        body.send_data(Bytes::from(event), false).unwrap();
        // After the event was written.
        connection.set_target_window_size(1 << 20);
        connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
    });
    let gateway = gateway(upstream.address);
    let answer = gateway.chat(&support::chat_stream("chat-model"));
    // Depending on timing the event was received or not: the stream is interrupted, or never began.
    match answer.status {
        200 => assert!(!answer.complete && answer.text().contains("upstream_stream_interrupted"), "{}", answer.text()),
        status => assert_eq!(status, 502, "{}", answer.text()),
    }
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn mismatched_and_expired_certificates_are_refused() {
    for certificate in ["other-name.pem", "expired.pem"] {
        let upstream = Http2::start(certificate, |_, respond, _| whole(respond));
        let gateway = gateway(upstream.address);
        let answer = gateway.chat(&support::chat("chat-model"));
        assert_eq!((answer.status, upstream.requests()), (502, 0), "{certificate}: {}", answer.text());
        assert!(answer.text().contains("upstream_unreachable"), "{certificate}: {}", answer.text());
    }
}

#[test]
fn tls_alert_counts_as_failed_connection() {
    let runtime = Runtime::new().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut hello = [0; 1024];
            let _ = socket.read(&mut hello).await;
            // Fatal: handshake_failure.
            let _ = socket.write_all(&[21, 3, 3, 0, 2, 2, 40]).await;
        }
    });
    let gateway = gateway(address);
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert!(answer.text().contains("upstream_unreachable"), "{}", answer.text());
}
