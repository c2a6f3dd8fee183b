//! The Messages API for callers: keys, headers, answers and errors in its form, over each kind of upstream.

use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, Request, ScriptedResponse, TestGateway, UPSTREAM_CREDENTIAL, Upstream};

use crate::support::{self, channel, group, prices};

/// Models by the protocol of their upstream.
const MODELS: [&str; 3] = ["chat-model", "native-model", "messages-model"];

fn gateway_for(upstream: &Upstream) -> TestGateway {
    let url = upstream.openai_url();
    let catalog = channel("chat", "openai", &url, MODELS[0], "cooling = false")
        + &channel("native", "gemini", &upstream.gemini_url(), MODELS[1], "cooling = false")
        + &channel("messages", "anthropic", &url, MODELS[2], "cooling = false")
        + &prices(&MODELS)
        + &group(&["chat", "native", "messages"]);
    TestGateway::builder(support::PROGRAM).catalog(&catalog).spawn()
}

fn body(model: &str) -> Value {
    json!({"model": model, "max_tokens": 50, "messages": [{"role": "user", "content": "prompt-canary hello"}]})
}

fn streamed(model: &str) -> Value {
    let mut body = body(model);
    body["stream"] = true.into();
    body
}

fn ask(gateway: &TestGateway, path: &str, body: &Value) -> ClientResponse {
    gateway.send(&Request::post(path, body).header("x-api-key", gateway.key()).header("anthropic-version", "2023-06-01"))
}

/// Names of the events of a stream, and their data.
fn events(answer: &ClientResponse) -> Vec<(String, Value)> {
    let text = answer.text();
    let event = |event: &str| {
        let (name, data) = event.split_once('\n')?;
        let data = serde_json::from_str(data.strip_prefix("data: ")?).ok()?;
        Some((name.strip_prefix("event: ")?.to_owned(), data))
    };
    text.split_terminator("\n\n").map(|part| event(part).unwrap_or_else(|| panic!("{part}"))).collect()
}

#[test]
fn every_upstream_answers_a_message() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    for model in MODELS {
        let answer = ask(&gateway, "/v1/messages?beta=true", &body(model));
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        let message = answer.json();
        assert_eq!(
            (&message["type"], &message["model"], &message["stop_reason"]),
            (&json!("message"), &json!(model), &json!("end_turn"))
        );
        assert_eq!(message["content"], json!([{"type": "text", "text": "hello"}]), "{model}");
        assert_eq!((&message["usage"]["input_tokens"], &message["usage"]["output_tokens"]), (&json!(5), &json!(7)), "{model}");
        assert_eq!(answer.header("request-id"), answer.header("x-request-id"));
        let record = gateway.record_of(&answer);
        assert_eq!(
            (&record["protocol_in"], &record["tokens"]["input"], &record["tokens"]["output"]),
            (&json!("anthropic"), &json!(5), &json!(7))
        );
        assert_eq!(support::nano_usd(&record["sale"]), 5 * 10_000 + 7 * 20_000, "{model}");
    }
}

#[test]
fn every_upstream_streams_a_message() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    for model in MODELS {
        let answer = ask(&gateway, "/v1/messages", &streamed(model));
        assert_eq!((answer.status, answer.complete), (200, true), "{model}: {}", answer.text());
        let events = events(&answer);
        let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
        let (start, delta) = (["message_start", "content_block_start"], ["content_block_delta", "content_block_delta"]);
        let end = ["content_block_stop", "message_delta", "message_stop"];
        assert_eq!(names, [&start[..], &delta, &end].concat(), "{model}");
        assert!(events.iter().all(|(name, data)| data["type"] == name.as_str()));
        let text: String = events.iter().filter_map(|(_, data)| data["delta"]["text"].as_str()).collect();
        assert_eq!(text, "hello", "{model}");
        assert_eq!(events[5].1["usage"]["output_tokens"], 7, "{model}");
        assert_eq!(gateway.record_of(&answer)["tokens"]["output"], 7, "{model}");
    }
}

