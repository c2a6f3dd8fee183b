//! Connection settings of a channel: HTTP and SOCKS5 proxies, additional headers, own root certificates.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use tollgate_testkit::{TestGateway, Upstream};

use crate::support::{self, PROGRAM, channel, group, prices};

/// Runs a proxy handshake up to the client's target: the target and the reply that confirms it, or `None` when the client is
/// refused.
pub(crate) type Greet = fn(&mut TcpStream) -> Option<(String, Vec<u8>)>;

/// A proxy on a free loopback port that records its targets and connects both sides.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    pub(crate) fn start(greet: Greet) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let noted = Arc::clone(&asked);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(mut client) = client else { return };
                let noted = Arc::clone(&noted);
                thread::spawn(move || {
                    let Some((target, welcome)) = greet(&mut client) else { return };
                    noted.lock().unwrap().push(target.clone());
                    let Ok(upstream) = TcpStream::connect(&target) else { return };
                    client.write_all(&welcome).unwrap();
                    join(client, upstream);
                });
            }
        });
        Self { address, asked }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Copies in both directions until either side closes.
fn join(client: TcpStream, upstream: TcpStream) {
    let (mut from, mut to) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
    let (mut from, mut to) = (upstream, client);
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// `CONNECT` with user and password (`us:pa:ss`).
pub(crate) fn connect(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    if !head.contains("proxy-authorization: Basic dXM6cGE6c3M=\r\n") {
        client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n").unwrap();
        return None;
    }
    let target = head.strip_prefix("CONNECT ")?.split(' ').next()?.to_owned();
    Some((target, b"HTTP/1.1 200 Connection established\r\nvia: test\r\n\r\n".to_vec()))
}

/// SOCKS5 without a password, to an IPv4 address or a name.
pub(crate) fn socks5(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut greeting = [0; 3];
    client.read_exact(&mut greeting).ok()?;
    assert_eq!(greeting, [5, 1, 0], "version 5, one method, none");
    client.write_all(&[5, 0]).ok()?;
    let mut head = [0; 4];
    client.read_exact(&mut head).ok()?;
    assert_eq!(head[..3], [5, 1, 0]);
    let host = if head[3] == 1 {
        let mut address = [0; 4];
        client.read_exact(&mut address).ok()?;
        std::net::Ipv4Addr::from(address).to_string()
    } else {
        assert_eq!(head[3], 3);
        let mut length = [0];
        client.read_exact(&mut length).ok()?;
        let mut name = vec![0; usize::from(length[0])];
        client.read_exact(&mut name).ok()?;
        String::from_utf8(name).unwrap()
    };
    let mut port = [0; 2];
    client.read_exact(&mut port).ok()?;
    Some((format!("{host}:{}", u16::from_be_bytes(port)), vec![5, 0, 0, 1, 127, 0, 0, 1, 0, 0]))
}

fn gateway(base_url: &str, lines: &str) -> TestGateway {
    let catalog = channel("chat", "openai", base_url, "chat-model", lines) + &prices(&["chat-model"]) + &group(&["chat"]);
    TestGateway::builder(PROGRAM).catalog(&catalog).spawn()
}

#[test]
fn channel_with_http_proxy_tunnels_through_it() {
    let (upstream, proxy) = (Upstream::start(), Proxy::start(connect));
    let gateway = gateway(&upstream.openai_url(), &format!("proxy = \"http://us:pa%3Ass@{}\"", proxy.address));
    for _ in 0..3 {
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    }
    assert_eq!(gateway.chat(&support::chat_stream("chat-model")).events().last().map(String::as_str), Some("[DONE]"));
    let asked = proxy.asked();
    assert!(!asked.is_empty() && asked.iter().all(|target| *target == upstream.address().to_string()), "{asked:?}");
    let received = upstream.received();
    assert_eq!((received.len(), upstream.connections()), (4, asked.len()), "no connection bypassed the proxy");
    assert_eq!(received[0].line, "POST /v1/chat/completions", "same request line as without a proxy");
    assert!(received.iter().all(|received| received.headers.iter().all(|(name, _)| !name.starts_with("proxy-"))));
}

#[test]
fn proxy_refusal_counts_as_failed_connection() {
    let (upstream, proxy) = (Upstream::start(), Proxy::start(connect));
    let gateway = gateway(&upstream.openai_url(), &format!("proxy = \"http://{}\"", proxy.address));
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (502, Some("upstream_unreachable")));
    assert_eq!((upstream.connections(), proxy.asked().len()), (0, 0), "never around it");
    assert_eq!(gateway.record_of(&answer)["attempts"][0]["result"], "not_sent");
}

#[test]
fn channel_with_socks5_proxy_tunnels_and_resolves_names_there() {
    let (upstream, proxy) = (Upstream::start(), Proxy::start(socks5));
    let named = upstream.openai_url().replace("127.0.0.1", "localhost");
    for base_url in [upstream.openai_url(), named] {
        let gateway = gateway(&base_url, &format!("proxy = \"socks5://{}\"", proxy.address));
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
        assert_eq!(gateway.chat(&support::chat_stream("chat-model")).status, 200);
    }
    let asked = proxy.asked();
    let port = upstream.address().port();
    assert!(asked.contains(&format!("127.0.0.1:{port}")) && asked.contains(&format!("localhost:{port}")), "{asked:?}");
    assert_eq!((upstream.received().len(), upstream.connections()), (4, asked.len()));
}

#[test]
fn channel_headers_are_sent_and_caller_headers_are_not() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream.openai_url(), "headers = { \"x-region\" = \"eu\", \"x-team\" = \"blue\" }");
    let request = tollgate_testkit::Request::post("/v1/chat/completions", &support::chat("chat-model"))
        .bearer(gateway.key())
        .header("x-region", "us");
    assert_eq!(gateway.send(&request).status, 200);
    let received = upstream.received().remove(0);
    let all = |wanted: &str| -> Vec<String> {
        received.headers.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value.clone()).collect()
    };
    assert_eq!((all("x-region"), all("x-team")), (vec!["eu".to_owned()], vec!["blue".to_owned()]));
}
