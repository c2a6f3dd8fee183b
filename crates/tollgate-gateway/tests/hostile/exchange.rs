//! One exchange on one connection.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, tcp::OwnedReadHalf},
    sync::watch,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    corpus::{Action, Input},
    gate::Gate,
    http2,
};

/// Most response bytes kept.
const KEPT: usize = 4 << 20;

/// The response to an input.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) bytes: Vec<u8>,
    pub(crate) closed: bool,
    /// Final HTTP/1.1 answers: status, head, body.
    pub(crate) answers: Vec<ReceivedResponse>,
    /// Seconds from the last byte sent to the end.
    pub(crate) seconds: f64,
    /// The service key, which must not appear in the response.
    pub(crate) key: &'static str,
    pub(crate) canary: String,
}

/// One HTTP/1.1 answer.
#[derive(Debug)]
pub(crate) struct ReceivedResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

type Received = Arc<Mutex<Vec<u8>>>;

/// Reads to the end; signals every read, and the end by dropping the sender.
async fn listen(mut half: OwnedReadHalf, received: Received, updates: watch::Sender<()>) {
    let mut piece = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = half.read(&mut piece).await {
        let mut received = received.lock().unwrap();
        if received.len() < KEPT {
            received.extend_from_slice(&piece[..count]);
        }
        drop(received);
        updates.send_replace(());
    }
}

/// Sends an input and reads until the answer is complete and nothing more comes. Returns the input as well.
pub(crate) async fn exchange(input: Input, gate: &Gate) -> (Input, Outcome) {
    let names = gate.names.clone();
    // Packing a large body takes seconds, in which this thread would neither send nor ask whether the gateway is healthy.
    let packed = gate.tracker.spawn_blocking(move || (input.actions(&names), input)).await;
    let (actions, input) = packed.unwrap();
    let (read, mut write) = TcpStream::connect(gate.address).await.unwrap().into_split();
    let received = Received::default();
    let (sender, mut updates) = watch::channel(());
    gate.tracker.spawn(listen(read, Arc::clone(&received), sender));
    for action in actions {
        let going_on = match action {
            Action::Send(bytes) => matches!(timeout(Duration::from_mins(1), write.write_all(&bytes)).await, Ok(Ok(()))),
            Action::Shut => write.shutdown().await.is_ok(),
            Action::Wait(secs) => {
                let until = Instant::now() + Duration::from_secs_f64(secs);
                while let Ok(Ok(())) = timeout_at(until, updates.changed()).await {}
                true
            }
        };
        if !going_on {
            break;
        }
    }
    let sent = Instant::now();
    let limit = sent + Duration::from_secs_f64(input.expect.timeout);
    let settle = Duration::from_secs_f64(input.expect.settle);
    let mut outcome = Outcome { key: gate.names.key, canary: gate.names.canary.clone(), ..Outcome::default() };
    loop {
        let complete = is_complete(&input, &received.lock().unwrap());
        let wait = if complete { Instant::now() + settle } else { limit };
        match timeout_at(wait.min(limit), updates.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                outcome.closed = true;
                break;
            }
            Err(_) => break,
        }
    }
    outcome.seconds = sent.elapsed().as_secs_f64();
    outcome.bytes = std::mem::take(&mut received.lock().unwrap());
    outcome.answers = answers(&outcome.bytes, outcome.closed, &input.method).0;
    (input, outcome)
}

fn is_complete(input: &Input, received: &[u8]) -> bool {
    if input.proto == "h2" {
        let read = http2::read(received);
        return read.goaway || !read.statuses.is_empty();
    }
    let (answers, rest) = answers(received, false, &input.method);
    !answers.is_empty() && rest == 0
}

/// The final responses in `bytes`, and the number of remaining bytes.
fn answers(mut bytes: &[u8], closed: bool, method: &str) -> (Vec<ReceivedResponse>, usize) {
    let mut answers = Vec::new();
    while let Some((answer, length)) = answer(bytes, closed, method) {
        bytes = &bytes[length..];
        if answer.status >= 200 {
            answers.push(answer);
        }
    }
    (answers, bytes.len())
}

fn answer(bytes: &[u8], closed: bool, method: &str) -> Option<(ReceivedResponse, usize)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let status = head.strip_prefix("http/1.")?.get(2..5)?.parse().ok()?;
    let rest = &bytes[end + 4..];
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let (body, length) = if status < 200 || matches!(status, 204 | 304) || method == "HEAD" {
        (Vec::new(), 0)
    } else if field("transfer-encoding:") == Some("chunked") {
        chunks(rest, closed)?
    } else {
        let length = field("content-length:")?.parse::<usize>().ok()?;
        if rest.len() < length && !closed {
            return None;
        }
        let length = length.min(rest.len());
        (rest[..length].to_vec(), length)
    };
    Some((ReceivedResponse { status, head, body }, end + 4 + length))
}

fn chunks(bytes: &[u8], closed: bool) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes[at..].windows(2).position(|two| two == b"\r\n");
        let size = line.and_then(|line| usize::from_str_radix(std::str::from_utf8(&bytes[at..at + line]).ok()?, 16).ok());
        let (Some(line), Some(size)) = (line, size) else { return closed.then_some((body, bytes.len())) };
        let from = at + line + 2;
        let Some(piece) = bytes.get(from..from + size + 2) else { return closed.then_some((body, bytes.len())) };
        body.extend_from_slice(&piece[..size]);
        at = from + size + 2;
        if size == 0 {
            return Some((body, at));
        }
    }
}
