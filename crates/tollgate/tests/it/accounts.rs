//! Accounts over their life: what one rests for outlives a kill, one request finds out whether it is well again, rooms are
//! given back in every ending, second attempts beside late ones, probes, and who gets which share.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_testkit::{Latch, Request, ScriptedResponse, TestGateway, Upstream, wait_for};

use crate::{
    load,
    support::{self, PROGRAM, channel, group, prices},
};

/// Two channels of one account each, the second behind the first.
fn catalog_of(first: &Upstream, second: &Upstream, lines: &str) -> String {
    channel("first", "openai", &first.openai(), "chat-model", lines)
        + &channel("second", "openai", &second.openai(), "chat-model", "priority = 1")
        + &prices(&["chat-model"])
        + &group(&["first", "second"])
}

/// What `explain` says of an account: `planned`, or why not.
fn standing(gate: &TestGateway, account: &str) -> String {
    let output = gate.run(&["explain", "--model", "chat-model", "--key", "caller"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.split_whitespace().any(|word| word == account));
    let (_, rest) = line.and_then(|line| line.split_once(account)).unwrap_or_else(|| panic!("{account} is not in {text}"));
    rest.trim_start_matches(|c: char| c.is_whitespace() || c.is_ascii_digit()).split("  ").next().unwrap_or_default().to_owned()
}

/// Waits until `explain` says what it should of an account.
fn wait_until(gate: &TestGateway, account: &str, says: &str) -> String {
    let mut found = String::new();
    wait_for(&format!("{account} is '{says}'"), Duration::from_secs(2), || {
        found = standing(gate, account);
        found.starts_with(says)
    });
    found
}

fn request(gate: &TestGateway, body: &Value) -> Request {
    Request::post("/v1/chat/completions", body).bearer(gate.key())
}

fn chat(gate: &TestGateway) -> u16 {
    gate.chat(&support::chat("chat-model")).status
}

fn error(status: u16, message: &str) -> ScriptedResponse {
    ScriptedResponse::error(status, &json!({"error": {"message": message}}))
}

#[test]
fn what_an_account_cools_for_outlives_a_kill_with_the_time_that_is_left() {
    let (first, second) = (Upstream::start(), Upstream::start());
    first.otherwise(error(429, "slow down").header("retry-after", "600"));
    let catalog = catalog_of(&first, &second, "");
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    assert_eq!((chat(&gate), first.seen().len()), (200, 1));
    let cools = wait_until(&gate, "first-account", "cooling: rate_limited until ");

    let gate = TestGateway::of(PROGRAM).catalog(&catalog).on(gate.kill()).spawn();
    for _ in 0..5 {
        let answer = gate.chat(&support::chat("chat-model"));
        assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("1")));
    }
    assert_eq!(first.seen().len(), 1, "it is left alone still");
    assert_eq!(standing(&gate, "first-account"), cools, "until the same moment");
}

#[test]
fn a_credential_that_was_refused_rests_over_a_restart() {
    let (first, second) = (Upstream::start(), Upstream::start());
    first.otherwise(error(401, "who are you"));
    let catalog = catalog_of(&first, &second, "");
    let mut gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    assert_eq!(chat(&gate), 200);
    assert_eq!(gate.stop(), Some(0), "what is not saved yet is saved at the end");
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).on(gate.take_data()).spawn();
    assert_eq!((chat(&gate), first.seen().len()), (200, 1));
    assert_eq!(standing(&gate, "first-account"), "cooling: refused until a test passes");
}

#[test]
fn a_test_that_passes_before_the_rest_is_saved_ends_it() {
    let (first, second) = (Upstream::start(), Upstream::start());
    first.otherwise(error(401, "who are you"));
    let gate = TestGateway::of(PROGRAM).catalog(&catalog_of(&first, &second, "")).spawn();
    assert_eq!((chat(&gate), second.seen().len()), (200, 1));
    first.otherwise(ScriptedResponse::chat("well again"));
    let tested = gate.run(&["channel", "test", "first"]);
    assert!(tested.status.success(), "{tested:?}");
    wait_for("that the account serves again", Duration::from_secs(4), || {
        let before = second.seen().len();
        chat(&gate) == 200 && second.seen().len() == before
    });
}

