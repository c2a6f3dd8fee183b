//! Assembles the events of a stream into a complete answer, as client libraries do.

use serde_json::{Map, Value, json};
use tollgate_protocol::Protocol;

/// Assembles the events of a stream.
pub(crate) fn assemble(caller: Protocol, events: &[Value]) -> Value {
    match caller {
        Protocol::OpenAi => openai(events),
        Protocol::Gemini => gemini(events),
        Protocol::Anthropic => anthropic(events),
        Protocol::Responses => responses(events),
    }
}

/// A complete answer in the form that assembled streams have: adjacent texts joined.
pub(crate) fn normalised(caller: Protocol, mut reply: Value) -> Value {
    if caller == Protocol::Gemini {
        for candidate in reply["candidates"].as_array_mut().into_iter().flatten() {
            let parts = candidate["content"]["parts"].take();
            candidate["content"]["parts"] = joined(parts.as_array().expect("parts"));
        }
    }
    reply
}

/// The final response, which must equal the assembled events before it.
fn responses(events: &[Value]) -> Value {
    let mut items: Vec<Value> = Vec::new();
    let mut texts: Vec<String> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "numbers without gaps");
        let index = event["output_index"].as_u64().map(|index| usize::try_from(index).expect("small"));
        match (event["type"].as_str().expect("a type"), index) {
            ("response.output_item.added", Some(index)) => {
                assert_eq!(index, items.len(), "indexes without gaps");
                items.push(event["item"].clone());
                texts.push(String::new());
            }
            ("response.output_item.done", Some(index)) => {
                assert_eq!(event["item"]["id"], items[index]["id"]);
                items[index] = event["item"].clone();
            }
            (kind, Some(index)) if kind.rsplit('.').next() == Some("delta") => {
                assert_eq!(event["item_id"], items[index]["id"]);
                texts[index].push_str(event["delta"].as_str().expect("a piece"));
            }
            (kind, Some(index)) if kind.rsplit('.').next() == Some("done") && !kind.contains("part") => {
                let whole = ["text", "refusal", "arguments", "input"].iter().find_map(|name| event[*name].as_str());
                assert_eq!(whole, Some(texts[index].as_str()), "{kind}");
            }
            ("response.completed" | "response.incomplete", None) => {
                assert_eq!(number + 1, events.len(), "nothing after the end");
                assert_eq!(event["response"]["output"], Value::from(items.clone()));
                return event["response"].clone();
            }
            _ => {}
        }
    }
    panic!("no end");
}

fn push_text(target: &mut Value, piece: &str) {
    *target = format!("{}{piece}", target.as_str().unwrap_or_default()).into();
}

fn openai(events: &[Value]) -> Value {
    let mut reply = json!({ "object": "chat.completion", "choices": [] });
    for event in events {
        for name in ["id", "created", "model"] {
            reply[name] = event[name].clone();
        }
        if event["usage"].is_object() {
            reply["usage"] = event["usage"].clone();
        }
        for chunk in event["choices"].as_array().expect("choices") {
            openai_choice(&mut reply, chunk);
        }
    }
    reply
}

fn openai_choice(reply: &mut Value, chunk: &Value) {
    let choices = reply["choices"].as_array_mut().expect("choices");
    let at = choices.iter().position(|choice| choice["index"] == chunk["index"]).unwrap_or_else(|| {
        choices.push(json!({ "index": chunk["index"], "message": {}, "logprobs": null }));
        choices.len() - 1
    });
    let choice = &mut choices[at];
    assert!(choice.get("finish_reason").is_none(), "no event after the finish");
    for (name, value) in chunk["delta"].as_object().expect("a delta") {
        let message = choice["message"].as_object_mut().expect("a message");
        match (name.as_str(), value) {
            ("tool_calls", calls) => openai_calls(message, calls),
            ("content" | "refusal" | "reasoning_content", Value::String(piece)) => {
                push_text(message.entry(name.clone()).or_insert(Value::Null), piece);
            }
            _ => {
                message.entry(name.clone()).or_insert(value.clone());
            }
        }
    }
    for name in ["finish_reason", "native_finish_reason"] {
        if chunk.get(name).is_some_and(|value| !value.is_null()) {
            choice[name] = chunk[name].clone();
        }
    }
}

