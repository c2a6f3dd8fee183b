//! Tests of echo answers in both protocols, complete and streamed.

use serde_json::{Value, json};

use super::*;
use crate::{Framing, ReplyEdits, passthrough::tests};

const CHAT: EchoCall<'_> =
    EchoCall { protocol: Protocol::OpenAi, method: Method::Chat, model: "echo", request_id: "0abc", now: 1_700_000_000 };

fn gemini(method: Method) -> EchoCall<'static> {
    EchoCall { protocol: Protocol::Gemini, method, ..CHAT }
}

fn whole(call: &EchoCall<'_>, body: &Value) -> Value {
    let answer = echo(call, body.to_string().as_bytes());
    assert_eq!(answer.status, 200);
    let EchoBody::Whole(bytes) = answer.body else { panic!("not streamed") };
    let checked = codec(call.protocol).read_reply(call.method, &bytes, &ReplyEdits::default()).unwrap();
    assert_eq!(checked.summary.usage, Some(answer.usage));
    serde_json::from_slice(&bytes).unwrap()
}

/// The JSON of every event, after running the events through the passthrough relay.
fn events(call: &EchoCall<'_>, body: &Value) -> Vec<Value> {
    let answer = echo(call, body.to_string().as_bytes());
    let EchoBody::Events(events) = answer.body else { panic!("streamed") };
    let all: Vec<Bytes> = events.collect();
    let relay = codec(call.protocol).relay(Framing::Sse, &ReplyEdits::default());
    let (out, result, summary) = tests::run(relay, all.iter().map(|event| &event[..]));
    assert_eq!((result, out), (Ok(()), String::from_utf8(all.concat()).unwrap()));
    if summary.usage.is_some() {
        assert_eq!(summary.usage, Some(answer.usage));
    }
    let data = all.iter().map(|event| event.strip_prefix(b"data: ").unwrap().strip_suffix(b"\n\n").unwrap());
    data.filter(|data| *data != b"[DONE]").map(|data| serde_json::from_slice(data).unwrap()).collect()
}

fn user(content: &Value) -> Value {
    json!({"model": "echo", "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": content}]})
}

fn openai_echo(content: &Value) -> String {
    whole(&CHAT, &user(content))["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

fn gemini_echo(contents: &Value) -> String {
    let body = whole(&gemini(Method::Generate), &json!({"contents": contents}));
    body["candidates"][0]["content"]["parts"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn openai_answer_is_the_last_user_turn() {
    let body = whole(&CHAT, &user(&json!("hello big world")));
    assert_eq!(body["id"], "chatcmpl-0abc");
    assert_eq!((&body["model"], &body["created"]), (&json!("echo"), &json!(1_700_000_000)));
    let choice = json!({"index": 0, "message": {"role": "assistant", "content": "hello big world", "refusal": null}, "logprobs": null, "finish_reason": "stop"});
    assert_eq!(body["choices"], json!([choice]));
    assert_eq!((&body["usage"]["prompt_tokens"], &body["usage"]["completion_tokens"]), (&json!(5), &json!(3)));
    let turns = json!({"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"},
        {"role": "assistant", "content": "four"}], "temperature": 1.5, "n": 4, "unknown": {}});
    assert_eq!(whole(&CHAT, &turns)["choices"][0]["message"]["content"], "three");
    assert_eq!(whole(&CHAT, &turns)["choices"].as_array().unwrap().len(), 1);
}

#[test]
fn media_and_tool_results_are_described() {
    let parts = json!([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAAAA=="}},
        {"type": "image_url", "image_url": "https://x.test/a.png"}, {"type": "input_audio", "input_audio": {"format": "mp3", "data": "AAAA"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAAAAA="}}, {"type": "file", "file": {"file_id": "f"}}]);
    assert_eq!(
        openai_echo(&parts),
        "look\n[image/png, 4 bytes]\n[image]\n[audio/mp3, 3 bytes]\n[application/pdf, 5 bytes]\n[file]"
    );
    let results = json!({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": []},
        {"role": "tool", "tool_call_id": "a", "content": "first"}, {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "second"}]}]});
    assert_eq!(whole(&CHAT, &results)["choices"][0]["message"]["content"], "first\nsecond");
    let contents = json!([{"role": "user", "parts": [{"text": "look"}, {"inlineData": {"data": "__4-Pw==", "mime_type": "image/png"}},
        {"fileData": {"fileUri": "gs://x"}}, {"functionResponse": {"name": "f", "response": {"result": "fine"}}},
        {"function_response": {"name": "f", "response": {"a": 1}}}]}]);
    assert_eq!(gemini_echo(&contents), "look\n[image/png, 4 bytes]\n[file]\nfine\n{\"a\":1}");
}

#[test]
fn gemini_answer_is_the_last_turn_of_the_user() {
    let body = whole(
        &gemini(Method::Generate),
        &json!({"contents": [{"role": "user", "parts": [{"text": "a b"}]}, {"role": "model", "parts": [{"text": "c"}]}, {"parts": [{"text": "d"}]}],
            "systemInstruction": {"parts": [{"text": "be brief"}]}, "safetySettings": []}),
    );
    assert_eq!(
        body,
        json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "d"}]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 6, "candidatesTokenCount": 1, "totalTokenCount": 7}, "modelVersion": "echo", "responseId": "req_0abc"})
    );
}

