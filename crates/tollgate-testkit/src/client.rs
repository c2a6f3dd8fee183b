//! A plain HTTP/1.1 client that hides nothing: one connection per request, pieces with their times.

use std::{
    io::{self, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::wire;

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct ClientResponse {
    /// Status.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
    /// The pieces as they came.
    pub pieces: Vec<BodyChunk>,
    /// Whether the body ended as HTTP says it must; `false` when it was aborted.
    pub whole: bool,
}

/// Bytes that arrived together.
#[derive(Clone, Debug)]
pub struct BodyChunk {
    /// When.
    pub at: Instant,
    /// What.
    pub bytes: Vec<u8>,
}

impl Request {
    /// A GET.
    #[must_use]
    pub fn get(path: &str) -> Self {
        Self { method: "GET".to_owned(), path: path.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    /// A POST with a JSON body.
    #[must_use]
    pub fn post(path: &str, body: &Value) -> Self {
        Self::post_bytes(path, body.to_string().into_bytes())
    }

    /// A POST with these bytes as JSON body.
    #[must_use]
    pub fn post_bytes(path: &str, body: Vec<u8>) -> Self {
        Self { method: "POST".to_owned(), path: path.to_owned(), headers: Vec::new(), body }
            .header("content-type", "application/json")
    }

    /// Another method.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Replaces a header.
    #[must_use]
    pub fn replace_header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.header(name, value)
    }

    /// Adds a chat key.
    #[must_use]
    pub fn bearer(self, key: &str) -> Self {
        let value = format!("Bearer {key}");
        self.header("authorization", &value)
    }

    /// Adds a native key.
    #[must_use]
    pub fn native_key(self, key: &str) -> Self {
        self.header("x-native-api-key", key)
    }

    /// Whether it asks a model: the others leave no usage record.
    pub(crate) fn is_model_call(&self) -> bool {
        self.method == "POST" && !self.path.starts_with("/admin")
    }

    /// Opens a connection and sends the request.
    ///
    /// # Errors
    /// When the peer cannot be reached.
    pub fn send(&self, to: SocketAddr) -> io::Result<PendingResponse> {
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        let mut head = format!("{} {} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.method != "GET" || !self.body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        // A refusal may come before the body was taken; then the write fails and the answer is still there.
        let _ = stream.write_all(&bytes);
        Ok(PendingResponse { head_only: self.method == "HEAD", reader: BufReader::new(stream) })
    }
}

/// A request under way.
#[derive(Debug)]
pub struct PendingResponse {
    reader: BufReader<TcpStream>,
    head_only: bool,
}

impl PendingResponse {
    /// Reads the whole answer.
    ///
    /// # Errors
    /// When no answer begins.
    pub fn answer(mut self) -> io::Result<ClientResponse> {
        let mut answer = self.head()?;
        loop {
            match self.piece(&answer) {
                Ok(Some(bytes)) => {
                    answer.body.extend_from_slice(&bytes);
                    answer.pieces.push(BodyChunk { at: Instant::now(), bytes });
                }
                Ok(None) => break,
                Err(_) => {
                    answer.whole = false;
                    break;
                }
            }
        }
        if let Some(length) = answer.header("content-length").and_then(|text| text.parse::<usize>().ok())
            && !self.head_only
        {
            answer.whole &= length == answer.body.len();
        }
        Ok(answer)
    }

    /// Reads the head of the answer only.
    ///
    /// # Errors
    /// When no answer begins.
    pub fn head(&mut self) -> io::Result<ClientResponse> {
        let head = wire::read_head(&mut self.reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.first.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(ClientResponse { status, headers: head.headers, body: Vec::new(), pieces: Vec::new(), whole: true })
    }

    /// Reads the next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// When the body was aborted.
    pub fn piece(&mut self, answer: &ClientResponse) -> io::Result<Option<Vec<u8>>> {
        if self.head_only {
            return Ok(None);
        }
        if answer.header("transfer-encoding") == Some("chunked") {
            return wire::read_chunk(&mut self.reader);
        }
        let mut buffer = vec![0; 64 * 1024];
        let got = self.reader.read(&mut buffer)?;
        buffer.truncate(got);
        Ok((got > 0).then_some(buffer))
    }

    /// Goes away without reading on.
    pub fn leave(self) {
        drop(self);
    }
}

impl ClientResponse {
    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text()))
    }

    /// The `data:` payloads of an event stream.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        self.text().lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }
}
