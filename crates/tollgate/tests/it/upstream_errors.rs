//! Answers that are an upstream's or our account's fault and look like something else: a dead key behind a 400, a spent day
//! behind a rate limit, a page where an error should be, half an answer with a 200, an end without its terminator. Another
//! account serves, and the one that failed is treated as what it is.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_testkit::{ScriptedResponse, TestGateway, Upstream};

use crate::support::{self, PROGRAM, channel, group, prices};

/// Two channels of one account each, the second behind the first, and where each of them leads.
fn pair(lines: &str) -> (Upstream, Upstream, TestGateway) {
    let (first, second) = (Upstream::start(), Upstream::start());
    let catalog = channel("first", "openai", &first.openai(), "chat-model", lines)
        + &channel("second", "openai", &second.openai(), "chat-model", "priority = 1")
        + &prices(&["chat-model"])
        + &group(&["first", "second"]);
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    (first, second, gate)
}

/// Sends requests until `explain` says why the first channel's account is passed over; the detail of it. What cooled
/// already and is over by then cools for longer each time.
fn why_excluded(gate: &TestGateway) -> String {
    let begin = Instant::now();
    loop {
        assert_eq!(gate.chat(&support::chat("chat-model")).status, 200);
        let output = gate.run(&["explain", "--model", "chat-model", "--key", "caller", "--json"]);
        let explained: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if let Some(detail) = explained["excluded"][0]["detail"].as_str() {
            return detail.to_owned();
        }
        assert!(begin.elapsed() < Duration::from_mins(2), "nobody is excluded: {explained}\n{}", gate.log());
    }
}

fn google(status: u16, name: &str, message: &str, details: &Value) -> Value {
    json!({"error": {"code": status, "message": message, "status": name, "details": details}})
}

#[test]
fn a_key_that_google_calls_invalid_behind_a_chat_endpoint_is_our_accounts_fault() {
    let info =
        json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]);
    let object = google(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", &info);
    for body in [object.clone(), json!([object])] {
        let (first, second, gate) = pair("");
        first.otherwise(ScriptedResponse::error(400, &body));
        let answer = gate.chat(&support::chat("chat-model"));
        assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("2")), "{}", answer.text());
        assert_eq!(gate.record_of(&answer)["attempts"][0]["error"], "E53");
        let detail = why_excluded(&gate);
        assert!(detail.contains("refused"), "{detail}");
        assert!(first.seen().len() == 1 && second.seen().len() > 1, "it rests");
    }
}

#[test]
fn a_quota_by_the_day_behind_a_chat_endpoint_rests_until_the_day_ends() {
    let details = json!([
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "20s"},
    ]);
    let object = google(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan.", &details);
    for body in [object.clone(), json!([object])] {
        let (first, _second, gate) = pair("");
        first.otherwise(ScriptedResponse::error(429, &body));
        assert_eq!(gate.chat(&support::chat("chat-model")).status, 200);
        let detail = why_excluded(&gate);
        assert!(detail.starts_with("quota_spent until "), "{detail}");
        let until: jiff::Timestamp = detail.rsplit(' ').next().unwrap().parse().unwrap();
        let there = until.in_tz("America/Los_Angeles").unwrap();
        assert_eq!((there.hour(), there.minute(), there.second()), (0, 0, 0), "{detail}");
    }
}

#[test]
fn half_an_answer_with_a_200_is_none_and_another_account_serves() {
    let nothing_said = json!({"id": "x", "object": "chat.completion", "created": 1, "model": "upstream-model",
        "choices": [{"index": 0, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5, "completion_tokens": 0, "total_tokens": 5}});
    let answer = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": "first"}, "finish_reason": "stop"}]});
    for reply in
        [ScriptedResponse::json(&nothing_said), ScriptedResponse::status(200).body(answer.to_string(), "text/plain; charset=utf-8")]
    {
        let (first, second, gate) = pair("");
        second.otherwise(ScriptedResponse::chat("second"));
        first.otherwise(reply);
        for _ in 0..3 {
            let answer = gate.chat(&support::chat("chat-model"));
            assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("2")), "{}", answer.text());
            assert!(answer.text().contains("second"), "{}", answer.text());
            assert_eq!(gate.record_of(&answer)["attempts"][0]["error"], "E58");
        }
        let detail = why_excluded(&gate);
        assert!(detail.starts_with("bad_answer"), "{detail}");
    }
    // What a type leaves open is believed by its bytes.
    let (first, _second, gate) = pair("");
    for kind in ["application/json; charset=utf-8", "application/vnd.api+json", "application/octet-stream"] {
        first.next(ScriptedResponse::status(200).body(answer.to_string(), kind));
    }
    first.next(ScriptedResponse::status(200).pieces([answer.to_string().into_bytes()]));
    for _ in 0..4 {
        let answer = gate.chat(&support::chat("chat-model"));
        assert!(answer.status == 200 && answer.text().contains("first"), "{}", answer.text());
    }
}