#[test]
fn openai_stream_has_one_word_per_chunk() {
    let mut body = user(&json!("hello  big world"));
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let events = events(&CHAT, &body);
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": "", "refusal": null}));
    let words: Vec<_> = events[1..4].iter().map(|event| event["choices"][0]["delta"]["content"].as_str().unwrap()).collect();
    assert_eq!(words, ["hello", "  big", " world"]);
    assert_eq!(events[4]["choices"][0]["finish_reason"], "stop");
    assert_eq!((&events[5]["choices"], &events[5]["usage"]["total_tokens"]), (&json!([]), &json!(8)));
    assert!(events[..5].iter().all(|event| event["usage"] == Value::Null && event.get("usage").is_some()));
    body["stream_options"] = Value::Null;
    assert!(super::tests::events(&CHAT, &body).iter().all(|event| event.get("usage").is_none()));
}

#[test]
fn gemini_stream_ends_with_finish_reason_and_usage() {
    let call = gemini(Method::StreamGenerate);
    let streamed = events(&call, &json!({"contents": [{"parts": [{"text": "hello big world"}]}]}));
    assert_eq!(streamed.len(), 3);
    assert!(streamed[..2].iter().all(|event| event["candidates"][0].get("finishReason").is_none()));
    assert_eq!(
        (&streamed[2]["candidates"][0]["finishReason"], &streamed[2]["usageMetadata"]["totalTokenCount"]),
        (&json!("STOP"), &json!(6))
    );
    let empty = events(&call, &json!({"contents": [{"parts": [{"text": ""}]}]}));
    assert_eq!((empty.len(), &empty[0]["candidates"][0]["content"]["parts"]), (1, &json!([{"text": ""}])));
}

#[test]
fn token_limit_truncates_after_words() {
    let mut body = user(&json!("one two three"));
    body["max_tokens"] = json!(9);
    body["max_completion_tokens"] = json!(2);
    let answer = whole(&CHAT, &body);
    assert_eq!(
        (&answer["choices"][0]["message"]["content"], &answer["choices"][0]["finish_reason"]),
        (&json!("one two"), &json!("length"))
    );
    for limit in [json!(2), json!("2"), json!(2.0)] {
        let body = json!({"contents": [{"parts": [{"text": "one two three"}]}], "generation_config": {"max_output_tokens": limit}});
        let candidate = whole(&gemini(Method::Generate), &body)["candidates"][0].clone();
        assert_eq!(
            (&candidate["content"]["parts"][0]["text"], &candidate["finishReason"]),
            (&json!("one two"), &json!("MAX_TOKENS"))
        );
    }
}

