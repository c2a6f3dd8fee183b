//! Encrypted reasoning of a Responses upstream: it returns to the upstream, and is removed if another account refuses it.

use serde_json::{Value, json};
use tollgate_testkit::{Request, ScriptedResponse, TestGateway, Upstream, provider};

use super::{MODELS, body, gateway_for};
use crate::support::{self, channel, group, prices};

/// The model accepts a call only with the reasoning that led to it.
#[test]
fn encrypted_reasoning_returns_through_callers_of_other_protocols() {
    let upstream = Upstream::with_model();
    let catalog = channel("responses", "responses", &upstream.openai_url(), MODELS[3], "cooling = false")
        + "profile = { thinking = { effort = [\"low\", \"high\"] } }\n"
        + &prices(&MODELS[3..])
        + &group(&["responses"]);
    let gateway = TestGateway::builder(support::PROGRAM).catalog(&catalog).spawn();
    let post = |path: &str, body: &Value| {
        let answer = gateway.send(&Request::post(path, body).bearer(gateway.key()));
        assert_eq!(answer.status, 200, "{path}: {} {body}", answer.text());
        assert_eq!(answer.header("x-tollgate-dropped"), None, "{path}");
        answer.json()
    };
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    // Two calls, one more, then the answer.
    let text = "use tools";
    let tools: Vec<Value> = ["one", "two"].map(|name| json!({"name": name, "parametersJsonSchema": schema})).into();

    let mut messages = vec![json!({"role": "user", "content": text})];
    for turn in 1.. {
        let of = |tool: &Value| json!({"type": "function", "function": {"name": tool["name"], "parameters": schema}});
        let tools: Vec<Value> = tools.iter().map(of).collect();
        let body = json!({"model": "responses-model", "messages": messages, "tools": tools, "reasoning_effort": "low"});
        let message = post("/v1/chat/completions", &body)["choices"][0]["message"].clone();
        let Some(calls) = message["tool_calls"].as_array().cloned() else {
            assert_eq!((turn, &message["content"]), (3, &json!("results: 5 | 5 | 5")));
            break;
        };
        messages.push(message);
        messages.extend(calls.iter().map(|call| json!({"role": "tool", "tool_call_id": call["id"], "content": "5"})));
    }

    let mut contents = vec![json!({"role": "user", "parts": [{"text": text}]})];
    for turn in 1.. {
        let thinking = json!({"thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": turn == 2}});
        let body = json!({"contents": contents, "tools": [{"functionDeclarations": tools}], "generationConfig": thinking});
        let content = post("/v1beta/models/responses-model:generateContent", &body)["candidates"][0]["content"].clone();
        let calls: Vec<Value> =
            content["parts"].as_array().expect("parts").iter().filter_map(|part| part.get("functionCall").cloned()).collect();
        if calls.is_empty() {
            assert_eq!(turn, 3);
            break;
        }
        let result =
            |call: &Value| json!({"functionResponse": {"id": call["id"], "name": call["name"], "response": {"output": "5"}}});
        contents.push(content);
        contents.push(json!({"role": "user", "parts": calls.iter().map(result).collect::<Vec<_>>()}));
    }

    let mut messages = vec![json!({"role": "user", "content": text})];
    for turn in 1.. {
        let tools: Vec<Value> = tools.iter().map(|tool| json!({"name": tool["name"], "input_schema": schema})).collect();
        let display = if turn == 2 { "omitted" } else { "summarized" };
        let body = json!({
            "model": "responses-model", "max_tokens": 50, "messages": messages, "tools": tools,
            "thinking": {"type": "adaptive", "display": display}, "output_config": {"effort": "low"},
        });
        let content = post("/v1/messages", &body)["content"].clone();
        let calls: Vec<Value> =
            content.as_array().expect("blocks").iter().filter(|block| block["type"] == "tool_use").cloned().collect();
        if calls.is_empty() {
            assert_eq!(turn, 3);
            break;
        }
        let result = |call: &Value| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "5"});
        messages.push(json!({"role": "assistant", "content": content}));
        messages.push(json!({"role": "user", "content": calls.iter().map(result).collect::<Vec<_>>()}));
    }
    let last = upstream.received().last().expect("a request").json();
    let thoughts = last["input"].as_array().expect("items").iter().filter(|item| item["type"] == "reasoning");
    let seals: Vec<_> = thoughts.map(|item| (item["id"].is_string(), item["encrypted_content"].as_str())).collect();
    assert_eq!(seals, [(true, Some(provider::RESPONSES_SEAL)); 2]);
}

