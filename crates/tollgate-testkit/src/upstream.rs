//! A scripted upstream: it answers as told, in order, and remembers what it saw.
//!
//! ```no_run
//! # use tollgate_testkit::{ScriptedResponse, Upstream};
//! let upstream = Upstream::start();
//! upstream.next(ScriptedResponse::status(429).header("retry-after", "2"));
//! upstream.next(ScriptedResponse::chat_stream(&["hel", "lo"]).cut_after(2));
//! ```

mod reply;

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

pub use reply::ScriptedResponse;

use crate::wire;

/// A running upstream on a loopback port of its own.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    script: Mutex<VecDeque<ScriptedResponse>>,
    usual: Mutex<Option<ScriptedResponse>>,
    seen: Mutex<Vec<ReceivedRequest>>,
    connections: AtomicUsize,
    stopped: AtomicBool,
}

/// A request the upstream received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// `POST /v1/chat/completions`.
    pub line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
    /// When its head had been read.
    pub at: Instant,
    /// When the gateway closed the connection before our answer was whole.
    pub left_at: Option<Instant>,
}

impl ReceivedRequest {
    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the upstream got JSON")
    }

    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Upstream {
    /// Starts on a free port. Without a script it answers each path with a plain success of its protocol.
    ///
    /// # Panics
    /// When no port can be had.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State::default());
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

    /// Adds an answer to the script; each answers one request.
    pub fn next(&self, reply: ScriptedResponse) -> &Self {
        lock(&self.state.script).push_back(reply);
        self
    }

    /// Takes out what is left of the script.
    pub fn clear(&self) {
        lock(&self.state.script).clear();
    }

    /// What is answered when the script is at its end.
    pub fn otherwise(&self, reply: ScriptedResponse) -> &Self {
        *lock(&self.state.usual) = Some(reply);
        self
    }

    /// Base URL for a chat completions channel.
    #[must_use]
    pub fn openai(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Base URL for a native channel.
    #[must_use]
    pub fn gemini(&self) -> String {
        format!("http://{}/v1beta", self.address)
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has seen so far.
    #[must_use]
    pub fn seen(&self) -> Vec<ReceivedRequest> {
        lock(&self.state.seen).clone()
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Waits until a condition on what was seen holds.
    ///
    /// # Panics
    /// When it does not come to hold.
    pub fn wait_for(&self, what: &str, holds: impl Fn(&[ReceivedRequest]) -> bool) {
        crate::wait_for(&format!("the upstream sees {what}"), Duration::from_secs(1), || holds(&lock(&self.state.seen)));
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

/// One connection: requests in, scripted answers out, until either side closes.
fn serve(state: &State, stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let Ok(reading) = stream.try_clone() else { return };
    let mut reader = BufReader::new(reading);
    while let Ok(Some(head)) = wire::read_head(&mut reader) {
        let at = Instant::now();
        let Ok(body) = wire::read_body(&head, &mut reader) else { return };
        let line = head.first.trim_end_matches(" HTTP/1.1").to_owned();
        let reply = lock(&state.script).pop_front().or_else(|| lock(&state.usual).clone()).unwrap_or_else(|| usual(&line, &body));
        let index = {
            let mut seen = lock(&state.seen);
            seen.push(ReceivedRequest { line, headers: head.headers, body, at, left_at: None });
            seen.len() - 1
        };
        if !matches!(answer(stream, &reply), Ok(true)) {
            lock(&state.seen)[index].left_at = Some(Instant::now());
            return;
        }
        if reply.close || reply.quits {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// A plain success for whatever was asked.
fn usual(line: &str, body: &[u8]) -> ScriptedResponse {
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
    } else if streams {
        ScriptedResponse::chat_stream(&["hel", "lo"])
    } else {
        ScriptedResponse::chat("hello")
    }
}

/// Sends an answer. `false`: the connection is over before the answer was whole.
fn answer(mut stream: &TcpStream, reply: &ScriptedResponse) -> std::io::Result<bool> {
    if reply.refuse {
        stream.shutdown(Shutdown::Both)?;
        return Ok(true);
    }
    if !reply.first_pause.is_zero() && left_within(stream, reply.first_pause) {
        return Ok(false);
    }
    if left_before(stream, reply, 0) {
        return Ok(false);
    }
    let chunked = reply.chunked || reply.pieces.len() > 1;
    if !reply.raw {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", reply.status);
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if chunked {
            head.push_str("transfer-encoding: chunked\r\n\r\n");
        } else if reply.headers.iter().any(|(name, _)| name == "content-length") {
            head.push_str("\r\n");
        } else {
            head.push_str(&format!("content-length: {}\r\n\r\n", reply.pieces.iter().map(Vec::len).sum::<usize>()));
        }
        stream.write_all(head.as_bytes())?;
    }
    for (number, piece) in reply.pieces.iter().enumerate() {
        if reply.stall_after == Some(number) {
            let _ = left_within(stream, Duration::from_mins(2));
            return Ok(false);
        }
        if reply.cut_after == Some(number) {
            stream.shutdown(Shutdown::Both)?;
            return Ok(false);
        }
        if number > 0 && !reply.pause.is_zero() && left_within(stream, reply.pause) {
            return Ok(false);
        }
        if number > 0 && left_before(stream, reply, number) {
            return Ok(false);
        }
        if chunked && !reply.raw {
            stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes())?;
            stream.write_all(piece)?;
            stream.write_all(b"\r\n")?;
        } else {
            stream.write_all(piece)?;
        }
    }
    if reply.forever {
        return pour(stream, reply.pieces.last().map_or(&[], Vec::as_slice)).map(|()| false);
    }
    if reply.reset {
        // Nothing lingers: what is closed now is reset.
        socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
        return Ok(false);
    }
    if chunked && !reply.raw {
        stream.write_all(b"0\r\n\r\n")?;
    }
    Ok(true)
}

/// A test that failed must not keep a thread for ever.
const LONGEST_HELD: Duration = Duration::from_mins(2);
/// Most bytes of an answer without end.
const MOST_POURED: usize = 1 << 30;

/// Sends chunks of one content until the peer closes.
fn pour(mut stream: &TcpStream, piece: &[u8]) -> std::io::Result<()> {
    let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
    let many = chunk.repeat((64 * 1024 / chunk.len()).max(1));
    let mut sent = 0;
    while sent < MOST_POURED {
        stream.write_all(&many)?;
        sent += many.len();
    }
    Ok(())
}

/// Waits for the test where the answer is held after so many pieces; `true` when the peer closed before the test let it go
/// on, or the test never did.
fn left_before(stream: &TcpStream, reply: &ScriptedResponse, pieces: usize) -> bool {
    let Some((_, hold)) = reply.held.as_ref().filter(|(after, _)| *after == pieces) else { return false };
    let begin = Instant::now();
    while !hold.is_open() {
        if left_within(stream, Duration::from_millis(5)) || begin.elapsed() > LONGEST_HELD {
            return true;
        }
    }
    false
}

/// Waits; `true` when the peer closed meanwhile.
fn left_within(mut stream: &TcpStream, wait: Duration) -> bool {
    let _ = stream.set_read_timeout(Some(wait));
    let mut byte = [0; 1];
    let left = match stream.read(&mut byte) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
    };
    let _ = stream.set_read_timeout(None);
    left
}