#[test]
fn a_new_credential_is_used_at_once_and_owes_nothing_to_answers_to_the_old_one() {
    let (first, second) = (Upstream::start(), Upstream::start());
    let catalog = catalog_of(&first, &second, "");
    let replaced = |with: &str| catalog.replacen("credential = \"{credential}\"", &format!("credential = \"{with}\""), 1);
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    let hold = Latch::default();
    first.next(error(401, "who are you").wait_after(0, &hold));
    let late = gate.open(&request(&gate, &support::chat("chat-model")));
    first.wait_for("the one that is refused late", |seen| seen.len() == 1);
    first.next(error(401, "who are you"));
    assert_eq!((chat(&gate), second.seen().len()), (200, 1), "the old credential rests");

    // At once: nothing but the request's own path has heard of the rest yet.
    gate.serve_catalog(&replaced("sk-upstream-of-tomorrow"));
    let uses_new = || {
        let before = second.seen().len();
        chat(&gate) == 200 && second.seen().len() == before
    };
    wait_for("that the new credential is used", Duration::from_secs(4), uses_new);
    let header = first.seen().last().unwrap().header("authorization").map(str::to_owned);
    assert_eq!(header.as_deref(), Some("Bearer sk-upstream-of-tomorrow"));
    hold.open();
    assert_eq!(late.answer().unwrap().status, 200, "it is answered by the other account");
    assert!((0..5).all(|_| uses_new()), "a late word about the old credential says nothing of the new one");
}

#[test]
fn after_cooling_one_request_is_the_probe_and_the_others_keep_away() {
    let (first, second) = (Upstream::start(), Upstream::start());
    first.otherwise(error(429, "slow down").header("retry-after", "10"));
    let gate = TestGateway::of(PROGRAM).catalog(&catalog_of(&first, &second, "")).spawn();
    assert_eq!(chat(&gate), 200);
    wait_until(&gate, "first-account", "cooling: rate_limited");
    wait_until(&gate, "first-account", "planned");

    let hold = Latch::default();
    first.otherwise(ScriptedResponse::chat("well again").wait_after(0, &hold));
    let probe = gate.open(&request(&gate, &support::chat("chat-model")));
    first.wait_for("the one that finds out", |seen| seen.len() == 2);
    (0..7).for_each(|_| assert_eq!(chat(&gate), 200));
    assert_eq!((first.seen().len(), second.seen().len()), (1 + 1, 1 + 7), "one of the eight finds out");
    hold.open();
    assert_eq!(probe.answer().unwrap().status, 200);
    first.otherwise(ScriptedResponse::chat("well again"));
    assert_eq!((chat(&gate), first.seen().len()), (200, 3), "it is usable for all now");
}

