//! What the scripted upstream answers, good and bad.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Latch;

/// One scripted answer.
#[derive(Clone, Debug)]
pub struct ScriptedResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    /// Pieces of the body; more than one, or a pause, makes it chunked.
    pub(super) pieces: Vec<Vec<u8>>,
    pub(super) chunked: bool,
    pub(super) pause: Duration,
    pub(super) first_pause: Duration,
    pub(super) cut_after: Option<usize>,
    pub(super) stall_after: Option<usize>,
    pub(super) raw: bool,
    pub(super) close: bool,
    pub(super) refuse: bool,
    pub(super) forever: bool,
    pub(super) reset: bool,
    pub(super) quits: bool,
    pub(super) held: Option<(usize, Latch)>,
}

impl ScriptedResponse {
    /// An empty answer with a status.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            pieces: Vec::new(),
            chunked: false,
            pause: Duration::ZERO,
            first_pause: Duration::ZERO,
            cut_after: None,
            stall_after: None,
            raw: false,
            close: false,
            refuse: false,
            forever: false,
            reset: false,
            quits: false,
            held: None,
        }
    }

    /// 200 with a JSON body.
    #[must_use]
    pub fn json(body: &Value) -> Self {
        Self::status(200).body(body.to_string(), "application/json")
    }

    /// An error with a JSON body.
    #[must_use]
    pub fn error(status: u16, body: &Value) -> Self {
        Self::status(status).body(body.to_string(), "application/json")
    }

    /// A chat completion with usage 5 + 7.
    #[must_use]
    pub fn chat(text: &str) -> Self {
        Self::json(&json!({
            "id": "chatcmpl-upstream", "object": "chat.completion", "created": 1_700_000_000, "model": "upstream-model",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text, "refusal": null}, "logprobs": null, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
        }))
    }

    /// A streamed chat completion with a usage chunk of 5 + 7.
    #[must_use]
    pub fn chat_stream(texts: &[&str]) -> Self {
        let chunk = |choices: Value, usage: Value| {
            let event = json!({
                "id": "chatcmpl-upstream", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "upstream-model",
                "choices": choices, "usage": usage,
            });
            format!("data: {event}\n\n")
        };
        let mut events = vec![chunk(
            json!([{"index": 0, "delta": {"role": "assistant", "content": "", "refusal": null}, "logprobs": null, "finish_reason": null}]),
            Value::Null,
        )];
        for text in texts {
            events.push(chunk(
                json!([{"index": 0, "delta": {"content": text}, "logprobs": null, "finish_reason": null}]),
                Value::Null,
            ));
        }
        events.push(chunk(json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": "stop"}]), Value::Null));
        events.push(chunk(json!([]), json!({"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12})));
        events.push("data: [DONE]\n\n".to_owned());
        Self::events(events)
    }

    /// A native answer with usage 5 + 7.
    #[must_use]
    pub fn native(text: &str) -> Self {
        Self::json(&native_chunk(text, true))
    }

    /// A streamed native answer with usage 5 + 7.
    #[must_use]
    pub fn native_stream(texts: &[&str]) -> Self {
        let last = texts.len().saturating_sub(1);
        Self::events(texts.iter().enumerate().map(|(i, text)| format!("data: {}\r\n\r\n", native_chunk(text, i == last))).collect())
    }

    /// An event stream of these pieces.
    #[must_use]
    pub fn events(pieces: Vec<String>) -> Self {
        let mut reply = Self::status(200).header("content-type", "text/event-stream");
        reply.pieces = pieces.into_iter().map(String::into_bytes).collect();
        reply.chunked = true;
        reply
    }

    /// Bytes sent as they are instead of an HTTP answer; the connection is closed behind them.
    #[must_use]
    pub fn raw(bytes: &[u8]) -> Self {
        let mut reply = Self::status(0);
        reply.pieces = vec![bytes.to_vec()];
        reply.raw = true;
        reply.close = true;
        reply
    }

    /// Closes the connection without a word once the request was read.
    #[must_use]
    pub fn close_immediately() -> Self {
        let mut reply = Self::status(0);
        reply.refuse = true;
        reply
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body and its type.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>, content_type: &str) -> Self {
        self.pieces = vec![body.into()];
        self.header("content-type", content_type)
    }

    /// Sets the pieces of a chunked body, each sent by itself.
    #[must_use]
    pub fn pieces(mut self, pieces: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.pieces = pieces.into_iter().collect();
        self.chunked = true;
        self
    }

    /// Sends the last piece again and again until the gateway closes, or 1 GiB has gone out.
    #[must_use]
    pub fn forever(mut self) -> Self {
        self.forever = true;
        self.chunked = true;
        self
    }

    /// Resets the connection (RST, not FIN) where the answer would end.
    #[must_use]
    pub fn reset(mut self) -> Self {
        self.reset = true;
        self
    }

    /// Closes the connection behind the answer without having said that it would.
    #[must_use]
    pub fn quits(mut self) -> Self {
        self.quits = true;
        self
    }

    /// Waits before the first byte.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.first_pause = wait;
        self
    }

    /// Waits between pieces.
    #[must_use]
    pub fn every(mut self, wait: Duration) -> Self {
        self.pause = wait;
        self
    }

    /// Sends so many pieces (none: nothing), then waits until the test opens a door.
    #[must_use]
    pub fn wait_after(mut self, pieces: usize, hold: &Latch) -> Self {
        self.held = Some((pieces, hold.clone()));
        self
    }

    /// Ends the connection after so many pieces (events) of the body.
    #[must_use]
    pub fn cut_after(mut self, pieces: usize) -> Self {
        self.cut_after = Some(pieces);
        self
    }

    /// Goes silent after so many pieces (events) of the body, until the gateway closes.
    #[must_use]
    pub fn stall_after(mut self, pieces: usize) -> Self {
        self.stall_after = Some(pieces);
        self
    }
}

/// A native answer or stream chunk.
fn native_chunk(text: &str, last: bool) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": [{"text": text}]}, "index": 0});
    if last {
        candidate["finishReason"] = "STOP".into();
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12},
        "modelVersion": "upstream-model", "responseId": "upstream-response",
    })
}