#[test]
fn body_and_feature_headers_are_forwarded_unchanged_in_the_same_protocol() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    let body = br#"{ "model":"messages-model","max_tokens":50, "messages":[{"role":"user","content":[{"type":"text","text":"caf\u00e9","cache_control":{"type":"ephemeral"}}]}],"context_management":{"edits":[]},"member_of_tomorrow":{"n":1.0} }"#;
    let request = Request::post_bytes("/v1/messages?beta=true", body.to_vec())
        .bearer(gateway.key())
        .header("anthropic-version", "2026-10-21")
        .header("anthropic-beta", "claude-code-20250219,beta-of-tomorrow-2030-01-01")
        .header("anthropic-workspace-id", "w")
        .header("x-claude-code-session-id", "s")
        .header("user-agent", "claude-cli/2.1.330 (external, sdk-cli)");
    let answer = gateway.send(&request);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["model"], "messages-model", "the caller's name is put back");
    let received = &upstream.received()[0];
    let expected = String::from_utf8_lossy(body).replace("\"messages-model\"", "\"upstream-model\"");
    assert_eq!(String::from_utf8_lossy(&received.body), expected);
    assert_eq!(received.line, "POST /v1/messages");
    assert_eq!(received.header("x-api-key"), Some(UPSTREAM_CREDENTIAL));
    assert_eq!(received.header("anthropic-version"), Some("2026-10-21"));
    assert_eq!(received.header("anthropic-beta"), Some("claude-code-20250219,beta-of-tomorrow-2030-01-01"));
    for name in ["authorization", "anthropic-workspace-id", "x-claude-code-session-id"] {
        assert_eq!(received.header(name), None, "{name}");
    }
    assert_eq!(ask(&gateway, "/v1/messages", &self::body("chat-model")).status, 200);
    assert_eq!(upstream.received()[1].header("anthropic-version"), None, "other upstreams get none of them");
}

#[test]
fn claude_code_sessions_and_agents_are_recorded_as_tags() {
    let gateway = support::echo();
    let request = || {
        Request::post("/v1/messages", &body("echo"))
            .bearer(gateway.key())
            .header("x-claude-code-session-id", "0b4f9e52-session")
            .header("x-claude-code-agent-id", "a7c1")
    };
    let tags = |request: &Request| gateway.record_of(&gateway.send(request))["tags"].clone();
    assert_eq!(tags(&request()), json!({"session": "0b4f9e52-session", "agent": "a7c1"}));
    let chosen = request().header("x-tollgate-tags", "session=mine,project=web");
    assert_eq!(tags(&chosen), json!({"session": "mine", "agent": "a7c1", "project": "web"}), "the caller's own tags count");
    let unusable = request().replace_header("x-claude-code-session-id", &"s".repeat(101));
    assert_eq!(tags(&unusable), json!({"agent": "a7c1"}));
    let refused = Request::post("/v1/messages", &body("unknown-model")).bearer(gateway.key());
    assert_eq!(tags(&refused.header("x-claude-code-session-id", "s")), json!({"session": "s"}));
    let chat = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(gateway.key());
    assert_eq!(tags(&chat.header("x-claude-code-session-id", "s")), json!({}), "a header of Messages callers");
}

#[test]
fn first_valid_key_of_two_counts() {
    let gateway = support::echo();
    let request = || Request::post("/v1/messages", &body("echo"));
    let (key, wrong) = (gateway.key(), "sk-ant-left-over-0123456789");
    for (request, status) in [
        (request().header("x-api-key", key), 200),
        (request().bearer(key), 200),
        (request().header("x-api-key", key).bearer(wrong), 200),
        (request().header("x-api-key", wrong).bearer(key), 200),
        (request().header("x-api-key", wrong).bearer(wrong), 401),
        (request().header("x-goog-api-key", key), 401),
        (request(), 401),
    ] {
        let answer = gateway.send(&request);
        assert_eq!(answer.status, status, "{request:?}: {}", answer.text());
        if status == 401 {
            assert_eq!(answer.json()["error"]["type"], "authentication_error");
            assert_eq!(answer.header("x-should-retry"), Some("false"), "Claude Code repeats a 401 for minutes otherwise");
        }
    }
    let answer = gateway.send(&request().bearer(key));
    assert_eq!(answer.json()["content"][0]["text"], "prompt-canary hello");
}

