//! Malformed upstream answers give an error or a valid answer, never a panic or an empty success.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_protocol::{InvalidReply, Protocol, StreamError, neutral::ReplyContext, translate_reply};

use crate::{
    DIRECTIONS,
    answers::answer,
    framed, relay,
    schemas::{check_reply, check_stream},
};

fn context() -> ReplyContext {
    ReplyContext { include_usage: true, include_thoughts: true, carry_thinking: true, ..ReplyContext::new("r", 1, "m") }
}

/// Bodies that are not an answer of the protocol.
#[expect(clippy::too_many_lines, reason = "a table")]
fn invalid_bodies(upstream: Protocol) -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = [
        "",
        " ",
        "null",
        "1",
        "\"x\"",
        "[]",
        "[[]]",
        "{}",
        "{",
        "<html>502</html>",
        "{\"a\":1}{\"b\":2}",
        "\u{0}",
        "data: {}\n\n",
        "[DONE]",
    ]
    .iter()
    .map(|body| body.as_bytes().to_vec())
    .collect();
    bodies.push(b"{\"x\":\"\xff".to_vec());
    bodies.push("[".repeat(100_000).into_bytes());
    bodies.push(format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)).into_bytes());
    bodies.push("{\"a\":".repeat(100_000).into_bytes());
    let shapes: &[&str] = match upstream {
        Protocol::OpenAi => &[
            r#"{"choices":null}"#,
            r#"{"choices":[]}"#,
            r#"{"choices":{}}"#,
            r#"{"choices":[null]}"#,
            r#"{"choices":[{}]}"#,
            r#"{"choices":[{"index":0,"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"message":{}}]}"#,
            r#"{"choices":[{"message":{"content":5},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"message":{"tool_calls":[{}]},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"message":{"content":"a"},"message":{"content":"b"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"index":4000000000,"message":{"content":"a"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"message":{"content":null},"finish_reason":"error"}]}"#,
        ],
        Protocol::Gemini => &[
            r#"{"candidates":null}"#,
            r#"{"candidates":[]}"#,
            r#"{"candidates":{}}"#,
            r#"{"candidates":[null]}"#,
            r#"{"candidates":[{}]}"#,
            r#"{"candidates":[{"content":{"parts":[]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":1}]},"finishReason":"STOP"}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{}}]},"finishReason":"STOP"}]}"#,
            r#"{"promptFeedback":{}}"#,
            r#"{"promptFeedback":{"blockReason":""}}"#,
            r#"{"usageMetadata":{"promptTokenCount":1}}"#,
            r#"{"candidates":[{"finishReason":"NO_IMAGE"}]}"#,
        ],
        Protocol::Anthropic => &[
            r#"{"content":null}"#,
            r#"{"content":{}}"#,
            r#"{"content":[]}"#,
            r#"{"content":[null],"stop_reason":"end_turn"}"#,
            r#"{"content":[{}],"stop_reason":"end_turn"}"#,
            r#"{"content":[{"type":"text","text":[]}],"stop_reason":"end_turn"}"#,
            r#"{"content":[{"type":"tool_use","id":"a"}],"stop_reason":"tool_use"}"#,
            r#"{"type":"message","stop_reason":"end_turn"}"#,
        ],
        Protocol::Responses => &[
            r#"{"output":null}"#,
            r#"{"output":{}}"#,
            r#"{"output":[]}"#,
            r#"{"output":[null],"status":"completed"}"#,
            r#"{"output":[7],"status":"completed"}"#,
            r#"{"output":[{}],"status":"completed"}"#,
            r#"{"output":[],"status":"queued"}"#,
            r#"{"output":[{"type":"message","content":[{"type":"output_text","text":[]}]}],"status":"completed"}"#,
            r#"{"output":[{"type":"function_call","call_id":"a"}],"status":"completed"}"#,
            r#"{"object":"response","status":"completed"}"#,
        ],
    };
    bodies.extend(shapes.iter().map(|shape| shape.as_bytes().to_vec()));
    bodies
}

