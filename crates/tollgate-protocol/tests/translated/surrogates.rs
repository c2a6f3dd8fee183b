//! Lone surrogates in an upstream's answer: each becomes one U+FFFD, and a character split between two events is joined.

use bytes::Bytes;
use serde_json::{Value, json};
use tollgate_protocol::{Protocol, neutral::ReplyContext, translate_reply};

use crate::{DIRECTIONS, framed, relay};

/// Events as JSON text, with surrogates in place of `HIGH` and `LOW`, which a [`Value`] cannot hold.
fn with_surrogates(events: &[Value]) -> Vec<Value> {
    let text = |event: &Value| event.as_str().map_or_else(|| event.to_string(), ToOwned::to_owned);
    events.iter().map(|event| text(event).replace("HIGH", "\\ud83d").replace("LOW", "\\ude00").into()).collect()
}

/// A stream of one text, one thought and the arguments of one call, each in two parts.
#[expect(clippy::too_many_lines, reason = "a table")]
fn stream(upstream: Protocol, parts: [&str; 2]) -> Vec<Value> {
    let [first, second] = parts;
    let events = match upstream {
        Protocol::OpenAi => {
            let chunk = |delta: Value, finish: Option<&str>| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
            let call = |call: Value| chunk(json!({ "tool_calls": [call] }), None);
            vec![
                chunk(json!({ "reasoning_content": first }), None),
                chunk(json!({ "reasoning_content": second }), None),
                chunk(json!({ "content": first }), None),
                chunk(json!({ "content": second }), None),
                call(json!({ "index": 0, "id": "a", "function": { "name": "f", "arguments": format!("{{\"x\":\"{first}") } })),
                call(json!({ "index": 0, "function": { "arguments": format!("{second}\"}}") } })),
                chunk(json!({}), Some("tool_calls")),
                json!("[DONE]"),
            ]
        }
        Protocol::Gemini => {
            let event = |part: Value| json!({ "candidates": [{ "index": 0, "content": { "role": "model", "parts": [part] } }] });
            let piece = |text: &str| json!([{ "jsonPath": "$.x", "stringValue": text, "willContinue": true }]);
            vec![
                event(json!({ "text": first, "thought": true })),
                event(json!({ "text": second, "thought": true })),
                event(json!({ "text": first })),
                event(json!({ "text": second })),
                event(json!({ "functionCall": { "id": "a", "name": "f", "partialArgs": piece(first), "willContinue": true } })),
                event(json!({ "functionCall": { "partialArgs": piece(second), "willContinue": true } })),
                event(json!({ "functionCall": {} })),
                json!({ "candidates": [{ "index": 0, "finishReason": "STOP" }] }),
            ]
        }
        Protocol::Anthropic => {
            let start = |at: u32, block: Value| json!({ "type": "content_block_start", "index": at, "content_block": block });
            let delta = |at: u32, delta: Value| json!({ "type": "content_block_delta", "index": at, "delta": delta });
            let stop = |at: u32| json!({ "type": "content_block_stop", "index": at });
            vec![
                json!({ "type": "message_start", "message": { "usage": { "input_tokens": 7, "output_tokens": 1 } } }),
                start(0, json!({ "type": "thinking", "thinking": "" })),
                delta(0, json!({ "type": "thinking_delta", "thinking": first })),
                delta(0, json!({ "type": "thinking_delta", "thinking": second })),
                stop(0),
                start(1, json!({ "type": "text", "text": "" })),
                delta(1, json!({ "type": "text_delta", "text": first })),
                delta(1, json!({ "type": "text_delta", "text": second })),
                stop(1),
                start(2, json!({ "type": "tool_use", "id": "a", "name": "f", "input": {} })),
                delta(2, json!({ "type": "input_json_delta", "partial_json": format!("{{\"x\":\"{first}") })),
                delta(2, json!({ "type": "input_json_delta", "partial_json": format!("{second}\"}}") })),
                stop(2),
                json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 5 } }),
                json!({ "type": "message_stop" }),
            ]
        }
        Protocol::Responses => {
            let item = |at: u32, kind: &str, item: Value| json!({ "type": format!("response.output_item.{kind}"), "output_index": at, "item": item });
            let delta = |at: u32, kind: &str, piece: String| json!({ "type": format!("response.{kind}.delta"), "output_index": at, "delta": piece });
            let call = json!({ "type": "function_call", "call_id": "a", "name": "f", "arguments": "" });
            vec![
                item(0, "added", json!({ "type": "reasoning", "summary": [] })),
                delta(0, "reasoning_summary_text", first.to_owned()),
                delta(0, "reasoning_summary_text", second.to_owned()),
                item(0, "done", json!({ "type": "reasoning", "summary": [] })),
                item(1, "added", json!({ "type": "message", "content": [] })),
                delta(1, "output_text", first.to_owned()),
                delta(1, "output_text", second.to_owned()),
                item(1, "done", json!({ "type": "message", "content": [] })),
                item(2, "added", call.clone()),
                delta(2, "function_call_arguments", format!("{{\"x\":\"{first}")),
                delta(2, "function_call_arguments", format!("{second}\"}}")),
                item(2, "done", call),
                json!({ "type": "response.completed", "response": { "status": "completed", "output": [] } }),
            ]
        }
    };
    with_surrogates(&events)
}

