//! TLS and HTTP/2: certificate checks, protocol versions, and stream and connection errors.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::task::TaskTracker;

use super::*;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/tls");

fn certificates(file: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(format!("{FIXTURES}/{file}")).unwrap().map(Result::unwrap).collect()
}

fn acceptor(certificate: &str, alpn: &[&[u8]]) -> TlsAcceptor {
    let chain = certificates(certificate);
    let key = PrivateKeyDer::from_pem_file(format!("{FIXTURES}/server.key")).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// An acceptor for a server that serves only clients with a certificate of `client-ca.pem`, over these versions of TLS.
fn demanding_acceptor(versions: &[&'static rustls::SupportedProtocolVersion], alpn: &[&[u8]]) -> TlsAcceptor {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificates("client-ca.pem").remove(0)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build().unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates("server.pem"), PrivateKeyDer::from_pem_file(format!("{FIXTURES}/server.key")).unwrap())
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// A TLS server that answers over HTTP/2 or HTTP/1.1 and reports the negotiated protocol of every connection.
async fn tls_upstream(certificate: &str, alpn: &[&[u8]]) -> (String, mpsc::Receiver<&'static str>) {
    answering(acceptor(certificate, alpn)).await
}

async fn answering(acceptor: TlsAcceptor) -> (String, mpsc::Receiver<&'static str>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
    let (tell, reports) = mpsc::channel(16);
    let tasks = TaskTracker::new();
    let own = tasks.clone();
    tasks.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(socket).await else { continue };
            let spoken = if stream.get_ref().1.alpn_protocol() == Some(b"h2") { "h2" } else { "http/1.1" };
            let _ = tell.send(spoken).await;
            own.spawn(async move {
                let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                    let secure = request.version() != http::Version::HTTP_2 || request.uri().scheme_str() == Some("https");
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    assert!(secure && !body.is_empty());
                    Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::new(Bytes::from_static(b"{}"))))
                });
                let builder = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
                let _ = builder.serve_connection(hyper_util::rt::TokioIo::new(stream), service).await;
            });
        }
    });
    (url, reports)
}

pub(super) fn trusting_call(url: &str) -> UpstreamCall {
    let mut call = call(url);
    let mut row = (*call.channel).clone();
    row.spec.ca_file = Some(format!("{FIXTURES}/ca.pem"));
    call.channel = row.into();
    call
}

#[tokio::test]
async fn http2_connection_is_shared() {
    let (url, mut reports) = tls_upstream("server.pem", &[b"h2", b"http/1.1"]).await;
    let (client, call) = (client(), trusting_call(&url));
    read(ask(&client, &call).await.unwrap().body).await.unwrap();
    let all = futures_util::future::join_all((0..50).map(|_| async {
        let answer = ask(&client, &call).await.unwrap();
        assert_eq!(read(answer.body).await.unwrap(), "{}");
    }));
    all.await;
    assert_eq!(reports.recv().await, Some("h2"));
    assert!(reports.try_recv().is_err(), "no second connection");
}

#[tokio::test]
async fn http1_is_used_over_tls_without_http2() {
    let (url, mut reports) = tls_upstream("server.pem", &[b"http/1.1"]).await;
    let (client, call) = (client(), trusting_call(&url));
    for _ in 0..3 {
        assert_eq!(read(ask(&client, &call).await.unwrap().body).await.unwrap(), "{}");
    }
    assert_eq!(reports.recv().await, Some("http/1.1"));
    assert!(reports.try_recv().is_err(), "no second connection");
    assert_eq!(client.idle_count(&call.channel), 1);
}

