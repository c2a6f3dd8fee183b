//! A plain HTTP/1.1 client that exposes the wire: one connection per request, chunks as they arrive.

use std::{
    io::{self, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;

use crate::wire;

#[derive(Clone, Debug)]
#[must_use]
pub struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A response, read to its end.
#[derive(Clone, Debug)]
pub struct ClientResponse {
    pub status: u16,
    /// Header names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// True when the body ended as its framing requires, false when it was aborted.
    pub complete: bool,
}

impl Request {
    pub fn get(path: &str) -> Self {
        Self { method: "GET".to_owned(), path: path.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    /// A POST with a JSON body.
    pub fn post(path: &str, body: &Value) -> Self {
        Self::post_bytes(path, body.to_string().into_bytes())
    }

    /// A POST with these bytes as body, labelled JSON.
    pub fn post_bytes(path: &str, body: Vec<u8>) -> Self {
        Self { method: "POST".to_owned(), path: path.to_owned(), headers: Vec::new(), body }
            .header("content-type", "application/json")
    }

    pub fn method(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn replace_header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.header(name, value)
    }

    /// Adds `authorization: Bearer KEY`.
    pub fn bearer(self, key: &str) -> Self {
        let value = format!("Bearer {key}");
        self.header("authorization", &value)
    }

    /// Adds the native protocol's key header.
    pub fn native_key(self, key: &str) -> Self {
        self.header("x-native-api-key", key)
    }

    /// True for requests that leave a usage record.
    pub(crate) fn is_model_call(&self) -> bool {
        self.method == "POST" && !self.path.starts_with("/admin")
    }

    /// Opens a connection and sends the request.
    pub fn send(&self, to: SocketAddr) -> io::Result<PendingResponse> {
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        let mut head = format!("{} {} HTTP/1.1\r\nconnection: close\r\n", self.method, self.path);
        if !self.headers.iter().any(|(name, _)| name == "host") {
            head.push_str(&format!("host: {to}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.method != "GET" || !self.body.is_empty() {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        // The gateway may refuse before it read the body: then the write fails, and the response can still be read.
        let _ = stream.write_all(&bytes);
        Ok(PendingResponse { head_only: self.method == "HEAD", reader: BufReader::new(stream) })
    }
}

/// A request that was sent and whose response is not read yet.
#[derive(Debug)]
pub struct PendingResponse {
    reader: BufReader<TcpStream>,
    head_only: bool,
}

impl PendingResponse {
    /// Reads the whole response.
    pub fn read(mut self) -> io::Result<ClientResponse> {
        let mut response = self.read_head()?;
        self.read_rest(&mut response);
        if let Some(length) = response.header("content-length").and_then(|text| text.parse::<usize>().ok())
            && !self.head_only
        {
            response.complete &= length == response.body.len();
        }
        Ok(response)
    }

    /// Reads the head of the response.
    pub fn read_head(&mut self) -> io::Result<ClientResponse> {
        let head = wire::read_head(&mut self.reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.first_line.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(ClientResponse { status, headers: head.headers, body: Vec::new(), complete: true })
    }

    /// Reads the next chunk of the body, or the next bytes of an unchunked one; `None` at its end.
    pub fn read_chunk(&mut self, response: &ClientResponse) -> io::Result<Option<Vec<u8>>> {
        if self.head_only {
            return Ok(None);
        }
        if response.header("transfer-encoding") == Some("chunked") {
            return wire::read_chunk(&mut self.reader);
        }
        let mut buffer = vec![0; 64 * 1024];
        let got = self.reader.read(&mut buffer)?;
        buffer.truncate(got);
        Ok((got > 0).then_some(buffer))
    }

    /// Reads the body to its end, or until the connection breaks.
    pub fn read_rest(&mut self, response: &mut ClientResponse) {
        response.complete = loop {
            match self.read_chunk(response) {
                Ok(Some(bytes)) => response.body.extend_from_slice(&bytes),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
    }

    /// Closes the connection without reading on.
    pub fn abort(self) {
        drop(self);
    }
}

impl ClientResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text()))
    }

    /// The `data:` payloads of an event stream.
    pub fn events(&self) -> Vec<String> {
        self.text().lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }
}
