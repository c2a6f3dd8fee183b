//! Generated upstream answers, complete and streamed.

use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_protocol::Protocol;

/// An answer, independent of the protocol.
#[derive(Clone, Debug)]
pub(crate) struct CollectedAnswer {
    pub items: Vec<Item>,
    pub finish: End,
    /// Prompt, cached, completion, reasoning.
    pub usage: Option<[u64; 4]>,
}

#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// Text in the chunks of a stream.
    Text(Vec<String>),
    Think {
        pieces: Vec<String>,
        signed: bool,
    },
    Call {
        id: Option<String>,
        name: String,
        args: Value,
        cut: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Stop,
    Length,
    Filter,
}

fn pieces() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec("[a-zé漢😀\u{2028}\u{85} \"\\\\\n]{1,6}", 1..4)
}

fn item() -> impl Strategy<Value = Item> {
    let id = proptest::option::weighted(0.7, "[a-z]{1,4}");
    let args = prop_oneof![Just(json!({})), "[aé\u{2029}\"]{0,5}".prop_map(|text| json!({ "b": [1, -2.5, text], "a": {} }))];
    prop_oneof![
        3 => pieces().prop_map(Item::Text),
        1 => (pieces(), any::<bool>()).prop_map(|(pieces, signed)| Item::Think { pieces, signed }),
        2 => (id, "[fg]", args, 0_usize..12).prop_map(|(id, name, args, cut)| Item::Call { id, name, args, cut }),
    ]
}

/// Strategy for answers.
pub(crate) fn answer() -> impl Strategy<Value = CollectedAnswer> {
    let usage = proptest::option::of(
        (0..50_u64, 0..50_u64, 0..50_u64, 0..50_u64)
            .prop_map(|(prompt, cached, seen, thought)| [prompt + cached, cached, seen + thought, thought]),
    );
    let finish = prop_oneof![4 => Just(End::Stop), 1 => Just(End::Length), 1 => Just(End::Filter)];
    (proptest::collection::vec(item(), 0..6), finish, usage).prop_map(|(items, finish, usage)| CollectedAnswer {
        items,
        finish,
        usage,
    })
}

impl CollectedAnswer {
    /// The complete answer in an upstream's protocol.
    pub(crate) fn whole(&self, upstream: Protocol) -> Value {
        match upstream {
            Protocol::Gemini => self.gemini_event(&self.items.iter().map(gemini_part).collect::<Vec<_>>(), true),
            Protocol::OpenAi => self.openai_whole(),
            Protocol::Anthropic => self.anthropic_whole(),
            Protocol::Responses => self.responses_whole(),
        }
    }

    /// The events of the answer as a stream.
    pub(crate) fn streamed(&self, upstream: Protocol) -> Vec<Value> {
        match upstream {
            Protocol::Gemini => self.gemini_stream(),
            Protocol::OpenAi => self.openai_stream(),
            Protocol::Anthropic => self.anthropic_stream(),
            Protocol::Responses => self.responses_stream(),
        }
    }

