//! Money from end to end: rates, budgets and balances refuse, what was spent survives a kill, and the books can be proven.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Connection as _;
use tollgate_testkit::{ClientResponse, ScriptedResponse, TestGateway, Upstream, wait_for};

use crate::support::{self, PROGRAM};

/// What [`reply`] costs at 10 and 20 USD per million: 100 tokens in, 50 out.
const SALE: i64 = 100 * 10_000 + 50 * 20_000;

/// An answer that reports what it used.
fn reply() -> ScriptedResponse {
    ScriptedResponse::json(&json!({
        "id": "x", "object": "chat.completion", "created": 1, "model": "upstream-model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150},
    }))
}

/// A catalog with these members on the key and on a member `payer`, who owns it.
fn catalog(upstream: &Upstream, key: &str, member: &str) -> String {
    support::catalog(upstream, "cooling = false").replace(
        "[[key]]\nname = \"caller\"",
        &format!("[[member]]\nname = \"payer\"\n{member}\n[[key]]\nname = \"caller\"\nmember = \"payer\"\n{key}"),
    )
}

/// A request that asks for so much at most, with an input that may be the 100 tokens that [`reply`] reports.
fn asking(max_tokens: u64) -> Value {
    let mut body = support::chat("chat-model");
    body["messages"][0]["content"] = json!("prompt-canary ".repeat(20));
    body["max_tokens"] = max_tokens.into();
    body
}

