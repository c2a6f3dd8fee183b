//! What goes upstream, what comes back, and who is tried next.

use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_testkit::{Request, ScriptedResponse, UPSTREAM_CREDENTIAL, Upstream};

use crate::support::{self, channel, group, prices};

#[test]
fn a_chat_body_goes_through_byte_for_byte_but_for_the_model() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let body = br#"{ "messages":[{"role":"user","content":"caf\u00e9"}], "model" : "chat-model","seed":9007199254740993,"x_new":[1,2.50,1e3] }"#;
    let answer = gate.send(&Request::post_bytes("/v1/chat/completions", body.to_vec()).bearer(gate.key()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["model"], "chat-model", "the caller's name is put back");
    let seen = &upstream.seen()[0];
    let expected = String::from_utf8_lossy(body).replace("\"chat-model\"", "\"upstream-model\"");
    assert_eq!(String::from_utf8_lossy(&seen.body), expected);
    assert_eq!(seen.line, "POST /v1/chat/completions");
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {UPSTREAM_CREDENTIAL}").as_str()));
}

#[test]
fn a_native_call_goes_to_the_upstreams_path_with_its_key_in_the_header() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let answer = gate.native("native-model", "generateContent", &support::native());
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["candidates"][0]["content"]["parts"][0]["text"], "hello");
    let seen = &upstream.seen()[0];
    assert_eq!(seen.line, "POST /v1beta/models/upstream-model:generateContent");
    assert_eq!(seen.header("x-goog-api-key"), Some(UPSTREAM_CREDENTIAL));
    assert_eq!(seen.header("authorization"), None);
}

#[test]
fn nothing_of_the_callers_headers_goes_upstream() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let request = Request::post("/v1/chat/completions", &support::chat("chat-model"))
        .bearer(gate.key())
        .header("cookie", "session=1")
        .header("x-forwarded-for", "1.2.3.4")
        .header("openai-organization", "org")
        .header("x-request-id", "mine");
    let answer = gate.send(&request);
    assert_eq!(answer.status, 200);
    assert_ne!(answer.header("x-request-id"), Some("mine"));
    for name in ["cookie", "x-forwarded-for", "openai-organization", "x-request-id"] {
        assert_eq!(upstream.seen()[0].header(name), None, "{name}");
    }
    assert_eq!(gate.record_of(&answer)["client_request_id"], "mine");
}

