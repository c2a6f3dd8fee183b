//! A model provider that speaks all four upstream protocols: deterministic, and strict about requests.
//!
//! The response follows from the request alone:
//! - text `say: X` gives `X`, `fail: 429` that status, any other text `you output: …`;
//! - with tools and the text `use tools`, the model calls the first two tools in parallel, then the first one again, then
//!   answers with all results;
//! - lines `call: NAME {"a":1}` call these tools with these arguments, and the model answers with their results;
//! - a text that is among the answers of `--answers` gets its answer, at the pace of a model;
//! - chat completions with the model `missing-model`, and all paths below `/nowhere/`, are answered with 404;
//! - a credential that begins with, for example, `status-402` is answered with that status;
//! - a JSON response format gives `{"answer":"…"}`; requested thinking precedes the text.
//!
//! It answers 400 where a real provider does: results without a call, ids of another protocol's form, lost signatures.

mod anthropic;
mod gemini;
mod openai;
mod responses;

use std::{
    collections::BTreeMap,
    io::{self, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::OnceLock,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{ScriptedResponse, wire};

/// Signature of the thinking of the Anthropic model; returned thinking must have it.
pub const ANTHROPIC_SIGNATURE: &str = "c2lnbmVk";
/// Signature of the calls of the Gemini model; returned calls must have it.
pub const GEMINI_SIGNATURE: &str = "c2NyaXB0ZWQtc2lnbmF0dXJl";

/// The encrypted content of the Responses model's reasoning, which each returned reasoning item must have.
pub const RESPONSES_SEAL: &str = "gAAAAscripted";

/// Answers by the text of the request.
static ANSWERS: OnceLock<BTreeMap<String, String>> = OnceLock::new();

/// Pauses before the first event of a stream and between two: negligible, or those of a model.
const NO_PAUSES: [Duration; 2] = [Duration::ZERO, Duration::from_millis(1)];
const PAUSES_OF_A_MODEL: [Duration; 2] = [Duration::from_millis(340), Duration::from_millis(14)];

/// Sets the answers to these texts; only the first call has an effect. Afterwards streams are as slow as those of a model.
pub fn set_answers(answers: BTreeMap<String, String>) {
    let _ = ANSWERS.set(answers);
}

/// The parts of a request that the response depends on, for every protocol.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelInput {
    /// Text of the last user turn.
    pub(crate) text: String,
    pub(crate) tools: Vec<String>,
    /// Tool results since that turn, in order.
    pub(crate) results: Vec<String>,
    /// Number of turns with tool results since then.
    pub(crate) rounds: usize,
    /// Length of the conversation. Ids contain it, because clients treat objects with the same id as the same.
    pub(crate) messages: usize,
    /// A JSON response format is requested.
    pub(crate) json: bool,
    /// Thinking is requested.
    pub(crate) thinking: bool,
    /// Thinking is requested, but not its text.
    pub(crate) hides_thought: bool,
    /// Media parts in the last user turn.
    pub(crate) media: usize,
    /// Streaming is requested.
    pub(crate) stream: bool,
}

impl ModelInput {
    /// Begins a user turn that is not made of tool results.
    pub(crate) fn begin_turn(&mut self, text: String, media: usize) {
        (self.text, self.media) = (text, media);
        self.results.clear();
        self.rounds = 0;
    }

    /// The calls that the text asks for.
    fn scripted_calls(&self) -> Result<Vec<(String, Value)>, ProviderError> {
        let lines = self.text.lines().filter_map(|line| line.strip_prefix("call: "));
        let call = |line: &str| {
            let (name, arguments) = line.split_once(' ').unwrap_or((line, "{}"));
            if !self.tools.iter().any(|known| known == name) {
                return Err(ProviderError::bad(format!("there is no tool {name}, only {}", self.tools.join(", "))));
            }
            let arguments = serde_json::from_str(arguments).map_err(|error| ProviderError::bad(format!("{line}: {error}")))?;
            Ok((name.to_owned(), arguments))
        };
        lines.map(call).collect()
    }
}

/// A response, for every protocol.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelOutput {
    pub(crate) thought: Option<String>,
    pub(crate) text: Option<String>,
    pub(crate) calls: Vec<(String, Value)>,
    /// Part of the ids of its calls; differs from those in the conversation so far.
    pub(crate) number: usize,
    /// Tokens of a text from the list of answers.
    listed_tokens: Option<usize>,
}

