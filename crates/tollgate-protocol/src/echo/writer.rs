//! Encodes the echo answer as a complete body, or as events on demand.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{EchoCall, EchoReply};
use crate::{FinishReason, Protocol, Usage, sse};

/// The events of a streamed echo answer, generated one at a time.
#[derive(Clone, Debug)]
pub struct EchoEvents {
    reply: EchoReply,
    gemini: bool,
    model: String,
    request_id: String,
    now: i64,
    include_usage: bool,
    started: bool,
    /// Remaining events once all words are sent.
    tail: Option<VecDeque<Bytes>>,
}

impl Iterator for EchoEvents {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(tail) = &mut self.tail {
            return tail.pop_front();
        }
        if !std::mem::replace(&mut self.started, true) && !self.gemini {
            let content = if self.reply.call.is_some() { Value::Null } else { Value::from("") };
            return Some(self.chunk(&json!({"role": "assistant", "content": content, "refusal": null}), None));
        }
        let Some(chunk) = self.reply.words.next_chunk().map(str::to_owned) else {
            let tail = if self.gemini { self.gemini_tail() } else { self.openai_tail() };
            return self.tail.insert(tail).pop_front();
        };
        if !self.gemini {
            return Some(self.chunk(&json!({"content": chunk}), None));
        }
        if self.reply.words.is_empty() {
            self.tail = Some(VecDeque::new());
            return Some(event(&self.response(&json!([{"text": chunk}]), true)));
        }
        Some(event(&self.response(&json!([{"text": chunk}]), false)))
    }
}

impl EchoEvents {
    pub(super) fn new(call: &EchoCall<'_>, reply: EchoReply, include_usage: bool) -> Self {
        Self {
            reply,
            gemini: call.protocol == Protocol::Gemini,
            model: call.model.to_owned(),
            request_id: call.request_id.to_owned(),
            now: call.now,
            include_usage,
            started: false,
            tail: None,
        }
    }

    pub(super) fn whole(&self) -> Bytes {
        let text = self.reply.words.whole();
        let body = match (&self.reply.call, self.gemini) {
            (None, true) => self.response(&json!([{"text": text}]), true),
            (Some((name, _)), true) => self.response(&self.gemini_call(name), true),
            (None, false) => self.completion(&json!({"role": "assistant", "content": text, "refusal": null})),
            (Some((name, custom)), false) => {
                let call = self.openai_call(name, *custom);
                self.completion(&json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": [call]}))
            }
        };
        Bytes::from(body.to_string())
    }

    // === OpenAI ===

    fn completion(&self, message: &Value) -> Value {
        json!({
            "id": format!("chatcmpl-{}", self.request_id), "object": "chat.completion", "created": self.now, "model": self.model,
            "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": self.finish()}],
            "usage": openai_usage(&self.reply.usage),
        })
    }

    fn chunk(&self, delta: &Value, finish: Option<&str>) -> Bytes {
        event(&self.openai_chunk(&json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]), Value::Null))
    }

    fn openai_chunk(&self, choices: &Value, usage: Value) -> Value {
        let mut chunk = json!({
            "id": format!("chatcmpl-{}", self.request_id), "object": "chat.completion.chunk", "created": self.now,
            "model": self.model, "choices": choices,
        });
        if self.include_usage {
            chunk["usage"] = usage;
        }
        chunk
    }

    fn openai_call(&self, name: &str, custom: bool) -> Value {
        let id = format!("call_{}_0", self.request_id);
        if custom {
            json!({"id": id, "type": "custom", "custom": {"name": name, "input": ""}})
        } else {
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}})
        }
    }

    fn openai_tail(&self) -> VecDeque<Bytes> {
        let mut tail = VecDeque::new();
        if let Some((name, custom)) = &self.reply.call {
            let mut call = self.openai_call(name, *custom);
            call["index"] = Value::from(0);
            tail.push_back(self.chunk(&json!({"tool_calls": [call]}), None));
        }
        tail.push_back(self.chunk(&json!({}), Some(self.finish())));
        if self.include_usage {
            tail.push_back(event(&self.openai_chunk(&json!([]), openai_usage(&self.reply.usage))));
        }
        tail.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        tail
    }

    const fn finish(&self) -> &'static str {
        match self.reply.finish {
            FinishReason::Length => "length",
            FinishReason::Tool => "tool_calls",
            FinishReason::Stop | FinishReason::Filter | FinishReason::Fail | FinishReason::Other => "stop",
        }
    }

    // === Gemini ===

    fn gemini_call(&self, name: &str) -> Value {
        json!([{"functionCall": {"id": format!("call_{}_0", self.request_id), "name": name, "args": {}}}])
    }

    /// The only event of an answer without words: a call, or an empty text.
    fn gemini_tail(&self) -> VecDeque<Bytes> {
        let parts = match &self.reply.call {
            Some((name, _)) => self.gemini_call(name),
            None => json!([{"text": ""}]),
        };
        VecDeque::from([event(&self.response(&parts, true))])
    }

    fn response(&self, parts: &Value, last: bool) -> Value {
        let mut candidate = json!({"content": {"role": "model", "parts": parts}});
        if last {
            let reason = if self.reply.finish == FinishReason::Length { "MAX_TOKENS" } else { "STOP" };
            candidate["finishReason"] = Value::from(reason);
        }
        candidate["index"] = Value::from(0);
        let mut response = json!({"candidates": [candidate]});
        if last {
            let Usage { prompt_total, completion_total, .. } = self.reply.usage;
            response["usageMetadata"] = json!({
                "promptTokenCount": prompt_total, "candidatesTokenCount": completion_total,
                "totalTokenCount": prompt_total + completion_total,
            });
        }
        response["modelVersion"] = Value::from(self.model.as_str());
        response["responseId"] = Value::from(format!("req_{}", self.request_id));
        response
    }
}

fn openai_usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_total, "completion_tokens": usage.completion_total,
        "total_tokens": usage.prompt_total + usage.completion_total,
        "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0},
    })
}

fn event(json: &Value) -> Bytes {
    sse::event(json.to_string().as_bytes())
}
