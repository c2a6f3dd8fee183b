//! Account health and selection: cooldowns that survive a kill, probing requests, concurrency permits, hedging, probes, and
//! the share of requests per account.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_testkit::{Latch, Request, ScriptedResponse, TestGateway, Upstream, wait_for};

use crate::{
    load,
    support::{self, PROGRAM, channel, group, prices},
};

/// Two channels of one account each, the second with lower priority.
fn catalog_of(first: &Upstream, second: &Upstream, lines: &str) -> String {
    channel("first", "openai", &first.openai_url(), "chat-model", lines)
        + &channel("second", "openai", &second.openai_url(), "chat-model", "priority = 1")
        + &prices(&["chat-model"])
        + &group(&["first", "second"])
}

/// Status of an account in `explain`: `planned`, or the reason for its exclusion.
fn account_status(gateway: &TestGateway, account: &str) -> String {
    let output = gateway.run(&["explain", "--model", "chat-model", "--key", "caller"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.split_whitespace().any(|word| word == account));
    let (_, rest) = line.and_then(|line| line.split_once(account)).unwrap_or_else(|| panic!("{account} is not in {text}"));
    rest.trim_start_matches(|c: char| c.is_whitespace() || c.is_ascii_digit()).split("  ").next().unwrap_or_default().to_owned()
}

/// Waits until the status of an account begins with `expected`.
fn wait_for_status(gateway: &TestGateway, account: &str, expected: &str) -> String {
    let mut found = String::new();
    wait_for(&format!("{account} is '{expected}'"), Duration::from_secs(2), || {
        found = account_status(gateway, account);
        found.starts_with(expected)
    });
    found
}

fn request(gateway: &TestGateway, body: &Value) -> Request {
    Request::post("/v1/chat/completions", body).bearer(gateway.key())
}

fn chat(gateway: &TestGateway) -> u16 {
    gateway.chat(&support::chat("chat-model")).status
}

/// How many chats an upstream has received; the rest are probes.
fn chats(upstream: &Upstream) -> usize {
    upstream.received().iter().filter(|received| received.line.ends_with("/chat/completions")).count()
}

fn error(status: u16, message: &str) -> ScriptedResponse {
    ScriptedResponse::error(status, &json!({"error": {"message": message}}))
}

#[test]
fn remaining_cooldown_survives_a_kill() {
    let (first, second) = (Upstream::start(), Upstream::start());
    first.set_default(error(429, "slow down").header("retry-after", "600"));
    let catalog = catalog_of(&first, &second, "");
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    assert_eq!((chat(&gateway), first.received().len()), (200, 1));
    let cools = wait_for_status(&gateway, "first-account", "cooling: rate_limited until ");

    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).data_folder(gateway.kill()).spawn();
    for _ in 0..5 {
        let answer = gateway.chat(&support::chat("chat-model"));
        assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("1")));
    }
    assert_eq!(first.received().len(), 1, "it still cools down");
    assert_eq!(account_status(&gateway, "first-account"), cools, "until the same time");
}

#[test]
fn failed_attempts_of_other_accounts_are_in_the_attempt_sums() {
    let (first, second) = (Upstream::start(), Upstream::start());
    first.set_default(error(500, "broken"));
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog_of(&first, &second, "")).spawn();
    assert_eq!((chat(&gateway), chats(&first), chats(&second)), (200, 1, 1));
    let sums = |by: &str| -> Vec<Value> {
        let output = gateway.run(&["usage", "attempts", "--by", by, "--json"]);
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["items"].as_array().unwrap().clone()
    };
    wait_for("both attempts are booked", Duration::from_secs(5), || sums("account").len() == 2);
    let shown = sums("account,result");
    let of = |name: &str| shown.iter().find(|row| row["name"] == name).unwrap();
    for (name, result, failed) in [("first/first-account", "refused", 1), ("second/second-account", "answered", 0)] {
        let row = of(name);
        assert_eq!(json!([row["and"], row["attempts"], row["failed"]]), json!([result, 1, failed]), "{name}");
    }
    let output = gateway.run(&["usage", "attempts", "--by", "account,error", "--sort", "failed"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.lines().nth(1).is_some_and(|line| line.contains("first/first-account")), "{table}");
}

