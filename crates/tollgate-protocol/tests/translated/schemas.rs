//! Validation against the vendors' schemas: closed variants for answers to callers, open ones for upstream requests.

use std::{collections::HashMap, fs, path::Path, sync::LazyLock};

use serde_json::Value;
use tollgate_protocol::Protocol;

static VALIDATORS: LazyLock<HashMap<&str, jsonschema::Validator>> = LazyLock::new(|| {
    let names = [
        "openai-chat-response.closed",
        "openai-chat-chunk.closed",
        "gemini-generate-content-response.closed",
        "anthropic-messages-response.closed",
        "anthropic-stream-event.closed",
        "openai-chat-request",
        "gemini-generate-content-request",
        "anthropic-messages-request",
        "openai-responses-response.closed",
        "openai-responses-stream-event.closed",
        "openai-responses-request",
    ];
    names.into_iter().map(|name| (name, validator(name))).collect()
});

fn validator(name: &str) -> jsonschema::Validator {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/schemas/{name}.schema.json"));
    let schema: Value = serde_json::from_str(&fs::read_to_string(file).expect("the schema")).expect("JSON");
    jsonschema::validator_for(&schema).expect("a valid schema")
}

#[track_caller]
fn check(name: &str, value: &Value) {
    let faults: Vec<String> =
        VALIDATORS[name].iter_errors(value).map(|fault| format!("{fault} at {}", fault.instance_path())).collect();
    assert!(faults.is_empty(), "{name}: {faults:#?}\n{value}");
}

/// Checks a complete answer.
#[track_caller]
pub(crate) fn check_reply(caller: Protocol, body: &[u8]) -> Value {
    let value: Value = serde_json::from_slice(body).expect("JSON");
    let name = match caller {
        Protocol::OpenAi => "openai-chat-response.closed",
        Protocol::Gemini => "gemini-generate-content-response.closed",
        Protocol::Anthropic => "anthropic-messages-response.closed",
        Protocol::Responses => "openai-responses-response.closed",
    };
    check(name, &value);
    value
}

/// Checks an upstream request.
#[track_caller]
pub(crate) fn check_request(upstream: Protocol, body: &[u8]) -> Value {
    let value: Value = serde_json::from_slice(body).expect("JSON");
    let name = match upstream {
        Protocol::OpenAi => "openai-chat-request",
        Protocol::Gemini => "gemini-generate-content-request",
        Protocol::Anthropic => "anthropic-messages-request",
        Protocol::Responses => "openai-responses-request",
    };
    check(name, &value);
    value
}

/// Splits a stream and checks every event; `[DONE]` is skipped.
#[track_caller]
pub(crate) fn check_stream(caller: Protocol, out: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(out).expect("UTF-8");
    assert!(text.is_empty() || text.ends_with("\n\n"), "whole events only: {text}");
    let name = match caller {
        Protocol::OpenAi => "openai-chat-chunk.closed",
        Protocol::Gemini => "gemini-generate-content-response.closed",
        Protocol::Anthropic => "anthropic-stream-event.closed",
        Protocol::Responses => "openai-responses-stream-event.closed",
    };
    let mut events = Vec::new();
    for event in text.split_terminator("\n\n") {
        let (_, data) = event.split_once("data: ").expect("data");
        assert!(!data.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']), "one line: {data:?}");
        if data != "[DONE]" {
            let value: Value = serde_json::from_str(data).expect("JSON");
            check(name, &value);
            events.push(value);
        }
    }
    events
}