#[test]
fn a_late_first_token_is_overtaken_by_a_second_account() {
    let (first, second) = (Upstream::start(), Upstream::start());
    let catalog = catalog_of(&first, &second, "").replace("[[group]]\n", "[[group]]\nhedge = { cost_cap = \"1.00\" }\n");
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    for _ in 0..40 {
        assert_eq!(gate.chat(&support::chat_stream("chat-model")).status, 200);
    }
    assert_eq!(first.seen().len(), 40);
    first.next(ScriptedResponse::chat_stream(&["late"]).after(Duration::from_secs(50)));
    second.otherwise(ScriptedResponse::chat_stream(&["soon"]));
    let begin = Instant::now();
    let answer = gate.chat(&support::chat_stream("chat-model"));
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert_eq!((answer.status, answer.whole, answer.header("x-tollgate-attempts")), (200, true, Some("2")));
    assert!(answer.text().contains("soon") && !answer.text().contains("late"), "{}", answer.text());
    first.wait_for("that the gateway left", |seen| seen.last().is_some_and(|last| last.left_at.is_some()));

    let record = gate.record_of(&answer);
    let attempts = record["attempts"].as_array().unwrap();
    let channels: Vec<_> = attempts.iter().map(|it| it["channel"].as_str().unwrap_or_default()).collect();
    assert_eq!(channels, ["first", "second"], "{record:#}");
    assert_eq!((&attempts[0]["result"], &attempts[1]["result"]), (&json!("cancelled"), &json!("answered")));
    assert_eq!(attempts[0]["beside"], true, "{record:#}");
    let costs: Vec<i64> = attempts.iter().map(|it| it["cost_nano_usd"].as_i64().unwrap()).collect();
    assert!(costs.iter().all(|cost| *cost > 0), "{record:#}");
    assert_eq!(record["cost_nano_usd"], costs.iter().sum::<i64>(), "both are paid for");
    // 5 and 7 tokens at 10 and 20 USD per million: the caller pays for one answer.
    assert_eq!(record["sale_nano_usd"], 190_000, "{record:#}");
}

#[test]
fn a_budget_that_a_dear_account_would_break_is_served_by_a_cheap_one() {
    let upstream = Upstream::start();
    // 1,000 tokens of output at 2 USD per million: 0.006 USD on the dear account, 0.002 on the cheap one.
    let budget = "budget = { amount = \"0.005\", window = \"total\", action = \"block\" }";
    let dear = "name = \"only-account\"\ncost_multiplier = 3.0";
    let cheap = "[[channel.account]]\nname = \"cheap-account\"\ncredential = \"{credential}\"\n[[channel.serves]]";
    let catalog =
        (channel("only", "openai", &upstream.openai(), "chat-model", budget) + &prices(&["chat-model"]) + &group(&["only"]))
            .replace("name = \"only-account\"", dear)
            .replace("[[channel.serves]]", cheap);
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    for number in 0..12 {
        let mut body = support::chat("chat-model");
        body["messages"][0]["content"] = format!("prompt-canary {number}").into();
        body["max_tokens"] = 1_000.into();
        let answer = gate.chat(&body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(gate.record_of(&answer)["attempts"][0]["account"], "cheap-account");
    }
}

#[test]
fn what_second_attempts_cost_is_remembered_over_a_kill() {
    let (first, second) = (Upstream::start(), Upstream::start());
    // About a thousand tokens of input at 1 USD per million and output for nothing: one second attempt fits, and what it
    // leaves does not suffice for another.
    let catalog = catalog_of(&first, &second, "")
        .replace("cost = { input = \"1\", output = \"2\" }", "cost = { input = \"1\", output = \"0\" }")
        .replace("[[group]]\n", "[[group]]\nhedge = { cost_cap = \"0.0012\" }\n");
    let mut long = support::chat_stream("chat-model");
    long["messages"][0]["content"] = "prompt-canary ".repeat(140).into();
    let attempts = |gate: &TestGateway| {
        for _ in 0..40 {
            assert_eq!(gate.chat(&support::chat_stream("chat-model")).status, 200);
        }
        first.next(ScriptedResponse::chat_stream(&["late"]).after(Duration::from_secs(2)));
        let answer = gate.chat(&long);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let attempts = gate.record_of(&answer)["attempts"].as_array().unwrap().len();
        first.clear();
        attempts
    };
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    assert_eq!(attempts(&gate), 2);
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).on(gate.kill()).spawn();
    assert_eq!(attempts(&gate), 1, "the day's cap is spent");
}

/// One ending of a request on the only account, which takes one request at once.
fn ends(name: &str, upstream: &Upstream, gate: &TestGateway, reply: ScriptedResponse, end: impl FnOnce(&Request)) {
    upstream.next(reply);
    end(&request(gate, &support::chat_stream("chat-model")));
    // A room that is not given back is waited for, two seconds long, and then refused.
    let answer = gate.chat(&support::chat("chat-model"));
    assert_eq!(answer.status, 200, "after '{name}': {}", answer.text());
}

