//! Requests that exceed the model's context: each caller gets the refusal that makes its clients shorten the conversation, for any
//! protocol of the upstream.

use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, Request, ScriptedResponse, TestGateway, Upstream};

use crate::support::{self, channel, group, prices};

/// Models by the protocol of their upstream.
const MODELS: [&str; 4] = ["chat-model", "native-model", "messages-model", "responses-model"];
const OPENAI: &str = "Your input exceeds the context window of this model. Please adjust your input and try again.";
const CODE: &str = "context_length_exceeded";

/// A gateway whose accounts may cool down.
fn gateway_for(upstream: &Upstream) -> TestGateway {
    let url = upstream.openai_url();
    let catalog = channel("chat", "openai", &url, MODELS[0], "")
        + &channel("native", "gemini", &upstream.gemini_url(), MODELS[1], "")
        + &channel("messages", "anthropic", &url, MODELS[2], "")
        + &channel("responses", "responses", &url, MODELS[3], "")
        + &prices(&MODELS)
        + &group(&["chat", "native", "messages", "responses"]);
    TestGateway::builder(support::PROGRAM).catalog(&catalog).spawn()
}

/// The refusals of each protocol's upstreams, with their messages.
fn refusals() -> Vec<(&'static str, &'static str, ScriptedResponse)> {
    let chat = "This model's maximum context length is 128000 tokens. However, your messages resulted in 210000 tokens.";
    let native = "The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).";
    let messages = "prompt is too long: 210000 tokens > 200000 maximum";
    let openai =
        |message| json!({"error": {"message": message, "type": "invalid_request_error", "param": "messages", "code": CODE}});
    vec![
        (MODELS[0], chat, ScriptedResponse::error(400, &openai(chat))),
        (
            MODELS[1],
            native,
            ScriptedResponse::error(400, &json!({"error": {"code": 400, "message": native, "status": "INVALID_ARGUMENT"}})),
        ),
        (
            MODELS[2],
            messages,
            ScriptedResponse::error(
                400,
                &json!({"type": "error", "error": {"type": "invalid_request_error", "message": messages}}),
            ),
        ),
        (MODELS[3], OPENAI, ScriptedResponse::error(400, &openai(OPENAI))),
    ]
}

/// OpenAI's refusal of a stream.
fn failed_stream() -> ScriptedResponse {
    let failed = json!({"id": "resp_up", "object": "response", "created_at": 7, "status": "failed", "output": [], "usage": null,
        "error": {"code": CODE, "message": OPENAI}});
    let created =
        json!({"id": "resp_up", "object": "response", "created_at": 7, "status": "in_progress", "output": [], "usage": null});
    let event = |kind: &str, number: u8, response: &Value| {
        format!("event: {kind}\ndata: {}\n\n", json!({"type": kind, "sequence_number": number, "response": response}))
    };
    ScriptedResponse::events(vec![event("response.created", 0, &created), event("response.failed", 1, &failed)])
}

fn response(gateway: &TestGateway, model: &str, stream: bool) -> ClientResponse {
    let body = json!({"model": model, "input": "prompt-canary hello", "stream": stream});
    gateway.send(&Request::post("/v1/responses", &body).bearer(gateway.key()))
}

/// Checks that the record has the provider's refusal, that nothing is paid for it, and that the account is not blamed.
fn check_record(gateway: &TestGateway, answer: &ClientResponse, model: &str, message: &str) {
    let record = gateway.record_of(answer);
    assert_eq!(
        ["status", "outcome", "reason", "detail", "sale", "cost"].map(|name| record[name].clone()),
        [json!(answer.status), json!("refused"), json!("E52"), json!(message), json!("0.00"), json!("0.00")],
        "{record}"
    );
    assert_eq!((&record["attempts"][0]["result"], &record["attempts"][0]["error"]), (&json!("refused"), &json!("E52")), "{record}");
    let output = gateway.run(&["explain", "--model", model, "--key", "caller", "--json"]);
    let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(explained["excluded"], json!([]), "the account is as healthy as before");
}

