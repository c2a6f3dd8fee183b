//! The admin API of a running gateway: one connection, HTTP/1.1, over TLS where the address says so. The admin key stands in
//! one header and nowhere else.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::BodyExt as _;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::Mutex,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tokio_util::task::TaskTracker;
use tollgate_console::Body;
use tollgate_core::Secret;
use tollgate_gateway::upstream::client::Trust;
use url::{Host, Url};

use crate::{failure::Failure, output};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest wait for an answer to begin; a channel's test takes up to 110 s.
const ANSWER: Duration = Duration::from_mins(2);
/// Longest pause within an answer. A step of a channel's test may take as long as an answer.
const PAUSE: Duration = Duration::from_mins(2);

/// A running gateway.
#[derive(Debug)]
pub(super) struct RemoteAdmin {
    /// As people write it.
    name: String,
    authority: String,
    /// What stands before `/admin/v1` behind a proxy.
    prefix: String,
    host: Host<String>,
    port: u16,
    tls: bool,
    key: Secret,
    open: Mutex<Option<SendRequest<Body>>>,
}

impl RemoteAdmin {
    /// The gateway at an address; nothing is sent yet.
    pub(super) fn at(text: &str, key: Secret, quiet: bool) -> Result<Self, Failure> {
        let wrong = |why: &str| Failure::Usage(format!("--url (TOLLGATE_URL) {why}, such as https://gateway.example.com"));
        let url = Url::parse(text).map_err(|_| wrong("takes a gateway's address"))?;
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(wrong("takes an address that begins with https:// or http://")),
        };
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("takes an address without a name, a password or a query"));
        }
        let host = url.host().ok_or_else(|| wrong("takes an address with a host"))?.to_owned();
        let port = url.port_or_known_default().unwrap_or(if tls { 443 } else { 80 });
        let authority = url.port().map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
        // What `serve` prints may be given as it stands.
        let prefix = url.path().trim_end_matches('/').trim_end_matches("/admin/v1").to_owned();
        if HeaderValue::from_str(key.expose()).is_err() {
            return Err(Failure::written(
                "the admin key has characters that no key has; check TOLLGATE_ADMIN_KEY (or --admin-key)",
            ));
        }
        let there = Self {
            name: format!("{}://{authority}{prefix}", url.scheme()),
            authority,
            prefix,
            host,
            port,
            tls,
            key,
            open: Mutex::new(None),
        };
        if !tls && !there.is_near() && !quiet {
            output::remark("the admin key goes over the network as it is: https:// would keep it to you");
        }
        Ok(there)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn is_near(&self) -> bool {
        match &self.host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        }
    }

    /// Sends a request, on the open connection where there is one.
    pub(super) async fn call(&self, mut request: Request<Body>) -> Result<Response<Body>, Failure> {
        let target = format!("{}{}", self.prefix, request.uri());
        *request.uri_mut() =
            target.parse::<Uri>().map_err(|_| Failure::Usage("--url has a path that no request takes".to_owned()))?;
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", self.key.expose())).expect("the key was tried");
        bearer.set_sensitive(true);
        let headers = request.headers_mut();
        headers.insert(header::AUTHORIZATION, bearer);
        headers.insert(header::HOST, HeaderValue::from_str(&self.authority).expect("a host is a header's value"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION"))));
        let changes = request.method() != Method::GET;
        let mut open = self.open.lock().await;
        // One that the gateway closed meanwhile is as good as none.
        let known = match open.take() {
            Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
            None => None,
        };
        let mut sender = match known {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let answer = match timeout(ANSWER, sender.send_request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(self.broken(&error.to_string(), changes)),
            Err(_) => return Err(self.broken(&format!("no answer within {} s", ANSWER.as_secs()), changes)),
        };
        *open = Some(sender);
        Ok(answer.map(Body::new))
    }

    async fn connect(&self) -> Result<SendRequest<Body>, Failure> {
        let away = |why: String| {
            Failure::Unreachable(format!(
                "cannot reach the gateway at {}: {why}; check that it runs, and --url (TOLLGATE_URL)",
                self.name
            ))
        };
        let connecting = async {
            let stream = match &self.host {
                Host::Domain(name) => TcpStream::connect((name.as_str(), self.port)).await,
                Host::Ipv4(address) => TcpStream::connect((*address, self.port)).await,
                Host::Ipv6(address) => TcpStream::connect((*address, self.port)).await,
            };
            let stream = stream.map_err(|error| away(error.to_string()))?;
            let _ = stream.set_nodelay(true);
            if !self.tls {
                return shake(stream).await.map_err(away);
            }
            let name = match &self.host {
                Host::Domain(name) => ServerName::try_from(name.clone()).map_err(|error| away(error.to_string()))?,
                Host::Ipv4(address) => ServerName::from(std::net::IpAddr::from(*address)),
                Host::Ipv6(address) => ServerName::from(std::net::IpAddr::from(*address)),
            };
            let connector = TlsConnector::from(Arc::new(Trust::default().over_http1()));
            let stream = connector.connect(name, stream).await.map_err(|error| {
                away(format!("{error}; a certificate of your own is trusted when SSL_CERT_FILE names its root"))
            })?;
            shake(stream).await.map_err(away)
        };
        match timeout(CONNECT, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(away(format!("no connection within {} s", CONNECT.as_secs()))),
        }
    }

    fn broken(&self, why: &str, changes: bool) -> Failure {
        let known = if changes { "; it is not known whether the change was made: look before you repeat it" } else { "" };
        Failure::Unreachable(format!("the connection to the gateway at {} broke ({why}){known}", self.name))
    }
}

async fn shake(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<SendRequest<Body>, String> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    TaskTracker::new().spawn(connection);
    Ok(sender)
}

/// The next piece of an answer.
pub(super) async fn next_chunk(body: &mut Body) -> Result<Option<Bytes>, Failure> {
    loop {
        let frame = match timeout(PAUSE, body.frame()).await {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => {
                return Err(Failure::Unreachable(format!("the answer broke off, what came is not all: {error}")));
            }
            Err(_) => {
                return Err(Failure::Unreachable(format!("the answer paused for {} s, what came is not all", PAUSE.as_secs())));
            }
        };
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

/// A whole answer.
pub(super) async fn read_body(mut body: Body, most: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(piece) = next_chunk(&mut body).await? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > most {
            return Err(Failure::Machine(format!("the answer is larger than {most} bytes")));
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Result<RemoteAdmin, Failure> {
        RemoteAdmin::at(text, Secret::new("tga-x".to_owned()), true)
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, name, prefix) in [
            ("https://gate.example.com", "https://gate.example.com", ""),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080", ""),
            ("http://[::1]:8080/admin/v1", "http://[::1]:8080", ""),
            ("https://example.com/llm/", "https://example.com/llm", "/llm"),
        ] {
            let there = at(text).unwrap();
            assert_eq!((there.name(), there.prefix.as_str()), (name, prefix), "{text}");
        }
    }

    #[test]
    fn addresses_that_say_too_much_or_too_little_end_with_2_and_the_key_is_never_said() {
        for text in ["gate.example.com", "ftp://a", "https://u:p@a", "https://a/?x=1", "https://", "postgres://a"] {
            let failure = at(text).unwrap_err();
            assert_eq!(failure.code(), 2, "{text}");
            assert!(failure.to_string().contains("--url"), "{failure}");
        }
        let failure = RemoteAdmin::at("http://localhost", Secret::new("tga-\u{e4}\nx".to_owned()), true).unwrap_err();
        assert_eq!(failure.code(), 3);
        assert!(!failure.to_string().contains("tga-"));
        let shown = format!("{:?}", at("http://localhost").unwrap());
        assert!(!shown.contains("tga-x"), "{shown}");
    }
}
