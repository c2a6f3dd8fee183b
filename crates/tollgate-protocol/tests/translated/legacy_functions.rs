//! Callers that declare `functions`, the deprecated form, are answered with `function_call`.

use bytes::Bytes;
use serde_json::{Value, json};
use tollgate_protocol::{
    Framing, Method, Profile, Protocol, Target, TranslateOptions, decode_request, encode_request, neutral::ReplyContext,
    translate_reply,
};

use crate::{framed, relay};

fn context(members: &Value, stream: bool) -> ReplyContext {
    let mut body = json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().expect("a valid case").extend(members.as_object().expect("a valid case").clone());
    let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    let request = decode_request(Protocol::OpenAi, &target, body.to_string().as_bytes()).expect("a valid case");
    let encoded =
        encode_request(Protocol::Gemini, &request, "m", &Profile::default(), &TranslateOptions::default()).expect("a valid case");
    encoded.reply_context("r", 1, "m", Framing::Sse)
}

fn answer() -> Value {
    let call = |city: &str| json!({"functionCall": {"name": "weather", "args": {"city": city}}});
    json!({"candidates": [{"index": 0, "content": {"parts": [call("Rome"), call("Oslo")]}, "finishReason": "STOP"}]})
}

const FUNCTION: &str = r#"{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}"#;

fn functions() -> Value {
    json!({"functions": [serde_json::from_str::<Value>(FUNCTION).expect("a valid case")]})
}

#[test]
fn legacy_functions_are_answered_with_a_function_call() {
    let body = Bytes::from(answer().to_string());
    let reply = translate_reply(Protocol::Gemini, Protocol::OpenAi, &body, &context(&functions(), false)).expect("a valid case");
    let reply: Value = serde_json::from_slice(&reply.body).expect("a valid case");
    let choice = &reply["choices"][0];
    assert_eq!(choice["message"]["function_call"], json!({"name": "weather", "arguments": "{\"city\":\"Rome\"}"}));
    assert_eq!((choice["message"].get("tool_calls"), choice["finish_reason"].as_str()), (None, Some("function_call")));
}

#[test]
fn legacy_functions_are_answered_with_a_function_call_in_streams() {
    let stream = framed(Protocol::Gemini, &[answer()]);
    let (out, fault) = relay((Protocol::Gemini, Protocol::OpenAi), &context(&functions(), true), [&stream[..]]);
    assert_eq!(fault, None);
    let (mut name, mut arguments, mut finish) = (String::new(), String::new(), None);
    for event in std::str::from_utf8(&out).expect("a valid case").split("\n\n").filter_map(|event| event.strip_prefix("data: {")) {
        let event: Value = serde_json::from_str(&format!("{{{event}")).expect("a valid case");
        let choice = &event["choices"][0];
        assert!(choice["delta"].get("tool_calls").is_none(), "{event}");
        name.push_str(choice["delta"]["function_call"]["name"].as_str().unwrap_or_default());
        arguments.push_str(choice["delta"]["function_call"]["arguments"].as_str().unwrap_or_default());
        finish = choice["finish_reason"].as_str().map(str::to_owned).or(finish);
    }
    assert_eq!((&*name, &*arguments, finish.as_deref()), ("weather", "{\"city\":\"Rome\"}", Some("function_call")));
}

#[test]
fn tools_are_answered_with_tool_calls() {
    let tools =
        json!({"tools": [{"type": "function", "function": serde_json::from_str::<Value>(FUNCTION).expect("a valid case")}]});
    let reply = translate_reply(Protocol::Gemini, Protocol::OpenAi, &Bytes::from(answer().to_string()), &context(&tools, false))
        .expect("a valid case");
    let reply: Value = serde_json::from_slice(&reply.body).expect("a valid case");
    assert_eq!(reply["choices"][0]["message"]["tool_calls"].as_array().map(Vec::len), Some(2));
    assert_eq!(reply["choices"][0]["finish_reason"], "tool_calls");
}