#[test]
fn refused_credential_stays_excluded_after_restart() {
    let (first, second) = (Upstream::start(), Upstream::start());
    first.set_default(error(401, "who are you"));
    let catalog = catalog_of(&first, &second, "");
    let mut gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    assert_eq!(chat(&gateway), 200);
    wait_for_status(&gateway, "first-account", "cooling: refused until a test passes");
    assert_eq!(gateway.stop(), Some(0), "the stop saves health");
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).data_folder(gateway.into_data()).spawn();
    assert_eq!((chat(&gateway), chats(&first)), (200, 1));
    assert_eq!(account_status(&gateway, "first-account"), "cooling: refused until a test passes");
}

/// A 403 about the request, as for moderated content or a file of another account. The credential is valid.
fn forbidden() -> ScriptedResponse {
    ScriptedResponse::error(403, &json!({"error": {"message": "no permission to access the file", "code": 403}}))
}

#[test]
fn request_refused_by_every_upstream_excludes_no_account_for_others() {
    const HOSTILE: &str = "tk-hostile-0123456789abcdef";
    let upstreams = [Upstream::start(), Upstream::start(), Upstream::start()];
    let catalog: String = upstreams
        .iter()
        .enumerate()
        .map(|(at, upstream)| {
            channel(&format!("c{at}"), "openai", &upstream.openai_url(), "chat-model", &format!("priority = {at}"))
        })
        .collect();
    let catalog = catalog
        + &prices(&["chat-model"])
        + &group(&["c0", "c1", "c2"])
        + "[[member]]\nname = \"eve\"\n"
        + &crate::nodes::key("hostile", HOSTILE, "member = \"eve\"");
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    let hostile = Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(HOSTILE);
    for round in 1..=5 {
        for upstream in &upstreams {
            upstream.enqueue(forbidden());
        }
        let refused = gateway.send(&hostile);
        assert_eq!(refused.json()["error"]["code"], "upstream_account_error", "round {round}: {}", refused.text());
        // In the first round the request fails over to all accounts; in later rounds some may be excluded for the key.
        assert!(round > 1 || refused.header("x-tollgate-attempts") == Some("3"), "{}", refused.text());
        upstreams.iter().for_each(Upstream::clear);
        for _ in 0..4 {
            let answer = gateway.chat(&support::chat("chat-model"));
            assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("1")), "round {round}");
        }
        wait_for("that the key may use the accounts again", Duration::from_secs(2), || gateway.send(&hostile).status == 200);
    }
    for upstream in &upstreams {
        let probes = upstream.received().len() - chats(upstream);
        assert!(probes >= 1, "the first refusal is probed");
    }
    // The fallback accounts are usable, too.
    for upstream in &upstreams[..2] {
        upstream.set_default(error(500, "broken"));
    }
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("3")), "{}", answer.text());
}

#[test]
fn error_quoting_the_request_excludes_no_account_for_others() {
    const HOSTILE: &str = "tk-hostile-0123456789abcdef";
    let upstream = Upstream::start();
    let catalog = channel("only", "openai", &upstream.openai_url(), "chat-model", "")
        + &prices(&["chat-model"])
        + &group(&["only"])
        + "[[member]]\nname = \"eve\"\n"
        + &crate::nodes::key("hostile", HOSTILE, "member = \"eve\"");
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    let hostile = Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(HOSTILE);
    let words = "insufficient credits requests per";
    for (status, message) in [
        (400, format!("Unrecognized request argument supplied: {words}")),
        (403, format!("Your input was flagged: {words}")),
        (422, format!("{words}: Extra inputs are not permitted")),
    ] {
        let echo =
            error(status, &message).header("x-ratelimit-remaining-requests", "900").header("x-ratelimit-reset-requests", "14m24s");
        upstream.enqueue(echo);
        assert_ne!(gateway.send(&hostile).status, 200, "{message}");
        let answer = gateway.chat(&support::chat("chat-model"));
        assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("1")), "{message}: {}", answer.text());
        assert_eq!(gateway.send(&hostile).status, 200, "the answer to another key shows that the account serves");
    }
}

