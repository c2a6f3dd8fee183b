//! Ways to an upstream that a channel may name: through an HTTP proxy or a SOCKS5 one, with headers of its own, under roots of
//! its own.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use tollgate_testkit::{TestGateway, Upstream};

use crate::support::{self, PROGRAM, channel, group, prices};

/// Speaks with a proxy's client up to where it names its target: that target, and what is said once it is reached. `None`:
/// the client is turned away.
type Greet = fn(&mut TcpStream) -> Option<(String, Vec<u8>)>;

/// A proxy on a free loopback port: it notes what it is asked, and joins both sides.
struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start(greet: Greet) -> Self {
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

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Copies both ways until either side ends.
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

/// `CONNECT` for who knows name and password (`us:pa:ss`).
fn connect(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
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
fn socks5(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
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

fn gate(base_url: &str, lines: &str) -> TestGateway {
    let catalog = channel("chat", "openai", base_url, "chat-model", lines) + &prices(&["chat-model"]) + &group(&["chat"]);
    TestGateway::of(PROGRAM).catalog(&catalog).spawn()
}

#[test]
fn a_channel_with_an_http_proxy_tunnels_through_it() {
    let (upstream, proxy) = (Upstream::start(), Proxy::start(connect));
    let gate = gate(&upstream.openai(), &format!("proxy = \"http://us:pa%3Ass@{}\"", proxy.address));
    for _ in 0..3 {
        assert_eq!(gate.chat(&support::chat("chat-model")).status, 200);
    }
    assert_eq!(gate.chat(&support::chat_stream("chat-model")).events().last().map(String::as_str), Some("[DONE]"));
    let asked = proxy.asked();
    assert!(!asked.is_empty() && asked.iter().all(|target| *target == upstream.address().to_string()), "{asked:?}");
    let seen = upstream.seen();
    assert_eq!((seen.len(), upstream.connections()), (4, asked.len()), "nothing went past the proxy");
    assert_eq!(seen[0].line, "POST /v1/chat/completions", "the upstream is spoken to as if there were none");
    assert!(seen.iter().all(|seen| seen.headers.iter().all(|(name, _)| !name.starts_with("proxy-"))));
}

#[test]
fn a_proxy_that_turns_us_away_is_a_connection_that_could_not_be_made() {
    let (upstream, proxy) = (Upstream::start(), Proxy::start(connect));
    let gate = gate(&upstream.openai(), &format!("proxy = \"http://{}\"", proxy.address));
    let answer = gate.chat(&support::chat("chat-model"));
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (502, Some("upstream_unreachable")));
    assert_eq!((upstream.connections(), proxy.asked().len()), (0, 0), "never around it");
    assert_eq!(gate.record_of(&answer)["attempts"][0]["result"], "not_sent");
}

#[test]
fn a_channel_with_a_socks5_proxy_tunnels_through_it_and_leaves_names_to_it() {
    let (upstream, proxy) = (Upstream::start(), Proxy::start(socks5));
    let named = upstream.openai().replace("127.0.0.1", "localhost");
    for base_url in [upstream.openai(), named] {
        let gate = gate(&base_url, &format!("proxy = \"socks5://{}\"", proxy.address));
        assert_eq!(gate.chat(&support::chat("chat-model")).status, 200);
        assert_eq!(gate.chat(&support::chat_stream("chat-model")).status, 200);
    }
    let asked = proxy.asked();
    let port = upstream.address().port();
    assert!(asked.contains(&format!("127.0.0.1:{port}")) && asked.contains(&format!("localhost:{port}")), "{asked:?}");
    assert_eq!((upstream.seen().len(), upstream.connections()), (4, asked.len()));
}

#[test]
fn headers_of_a_channel_go_with_every_request_and_the_callers_do_not() {
    let upstream = Upstream::start();
    let gate = gate(&upstream.openai(), "headers = { \"x-region\" = \"eu\", \"x-team\" = \"blue\" }");
    let request = tollgate_testkit::Request::post("/v1/chat/completions", &support::chat("chat-model"))
        .bearer(gate.key())
        .header("x-region", "us");
    assert_eq!(gate.send(&request).status, 200);
    let seen = upstream.seen().remove(0);
    let all = |wanted: &str| -> Vec<String> {
        seen.headers.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value.clone()).collect()
    };
    assert_eq!((all("x-region"), all("x-team")), (vec!["eu".to_owned()], vec!["blue".to_owned()]));
}
