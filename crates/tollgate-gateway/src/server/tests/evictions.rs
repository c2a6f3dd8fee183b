//! Connections that carry no request close when the listener is near its limit.

use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::TcpSocket,
    time::{Instant, sleep},
};

use super::{super::connection_eviction::MIN_REST, *};
use crate::settings::TlsFiles;

/// Limit of connections: 28 for one address, 4 more for others.
const LIMIT: usize = 32;
/// Callers that each need a connection: more than one address leaves free.
const OTHERS: u8 = 12;
const ONE: [u8; 4] = [127, 0, 0, 2];

fn gate(tls: Option<TlsFiles>) -> Gate {
    let mut settings = Settings { tls, ..Settings::default() };
    settings.http.connections = LIMIT;
    settings.http.connections_per_address = LIMIT;
    Gate::open(settings)
}

impl Gate {
    async fn connect_from(&self, address: [u8; 4]) -> Caller {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((address, 0))).unwrap();
        Caller { socket: socket.connect(self.address).await.unwrap(), read: Vec::new() }
    }

    /// Connections of one address that send these bytes, more than the limit allows.
    async fn held(&self, bytes: impl AsRef<[u8]>) -> Vec<Caller> {
        let mut held = Vec::new();
        for _ in 0..LIMIT + 8 {
            let mut caller = self.connect_from(ONE).await;
            // Connections above the limit may be closed already.
            let _ = caller.socket.write_all(bytes.as_ref()).await;
            held.push(caller);
        }
        sleep(MIN_REST + Duration::from_millis(100)).await;
        held
    }

    /// Callers of other addresses send a request each, and keep their connections.
    async fn others_are_served(&self) {
        let mut served = Vec::new();
        for n in 0..OTHERS {
            let begin = Instant::now();
            loop {
                let mut caller = self.connect_from([127, 0, 0, 10 + n]).await;
                caller.send(chat("", "")).await;
                let answer = caller.until("\r\n\r\n").await;
                assert!(begin.elapsed() < Duration::from_secs(1), "caller {n}: {answer}");
                if statuses(&answer) == [200] {
                    served.push(caller);
                    break;
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
    }

    fn evicted(&self) -> usize {
        let text = self.shared.metrics.render();
        let count = text.lines().find_map(|line| line.strip_prefix("tollgate_connections_evicted_total "));
        count.and_then(|count| count.parse().ok()).expect("the metric")
    }
}

/// Bytes that the gateway sent to the first connection until it closed.
async fn first_end(mut held: Vec<Caller>) -> String {
    held[0].rest().await
}

#[tokio::test]
async fn silent_connections_of_one_address_are_evicted_for_other_callers() {
    let gate = gate(None);
    let held = gate.held("").await;
    gate.others_are_served().await;
    assert!(gate.evicted() >= usize::from(OTHERS) - 4, "{} are closed", gate.evicted());
    assert_eq!(first_end(held).await, "", "closed without an answer");
    gate.close().await;
}

#[tokio::test]
async fn idle_connections_of_one_address_are_evicted_for_other_callers() {
    let gate = gate(None);
    // Its answer has arrived before the others connect, so it is at rest for longest.
    let mut first = gate.connect_from(ONE).await;
    first.send(chat("", "")).await;
    assert_eq!(statuses(&first.until("length 0").await), [200]);
    let held = gate.held(chat("", "")).await;
    gate.others_are_served().await;
    assert_eq!(first.rest().await, "", "nothing follows the answer");
    drop(held);
    gate.close().await;
}

#[tokio::test]
async fn connections_with_a_dripping_head_are_evicted_for_other_callers() {
    let gate = gate(None);
    let mut held = gate.held("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n").await;
    for caller in &mut held {
        let _ = caller.socket.write_all(b"X-Drip: 1\r\n").await;
    }
    gate.others_are_served().await;
    let end = first_end(held).await;
    assert!(statuses(&end) == [503] && end.contains("server_overloaded") && end.contains("connection: close"), "{end}");
    gate.close().await;
}

#[tokio::test]
async fn http2_connections_without_streams_are_evicted_for_other_callers() {
    let gate = gate(None);
    // The preface and empty settings, and never an answer to a ping.
    let held = gate.held(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    gate.others_are_served().await;
    let mut received = Vec::new();
    let mut held = held;
    let _ = timeout(Duration::from_secs(2), held[0].socket.read_to_end(&mut received)).await.expect("the connection ends");
    let goaway = b"\x07\0\0\0\0\0";
    assert!(memchr::memmem::find(&received, goaway).is_some(), "{received:?}");
    gate.close().await;
}

#[tokio::test]
async fn unfinished_tls_handshakes_are_evicted_for_other_callers() {
    let fixture = |name| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let gate = gate(Some(TlsFiles { certificate: fixture("localhost.cert.pem"), key: fixture("localhost.key.pem") }));
    // The beginning of a TLS record.
    let held = gate.held([22, 3, 1]).await;
    let begin = Instant::now();
    let other = gate.connect_from([127, 0, 0, 3]).await;
    assert_eq!(first_end(held).await, "");
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    drop(other);
    gate.close().await;
}

#[tokio::test]
async fn caller_of_the_same_address_replaces_its_longest_idle_connection() {
    let gate = gate(None);
    let mut held = gate.held("").await;
    let mut caller = gate.connect_from(ONE).await;
    caller.send(chat("", "")).await;
    assert_eq!(statuses(&caller.until("length 0").await), [200]);
    assert_eq!(held[0].rest().await, "");
    let youngest = timeout(Duration::from_millis(100), held[20].socket.read_u8()).await;
    assert!(youngest.is_err(), "a connection that came later is kept: {youngest:?}");
    gate.close().await;
}

#[tokio::test]
async fn connections_with_requests_in_progress_are_not_evicted() {
    let gate = gate(None);
    let mut streaming = gate.connect_from(ONE).await;
    streaming.send(chat("X-Script: hang midway\r\n", "")).await;
    streaming.until("piece").await;
    let mut sending = gate.connect_from(ONE).await;
    let request = chat("", "12345");
    let (first, rest) = request.split_at(request.len() - 3);
    sending.send(first).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((ONE, 0))).unwrap();
    let io = TokioIo::new(socket.connect(gate.address).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), io).await.unwrap();
    gate.shared.tracker.spawn(connection);
    let hangs = http::Request::post("http://x/v1/chat/completions")
        .header("authorization", format!("Bearer {SECRET}"))
        .header("x-script", "hang midway")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let mut stream = sender.send_request(hangs).await.unwrap().into_body();
    assert_eq!(stream.frame().await.unwrap().unwrap().into_data().unwrap(), "piece");

    let held = gate.held("").await;
    gate.others_are_served().await;
    assert_eq!(first_end(held).await, "", "those at rest are closed");
    let further = timeout(Duration::from_millis(700), streaming.socket.read_u8()).await;
    assert!(further.is_err(), "the stream continues: {further:?}");
    assert!(timeout(Duration::from_millis(1), stream.frame()).await.is_err(), "the HTTP/2 stream continues");
    sending.send(rest).await;
    assert!(sending.until("length 5").await.starts_with("HTTP/1.1 200"));
    drop((streaming, stream, sender));
    gate.quiet().await;
    gate.close().await;
}

#[tokio::test]
async fn address_with_few_idle_connections_keeps_them() {
    let gate = gate(None);
    let mut few = gate.connect_from([127, 0, 0, 3]).await;
    few.send(chat("", "")).await;
    few.until("length 0").await;
    let held = gate.held("").await;
    gate.others_are_served().await;
    few.send(chat("", "1")).await;
    assert!(few.until("length 1").await.starts_with("HTTP/1.1 200"));
    drop(held);
    gate.close().await;
}

#[tokio::test]
async fn one_address_with_busy_connections_cannot_hold_all_connections() {
    let gate = gate(None);
    let mut busy = Vec::new();
    for _ in 0..LIMIT - LIMIT / 8 {
        let mut caller = gate.connect_from(ONE).await;
        caller.send(chat("X-Script: hang midway\r\n", "")).await;
        caller.until("piece").await;
        busy.push(caller);
    }
    let mut refused = gate.connect_from(ONE).await;
    refused.send(chat("", "")).await;
    assert_eq!(statuses(&refused.until("}}").await), [503], "seven eighths are the most for one address");
    let mut others = Vec::new();
    for n in 0..4 {
        let mut other = gate.connect_from([127, 0, 0, 10 + n]).await;
        other.send(chat("", "")).await;
        assert_eq!(statuses(&other.until("\r\n\r\n").await), [200], "caller {n}");
        others.push(other);
    }
    assert_eq!(gate.evicted(), 0);
    drop(busy);
    gate.quiet().await;
    gate.close().await;
}