#[test]
fn json_formats_wrap_the_text_in_an_object() {
    for format in ["json_object", "json_schema"] {
        let mut body = user(&json!("say \"hi\""));
        body["response_format"] = json!({"type": format});
        assert_eq!(whole(&CHAT, &body)["choices"][0]["message"]["content"], r#"{"echo":"say \"hi\""}"#);
    }
    let body = json!({"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": {"responseMimeType": "application/json"}});
    assert_eq!(whole(&gemini(Method::Generate), &body)["candidates"][0]["content"]["parts"][0]["text"], r#"{"echo":"hi"}"#);
}

#[test]
fn only_forced_tools_are_called() {
    let tools = json!([{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}]);
    let call = |choice: Value| {
        let mut body = user(&json!("x"));
        body["tools"] = tools.clone();
        body["tool_choice"] = choice;
        whole(&CHAT, &body)["choices"][0].clone()
    };
    let named = |name: &str| json!([{"id": "call_0abc_0", "type": "function", "function": {"name": name, "arguments": "{}"}}]);
    assert_eq!(call(json!("required"))["message"]["tool_calls"], named("f"));
    assert_eq!(call(json!("required"))["finish_reason"], "tool_calls");
    assert_eq!(call(json!({"type": "function", "function": {"name": "g"}}))["message"]["tool_calls"], named("g"));
    let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "g"}}]}});
    assert_eq!(call(allowed)["message"]["tool_calls"], named("g"));
    assert_eq!(
        call(json!({"type": "custom", "custom": {"name": "c"}}))["message"]["tool_calls"][0]["custom"],
        json!({"name": "c", "input": ""})
    );
    for choice in [json!("auto"), json!("none"), Value::Null] {
        assert!(call(choice)["message"].get("tool_calls").is_none());
    }
    let mut body = user(&json!("x"));
    (body["tools"], body["tool_choice"], body["stream"]) = (tools, json!("required"), json!(true));
    let events = events(&CHAT, &body);
    assert_eq!(events[1]["choices"][0]["delta"]["tool_calls"][0]["index"], 0);
    assert_eq!(events[2]["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn forced_gemini_functions_are_called() {
    let body = |config: Value| {
        json!({"contents": [{"parts": [{"text": "x"}]}], "tools": [{"googleSearch": {}}, {"functionDeclarations": [{"name": "f"}]}],
            "toolConfig": {"functionCallingConfig": config}})
    };
    let part = |config: Value| whole(&gemini(Method::Generate), &body(config))["candidates"][0]["content"]["parts"][0].clone();
    assert_eq!(part(json!({"mode": "ANY"})), json!({"functionCall": {"id": "call_0abc_0", "name": "f", "args": {}}}));
    assert_eq!(part(json!({"mode": "ANY", "allowedFunctionNames": ["g"]}))["functionCall"]["name"], "g");
    assert_eq!(part(json!({"mode": "AUTO"})), json!({"text": "x"}));
    let streamed = events(&gemini(Method::StreamGenerate), &body(json!({"mode": "any"})));
    assert_eq!((streamed.len(), &streamed[0]["candidates"][0]["finishReason"]), (1, &json!("STOP")));
}

#[test]
fn token_count_is_the_number_of_words() {
    let contents = json!({"contents": [{"parts": [{"text": "one two three"}]}]});
    assert_eq!(whole(&gemini(Method::CountTokens), &contents), json!({"totalTokens": 3}));
    let wrapped = json!({"generateContentRequest": {"contents": [{"parts": [{"text": "one two"}]}], "systemInstruction": {"parts": [{"text": "x"}]}}});
    assert_eq!(whole(&gemini(Method::CountTokens), &wrapped), json!({"totalTokens": 3}));
}

#[test]
fn unsupported_methods_and_invalid_json_are_refused() {
    for (protocol, method) in [(Protocol::OpenAi, Method::Embeddings), (Protocol::Gemini, Method::EmbedContent)] {
        let answer = echo(&EchoCall { protocol, method, ..CHAT }, b"{}");
        let EchoBody::Whole(body) = answer.body else { panic!("not streamed") };
        assert_eq!((answer.status, codec(protocol).decode_problem(404, &body).is_error_object), (404, true));
    }
    assert_eq!(echo(&CHAT, b"{").status, 400);
}

#[test]
fn events_of_a_huge_text_are_bounded() {
    let body = json!({"messages": [{"role": "user", "content": "a ".repeat(500_000)}], "stream": true}).to_string();
    let EchoBody::Events(events) = echo(&CHAT, body.as_bytes()).body else { panic!("streamed") };
    let (count, longest) = events.fold((0, 0), |(count, longest), event| (count + 1, event.len().max(longest)));
    assert_eq!(count, 10_003);
    assert!(longest < 500, "{longest}");
    let word = json!({"messages": [{"role": "user", "content": "\"".repeat(1_000_000)}], "stream": true}).to_string();
    let EchoBody::Events(events) = echo(&CHAT, word.as_bytes()).body else { panic!("streamed") };
    assert!(events.map(|event| event.len()).max().unwrap() < 256 * 1024);
}