#[test]
fn passing_channel_test_ends_an_unsaved_exclusion() {
    let (first, second) = (Upstream::start(), Upstream::start());
    first.set_default(error(401, "who are you"));
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog_of(&first, &second, "")).spawn();
    assert_eq!((chat(&gateway), second.received().len()), (200, 1));
    first.set_default(ScriptedResponse::chat("well again"));
    let tested = gateway.run(&["channel", "test", "first"]);
    assert!(tested.status.success(), "{tested:?}");
    wait_for("that the account serves again", Duration::from_secs(4), || {
        let before = second.received().len();
        chat(&gateway) == 200 && second.received().len() == before
    });
}

#[test]
fn new_credential_starts_with_clean_health() {
    let (first, second) = (Upstream::start(), Upstream::start());
    let catalog = catalog_of(&first, &second, "");
    let replaced = |with: &str| catalog.replacen("credential = \"{credential}\"", &format!("credential = \"{with}\""), 1);
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    let latch = Latch::default();
    first.enqueue(error(401, "who are you").wait_after(0, &latch));
    let late = gateway.start_request(&request(&gateway, &support::chat("chat-model")));
    first.wait_for("the request that is refused late", |received| received.len() == 1);
    first.enqueue(error(401, "who are you"));
    assert_eq!((chat(&gateway), second.received().len()), (200, 1), "the old credential is excluded");

    // Immediately, before the exclusion was saved.
    gateway.serve_catalog(&replaced("sk-upstream-of-tomorrow"));
    let uses_new = || {
        let before = second.received().len();
        let is_served = chat(&gateway) == 200 && second.received().len() == before;
        let sent = first.received().last().and_then(|request| request.header("authorization").map(str::to_owned));
        is_served && sent.as_deref() == Some("Bearer sk-upstream-of-tomorrow")
    };
    wait_for("that the new credential is used", Duration::from_secs(4), uses_new);
    latch.open();
    assert_eq!(late.read().unwrap().status, 200, "the other account answers");
    assert!((0..5).all(|_| uses_new()), "a late refusal of the old credential does not affect the new one");
}

#[test]
fn one_request_probes_an_account_after_its_cooldown() {
    let (first, second) = (Upstream::start(), Upstream::start());
    first.set_default(error(429, "slow down").header("retry-after", "10"));
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog_of(&first, &second, "")).spawn();
    assert_eq!(chat(&gateway), 200);
    wait_for_status(&gateway, "first-account", "cooling: rate_limited");
    wait_for_status(&gateway, "first-account", "planned");

    let latch = Latch::default();
    first.set_default(ScriptedResponse::chat("well again").wait_after(0, &latch));
    let probe = gateway.start_request(&request(&gateway, &support::chat("chat-model")));
    first.wait_for("the probing request", |received| received.len() == 2);
    (0..7).for_each(|_| assert_eq!(chat(&gateway), 200));
    assert_eq!((first.received().len(), second.received().len()), (1 + 1, 1 + 7), "one of eight requests probes");
    latch.open();
    assert_eq!(probe.read().unwrap().status, 200);
    first.set_default(ScriptedResponse::chat("well again"));
    assert_eq!((chat(&gateway), first.received().len()), (200, 3), "the account serves all requests again");
}