    fn called(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Call { .. }))
    }

    fn gemini_event(&self, parts: &[Value], last: bool) -> Value {
        let mut event = json!({ "candidates": [{ "index": 0, "content": { "role": "model", "parts": parts } }] });
        if last {
            let reason = match self.finish {
                End::Stop => "STOP",
                End::Length => "MAX_TOKENS",
                End::Filter => "SAFETY",
            };
            event["candidates"][0]["finishReason"] = reason.into();
            if let Some([prompt, cached, completion, thought]) = self.usage {
                event["usageMetadata"] = json!({ "promptTokenCount": prompt, "cachedContentTokenCount": cached,
                    "candidatesTokenCount": completion - thought, "thoughtsTokenCount": thought,
                    "totalTokenCount": prompt + completion });
            }
        }
        event
    }

    fn gemini_stream(&self) -> Vec<Value> {
        let mut events = Vec::new();
        for item in &self.items {
            match item {
                Item::Text(pieces) => {
                    events.extend(pieces.iter().map(|text| self.gemini_event(&[json!({ "text": text })], false)));
                }
                Item::Think { pieces, .. } => {
                    events.extend(pieces.iter().map(|text| self.gemini_event(&[json!({ "text": text, "thought": true })], false)));
                }
                Item::Call { .. } => events.push(self.gemini_event(&[gemini_part(item)], false)),
            }
        }
        events.push(self.gemini_event(&[], true));
        events
    }

    fn openai_finish(&self) -> &'static str {
        match self.finish {
            End::Stop if self.called() => "tool_calls",
            End::Stop => "stop",
            End::Length => "length",
            End::Filter => "content_filter",
        }
    }

    fn openai_usage(&self) -> Value {
        self.usage.map_or(Value::Null, |[prompt, cached, completion, thought]| {
            json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
                "prompt_tokens_details": { "cached_tokens": cached },
                "completion_tokens_details": { "reasoning_tokens": thought } })
        })
    }

    fn openai_whole(&self) -> Value {
        let mut message = json!({ "role": "assistant", "content": null, "refusal": null });
        let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
        for item in &self.items {
            match item {
                Item::Text(pieces) => text.push_str(&pieces.concat()),
                Item::Think { pieces, .. } => reasoning.push_str(&pieces.concat()),
                Item::Call { id, name, args, .. } => {
                    calls
                        .push(json!({ "id": id, "type": "function", "function": { "name": name, "arguments": args.to_string() } }));
                }
            }
        }
        if !text.is_empty() {
            message["content"] = text.into();
        }
        if !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        json!({ "id": "x", "object": "chat.completion", "created": 1, "model": "u", "usage": self.openai_usage(),
            "choices": [{ "index": 0, "message": message, "logprobs": null, "finish_reason": self.openai_finish() }] })
    }

    fn openai_stream(&self) -> Vec<Value> {
        let chunk = |delta: Value, finish: Option<&str>| {
            json!({ "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "u", "usage": null,
                "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
        };
        let mut events = vec![chunk(json!({ "role": "assistant", "content": "" }), None)];
        // Reasoning, text, calls: the order of the members of a message.
        for item in &self.items {
            if let Item::Think { pieces, .. } = item {
                events.extend(pieces.iter().map(|text| chunk(json!({ "reasoning_content": text }), None)));
            }
        }
        for item in &self.items {
            if let Item::Text(pieces) = item {
                events.extend(pieces.iter().map(|text| chunk(json!({ "content": text }), None)));
            }
        }
        let mut calls = 0;
        for item in &self.items {
            if let Item::Call { id, name, args, cut } = item {
                let args = args.to_string();
                let cut = args.floor_char_boundary(*cut);
                let opening =
                    json!({ "index": calls, "id": id, "type": "function", "function": { "name": name, "arguments": args[..cut] } });
                events.push(chunk(json!({ "tool_calls": [opening] }), None));
                let rest = json!({ "index": calls, "function": { "arguments": args[cut..] } });
                events.push(chunk(json!({ "tool_calls": [rest] }), None));
                calls += 1;
            }
        }
        events.push(chunk(json!({}), Some(self.openai_finish())));
        if self.usage.is_some() {
            events.push(json!({ "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "u", "choices": [],
                "usage": self.openai_usage() }));
        }
        events.push("[DONE]".into());
        events
    }

    fn anthropic_stop(&self) -> &'static str {
        match self.finish {
            End::Stop if self.called() => "tool_use",
            End::Stop => "end_turn",
            End::Length => "max_tokens",
            End::Filter => "refusal",
        }
    }

    fn anthropic_usage(&self) -> Value {
        self.usage.map_or(Value::Null, |[prompt, cached, completion, thought]| {
            json!({ "input_tokens": prompt - cached, "cache_read_input_tokens": cached, "output_tokens": completion,
                "output_tokens_details": { "thinking_tokens": thought } })
        })
    }

    fn anthropic_whole(&self) -> Value {
        let content: Vec<Value> = self
            .items
            .iter()
            .map(|item| match item {
                Item::Text(pieces) => json!({ "type": "text", "text": pieces.concat() }),
                Item::Think { pieces, signed: true } => {
                    json!({ "type": "thinking", "thinking": pieces.concat(), "signature": "U0lH" })
                }
                Item::Think { signed: false, .. } => json!({ "type": "redacted_thinking", "data": "REFUQQ==" }),
                Item::Call { id, name, args, .. } => {
                    json!({ "type": "tool_use", "id": id.clone().unwrap_or_default(), "name": name, "input": args })
                }
            })
            .collect();
        json!({ "id": "m", "type": "message", "role": "assistant", "model": "u", "content": content,
            "stop_reason": self.anthropic_stop(), "stop_sequence": null, "usage": self.anthropic_usage() })
    }

    fn anthropic_stream(&self) -> Vec<Value> {
        let mut events = vec![json!({ "type": "message_start", "message": { "id": "m", "type": "message", "role": "assistant",
            "model": "u", "content": [], "usage": { "input_tokens": null } } })];
        for (index, item) in self.items.iter().enumerate() {
            let start = |block: Value| json!({ "type": "content_block_start", "index": index, "content_block": block });
            let delta = |delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
            match item {
                Item::Text(pieces) => {
                    events.push(start(json!({ "type": "text", "text": "" })));
                    events.extend(pieces.iter().map(|text| delta(json!({ "type": "text_delta", "text": text }))));
                }
                Item::Think { pieces, signed: true } => {
                    events.push(start(json!({ "type": "thinking", "thinking": "", "signature": "" })));
                    events.extend(pieces.iter().map(|text| delta(json!({ "type": "thinking_delta", "thinking": text }))));
                    events.push(delta(json!({ "type": "signature_delta", "signature": "U0lH" })));
                }
                Item::Think { signed: false, .. } => {
                    events.push(start(json!({ "type": "redacted_thinking", "data": "REFUQQ==" })));
                }
                Item::Call { id, name, args, cut } => {
                    let block = json!({ "type": "tool_use", "id": id.clone().unwrap_or_default(), "name": name, "input": {} });
                    events.push(start(block));
                    let args = args.to_string();
                    let cut = args.floor_char_boundary(*cut);
                    for piece in [&args[..cut], &args[cut..]] {
                        events.push(delta(json!({ "type": "input_json_delta", "partial_json": piece })));
                    }
                }
            }
            events.push(json!({ "type": "content_block_stop", "index": index }));
            events.push(json!({ "type": "ping" }));
        }
        events.push(json!({ "type": "message_delta", "delta": { "stop_reason": self.anthropic_stop(), "stop_sequence": null },
            "usage": self.anthropic_usage() }));
        events.push(json!({ "type": "message_stop" }));
        events
    }
}

