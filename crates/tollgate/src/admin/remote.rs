//! The admin API of a running gateway over one HTTP/1.1 connection, with TLS for `https` URLs.

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
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for a response to begin; a channel test takes up to 110 s.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(2);
/// Longest pause within a response. A step of a channel test may take this long.
const READ_TIMEOUT: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub(super) struct RemoteAdmin {
    /// URL for messages.
    name: String,
    authority: String,
    /// Path prefix before `/admin/v1`, behind a proxy.
    prefix: String,
    host: Host<String>,
    port: u16,
    tls: bool,
    key: Secret,
    connection: Mutex<Option<SendRequest<Body>>>,
}

impl RemoteAdmin {
    /// Parses a URL; does not connect yet.
    pub(super) fn at(text: &str, key: Secret, quiet: bool) -> Result<Self, Failure> {
        let invalid = |why: &str| Failure::Usage(format!("--url (TOLLGATE_URL) {why}, such as https://gateway.example.com"));
        let url = Url::parse(text).map_err(|_| invalid("takes a gateway's address"))?;
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(invalid("takes an address that begins with https:// or http://")),
        };
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("takes an address without a name, a password or a query"));
        }
        let host = url.host().ok_or_else(|| invalid("takes an address with a host"))?.to_owned();
        let port = url.port_or_known_default().unwrap_or(if tls { 443 } else { 80 });
        let authority = url.port().map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
        // Accept the URL that `serve` prints.
        let prefix = url.path().trim_end_matches('/').trim_end_matches("/admin/v1").to_owned();
        if HeaderValue::from_str(key.expose()).is_err() {
            return Err(Failure::invalid("the admin key contains invalid characters; check TOLLGATE_ADMIN_KEY (or --admin-key)"));
        }
        let remote = Self {
            name: format!("{}://{authority}{prefix}", url.scheme()),
            authority,
            prefix,
            host,
            port,
            tls,
            key,
            connection: Mutex::new(None),
        };
        if !tls && !remote.is_loopback() && !quiet {
            output::remark("warning: the admin key is sent unencrypted over http://; use https://");
        }
        Ok(remote)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        }
    }

    /// Sends a request, reusing the open connection if there is one.
    pub(super) async fn call(&self, request: Request<Body>) -> Result<Response<Body>, Failure> {
        let request = self.authorised(request)?;
        let mut connection = self.connection.lock().await;
        // The gateway may have closed the connection since.
        let existing = match connection.take() {
            Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
            None => None,
        };
        let mut sender = match existing {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let response = self.send(&mut sender, request).await?;
        *connection = Some(sender);
        Ok(response)
    }

    /// Sends a request on a separate connection, because its response may not end before others are read.
    pub(super) async fn call_apart(&self, request: Request<Body>) -> Result<Response<Body>, Failure> {
        let request = self.authorised(request)?;
        self.send(&mut self.connect().await?, request).await
    }

    /// The request with the key, for the gateway's address.
    fn authorised(&self, mut request: Request<Body>) -> Result<Request<Body>, Failure> {
        let target = format!("{}{}", self.prefix, request.uri());
        *request.uri_mut() = target.parse::<Uri>().map_err(|_| Failure::Usage("--url has an invalid path".to_owned()))?;
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", self.key.expose())).expect("the key was validated");
        bearer.set_sensitive(true);
        let headers = request.headers_mut();
        headers.insert(header::AUTHORIZATION, bearer);
        headers.insert(header::HOST, HeaderValue::from_str(&self.authority).expect("a host is a valid header value"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION"))));
        Ok(request)
    }

    async fn send(&self, sender: &mut SendRequest<Body>, request: Request<Body>) -> Result<Response<Body>, Failure> {
        let changes = request.method() != Method::GET;
        match timeout(RESPONSE_TIMEOUT, sender.send_request(request)).await {
            Ok(Ok(response)) => Ok(response.map(Body::new)),
            Ok(Err(error)) => Err(self.broken(&error.to_string(), changes)),
            Err(_) => Err(self.broken(&format!("no response within {} s", RESPONSE_TIMEOUT.as_secs()), changes)),
        }
    }

    async fn connect(&self) -> Result<SendRequest<Body>, Failure> {
        let unreachable = |why: String| {
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
            let stream = stream.map_err(|error| unreachable(error.to_string()))?;
            let _ = stream.set_nodelay(true);
            if !self.tls {
                return handshake(stream).await.map_err(unreachable);
            }
            let name = match &self.host {
                Host::Domain(name) => ServerName::try_from(name.clone()).map_err(|error| unreachable(error.to_string()))?,
                Host::Ipv4(address) => ServerName::from(std::net::IpAddr::from(*address)),
                Host::Ipv6(address) => ServerName::from(std::net::IpAddr::from(*address)),
            };
            let connector = TlsConnector::from(Arc::new(Trust::default().over_http1()));
            let stream = connector
                .connect(name, stream)
                .await
                .map_err(|error| unreachable(format!("{error}; to trust a private CA, set SSL_CERT_FILE")))?;
            handshake(stream).await.map_err(unreachable)
        };
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(unreachable(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs()))),
        }
    }

    fn broken(&self, why: &str, changes: bool) -> Failure {
        let hint = if changes { "; it is unknown whether the change was made: check before you repeat it" } else { "" };
        Failure::Unreachable(format!("the connection to the gateway at {} broke ({why}){hint}", self.name))
    }
}

async fn handshake(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<SendRequest<Body>, String> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    TaskTracker::new().spawn(connection);
    Ok(sender)
}

/// Reads the next chunk of a response.
pub(super) async fn next_chunk(body: &mut Body) -> Result<Option<Bytes>, Failure> {
    loop {
        let frame = match timeout(READ_TIMEOUT, body.frame()).await {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => {
                return Err(Failure::Unreachable(format!("the response was cut off and the output is incomplete: {error}")));
            }
            Err(_) => {
                return Err(Failure::Unreachable(format!(
                    "the response was cut off and the output is incomplete: no data for {} s",
                    READ_TIMEOUT.as_secs()
                )));
            }
        };
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

/// Reads a whole response body.
pub(super) async fn read_body(mut body: Body, max_bytes: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(piece) = next_chunk(&mut body).await? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > max_bytes {
            return Err(Failure::Machine(format!("the response is larger than {max_bytes} bytes")));
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
    fn urls_are_parsed() {
        for (text, name, prefix) in [
            ("https://gate.example.com", "https://gate.example.com", ""),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080", ""),
            ("http://[::1]:8080/admin/v1", "http://[::1]:8080", ""),
            ("https://example.com/llm/", "https://example.com/llm", "/llm"),
        ] {
            let remote = at(text).unwrap();
            assert_eq!((remote.name(), remote.prefix.as_str()), (name, prefix), "{text}");
        }
    }

    #[test]
    fn invalid_urls_exit_with_2_and_never_show_the_key() {
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