fn json_of(gate: &TestGateway, arguments: &[&str]) -> Value {
    let out = gate.run(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn reason(gate: &TestGateway, answer: &ClientResponse) -> String {
    gate.record_of(answer)["reason"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_rate_is_told_with_every_answer_and_refuses_when_it_is_used_up() {
    let upstream = Upstream::start();
    upstream.otherwise(reply());
    let gate = TestGateway::of(PROGRAM).catalog(&catalog(&upstream, "rpm = 2\ntpm = 100000", "")).spawn();
    let first = gate.chat(&asking(20));
    assert_eq!((first.status, first.header("x-ratelimit-limit-requests")), (200, Some("2")));
    assert_eq!(first.header("x-ratelimit-remaining-requests"), Some("1"));
    assert_eq!(first.header("x-ratelimit-limit-tokens"), Some("100000"));
    assert!(first.header("x-ratelimit-reset-requests").is_some() && first.header("x-ratelimit-reset-tokens").is_some());
    assert_eq!(gate.chat(&asking(20)).status, 200);
    for refused in [gate.chat(&asking(20)), gate.native("native-model", "generateContent", &support::native())] {
        assert_eq!(refused.status, 429);
        assert!(refused.text().contains("Rate limit reached for requests per minute: limit 2, used 2."), "{}", refused.text());
        assert_eq!(refused.header("x-ratelimit-remaining-requests"), Some("0"));
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
        assert_eq!(reason(&gate, &refused), "E31");
    }
    assert_eq!(upstream.seen().len(), 2);
}

#[test]
fn a_budget_is_kept_across_a_kill_and_never_overspent_by_many_at_once() {
    const BUDGET: i64 = 10 * SALE;
    let upstream = Upstream::start();
    upstream.otherwise(reply().after(Duration::from_millis(20)));
    let budget = format!("budget = {{ amount = \"{}\", window = \"month\", action = \"block\" }}", "0.02");
    let catalog = catalog(&upstream, &budget, "");
    let spent = |gate: &TestGateway| -> i64 { gate.records().iter().filter_map(|record| record["sale_nano_usd"].as_i64()).sum() };
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    // Held at more than they cost, so that fewer than ten fit at once.
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..60).map(|_| scope.spawn(|| gate.chat(&asking(50)).status)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert!(spent(&gate) <= BUDGET, "{} of {BUDGET}", spent(&gate));
    while gate.chat(&asking(50)).status == 200 {}
    let before = spent(&gate);
    assert!(before <= BUDGET && before > BUDGET - 2 * SALE, "{before} of {BUDGET}");
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).on(gate.kill()).spawn();
    let refused = gate.chat(&asking(50));
    assert_eq!((refused.status, refused.header("x-should-retry")), (429, Some("false")), "{}", refused.text());
    assert!(["E32", "E33"].contains(&reason(&gate, &refused).as_str()));
    assert_eq!(spent(&gate), before);
}

#[test]
fn a_budget_without_an_asked_limit_forces_one_and_says_so() {
    let upstream = Upstream::start();
    upstream.otherwise(reply());
    let budget = "budget = { amount = \"0.05\", window = \"total\", action = \"block\" }";
    let gate = TestGateway::of(PROGRAM).catalog(&catalog(&upstream, budget, "")).spawn();
    let answer = gate.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let dropped = answer.header("x-tollgate-dropped").unwrap().to_owned();
    let forced: u64 = dropped.strip_prefix("max_completion_tokens=").unwrap().parse().unwrap();
    assert!((256..2_500).contains(&forced), "as much as 0.05 USD affords: {forced}");
    assert_eq!(upstream.seen()[0].json()["max_completion_tokens"], forced);
}

#[test]
fn a_prepaid_member_is_served_as_far_as_his_balance_goes() {
    let upstream = Upstream::start();
    upstream.otherwise(reply());
    let gate = TestGateway::of(PROGRAM).catalog(&catalog(&upstream, "", "billing = \"prepaid\"")).spawn();
    let refused = gate.chat(&asking(20));
    assert_eq!((refused.status, reason(&gate, &refused).as_str()), (429, "E32"), "{}", refused.text());
    let top_up = ["--json", "ledger", "top-up", "payer", "0.01", "--note", "invoice 7", "--idempotency-key", "invoice-7"];
    let posted = json_of(&gate, &top_up);
    assert_eq!((&posted["balance_usd"], &posted["repeated"]), (&json!("0.01"), &json!(false)));
    let repeated = json_of(&gate, &top_up);
    assert_eq!((&repeated["balance_usd"], &repeated["repeated"]), (&json!("0.01"), &json!(true)));
    let other = gate.run(&["ledger", "top-up", "payer", "0.02", "--idempotency-key", "invoice-7"]);
    assert_eq!(other.status.code(), Some(3), "{}", String::from_utf8_lossy(&other.stderr));
    // The running gateway learns of it within a second or two.
    wait_for("a top-up counts", Duration::from_secs(2), || gate.chat(&asking(20)).status == 200);
    let mut sold = 1;
    while gate.chat(&asking(20)).status == 200 {
        sold += 1;
    }
    json_of(&gate, &["--json", "ledger", "adjust", "payer", "-0.001", "--note", "a fee"]);
    let entries = || json_of(&gate, &["--json", "ledger", "list", "--member", "payer"])["items"].as_array().unwrap().clone();
    let entered = || entries().iter().filter(|entry| entry["kind"] == "settle").count() >= sold;
    wait_for("sales are entered when they are booked", Duration::from_secs(2), entered);
    let entries = entries();
    let sum: i64 = entries.iter().map(|entry| entry["amount_nano_usd"].as_i64().unwrap()).sum();
    let balances = json_of(&gate, &["--json", "ledger", "balances"]);
    let payer = balances["items"].as_array().unwrap().iter().find(|it| it["name"] == "payer").unwrap();
    assert_eq!(payer["balance_nano_usd"].as_i64(), Some(sum));
    let kinds: Vec<&str> = entries.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"settle") && kinds.contains(&"adjust") && kinds.last() == Some(&"top_up"), "{kinds:?}");
}

#[test]
fn the_whole_gateways_budget_refuses_everybody() {
    let upstream = Upstream::start();
    upstream.otherwise(reply());
    let gate = TestGateway::of(PROGRAM)
        .catalog(&support::catalog(&upstream, "cooling = false"))
        .env("TOLLGATE_BUDGET__DAY", "0.004")
        .spawn();
    assert_eq!(gate.chat(&asking(100)).status, 200);
    let refused = gate.chat(&asking(100));
    assert_eq!((refused.status, reason(&gate, &refused).as_str()), (429, "E33"), "{}", refused.text());
    assert!(refused.text().contains("of this gateway"), "{}", refused.text());
    let wrong = TestGateway::of(PROGRAM).env("TOLLGATE_BUDGET__DAY", "a lot").without_record_check().fail();
    assert_eq!(wrong.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("budget.day"), "{}", String::from_utf8_lossy(&wrong.stderr));
}

#[test]
fn a_budget_that_alerts_serves_on_and_tells_the_webhook_once() {
    let upstream = Upstream::start();
    upstream.otherwise(reply());
    let receiver = Upstream::start();
    receiver.otherwise(ScriptedResponse::status(204));
    let budget = "budget = { amount = \"0.005\", window = \"day\", action = \"alert\" }";
    let gate = TestGateway::of(PROGRAM)
        .catalog(&catalog(&upstream, budget, ""))
        .env("TOLLGATE_ALERTS__WEBHOOK", &format!("http://{}/told", receiver.address()))
        .env("TOLLGATE_ALERTS__SECRET", "a shared secret")
        .env("TOLLGATE_ALERTS__PRIVATE_NETWORK", "true")
        .spawn();
    for _ in 0..6 {
        assert_eq!(gate.chat(&asking(20)).status, 200, "it blocks nothing");
    }
    receiver.wait_for("an alert", |seen| !seen.is_empty());
    let seen = receiver.seen();
    assert_eq!(seen.len(), 1, "once, when it is crossed");
    let told = seen[0].json();
    assert_eq!((&told["event"], &told["of"], &told["name"]), (&json!("budget_spent"), &json!("key"), &json!("caller")));
    assert_eq!((&told["amount_usd"], &told["spent_usd"]), (&json!("0.005"), &json!("0.006")));
    assert!(seen[0].header("x-tollgate-signature").unwrap().starts_with("sha256="));
    assert!(!gate.log().contains("a shared secret"));
}

#[test]
fn verify_tells_books_that_agree_from_books_that_do_not() {
    let upstream = Upstream::start();
    upstream.otherwise(reply());
    let mut gate = support::builder(&upstream, "cooling = false").without_record_check().spawn();
    for _ in 0..5 {
        assert_eq!(gate.chat(&asking(20)).status, 200);
    }
    let beside = gate.run(&["verify"]);
    assert_eq!(beside.status.code(), Some(0), "beside a running gateway: {}", String::from_utf8_lossy(&beside.stderr));
    assert_eq!(gate.stop(), Some(0));
    let said = json_of(&gate, &["--json", "verify"]);
    assert_eq!(
        (&said["agrees"], &said["records"], &said["ledger_entries"], &said["attempts"]),
        (&json!(true), &json!(5), &json!(5), &json!(5))
    );
    let id = gate.records()[0]["id"].as_str().unwrap().to_owned();
    tamper(&gate, "UPDATE usage SET sale = sale + 1 WHERE id = ?", &id);
    let out = gate.run(&["verify"]);
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{told}");
    assert!(told.contains(&id) && told.contains("0.002000001") && told.contains("0.002"), "{told}");
    tamper(&gate, "UPDATE usage SET sale = sale - 1 WHERE id = ?", &id);
    tamper(&gate, "UPDATE balances SET balance = balance + 1000000000 WHERE member_id <> ?", "nobody");
    assert_eq!(gate.run(&["verify"]).status.code(), Some(1));
}

/// Changes the database behind the gateway's back.
fn tamper(gate: &TestGateway, sql: &'static str, id: &str) {
    let place = format!("sqlite:{}", gate.data().join("tollgate.db").display());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&place).await.unwrap();
        sqlx::query(sql).bind(id).execute(&mut database).await.unwrap();
        database.close().await.unwrap();
    });
}
