//! A model provider that speaks all three upstream protocols: deterministic, and strict about requests.
//!
//! The response follows from the request alone:
//! - text `say: X` gives `X`, `fail: 429` that status, any other text `you output: …`;
//! - with tools and the text `use tools`, the model calls the first two tools in parallel, then the first one again, then
//!   answers with all results;
//! - a JSON response format gives `{"answer":"…"}`; requested thinking precedes the text.
//!
//! It answers 400 where a real provider does: results without a call, ids of another protocol's form, lost signatures.

mod anthropic;
mod gemini;
mod openai;

use std::{
    io::{self, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::wire;

/// The parts of a request that the response depends on, for every protocol.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelInput {
    /// Text of the last user turn.
    pub(crate) text: String,
    pub(crate) tools: Vec<String>,
    /// Tool results so far, in order.
    pub(crate) results: Vec<String>,
    /// Number of turns with tool results.
    pub(crate) rounds: usize,
    /// A JSON response format is requested.
    pub(crate) json: bool,
    /// Thinking is requested.
    pub(crate) thinking: bool,
    /// Media parts in the last user turn.
    pub(crate) media: usize,
    /// Streaming is requested.
    pub(crate) stream: bool,
}

/// A response, for every protocol.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelOutput {
    pub(crate) thought: Option<String>,
    pub(crate) text: Option<String>,
    pub(crate) calls: Vec<(String, Value)>,
}

#[derive(Clone, Debug)]
pub(crate) struct ProviderError {
    pub(crate) status: u16,
    pub(crate) message: String,
}

impl ProviderError {
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self { status: 400, message: message.into() }
    }
}

pub(crate) enum ResponseBody {
    Json(Value),
    /// Events including their framing.
    Events(Vec<String>),
}

/// The model: from the input alone to the output.
pub(crate) fn respond(input: &ModelInput) -> Result<ModelOutput, ProviderError> {
    let mut output = ModelOutput { thought: input.thinking.then(|| "let me think".to_owned()), ..ModelOutput::default() };
    let after = |prefix: &str| input.text.split_once(prefix).map(|(_, rest)| rest.trim().to_owned());
    if let Some(status) = after("fail: ").and_then(|text| text.parse().ok()) {
        return Err(ProviderError { status, message: "failing as requested".to_owned() });
    }
    let tool = |index: usize, city: &str| input.tools.get(index).map(|name| (name.clone(), json!({"city": city})));
    if input.text.contains("use tools") && !input.tools.is_empty() {
        match input.rounds {
            0 => output.calls = [tool(0, "Oslo"), tool(1, "Bergen")].into_iter().flatten().collect(),
            1 => output.calls = tool(0, "Tromsø").into_iter().collect(),
            _ => output.text = Some(format!("results: {}", input.results.join(" | "))),
        }
    } else if input.json {
        output.text = Some(json!({"answer": input.text}).to_string());
    } else {
        output.text = Some(after("say: ").unwrap_or_else(|| format!("you output: {} ({} media)", input.text, input.media)));
    }
    Ok(output)
}

/// Splits a text into stream deltas of 5 characters.
pub(crate) fn deltas(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(5).map(|delta| delta.iter().collect()).collect()
}

/// Serves connections until the process ends; calls `ready` with the bound address.
pub fn serve(address: SocketAddr, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    ready(listener.local_addr()?);
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            let _ = connection(&stream);
        });
    }
    Ok(())
}

fn connection(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(head) = wire::read_head(&mut reader)? {
        let body = wire::read_body(&head, &mut reader)?;
        let path = head.first_line.split(' ').nth(1).unwrap_or_default().to_owned();
        let (error, result): (fn(&ProviderError) -> Value, _) = match serde_json::from_slice::<Value>(&body) {
            Err(_) => (openai::error, Err(ProviderError::bad("the body is not JSON"))),
            Ok(body) if path.contains("/chat/completions") => (openai::error, openai::answer(&body)),
            Ok(body) if path.contains("/embeddings") => (openai::error, Ok(openai::embed(&body))),
            Ok(_) if path.contains("/messages/count_tokens") => {
                (anthropic::error, Ok(ResponseBody::Json(json!({"input_tokens": 11}))))
            }
            Ok(body) if path.contains("/messages") => (anthropic::error, anthropic::answer(&body)),
            Ok(body) if path.contains("/models/") => (gemini::error, gemini::answer(&path, &body)),
            Ok(_) => (openai::error, Err(ProviderError { status: 404, message: format!("no such path {path}") })),
        };
        write(stream, error, result)?;
    }
    Ok(())
}

fn write(
    mut stream: &TcpStream,
    error: fn(&ProviderError) -> Value,
    result: Result<ResponseBody, ProviderError>,
) -> io::Result<()> {
    let json = |status: u16, body: &Value| {
        let body = body.to_string();
        format!("HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    match result {
        Err(refused) => stream.write_all(json(refused.status, &error(&refused)).as_bytes()),
        Ok(ResponseBody::Json(body)) => stream.write_all(json(200, &body).as_bytes()),
        Ok(ResponseBody::Events(events)) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
            for event in events {
                stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())?;
                thread::sleep(Duration::from_millis(1));
            }
            stream.write_all(b"0\r\n\r\n")
        }
    }
}
