//! Forwarding: upstream requests, responses, and fail-over.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_testkit::{Request, ScriptedResponse, UPSTREAM_CREDENTIAL, Upstream};

use crate::support::{self, channel, group, prices};

#[test]
fn chat_body_is_forwarded_unchanged_except_for_the_model() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let body = br#"{ "messages":[{"role":"user","content":"caf\u00e9"}], "model" : "chat-model","seed":9007199254740993,"x_new":[1,2.50,1e3] }"#;
    let answer = gateway.send(&Request::post_bytes("/v1/chat/completions", body.to_vec()).bearer(gateway.key()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["model"], "chat-model", "the caller's name is put back");
    let received = &upstream.received()[0];
    let expected = String::from_utf8_lossy(body).replace("\"chat-model\"", "\"upstream-model\"");
    assert_eq!(String::from_utf8_lossy(&received.body), expected);
    assert_eq!(received.line, "POST /v1/chat/completions");
    assert_eq!(received.header("authorization"), Some(format!("Bearer {UPSTREAM_CREDENTIAL}").as_str()));
}

#[test]
fn parameters_are_edited_as_the_channel_says() {
    let upstream = Upstream::start();
    let lines = "parameter_edits = [{ action = \"drop\", parameter = \"seed\" }, { action = \"clamp\", parameter = \"temperature\", \
                 max = 1 }, { action = \"clamp\", parameter = \"max_tokens\", max = 100 }, { action = \"force\", parameter = \
                 \"reasoning_effort\", value = \"low\" }]";
    let gateway = support::builder(&upstream, lines).spawn();
    let body = br#"{"model":"chat-model","messages":[{"role":"user","content":"caf\u00e9"}],"seed":1,"temperature":1.5,"max_tokens":400,"top_p":0.10}"#;
    let answer = gateway.send(&Request::post_bytes("/v1/chat/completions", body.to_vec()).bearer(gateway.key()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let changed = "seed,temperature=1,max_tokens=100,reasoning_effort=low";
    assert_eq!(answer.header("x-tollgate-dropped"), Some(changed));
    let expected = r#"{"model":"upstream-model","messages":[{"role":"user","content":"caf\u00e9"}],"temperature":1,"max_tokens":100,"top_p":0.10,"reasoning_effort":"low"}"#;
    assert_eq!(String::from_utf8_lossy(&upstream.received()[0].body), expected);
    assert_eq!(gateway.record_of(&answer)["dropped"], json!(changed.split(',').collect::<Vec<_>>()));
}

#[test]
fn native_call_uses_upstream_path_and_key_header() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let answer = gateway.native("native-model", "generateContent", &support::native());
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["candidates"][0]["content"]["parts"][0]["text"], "hello");
    let received = &upstream.received()[0];
    assert_eq!(received.line, "POST /v1beta/models/upstream-model:generateContent");
    assert_eq!(received.header("x-goog-api-key"), Some(UPSTREAM_CREDENTIAL));
    assert_eq!(received.header("authorization"), None);
}

#[test]
fn caller_headers_are_not_forwarded() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let request = Request::post("/v1/chat/completions", &support::chat("chat-model"))
        .bearer(gateway.key())
        .header("cookie", "session=1")
        .header("x-forwarded-for", "1.2.3.4")
        .header("openai-organization", "org")
        .header("x-request-id", "mine");
    let answer = gateway.send(&request);
    assert_eq!(answer.status, 200);
    assert_ne!(answer.header("x-request-id"), Some("mine"));
    for name in ["cookie", "x-forwarded-for", "openai-organization", "x-request-id"] {
        assert_eq!(upstream.received()[0].header(name), None, "{name}");
    }
    assert_eq!(gateway.record_of(&answer)["client_request_id"], "mine");
}

#[test]
fn usage_record_has_client_size_and_time_of_sending() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let body = support::chat("chat-model");
    let request = Request::post("/v1/chat/completions", &body).bearer(gateway.key()).header("user-agent", "OpenAI/Python 2.1.0");
    let record = gateway.record_of(&gateway.send(&request));
    assert_eq!(record["client"], "OpenAI/Python 2.1.0");
    assert_eq!(record["request_bytes"], body.to_string().len());
    let attempt = &record["attempts"][0];
    let (sent, first_byte) = (attempt["sent_us"].as_u64().unwrap(), attempt["first_byte_us"].as_u64().unwrap());
    assert!(sent <= first_byte, "{attempt}");
}