#[test]
fn a_stream_that_stalls_behind_its_finish_ends_well_and_cools_nobody() {
    let (first, _second, gate) = pair("idle_timeout_ms = 4000");
    // Role, text, finish, usage; the terminator never comes. Then without usage.
    for events in [4, 3] {
        first.otherwise(ScriptedResponse::chat_stream(&["hello"]).stall_after(events));
        let answer = gate.chat(&support::chat_stream("chat-model"));
        assert_eq!((answer.status, answer.whole), (200, true), "{}", answer.text());
        assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
        assert!(answer.text().contains("hello") && !answer.text().contains("error"), "{}", answer.text());
        let record = gate.record_of(&answer);
        assert_eq!((&record["outcome"], &record["attempts"][0]["channel"]), (&"completed".into(), &"first".into()), "{record}");
        assert_eq!(record["attempts"][0]["result"], "answered", "{record}");
    }
    // Without a finish it is what it was: broken.
    first.otherwise(ScriptedResponse::chat_stream(&["hello"]).stall_after(2));
    let answer = gate.chat(&support::chat_stream("chat-model"));
    assert!(!answer.whole && answer.text().contains("sent nothing for 4 s"), "{}", answer.text());
}

#[test]
fn a_page_where_an_error_should_be_is_the_addresss_fault() {
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
        let (first, _second, gate) = pair("");
        first.otherwise(page);
        for _ in 0..3 {
            let answer = gate.chat(&support::chat("chat-model"));
            assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("2")), "{}", answer.text());
        }
        let detail = why_excluded(&gate);
        assert!(detail.starts_with("bad_answer"), "{detail}");
    }
    // Where nobody else is left, the caller is told that the upstream failed, and not that the request is wrong.
    let upstream = Upstream::start();
    for status in [404, 403] {
        upstream.otherwise(ScriptedResponse::status(status).body("<html>", "text/html"));
        let answer = support::before(&upstream).chat(&support::chat("chat-model"));
        assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (502, Some("upstream_error")), "{}", answer.text());
    }
}

#[test]
fn an_account_that_met_a_firewall_serves_again_without_a_test() {
    let upstream = Upstream::start();
    let gate = support::builder(&upstream, "").spawn();
    for _ in 0..3 {
        upstream.next(ScriptedResponse::status(403).body("<html>blocked</html>", "text/html"));
    }
    for _ in 0..3 {
        assert_eq!(gate.chat(&support::chat("chat-model")).status, 502);
    }
    // Three in a row cool it for ten seconds; the next request after that is the probe.
    tollgate_testkit::wait_for("the account serves again", Duration::from_secs(30), || {
        gate.chat(&support::chat("chat-model")).status == 200
    });
    // What the provider itself says with a 403 rests it, as ever.
    upstream.next(ScriptedResponse::error(403, &json!({"error": {"message": "no", "type": "permission_error"}})));
    let answer = gate.chat(&support::chat("chat-model"));
    assert_eq!(answer.json()["error"]["code"], "upstream_account_error", "{}", answer.text());
    let answer = gate.chat(&support::chat("chat-model"));
    assert_eq!((answer.status, answer.header("x-tollgate-cause")), (503, Some("disabled")), "{}", answer.text());
}

#[test]
fn what_an_upstream_says_of_the_request_is_still_the_requests_fault() {
    let (first, second, gate) = pair("");
    for (status, body) in [
        (
            404,
            json!({"error": {"message": "The model 'm' does not exist", "type": "invalid_request_error", "code": "model_not_found"}}),
        ),
        (400, json!({"error": {"message": "Invalid value for 'temperature'", "type": "invalid_request_error"}})),
        (400, json!({"error": {"message": "Unknown parameter: 'api key not valid'.", "type": "invalid_request_error"}})),
        (422, json!({"detail": [{"loc": ["body", "messages"], "msg": "Field required"}]})),
    ] {
        first.next(ScriptedResponse::error(status, &body));
        let answer = gate.chat(&support::chat("chat-model"));
        assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (status, Some("1")), "{}", answer.text());
        assert_eq!(gate.record_of(&answer)["reason"], "E52");
    }
    assert_eq!((gate.chat(&support::chat("chat-model")).status, first.seen().len(), second.seen().len()), (200, 5, 0));
}
