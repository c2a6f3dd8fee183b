//! Limits, budgets and reservations on the path: refusals, the imposed output limit, and that every reservation is settled
//! or released however a request ends.

use tollgate_core::{Billing, Budget, BudgetAction, CoolingRules, NanoUsd, Observation, Outcome, Subject, Window};
use tollgate_protocol::Protocol;

use super::*;

const NATIVE: &str = r#"{"contents":[{"role":"user","parts":[{"text":"hello there"}]}]}"#;

fn block(amount: i64) -> Vec<Budget> {
    vec![Budget { amount: NanoUsd(amount), window: Window::Month, action: BudgetAction::Block }]
}

/// One answer after the other.
fn replying(times: usize) -> Script {
    (0..times).fold(Script::new(), |script, _| script.replies(REPLY))
}

/// The sale of [`REPLY`]: 3 tokens in, 1 out.
const SALE: i64 = 3 * 1_000 + 2_000;

// === Rates ===

#[tokio::test(start_paused = true)]
async fn token_counts_have_their_own_limit_and_do_not_use_the_request_rate() {
    let mut rig = Rig::keyed(Script::new().replies(REPLY), |key| key.limits.rpm = 1);
    let count = async || {
        let mut incoming = rig.messages(r#"{"model":"m","messages":[{"role":"user","content":"foo"}],"tools":[]}"#);
        incoming.head.path = "/v1/messages/count_tokens".to_owned();
        incoming.target.method = Method::CountTokens;
        read(serve(&rig.core, incoming).await).await
    };
    for number in 0..120 {
        assert_eq!(count().await.status, 200, "count {number}");
    }
    let refused = count().await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.body.contains("limit 120, used 120"), "{}", refused.body);
    assert_eq!(rig.ask(CHAT).await.status, 200, "the request of the minute is left");
    assert_eq!(rig.ask(CHAT).await.status, 429);
    tokio::time::advance(120 * SECOND).await;
    assert_eq!(count().await.status, 200);
    rig.records();
}