fn openai_calls(message: &mut Map<String, Value>, calls: &Value) {
    let list = message.entry("tool_calls").or_insert(json!([])).as_array_mut().expect("calls");
    for call in calls.as_array().expect("calls") {
        let index = usize::try_from(call["index"].as_u64().expect("every entry has an index")).expect("small");
        assert!(index <= list.len(), "indexes without gaps");
        if index == list.len() {
            let mut opening = call.clone();
            opening.as_object_mut().expect("an entry").remove("index");
            list.push(opening);
        } else {
            assert!(call.get("id").is_none() && call.get("type").is_none(), "id and type are written once");
            push_text(&mut list[index]["function"]["arguments"], call["function"]["arguments"].as_str().expect("a piece"));
        }
    }
}

fn gemini(events: &[Value]) -> Value {
    let mut reply = json!({});
    let mut whole = json!({});
    let mut parts = Vec::new();
    for event in events {
        for name in ["modelVersion", "responseId", "usageMetadata", "promptFeedback"] {
            if let Some(value) = event.get(name) {
                reply[name] = value.clone();
            }
        }
        let candidate = &event["candidates"][0];
        parts.extend(candidate["content"]["parts"].as_array().cloned().unwrap_or_default());
        for (name, value) in candidate.as_object().into_iter().flatten() {
            whole[name] = value.clone();
        }
    }
    whole["content"]["parts"] = joined(&parts);
    reply["candidates"] = json!([whole]);
    reply
}

/// Joins adjacent texts of one kind, including an empty one that closes a block.
fn joined(parts: &[Value]) -> Value {
    let mut list: Vec<Value> = Vec::new();
    for part in parts {
        let text = part["text"].as_str();
        if text == Some("") && part.get("thoughtSignature").is_none() && parts.len() > 1 {
            continue;
        }
        match list.last_mut() {
            Some(last)
                if text.is_some()
                    && last["text"].is_string()
                    && last.get("thought") == part.get("thought")
                    && (part.get("thoughtSignature").is_none() && part.get("thought").is_none()
                        || part.get("thought").is_some() && last.get("thoughtSignature").is_none()) =>
            {
                push_text(&mut last["text"], text.expect("a text"));
                if let Some(signature) = part.get("thoughtSignature") {
                    last["thoughtSignature"] = signature.clone();
                }
            }
            _ => list.push(part.clone()),
        }
    }
    list.into()
}

fn anthropic(events: &[Value]) -> Value {
    let mut reply = Value::Null;
    let mut open: Option<Value> = None;
    let mut input = String::new();
    for event in events {
        match event["type"].as_str().expect("a type") {
            "message_start" => {
                assert!(reply.is_null(), "one start");
                reply = event["message"].clone();
            }
            "content_block_start" => {
                let content = reply["content"].as_array().expect("content");
                assert!(open.is_none(), "one block open at a time");
                assert_eq!(event["index"], content.len(), "indexes without gaps");
                open = Some(event["content_block"].clone());
            }
            "content_block_delta" => {
                let block = open.as_mut().expect("an open block");
                let delta = event["delta"].as_object().expect("a delta");
                for (name, piece) in delta.iter().filter(|(name, _)| *name != "type") {
                    let piece = piece.as_str().expect("a piece");
                    if name == "partial_json" {
                        input.push_str(piece);
                    } else {
                        push_text(&mut block[name], piece);
                    }
                }
            }
            "content_block_stop" => {
                let mut block = open.take().expect("an open block");
                if block["type"] == "tool_use" {
                    block["input"] = serde_json::from_str(&std::mem::take(&mut input)).expect("an object");
                }
                reply["content"].as_array_mut().expect("content").push(block);
            }
            "message_delta" => {
                for (name, value) in event["delta"].as_object().expect("a delta") {
                    reply[name] = value.clone();
                }
                reply["usage"] = event["usage"].clone();
            }
            "message_stop" => {}
            other => panic!("{other}"),
        }
    }
    reply
}
