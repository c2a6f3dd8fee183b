//! A scripted model behind all three upstream protocols: deterministic, and strict about what reaches it.
//!
//! What it does follows from the request alone, so it needs no script per test:
//! - text `say: X` is answered with `X`, `fail: 429` with that status, anything else with `you said: …`;
//! - with tools on offer and text `use tools`, it calls the first two tools in parallel, then the first one again,
//!   then answers with every result it was given;
//! - a JSON format is answered with `{"answer":"…"}`; thinking that was asked for comes before the text.
//!
//! It answers 400 where a real provider would: results that match no call, ids of foreign form, lost signatures.

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

/// What a request comes to, whatever its protocol.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelInput {
    /// Text of the last user turn.
    pub(crate) text: String,
    /// Names of the tools.
    pub(crate) tools: Vec<String>,
    /// Results given so far, in order.
    pub(crate) results: Vec<String>,
    /// How many turns of results there were.
    pub(crate) rounds: usize,
    /// JSON is wanted.
    pub(crate) json: bool,
    /// Thinking is wanted.
    pub(crate) thinking: bool,
    /// Media parts in the last user turn.
    pub(crate) media: usize,
    /// Stream the answer.
    pub(crate) stream: bool,
}

/// What is answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelOutput {
    pub(crate) thought: Option<String>,
    pub(crate) text: Option<String>,
    /// Name and arguments of each call.
    pub(crate) calls: Vec<(String, Value)>,
}

/// A refusal with its status.
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

/// A written answer.
pub(crate) enum ResponseBody {
    Json(Value),
    /// Whole events, framing included.
    Events(Vec<String>),
}

/// What the model says.
pub(crate) fn respond(asked: &ModelInput) -> Result<ModelOutput, ProviderError> {
    let mut said = ModelOutput { thought: asked.thinking.then(|| "let me think".to_owned()), ..ModelOutput::default() };
    let after = |prefix: &str| asked.text.split_once(prefix).map(|(_, rest)| rest.trim().to_owned());
    if let Some(status) = after("fail: ").and_then(|text| text.parse().ok()) {
        return Err(ProviderError { status, message: "failing as asked".to_owned() });
    }
    let tool = |index: usize, city: &str| asked.tools.get(index).map(|name| (name.clone(), json!({"city": city})));
    if asked.text.contains("use tools") && !asked.tools.is_empty() {
        match asked.rounds {
            0 => said.calls = [tool(0, "Oslo"), tool(1, "Bergen")].into_iter().flatten().collect(),
            1 => said.calls = tool(0, "Tromsø").into_iter().collect(),
            _ => said.text = Some(format!("results: {}", asked.results.join(" | "))),
        }
    } else if asked.json {
        said.text = Some(json!({"answer": asked.text}).to_string());
    } else {
        said.text = Some(after("say: ").unwrap_or_else(|| format!("you said: {} ({} media)", asked.text, asked.media)));
    }
    Ok(said)
}

/// Cuts a text into pieces of about 5 characters, for streams.
pub(crate) fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(5).map(|piece| piece.iter().collect()).collect()
}

/// Serves until the process ends.
///
/// # Errors
/// When the address cannot be bound.
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
        let path = head.first.split(' ').nth(1).unwrap_or_default().to_owned();
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