/// The excess bytes are decrypted with the response, so that the TCP connection does not show them.
#[tokio::test]
async fn excess_bytes_after_a_tls_response_are_not_used_as_the_next_response() {
    // Around the size of the first read, which leaves the rest decrypted.
    for length in 4_095..=4_097 {
        let padding = length - ok(&" ".repeat(4_000)).len() + 4_000;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let call = trusting_call(&format!("https://localhost:{}/v1", listener.local_addr().unwrap().port()));
        let tasks = TaskTracker::new();
        tasks.spawn(async move {
            let acceptor = acceptor("server.pem", &[b"http/1.1"]);
            while let Ok((socket, _)) = listener.accept().await {
                let mut stream = acceptor.accept(socket).await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(br#"{"model":"up-m","messages":[]}"#)
                    && stream.read_buf(&mut request).await.unwrap_or(0) > 0
                {}
                let body = " ".repeat(padding);
                stream.write_all(format!("{}{}", ok(&body), ok("evil")).as_bytes()).await.unwrap();
                while stream.read_buf(&mut request).await.unwrap_or(0) > 0 {}
            }
        });
        let client = client();
        for _ in 0..2 {
            let body = read(ask(&client, &call).await.unwrap().body).await.unwrap();
            assert_eq!(body.len(), padding, "{body:?}");
            assert_eq!(client.idle_count(&call.channel), 0);
        }
    }
}

#[tokio::test]
async fn wrong_name_expired_unknown_root_and_bad_ca_file_are_refused() {
    for (certificate, expected) in [("other-name.pem", TlsFault::OtherName), ("expired.pem", TlsFault::Expired)] {
        let (url, _reports) = tls_upstream(certificate, &[b"h2"]).await;
        let fault = ask(&client(), &trusting_call(&url)).await.unwrap_err();
        assert_eq!(fault, UpstreamError::NotSent(ConnectFault::Tls(expected)), "{certificate}");
    }
    let (url, _reports) = tls_upstream("server.pem", &[b"h2"]).await;
    let fault = ask(&client(), &call(&url)).await.unwrap_err();
    assert_eq!(fault, UpstreamError::NotSent(ConnectFault::Tls(TlsFault::UnknownIssuer)));
    let plain = RawUpstream::start(|mut socket, _| async move {
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    })
    .await;
    let url = plain.url.replace("http://", "https://");
    let fault = ask(&client(), &call(&url)).await.unwrap_err();
    assert_eq!(fault, UpstreamError::NotSent(ConnectFault::Tls(TlsFault::NoTls)));
    let mut call = trusting_call(&url);
    let mut row = (*call.channel).clone();
    row.spec.ca_file = Some(format!("{FIXTURES}/server.key"));
    call.channel = row.into();
    assert_eq!(ask(&client(), &call).await.unwrap_err(), UpstreamError::NotSent(ConnectFault::CaFile));
}

/// A call that identifies itself with these files.
fn identified_call(url: &str, certificate: &str, key: &str) -> UpstreamCall {
    let read = |file: &str| std::fs::read_to_string(format!("{FIXTURES}/{file}")).unwrap();
    let mut call = trusting_call(url);
    let mut row = (*call.channel).clone();
    row.spec.client_certificate = Some(read(certificate));
    row.client_key = Some(tollgate_core::Secret::new(read(key)));
    call.channel = row.into();
    call
}

#[tokio::test]
async fn client_certificate_of_the_channel_is_sent_on_request() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for (alpn, spoken) in [(b"h2".as_slice(), "h2"), (b"http/1.1", "http/1.1")] {
            let (url, mut reports) = answering(demanding_acceptor(&[version], &[alpn])).await;
            let (client, call) = (client(), identified_call(&url, "client.pem", "client.key"));
            assert_eq!(read(ask(&client, &call).await.unwrap().body).await.unwrap(), "{}");
            assert_eq!(reports.recv().await, Some(spoken));
        }
    }
}

#[tokio::test]
async fn refused_client_certificate_is_reported_and_nothing_was_sent() {
    let refused = UpstreamError::NotSent(ConnectFault::Tls(TlsFault::ClientRefused));
    // Another authority signed the certificate of the server itself.
    for (certificate, key) in [("", ""), ("server.pem", "server.key")] {
        let call = |url: &str| if key.is_empty() { trusting_call(url) } else { identified_call(url, certificate, key) };
        let (url, _reports) = answering(demanding_acceptor(&[&rustls::version::TLS12], &[b"http/1.1"])).await;
        assert_eq!(ask(&client(), &call(&url)).await.unwrap_err(), refused, "{certificate}");
        // With TLS 1.3 the handshake completes before the server reports the fault; whether its alert or the end of the connection
        // is seen first depends on the network.
        let (url, _reports) = answering(demanding_acceptor(&[&rustls::version::TLS13], &[b"http/1.1"])).await;
        let fault = ask(&client(), &call(&url)).await.unwrap_err();
        let closed = matches!(fault, UpstreamError::Lost | UpstreamError::NotSent(ConnectFault::Closed));
        assert!(fault == refused || closed, "{certificate}: {fault:?}");
    }
    let (url, _reports) = answering(demanding_acceptor(&[&rustls::version::TLS12], &[b"http/1.1"])).await;
    for (certificate, key) in [("server.key", "client.key"), ("client.pem", "client.pem"), ("client.pem", "other.key")] {
        let fault = ask(&client(), &identified_call(&url, certificate, key)).await.unwrap_err();
        assert_eq!(fault, UpstreamError::NotSent(ConnectFault::ClientCertificate), "{certificate} {key}");
    }
}

