//! Connections without a request are closed when a listener is near its limit, so that others can be accepted.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    thread::sleep,
    time::{Duration, Instant},
};

use socket2::{Domain, Socket, Type};
use tollgate_testkit::{PendingResponse, Request, ScriptedResponse, TestGateway, Upstream};

use crate::support::{self, PROGRAM};

/// A connection from an address of this machine.
fn connect_from(address: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// Time until a request on a new connection is answered with 200; a refused one is repeated.
fn answered_within(request: &Request, to: SocketAddr) -> Duration {
    let begin = Instant::now();
    while !request.send(to).and_then(PendingResponse::read).is_ok_and(|answer| answer.status == 200) {
        assert!(begin.elapsed() < Duration::from_secs(30), "no answer");
        sleep(Duration::from_millis(10));
    }
    begin.elapsed()
}

#[test]
fn stream_and_other_callers_are_served_while_one_address_holds_all_other_connections() {
    let upstream = Upstream::start();
    let texts: Vec<String> = (0..20).map(|n| format!("piece{n} ")).collect();
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    upstream.enqueue(ScriptedResponse::chat_stream(&texts).chunk_delay(Duration::from_millis(100)));
    let gateway =
        support::builder(&upstream, "cooling = false").env("TOLLGATE_SERVER__MAX_CONNECTIONS", "64").without_record_check().spawn();
    let mut streaming = connect_from([127, 0, 0, 2], gateway.address());
    let body = support::chat_stream("chat-model").to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        gateway.key(),
        body.len()
    );
    streaming.write_all(head.as_bytes()).unwrap();
    upstream.wait_for("the stream", |received| received.len() == 1);
    let mut held: Vec<_> = (0..80).map(|_| connect_from([127, 0, 0, 2], gateway.address())).collect();
    sleep(Duration::from_millis(600));
    let chat = Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(gateway.key());
    for _ in 0..20 {
        let took = answered_within(&chat, gateway.address());
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
    let closed = held.iter_mut().filter_map(|silent| {
        silent.set_nonblocking(true).unwrap();
        let mut bytes = [0; 1_000];
        silent.read(&mut bytes).ok()
    });
    let closed: Vec<usize> = closed.collect();
    assert!(!closed.is_empty() && closed.len() < 40 && closed.iter().all(|bytes| *bytes == 0), "{closed:?}");
    let mut answer = String::new();
    streaming.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("piece0 ") && answer.contains("piece19 ") && answer.contains("data: [DONE]"), "{answer}");
    let log = gateway.log();
    assert_eq!(log.matches("those without a request are closed").count(), 1, "{log}");
}

#[test]
fn console_is_reachable_while_silent_connections_hold_its_address() {
    let gateway = TestGateway::builder(PROGRAM).env("TOLLGATE_CONSOLE__LISTEN", "127.0.0.1:0").spawn();
    let console: SocketAddr = gateway.startup()["console"].as_str().unwrap().parse().unwrap();
    let held: Vec<TcpStream> = (0..520).map(|_| TcpStream::connect(console).unwrap()).collect();
    let metrics = Request::get("/metrics");
    let took = answered_within(&metrics, console);
    assert!(took < Duration::from_secs(1), "{took:?}");
    for _ in 0..100 {
        let took = answered_within(&metrics, console);
        assert!(took < Duration::from_millis(500), "{took:?}");
    }
    drop(held);
}