#[test]
fn slow_first_token_is_hedged_on_a_second_account() {
    let (first, second) = (Upstream::start(), Upstream::start());
    let catalog = catalog_of(&first, &second, "").replace("[[group]]\n", "[[group]]\nhedge = { cost_cap = \"1.00\" }\n");
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    for _ in 0..40 {
        assert_eq!(gateway.chat(&support::chat_stream("chat-model")).status, 200);
    }
    assert_eq!(first.received().len(), 40);
    first.enqueue(ScriptedResponse::chat_stream(&["late"]).delay(Duration::from_secs(50)));
    second.set_default(ScriptedResponse::chat_stream(&["soon"]));
    let begin = Instant::now();
    let answer = gateway.chat(&support::chat_stream("chat-model"));
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert_eq!((answer.status, answer.complete, answer.header("x-tollgate-attempts")), (200, true, Some("2")));
    assert!(answer.text().contains("soon") && !answer.text().contains("late"), "{}", answer.text());
    first.wait_for("that the gateway left", |received| received.last().is_some_and(|last| last.closed_at.is_some()));

    let record = gateway.record_of(&answer);
    let attempts = record["attempts"].as_array().unwrap();
    let channels: Vec<_> = attempts.iter().map(|it| it["channel"].as_str().unwrap_or_default()).collect();
    assert_eq!(channels, ["first", "second"], "{record:#}");
    assert_eq!((&attempts[0]["result"], &attempts[1]["result"]), (&json!("cancelled"), &json!("answered")));
    assert_eq!(attempts[0]["beside"], true, "{record:#}");
    let costs: Vec<i64> = attempts.iter().map(|it| support::nano_usd(&it["cost"])).collect();
    assert!(costs.iter().all(|cost| *cost > 0), "{record:#}");
    assert_eq!(support::nano_usd(&record["cost"]), costs.iter().sum::<i64>(), "both attempts have a cost");
    // 5 and 7 tokens at 10 and 20 USD per million: the caller pays for one answer.
    assert_eq!(support::nano_usd(&record["sale"]), 190_000, "{record:#}");
}

#[test]
fn request_over_the_budget_of_an_expensive_account_uses_a_cheaper_one() {
    let upstream = Upstream::start();
    // 1,000 tokens of output at 2 USD per million: 0.006 USD on the expensive account, 0.002 on the cheap one.
    let budget = "budget = { amount = \"0.005\", window = \"total\", action = \"block\" }";
    let expensive = "name = \"only-account\"\ncost_multiplier = 3.0";
    let cheap = "[[channel.account]]\nname = \"cheap-account\"\ncredential = \"{credential}\"\n[[channel.serves]]";
    let catalog =
        (channel("only", "openai", &upstream.openai_url(), "chat-model", budget) + &prices(&["chat-model"]) + &group(&["only"]))
            .replace("name = \"only-account\"", expensive)
            .replace("[[channel.serves]]", cheap);
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    for number in 0..12 {
        let mut body = support::chat("chat-model");
        body["messages"][0]["content"] = format!("prompt-canary {number}").into();
        body["max_tokens"] = 1_000.into();
        let answer = gateway.chat(&body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(gateway.record_of(&answer)["attempts"][0]["account"], "cheap-account");
    }
}

#[test]
fn hedging_spend_survives_a_kill() {
    let (first, second) = (Upstream::start(), Upstream::start());
    // About a thousand tokens of input at 1 USD per million and free output: the cap suffices for one second attempt.
    let catalog = catalog_of(&first, &second, "")
        .replace("cost = { input = \"1\", output = \"2\" }", "cost = { input = \"1\", output = \"0\" }")
        .replace("[[group]]\n", "[[group]]\nhedge = { cost_cap = \"0.0012\" }\n");
    let mut long = support::chat_stream("chat-model");
    long["messages"][0]["content"] = "prompt-canary ".repeat(140).into();
    let attempts = |gateway: &TestGateway| {
        for _ in 0..40 {
            assert_eq!(gateway.chat(&support::chat_stream("chat-model")).status, 200);
        }
        first.enqueue(ScriptedResponse::chat_stream(&["late"]).delay(Duration::from_secs(2)));
        let answer = gateway.chat(&long);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let attempts = gateway.record_of(&answer)["attempts"].as_array().unwrap().len();
        first.clear();
        attempts
    };
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    assert_eq!(attempts(&gateway), 2);
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).data_folder(gateway.kill()).spawn();
    assert_eq!(attempts(&gateway), 1, "the day's cap is spent");
}

/// Ends a request in one way on the only account, whose concurrency is 1, and checks that the next request gets a permit.
fn releases_permit(name: &str, upstream: &Upstream, gateway: &TestGateway, reply: ScriptedResponse, end: impl FnOnce(&Request)) {
    upstream.enqueue(reply);
    end(&request(gateway, &support::chat_stream("chat-model")));
    // A leaked permit would make this request wait two seconds and fail.
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 200, "after '{name}': {}", answer.text());
}