impl ModelOutput {
    /// Tokens of the output, without thinking.
    pub(crate) fn tokens(&self) -> usize {
        self.listed_tokens.unwrap_or(7)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ProviderError {
    pub(crate) status: u16,
    pub(crate) message: String,
    /// Code and parameter, where the protocol's errors have them.
    pub(crate) detail: Option<(&'static str, &'static str)>,
}

impl ProviderError {
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self { status: 400, message: message.into(), detail: None }
    }
}

/// Makes the body of an error in a protocol's form.
type ErrorForm = fn(&ProviderError) -> Value;

pub(crate) enum ResponseBody {
    Json(Value),
    /// Events including their framing.
    Events(Vec<String>),
}

/// The model: from the input alone to the output.
pub(crate) fn respond(input: &ModelInput) -> Result<ModelOutput, ProviderError> {
    let thought = input.thinking.then(|| if input.hides_thought { String::new() } else { "let me think".to_owned() });
    let mut output = ModelOutput { thought, number: input.messages, ..ModelOutput::default() };
    let after = |prefix: &str| input.text.split_once(prefix).map(|(_, rest)| rest.trim().to_owned());
    if let Some(status) = after("fail: ").and_then(|text| text.parse().ok()) {
        return Err(ProviderError { status, ..ProviderError::bad("failing as requested") });
    }
    let tool = |index: usize, city: &str| input.tools.get(index).map(|name| (name.clone(), json!({"city": city})));
    let calls = input.scripted_calls()?;
    let listed = ANSWERS.get().and_then(|answers| answers.get(input.text.trim()));
    if let Some(listed) = listed {
        output.listed_tokens = Some(listed.len().div_ceil(4));
        output.text = Some(listed.clone());
    } else if !calls.is_empty() {
        match input.rounds {
            0 => output.calls = calls,
            _ => output.text = Some(format!("results: {}", input.results.join(" | "))),
        }
    } else if input.text.contains("use tools") && !input.tools.is_empty() {
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
        let (error, result) = answer(&head.first_line, &body);
        let result = refused_credential(&head).map_or(result, Err);
        write(stream, error, result)?;
    }
    Ok(())
}

/// The error for a credential that names a status.
fn refused_credential(head: &wire::Head) -> Option<ProviderError> {
    let header = ["authorization", "x-api-key", "x-goog-api-key"].iter().find_map(|name| head.get(name))?;
    let status = header.trim_start_matches("Bearer ").strip_prefix("status-")?.split('-').next()?.parse().ok()?;
    Some(ProviderError { status, ..ProviderError::bad("the credential asks for this status") })
}

/// The models that are listed, for any protocol.
fn models() -> Value {
    let names = ["chat-model", "chat-model-mini", "embedding-model", "reasoning-model"];
    let data: Vec<Value> = names.iter().map(|name| json!({"id": name, "object": "model"})).collect();
    json!({"object": "list", "data": data})
}

/// The result of a request, with the form of errors of its protocol.
fn answer(line: &str, body: &[u8]) -> (ErrorForm, Result<ResponseBody, ProviderError>) {
    let path = line.split(' ').nth(1).unwrap_or_default();
    if path.starts_with("/nowhere/") {
        let message = format!("Invalid URL (POST {path})");
        return (openai::error, Err(ProviderError { status: 404, ..ProviderError::bad(message) }));
    }
    let is_list = line.starts_with("GET ") && path.split('?').next().is_some_and(|path| path.ends_with("/models"));
    match serde_json::from_slice::<Value>(body) {
        Err(_) if is_list => (openai::error, Ok(ResponseBody::Json(models()))),
        Err(_) => (openai::error, Err(ProviderError::bad("the body is not JSON"))),
        Ok(body) if path.contains("/chat/completions") => (openai::error, openai::answer(&body)),
        Ok(body) if path.contains("/embeddings") => (openai::error, Ok(openai::embed(&body))),
        Ok(_) if path.contains("/messages/count_tokens") => (anthropic::error, Ok(ResponseBody::Json(json!({"input_tokens": 11})))),
        Ok(_) if path.contains("/responses/input_tokens") => {
            (openai::error, Ok(ResponseBody::Json(json!({"object": "response.input_tokens", "input_tokens": 11}))))
        }
        Ok(body) if path.contains("/responses") => (openai::error, responses::answer(&body)),
        Ok(body) if path.contains("/messages") => (anthropic::error, anthropic::answer(&body)),
        Ok(body) if path.contains("/models/") => (gemini::error, gemini::answer(path, &body)),
        Ok(_) => (openai::error, Err(ProviderError { status: 404, ..ProviderError::bad(format!("no such path {path}")) })),
    }
}

/// The same for an [`Upstream`](crate::Upstream).
pub(crate) fn response(line: &str, body: &[u8]) -> ScriptedResponse {
    match answer(line, body) {
        (error, Err(refused)) => ScriptedResponse::error(refused.status, &error(&refused)),
        (_, Ok(ResponseBody::Json(body))) => ScriptedResponse::json(&body),
        (_, Ok(ResponseBody::Events(events))) => ScriptedResponse::events(events),
    }
}

fn write(mut stream: &TcpStream, error: ErrorForm, result: Result<ResponseBody, ProviderError>) -> io::Result<()> {
    let json = |status: u16, body: &Value| {
        let body = body.to_string();
        format!("HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    match result {
        Err(refused) => stream.write_all(json(refused.status, &error(&refused)).as_bytes()),
        Ok(ResponseBody::Json(body)) => stream.write_all(json(200, &body).as_bytes()),
        Ok(ResponseBody::Events(events)) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
            let [first, between] = if ANSWERS.get().is_some() { PAUSES_OF_A_MODEL } else { NO_PAUSES };
            thread::sleep(first);
            for event in events {
                stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())?;
                thread::sleep(between);
            }
            stream.write_all(b"0\r\n\r\n")
        }
    }
}