#[tokio::test(start_paused = true)]
async fn exhausted_rate_is_e31_with_figures_until_the_minute_has_passed() {
    let mut rig = Rig::keyed(replying(3), |key| key.limits.rpm = 2);
    let first = rig.ask(CHAT).await;
    assert_eq!(first.status, 200);
    assert_eq!(
        ["limit-requests", "remaining-requests", "limit-tokens"].map(|it| first.header(&format!("x-ratelimit-{it}"))),
        [Some("2"), Some("1"), None]
    );
    assert_eq!(rig.ask(CHAT).await.header("x-ratelimit-remaining-requests"), Some("0"));
    let refused = rig.ask(CHAT).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limit_exceeded"));
    assert!(
        refused.body.contains("Rate limit reached for requests per minute: limit 2, used 2. Try again in "),
        "{}",
        refused.body
    );
    assert_eq!(refused.header("x-ratelimit-remaining-requests"), Some("0"));
    assert_eq!(refused.header("x-should-retry"), None, "waiting helps");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    tokio::time::advance(Duration::from_mins(2)).await;
    assert_eq!(rig.ask(CHAT).await.status, 200);
    let outcomes: Vec<_> = rig.records().into_iter().map(|record| (record.outcome, record.reason)).collect();
    assert_eq!(outcomes[2], (Outcome::Refused, Some("E31".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn token_rate_is_corrected_when_an_answer_ends() {
    let mut rig = Rig::keyed(replying(2), |key| key.limits.tpm = 30_000);
    let body = r#"{"model":"m","max_tokens":20000,"messages":[{"role":"user","content":"hello there"}]}"#;
    let first = rig.ask(body).await;
    assert_eq!(first.header("x-ratelimit-limit-tokens"), Some("30000"));
    assert_eq!(rig.ask(body).await.status, 200, "the first one used 4 of the 20,000 it might have used");
    assert_eq!(rig.records().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn event_stream_has_rate_limit_headers() {
    let mut rig = Rig::keyed(Script::new().streams(vec![role(), chunk("hi"), tail()]), |key| key.limits.rpm = 5);
    let got = rig.ask(STREAM).await;
    assert_eq!((got.status, got.header("x-ratelimit-limit-requests"), got.aborted), (200, Some("5"), false));
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn concurrency_limit_of_one_admits_the_next_request_after_the_first() {
    let script = Script::new().streams(vec![role(), chunk("hi"), Piece::Stall]).replies(REPLY).silent().replies(REPLY);
    let mut rig = Rig::keyed(script, |key| key.limits.concurrency = 1);
    let streaming = serve(&rig.core, rig.incoming(STREAM)).await;
    let refused = rig.ask(CHAT).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert!(refused.body.contains("Rate limit reached for concurrent requests: limit 1, used 1."), "{}", refused.body);
    drop(streaming);
    assert_eq!(rig.ask(CHAT).await.status, 200, "the caller left");
    let waiting = serve(&rig.core, rig.incoming(CHAT));
    assert!(tokio::time::timeout(SECOND, waiting).await.is_err());
    assert_eq!(rig.ask(CHAT).await.status, 200, "the caller left before an answer began");
    assert_eq!(rig.records().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn limits_of_member_and_group_apply() {
    let mut rig = Rig::keyed(replying(1), |key| key.member.limits.rpm = 1);
    assert_eq!([rig.ask(CHAT).await.status, rig.ask(CHAT).await.status], [200, 429]);
    assert_eq!(rig.records().len(), 2);
    let mut rig = Rig::new(replying(1), 1);
    rig.change_group(|group| group.limits.rpm = 1);
    assert_eq!([rig.ask(CHAT).await.status, rig.ask(CHAT).await.status], [200, 429]);
    assert_eq!(rig.records().len(), 2);
}

// === Money ===

#[tokio::test(start_paused = true)]
async fn key_with_a_budget_gets_an_output_limit_that_is_reported() {
    let mut rig = Rig::keyed(replying(1), |key| key.budgets = block(1_000_000_000));
    rig.change_model(|model| model.spec.max_output = Some(4_096));
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, Some("max_completion_tokens=4096")));
    let sent: serde_json::Value = serde_json::from_str(&rig.script.seen()[0].body).unwrap();
    assert_eq!(sent["max_completion_tokens"], 4_096);
    assert_eq!(rig.record().dropped, ["max_completion_tokens=4096"]);
}

#[tokio::test(start_paused = true)]
async fn callers_own_output_limit_is_kept() {
    let mut rig = Rig::keyed(replying(1), |key| key.budgets = block(1_000_000_000));
    let body = r#"{"model":"m","max_tokens":20,"messages":[{"role":"user","content":"hello there"}]}"#;
    let got = rig.ask(body).await;
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, None));
    assert_eq!(rig.script.seen()[0].body, body.replace("\"m\"", "\"up-m\""));
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn native_request_gets_the_limit_in_native_fields() {
    let reply = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1,"totalTokenCount":4}}"#;
    let mut rig = Rig::keyed(Script::new().replies(reply), |key| key.budgets = block(1_000_000_000));
    rig.change(|channels, _, models| {
        channels[0].spec.protocol = Protocol::Gemini;
        models[0].spec.max_output = Some(512);
    });
    let got = read(serve(&rig.core, rig.native(Method::Generate, NATIVE)).await).await;
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, Some("generationConfig.maxOutputTokens=512")));
    assert!(rig.script.seen()[0].body.contains(r#""generationConfig":{"maxOutputTokens":512}"#), "{}", rig.script.seen()[0].body);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn translated_request_gets_the_output_limit() {
    let mut rig = Rig::keyed(replying(1), |key| key.budgets = block(1_000_000_000));
    rig.change_model(|model| model.spec.max_output = Some(512));
    let got = read(serve(&rig.core, rig.native(Method::Generate, NATIVE)).await).await;
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, Some("generationConfig.maxOutputTokens=512")), "{}", got.body);
    let sent: serde_json::Value = serde_json::from_str(&rig.script.seen()[0].body).unwrap();
    assert_eq!(sent["max_tokens"], 512, "as this provider calls it");
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn remaining_budget_lowers_the_output_limit_then_gives_e33_then_e32() {
    // The input is reserved as 14 tokens: 11 bytes are 6 tokens, and 8 for the turn.
    let afford = |output: i64| 14 * 1_000 + output * 2_000;
    let mut rig = Rig::keyed(replying(2), |key| key.budgets = block(afford(300)));
    assert_eq!(rig.ask(CHAT).await.header("x-tollgate-dropped"), Some("max_completion_tokens=300"));
    let less = rig.ask(CHAT).await;
    assert_eq!(less.header("x-tollgate-dropped"), Some("max_completion_tokens=297"), "{SALE} are gone");
    let mut posted = rig.usage_writer.waiting();
    posted[0].sale = Some(NanoUsd(afford(300) - 2 * SALE - afford(100)));
    rig.core.shared.counters.settle(&posted[0], rig.clock.instant());
    let refused = rig.ask(CHAT).await;
    assert_eq!((refused.status, refused.header("x-should-retry")), (429, Some("false")));
    assert!(
        refused.body.contains("The estimated cost of this request exceeds the remaining budget of this API key."),
        "{}",
        refused.body
    );
    assert_eq!(rig.usage_writer.waiting()[0].reason.as_deref(), Some("E33"));
    posted[0].sale = Some(NanoUsd(afford(100)));
    rig.core.shared.counters.settle(&posted[0], rig.clock.instant());
    let refused = rig.ask(CHAT).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "insufficient_quota"));
    assert!(
        refused.body.contains("The monthly budget of this API key is spent (0.000614 of 0.000614 USD); it renews on 2026-12-01")
    );
    assert_eq!((refused.header("retry-after"), refused.header("x-should-retry")), (None, Some("false")));
    assert_eq!(rig.usage_writer.waiting()[0].reason.as_deref(), Some("E32"));
    assert_eq!(rig.script.seen().len(), 2, "nothing was sent for those that were refused");
}

#[tokio::test(start_paused = true)]
async fn prepaid_member_needs_a_balance() {
    let mut rig = Rig::keyed(replying(1), |key| key.member.billing = Billing::Prepaid);
    let refused = rig.ask(CHAT).await;
    assert_eq!(refused.status, 429);
    assert!(refused.body.contains("The balance of this API key's member is spent (0.00 USD left)."), "{}", refused.body);
    rig.core.shared.counters.record_posting(key().member.id, NanoUsd(1_000_000_000));
    assert_eq!(rig.ask(CHAT).await.status, 200);
    rig.core.shared.counters.record_posting(key().member.id, NanoUsd(SALE - 1_000_000_000));
    assert_eq!(rig.ask(CHAT).await.status, 429, "the sale was taken from the balance");
    assert_eq!(rig.records().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn refusal_names_the_exhausted_budget() {
    let refused = |rig: Rig| async move {
        let mut rig = rig;
        let got = rig.ask(CHAT).await;
        assert_eq!(rig.record().reason.as_deref(), Some("E32"));
        got.body
    };
    let member = refused(Rig::keyed(Script::new(), |key| key.member.budgets = block(0))).await;
    assert!(member.contains("The monthly budget of this API key's member is spent"), "{member}");
    let group = refused(Rig::grouped(Script::new(), 1, |group| group.budgets = block(0))).await;
    assert!(group.contains("The monthly budget of this API key's group is spent"), "{group}");
    let all = Budget { amount: NanoUsd(0), window: Window::Total, action: BudgetAction::Block };
    let gateway = refused(Rig::budgeted(Script::new(), &[all])).await;
    assert!(gateway.contains("The budget of this gateway is spent. Ask the operator to raise it."), "{gateway}");
}

#[tokio::test(start_paused = true)]
async fn model_without_a_price_is_refused_under_a_budget() {
    let mut rig = Rig::keyed(Script::new(), |key| key.budgets = block(1_000_000_000));
    rig.change_model(|model| model.spec.price = None);
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.header("x-tollgate-cause")), (503, Some("no_price")));
    assert_eq!((got.header("x-should-retry"), got.header("retry-after")), (Some("false"), None));
    assert_eq!(rig.record().reason.as_deref(), Some("E42"));
}

#[tokio::test(start_paused = true)]
async fn counting_tokens_needs_no_money() {
    let reply = r#"{"totalTokens":7}"#;
    let mut rig = Rig::keyed(Script::new().replies(reply), |key| key.budgets = block(0));
    rig.change(|channels, _, _| channels[0].spec.protocol = Protocol::Gemini);
    let got = read(serve(&rig.core, rig.native(Method::CountTokens, NATIVE)).await).await;
    assert_eq!((got.status, got.body.as_str()), (200, reply));
    rig.record();
}

// === Channels ===

#[tokio::test(start_paused = true)]
async fn channel_with_a_spent_budget_is_excluded() {
    let cost = 14 * 500 + 16_384 * 1_000;
    let mut rig = Rig::with(replying(2), 1, |channel| channel.spec.budgets = block(cost));
    rig.add_channel(|channel| {
        channel.spec.priority = 1;
        channel.spec.budgets.clear();
    });
    assert_eq!(rig.ask(CHAT).await.status, 200);
    let mut spent = rig.usage_writer.waiting().remove(0);
    assert_eq!(spent.attempts[0].channel_name, "one");
    // The remaining budget does not cover another request.
    assert_eq!(rig.ask(CHAT).await.status, 200);
    let second = rig.usage_writer.waiting().remove(0);
    assert_eq!(second.attempts[0].channel_name, "two");
    spent.sale = None;
    spent.attempts[0].cost = Some(NanoUsd(cost));
    rig.core.shared.counters.settle(&spent, rig.clock.instant());
    rig.change_group(|group| group.channels.truncate(1));
    let refused = rig.ask(CHAT).await;
    assert_eq!((refused.status, refused.header("x-tollgate-cause")), (503, Some("upstream_quota")));
    let record = rig.usage_writer.waiting().remove(0);
    assert_eq!((record.reason.as_deref(), &*record.trace[0].code), (Some("E40"), "budget"));
}

#[tokio::test(start_paused = true)]
async fn insufficient_budget_of_the_only_channel_is_e40() {
    let mut rig = Rig::with(Script::new(), 1, |channel| channel.spec.budgets = block(1_000));
    let refused = rig.ask(CHAT).await;
    assert_eq!((refused.status, refused.header("x-tollgate-cause")), (503, Some("upstream_quota")));
    assert_eq!((rig.script.seen().len(), rig.record().attempts.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn cause_covers_all_candidates_if_a_budget_skips_a_channel() {
    let mut rig = Rig::with(Script::new(), 3, |channel| channel.spec.budgets = block(1_000));
    rig.add_channel(|channel| channel.spec.budgets.clear());
    let until = Some(rig.clock.now().plus_ms(20_000));
    rig.registry.observe(account(99).id, &Observation::RateLimited { until }, CoolingRules::default(), rig.clock.now());
    let refused = rig.ask(CHAT).await;
    assert_eq!((refused.status, refused.header("x-tollgate-cause")), (503, Some("upstream_rate_limited")));
    assert_eq!((refused.header("retry-after"), rig.script.seen().len()), (Some("20"), 0));
    let record = rig.record();
    let codes: Vec<_> = record.trace.iter().map(|entry| (entry.channel.as_str(), &*entry.code)).collect();
    assert_eq!(codes, [("one", "budget"), ("two", "cooling")]);
}

// === Endings ===

#[tokio::test(start_paused = true)]
async fn every_ending_settles_all_reservations() {
    let bounded = |script| {
        Rig::keyed(script, |key| {
            key.budgets = block(1_000_000_000);
            key.limits.concurrency = 1;
            key.limits.rpm = 100;
            key.limits.tpm = 1_000_000;
        })
    };
    let broken = || vec![role(), chunk("hi"), Piece::Break];
    for (script, body, status) in [
        (replying(1), CHAT, 200),
        (Script::new().streams(vec![role(), chunk("hi"), tail()]), STREAM, 200),
        (Script::new().streams(broken()), STREAM, 200),
        (Script::new().refuses(400, &[]), CHAT, 400),
        (Script::new().refuses(500, &[]), CHAT, 502),
        (Script::new().not_sent(), CHAT, 502),
        (Script::new().lost(), STREAM, 502),
        (Script::new().replies("<html>"), CHAT, 502),
        (Script::new().silent(), CHAT, 504),
        (Script::new().streams(vec![role(), chunk("hi"), Piece::Stall]), STREAM, 200),
        (Script::new(), r#"{"model":"none","messages":[{"role":"user","content":"x"}]}"#, 404),
        (Script::new(), "{", 400),
    ] {
        let mut rig = bounded(script);
        assert_eq!(rig.ask(body).await.status, status, "{body}");
        let record = rig.record();
        let spent = rig.core.shared.counters.spent(Subject::Key(record.key), Window::Month, record.at);
        assert_eq!(spent, record.sale.unwrap(), "only the sale amount is still counted: {body}");
    }
}

// === The journal cannot be written ===

#[tokio::test(start_paused = true)]
async fn full_journal_refuses_keys_with_a_budget_and_serves_others() {
    let full_journal = |dir: &std::path::Path| {
        let mut options = JournalOptions::new(dir.to_owned(), uuid::Uuid::nil());
        (options.max_bytes, options.memory_bytes) = (0, 0);
        options
    };
    let mut bounded = key();
    bounded.budgets = block(1_000_000_000);
    let rig = Rig::build_for(Script::new(), 1, full_journal, |_| {}, bounded, &[]);
    let refused = rig.ask(CHAT).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "server_overloaded"), "{}", refused.body);
    assert_eq!(rig.script.seen().len(), 0, "nothing is sent");
    assert_eq!(rig.core.shared.counters.open_reservations(), 0, "the reservation is released");
    let rig = Rig::build(replying(1), 1, full_journal, |_| {});
    assert_eq!(rig.ask(CHAT).await.status, 200, "keys without a budget are served");
}