#[test]
fn usage_record_holds_tokens_cost_and_attempt() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let answer = gateway.chat(&support::chat("chat-model"));
    let record = gateway.record_of(&answer);
    assert_eq!(record["outcome"], "completed");
    assert_eq!(record["status"], 200);
    assert_eq!(record["tokens"]["input"], 5);
    assert_eq!(record["tokens"]["output"], 7);
    assert_eq!(record["tokens"]["source"], "provider");
    // 5 tokens at 10 and 7 at 20 USD per million; cost at 1 and 2.
    assert_eq!(support::nano_usd(&record["sale"]), 5 * 10_000 + 7 * 20_000);
    assert_eq!(support::nano_usd(&record["cost"]), 5 * 1_000 + 7 * 2_000);
    assert_eq!(record["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(record["attempts"][0]["channel"], "chat");
    assert_eq!(record["attempts"][0]["upstream_model"], "upstream-model");
    assert_eq!(answer.header("x-tollgate-attempts"), Some("1"));
}

/// Two channels for one model, the first with the fault of the test.
fn two_channels(first: &Upstream, second: &Upstream, lines: &str) -> tollgate_testkit::TestGateway {
    let catalog = channel("first", "openai", &first.openai_url(), "chat-model", lines)
        + &channel("second", "openai", &second.openai_url(), "chat-model", "priority = 1")
        + &prices(&["chat-model"])
        + &group(&["first", "second"]);
    tollgate_testkit::TestGateway::builder(support::PROGRAM).catalog(&catalog).spawn()
}

#[test]
fn fails_over_to_the_next_account() {
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
        first.set_default(broken);
        let gateway = two_channels(&first, &second, "");
        let answer = gateway.chat(&support::chat("chat-model"));
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        assert_eq!(answer.header("x-tollgate-attempts"), Some("2"), "{name}");
        let record = gateway.record_of(&answer);
        assert_eq!(record["attempts"].as_array().unwrap().len(), 2, "{name}");
        assert_eq!(record["attempts"][0]["channel"], "first", "{name}");
        assert_eq!(record["attempts"][1]["result"], "answered", "{name}");
    }
}

#[test]
fn account_cools_down_for_retry_after_of_a_429() {
    let (first, second) = (Upstream::start(), Upstream::start());
    first.set_default(ScriptedResponse::error(429, &json!({"error": {"message": "slow down"}})).header("retry-after", "30"));
    let gateway = two_channels(&first, &second, "");
    for _ in 0..3 {
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    }
    assert_eq!(first.received().len(), 1, "it got one request");
    assert_eq!(second.received().len(), 3);
}

#[test]
fn invalid_request_error_is_returned_without_fail_over() {
    let (first, second) = (Upstream::start(), Upstream::start());
    first.set_default(ScriptedResponse::error(400, &json!({"error": {"message": "Unsupported parameter: 'x' is not supported.", "type": "invalid_request_error", "param": "x", "code": "unsupported_parameter"}})));
    let gateway = two_channels(&first, &second, "");
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"]["code"], "unsupported_parameter");
    assert_eq!(answer.json()["error"]["param"], "x");
    assert!(second.received().is_empty());
    let record = gateway.record_of(&answer);
    assert_eq!(record["reason"], "E52");
    assert_eq!(record["sale"], "0.00");
}

#[test]
fn refused_connection_fails_over() {
    let second = Upstream::start();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let catalog = channel("first", "openai", &format!("http://{closed}/v1"), "chat-model", "")
        + &channel("second", "openai", &second.openai_url(), "chat-model", "priority = 1")
        + &prices(&["chat-model"])
        + &group(&["first", "second"]);
    let gateway = tollgate_testkit::TestGateway::builder(support::PROGRAM).catalog(&catalog).spawn();
    for _ in 0..20 {
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    }
    assert_eq!(second.received().len(), 20);
}

#[test]
fn private_address_requires_private_network() {
    let upstream = Upstream::start();
    let catalog = support::catalog(&upstream, "cooling = false").replace("private_network = true", "private_network = false");
    let gateway = tollgate_testkit::TestGateway::builder(support::PROGRAM).catalog(&catalog).spawn();
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!((answer.status, answer.header("x-tollgate-cause")), (503, Some("none_configured")), "{}", answer.text());
    assert_eq!(gateway.record_of(&answer)["trace"][0]["code"], "private_network");
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn redirects_are_not_followed() {
    let (upstream, redirect_target) = (Upstream::start(), Upstream::start());
    upstream.set_default(
        ScriptedResponse::status(307).header("location", &format!("{}/chat/completions", redirect_target.openai_url())),
    );
    let gateway = support::gateway_for(&upstream);
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert!(redirect_target.received().is_empty());
}

#[test]
fn first_byte_timeout_ends_the_attempt() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("late").delay(Duration::from_secs(50)));
    let gateway = support::builder(&upstream, "cooling = false\nfirst_byte_timeout_ms = 200").spawn();
    let begin = Instant::now();
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 504, "{}", answer.text());
    assert_eq!(answer.json()["error"]["code"], "upstream_timeout");
    assert!(begin.elapsed() < Duration::from_secs(50), "the answer was waited for");
    upstream.wait_for("the gateway closing", |received| received.iter().all(|received| received.closed_at.is_some()));
}