#[tokio::test]
async fn changed_client_certificate_is_used_for_new_connections() {
    let (url, mut reports) = answering(demanding_acceptor(&[&rustls::version::TLS12], &[b"http/1.1"])).await;
    let (client, call) = (client(), identified_call(&url, "client.pem", "client.key"));
    read(ask(&client, &call).await.unwrap().body).await.unwrap();
    assert_eq!((reports.recv().await, client.idle_count(&call.channel)), (Some("http/1.1"), 1));
    let other = UpstreamCall { channel: identified_call(&url, "server.pem", "server.key").channel, ..call };
    let fault = ask(&client, &other).await.unwrap_err();
    assert_eq!(fault, UpstreamError::NotSent(ConnectFault::Tls(TlsFault::ClientRefused)), "the open connection is not used");
}

pub(super) type Http2Connection = h2::server::Connection<TlsStream<tokio::net::TcpStream>, Bytes>;

/// An HTTP/2 server that leaves every stream to `answer`, with the stream's number from 0.
async fn http2_upstream<F>(answer: F) -> String
where
    F: Fn(usize, h2::server::SendResponse<Bytes>, &mut Http2Connection) + Send + Sync + 'static,
{
    limited_http2_upstream(100, answer).await
}

/// [`http2_upstream`] with at most `streams` streams of a connection at once.
pub(super) async fn limited_http2_upstream<F>(streams: u32, answer: F) -> String
where
    F: Fn(usize, h2::server::SendResponse<Bytes>, &mut Http2Connection) + Send + Sync + 'static,
{
    let acceptor = acceptor("server.pem", &[b"h2"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
    let (answer, number) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    let tasks = TaskTracker::new();
    let own = tasks.clone();
    tasks.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(socket).await else { continue };
            let (answer, number) = (Arc::clone(&answer), Arc::clone(&number));
            own.spawn(async move {
                let mut connection = h2::server::Builder::new().max_concurrent_streams(streams).handshake(stream).await.unwrap();
                while let Some(Ok((_request, respond))) = connection.accept().await {
                    answer(number.fetch_add(1, Ordering::SeqCst), respond, &mut connection);
                }
            });
        }
    });
    url
}

pub(super) fn respond_ok(mut respond: h2::server::SendResponse<Bytes>) {
    let mut body = respond.send_response(http::Response::new(()), false).unwrap();
    body.send_data(Bytes::from_static(b"{}"), true).unwrap();
}

#[tokio::test]
async fn refused_stream_is_retried() {
    let url = http2_upstream(|number, mut respond, _| {
        if number == 0 {
            respond.send_reset(h2::Reason::REFUSED_STREAM);
        } else {
            respond_ok(respond);
        }
    })
    .await;
    let answer = ask(&client(), &trusting_call(&url)).await.expect("the second try is answered");
    assert_eq!(read(answer.body).await.unwrap(), "{}");
}

/// Last frames of an HTTP/2 server: its settings, the acknowledgement of ours, then a GOAWAY.
fn going_away(last_processed: u8, reason: u8) -> Vec<u8> {
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let acknowledged = [0, 0, 0, 4, 1, 0, 0, 0, 0];
    let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last_processed, 0, 0, 0, reason];
    [&settings[..], &acknowledged, &goaway].concat()
}

/// An HTTP/2 server whose first connection reads a request and sends `last_frames`, then closes if `closes`; the
/// others answer. Counts its connections.
async fn goaway_upstream(last_frames: Vec<u8>, closes: bool) -> (String, Arc<AtomicUsize>) {
    let acceptor = acceptor("server.pem", &[b"h2"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    let tasks = TaskTracker::new();
    let own = tasks.clone();
    tasks.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            let Ok(mut stream) = acceptor.accept(socket).await else { continue };
            let last_frames = last_frames.clone();
            own.spawn(async move {
                if !first {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((_request, respond))) = connection.accept().await {
                        respond_ok(respond);
                    }
                    return;
                }
                // The body arrives unencoded in the last DATA frame.
                let mut read = Vec::new();
                while !read.ends_with(br#"{"model":"up-m","messages":[]}"#) {
                    if stream.read_buf(&mut read).await.unwrap() == 0 {
                        return;
                    }
                }
                stream.write_all(&last_frames).await.unwrap();
                stream.flush().await.unwrap();
                if !closes {
                    while stream.read_buf(&mut read).await.is_ok_and(|read| read > 0) {}
                }
            });
        }
    });
    (url, accepted)
}

