//! A scripted upstream: it sends the queued responses in order and keeps the requests it received.
//!
//! ```no_run
//! # use tollgate_testkit::{ScriptedResponse, Upstream};
//! let upstream = Upstream::start();
//! upstream.enqueue(ScriptedResponse::status(429).header("retry-after", "2"));
//! upstream.enqueue(ScriptedResponse::chat_stream(&["hel", "lo"]).cut_after(2));
//! ```

mod scripted_response;

use std::{
    collections::VecDeque,
    io::{BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

pub use scripted_response::ScriptedResponse;

use crate::wire;

/// A running upstream on a loopback port of its own.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// Answers requests for which no response is queued or set.
    answer: fn(&str, &[u8]) -> ScriptedResponse,
    queue: Mutex<VecDeque<ScriptedResponse>>,
    default: Mutex<Option<ScriptedResponse>>,
    received: Mutex<Vec<ReceivedRequest>>,
    connections: AtomicUsize,
    stopped: AtomicBool,
}

/// A request the upstream received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Method and target, such as `POST /v1/chat/completions`.
    pub line: String,
    /// Header names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// When its head was read.
    pub at: Instant,
    /// When the gateway closed the connection before the response was complete.
    pub closed_at: Option<Instant>,
}

impl ReceivedRequest {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the upstream received JSON")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Upstream {
    /// Starts on a free port. Without queued responses it answers each path with a plain success of its protocol.
    pub fn start() -> Self {
        Self::answering(plain_success)
    }

    /// Starts on a free port. Without queued responses it answers as the model of [`provider`](crate::provider).
    pub fn with_model() -> Self {
        Self::answering(crate::provider::response)
    }