#[test]
fn an_accounts_room_is_given_back_in_every_ending() {
    let upstream = Upstream::start();
    // A kept connection that hangs up would have its request sent again.
    let lines = "cooling = false\nretry_uncertain = false\nfirst_byte_timeout_ms = 2000\nidle_timeout_ms = 2000";
    let catalog =
        (channel("only", "openai", &upstream.openai(), "chat-model", lines) + &prices(&["chat-model"]) + &group(&["only"]))
            .replace("name = \"only-account\"", "name = \"only-account\"\nconcurrency = 1");
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    let answered = |status: u16, whole: bool| {
        move |gate: &TestGateway, request: &Request| {
            let answer = gate.send(request);
            assert_eq!((answer.status, answer.whole), (status, whole), "{}", answer.text());
        }
    };
    let stream = || ScriptedResponse::chat_stream(&["hel", "lo"]);
    ends("completed", &upstream, &gate, stream(), |it| answered(200, true)(&gate, it));
    ends("refused", &upstream, &gate, error(400, "no"), |it| answered(400, true)(&gate, it));
    ends("rate limited", &upstream, &gate, error(429, "slow down"), |it| answered(429, true)(&gate, it));
    ends("failed", &upstream, &gate, error(500, "boom"), |it| answered(502, true)(&gate, it));
    ends("hung up", &upstream, &gate, ScriptedResponse::close_immediately(), |it| answered(502, true)(&gate, it));
    ends("cut", &upstream, &gate, stream().cut_after(2), |it| answered(200, false)(&gate, it));
    ends("too late", &upstream, &gate, stream().after(Duration::from_secs(50)), |it| answered(504, true)(&gate, it));
    ends("stalled", &upstream, &gate, stream().stall_after(2), |it| answered(200, false)(&gate, it));
    ends("the caller left before the first byte", &upstream, &gate, stream().after(Duration::from_millis(500)), |it| {
        let before = upstream.seen().len();
        let open = gate.open(it);
        upstream.wait_for("the request", |seen| seen.len() > before);
        open.leave();
    });
    ends("the caller left behind the first byte", &upstream, &gate, stream().every(Duration::from_millis(500)), |it| {
        let mut open = gate.open(it);
        let head = open.head().unwrap();
        assert!(open.piece(&head).unwrap().is_some());
        open.leave();
    });

    // It was a bound all the time: of two at once the second waits for the first.
    upstream.otherwise(ScriptedResponse::chat("free").after(Duration::from_millis(200)));
    let both: Vec<_> = (0..2).map(|_| gate.open(&request(&gate, &support::chat("chat-model")))).collect();
    assert!(both.into_iter().all(|open| open.answer().unwrap().status == 200));
    let times: Vec<_> = upstream.seen().iter().rev().take(2).map(|seen| seen.at).collect();
    assert!(times[0].duration_since(times[1]) >= Duration::from_millis(190), "{times:?}");
}