#[test]
fn invalid_body_is_an_error() {
    for direction in DIRECTIONS {
        for body in invalid_bodies(direction.0) {
            let shown = String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
            let result = translate_reply(direction.0, direction.1, &Bytes::from(body), &context());
            assert!(matches!(result, Err(InvalidReply::Unreadable(_))), "{direction:?} {shown}: {result:?}");
        }
    }
}

#[test]
fn invalid_stream_is_an_error() {
    for direction in DIRECTIONS {
        for body in invalid_bodies(direction.0) {
            let shown = String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
            let (out, fault) = relay(direction, &context(), [&body[..]]);
            assert!(out.is_empty() && fault.is_some(), "{direction:?} {shown}: {fault:?}");
            if body.starts_with(br#"{"choices":[{"index":0,"finish_reason":"stop"}"#) {
                // Valid as the last chunk of a stream.
                continue;
            }
            let event = [b"data: ", &body[..], b"\n\n"].concat();
            let (out, fault) = relay(direction, &context(), [&event[..]]);
            assert!(fault.is_some(), "{direction:?} {shown}");
            check_stream(direction.1, &out);
        }
    }
}

#[test]
fn error_in_a_200_is_an_upstream_problem() {
    for direction in DIRECTIONS {
        let error = json!({ "type": "error", "error": { "code": 429, "type": "rate_limit_error", "status": "RESOURCE_EXHAUSTED",
            "message": "slow down" } });
        let result = translate_reply(direction.0, direction.1, &Bytes::from(error.to_string()), &context());
        let Err(InvalidReply::Problem(problem)) = result else { panic!("{direction:?}: {result:?}") };
        assert_eq!((problem.status, problem.message.as_str()), (429, "slow down"), "{direction:?}");
        for bytes in [framed(direction.0, std::slice::from_ref(&error)), error.to_string().into_bytes()] {
            let (out, fault) = relay(direction, &context(), [&bytes[..]]);
            assert!(out.is_empty());
            assert!(matches!(fault, Some(StreamError::Problem(problem)) if problem.status == 429), "{direction:?}");
        }
    }
}

#[test]
fn invalid_usage_is_ignored() {
    for figure in ["null", "-1", "1.5", "9223372036854775808", "\"x\"", "[]", "1e400", "true"] {
        for direction in DIRECTIONS {
            let body = match direction.0 {
                Protocol::OpenAi => format!(
                    r#"{{"choices":[{{"index":0,"message":{{"content":"a"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":{figure},"completion_tokens":{figure}}}}}"#
                ),
                Protocol::Gemini => format!(
                    r#"{{"candidates":[{{"content":{{"parts":[{{"text":"a"}}]}},"finishReason":"STOP"}}],"usageMetadata":{{"promptTokenCount":{figure},"candidatesTokenCount":{figure}}}}}"#
                ),
                Protocol::Anthropic => format!(
                    r#"{{"content":[{{"type":"text","text":"a"}}],"stop_reason":"end_turn","usage":{{"input_tokens":{figure},"output_tokens":{figure}}}}}"#
                ),
                Protocol::Responses => format!(
                    r#"{{"output":[{{"type":"message","content":[{{"type":"output_text","text":"a"}}]}}],"status":"completed","usage":{{"input_tokens":{figure},"output_tokens":{figure}}}}}"#
                ),
            };
            let translated = translate_reply(direction.0, direction.1, &Bytes::from(body), &context()).expect("an answer");
            let fraction = figure == "1.5";
            assert!(translated.summary.usage.is_none() || fraction, "{direction:?} {figure}: {:?}", translated.summary.usage);
            check_reply(direction.1, &translated.body);
        }
    }
}

