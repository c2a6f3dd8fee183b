//! Upstream errors whose status is misleading: an invalid key as 400, a daily quota as rate limit, an HTML page as error, a
//! truncated body with 200, a stream without its terminator. Another account serves, and the failure is classified by its
//! content.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_testkit::{ScriptedResponse, TestGateway, Upstream};

use crate::support::{self, PROGRAM, channel, group, prices};

/// Two channels of one account each, the second with lower priority, and their upstreams.
fn pair(lines: &str) -> (Upstream, Upstream, TestGateway) {
    let (first, second) = (Upstream::start(), Upstream::start());
    let catalog = channel("first", "openai", &first.openai_url(), "chat-model", lines)
        + &channel("second", "openai", &second.openai_url(), "chat-model", "priority = 1")
        + &prices(&["chat-model"])
        + &group(&["first", "second"]);
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    (first, second, gateway)
}

/// Sends requests until `explain` lists an excluded account; returns the detail. Repeats, because a cooldown may end before
/// `explain` runs; each further one is longer.
fn why_excluded(gateway: &TestGateway) -> String {
    let begin = Instant::now();
    loop {
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
        let output = gateway.run(&["explain", "--model", "chat-model", "--key", "caller", "--json"]);
        let explained: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if let Some(detail) = explained["excluded"][0]["detail"].as_str() {
            return detail.to_owned();
        }
        assert!(begin.elapsed() < Duration::from_mins(2), "no account is excluded: {explained}\n{}", gateway.log());
    }
}

fn google(status: u16, name: &str, message: &str, details: &Value) -> Value {
    json!({"error": {"code": status, "message": message, "status": name, "details": details}})
}

#[test]
fn google_invalid_key_error_on_a_chat_endpoint_counts_against_the_account() {
    let info =
        json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]);
    let object = google(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", &info);
    for body in [object.clone(), json!([object])] {
        let (first, second, gateway) = pair("");
        first.set_default(ScriptedResponse::error(400, &body));
        let answer = gateway.chat(&support::chat("chat-model"));
        assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("2")), "{}", answer.text());
        assert_eq!(gateway.record_of(&answer)["attempts"][0]["error"], "E53");
        let detail = why_excluded(&gateway);
        assert!(detail.contains("refused"), "{detail}");
        let chats = first.received().iter().filter(|received| received.line.starts_with("POST")).count();
        assert!(chats == 1 && second.received().len() > 1, "the account is excluded");
    }
}

#[test]
fn daily_quota_error_on_a_chat_endpoint_cools_until_the_day_ends() {
    let details = json!([
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "20s"},
    ]);
    let object = google(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan.", &details);
    for body in [object.clone(), json!([object])] {
        let (first, _second, gateway) = pair("");
        first.set_default(ScriptedResponse::error(429, &body));
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
        let detail = why_excluded(&gateway);
        assert!(detail.starts_with("quota_spent until "), "{detail}");
        let until: jiff::Timestamp = detail.rsplit(' ').next().unwrap().parse().unwrap();
        let there = until.in_tz("America/Los_Angeles").unwrap();
        assert_eq!((there.hour(), there.minute(), there.second()), (0, 0, 0), "{detail}");
    }
}

#[test]
fn truncated_200_response_fails_over() {
    let nothing_said = json!({"id": "x", "object": "chat.completion", "created": 1, "model": "upstream-model",
        "choices": [{"index": 0, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5, "completion_tokens": 0, "total_tokens": 5}});
    let answer = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": "first"}, "finish_reason": "stop"}]});
    for reply in
        [ScriptedResponse::json(&nothing_said), ScriptedResponse::status(200).body(answer.to_string(), "text/plain; charset=utf-8")]
    {
        let (first, second, gateway) = pair("");
        second.set_default(ScriptedResponse::chat("second"));
        first.set_default(reply);
        for _ in 0..3 {
            let answer = gateway.chat(&support::chat("chat-model"));
            assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("2")), "{}", answer.text());
            assert!(answer.text().contains("second"), "{}", answer.text());
            assert_eq!(gateway.record_of(&answer)["attempts"][0]["error"], "E58");
        }
        let detail = why_excluded(&gateway);
        assert!(detail.starts_with("bad_answer"), "{detail}");
    }
    // Without a conclusive content type the body decides.
    let (first, _second, gateway) = pair("");
    for kind in ["application/json; charset=utf-8", "application/vnd.api+json", "application/octet-stream"] {
        first.enqueue(ScriptedResponse::status(200).body(answer.to_string(), kind));
    }
    first.enqueue(ScriptedResponse::status(200).chunks([answer.to_string().into_bytes()]));
    for _ in 0..4 {
        let answer = gateway.chat(&support::chat("chat-model"));
        assert!(answer.status == 200 && answer.text().contains("first"), "{}", answer.text());
    }
}

