//! HTTP/2 with prior knowledge, TLS, and paths outside the model path.

use http::{Request, StatusCode, Version};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};

use super::*;
use crate::{fallback::queue, settings::TlsFiles};

type Sender = http2::SendRequest<Full<Bytes>>;

async fn http2<S>(io: S, tracker: &TaskTracker) -> Sender
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await.unwrap();
    tracker.spawn(connection);
    sender
}

async fn ask(sender: &mut Sender, script: &str, body: &'static str) -> (StatusCode, http::HeaderMap, Bytes) {
    let request = Request::post("http://x/v1/chat/completions")
        .header("authorization", format!("Bearer {SECRET}"))
        .header("x-script", script)
        .body(Full::new(Bytes::from_static(body.as_bytes())))
        .unwrap();
    let response = timeout(TIMEOUT, sender.send_request(request)).await.unwrap().unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    let (head, body) = response.into_parts();
    (head.status, head.headers, body.collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn http2_with_prior_knowledge() {
    let gate = Gate::open(Settings::default());
    let mut sender = http2(TcpStream::connect(gate.address).await.unwrap(), &gate.shared.tracker).await;
    let (status, headers, body) = ask(&mut sender, "", "12345").await;
    assert_eq!((status, &body[..]), (StatusCode::OK, &b"length 5"[..]));
    assert!(headers.contains_key("x-request-id"));
    assert_eq!(ask(&mut sender, "panic", "").await.0, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(ask(&mut sender, "", "").await.0, StatusCode::OK, "the connection stays open");

    let unknown = Request::get("http://x/v1beta/nothing").body(Full::new(Bytes::new())).unwrap();
    let response = sender.send_request(unknown).await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert!(!response.headers().contains_key("connection"));
    gate.close().await;
}

#[tokio::test]
async fn unread_http2_stream_is_closed() {
    let mut settings = Settings::default();
    settings.http.idle_timeout = Duration::from_millis(150);
    let gate = Gate::open(settings);
    let socket = TcpStream::connect(gate.address).await.unwrap();
    let (mut sender, connection) =
        http2::Builder::new(TokioExecutor::new()).initial_stream_window_size(1_024).handshake(TokioIo::new(socket)).await.unwrap();
    gate.shared.tracker.spawn(connection);
    let request = Request::post("http://x/v1/chat/completions")
        .header("authorization", format!("Bearer {SECRET}"))
        .header("x-script", "flood")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    gate.quiet().await;
    gate.close().await;
}

fn fixture(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

#[tokio::test]
async fn tls_offers_both_protocols() {
    let files = TlsFiles { certificate: fixture("localhost.cert.pem"), key: fixture("localhost.key.pem") };
    let gate = Gate::open(Settings { tls: Some(files), ..Settings::default() });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(fixture("localhost.cert.pem")).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    for alpn in ["h2", "http/1.1"] {
        let mut config = config.clone();
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let socket = TcpStream::connect(gate.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap();
        if alpn == "h2" {
            let mut sender = http2(stream, &gate.shared.tracker).await;
            assert_eq!(ask(&mut sender, "", "1").await.2, "length 1");
        } else {
            stream.write_all(chat("Connection: close\r\n", "22").as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.ends_with("length 2"), "{answer}");
        }
    }
    assert_eq!(gate.say("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.matches("HTTP/1.1 200").count(), 0);
    gate.close().await;
}

#[tokio::test]
async fn other_paths_go_to_the_fallback_service() {
    let (fallback, mut visits) = queue();
    let gate = Gate::with(Settings::default(), Arc::new(fallback));
    gate.shared.tracker.spawn(async move {
        while let Some(waiting) = visits.next().await {
            let (head, body) = waiting.request.request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let text = format!("{} {} {}", head.method, head.uri, body.len());
            waiting.reply.send(Response::new(Full::new(Bytes::from(text)))).await;
        }
    });
    let answer = gate.say("PUT /console/x?y HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc").await;
    assert!(answer.contains("x-request-id: req_") && answer.contains("PUT /console/x?y 3"), "{answer}");
    let ours = gate.say("GET /v1/nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert_eq!(statuses(&ours), [404]);
    gate.close().await;
}