#[test]
fn trailing_events_and_a_missing_end_marker_are_tolerated() {
    let text = json!({ "choices": [{ "index": 0, "delta": { "content": "a" }, "finish_reason": null }] });
    let finish = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    let direction = (Protocol::OpenAi, Protocol::Gemini);
    let complete = framed(direction.0, &[text.clone(), finish.clone(), "[DONE]".into()]);
    let expected = relay(direction, &context(), [&complete[..]]);
    assert_eq!(expected.1, None);
    assert_eq!(relay(direction, &context(), [&framed(direction.0, &[text.clone(), finish.clone()])[..]]), expected);
    let more =
        framed(direction.0, &[text.clone(), finish.clone(), "[DONE]".into(), text.clone(), json!({ "error": { "message": "x" } })]);
    assert_eq!(relay(direction, &context(), [&more[..]]), expected);
    let twice = framed(direction.0, &[text.clone(), text.clone(), finish.clone(), "[DONE]".into()]);
    let again = framed(direction.0, &[text.clone(), finish.clone(), text, finish, "[DONE]".into()]);
    assert_eq!(relay(direction, &context(), [&again[..]]), relay(direction, &context(), [&twice[..]]), "a finish ends nothing");
    let crlf = String::from_utf8(complete).expect("UTF-8").replace('\n', "\r\n").replace("data: ", ": note\r\ndata:");
    assert_eq!(relay(direction, &context(), crlf.as_bytes().chunks(3)), expected);
}

#[test]
fn invalid_characters_are_replaced() {
    let body: &[u8] = b"{\"choices\":[{\"message\":{\"content\":\"a\\ud83d\xff\\u0000\"},\"finish_reason\":\"stop\"}]}";
    let translated = translate_reply(Protocol::OpenAi, Protocol::Gemini, &Bytes::from_static(body), &context()).expect("an answer");
    let reply = check_reply(Protocol::Gemini, &translated.body);
    let text = reply["candidates"][0]["content"]["parts"][0]["text"].as_str().expect("a text").to_owned();
    assert!(text.starts_with("a\u{fffd}") && text.ends_with("\u{fffd}\u{0}"), "{text:?}");
}

/// Replaces a value at some position of `value` by `with`.
fn mutate(value: &mut Value, mut at: usize, with: &Value) {
    loop {
        let size = match value {
            Value::Array(list) => list.len(),
            Value::Object(map) => map.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        };
        if size == 0 || at.is_multiple_of(5) {
            *value = with.clone();
            return;
        }
        let next = at % size;
        at /= 3;
        match value {
            Value::Array(list) => return mutate(&mut list[next], at, with),
            Value::Object(map) => return mutate(map.values_mut().nth(next).expect("in range"), at, with),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

fn anything() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!([])),
        Just(json!([[{}]])),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,4}".prop_map(Value::from),
        Just(json!({ "type": "tool_use", "name": "f", "id": "" })),
        Just(json!({ "text": "", "thought": true, "thoughtSignature": "x" })),
        Just(json!([{ "index": 3, "id": "", "function": { "name": "", "arguments": "{" } }])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn damaged_answers_never_panic_and_output_is_valid(
        answer in answer(),
        damage in proptest::collection::vec((any::<u32>(), any::<usize>(), anything()), 1..4),
    ) {
        for direction in DIRECTIONS {
            let mut whole = answer.whole(direction.0);
            let mut events = answer.streamed(direction.0);
            for (event, at, with) in &damage {
                mutate(&mut whole, *at, with);
                let event = *event as usize % events.len();
                mutate(&mut events[event], *at, with);
            }
            if let Ok(translated) = translate_reply(direction.0, direction.1, &Bytes::from(whole.to_string()), &context()) {
                check_reply(direction.1, &translated.body);
            }
            let (out, _) = relay(direction, &context(), [&framed(direction.0, &events)[..]]);
            check_stream(direction.1, &out);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for direction in DIRECTIONS {
            prop_assert!(translate_reply(direction.0, direction.1, &Bytes::copy_from_slice(&bytes), &context()).is_err());
            let (_, fault) = relay(direction, &context(), [&bytes[..]]);
            prop_assert!(fault.is_some());
        }
    }
}
