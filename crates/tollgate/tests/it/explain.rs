//! What `explain` says beside a running gateway is what happens to a request of that size.

use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate_testkit::{Request, TestGateway, Upstream};

use crate::support::{self, PROGRAM};

/// Longest wait for what a gateway leaves in its folder once a second.
const PATIENCE: Duration = Duration::from_secs(30);

fn explain(gate: &TestGateway, model: &str, more: &[&str]) -> Value {
    let arguments = ["explain", "--model", model, "--key", "caller", "--json"];
    let output = gate.run(&[&arguments, more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asks until the answer is as expected.
fn explained(gate: &TestGateway, more: &[&str], expected: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let said = explain(gate, "chat-model", more);
        if expected(&said) {
            return said;
        }
        assert!(begin.elapsed() < PATIENCE, "{said}");
    }
}

/// A request that asks for so much output.
fn sized(tokens: u64) -> Value {
    let mut body = support::chat("chat-model");
    body["max_tokens"] = tokens.into();
    body
}

#[test]
fn a_budget_that_is_nearly_spent_decides_by_the_size_of_the_request() {
    let upstream = Upstream::start();
    // At 2 USD per million tokens of output, 10,000 tokens cost 0.02.
    let gate = support::builder(&upstream, "cooling = false\nbudget = { amount = \"0.01\", window = \"day\" }").spawn();
    let refused = |said: &Value| said["refusal"]["cause"] == "upstream_quota" && said["excluded"][0]["code"] == "budget";
    // From the start, as nothing was spent yet.
    assert_eq!(gate.chat(&sized(10_000)).status, 503);
    let said = explain(&gate, "chat-model", &["--output-tokens", "10000"]);
    assert!(refused(&said), "{said}");
    assert_eq!(said["excluded"][0]["bounds"][0]["left"], 10_000_000, "{said}");
    assert!(said["excluded"][0]["remedy"].as_str().unwrap().contains("output limit"), "{said}");
    assert_eq!(gate.chat(&support::chat("chat-model")).status, 503, "no limit at all is the most");
    assert!(refused(&explain(&gate, "chat-model", &[])));
    // 4,000 tokens suffice until something was spent.
    let small = ["--input-tokens", "100", "--output-tokens", "4900"];
    assert_eq!(explain(&gate, "chat-model", &small)["planned"][0]["code"], "planned");
    assert_eq!(gate.chat(&sized(4_900)).status, 200);
    explained(&gate, &["--input-tokens", "1", "--output-tokens", "1"], |said| {
        let left = &said["planned"][0]["bounds"][0]["left"];
        left.as_i64().is_some_and(|left| 0 < left && left < 10_000_000)
    });
    let said = explain(&gate, "chat-model", &["--input-tokens", "1", "--output-tokens", "5000"]);
    assert!(refused(&said), "{said}");
    assert_eq!(gate.chat(&sized(5_000)).status, 503);
    let people = gate.run(&["explain", "--model", "chat-model", "--key", "caller", "--output-tokens", "5000"]);
    let people = String::from_utf8_lossy(&people.stdout).into_owned();
    assert!(people.contains("for 1000 tokens in and at most 5000 out") && people.contains("USD left today"), "{people}");
}

#[test]
fn what_was_spent_is_known_without_a_gateway_too() {
    let upstream = Upstream::start();
    let builder = || support::builder(&upstream, "cooling = false\nbudget = { amount = \"0.0001\", window = \"total\" }");
    let mut gate = builder().spawn();
    assert_eq!(gate.chat(&sized(10)).status, 200);
    let left = |said: &Value| said["planned"][0]["bounds"][0]["left"].as_i64();
    let running =
        explained(&gate, &["--input-tokens", "1", "--output-tokens", "1"], |said| left(said).is_some_and(|left| left < 100_000));
    assert_eq!(gate.stop(), Some(0));
    let stopped = explain(&gate, "chat-model", &["--input-tokens", "1", "--output-tokens", "1"]);
    assert_eq!(left(&stopped), left(&running), "{stopped}");
}

#[test]
fn a_small_minute_of_tokens_decides_by_the_size_of_the_request() {
    let upstream = Upstream::start();
    let catalog =
        support::catalog(&upstream, "cooling = false").replace("name = \"chat-account\"", "name = \"chat-account\"\ntpm = 1000");
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    let sizes = ["--input-tokens", "1000", "--output-tokens", "1000"];
    assert_eq!(explain(&gate, "chat-model", &sizes)["planned"][0]["code"], "planned");
    assert_eq!(gate.chat(&sized(2_000)).status, 200);
    let said = explained(&gate, &sizes, |said| said["excluded"][0]["code"] == "rate");
    assert_eq!(said["refusal"]["cause"], "concurrency", "{said}");
    assert_eq!(said["excluded"][0]["bounds"][0]["bound"], "tpm", "{said}");
    let answer = gate.chat(&sized(2_000));
    assert_eq!((answer.status, answer.header("x-tollgate-cause")), (503, Some("concurrency")));
    // What is small finds room all the same.
    assert_eq!(explain(&gate, "chat-model", &["--input-tokens", "1", "--output-tokens", "1"])["planned"][0]["code"], "planned");
    assert_eq!(gate.chat(&sized(1)).status, 200);
}

#[test]
fn what_no_channel_can_express_is_said_as_it_happens() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let mut body = support::chat("native-model");
    body["logit_bias"] = serde_json::json!({"1": 1});
    assert_eq!(gate.chat(&body).status, 400);
    let said = explain(&gate, "native-model", &["--field", "logit_bias"]);
    assert_eq!((&said["refusal"]["error"], &said["excluded"][0]["code"]), (&"E17".into(), &"cannot_translate".into()), "{said}");
    assert_eq!(explain(&gate, "native-model", &["--field", "temperature"])["planned"][0]["code"], "planned");
    let mut body = support::native();
    body["generationConfig"] = serde_json::json!({"topK": 3});
    assert_eq!(gate.native("chat-model", "generateContent", &body).status, 400);
    let said = explain(&gate, "chat-model", &["--protocol", "gemini", "--field", "generationConfig.topK"]);
    assert_eq!((&said["refusal"]["error"], &said["excluded"][0]["code"]), (&"E17".into(), &"cannot_translate".into()), "{said}");
    let said = explain(&gate, "chat-model", &["--protocol", "gemini", "--field", "generationConfig.topP"]);
    assert_eq!(said["planned"][0]["code"], "planned", "{said}");
}

#[test]
fn a_key_that_opens_no_door_is_said_to() {
    let upstream = Upstream::start();
    let gate = TestGateway::of(PROGRAM)
        .catalog(
            &support::catalog(&upstream, "")
                .replace("name = \"caller\"", "name = \"caller\"\nexpires_at = \"2026-01-01T00:00:00Z\""),
        )
        .spawn();
    let answer = gate.send(&Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(gate.key()));
    assert_eq!(answer.status, 401);
    let said = explain(&gate, "chat-model", &[]);
    assert_eq!((&said["refusal"]["error"], &said["planned"]), (&"E3".into(), &serde_json::json!([])), "{said}");
}

/// A gate whose key has these lines.
fn limited(upstream: &Upstream, lines: &str) -> TestGateway {
    let catalog = support::catalog(upstream, "cooling = false");
    TestGateway::of(PROGRAM).catalog(&catalog.replace("name = \"caller\"", &format!("name = \"caller\"\n{lines}"))).spawn()
}

#[test]
fn a_limit_of_the_key_that_is_used_up_is_said_first() {
    let upstream = Upstream::start();
    let gate = limited(&upstream, "rpm = 1");
    let said = explain(&gate, "chat-model", &[]);
    let limit = &said["limits"][0];
    assert_eq!((&limit["of"], &limit["limit"], &limit["left"]), (&"key".into(), &"rpm".into(), &1.into()), "{said}");
    assert_eq!((&said["refusal"], &limit["counted_by"]), (&Value::Null, &"database".into()), "{said}");
    // It counts for a minute at least.
    assert_eq!(gate.chat(&support::chat("chat-model")).status, 200);
    let said = explained(&gate, &[], |said| said["refusal"]["error"] == "E31");
    assert_eq!((&said["limits"][0]["left"], &said["limits"][0]["counted_by"]), (&0.into(), &"notes".into()), "{said}");
    assert_eq!((&said["refusal"]["retryable"], &said["planned"][0]["code"]), (&true.into(), &"planned".into()), "{said}");
    let people = gate.run(&["explain", "--model", "chat-model", "--key", "caller"]);
    let people = String::from_utf8_lossy(&people.stdout).into_owned();
    assert!(people.contains("refused with E31: key caller has 0 of 1 requests left this minute; wait "), "{people}");
    assert!(people.contains("key caller  rpm 1  0     1                  notes"), "{people}");
    assert_eq!(gate.chat(&support::chat("chat-model")).status, 429);
}

#[test]
fn a_budget_of_the_key_decides_by_the_size_of_the_request_as_the_gateway_does() {
    let upstream = Upstream::start();
    // At 20 USD per million tokens of output, 10,000 tokens cost 0.20.
    let mut gate = limited(&upstream, "budget = { amount = \"0.05\", window = \"total\", action = \"block\" }");
    let large = ["--output-tokens", "10000"];
    let said = explain(&gate, "chat-model", &large);
    assert_eq!(said["refusal"]["error"], "E33", "{said}");
    assert!(said["refusal"]["remedy"].as_str().unwrap().contains("smaller output limit"), "{said}");
    assert_eq!(gate.chat(&sized(10_000)).status, 429);
    // A request without a limit of its own is given one.
    let said = explain(&gate, "chat-model", &[]);
    assert!(said["refusal"].is_null() && said["output_limit"].as_u64().is_some_and(|limit| limit < 2_500), "{said}");
    assert_eq!(gate.chat(&sized(2_000)).status, 200);
    let left = |said: &Value| said["limits"][0]["left"].as_i64().unwrap();
    let running = explained(&gate, &[], |said| said["limits"][0]["counted_by"] == "database" && left(said) < 50_000_000);
    assert_eq!(gate.stop(), Some(0));
    let stopped = explain(&gate, "chat-model", &[]);
    assert_eq!(stopped["limits"], running["limits"]);
}
