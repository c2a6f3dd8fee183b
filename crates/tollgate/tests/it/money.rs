//! Rates, budgets and balances: refusals, spending that survives a kill, and `verify`.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Connection as _;
use tollgate_core::RequestId;
use tollgate_testkit::{ClientResponse, ReceivedRequest, ScriptedResponse, TestGateway, Upstream, wait_for};

use crate::support::{self, PROGRAM};

/// Cost of [`reply`] at 10 and 20 USD per million: 100 tokens in, 50 out.
const SALE: i64 = 100 * 10_000 + 50 * 20_000;

/// A response that reports its usage.
fn reply() -> ScriptedResponse {
    ScriptedResponse::json(&json!({
        "id": "x", "object": "chat.completion", "created": 1, "model": "upstream-model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150},
    }))
}

/// A catalog with these lines on the key and on its owner, the member `payer`.
fn catalog(upstream: &Upstream, key: &str, member: &str) -> String {
    support::catalog(upstream, "cooling = false").replace(
        "[[key]]\nname = \"caller\"",
        &format!("[[member]]\nname = \"payer\"\n{member}\n[[key]]\nname = \"caller\"\nmember = \"payer\"\n{key}"),
    )
}

/// A request with this output limit, and an input of about the 100 tokens that [`reply`] reports.
fn asking(max_tokens: u64) -> Value {
    let mut body = support::chat("chat-model");
    body["messages"][0]["content"] = json!("prompt-canary ".repeat(20));
    body["max_tokens"] = max_tokens.into();
    body
}

fn json_of(gateway: &TestGateway, arguments: &[&str]) -> Value {
    let out = gateway.run(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn reason(gateway: &TestGateway, answer: &ClientResponse) -> String {
    gateway.record_of(answer)["reason"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn rate_limit_headers_are_sent_and_an_exhausted_rate_refuses() {
    let upstream = Upstream::start();
    upstream.set_default(reply());
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog(&upstream, "rpm = 2\ntpm = 100000", "")).spawn();
    let first = gateway.chat(&asking(20));
    assert_eq!((first.status, first.header("x-ratelimit-limit-requests")), (200, Some("2")));
    assert_eq!(first.header("x-ratelimit-remaining-requests"), Some("1"));
    assert_eq!(first.header("x-ratelimit-limit-tokens"), Some("100000"));
    assert!(first.header("x-ratelimit-reset-requests").is_some() && first.header("x-ratelimit-reset-tokens").is_some());
    assert_eq!(gateway.chat(&asking(20)).status, 200);
    for refused in [gateway.chat(&asking(20)), gateway.native("native-model", "generateContent", &support::native())] {
        assert_eq!(refused.status, 429);
        assert!(refused.text().contains("Rate limit reached for requests per minute: limit 2, used 2."), "{}", refused.text());
        assert_eq!(refused.header("x-ratelimit-remaining-requests"), Some("0"));
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
        assert_eq!(reason(&gateway, &refused), "E31");
    }
    assert_eq!(upstream.received().len(), 2);
}

#[test]
fn budget_survives_a_kill_and_concurrent_requests() {
    const BUDGET: i64 = 10 * SALE;
    let upstream = Upstream::start();
    upstream.set_default(reply().delay(Duration::from_millis(20)));
    let budget = format!("budget = {{ amount = \"{}\", window = \"month\", action = \"block\" }}", "0.02");
    let catalog = catalog(&upstream, &budget, "");
    let spent = |gateway: &TestGateway| -> i64 {
        gateway.records().iter().filter(|record| record["sale"].is_string()).map(|record| support::nano_usd(&record["sale"])).sum()
    };
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    // Reservations exceed the cost, so fewer than ten run concurrently.
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..60).map(|_| scope.spawn(|| gateway.chat(&asking(50)).status)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert!(spent(&gateway) <= BUDGET, "{} of {BUDGET}", spent(&gateway));
    while gateway.chat(&asking(50)).status == 200 {}
    let before = spent(&gateway);
    assert!(before <= BUDGET && before > BUDGET - 2 * SALE, "{before} of {BUDGET}");
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).data_folder(gateway.kill()).spawn();
    let refused = gateway.chat(&asking(50));
    assert_eq!((refused.status, refused.header("x-should-retry")), (429, Some("false")), "{}", refused.text());
    assert!(["E32", "E33"].contains(&reason(&gateway, &refused).as_str()));
    assert_eq!(spent(&gateway), before);
}

#[test]
fn budget_imposes_and_reports_an_output_limit() {
    let upstream = Upstream::start();
    upstream.set_default(reply());
    let budget = "budget = { amount = \"0.05\", window = \"total\", action = \"block\" }";
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog(&upstream, budget, "")).spawn();
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let dropped = answer.header("x-tollgate-dropped").unwrap().to_owned();
    let forced: u64 = dropped.strip_prefix("max_completion_tokens=").unwrap().parse().unwrap();
    assert!((256..2_500).contains(&forced), "as much as 0.05 USD affords: {forced}");
    assert_eq!(upstream.received()[0].json()["max_completion_tokens"], forced);
}

#[test]
fn prepaid_member_is_served_up_to_the_balance() {
    let upstream = Upstream::start();
    upstream.set_default(reply());
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog(&upstream, "", "billing = \"prepaid\"")).spawn();
    let refused = gateway.chat(&asking(20));
    assert_eq!((refused.status, reason(&gateway, &refused).as_str()), (429, "E32"), "{}", refused.text());
    let top_up = ["--json", "ledger", "top-up", "payer", "0.01", "--note", "invoice 7", "--idempotency-key", "invoice-7"];
    let posted = json_of(&gateway, &top_up);
    assert_eq!((&posted["balance"], &posted["repeated"]), (&json!("0.01"), &json!(false)));
    let repeated = json_of(&gateway, &top_up);
    assert_eq!((&repeated["balance"], &repeated["repeated"]), (&json!("0.01"), &json!(true)));
    let other = gateway.run(&["ledger", "top-up", "payer", "0.02", "--idempotency-key", "invoice-7"]);
    assert_eq!(other.status.code(), Some(3), "{}", String::from_utf8_lossy(&other.stderr));
    // The running gateway reloads it within two seconds.
    wait_for("a top-up counts", Duration::from_secs(2), || gateway.chat(&asking(20)).status == 200);
    let mut sold = 1;
    while gateway.chat(&asking(20)).status == 200 {
        sold += 1;
    }
    json_of(&gateway, &["--json", "ledger", "adjust", "payer", "-0.001", "--note", "a fee"]);
    let entries = || json_of(&gateway, &["--json", "ledger", "list", "--member", "payer"])["items"].as_array().unwrap().clone();
    // One entry for the requests that were booked together.
    let covered = || entries().iter().filter_map(|entry| entry["covers"]["count"].as_u64()).sum::<u64>();
    let entered = || covered() >= sold;
    wait_for("sales are entered when they are booked", Duration::from_secs(2), entered);
    let entries = entries();
    let sum: i64 = entries.iter().map(|entry| support::nano_usd(&entry["amount"])).sum();
    let balances = json_of(&gateway, &["--json", "ledger", "balances"]);
    let payer = balances["items"].as_array().unwrap().iter().find(|it| it["name"] == "payer").unwrap();
    assert_eq!(support::nano_usd(&payer["balance"]), sum);
    let kinds: Vec<&str> = entries.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"settle") && kinds.contains(&"adjust") && kinds.last() == Some(&"top_up"), "{kinds:?}");
}