#[test]
fn responses_stream_fails_with_the_context_length_code_for_codex() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    for (model, words, refusal) in refusals().into_iter().chain([(MODELS[3], OPENAI, failed_stream())]) {
        upstream.set_default(refusal);
        let answer = response(&gateway, model, true);
        assert_eq!((answer.status, answer.complete), (200, true), "{model}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
        assert_eq!((answer.header("cache-control"), answer.header("x-tollgate-attempts")), (Some("no-cache"), Some("1")));
        let events: Vec<Value> = answer.events().iter().map(|data| serde_json::from_str(data).unwrap()).collect();
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(kinds, ["response.created", "response.in_progress", "response.failed", "error"], "{model}");
        for (number, event) in events.iter().enumerate() {
            assert_eq!(event["sequence_number"], number, "{event}");
        }
        let failed = &events[2]["response"];
        assert_eq!((&failed["status"], &failed["error"]), (&json!("failed"), &json!({"code": CODE, "message": words})), "{model}");
        assert_eq!((&failed["model"], &failed["usage"], &failed["output"]), (&json!(model), &json!(null), &json!([])), "{model}");
        assert_eq!(failed["id"], events[0]["response"]["id"]);
        assert_eq!((&events[3]["code"], &events[3]["error"]["message"]), (&json!(CODE), &json!(words)), "{model}");
        check_record(&gateway, &answer, model, words);
    }
}

#[test]
fn other_openai_callers_get_status_400_and_the_context_length_code() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    for (model, words, refusal) in refusals() {
        upstream.set_default(refusal);
        let chat = |body| gateway.chat(&body);
        for answer in [response(&gateway, model, false), chat(support::chat(model)), chat(support::chat_stream(model))] {
            let error = &answer.json()["error"];
            assert_eq!((answer.status, &error["code"], &error["message"]), (400, &json!(CODE), &json!(words)), "{model}");
            check_record(&gateway, &answer, model, words);
        }
    }
}

#[test]
fn other_errors_of_a_responses_stream_are_sent_with_their_status() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    let said = json!({"error": {"message": "Invalid 'input'.", "type": "invalid_request_error", "param": "input", "code": "invalid_value"}});
    upstream.set_default(ScriptedResponse::error(400, &said));
    let answer = response(&gateway, "responses-model", true);
    assert_eq!((answer.status, answer.json()), (400, said));
}

/// Claude Code compacts the conversation if a status 400, 413 or 422 comes with one of these, among others.
const CLAUDE_CODE: [&str; 4] =
    ["prompt is too long", "maximum context length", "exceeds the maximum number of tokens allowed", "exceeds the context window"];

#[test]
fn messages_callers_get_the_context_length_message_of_claude_code() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    let ask = |model: &str, stream: bool| {
        let body = json!({"model": model, "max_tokens": 9, "stream": stream, "messages": [{"role": "user", "content": "x"}]});
        gateway.send(&Request::post("/v1/messages", &body).header("x-api-key", gateway.key()))
    };
    for (model, words, refusal) in refusals() {
        for (stream, refusal) in [(true, refusal.clone()), (false, refusal)] {
            upstream.set_default(refusal);
            let answer = ask(model, stream);
            let error = &answer.json()["error"];
            assert_eq!((answer.status, &error["type"], &error["message"]), (400, &json!("invalid_request_error"), &json!(words)));
            assert!(CLAUDE_CODE.iter().any(|known| words.contains(known)), "{model}: {words}");
            check_record(&gateway, &answer, model, words);
        }
    }
    upstream.set_default(failed_stream());
    let answer = ask(MODELS[3], true);
    assert_eq!((answer.status, &answer.json()["error"]["message"]), (400, &json!(OPENAI)));
    // A code without a known text, or the text of a server that clients do not recognise.
    let coded = json!({"error": {"message": "Too many tokens.", "type": "invalid_request_error", "param": null, "code": CODE}});
    let ollama = json!({"error": {"message": "prompt too long; exceeded max context length by 4 tokens", "type": "invalid_request_error", "param": null, "code": null}});
    for said in [coded, ollama] {
        upstream.set_default(ScriptedResponse::error(400, &said));
        let answer = ask("chat-model", true);
        let words = format!("prompt is too long: {}", said["error"]["message"].as_str().unwrap());
        assert_eq!((answer.status, &answer.json()["error"]["message"]), (400, &json!(words)));
        check_record(&gateway, &answer, "chat-model", &words);
        assert_eq!(gateway.chat(&support::chat("chat-model")).json()["error"]["message"], said["error"]["message"]);
    }
}

#[test]
fn native_callers_get_status_400_and_the_context_length_message() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    for (model, words, refusal) in refusals() {
        upstream.set_default(refusal);
        let body = json!({"contents": [{"role": "user", "parts": [{"text": "x"}]}]});
        let path = format!("/v1beta/models/{model}:streamGenerateContent?alt=sse");
        let answer = gateway.send(&Request::post(&path, &body).header("x-native-api-key", gateway.key()));
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["status"], &error["message"]),
            (400, &json!("INVALID_ARGUMENT"), &json!(words)),
            "{model}"
        );
        check_record(&gateway, &answer, model, words);
    }
}