#[test]
fn tokens_are_counted_by_the_upstream_or_estimated() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    let counted = |model: &str| {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "prompt-canary hello"}], "tools": []});
        let answer = ask(&gateway, "/v1/messages/count_tokens?beta=true", &body);
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        answer.json()["input_tokens"].as_u64().unwrap_or_else(|| panic!("{}", answer.text()))
    };
    assert_eq!((counted("native-model"), counted("messages-model")), (5, 5));
    let sent = upstream.received().len();
    assert!(counted("chat-model") > 0);
    assert_eq!(upstream.received().len(), sent, "chat completions have no counter");
    upstream.set_default(ScriptedResponse::error(404, &json!({"error": {"message": "not found"}})));
    assert!(counted("messages-model") > 0, "an upstream without a counter");
}

#[test]
fn models_are_listed_in_anthropics_format() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    let list = |path: &str| {
        gateway.send(&Request::get(path).header("x-api-key", gateway.key()).header("anthropic-version", "2023-06-01")).json()
    };
    let first = list("/v1/models?limit=2");
    assert_eq!(first["data"][0]["type"], "model");
    assert_eq!(
        (&first["has_more"], &first["first_id"], &first["last_id"]),
        (&json!(true), &json!("chat-model"), &json!("messages-model"))
    );
    let rest = list("/v1/models?limit=2&after_id=messages-model");
    assert_eq!((&rest["data"][0]["id"], &rest["has_more"]), (&json!("native-model"), &json!(false)));
    assert_eq!(list("/v1/models/chat-model")["display_name"], "chat-model");
    assert_eq!(list("/v1/models/other")["error"]["type"], "not_found_error");
    assert_eq!(list("/v1/models?limit=0")["error"]["type"], "invalid_request_error");
}

#[test]
fn errors_have_anthropics_format() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    let refused = |path: &str, body: &Value| {
        let answer = ask(&gateway, path, body);
        let problem = answer.json();
        assert_eq!(problem["type"], "error", "{}", answer.text());
        assert_eq!(problem["request_id"].as_str(), answer.header("request-id"));
        (answer.status, problem["error"]["type"].as_str().unwrap_or_default().to_owned(), problem["error"].clone())
    };
    let with = |name: &str, value: Value| {
        let mut body = body("chat-model");
        body[name] = value;
        body
    };
    for (path, body, status, kind, word) in [
        ("/v1/messages", body("none"), 404, "not_found_error", "'none'"),
        ("/v1/messages", json!({"model": "chat-model", "messages": []}), 400, "invalid_request_error", "'messages'"),
        (
            "/v1/messages",
            with("mcp_servers", json!([{"type": "url", "url": "https://example.com", "name": "s"}])),
            400,
            "invalid_request_error",
            "'mcp_servers'",
        ),
        ("/v1/messages", with("max_tokens", json!("9")), 400, "invalid_request_error", "'max_tokens'"),
        (
            "/v1/messages",
            with("tool_choice", json!({"type": "any"})),
            400,
            "invalid_request_error",
            "only allowed when tools are given",
        ),
        ("/v1/messages/batches", body("chat-model"), 404, "not_found_error", "batch processing"),
        ("/v1/v1/messages", body("chat-model"), 404, "not_found_error", "/v1/messages?"),
        ("/v1/files", body("chat-model"), 404, "not_found_error", "Files API"),
    ] {
        let (found, found_kind, error) = refused(path, &body);
        assert_eq!((found, found_kind.as_str()), (status, kind), "{path}: {error}");
        assert!(error["message"].as_str().unwrap().contains(word), "{error}");
    }
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let (_, _, error) = refused(path, &with("thread", json!({"type": "create"})));
        assert_eq!(error["details"]["error_code"], "thread_unsupported_request", "{path}");
    }
    let thread =
        json!({"model": "messages-model", "max_tokens": 9, "messages": body("m")["messages"], "thread": {"type": "create"}});
    assert_eq!(ask(&gateway, "/v1/messages", &thread).status, 200, "an upstream of the protocol judges");
}