    fn answering(answer: fn(&str, &[u8]) -> ScriptedResponse) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State {
            answer,
            queue: Mutex::default(),
            default: Mutex::default(),
            received: Mutex::default(),
            connections: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.stopped.load(Ordering::SeqCst) {
                    return;
                }
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let state = Arc::clone(&shared);
                thread::spawn(move || serve(&state, &stream));
            }
        });
        Self { address, state }
    }

    /// Queues a response; each answers one request.
    pub fn enqueue(&self, response: ScriptedResponse) -> &Self {
        lock(&self.state.queue).push_back(response);
        self
    }

    pub fn clear(&self) {
        lock(&self.state.queue).clear();
    }

    /// Sets the response to requests for which none is queued.
    pub fn set_default(&self, response: ScriptedResponse) -> &Self {
        *lock(&self.state.default) = Some(response);
        self
    }

    /// Base URL for a chat completions channel.
    pub fn openai_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Base URL for a native channel.
    pub fn gemini_url(&self) -> String {
        format!("http://{}/v1beta", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn received(&self) -> Vec<ReceivedRequest> {
        lock(&self.state.received).clone()
    }

    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Waits until the received requests meet a condition.
    pub fn wait_for(&self, what: &str, holds: impl Fn(&[ReceivedRequest]) -> bool) {
        crate::wait_for(&format!("the upstream receives {what}"), Duration::from_secs(1), || holds(&lock(&self.state.received)));
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Serves one connection until either side closes it.
fn serve(state: &State, stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let Ok(reading) = stream.try_clone() else { return };
    let mut reader = BufReader::new(reading);
    while let Ok(Some(head)) = wire::read_head(&mut reader) {
        let at = Instant::now();
        let Ok(body) = wire::read_body(&head, &mut reader) else { return };
        let line = head.first_line.trim_end_matches(" HTTP/1.1").to_owned();
        let queued = lock(&state.queue).pop_front().or_else(|| lock(&state.default).clone());
        let response = queued.unwrap_or_else(|| (state.answer)(&line, &body));
        let index = {
            let mut received = lock(&state.received);
            received.push(ReceivedRequest { line, headers: head.headers, body, at, closed_at: None });
            received.len() - 1
        };
        if !matches!(respond(stream, &response), Ok(true)) {
            lock(&state.received)[index].closed_at = Some(Instant::now());
            return;
        }
        if response.close || response.close_unannounced {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// A plain success of the protocol and method that the request line names.
fn plain_success(line: &str, body: &[u8]) -> ScriptedResponse {
    let streams = serde_json::from_slice::<Value>(body).is_ok_and(|body| body["stream"] == true);
    if line.contains(":streamGenerateContent") {
        ScriptedResponse::native_stream(&["hel", "lo"])
    } else if line.contains(":generateContent") {
        ScriptedResponse::native("hello")
    } else if line.contains(":countTokens") {
        ScriptedResponse::json(&json!({"totalTokens": 5}))
    } else if line.contains("/embeddings") {
        ScriptedResponse::json(&json!({
            "object": "list", "model": "upstream-model", "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.5]}],
            "usage": {"prompt_tokens": 5, "total_tokens": 5},
        }))
    } else if line.contains("mbedContent") {
        ScriptedResponse::json(&json!({"embeddings": [{"values": [0.5, -0.5]}], "embedding": {"values": [0.5, -0.5]}}))
    } else if line.contains("/messages/count_tokens") {
        ScriptedResponse::json(&json!({"input_tokens": 5}))
    } else if line.contains("/responses/input_tokens") {
        ScriptedResponse::json(&json!({"object": "response.input_tokens", "input_tokens": 5}))
    } else if line.contains("/responses/compact") {
        ScriptedResponse::compaction()
    } else if line.contains("/responses") && streams {
        ScriptedResponse::response_stream(&["hel", "lo"])
    } else if line.contains("/responses") {
        ScriptedResponse::response("hello")
    } else if line.contains("/messages") && streams {
        ScriptedResponse::message_stream(&["hel", "lo"])
    } else if line.contains("/messages") {
        ScriptedResponse::message("hello")
    } else if streams {
        ScriptedResponse::chat_stream(&["hel", "lo"])
    } else {
        ScriptedResponse::chat("hello")
    }
}

/// Writes a response; `false` when the connection ended before the response was complete.
fn respond(mut stream: &TcpStream, response: &ScriptedResponse) -> std::io::Result<bool> {
    if response.close_immediately {
        stream.shutdown(Shutdown::Both)?;
        return Ok(true);
    }
    if !response.delay.is_zero() && closed_within(stream, response.delay) {
        return Ok(false);
    }
    if closed_before_latch(stream, response, 0) {
        return Ok(false);
    }
    let chunked = response.chunked || response.chunks.len() > 1;
    if !response.raw {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", response.status);
        for (name, value) in &response.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if chunked {
            head.push_str("transfer-encoding: chunked\r\n\r\n");
        } else if response.headers.iter().any(|(name, _)| name == "content-length") {
            head.push_str("\r\n");
        } else {
            head.push_str(&format!("content-length: {}\r\n\r\n", response.chunks.iter().map(Vec::len).sum::<usize>()));
        }
        stream.write_all(head.as_bytes())?;
    }
    for (number, chunk) in response.chunks.iter().enumerate() {
        if response.stall_after == Some(number) {
            let _ = closed_within(stream, Duration::from_mins(2));
            return Ok(false);
        }
        if response.cut_after == Some(number) {
            stream.shutdown(Shutdown::Both)?;
            return Ok(false);
        }
        if number > 0 && !response.chunk_delay.is_zero() && closed_within(stream, response.chunk_delay) {
            return Ok(false);
        }
        if number > 0 && closed_before_latch(stream, response, number) {
            return Ok(false);
        }
        if chunked && !response.raw {
            stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes())?;
            stream.write_all(chunk)?;
            stream.write_all(b"\r\n")?;
        } else {
            stream.write_all(chunk)?;
        }
    }
    if response.repeat_last_chunk {
        return write_repeatedly(stream, response.chunks.last().map_or(&[], Vec::as_slice)).map(|()| false);
    }
    if response.reset {
        // With a linger time of zero, closing sends RST.
        socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
        return Ok(false);
    }
    if chunked && !response.raw {
        stream.write_all(b"0\r\n\r\n")?;
    }
    Ok(true)
}

/// Longest wait for a latch, so that a failed test leaves no thread behind.
const LATCH_TIMEOUT: Duration = Duration::from_mins(2);
/// Most bytes of a body that repeats its last chunk.
const MAX_REPEATED_BYTES: usize = 1 << 30;

/// Writes one chunk repeatedly until the peer closes.
fn write_repeatedly(mut stream: &TcpStream, chunk: &[u8]) -> std::io::Result<()> {
    let chunk = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
    let many = chunk.repeat((64 * 1024 / chunk.len()).max(1));
    let mut sent = 0;
    while sent < MAX_REPEATED_BYTES {
        stream.write_all(&many)?;
        sent += many.len();
    }
    Ok(())
}

/// Waits for the latch if the response has one after this many chunks. `true` when the peer closed first, or the latch was
/// not opened in time.
fn closed_before_latch(stream: &TcpStream, response: &ScriptedResponse, chunks: usize) -> bool {
    let Some((_, latch)) = response.latch.as_ref().filter(|(after, _)| *after == chunks) else { return false };
    let begin = Instant::now();
    while !latch.is_open() {
        if closed_within(stream, Duration::from_millis(5)) || begin.elapsed() > LATCH_TIMEOUT {
            return true;
        }
    }
    false
}

/// Waits; `true` when the peer closed the connection during the wait.
fn closed_within(mut stream: &TcpStream, wait: Duration) -> bool {
    let _ = stream.set_read_timeout(Some(wait));
    let mut byte = [0; 1];
    let closed = match stream.read(&mut byte) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
    };
    let _ = stream.set_read_timeout(None);
    closed
}