#[test]
fn gateway_budget_refuses_every_caller() {
    let upstream = Upstream::start();
    upstream.set_default(reply());
    let gateway = TestGateway::builder(PROGRAM)
        .catalog(&support::catalog(&upstream, "cooling = false"))
        .env("TOLLGATE_BUDGET__DAY", "0.004")
        .spawn();
    assert_eq!(gateway.chat(&asking(100)).status, 200);
    let refused = gateway.chat(&asking(100));
    assert_eq!((refused.status, reason(&gateway, &refused).as_str()), (429, "E33"), "{}", refused.text());
    assert!(refused.text().contains("of this gateway"), "{}", refused.text());
    let wrong = TestGateway::builder(PROGRAM).env("TOLLGATE_BUDGET__DAY", "a lot").without_record_check().run_to_exit();
    assert_eq!(wrong.status.code(), Some(3));
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains("TOLLGATE_BUDGET__DAY takes an amount in USD"),
        "{}",
        String::from_utf8_lossy(&wrong.stderr)
    );
}

#[test]
fn alerting_budget_keeps_serving_and_calls_the_webhook_once() {
    let upstream = Upstream::start();
    upstream.set_default(reply());
    let receiver = Upstream::start();
    receiver.set_default(ScriptedResponse::status(204));
    let budget = "budget = { amount = \"0.005\", window = \"day\", action = \"alert\" }";
    let gateway = TestGateway::builder(PROGRAM)
        .catalog(&catalog(&upstream, budget, ""))
        .env("TOLLGATE_ALERTS__WEBHOOK", &format!("http://{}/alert", receiver.address()))
        .env("TOLLGATE_ALERTS__SECRET", "a shared secret")
        .env("TOLLGATE_ALERTS__PRIVATE_NETWORK", "true")
        .spawn();
    for _ in 0..6 {
        assert_eq!(gateway.chat(&asking(20)).status, 200, "it blocks nothing");
    }
    // Rules may report earlier that half of it or more is spent.
    let spent = |received: &[ReceivedRequest]| -> Vec<Value> {
        let bodies = received.iter().map(ReceivedRequest::json);
        bodies.filter(|body| body["event"] == "budget" && body["detail"]["percent"] == "100").collect()
    };
    wait_for("an alert", Duration::from_secs(20), || !spent(&receiver.received()).is_empty());
    let received = receiver.received();
    let alerts = spent(&received);
    assert_eq!(alerts.len(), 1, "once, when it is crossed");
    let detail = &alerts[0]["detail"];
    assert_eq!((&detail["of"], &detail["name"], &detail["window"]), (&json!("key"), &json!("caller"), &json!("day")));
    assert_eq!((&detail["amount"], &detail["spent"]), (&json!("0.005"), &json!("0.006")));
    let crossing = gateway.records().iter().any(|record| record["id"] == detail["request"]);
    assert!(crossing, "{detail}");
    assert!(received[0].header("x-tollgate-signature").unwrap().starts_with("sha256="));
    assert!(!gateway.log().contains("a shared secret"));
}