#[test]
fn upstream_error_messages_are_forwarded_unchanged_and_not_learned() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    let error = json!({"type": "invalid_request_error", "message": "context_management: Extra inputs are not permitted"});
    upstream.set_default(ScriptedResponse::error(400, &json!({"type": "error", "error": error, "request_id": "req_upstream"})));
    let mut body = body("messages-model");
    body["context_management"] = json!({"edits": []});
    for _ in 0..8 {
        let answer = ask(&gateway, "/v1/messages", &body);
        assert_eq!((answer.status, &answer.json()["error"]), (400, &error));
        assert_ne!(answer.json()["request_id"], "req_upstream");
    }
    assert_eq!(upstream.received().len(), 8);
}

#[test]
fn upstream_failures_have_anthropics_format() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    for model in MODELS {
        for (status, answered, kind) in [
            (401, 502, "api_error"),
            (403, 502, "api_error"),
            (429, 429, "rate_limit_error"),
            (500, 502, "api_error"),
            (503, 503, "overloaded_error"),
            (504, 504, "timeout_error"),
            (529, 503, "overloaded_error"),
        ] {
            let said = json!({"type": "error", "error": {"type": "x", "message": "the provider's own words", "code": status}});
            upstream.set_default(ScriptedResponse::error(status, &said));
            let answer = ask(&gateway, "/v1/messages", &body(model));
            assert_eq!(
                (answer.status, &answer.json()["error"]["type"]),
                (answered, &json!(kind)),
                "{model} {status}: {}",
                answer.text()
            );
            assert!(!answer.text().contains("own words"), "{model} {status}");
        }
    }
}

#[test]
fn broken_stream_ends_with_an_error_event() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    for (model, stream) in MODELS.into_iter().zip([
        ScriptedResponse::chat_stream(&["hel", "lo"]),
        ScriptedResponse::native_stream(&["hel", "lo"]),
        ScriptedResponse::message_stream(&["hel", "lo"]),
    ]) {
        let after = if model == "native-model" { 1 } else { 3 };
        upstream.enqueue(stream.cut_after(after));
        let answer = ask(&gateway, "/v1/messages", &streamed(model));
        assert_eq!((answer.status, answer.complete), (200, false), "{model}: {}", answer.text());
        let events = events(&answer);
        let (last, data) = events.last().expect("events");
        assert_eq!((last.as_str(), &data["error"]["type"]), ("error", &json!("api_error")), "{model}");
        assert!(data["request_id"].as_str().is_some_and(|id| Some(id) == answer.header("request-id")), "{model}");
        assert!(events.iter().all(|(name, _)| name != "message_stop" && name != "message_delta"), "{model}");
        assert_eq!(gateway.record_of(&answer)["outcome"], "upstream_broke", "{model}");
    }
}

#[test]
fn tool_calls_and_signatures_are_sent_back_to_their_upstream() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    upstream.enqueue(ScriptedResponse::json(
        &json!({"candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [
        {"text": "hm", "thought": true}, {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "QUJD"}]}}],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12}}),
    ));
    let tools = json!([{"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}]);
    let mut first = body("native-model");
    (first["tools"], first["thinking"]) = (tools.clone(), json!({"type": "adaptive"}));
    let message = ask(&gateway, "/v1/messages", &first).json();
    assert_eq!((&message["content"][0]["type"], &message["stop_reason"]), (&json!("thinking"), &json!("tool_use")), "{message}");
    let call = &message["content"][1];
    assert_eq!(call["input"], json!({"a": 1}));

    for model in ["native-model", "messages-model", "chat-model"] {
        let mut second = body(model);
        second["tools"] = tools.clone();
        let history = second["messages"].as_array_mut().expect("messages");
        history.push(json!({"role": "assistant", "content": message["content"]}));
        history.push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "two"}]}));
        let answer = ask(&gateway, "/v1/messages", &second);
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        let sent = String::from_utf8(upstream.received().last().expect("a request").body.clone()).expect("text");
        assert_eq!(sent.contains("QUJD"), model == "native-model", "{model}: {sent}");
        assert!(!sent.contains("tg1.") && !sent.contains("__sig1_"), "{model}: {sent}");
    }
}
