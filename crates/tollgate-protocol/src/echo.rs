//! The built-in echo upstream: answers with the text of the last user turn, in the caller's own protocol, without a network.
//!
//! Answers are checked and relayed like those of any other upstream. Tokens are words. Events are generated lazily, in a bounded
//! number of bounded chunks, so that a long text does not become many events in memory.

mod request;
mod words;
mod writer;

use bytes::Bytes;

pub use self::writer::EchoEvents;
use self::{request::EchoRequest, words::WordChunks};
use crate::{FinishReason, GeminiErrorFields, Method, OpenAiErrorFields, Problem, Protocol, Usage, codec};

/// Parameters of an echo request besides the body.
#[derive(Clone, Copy, Debug)]
pub struct EchoCall<'a> {
    /// Protocol of the body and of the answer, one with [`ProtocolSpec::echoes`](crate::ProtocolSpec::echoes).
    pub protocol: Protocol,
    pub method: Method,
    pub model: &'a str,
    /// Request id of the gateway without `req_`, used in generated ids.
    pub request_id: &'a str,
    /// Unix time in seconds, for `created`.
    pub now: i64,
}

/// The answer of the echo upstream, in the caller's protocol.
#[derive(Clone, Debug)]
pub struct EchoAnswer {
    /// HTTP status: 200, or 400 and 404 with an error body.
    pub status: u16,
    pub body: EchoBody,
    /// Token usage, counted in words.
    pub usage: Usage,
}

/// The body of an [`EchoAnswer`].
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one per request, moved once")]
pub enum EchoBody {
    /// Complete JSON.
    Whole(Bytes),
    /// Events, each a complete `data: …` with its blank line.
    Events(EchoEvents),
}

/// The answer, independent of the protocol.
#[derive(Clone, Debug)]
struct EchoReply {
    words: WordChunks,
    /// A forced call: name, and true for a custom tool.
    call: Option<(String, bool)>,
    finish: FinishReason,
    usage: Usage,
}

/// Answers a request. The body is expected to be validated; missing members count as empty.
pub fn echo(call: &EchoCall<'_>, body: &[u8]) -> EchoAnswer {
    let is_supported = matches!(
        (call.protocol, call.method),
        (Protocol::OpenAi, Method::Chat) | (Protocol::Gemini, Method::Generate | Method::StreamGenerate | Method::CountTokens)
    );
    if !is_supported {
        return refused(call, 404, "The model 'echo' is not offered on this endpoint.", "model_not_supported_on_endpoint");
    }
    let Ok(body) = serde_json::from_slice(body) else {
        return refused(call, 400, "The request body is not valid JSON.", "invalid_json");
    };
    let request = match call.protocol {
        Protocol::OpenAi => request::openai(&body),
        Protocol::Gemini | Protocol::Anthropic | Protocol::Responses => request::gemini(&body, call.method),
    };
    drop(body);
    let prompt = Usage { prompt_total: request.prompt_words, ..Usage::default() };
    if call.method == Method::CountTokens {
        let body = format!("{{\"totalTokens\":{}}}", request.prompt_words);
        return EchoAnswer { status: 200, body: EchoBody::Whole(Bytes::from(body)), usage: prompt };
    }
    let (stream, include_usage) = (request.stream, request.include_usage);
    let reply = reply(request, prompt);
    let usage = reply.usage;
    let events = EchoEvents::new(call, reply, include_usage);
    let body = if stream { EchoBody::Events(events) } else { EchoBody::Whole(events.whole()) };
    EchoAnswer { status: 200, body, usage }
}

fn reply(request: EchoRequest, prompt: Usage) -> EchoReply {
    if let Some(call) = request.call {
        // The name and `{}` count as two words.
        let usage = Usage { completion_total: 2, ..prompt };
        return EchoReply { words: WordChunks::new(String::new(), None).0, call: Some(call), finish: FinishReason::Tool, usage };
    }
    let text = if request.json { serde_json::json!({ "echo": request.text }).to_string() } else { request.text };
    let (words, cut) = WordChunks::new(text, request.max_words);
    let usage = Usage { completion_total: words.count(), ..prompt };
    EchoReply { words, call: None, finish: if cut { FinishReason::Length } else { FinishReason::Stop }, usage }
}

fn refused(call: &EchoCall<'_>, status: u16, message: &str, code: &str) -> EchoAnswer {
    let problem = Problem {
        status,
        message: message.to_owned(),
        request_id: format!("req_{}", call.request_id),
        openai: OpenAiErrorFields { kind: "invalid_request_error".to_owned(), code: Some(code.to_owned()), param: None },
        native: GeminiErrorFields {
            status: if status == 404 { "NOT_FOUND" } else { "INVALID_ARGUMENT" },
            reason: if status == 404 { "MODEL_METHOD_UNSUPPORTED" } else { "INVALID_JSON" }.to_owned(),
            ..GeminiErrorFields::default()
        },
        retry_after: None,
        stop: false,
        ..Problem::default()
    };
    let body = codec(call.protocol).encode_problem(&problem);
    EchoAnswer { status, body: EchoBody::Whole(body), usage: Usage::default() }
}

#[cfg(test)]
mod tests;
