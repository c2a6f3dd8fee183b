//! Malformed and hostile requests against the real binary, byte for byte. `tests/fixtures/malformed_requests.jsonl` holds the
//! bytes to send and the acceptable answers. After each input `/healthz` must answer.

mod bytes;
mod expectations;
mod messages;
mod responses;

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tollgate_testkit::{Request, TestGateway};

use crate::support;
use bytes::{Action, Placeholders};

/// The answer on one connection.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) bytes: Vec<u8>,
    pub(crate) closed: bool,
    pub(crate) waited: Duration,
    /// The time limit passed before the answer was complete.
    pub(crate) timed_out: bool,
}

/// Factor allowed beyond the documented times, for busy machines.
pub(crate) const SLACK: u32 = 3;
/// Concurrent inputs; some consist of long pauses.
const WORKERS: usize = 8;

/// Lines of inputs.
const CORPUS: &str = include_str!("../fixtures/malformed_requests.jsonl");

#[test]
fn every_malformed_request_gets_an_acceptable_answer() {
    let inputs: Vec<Value> = CORPUS.lines().map(|line| serde_json::from_str(line).expect("the fixture is JSON lines")).collect();
    assert!(inputs.len() > 400, "only {} inputs", inputs.len());
    check_all(&inputs);
}

#[test]
fn every_malformed_request_to_messages_gets_an_acceptable_answer() {
    let inputs = messages::inputs(CORPUS);
    assert!(inputs.len() > 400, "only {} inputs", inputs.len());
    check_all(&inputs);
}

#[test]
fn every_malformed_request_to_responses_gets_an_acceptable_answer() {
    let inputs = responses::inputs(CORPUS);
    assert!(inputs.len() > 350, "only {} inputs", inputs.len());
    check_all(&inputs);
}

/// Sends the inputs, some at a time, to a gateway of their own.
fn check_all(inputs: &[Value]) {
    let gateway = support::echo();
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    canary.set_nonblocking(true).unwrap();
    let placeholders = Placeholders {
        host: gateway.address().to_string(),
        key: gateway.key().to_owned(),
        model: "echo".to_owned(),
        canary: canary.local_addr().unwrap().to_string(),
        admin: crate::admin::make_key(&gateway, "malformed-requests", "admin"),
    };
    let before = support::resident_kib(gateway.pid());
    let checked: Vec<CheckedInput<'_>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (gateway, placeholders) = (&gateway, &placeholders);
                let own = inputs.iter().skip(worker).step_by(WORKERS);
                scope.spawn(move || own.map(|input| check(gateway, input, placeholders)).collect::<Vec<_>>())
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("workers do not panic")).collect()
    });
    // All inputs have one key. Those that are sent at the same time may exceed its share of the gateway, which does not say how one of them
    // is answered: it is sent again alone.
    let checked = checked.into_iter().map(|one| {
        let is_sent_again = one.is_overloaded && !one.violations.is_empty();
        if is_sent_again { check(&gateway, one.input, &placeholders) } else { one }
    });
    let mut violations: Vec<String> = checked.flat_map(|one| one.violations).collect();
    if canary.accept().is_ok() {
        violations.push("the gateway connected to an address of the caller's choice".to_owned());
    }
    let growth = support::resident_kib(gateway.pid()).saturating_sub(before);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    assert!(growth < 64 * 1024, "memory grew by {growth} KiB");
}

/// An input that was sent, with the violations of its answer and of the gateway afterwards.
struct CheckedInput<'a> {
    input: &'a Value,
    violations: Vec<String>,
    /// Whether the gateway was too busy for it.
    is_overloaded: bool,
}

fn check<'a>(gateway: &TestGateway, input: &'a Value, placeholders: &Placeholders) -> CheckedInput<'a> {
    let exchange = exchange(gateway, input, placeholders);
    let mut violations = expectations::violations(input, &exchange, placeholders);
    if gateway.send(&Request::get("/healthz")).status != 200 {
        violations.push("/healthz does not answer any more".to_owned());
    }
    let id = input["id"].as_str().unwrap_or_default();
    let violations = violations.into_iter().map(|violation| format!("{id}: {violation}")).collect();
    CheckedInput { input, violations, is_overloaded: contains(&exchange.bytes, b"server_overloaded") }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Sends one input and reads until the answer is complete, the peer closes, or the time limit passes.
fn exchange(gateway: &TestGateway, input: &Value, placeholders: &Placeholders) -> Exchange {
    let mut exchange = Exchange::default();
    let mut stream = TcpStream::connect(gateway.address()).expect("the gateway listens");
    stream.set_nodelay(true).unwrap();
    stream.set_nonblocking(true).unwrap();
    for action in bytes::actions(&input["req"], placeholders) {
        if exchange.closed {
            break;
        }
        match action {
            Action::Send(data) => send(&mut stream, &data, &mut exchange),
            Action::Wait(time) => read_for(&mut stream, time, &mut exchange),
            Action::Shut => {
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
    }
    let limit = SLACK * Duration::from_secs_f64(input["expect"]["timeout"].as_f64().unwrap_or(10.0));
    let settle = Duration::from_secs_f64(input["expect"]["settle"].as_f64().unwrap_or(0.05));
    let sent_at = Instant::now();
    while !exchange.closed && sent_at.elapsed() < limit {
        let had = exchange.bytes.len();
        read_for(&mut stream, settle, &mut exchange);
        if exchange.bytes.len() == had && expectations::is_answered(input, &exchange) {
            break;
        }
    }
    exchange.timed_out = !exchange.closed && sent_at.elapsed() >= limit;
    exchange.waited = sent_at.elapsed();
    exchange
}

/// Writes everything while reading, until the peer stops accepting; at most 40 s.
fn send(stream: &mut TcpStream, data: &[u8], exchange: &mut Exchange) {
    let begin = Instant::now();
    let mut rest = data;
    while !rest.is_empty() && !exchange.closed && begin.elapsed() < Duration::from_secs(40) {
        match stream.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => read_for(stream, Duration::from_millis(5), exchange),
            Err(_) => {
                read_for(stream, Duration::from_millis(50), exchange);
                exchange.closed = true;
            }
        }
    }
}

/// Reads for this time; returns early when the peer closes.
fn read_for(stream: &mut TcpStream, time: Duration, exchange: &mut Exchange) {
    let begin = Instant::now();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => {
                exchange.closed = true;
                return;
            }
            Ok(got) => {
                if exchange.bytes.len() < 4 << 20 {
                    exchange.bytes.extend_from_slice(&buffer[..got]);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if begin.elapsed() >= time {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => {
                exchange.closed = true;
                return;
            }
        }
    }
}
