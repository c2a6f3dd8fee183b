//! Load on a gateway: many requests over keep-alive connections, each a new conversation, with statuses and latencies.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use tollgate_testkit::TestGateway;

use crate::support;

/// Statuses and latencies of the requests.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Number of responses by status; 0 means no response.
    pub(crate) statuses: BTreeMap<u16, usize>,
    latencies: Vec<Duration>,
}

impl Load {
    /// Requests that were not answered with 200.
    pub(crate) fn failed(&self) -> usize {
        self.statuses.iter().filter(|(status, _)| **status != 200).map(|(_, count)| count).sum()
    }

    /// The latency that this many requests in a thousand did not exceed.
    pub(crate) fn within(&self, per_mille: usize) -> Duration {
        self.latencies
            .get((self.latencies.len() * per_mille / 1_000).min(self.latencies.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    }

    fn add(&mut self, other: Self) {
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.latencies.extend(other.latencies);
    }
}

/// Sends `count` chat requests from this many concurrent callers.
pub(crate) fn send(gateway: &TestGateway, model: &str, count: usize, callers: usize) -> Load {
    let left = AtomicUsize::new(count);
    run(gateway, model, callers, || left.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok())
}

/// Sends chat requests from this many concurrent callers while `act` runs.
pub(crate) fn during(gateway: &TestGateway, model: &str, callers: usize, act: impl FnOnce()) -> Load {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| run(gateway, model, callers, || !over.load(Ordering::SeqCst)));
        act();
        over.store(true, Ordering::SeqCst);
        load.join().expect("callers do not panic")
    })
}

fn run(gateway: &TestGateway, model: &str, callers: usize, more: impl Fn() -> bool + Sync) -> Load {
    let request = Request::new(gateway, model);
    let mut all = thread::scope(|scope| {
        let callers: Vec<_> = (0..callers).map(|_| scope.spawn(|| call(gateway, &request, &more))).collect();
        let mut all = Load::default();
        for caller in callers {
            all.add(caller.join().expect("callers do not panic"));
        }
        all
    });
    all.latencies.sort_unstable();
    all
}

/// Encoded requests that differ in one number, so that each is a separate conversation without account affinity.
struct Request {
    bytes: Vec<u8>,
    number_at: usize,
    next: AtomicUsize,
}

impl Request {
    const NUMBER: &str = "00000000";

    fn new(gateway: &TestGateway, model: &str) -> Self {
        let mut body = support::chat(model);
        body["messages"][0]["content"] = format!("question {}", Self::NUMBER).into();
        let body = body.to_string();
        let text = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            gateway.address(),
            gateway.key(),
            body.len()
        );
        let number_at = text.rfind(Self::NUMBER).expect("the body has the number");
        Self { bytes: text.into_bytes(), number_at, next: AtomicUsize::new(0) }
    }

    fn next(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let number = format!("{:08}", self.next.fetch_add(1, Ordering::Relaxed));
        bytes[self.number_at..self.number_at + number.len()].copy_from_slice(number.as_bytes());
        bytes
    }
}

/// One caller with one keep-alive connection.
fn call(gateway: &TestGateway, request: &Request, more: &impl Fn() -> bool) -> Load {
    let mut load = Load::default();
    let mut connection = None;
    while more() {
        let begin = Instant::now();
        let stream = connection.take().or_else(|| open(gateway));
        let status = stream.and_then(|mut stream| {
            let status = exchange(&mut stream, &request.next())?;
            connection = Some(stream);
            Some(status)
        });
        load.latencies.push(begin.elapsed());
        *load.statuses.entry(status.unwrap_or(0)).or_default() += 1;
    }
    load
}

fn open(gateway: &TestGateway) -> Option<BufReader<TcpStream>> {
    let stream = TcpStream::connect(gateway.address()).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    Some(BufReader::new(stream))
}

/// Writes a request and reads a response that has a content length; returns its status.
fn exchange(stream: &mut BufReader<TcpStream>, bytes: &[u8]) -> Option<u16> {
    stream.get_mut().write_all(bytes).ok()?;
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    let status = line.split(' ').nth(1)?.parse().ok()?;
    let mut length = 0;
    loop {
        line.clear();
        stream.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" => break,
            field => {
                if let Some(value) = field.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().ok()?;
                }
            }
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(status)
}