#[test]
fn credential_in_an_upstream_error_is_masked() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::error(
        400,
        &json!({"error": {"message": format!("Incorrect key {UPSTREAM_CREDENTIAL} for host api.internal.example")}}),
    ));
    let gateway = support::gateway_for(&upstream);
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 400);
    assert!(!answer.text().contains(UPSTREAM_CREDENTIAL), "{}", answer.text());
}

/// One and several texts in a request, over both protocols of callers and upstreams. A Gemini upstream reports no tokens, so the gateway
/// counts them.
#[test]
fn embeddings_are_priced_by_their_tokens() {
    let upstream = Upstream::with_model();
    let channel = |name, protocol, url: &str, model| {
        channel(name, protocol, url, model, "")
            + &format!("[[model]]\nname = \"{model}\"\nembeddings = true\nprice = {{ input = \"10\" }}\n")
    };
    let catalog = channel("chat", "openai", &upstream.openai_url(), "chat-embeddings")
        + &channel("native", "gemini", &upstream.gemini_url(), "native-embeddings")
        + &support::group(&["chat", "native"]);
    let gateway = tollgate_testkit::TestGateway::builder(support::PROGRAM).catalog(&catalog).spawn();
    let content = |text: &str| json!({"parts": [{"text": text}]});
    let text = "a text of some words to embed";
    for model in ["chat-embeddings", "native-embeddings"] {
        let chat = |input: Value| {
            gateway.send(&Request::post("/v1/embeddings", &json!({"model": model, "input": input})).bearer(gateway.key()))
        };
        let batch: Vec<Value> = (0..3).map(|_| json!({"model": format!("models/{model}"), "content": content(text)})).collect();
        let answers = [
            chat(json!(text)),
            chat(json!([text])),
            gateway.native(model, "embedContent", &json!({"content": content(text)})),
            gateway.native(model, "batchEmbedContents", &json!({"requests": [batch[0]]})),
            gateway.native(model, "batchEmbedContents", &json!({"requests": batch})),
        ];
        let tokens = answers.map(|answer| {
            assert_eq!(answer.status, 200, "{model}: {}", answer.text());
            let record = gateway.record_of(&answer);
            let input = record["tokens"]["input"].as_i64().expect("tokens");
            assert_eq!(
                (support::nano_usd(&record["sale"]), &record["tokens"]["output"]),
                (input * 10_000, &json!(0)),
                "{model}: {record}"
            );
            let answer = answer.json();
            if answer["object"] == "list" {
                assert_eq!(answer["usage"], json!({"prompt_tokens": input, "total_tokens": input}), "{model}: {answer}");
            }
            input
        });
        let [one, .., many] = tokens;
        assert!(one > 0 && if model == "chat-embeddings" { many == 4 } else { many > 2 * one }, "{model}: {tokens:?}");
    }
}

#[test]
fn embeddings_and_token_counts_are_forwarded_on_their_protocol() {
    let upstream = Upstream::start();
    let lines = "";
    let catalog = support::catalog(&upstream, lines)
        + "[[model]]\nname = \"embed-model\"\nembeddings = true\nprice = { input = \"1\" }\n"
        + &channel("embed-chat", "openai", &upstream.openai_url(), "embed-model", "")
        + &channel("embed-native", "gemini", &upstream.gemini_url(), "embed-native-model", "")
        + "[[model]]\nname = \"embed-native-model\"\nembeddings = true\nprice = { input = \"1\" }\n";
    let catalog =
        catalog.replace("channels = [\"chat\", \"native\"]", "channels = [\"chat\", \"native\", \"embed-chat\", \"embed-native\"]");
    let gateway = tollgate_testkit::TestGateway::builder(support::PROGRAM).catalog(&catalog).spawn();
    let answer =
        gateway.send(&Request::post("/v1/embeddings", &json!({"model": "embed-model", "input": "hello"})).bearer(gateway.key()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["data"][0]["embedding"][0], 0.5);
    let answer = gateway.native(
        "embed-native-model",
        "batchEmbedContents",
        &json!({"requests": [{"model": "models/embed-native-model", "content": {"parts": [{"text": "a"}]}}]}),
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = gateway.native("native-model", "countTokens", &support::native());
    assert_eq!(answer.json()["totalTokens"], 5, "{}", answer.text());
    assert_eq!(gateway.record_of(&answer)["sale"], "0.00");
    let answer = gateway.chat(&support::chat("embed-model"));
    assert_eq!(answer.json()["error"]["code"], "model_not_supported_on_endpoint", "{}", answer.text());
}