#[test]
fn verify_detects_tampered_ledger_and_counters() {
    let upstream = Upstream::start();
    upstream.set_default(reply());
    let mut gateway = support::builder(&upstream, "cooling = false").without_record_check().spawn();
    for _ in 0..5 {
        assert_eq!(gateway.chat(&asking(20)).status, 200);
    }
    let beside = gateway.run(&["verify"]);
    assert_eq!(beside.status.code(), Some(0), "beside a running gateway: {}", String::from_utf8_lossy(&beside.stderr));
    assert_eq!(gateway.stop(), Some(0));
    let said = json_of(&gateway, &["--json", "verify"]);
    assert_eq!((&said["agrees"], &said["records"], &said["attempts"]), (&json!(true), &json!(5), &json!(5)));
    assert!((1..=5).contains(&said["ledger_entries"].as_u64().unwrap()), "one for each batch: {said}");
    let record = gateway.records()[0].clone();
    let id = RequestId::parse(record["id"].as_str().unwrap()).unwrap().uuid().simple().to_string().to_uppercase();
    tamper(&gateway, "UPDATE usage SET sale = sale + 1 WHERE hex(id) = ?", &id);
    let out = gateway.run(&["verify"]);
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    let member = record["member"].as_str().unwrap();
    assert!(
        stderr.contains(&format!("of {member}: the ledger should have -0.0")) && stderr.contains("000001 USD for its records"),
        "{stderr}"
    );
    tamper(&gateway, "UPDATE usage SET sale = sale - 1 WHERE hex(id) = ?", &id);
    tamper(&gateway, "UPDATE balances SET balance = balance + 1000000000 WHERE member_id <> ?", "unknown");
    assert_eq!(gateway.run(&["verify"]).status.code(), Some(1));
}

/// Changes the database directly.
fn tamper(gateway: &TestGateway, sql: &'static str, id: &str) {
    let place = format!("sqlite:{}", gateway.data().join("tollgate.db").display());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&place).await.unwrap();
        sqlx::query(sql).bind(id).execute(&mut database).await.unwrap();
        database.close().await.unwrap();
    });
}

/// A catalog whose key has a budget of 3 USD; `model` are lines of both models.
fn with_tools(upstream: &Upstream, model: &str) -> String {
    let budget = "budget = { amount = \"3\", window = \"total\", action = \"block\" }";
    catalog(upstream, budget, "").replace("price = { input = \"10\", output = \"20\" }", model)
}

#[test]
fn provider_tools_need_a_price_under_a_budget() {
    let upstream = Upstream::start();
    upstream.set_default(reply());
    let body = |tool: &Value| {
        let mut body = asking(20);
        body[tool["field"].as_str().unwrap()] = tool["value"].clone();
        body
    };
    let tools = [
        json!({"field": "tools", "value": [{"type": "code_interpreter"}], "price": 0.05}),
        json!({"field": "plugins", "value": [{"id": "file-parser"}], "price": 0.05}),
        json!({"field": "tools", "value": [{"type": "web_search"}], "price": 0.01}),
        json!({"field": "web_search_options", "value": {}, "price": 0.01}),
    ];
    let context = "context = 100000\nprice = { input = \"10\", output = \"20\"";
    let gateway = TestGateway::builder(PROGRAM).catalog(&with_tools(&upstream, &format!("{context} }}"))).spawn();
    for tool in &tools {
        let refused = gateway.chat(&body(tool));
        assert_eq!((refused.status, reason(&gateway, &refused).as_str()), (400, "E17"), "{tool}: {}", refused.text());
        assert!(refused.text().contains(tool["field"].as_str().unwrap()), "{}", refused.text());
    }
    assert_eq!(upstream.received().len(), 0);
    let priced = format!("{context}, web_search = \"0.01\", server_tools = \"0.05\" }}");
    let gateway = TestGateway::builder(PROGRAM).catalog(&with_tools(&upstream, &priced)).spawn();
    for tool in &tools {
        let answer = gateway.chat(&body(tool));
        assert_eq!(answer.status, 200, "{tool}: {}", answer.text());
        #[expect(clippy::cast_possible_truncation, reason = "a small price")]
        let used = (tool["price"].as_f64().unwrap() * 1e9).round() as i64;
        assert_eq!(support::nano_usd(&gateway.record_of(&answer)["sale"]), SALE + used, "{tool}");
    }
}