#[test]
fn stream_that_stalls_after_its_finish_completes_without_cooldown() {
    let (first, _second, gateway) = pair("idle_timeout_ms = 4000");
    // Role, text, finish, usage, and no terminator. Then the same without usage.
    for events in [4, 3] {
        first.set_default(ScriptedResponse::chat_stream(&["hello"]).stall_after(events));
        let answer = gateway.chat(&support::chat_stream("chat-model"));
        assert_eq!((answer.status, answer.complete), (200, true), "{}", answer.text());
        assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
        assert!(answer.text().contains("hello") && !answer.text().contains("error"), "{}", answer.text());
        let record = gateway.record_of(&answer);
        assert_eq!((&record["outcome"], &record["attempts"][0]["channel"]), (&"completed".into(), &"first".into()), "{record}");
        assert_eq!(record["attempts"][0]["result"], "answered", "{record}");
    }
    // Without a finish the stream is broken.
    first.set_default(ScriptedResponse::chat_stream(&["hello"]).stall_after(2));
    let answer = gateway.chat(&support::chat_stream("chat-model"));
    assert!(!answer.complete && answer.text().contains("sent nothing for 4 s"), "{}", answer.text());
}

#[test]
fn html_error_page_is_blamed_on_the_address() {
    let pages = [
        ScriptedResponse::status(404).body("<html><h1>404 Not Found</h1></html>", "text/html"),
        ScriptedResponse::status(400).body("<html><h1>400 Bad Request</h1></html>", "text/html"),
        ScriptedResponse::status(405).body("Method Not Allowed", "text/plain"),
        ScriptedResponse::error(404, &json!({"message": "Not Found"})),
        ScriptedResponse::error(404, &json!({"detail": "Not Found"})),
        ScriptedResponse::status(403).body("<html><title>Attention Required!</title>You have been blocked</html>", "text/html"),
        ScriptedResponse::error(403, &json!({"title": "Error 1020: Access denied", "status": 403, "cloudflare_error": true})),
    ];
    for page in pages {
        let (first, _second, gateway) = pair("");
        first.set_default(page);
        for _ in 0..3 {
            let answer = gateway.chat(&support::chat("chat-model"));
            assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("2")), "{}", answer.text());
        }
        let detail = why_excluded(&gateway);
        assert!(detail.starts_with("bad_answer"), "{detail}");
    }
    // Without another account the error blames the upstream, not the request.
    let upstream = Upstream::start();
    for status in [404, 403] {
        upstream.set_default(ScriptedResponse::status(status).body("<html>", "text/html"));
        let answer = support::gateway_for(&upstream).chat(&support::chat("chat-model"));
        assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (502, Some("upstream_error")), "{}", answer.text());
    }
}

#[test]
fn account_blocked_by_a_firewall_recovers_without_a_test() {
    let upstream = Upstream::start();
    let gateway = support::builder(&upstream, "").spawn();
    for _ in 0..3 {
        upstream.enqueue(ScriptedResponse::status(403).body("<html>blocked</html>", "text/html"));
    }
    for _ in 0..3 {
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 502);
    }
    // Three consecutive failures cool the account down for ten seconds; the next request is the probe.
    tollgate_testkit::wait_for("the account serves again", Duration::from_secs(30), || {
        gateway.chat(&support::chat("chat-model")).status == 200
    });
    // A 403 in the provider's own error format excludes the account if the probe gets it too.
    upstream.set_default(ScriptedResponse::error(403, &json!({"error": {"message": "no", "type": "permission_error"}})));
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!(answer.json()["error"]["code"], "upstream_account_error", "{}", answer.text());
    tollgate_testkit::wait_for("the account is excluded", Duration::from_secs(3), || {
        gateway.chat(&support::chat("chat-model")).header("x-tollgate-cause") == Some("credential")
    });
    assert_eq!(upstream.received().iter().filter(|received| received.line == "GET /v1/models").count(), 1);
}

#[test]
fn upstream_error_about_the_request_is_returned_to_the_caller() {
    let (first, second, gateway) = pair("");
    for (status, body) in [
        (
            404,
            json!({"error": {"message": "The model 'm' does not exist", "type": "invalid_request_error", "code": "model_not_found"}}),
        ),
        (400, json!({"error": {"message": "Invalid value for 'temperature'", "type": "invalid_request_error"}})),
        (400, json!({"error": {"message": "Unknown parameter: 'api key not valid'.", "type": "invalid_request_error"}})),
        (422, json!({"detail": [{"loc": ["body", "messages"], "msg": "Field required"}]})),
    ] {
        first.enqueue(ScriptedResponse::error(status, &body));
        let answer = gateway.chat(&support::chat("chat-model"));
        assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (status, Some("1")), "{}", answer.text());
        assert_eq!(gateway.record_of(&answer)["reason"], "E52");
    }
    assert_eq!((gateway.chat(&support::chat("chat-model")).status, first.received().len(), second.received().len()), (200, 5, 0));
}