impl CollectedAnswer {
    fn responses_whole(&self) -> Value {
        let output: Vec<Value> = self.items.iter().enumerate().map(|(index, item)| responses_item(index, item)).collect();
        let (status, reason) = match self.finish {
            End::Stop => ("completed", Value::Null),
            End::Length => ("incomplete", json!({ "reason": "max_output_tokens" })),
            End::Filter => ("incomplete", json!({ "reason": "content_filter" })),
        };
        let usage = self.usage.map_or(Value::Null, |[prompt, cached, completion, thought]| {
            json!({ "input_tokens": prompt, "input_tokens_details": { "cached_tokens": cached }, "output_tokens": completion,
                "output_tokens_details": { "reasoning_tokens": thought }, "total_tokens": prompt + completion })
        });
        json!({ "id": "resp_x", "object": "response", "created_at": 1, "status": status, "error": null,
            "incomplete_details": reason, "model": "u", "output": output, "usage": usage })
    }

    fn responses_stream(&self) -> Vec<Value> {
        let mut events = vec![json!({ "type": "response.created", "response": { "id": "resp_x", "status": "in_progress" } })];
        for (index, item) in self.items.iter().enumerate() {
            let whole = responses_item(index, item);
            let mut added = whole.clone();
            for (name, nothing) in [("content", json!([])), ("summary", json!([])), ("arguments", json!(""))] {
                if added.get(name).is_some() {
                    added[name] = nothing;
                }
            }
            events.push(json!({ "type": "response.output_item.added", "output_index": index, "item": added }));
            let (kind, pieces) = match item {
                Item::Text(pieces) => ("output_text", pieces.clone()),
                Item::Think { pieces, .. } => ("reasoning_summary_text", pieces.clone()),
                Item::Call { args, cut, .. } => {
                    let args = args.to_string();
                    let cut = args.floor_char_boundary(*cut);
                    ("function_call_arguments", vec![args[..cut].to_owned(), args[cut..].to_owned()])
                }
            };
            events.extend(pieces.into_iter().map(
                |piece| json!({ "type": format!("response.{kind}.delta"), "output_index": index, "item_id": "i", "delta": piece }),
            ));
            events.push(json!({ "type": "response.output_item.done", "output_index": index, "item": whole }));
        }
        let whole = self.responses_whole();
        let end = format!("response.{}", whole["status"].as_str().expect("a status"));
        events.push(json!({ "type": end, "response": whole }));
        events
    }
}

fn responses_item(index: usize, item: &Item) -> Value {
    match item {
        Item::Text(pieces) => json!({ "id": format!("msg_{index}"), "type": "message", "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": pieces.concat(), "annotations": [] }] }),
        Item::Think { pieces, .. } => json!({ "id": format!("rs_{index}"), "type": "reasoning", "encrypted_content": "gAAAA",
            "summary": [{ "type": "summary_text", "text": pieces.concat() }] }),
        Item::Call { id, name, args, .. } => json!({ "id": format!("fc_{index}"), "type": "function_call", "call_id": id,
            "name": name, "arguments": args.to_string() }),
    }
}

fn gemini_part(item: &Item) -> Value {
    match item {
        Item::Text(pieces) => json!({ "text": pieces.concat() }),
        Item::Think { pieces, .. } => json!({ "text": pieces.concat(), "thought": true }),
        Item::Call { id, name, args, cut } => {
            let mut part = json!({ "functionCall": { "name": name, "args": args } });
            if let Some(id) = id {
                part["functionCall"]["id"] = id.as_str().into();
            }
            if cut % 3 == 0 {
                part["thoughtSignature"] = "+/8=".into();
            }
            part
        }
    }
}
