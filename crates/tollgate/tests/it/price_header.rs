//! `x-tollgate-max-price`: the largest price of one request, on both protocols.

use tollgate_testkit::{ClientResponse, Request, ScriptedResponse, TestGateway, Upstream};

use crate::support;

const HEADER: &str = "x-tollgate-max-price";

/// A chat request with these lines of the header. `chat-model` is sold at 10 and 20 USD per million tokens.
fn chat(gateway: &TestGateway, lines: &[&str]) -> ClientResponse {
    let request = Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(gateway.key());
    gateway.send(&lines.iter().fold(request, |request, line| request.header(HEADER, line)))
}

fn native(gateway: &TestGateway, lines: &[&str]) -> ClientResponse {
    let request = Request::post("/v1beta/models/native-model:generateContent", &support::native()).native_key(gateway.key());
    gateway.send(&lines.iter().fold(request, |request, line| request.header(HEADER, line)))
}

/// Asserts E41 in the form of its protocol; returns the message.
fn too_dear(gateway: &TestGateway, answer: &ClientResponse) -> String {
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(answer.header("x-tollgate-cause"), Some("price_limit"));
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    assert_eq!(answer.header("retry-after"), None, "no waiting helps");
    assert_eq!(answer.header("x-tollgate-attempts"), None);
    let record = gateway.record_of(answer);
    assert_eq!((record["reason"].as_str(), record["trace"][0]["code"].as_str()), (Some("E41"), Some("price_above_limit")));
    assert_eq!(record["sale"], "0.00");
    answer.json()["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn chat_request_above_its_max_price_is_refused() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let message = too_dear(&gateway, &chat(&gateway, &["input=9.99"]));
    assert!(message.starts_with("No available accounts exist for the openai protocol family: "), "{message}");
    assert!(message.contains("the channel price limit of this request (limit 9.99, cheapest 10.00 USD per 1M input tokens)"));
    let message = too_dear(&gateway, &chat(&gateway, &["input=10, output=19"]));
    assert!(message.contains("(limit 19.00, cheapest 20.00 USD per 1M output tokens)"), "{message}");
    assert!(upstream.received().is_empty());
    upstream.enqueue(ScriptedResponse::chat("hi"));
    assert_eq!(chat(&gateway, &["input=10,output=20"]).status, 200, "a bound may be reached");
    assert_eq!(upstream.received()[0].header(HEADER), None, "it is ours, not the provider's");
}

#[test]
fn native_request_above_its_max_price_is_refused() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let answer = native(&gateway, &["output=1"]);
    let message = too_dear(&gateway, &answer);
    assert!(message.starts_with("No available accounts exist for the native protocol family (gemini): "), "{message}");
    let error = &answer.json()["error"];
    assert_eq!((error["code"].as_u64(), error["status"].as_str()), (Some(503), Some("UNAVAILABLE")));
    let metadata = &error["details"][0]["metadata"];
    assert_eq!((metadata["cause"].as_str(), metadata["retryable"].as_str()), (Some("price_limit"), Some("false")));
    assert_eq!((metadata["family"].as_str(), metadata["model"].as_str()), (Some("gemini"), Some("native-model")));
    assert_eq!(error["details"].as_array().map(Vec::len), Some(1), "no RetryInfo, as no waiting helps");
    assert!(upstream.received().is_empty());
    upstream.enqueue(ScriptedResponse::native("hi"));
    assert_eq!(native(&gateway, &["output=20"]).status, 200);
}

#[test]
fn every_max_price_header_line_applies() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    for lines in [["input=10", "input=9"], ["input=9", "input=10"], ["input=10", "output=19"]] {
        too_dear(&gateway, &chat(&gateway, &lines));
        too_dear(&gateway, &native(&gateway, &lines));
    }
    assert!(upstream.received().is_empty());
    upstream.enqueue(ScriptedResponse::chat("hi"));
    assert_eq!(chat(&gateway, &["input=10", "output=20"]).status, 200);
}

#[test]
fn invalid_max_price_header_is_refused_by_name() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    for lines in [&["cheap"][..], &["input=10", "dear"], &["input=10", ""], &["input=-1"], &["input=1,input=2"], &["prompt=1"]] {
        let (chat, native) = (chat(&gateway, lines), native(&gateway, lines));
        assert_eq!((chat.status, native.status), (400, 400), "{lines:?}");
        assert_eq!(chat.json()["error"]["code"], "invalid_value");
        assert_eq!(native.json()["error"]["status"], "INVALID_ARGUMENT");
        for answer in [chat, native] {
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.starts_with("Invalid value for the header 'x-tollgate-max-price': expected"), "{message}");
        }
    }
    assert!(upstream.received().is_empty());
}
