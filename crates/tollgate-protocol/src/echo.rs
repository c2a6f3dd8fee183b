//! The built-in upstream: answers with the text of the last user turn, in the caller's own protocol, without a network.
//!
//! It is pure and speaks as an upstream does: complete bodies, or a stream of events (chat completions with
//! `[DONE]`, native as `alt=sse`), to be checked and relayed like any other upstream's. Tokens are words. Streams are
//! made lazily and in pieces of a bounded number and size, so a long text does not become many events in memory.

mod request;
mod words;
mod writer;

use bytes::Bytes;

pub use self::writer::EchoEvents;
use self::{request::EchoRequest, words::WordChunks};
use crate::{FinishReason, GeminiErrorFields, Method, OpenAiErrorFields, Problem, Protocol, Usage, codec};

/// What the echo needs to know besides the body.
#[derive(Clone, Copy, Debug)]
pub struct EchoCall<'a> {
    /// The protocol of the body and of the answer; [`Protocol::Anthropic`] is not spoken.
    pub protocol: Protocol,
    /// What is asked.
    pub method: Method,
    /// Name the answer gives the model.
    pub model: &'a str,
    /// Our request id without `req_`; stands in generated ids.
    pub request_id: &'a str,
    /// Unix seconds for `created`.
    pub now: i64,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct EchoAnswer {
    /// HTTP status: 200, or 400 and 404 with an error body.
    pub status: u16,
    /// The body.
    pub body: EchoBody,
    /// Words in and out; they are counted here, not reported by a provider.
    pub usage: Usage,
}

/// A body, or one that is streamed.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one a request, moved once")]
pub enum EchoBody {
    /// Complete JSON.
    Whole(Bytes),
    /// Events, each a whole `data: …` with its blank line.
    Events(EchoEvents),
}

/// What is answered, apart from the wire.
#[derive(Clone, Debug)]
struct EchoReply {
    words: WordChunks,
    /// A forced call: name, and whether its input is free text.
    call: Option<(String, bool)>,
    finish: FinishReason,
    usage: Usage,
}

/// Answers a request. The body was checked before; anything missing in it is taken as empty.
#[must_use]
pub fn echo(call: &EchoCall<'_>, body: &[u8]) -> EchoAnswer {
    let speaks = matches!(
        (call.protocol, call.method),
        (Protocol::OpenAi, Method::Chat) | (Protocol::Gemini, Method::Generate | Method::StreamGenerate | Method::CountTokens)
    );
    if !speaks {
        return refused(call, 404, "The model 'echo' is not offered on this endpoint.", "model_not_supported_on_endpoint");
    }
    let Ok(body) = serde_json::from_slice(body) else {
        return refused(call, 400, "The request body is not valid JSON.", "invalid_json");
    };
    let asked = match call.protocol {
        Protocol::OpenAi => request::chat(&body),
        Protocol::Gemini | Protocol::Anthropic => request::native(&body, call.method),
    };
    drop(body);
    let prompt = Usage { prompt_total: asked.prompt_words, ..Usage::default() };
    if call.method == Method::CountTokens {
        let body = format!("{{\"totalTokens\":{}}}", asked.prompt_words);
        return EchoAnswer { status: 200, body: EchoBody::Whole(Bytes::from(body)), usage: prompt };
    }
    let (stream, include_usage) = (asked.stream, asked.include_usage);
    let answered = answer(asked, prompt);
    let usage = answered.usage;
    let events = EchoEvents::new(call, answered, include_usage);
    let body = if stream { EchoBody::Events(events) } else { EchoBody::Whole(events.whole()) };
    EchoAnswer { status: 200, body, usage }
}

fn answer(asked: EchoRequest, prompt: Usage) -> EchoReply {
    if let Some(call) = asked.call {
        // The name and `{}`: two words.
        let usage = Usage { completion_total: 2, ..prompt };
        return EchoReply { words: WordChunks::new(String::new(), None).0, call: Some(call), finish: FinishReason::Tool, usage };
    }
    let text = if asked.json { serde_json::json!({ "echo": asked.text }).to_string() } else { asked.text };
    let (words, cut) = WordChunks::new(text, asked.max_words);
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
    };
    let body = codec(call.protocol).encode_problem(&problem);
    EchoAnswer { status, body: EchoBody::Whole(body), usage: Usage::default() }
}

#[cfg(test)]
mod tests;