#[test]
fn a_refused_account_comes_back_by_a_free_probe_and_a_disabled_one_is_never_touched() {
    let (first, second, off) = (Upstream::start(), Upstream::start(), Upstream::start());
    first.otherwise(error(401, "who are you"));
    let account_off = channel("half", "openai", &off.openai(), "chat-model", "probe_interval_s = 10")
        .replace("name = \"half-account\"", "name = \"half-account\"\nstatus = \"off\"");
    let catalog = catalog_of(&first, &second, "probe_interval_s = 10").replace("[\"first\", ", "[\"off\", \"half\", \"first\", ")
        + &channel("off", "openai", &off.openai(), "chat-model", "status = \"off\"\nprobe_interval_s = 10")
        + &account_off;
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).env("TOLLGATE_LOG__LEVEL", "info").spawn();
    assert_eq!((chat(&gate), first.seen().len()), (200, 1));
    wait_until(&gate, "first-account", "cooling: refused until a test passes");
    // The provider is well again. Nothing but a probe can find out.
    first.otherwise(ScriptedResponse::chat("well again"));
    wait_until(&gate, "first-account", "planned");
    let probes: Vec<_> = first.seen().into_iter().skip(1).collect();
    assert!(!probes.is_empty() && probes.iter().all(|seen| seen.line == "GET /v1/models" && seen.body.is_empty()), "{probes:?}");
    assert_eq!((chat(&gate), second.seen().len()), (200, 1), "it serves again");

    assert_eq!(gate.records().len(), 2, "probes leave no record");
    let metrics = gate.send(&Request::get("/metrics")).text();
    assert!(metrics.contains("tollgate_probes_total{channel=\"first\",result=\"well\"}"), "{metrics}");
    assert!(!gate.log().contains("probed"), "nor a line at the usual level");
    assert!(off.seen().is_empty(), "what is off by hand is nobody's business: {:?}", off.seen());
    assert_eq!(off.connections(), 0);
}

/// Sends requests of as many conversations over two channels of one tier; how many each of them got.
fn shares(lines: [&str; 2], costs: [&str; 2], routing: &str, count: usize) -> (usize, usize) {
    let (one, other) = (Upstream::start(), Upstream::start());
    let cost = |text: String, cost: &str| text.replace("cost = { input = \"1\"", &format!("cost = {{ input = \"{cost}\""));
    let catalog = cost(channel("one", "openai", &one.openai(), "chat-model", lines[0]), costs[0])
        + &cost(channel("other", "openai", &other.openai(), "chat-model", lines[1]), costs[1])
        + &prices(&["chat-model"])
        + &group(&["one", "other"]).replace("[[group]]\n", &format!("[[group]]\nrouting = \"{routing}\"\n"));
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    assert_eq!(load::send(&gate, "chat-model", count, 4).failed(), 0);
    (one.seen().len(), other.seen().len())
}

#[test]
fn weights_share_requests_out_and_the_cheapest_gets_them_all() {
    let (light, heavy) = shares(["weight = 1", "weight = 4"], ["1", "1"], "weighted", 1_000);
    // 200 of 1,000; six standard deviations are 76.
    assert!((124..=276).contains(&light) && light + heavy == 1_000, "{light} and {heavy}");
    assert_eq!(shares(["weight = 1", "weight = 9"], ["0.5", "1"], "cheapest", 100), (100, 0));
}

#[test]
fn the_faster_one_of_two_gets_what_comes_once_both_are_measured() {
    the_faster_one_gets_what_comes(&ScriptedResponse::chat_stream(&["slow"]), support::chat_stream);
}

#[test]
fn answers_that_come_whole_are_measured_by_themselves() {
    the_faster_one_gets_what_comes(&ScriptedResponse::chat("slow"), support::chat);
}

fn the_faster_one_gets_what_comes(reply: &ScriptedResponse, body: impl Fn(&str) -> Value) {
    let (slow, fast) = (Upstream::start(), Upstream::start());
    slow.otherwise(reply.clone().after(Duration::from_millis(400)));
    let catalog = channel("slow", "openai", &slow.openai(), "chat-model", "weight = 9")
        + &channel("fast", "openai", &fast.openai(), "chat-model", "")
        + &prices(&["chat-model"])
        + &group(&["slow", "fast"]).replace("[[group]]\n", "[[group]]\nrouting = \"fastest\"\n");
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    let ask = |number: usize| {
        let mut body = body("chat-model");
        body["messages"][0]["content"] = format!("prompt-canary {number}").into();
        assert_eq!(gate.chat(&body).status, 200);
    };
    (0..20).for_each(ask);
    let measured = slow.seen().len();
    assert!(measured < 20 && fast.seen().len() < 20 + 1, "{measured}");
    (20..60).for_each(ask);
    assert_eq!(slow.seen().len(), measured, "whatever its weight");
}
