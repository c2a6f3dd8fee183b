//! Hostile callers: malformed requests, byte for byte, against the real binary. The inputs are data
//! (`tests/fixtures/hostile.jsonl`): what is sent, and which answers are acceptable. `/healthz` must answer after each.

mod bytes;
mod judge;

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tollgate_testkit::{Request, TestGateway};

use crate::support;
use bytes::{Action, Places};

/// What came back on one connection.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(crate) bytes: Vec<u8>,
    pub(crate) closed: bool,
    pub(crate) waited: Duration,
    /// Nothing more came until the time was up.
    pub(crate) timed_out: bool,
}

/// How many times slower than promised a machine may be that does other work beside the tests.
pub(crate) const SLACK: u32 = 3;
/// Inputs under way at once; some of them are long silences.
const WORKERS: usize = 8;

#[test]
fn every_hostile_input_is_answered_as_it_may_be() {
    let gate = support::echo();
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    canary.set_nonblocking(true).unwrap();
    let places = Places {
        host: gate.address().to_string(),
        key: gate.key().to_owned(),
        model: "echo".to_owned(),
        canary: canary.local_addr().unwrap().to_string(),
        admin: crate::admin::make_key(&gate, "hostile", "admin"),
    };
    let corpus = include_str!("../fixtures/hostile.jsonl");
    let before = support::resident_kib(gate.pid());
    let inputs: Vec<Value> = corpus.lines().map(|line| serde_json::from_str(line).expect("the fixture is JSON lines")).collect();
    let judged = inputs.len();
    let mut faults: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (gate, places, inputs) = (&gate, &places, &inputs);
                scope.spawn(move || {
                    inputs.iter().skip(worker).step_by(WORKERS).flat_map(|input| try_out(gate, input, places)).collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("workers do not panic")).collect()
    });
    if canary.accept().is_ok() {
        faults.push("the gateway connected to an address of the caller's choice".to_owned());
    }
    let growth = support::resident_kib(gate.pid()).saturating_sub(before);
    println!("{judged} hostile inputs, {} faults, resident memory grew by {growth} KiB", faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(judged > 400, "only {judged} inputs were judged");
    assert!(growth < 64 * 1024, "memory grew by {growth} KiB");
}

/// One input: what is wrong with its answer, and with the gateway afterwards.
fn try_out(gate: &TestGateway, input: &Value, places: &Places) -> Vec<String> {
    let exchange = exchange(gate, input, places);
    let mut wrong = judge::judge(input, &exchange, places);
    if gate.send(&Request::get("/healthz")).status != 200 {
        wrong.push("/healthz does not answer any more".to_owned());
    }
    wrong.into_iter().map(|fault| format!("{}: {fault}", input["id"].as_str().unwrap_or_default())).collect()
}

/// Sends one input and reads until the answer is there, the peer closed, or time is up.
fn exchange(gate: &TestGateway, input: &Value, places: &Places) -> Exchange {
    let mut exchange = Exchange::default();
    let mut stream = TcpStream::connect(gate.address()).expect("the gateway listens");
    stream.set_nodelay(true).unwrap();
    stream.set_nonblocking(true).unwrap();
    for action in bytes::actions(&input["req"], places) {
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
    let sent = Instant::now();
    while !exchange.closed && sent.elapsed() < limit {
        let had = exchange.bytes.len();
        read_for(&mut stream, settle, &mut exchange);
        if exchange.bytes.len() == had && judge::is_answered(input, &exchange) {
            break;
        }
    }
    exchange.timed_out = !exchange.closed && sent.elapsed() >= limit;
    exchange.waited = sent.elapsed();
    exchange
}

/// Writes everything, reading meanwhile, as long as the peer takes it; bounded to 40 s.
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

/// Reads what comes within a time; returns early when the peer closes.
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
