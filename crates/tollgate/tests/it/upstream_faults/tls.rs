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
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tollgate_testkit::{Request, TestGateway};

use super::chat_body;
use crate::{
    admin::Admin,
    support::{self, PROGRAM},
};

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

/// As [`acceptor`], for clients with a certificate of `client-ca.pem` only.
fn demanding_acceptor() -> TlsAcceptor {
    let read = |file: &str| CertificateDer::pem_file_iter(format!("{FIXTURES}/{file}")).unwrap().map(Result::unwrap).collect();
    let mut roots = RootCertStore::empty();
    let authority: Vec<CertificateDer<'static>> = read("client-ca.pem");
    roots.add_parsable_certificates(authority);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build().unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(read("server.pem"), PrivateKeyDer::from_pem_file(format!("{FIXTURES}/server.key")).unwrap())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

impl Http2 {
    fn start(certificate: &'static str, answer: impl Fn(usize, Respond, &mut Connection) + Send + Sync + 'static) -> Self {
        Self::behind(acceptor(certificate), answer)
    }

    fn behind(acceptor: TlsAcceptor, answer: impl Fn(usize, Respond, &mut Connection) + Send + Sync + 'static) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let (counted, answer) = (Arc::clone(&requests), Arc::new(answer));
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, counted, answer) = (acceptor.clone(), Arc::clone(&counted), Arc::clone(&answer));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(socket).await else { return };
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

#[test]
fn channel_identifies_itself_with_its_client_certificate_and_never_shows_the_key() {
    let upstream = Http2::behind(demanding_acceptor(), |_, respond, _| whole(respond));
    let admin = Admin::of(TestGateway::builder(PROGRAM).spawn());
    let file = |name: &str| std::fs::read_to_string(format!("{FIXTURES}/{name}")).unwrap();
    let channel = json!({
        "name": "secured", "provider": "compatible", "base_url": format!("https://localhost:{}/v1", upstream.address.port()),
        "private_network": true, "cooling": false, "ca_file": format!("{FIXTURES}/ca.pem"),
        "accounts": [{"name": "main", "credential": "a-credential"}], "serves": [{"model": "chat-model"}],
    });
    admin.post("/admin/v1/channels", &channel);
    let test = || admin.gateway.run(&["channel", "test", "secured"]);
    let said = |output: &std::process::Output| {
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let without = said(&test());
    assert!(without.contains("does not accept the client certificate of the channel, or the channel has none"), "{without}");
    let change = |fields: &Value| admin.call("PATCH", "/admin/v1/channels/secured", Some(fields));
    for (fields, field, fault) in [
        (json!({"client_certificate": file("client.pem")}), "client_key", "is needed with client_certificate"),
        (
            json!({"client_certificate": "no PEM", "client_key": file("client.key")}),
            "client_certificate",
            "no certificate in PEM form",
        ),
        (
            json!({"client_certificate": file("client.pem"), "client_key": file("client-encrypted.key")}),
            "client_key",
            "is encrypted",
        ),
        (json!({"client_certificate": file("client.pem"), "client_key": file("other.key")}), "client_key", "does not belong"),
        (json!({"client_certificate": file("client.pem"), "client_key": "***"}), "client_key", "none is stored"),
    ] {
        let answer = change(&fields);
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["param"]), (400, &json!(field)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(fault), "{error}");
    }
    let pair = json!({"client_certificate": file("client.pem"), "client_key": file("client.key")});
    let shown = change(&pair);
    assert_eq!(shown.status, 200, "{}", shown.text());
    let row = admin.get("/admin/v1/channels/secured");
    assert_eq!((&row["client_certificate"], &row["client_key"]), (&json!(file("client.pem")), &json!("***")));
    // The key is kept when the masked row is sent back, and when the field is not sent.
    assert_eq!(change(&json!({"client_certificate": file("client.pem"), "client_key": "***"})).status, 200);
    assert_eq!(change(&json!({"weight": 2, "total_timeout_ms": 60_000})).status, 200);
    let with = said(&test());
    assert!(with.contains("TLS") && upstream.requests() > 0, "{with}");
    let secret = file("client.key").lines().nth(1).unwrap().to_owned();
    for path in ["/admin/v1/channels", "/admin/v1/catalog", "/admin/v1/audit", "/admin/v1/channels/secured/history"] {
        let text = admin.gateway.send(&Request::get(path).bearer(&admin.key)).text();
        assert!(!text.contains(&secret), "{path} shows the key");
    }
    let pulled = said(&admin.gateway.run(&["pull"]));
    assert!(pulled.contains("client_key = \"***\"") && !pulled.contains(&secret), "{pulled}");
    assert!(!admin.gateway.log().contains(&secret));
    assert_eq!(change(&json!({"client_certificate": null, "client_key": null})).status, 200);
    assert_eq!(admin.get("/admin/v1/channels/secured")["client_key"], Value::Null);
}

#[test]
fn catalog_file_names_the_files_of_a_client_certificate() {
    let upstream = Http2::behind(demanding_acceptor(), |_, respond, _| whole(respond));
    let url = format!("https://localhost:{}/v1", upstream.address.port());
    let lines = format!(
        "cooling = false\nca_file = \"{FIXTURES}/ca.pem\"\nclient_certificate = \"file:{FIXTURES}/client.pem\"\n\
         client_key = \"file:{FIXTURES}/client.key\""
    );
    let catalog = support::channel("chat", "openai", &url, "chat-model", &lines)
        + &support::prices(&["chat-model"])
        + &support::group(&["chat"]);
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!((answer.status, upstream.requests()), (200, 1), "{}", answer.text());
    let doctor = gateway.run(&["doctor"]);
    let found = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(!found.lines().any(|line| line.starts_with("FAIL") && line.contains("chat")), "{found}");
}