#[tokio::test]
async fn stream_above_the_last_id_of_goaway_is_retried() {
    let (none, calm) = (0, 11);
    for (reason, closes) in [(none, false), (none, true), (calm, false), (calm, true)] {
        let (url, accepted) = goaway_upstream(going_away(0, reason), closes).await;
        let (client, call) = (client(), trusting_call(&url));
        for _ in 0..2 {
            let answer = ask(&client, &call).await.expect("not processed: a new connection answers");
            assert_eq!(read(answer.body).await.unwrap(), "{}");
        }
        assert_eq!(accepted.load(Ordering::SeqCst), 2, "reason {reason}: the connection that sent GOAWAY takes no more requests");
    }
}

#[tokio::test]
async fn stream_within_goaway_is_not_retried() {
    let (url, accepted) = goaway_upstream(going_away(1, 0), true).await;
    assert_eq!(ask(&client(), &trusting_call(&url)).await.unwrap_err(), UpstreamError::Lost);
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn requests_after_goaway_share_one_new_connection() {
    let url = http2_upstream(|number, respond, connection| {
        if number == 0 {
            // The first stream is in progress and is answered. Later ones are above the last stream that the GOAWAY accepts.
            connection.graceful_shutdown();
        }
        respond_ok(respond);
    })
    .await;
    let (client, call) = (client(), trusting_call(&url));
    let all = futures_util::future::join_all((0..50).map(|_| async {
        let answer = ask(&client, &call).await.expect("none is lost");
        assert_eq!(read(answer.body).await.unwrap(), "{}");
    }));
    all.await;
}

#[tokio::test]
async fn reset_streams_are_not_retried() {
    let url = http2_upstream(|_, mut respond, _| respond.send_reset(h2::Reason::INTERNAL_ERROR)).await;
    assert_eq!(ask(&client(), &trusting_call(&url)).await.unwrap_err(), UpstreamError::Lost);
}

#[tokio::test]
async fn goaway_mid_body_fails_it_and_the_next_request_reconnects() {
    let url = http2_upstream(|number, mut respond, connection| {
        let mut body = respond.send_response(http::Response::new(()), false).unwrap();
        body.send_data(Bytes::from_static(b"{}"), number > 0).unwrap();
        if number == 0 {
            connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
        }
    })
    .await;
    let (client, call) = (client(), trusting_call(&url));
    match ask(&client, &call).await {
        Ok(answer) => assert_eq!(read(answer.body).await.unwrap_err(), UpstreamBodyFault::Lost),
        Err(fault) => assert_eq!(fault, UpstreamError::Lost),
    }
    let answer = ask(&client, &call).await.expect("a new connection");
    assert_eq!(read(answer.body).await.unwrap(), "{}");
}

#[tokio::test]
async fn silent_close_of_an_idle_http2_connection_is_retried() {
    for firm in [false, true] {
        let acceptor = acceptor("server.pem", &[b"h2"]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let tasks = TaskTracker::new();
        tasks.spawn(async move {
            for first in [true, false] {
                let (socket, _) = listener.accept().await.unwrap();
                let mut connection = h2::server::handshake(acceptor.accept(socket).await.unwrap()).await.unwrap();
                while let Some(Ok((_request, respond))) = connection.accept().await {
                    // The second request on the first connection gets only a close: no GOAWAY, no reset.
                    if count.fetch_add(1, Ordering::SeqCst) == 1 && first {
                        break;
                    }
                    respond_ok(respond);
                }
            }
        });
        let (client, mut call) = (client(), trusting_call(&url));
        let mut row = (*call.channel).clone();
        row.spec.retry_uncertain = !firm;
        call.channel = row.into();
        read(ask(&client, &call).await.unwrap().body).await.unwrap();
        match ask(&client, &call).await {
            Ok(answer) => assert!(!firm && read(answer.body).await.unwrap() == "{}"),
            Err(fault) => assert!(firm && fault == UpstreamError::Lost, "{fault}"),
        }
        assert_eq!(requests.load(Ordering::SeqCst), if firm { 2 } else { 3 });
    }
}