/// The text, thoughts and arguments of a caller's stream.
fn received(caller: Protocol, out: &[u8]) -> [String; 3] {
    let [mut text, mut thought, mut args] = [const { String::new() }; 3];
    let push = |to: &mut String, value: &Value| to.push_str(value.as_str().unwrap_or_default());
    let data = std::str::from_utf8(out).expect("UTF-8").lines().filter_map(|line| line.strip_prefix("data: "));
    for event in data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str::<Value>(data).expect("JSON")) {
        match caller {
            Protocol::OpenAi => {
                let delta = &event["choices"][0]["delta"];
                push(&mut text, &delta["content"]);
                push(&mut thought, &delta["reasoning_content"]);
                push(&mut args, &delta["tool_calls"][0]["function"]["arguments"]);
            }
            Protocol::Gemini => {
                for part in event["candidates"][0]["content"]["parts"].as_array().into_iter().flatten() {
                    push(if part["thought"] == true { &mut thought } else { &mut text }, &part["text"]);
                    if let Some(call) = part.get("functionCall") {
                        args.push_str(&call["args"].to_string());
                    }
                }
            }
            Protocol::Anthropic => {
                push(&mut text, &event["delta"]["text"]);
                push(&mut thought, &event["delta"]["thinking"]);
                push(&mut args, &event["delta"]["partial_json"]);
            }
            Protocol::Responses => match event["type"].as_str() {
                Some("response.output_text.delta") => push(&mut text, &event["delta"]),
                Some("response.reasoning_summary_text.delta") => push(&mut thought, &event["delta"]),
                Some("response.function_call_arguments.delta") => push(&mut args, &event["delta"]),
                _ => {}
            },
        }
    }
    [text, thought, args]
}

#[test]
fn character_split_between_two_events_is_joined() {
    for (parts, expected) in [
        (["a HIGH", "LOW b"], "a \u{1f600} b"),
        (["HIGH", "LOW"], "\u{1f600}"),
        (["a HIGH", " b"], "a \u{fffd} b"),
        (["a ", "LOW b"], "a \u{fffd} b"),
        (["LOW", "b HIGH"], "\u{fffd}b \u{fffd}"),
    ] {
        for direction @ (upstream, caller) in DIRECTIONS {
            let context = ReplyContext { stream: true, include_thoughts: true, ..ReplyContext::new("r", 1, "m") };
            let bytes = framed(upstream, &stream(upstream, parts));
            let (out, fault) = relay(direction, &context, [&bytes[..]]);
            assert_eq!(fault, None, "{direction:?}");
            let [text, thought, args] = received(caller, &out);
            assert_eq!(text, expected, "{direction:?}");
            // Some callers are shown no thoughts.
            assert!(thought.is_empty() || thought == expected, "{direction:?} {thought}");
            assert_eq!(serde_json::from_str::<Value>(&args).expect("a valid case"), json!({ "x": expected }), "{direction:?}");
        }
    }
}

#[test]
fn lone_surrogate_in_a_whole_answer_is_one_replacement_character() {
    let body = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"a \ud83d b\ud83d"},"finish_reason":"stop"}]}"#;
    let context = ReplyContext::new("r", 1, "m");
    let translated = translate_reply(Protocol::OpenAi, Protocol::Gemini, &Bytes::from(body), &context).expect("an answer");
    let out: Value = serde_json::from_slice(&translated.body).expect("a valid case");
    let parts = out["candidates"][0]["content"]["parts"].as_array().expect("a valid case");
    let text: String = parts.iter().map(|part| part["text"].as_str().expect("a valid case")).collect();
    assert_eq!(text, "a \u{fffd} b\u{fffd}");
}