#[test]
fn concurrency_permit_is_released_however_a_request_ends() {
    let upstream = Upstream::start();
    // Requests on a closed keep-alive connection would be retried otherwise.
    let lines = "cooling = false\nretry_uncertain = false\nfirst_byte_timeout_ms = 2000\nidle_timeout_ms = 2000";
    let catalog =
        (channel("only", "openai", &upstream.openai_url(), "chat-model", lines) + &prices(&["chat-model"]) + &group(&["only"]))
            .replace("name = \"only-account\"", "name = \"only-account\"\nconcurrency = 1");
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    let answered = |status: u16, whole: bool| {
        move |gateway: &TestGateway, request: &Request| {
            let answer = gateway.send(request);
            assert_eq!((answer.status, answer.complete), (status, whole), "{}", answer.text());
        }
    };
    let stream = || ScriptedResponse::chat_stream(&["hel", "lo"]);
    releases_permit("completed", &upstream, &gateway, stream(), |it| answered(200, true)(&gateway, it));
    releases_permit("refused", &upstream, &gateway, error(400, "no"), |it| answered(400, true)(&gateway, it));
    releases_permit("rate limited", &upstream, &gateway, error(429, "slow down"), |it| answered(429, true)(&gateway, it));
    releases_permit("failed", &upstream, &gateway, error(500, "boom"), |it| answered(502, true)(&gateway, it));
    releases_permit("hung up", &upstream, &gateway, ScriptedResponse::close_immediately(), |it| answered(502, true)(&gateway, it));
    releases_permit("cut", &upstream, &gateway, stream().cut_after(2), |it| answered(200, false)(&gateway, it));
    releases_permit("too late", &upstream, &gateway, stream().delay(Duration::from_secs(50)), |it| {
        answered(504, true)(&gateway, it);
    });
    releases_permit("stalled", &upstream, &gateway, stream().stall_after(2), |it| answered(200, false)(&gateway, it));
    releases_permit("disconnected before the first byte", &upstream, &gateway, stream().delay(Duration::from_millis(500)), |it| {
        let before = upstream.received().len();
        let open = gateway.start_request(it);
        upstream.wait_for("the request", |received| received.len() > before);
        open.abort();
    });
    releases_permit(
        "disconnected after the first byte",
        &upstream,
        &gateway,
        stream().chunk_delay(Duration::from_millis(500)),
        |it| {
            let mut open = gateway.start_request(it);
            let head = open.read_head().unwrap();
            assert!(open.read_chunk(&head).unwrap().is_some());
            open.abort();
        },
    );

    // The limit applied throughout: of two concurrent requests the second waits for the first.
    upstream.set_default(ScriptedResponse::chat("free").delay(Duration::from_millis(200)));
    let both: Vec<_> = (0..2).map(|_| gateway.start_request(&request(&gateway, &support::chat("chat-model")))).collect();
    assert!(both.into_iter().all(|open| open.read().unwrap().status == 200));
    let times: Vec<_> = upstream.received().iter().rev().take(2).map(|received| received.at).collect();
    assert!(times[0].duration_since(times[1]) >= Duration::from_millis(190), "{times:?}");
}

