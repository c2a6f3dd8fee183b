//! Responses of the scripted upstream: plain ones, and ones with a fault.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Latch;

#[derive(Clone, Debug)]
#[must_use]
pub struct ScriptedResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    /// Chunks of the body. More than one makes the transfer encoding chunked.
    pub(super) chunks: Vec<Vec<u8>>,
    pub(super) chunked: bool,
    /// Wait before the first byte.
    pub(super) delay: Duration,
    /// Wait between chunks.
    pub(super) chunk_delay: Duration,
    pub(super) cut_after: Option<usize>,
    pub(super) stall_after: Option<usize>,
    pub(super) raw: bool,
    pub(super) close: bool,
    pub(super) close_immediately: bool,
    pub(super) repeat_last_chunk: bool,
    pub(super) reset: bool,
    pub(super) close_unannounced: bool,
    /// Number of chunks after which the latch is waited for.
    pub(super) latch: Option<(usize, Latch)>,
}

impl ScriptedResponse {
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            chunks: Vec::new(),
            chunked: false,
            delay: Duration::ZERO,
            chunk_delay: Duration::ZERO,
            cut_after: None,
            stall_after: None,
            raw: false,
            close: false,
            close_immediately: false,
            repeat_last_chunk: false,
            reset: false,
            close_unannounced: false,
            latch: None,
        }
    }

    pub fn json(body: &Value) -> Self {
        Self::status(200).body(body.to_string(), "application/json")
    }

    pub fn error(status: u16, body: &Value) -> Self {
        Self::status(status).body(body.to_string(), "application/json")
    }

    /// A chat completion with usage 5 + 7.
    pub fn chat(text: &str) -> Self {
        Self::json(&json!({
            "id": "chatcmpl-upstream", "object": "chat.completion", "created": 1_700_000_000, "model": "upstream-model",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text, "refusal": null}, "logprobs": null, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
        }))
    }

    /// A streamed chat completion with a usage chunk of 5 + 7.
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

    /// A native (Gemini) response with usage 5 + 7.
    pub fn native(text: &str) -> Self {
        Self::json(&native_chunk(text, true))
    }

    /// A streamed native response with usage 5 + 7.
    pub fn native_stream(texts: &[&str]) -> Self {
        let last = texts.len().saturating_sub(1);
        Self::events(texts.iter().enumerate().map(|(i, text)| format!("data: {}\r\n\r\n", native_chunk(text, i == last))).collect())
    }

    /// An Anthropic message with usage 5 + 7.
    pub fn message(text: &str) -> Self {
        Self::json(&json!({
            "id": "msg_upstream", "type": "message", "role": "assistant", "model": "upstream-model",
            "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {"input_tokens": 5, "output_tokens": 7},
        }))
    }

    /// A streamed Anthropic message with usage 5 + 7.
    pub fn message_stream(texts: &[&str]) -> Self {
        let named = |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
        let message = json!({
            "id": "msg_upstream", "type": "message", "role": "assistant", "model": "upstream-model", "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 5, "output_tokens": 1},
        });
        let mut events = vec![
            json!({"type": "message_start", "message": message}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ];
        for text in texts {
            events.push(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}));
        }
        events.push(json!({"type": "content_block_stop", "index": 0}));
        let delta = json!({"stop_reason": "end_turn", "stop_sequence": null});
        events.push(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}}));
        events.push(json!({"type": "message_stop"}));
        Self::events(events.into_iter().map(named).collect())
    }

    /// A response of the Responses API with usage 5 + 7.
    pub fn response(text: &str) -> Self {
        Self::json(&response_object("completed", Some(text)))
    }

    /// A compaction of the Responses API with usage 5 + 7.
    pub fn compaction() -> Self {
        let mut compaction = response_object("completed", None);
        compaction["object"] = json!("response.compaction");
        compaction["output"] = json!([{"type": "compaction", "id": "cmp_upstream", "encrypted_content": "sealed"}]);
        compaction["usage"] = json!({"input_tokens": 5, "output_tokens": 7, "total_tokens": 12});
        Self::json(&compaction)
    }

    /// A streamed response of the Responses API with usage 5 + 7.
    pub fn response_stream(texts: &[&str]) -> Self {
        let item = json!({"type": "message", "id": "msg_upstream", "role": "assistant", "status": "in_progress", "content": []});
        let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
        let place = |mut event: Value| {
            (event["item_id"], event["output_index"], event["content_index"]) = ("msg_upstream".into(), 0.into(), 0.into());
            event
        };
        let (begun, whole) = (response_object("in_progress", None), response_object("completed", Some(&texts.concat())));
        let mut events = vec![
            json!({"type": "response.created", "response": begun}),
            json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
            place(json!({"type": "response.content_part.added", "part": part("")})),
        ];
        events.extend(texts.iter().map(|text| place(json!({"type": "response.output_text.delta", "delta": text, "logprobs": []}))));
        events.push(place(json!({"type": "response.output_text.done", "text": texts.concat(), "logprobs": []})));
        events.push(place(json!({"type": "response.content_part.done", "part": part(&texts.concat())})));
        events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": whole["output"][0]}));
        events.push(json!({"type": "response.completed", "response": whole}));
        let named = |(number, mut event): (usize, Value)| {
            event["sequence_number"] = number.into();
            format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
        };
        Self::events(events.into_iter().enumerate().map(named).collect())
    }

    /// An event stream of these chunks.
    pub fn events(chunks: Vec<String>) -> Self {
        let mut response = Self::status(200).header("content-type", "text/event-stream");
        response.chunks = chunks.into_iter().map(String::into_bytes).collect();
        response.chunked = true;
        response
    }

    /// Bytes sent unchanged instead of an HTTP response; the connection is closed after them.
    pub fn raw(bytes: &[u8]) -> Self {
        let mut response = Self::status(0);
        response.chunks = vec![bytes.to_vec()];
        response.raw = true;
        response.close = true;
        response
    }

    /// Closes the connection without a response once the request has been read.
    pub fn close_immediately() -> Self {
        let mut response = Self::status(0);
        response.close_immediately = true;
        response
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body and its content type.
    pub fn body(mut self, body: impl Into<Vec<u8>>, content_type: &str) -> Self {
        self.chunks = vec![body.into()];
        self.header("content-type", content_type)
    }

    /// Sets the chunks of a chunked body, each written separately.
    pub fn chunks(mut self, chunks: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.chunks = chunks.into_iter().collect();
        self.chunked = true;
        self
    }

    /// Repeats the last chunk until the gateway closes the connection or 1 GiB was written.
    pub fn repeat_last_chunk(mut self) -> Self {
        self.repeat_last_chunk = true;
        self.chunked = true;
        self
    }

    /// Resets the connection (RST, not FIN) instead of ending the body.
    pub fn reset(mut self) -> Self {
        self.reset = true;
        self
    }

    /// Closes the connection after the response although it has no `connection: close`.
    pub fn close_unannounced(mut self) -> Self {
        self.close_unannounced = true;
        self
    }

    /// Waits before the first byte of the response.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    pub fn chunk_delay(mut self, delay: Duration) -> Self {
        self.chunk_delay = delay;
        self
    }

    /// Writes this many chunks (0: not even the head), then waits until the test opens the latch.
    pub fn wait_after(mut self, chunks: usize, latch: &Latch) -> Self {
        self.latch = Some((chunks, latch.clone()));
        self
    }

    /// Closes the connection after this many chunks (events) of the body.
    pub fn cut_after(mut self, chunks: usize) -> Self {
        self.cut_after = Some(chunks);
        self
    }

    /// Writes nothing more after this many chunks (events) of the body, until the gateway closes the connection.
    pub fn stall_after(mut self, chunks: usize) -> Self {
        self.stall_after = Some(chunks);
        self
    }
}

/// An object of the Responses API, with a message once there is a text.
fn response_object(status: &str, text: Option<&str>) -> Value {
    let message = text.map(|text| {
        let part = json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
        json!({"type": "message", "id": "msg_upstream", "role": "assistant", "status": "completed", "content": [part]})
    });
    let usage = text.map(|_| {
        json!({
            "input_tokens": 5, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 12,
        })
    });
    json!({
        "id": "resp_upstream", "object": "response", "created_at": 1_700_000_000, "model": "upstream-model", "status": status,
        "error": null, "incomplete_details": null, "output": message.into_iter().collect::<Vec<_>>(), "usage": usage,
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
    })
}

/// A native response or stream chunk.
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