#[test]
fn a_record_holds_tokens_money_and_the_attempt() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let answer = gate.chat(&support::chat("chat-model"));
    let record = gate.record_of(&answer);
    assert_eq!(record["outcome"], "completed");
    assert_eq!(record["status"], 200);
    assert_eq!(record["tokens"]["input"], 5);
    assert_eq!(record["tokens"]["output"], 7);
    assert_eq!(record["tokens"]["source"], "provider");
    // 5 tokens at 10 and 7 at 20 USD per million; cost at 1 and 2.
    assert_eq!(record["sale_nano_usd"], 5 * 10_000 + 7 * 20_000);
    assert_eq!(record["cost_nano_usd"], 5 * 1_000 + 7 * 2_000);
    assert_eq!(record["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(record["attempts"][0]["channel"], "chat");
    assert_eq!(record["attempts"][0]["upstream_model"], "upstream-model");
    assert_eq!(answer.header("x-tollgate-attempts"), Some("1"));
}

/// Two channels for one model, the first tier broken in the way the test says.
fn two_channels(first: &Upstream, second: &Upstream, lines: &str) -> tollgate_testkit::TestGateway {
    let catalog = channel("first", "openai", &first.openai(), "chat-model", lines)
        + &channel("second", "openai", &second.openai(), "chat-model", "priority = 1")
        + &prices(&["chat-model"])
        + &group(&["first", "second"]);
    tollgate_testkit::TestGateway::of(support::PROGRAM).catalog(&catalog).spawn()
}

#[test]
fn the_next_account_answers_when_the_first_fails() {
    for (name, broken) in [
        ("500", ScriptedResponse::error(500, &json!({"error": {"message": "boom"}}))),
        ("429", ScriptedResponse::error(429, &json!({"error": {"message": "slow down"}})).header("retry-after", "7")),
        ("401", ScriptedResponse::error(401, &json!({"error": {"message": "bad key"}}))),
        ("hang up", ScriptedResponse::close_immediately()),
        ("200 with HTML", ScriptedResponse::status(200).body("<html>hello</html>", "text/html")),
        ("empty 200", ScriptedResponse::status(200).body("", "application/json")),
        ("no choices", ScriptedResponse::json(&json!({"id": "x", "object": "chat.completion", "choices": []}))),
        ("error inside a 200", ScriptedResponse::json(&json!({"error": {"message": "overloaded", "code": 503}}))),
    ] {
        let (first, second) = (Upstream::start(), Upstream::start());
        first.otherwise(broken);
        let gate = two_channels(&first, &second, "");
        let answer = gate.chat(&support::chat("chat-model"));
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        assert_eq!(answer.header("x-tollgate-attempts"), Some("2"), "{name}");
        let record = gate.record_of(&answer);
        assert_eq!(record["attempts"].as_array().unwrap().len(), 2, "{name}");
        assert_eq!(record["attempts"][0]["channel"], "first", "{name}");
        assert_eq!(record["attempts"][1]["result"], "answered", "{name}");
    }
}

#[test]
fn an_account_that_said_429_is_left_alone_until_it_may_be_asked_again() {
    let (first, second) = (Upstream::start(), Upstream::start());
    first.otherwise(ScriptedResponse::error(429, &json!({"error": {"message": "slow down"}})).header("retry-after", "30"));
    let gate = two_channels(&first, &second, "");
    for _ in 0..3 {
        assert_eq!(gate.chat(&support::chat("chat-model")).status, 200);
    }
    assert_eq!(first.seen().len(), 1, "it was asked once");
    assert_eq!(second.seen().len(), 3);
}

#[test]
fn a_fault_of_the_request_is_passed_on_and_nobody_else_is_asked() {
    let (first, second) = (Upstream::start(), Upstream::start());
    first.otherwise(ScriptedResponse::error(400, &json!({"error": {"message": "Unsupported parameter: 'x' is not supported.", "type": "invalid_request_error", "param": "x", "code": "unsupported_parameter"}})));
    let gate = two_channels(&first, &second, "");
    let answer = gate.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"]["code"], "unsupported_parameter");
    assert_eq!(answer.json()["error"]["param"], "x");
    assert!(second.seen().is_empty());
    let record = gate.record_of(&answer);
    assert_eq!(record["reason"], "E52");
    assert_eq!(record["sale_nano_usd"], 0);
}

#[test]
fn a_closed_port_costs_the_caller_nothing_while_another_account_is_left() {
    let second = Upstream::start();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let catalog = channel("first", "openai", &format!("http://{closed}/v1"), "chat-model", "")
        + &channel("second", "openai", &second.openai(), "chat-model", "priority = 1")
        + &prices(&["chat-model"])
        + &group(&["first", "second"]);
    let gate = tollgate_testkit::TestGateway::of(support::PROGRAM).catalog(&catalog).spawn();
    for _ in 0..20 {
        assert_eq!(gate.chat(&support::chat("chat-model")).status, 200);
    }
    assert_eq!(second.seen().len(), 20);
}

#[test]
fn a_private_address_needs_the_operators_word() {
    let upstream = Upstream::start();
    let catalog = support::catalog(&upstream, "cooling = false").replace("private_network = true", "private_network = false");
    let gate = tollgate_testkit::TestGateway::of(support::PROGRAM).catalog(&catalog).spawn();
    let answer = gate.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert_eq!(answer.json()["error"]["code"], "upstream_unreachable");
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn redirects_are_not_followed() {
    let (upstream, elsewhere) = (Upstream::start(), Upstream::start());
    upstream.otherwise(ScriptedResponse::status(307).header("location", &format!("{}/chat/completions", elsewhere.openai())));
    let gate = support::before(&upstream);
    let answer = gate.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert!(elsewhere.seen().is_empty());
}

#[test]
fn the_first_byte_limit_ends_the_wait() {
    let upstream = Upstream::start();
    upstream.otherwise(ScriptedResponse::chat("late").after(Duration::from_secs(50)));
    let gate = support::builder(&upstream, "cooling = false\nfirst_byte_timeout_ms = 200").spawn();
    let begin = Instant::now();
    let answer = gate.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 504, "{}", answer.text());
    assert_eq!(answer.json()["error"]["code"], "upstream_timeout");
    assert!(begin.elapsed() < Duration::from_secs(50), "the answer was waited for");
    upstream.wait_for("the gateway closing", |seen| seen.iter().all(|seen| seen.left_at.is_some()));
}

#[test]
fn our_own_credential_in_an_upstreams_words_is_not_shown() {
    let upstream = Upstream::start();
    upstream.otherwise(ScriptedResponse::error(
        400,
        &json!({"error": {"message": format!("Incorrect key {UPSTREAM_CREDENTIAL} for host api.internal.example")}}),
    ));
    let gate = support::before(&upstream);
    let answer = gate.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 400);
    assert!(!answer.text().contains(UPSTREAM_CREDENTIAL), "{}", answer.text());
}

#[test]
fn embeddings_and_token_counts_go_through_on_their_own_protocol() {
    let upstream = Upstream::start();
    let lines = "";
    let catalog = support::catalog(&upstream, lines)
        + "[[model]]\nname = \"embed-model\"\nembeddings = true\nprice = { input = \"1\" }\n"
        + &channel("embed-chat", "openai", &upstream.openai(), "embed-model", "")
        + &channel("embed-native", "gemini", &upstream.gemini(), "embed-native-model", "")
        + "[[model]]\nname = \"embed-native-model\"\nembeddings = true\nprice = { input = \"1\" }\n";
    let catalog =
        catalog.replace("channels = [\"chat\", \"native\"]", "channels = [\"chat\", \"native\", \"embed-chat\", \"embed-native\"]");
    let gate = tollgate_testkit::TestGateway::of(support::PROGRAM).catalog(&catalog).spawn();
    let answer = gate.send(&Request::post("/v1/embeddings", &json!({"model": "embed-model", "input": "hello"})).bearer(gate.key()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["data"][0]["embedding"][0], 0.5);
    let answer = gate.native(
        "embed-native-model",
        "batchEmbedContents",
        &json!({"requests": [{"model": "models/embed-native-model", "content": {"parts": [{"text": "a"}]}}]}),
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = gate.native("native-model", "countTokens", &support::native());
    assert_eq!(answer.json()["totalTokens"], 5, "{}", answer.text());
    assert_eq!(gate.record_of(&answer)["sale_nano_usd"], 0);
    let answer = gate.chat(&support::chat("embed-model"));
    assert_eq!(answer.json()["error"]["code"], "model_not_supported_on_endpoint", "{}", answer.text());
}