#[test]
fn free_probe_restores_a_refused_account_but_never_touches_a_disabled_one() {
    let (first, second, off) = (Upstream::start(), Upstream::start(), Upstream::start());
    first.set_default(error(401, "who are you"));
    let account_off = channel("half", "openai", &off.openai_url(), "chat-model", "probe_interval_s = 10")
        .replace("name = \"half-account\"", "name = \"half-account\"\nstatus = \"off\"");
    let catalog = catalog_of(&first, &second, "probe_interval_s = 10").replace("[\"first\", ", "[\"off\", \"half\", \"first\", ")
        + &channel("off", "openai", &off.openai_url(), "chat-model", "status = \"off\"\nprobe_interval_s = 10")
        + &account_off;
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).env("TOLLGATE_LOG__LEVEL", "info").spawn();
    assert_eq!((chat(&gateway), chats(&first)), (200, 1));
    wait_for_status(&gateway, "first-account", "cooling: refused until a test passes");
    // The provider has recovered; only a probe can detect it.
    first.set_default(ScriptedResponse::chat("well again"));
    wait_for_status(&gateway, "first-account", "planned");
    let probes: Vec<_> = first.received().into_iter().skip(1).collect();
    assert!(
        !probes.is_empty() && probes.iter().all(|received| received.line == "GET /v1/models" && received.body.is_empty()),
        "{probes:?}"
    );
    assert_eq!((chat(&gateway), second.received().len()), (200, 1), "it serves again");

    assert_eq!(gateway.records().len(), 2, "probes leave no record");
    let metrics = gateway.send(&Request::get("/metrics")).text();
    assert!(metrics.contains("tollgate_probes_total{channel=\"first\",result=\"well\"}"), "{metrics}");
    assert!(!gateway.log().contains("probed"), "nor a line at the usual level");
    assert!(off.received().is_empty(), "a disabled account is never probed: {:?}", off.received());
    assert_eq!(off.connections(), 0);
}

/// Sends this many requests, each a new conversation, over two channels of one priority; returns how many each received.
fn shares(lines: [&str; 2], costs: [&str; 2], routing: &str, count: usize) -> (usize, usize) {
    let (one, other) = (Upstream::start(), Upstream::start());
    let cost = |text: String, cost: &str| text.replace("cost = { input = \"1\"", &format!("cost = {{ input = \"{cost}\""));
    let catalog = cost(channel("one", "openai", &one.openai_url(), "chat-model", lines[0]), costs[0])
        + &cost(channel("other", "openai", &other.openai_url(), "chat-model", lines[1]), costs[1])
        + &prices(&["chat-model"])
        + &group(&["one", "other"]).replace("[[group]]\n", &format!("[[group]]\nrouting = \"{routing}\"\n"));
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    assert_eq!(load::send(&gateway, "chat-model", count, 4).failed(), 0);
    (one.received().len(), other.received().len())
}

#[test]
fn weighted_routing_follows_weights_and_cheapest_takes_one_account() {
    let (light, heavy) = shares(["weight = 1", "weight = 4"], ["1", "1"], "weighted", 1_000);
    // 200 of 1,000; six standard deviations are 76.
    assert!((124..=276).contains(&light) && light + heavy == 1_000, "{light} and {heavy}");
    assert_eq!(shares(["weight = 1", "weight = 9"], ["0.5", "1"], "cheapest", 100), (100, 0));
}

#[test]
fn fastest_routing_prefers_the_faster_account_once_both_are_measured() {
    assert_faster_account_preferred(&ScriptedResponse::chat_stream(&["slow"]), support::chat_stream);
}

#[test]
fn unstreamed_latency_is_measured_separately_from_streams() {
    assert_faster_account_preferred(&ScriptedResponse::chat("slow"), support::chat);
}

fn assert_faster_account_preferred(reply: &ScriptedResponse, body: impl Fn(&str) -> Value) {
    let (slow, fast) = (Upstream::start(), Upstream::start());
    slow.set_default(reply.clone().delay(Duration::from_millis(400)));
    let catalog = channel("slow", "openai", &slow.openai_url(), "chat-model", "weight = 9")
        + &channel("fast", "openai", &fast.openai_url(), "chat-model", "")
        + &prices(&["chat-model"])
        + &group(&["slow", "fast"]).replace("[[group]]\n", "[[group]]\nrouting = \"fastest\"\n");
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    let ask = |number: usize| {
        let mut body = body("chat-model");
        body["messages"][0]["content"] = format!("prompt-canary {number}").into();
        assert_eq!(gateway.chat(&body).status, 200);
    };
    (0..20).for_each(ask);
    let measured = slow.received().len();
    assert!(measured < 20 && fast.received().len() < 20 + 1, "{measured}");
    (20..60).for_each(ask);
    assert_eq!(slow.received().len(), measured, "whatever its weight");
}