#[test]
fn audio_output_needs_a_price_under_a_budget() {
    let upstream = Upstream::start();
    upstream.set_default(reply());
    let asks = [
        json!({"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}),
        json!({"audio": {"voice": "alloy", "format": "wav"}}),
    ];
    let body = |asks: &Value| {
        let mut body = asking(20);
        body.as_object_mut().unwrap().extend(asks.as_object().unwrap().clone());
        body
    };
    let price = "price = { input = \"10\", output = \"20\"";
    let gateway = TestGateway::builder(PROGRAM).catalog(&with_tools(&upstream, &format!("{price} }}"))).spawn();
    for asks in &asks {
        let refused = gateway.chat(&body(asks));
        assert_eq!((refused.status, reason(&gateway, &refused).as_str()), (400, "E17"), "{asks}: {}", refused.text());
        assert!(asks.as_object().unwrap().keys().all(|field| refused.text().contains(field)), "{}", refused.text());
    }
    let prediction = gateway.chat(&body(&json!({"prediction": {"type": "content", "content": "a b c"}})));
    assert_eq!((prediction.status, reason(&gateway, &prediction).as_str()), (400, "E17"), "{}", prediction.text());
    assert_eq!(upstream.received().len(), 0);
    let gateway =
        TestGateway::builder(PROGRAM).catalog(&with_tools(&upstream, &format!("{price}, output_media = \"80\" }}"))).spawn();
    let plain = support::nano_usd(&gateway.record_of(&gateway.chat(&asking(20)))["sale"]);
    assert_eq!(plain, SALE);
    let answer = gateway.chat(&body(&asks[0]));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let record = gateway.record_of(&answer);
    let output = record["tokens"]["output"].as_i64().unwrap();
    assert_eq!(support::nano_usd(&record["sale"]), SALE + output * (80 - 20) * 1_000, "all output at the price of media: {record}");
}

#[test]
fn input_not_in_the_body_does_not_exceed_the_budget() {
    let upstream = Upstream::start();
    // Input of the size of the model's context, at 10 USD per million.
    upstream.set_default(ScriptedResponse::json(&json!({
        "candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 50, "toolUsePromptTokenCount": 99_950, "candidatesTokenCount": 1, "totalTokenCount": 100_001},
    })));
    let price = "price = { input = \"10\", output = \"20\" }";
    let asks = [
        json!({"tools": [{"urlContext": {}}]}),
        json!({"tools": [{"fileSearch": {"fileSearchStoreNames": ["a"]}}]}),
        json!({"tools": [{"codeExecution": {}}]}),
        json!({"contents": [{"role": "user", "parts": [{"fileData": {"fileUri": "https://www.youtube.com/watch?v=prompt-canary"}}]}]}),
    ];
    let body = |asks: &Value| {
        let mut body = support::native();
        body["generationConfig"] = json!({"maxOutputTokens": 20});
        body.as_object_mut().unwrap().extend(asks.as_object().unwrap().clone());
        body
    };
    let gateway = TestGateway::builder(PROGRAM).catalog(&with_tools(&upstream, price)).spawn();
    for asks in &asks {
        let refused = gateway.native("native-model", "generateContent", &body(asks));
        assert_eq!((refused.status, reason(&gateway, &refused).as_str()), (400, "E17"), "{}", refused.text());
        let field = asks.as_object().unwrap().keys().next().unwrap();
        assert!(refused.text().contains(field), "{}", refused.text());
    }
    assert_eq!(upstream.received().len(), 0, "the model has no context that bounds it");
    let gateway = TestGateway::builder(PROGRAM).catalog(&with_tools(&upstream, &format!("context = 100000\n{price}"))).spawn();
    let mut statuses = Vec::new();
    for asks in &asks {
        statuses.push(gateway.native("native-model", "generateContent", &body(asks)).status);
    }
    assert_eq!(statuses, [200, 200, 429, 429], "1 USD each; what is left of 3 USD does not cover another context and its output");
    let spent: i64 =
        gateway.records().iter().filter_map(|record| record["sale"].as_str().map(|_| support::nano_usd(&record["sale"]))).sum();
    assert_eq!(spent, 2 * (100_000 * 10_000 + 20_000));
}