/// A history with reasoning encrypted by another account, in a caller's protocol, and the field that is reported as dropped.
fn sealed_elsewhere() -> [(&'static str, Value, &'static str); 3] {
    let reasoning = json!({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAAelsewhere"});
    let function = json!({"name": "f", "arguments": "{}"});
    let call = json!({"id": "c", "type": "function", "function": function, "extra_content": {"openai": {"reasoning": reasoning}}});
    let thinking = json!({"type": "thinking", "thinking": "", "signature": "tg1.r.rs_1:gAAAAelsewhere"});
    [
        (
            "/v1/responses",
            json!({"model": MODELS[3], "input": [
                {"role": "user", "content": "hi"}, reasoning,
                {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "x"},
            ]}),
            "input[1].encrypted_content",
        ),
        (
            "/v1/chat/completions",
            json!({"model": MODELS[3], "messages": [
                {"role": "user", "content": "hi"}, {"role": "assistant", "content": null, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": "x"},
            ]}),
            "messages[1].tool_calls[0].extra_content.openai.reasoning",
        ),
        (
            "/v1/messages",
            json!({"model": MODELS[3], "max_tokens": 90, "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": [thinking, {"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]},
            ]}),
            "messages[1].content[0]",
        ),
    ]
}

#[test]
fn refused_encrypted_reasoning_of_another_account_is_removed_and_retried() {
    let upstream = Upstream::with_model();
    let gateway = gateway_for(&upstream);
    for (path, body, named) in sealed_elsewhere() {
        let before = upstream.received().len();
        let answer = gateway.send(&Request::post(path, &body).bearer(gateway.key()));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(answer.header("x-tollgate-dropped"), Some(named), "{path}");
        let sent: Vec<Value> = upstream.received()[before..].iter().map(|request| request.json()["input"].clone()).collect();
        let [first, second] = sent.as_slice() else { panic!("{path}: {sent:?}") };
        assert!(first.to_string().contains("gAAAAelsewhere"), "{path}: {first}");
        assert!(!second.to_string().contains("reasoning") && !second.to_string().contains("fc_1"), "{path}: {second}");
        assert_eq!(second.as_array().expect("items").len(), 3, "{path}: everything else is unchanged");
        let record = gateway.record_of(&answer);
        assert_eq!(record["dropped"], json!([named]), "{path}");
        let attempts = record["attempts"].as_array().expect("attempts");
        let codes: Vec<&Value> = attempts.iter().map(|attempt| &attempt["error"]).collect();
        assert_eq!(codes, [&json!("E52"), &Value::Null], "{path}: {record}");
    }
}

#[test]
fn refused_encrypted_reasoning_is_removed_only_once() {
    let refused =
        json!({"error": {"type": "invalid_request_error", "code": "invalid_encrypted_content", "message": "no", "param": null}});
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    let (path, sealed, _) = sealed_elsewhere()[0].clone();
    // The seals are removed only once: a second refusal finds none left, and a body without seals is not sent again.
    for (body, sent) in [(sealed, 2), (body(MODELS[3]), 1)] {
        let before = upstream.received().len();
        for _ in 0..sent {
            upstream.enqueue(ScriptedResponse::error(400, &refused));
        }
        let answer = gateway.send(&Request::post(path, &body).bearer(gateway.key()));
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (400, &json!("invalid_encrypted_content")),
            "{}",
            answer.text()
        );
        assert_eq!(upstream.received().len() - before, sent);
    }
}
