//! One key beside another: a key's excess requests must not affect other keys, and are refused before their bodies are read.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};
use tollgate_testkit::{Request, SERVICE_KEY, ScriptedResponse, TestGateway, TestGatewayBuilder, Upstream, wait_for};

use crate::support::{self, PROGRAM};

const HOSTILE_KEY: &str = "tg-hostile-key-0123456789abcdefghij";

/// A gateway with the key `caller`, and the key [`HOSTILE_KEY`] with these lines.
fn builder(upstream: &Upstream, channel: &str, hostile: &str) -> TestGatewayBuilder {
    let key = format!("[[key]]\nname = \"hostile\"\ngroups = [\"default\"]\nsecret = \"{HOSTILE_KEY}\"\n{hostile}\n");
    TestGateway::builder(PROGRAM).catalog(&(support::catalog(upstream, channel) + &key))
}

/// A request of a key whose body of 100 bytes is not sent, or one byte of it.
fn begun(gateway: &TestGateway, key: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// The beginning of the answer, while the body is still awaited.
fn answer(stream: &mut TcpStream) -> String {
    let mut bytes = vec![0; 4_096];
    let read = stream.read(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

fn ask(gateway: &TestGateway, key: &str, body: &Value) -> u16 {
    gateway.send(&Request::post("/v1/chat/completions", body).bearer(key)).status
}

#[test]
fn requests_still_sending_their_body_count_against_the_key_limits() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hi"));
    for limit in ["concurrency = 1", "rpm = 1"] {
        let gateway = builder(&upstream, "cooling = false", limit).without_record_check().spawn();
        // The gateway has cached the key afterwards, so that a request in progress is counted.
        assert_eq!(gateway.send(&Request::get("/v1/models").bearer(HOSTILE_KEY)).status, 200);
        let first = begun(&gateway, HOSTILE_KEY, "{");
        wait_for("the first request to be received", Duration::from_secs(1), || {
            let metrics = gateway.send(&Request::get("/metrics")).text();
            metrics.lines().any(|line| line == "tollgate_in_flight 1")
        });
        for _ in 0..3 {
            let refused = answer(&mut begun(&gateway, HOSTILE_KEY, ""));
            assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("rate_limit_exceeded"), "{limit}: {refused}");
        }
        assert_eq!(ask(&gateway, SERVICE_KEY, &support::chat("chat-model")), 200);
        drop(first);
    }
}

#[test]
fn request_of_a_key_without_money_is_refused_before_its_body() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::json(&json!({
        "id": "x", "object": "chat.completion", "created": 1, "model": "upstream-model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150},
    })));
    let budget = "budget = { amount = \"0.002\", window = \"day\" }";
    let gateway = builder(&upstream, "cooling = false", budget).without_record_check().spawn();
    let mut body = support::chat("chat-model");
    body["max_tokens"] = 50.into();
    assert_eq!(ask(&gateway, HOSTILE_KEY, &body), 200);
    let refused = answer(&mut begun(&gateway, HOSTILE_KEY, ""));
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("insufficient_quota"), "{refused}");
    assert_eq!(ask(&gateway, SERVICE_KEY, &body), 200);
}

#[test]
fn timeouts_of_one_key_cool_the_account_only_for_that_key() {
    let upstream = Upstream::start();
    let two = "first_byte_timeout_ms = 200\n[[channel.account]]\nname = \"second\"\ncredential = \"{credential}\"";
    let gateway = builder(&upstream, two, "").spawn();
    upstream.set_default(ScriptedResponse::chat("late").delay(Duration::from_secs(2)));
    for _ in 0..4 {
        assert_eq!(ask(&gateway, HOSTILE_KEY, &support::chat("chat-model")), 504);
    }
    upstream.set_default(ScriptedResponse::chat("hi"));
    let of_hostile = gateway.send(&Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(HOSTILE_KEY));
    let record = gateway.record_of(&of_hostile);
    assert!(record["trace"].as_array().unwrap().iter().any(|entry| entry["code"] == "cooling"), "the accounts cool: {record}");
    // The answer has shown that one of the accounts works.
    upstream.set_default(ScriptedResponse::chat("late").delay(Duration::from_secs(2)));
    for _ in 0..4 {
        ask(&gateway, HOSTILE_KEY, &support::chat("chat-model"));
    }
    upstream.set_default(ScriptedResponse::chat("hi"));
    for _ in 0..5 {
        let response = gateway.chat(&support::chat("chat-model"));
        assert_eq!(response.status, 200);
        let record = gateway.record_of(&response);
        assert!(record["trace"].as_array().unwrap().iter().all(|entry| entry["code"] == "planned"), "{record}");
    }
}

#[test]
fn refusals_of_one_key_are_recorded_in_bounded_number() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hi"));
    let mut gateway = builder(&upstream, "cooling = false", "rpm = 1").spawn();
    assert_eq!(ask(&gateway, HOSTILE_KEY, &support::chat("chat-model")), 200);
    for _ in 0..50 {
        assert_eq!(ask(&gateway, HOSTILE_KEY, &support::chat("chat-model")), 429);
    }
    // The record of the counted refusals is written when the gateway stops.
    assert_eq!(gateway.stop(), Some(0));
    let refused: Vec<Value> = gateway.records().into_iter().filter(|record| record["reason"] == "E31").collect();
    assert_eq!(refused.len(), 11);
    let counted = |record: &&Value| record["detail"].as_str().is_some_and(|detail| detail.contains("(40 requests"));
    assert_eq!(refused.iter().filter(counted).count(), 1, "{refused:?}");
}

#[test]
fn requests_with_a_disabled_key_are_limited_and_recorded_in_bounded_number() {
    let upstream = Upstream::start();
    let gateway = builder(&upstream, "cooling = false", "status = \"disabled\"")
        .env("TOLLGATE_LIMITS__WRONG_KEYS_PER_MINUTE", "3")
        .without_record_check()
        .spawn();
    let statuses: Vec<u16> = (0..6).map(|_| ask(&gateway, HOSTILE_KEY, &support::chat("chat-model"))).collect();
    assert_eq!(statuses[3..], [429; 3], "{statuses:?}");
    assert!(statuses[..3].iter().all(|status| matches!(status, 401 | 403)), "{statuses:?}");
    assert_eq!(ask(&gateway, SERVICE_KEY, &support::chat("other-model")), 404, "valid keys are served from the address");
    assert_eq!(gateway.records().iter().filter(|record| record["key_name"] == "hostile").count(), 3);
}
