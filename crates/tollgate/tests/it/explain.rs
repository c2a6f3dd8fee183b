//! `explain` on a running gateway predicts what happens to a request of the given size.

use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate_testkit::{Request, TestGateway, Upstream};

use crate::support::{self, PROGRAM};

/// Longest wait for the state that a gateway writes to its folder once a second.
const TIMEOUT: Duration = Duration::from_secs(30);

fn explain(gateway: &TestGateway, model: &str, more: &[&str]) -> Value {
    let arguments = ["explain", "--model", model, "--key", "caller", "--json"];
    let output = gateway.run(&[&arguments, more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs `explain` until its output meets a condition.
fn wait_for_explanation(gateway: &TestGateway, more: &[&str], expected: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let explanation = explain(gateway, "chat-model", more);
        if expected(&explanation) {
            return explanation;
        }
        assert!(begin.elapsed() < TIMEOUT, "{explanation}");
    }
}

/// A chat request with this output limit, in tokens.
fn chat_with_output_limit(tokens: u64) -> Value {
    let mut body = support::chat("chat-model");
    body["max_tokens"] = tokens.into();
    body
}

#[test]
fn explain_applies_the_remaining_budget_to_the_request_size() {
    let upstream = Upstream::start();
    // At 2 USD per million tokens of output, 10,000 tokens cost 0.02.
    let gateway = support::builder(&upstream, "cooling = false\nbudget = { amount = \"0.01\", window = \"day\" }").spawn();
    let refused =
        |explanation: &Value| explanation["refusal"]["cause"] == "upstream_quota" && explanation["excluded"][0]["code"] == "budget";
    // Before anything was spent.
    assert_eq!(gateway.chat(&chat_with_output_limit(10_000)).status, 503);
    let explanation = explain(&gateway, "chat-model", &["--output-tokens", "10000"]);
    assert!(refused(&explanation), "{explanation}");
    assert_eq!(explanation["excluded"][0]["bounds"][0]["left"], "0.01", "{explanation}");
    assert!(explanation["excluded"][0]["remedy"].as_str().unwrap().contains("output limit"), "{explanation}");
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 503, "without a limit, the model's largest output counts");
    assert!(refused(&explain(&gateway, "chat-model", &[])));
    // 4,900 tokens fit until something was spent.
    let small = ["--input-tokens", "100", "--output-tokens", "4900"];
    assert_eq!(explain(&gateway, "chat-model", &small)["planned"][0]["code"], "planned");
    assert_eq!(gateway.chat(&chat_with_output_limit(4_900)).status, 200);
    wait_for_explanation(&gateway, &["--input-tokens", "1", "--output-tokens", "1"], |explanation| {
        let left = &explanation["planned"][0]["bounds"][0]["left"];
        left.is_string() && (1..10_000_000).contains(&support::nano_usd(left))
    });
    let explanation = explain(&gateway, "chat-model", &["--input-tokens", "1", "--output-tokens", "5000"]);
    assert!(refused(&explanation), "{explanation}");
    assert_eq!(gateway.chat(&chat_with_output_limit(5_000)).status, 503);
    let text = gateway.run(&["explain", "--model", "chat-model", "--key", "caller", "--output-tokens", "5000"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("for 1000 tokens in and at most 5000 out") && text.contains("USD left today"), "{text}");
}

#[test]
fn explain_includes_spending_without_a_running_gateway() {
    let upstream = Upstream::start();
    let builder = || support::builder(&upstream, "cooling = false\nbudget = { amount = \"0.0001\", window = \"total\" }");
    let mut gateway = builder().spawn();
    assert_eq!(gateway.chat(&chat_with_output_limit(10)).status, 200);
    let left = |explanation: &Value| {
        let left = &explanation["planned"][0]["bounds"][0]["left"];
        left.is_string().then(|| support::nano_usd(left))
    };
    let running = wait_for_explanation(&gateway, &["--input-tokens", "1", "--output-tokens", "1"], |explanation| {
        left(explanation).is_some_and(|left| left < 100_000)
    });
    assert_eq!(gateway.stop(), Some(0));
    let stopped = explain(&gateway, "chat-model", &["--input-tokens", "1", "--output-tokens", "1"]);
    assert_eq!(left(&stopped), left(&running), "{stopped}");
}

#[test]
fn explain_applies_the_token_rate_to_the_request_size() {
    let upstream = Upstream::start();
    let catalog =
        support::catalog(&upstream, "cooling = false").replace("name = \"chat-account\"", "name = \"chat-account\"\ntpm = 1000");
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    let sizes = ["--input-tokens", "1000", "--output-tokens", "1000"];
    assert_eq!(explain(&gateway, "chat-model", &sizes)["planned"][0]["code"], "planned");
    assert_eq!(gateway.chat(&chat_with_output_limit(2_000)).status, 200);
    let explanation = wait_for_explanation(&gateway, &sizes, |explanation| explanation["excluded"][0]["code"] == "rate");
    assert_eq!(explanation["refusal"]["cause"], "concurrency", "{explanation}");
    assert_eq!(explanation["excluded"][0]["bounds"][0]["bound"], "tpm", "{explanation}");
    let answer = gateway.chat(&chat_with_output_limit(2_000));
    assert_eq!((answer.status, answer.header("x-tollgate-cause")), (503, Some("concurrency")));
    // A smaller request still fits.
    assert_eq!(explain(&gateway, "chat-model", &["--input-tokens", "1", "--output-tokens", "1"])["planned"][0]["code"], "planned");
    assert_eq!(gateway.chat(&chat_with_output_limit(1)).status, 200);
}

#[test]
fn explain_names_unsupported_fields_as_the_gateway_does() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let mut body = support::chat("native-model");
    body["logit_bias"] = serde_json::json!({"1": 1});
    assert_eq!(gateway.chat(&body).status, 400);
    let explanation = explain(&gateway, "native-model", &["--field", "logit_bias"]);
    assert_eq!(
        (&explanation["refusal"]["error"], &explanation["excluded"][0]["code"]),
        (&"E17".into(), &"cannot_translate".into()),
        "{explanation}"
    );
    assert_eq!(explain(&gateway, "native-model", &["--field", "temperature"])["planned"][0]["code"], "planned");
    let mut body = support::native();
    body["generationConfig"] = serde_json::json!({"topK": 3});
    assert_eq!(gateway.native("chat-model", "generateContent", &body).status, 400);
    let explanation = explain(&gateway, "chat-model", &["--protocol", "gemini", "--field", "generationConfig.topK"]);
    assert_eq!(
        (&explanation["refusal"]["error"], &explanation["excluded"][0]["code"]),
        (&"E17".into(), &"cannot_translate".into()),
        "{explanation}"
    );
    let explanation = explain(&gateway, "chat-model", &["--protocol", "gemini", "--field", "generationConfig.topP"]);
    assert_eq!(explanation["planned"][0]["code"], "planned", "{explanation}");
}

#[test]
fn explain_reports_keys_that_cannot_authenticate() {
    let upstream = Upstream::start();
    let gateway = TestGateway::builder(PROGRAM)
        .catalog(
            &support::catalog(&upstream, "")
                .replace("name = \"caller\"", "name = \"caller\"\nexpires_at = \"2026-01-01T00:00:00Z\""),
        )
        .spawn();
    let answer = gateway.send(&Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(gateway.key()));
    assert_eq!(answer.status, 401);
    let explanation = explain(&gateway, "chat-model", &[]);
    assert_eq!(
        (&explanation["refusal"]["error"], &explanation["planned"]),
        (&"E3".into(), &serde_json::json!([])),
        "{explanation}"
    );
}

/// A gateway whose key has these catalog lines.
fn gateway_with_key_lines(upstream: &Upstream, lines: &str) -> TestGateway {
    let catalog = support::catalog(upstream, "cooling = false");
    TestGateway::builder(PROGRAM).catalog(&catalog.replace("name = \"caller\"", &format!("name = \"caller\"\n{lines}"))).spawn()
}

#[test]
fn explain_reports_an_exhausted_key_limit_first() {
    let upstream = Upstream::start();
    let gateway = gateway_with_key_lines(&upstream, "rpm = 1");
    let explanation = explain(&gateway, "chat-model", &[]);
    let limit = &explanation["limits"][0];
    assert_eq!((&limit["of"], &limit["limit"], &limit["left"]), (&"key".into(), &"rpm".into(), &1.into()), "{explanation}");
    assert_eq!((&explanation["refusal"], &limit["counted_by"]), (&Value::Null, &"database".into()), "{explanation}");
    // The rate is counted for at least a minute.
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    let explanation = wait_for_explanation(&gateway, &[], |explanation| explanation["refusal"]["error"] == "E31");
    assert_eq!(
        (&explanation["limits"][0]["left"], &explanation["limits"][0]["counted_by"]),
        (&0.into(), &"snapshot".into()),
        "{explanation}"
    );
    assert_eq!(
        (&explanation["refusal"]["retryable"], &explanation["planned"][0]["code"]),
        (&true.into(), &"planned".into()),
        "{explanation}"
    );
    let text = gateway.run(&["explain", "--model", "chat-model", "--key", "caller"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("refused with E31: key caller has 0 of 1 requests left this minute; wait "), "{text}");
    assert!(text.contains("key caller  rpm 1  0     1                  snapshot"), "{text}");
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 429);
}

#[test]
fn explain_and_gateway_apply_the_key_budget_alike() {
    let upstream = Upstream::start();
    // At 20 USD per million tokens of output, 10,000 tokens cost 0.20.
    let mut gateway = gateway_with_key_lines(&upstream, "budget = { amount = \"0.05\", window = \"total\", action = \"block\" }");
    let large = ["--output-tokens", "10000"];
    let explanation = explain(&gateway, "chat-model", &large);
    assert_eq!(explanation["refusal"]["error"], "E33", "{explanation}");
    assert!(explanation["refusal"]["remedy"].as_str().unwrap().contains("smaller output limit"), "{explanation}");
    assert_eq!(gateway.chat(&chat_with_output_limit(10_000)).status, 429);
    // A request without an output limit gets one.
    let explanation = explain(&gateway, "chat-model", &[]);
    assert!(
        explanation["refusal"].is_null() && explanation["output_limit"].as_u64().is_some_and(|limit| limit < 2_500),
        "{explanation}"
    );
    assert_eq!(gateway.chat(&chat_with_output_limit(2_000)).status, 200);
    let left = |explanation: &Value| support::nano_usd(&explanation["limits"][0]["left"]);
    let running = wait_for_explanation(&gateway, &[], |explanation| {
        explanation["limits"][0]["counted_by"] == "database" && left(explanation) < 50_000_000
    });
    assert_eq!(gateway.stop(), Some(0));
    let stopped = explain(&gateway, "chat-model", &[]);
    assert_eq!(stopped["limits"], running["limits"]);
}

#[test]
fn explain_accepts_a_group_and_every_protocol() {
    let gateway = support::echo();
    let explained = |arguments: &[&str]| {
        let output = gateway.run(&[&["explain", "--model", "echo"], arguments].concat());
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat()
    };
    for protocol in tollgate_protocol::Protocol::WORDS {
        let explained = explained(&["--group", "echo", "--protocol", protocol]);
        assert!(explained.contains("group echo serves echo"), "{protocol}: {explained}");
    }
    assert!(explained(&["--group", "echo", "--protocol", "soap"]).contains("possible values: openai"));
}
