//! Hedge attempts: the winner, the cancelled attempt, the records, and cases without a hedge.

use tollgate_core::{AttemptResult, Hedge, NanoUsd, Outcome};

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A rig whose group hedges, with first tokens of `m` known to come within about 100 ms.
fn hedging(script: Script, accounts: u8) -> Rig {
    hedging_for(script, accounts, NanoUsd(1_000_000_000))
}

fn hedging_for(script: Script, accounts: u8, cost_cap: NanoUsd) -> Rig {
    let rig = Rig::grouped(script, accounts, |group| group.hedge = Some(Hedge { cost_cap }));
    for _ in 0..1_000 {
        rig.core.shared.traffic.latency.record("m", 100_000, rig.clock.instant());
    }
    rig
}

fn late(after: Duration) -> Vec<Piece> {
    vec![role(), Piece::Wait(after), chunk("late"), tail()]
}

fn prompt(text: &str) -> Vec<Piece> {
    vec![role(), chunk(text), tail()]
}

fn results(record: &UsageRecord) -> Vec<(Option<&str>, AttemptResult)> {
    record.attempts.iter().map(|attempt| (attempt.error.as_deref(), attempt.result)).collect()
}

#[tokio::test(start_paused = true)]
async fn late_first_token_starts_a_hedge_and_the_first_answer_wins() {
    let mut rig = hedging(Script::new().streams(late(SECOND * 30)).streams(prompt("soon")), 2);
    let began = tokio::time::Instant::now();
    let got = rig.ask(STREAM).await;
    assert!(got.body.contains("soon") && !got.body.contains("late"), "{}", got.body);
    assert!((MS * 100..MS * 130).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!((got.status, got.aborted, got.header("x-tollgate-attempts")), (200, false, Some("2")));
    let record = rig.record();
    assert_eq!(results(&record), [(None, AttemptResult::Cancelled), (None, AttemptResult::Answered)]);
    assert_ne!(record.attempts[0].account, record.attempts[1].account);
    assert_eq!((record.outcome, rig.script.open()), (Outcome::Completed, 0));
    assert!(record.cost.unwrap() > record.attempts[1].cost.unwrap(), "what was given up is paid for too");
    assert_eq!(record.tokens.output, 2, "the caller pays for one answer");
}

#[tokio::test(start_paused = true)]
async fn thinking_model_does_not_win_against_a_hedge_that_answers_first() {
    // The first attempt sends keep-alives throughout; the second begins after 25 s and needs 29 s.
    let thinks: Vec<_> = (0..200).flat_map(|_| [Piece::Wait(SECOND), ": thinking\n\n".into()]).collect();
    let mut rig = Rig::grouped(Script::new().streams(thinks).streams(late(SECOND * 29)), 2, |group| {
        group.hedge = Some(Hedge { cost_cap: NanoUsd(1_000_000_000) });
    });
    for _ in 0..1_000 {
        rig.core.shared.traffic.latency.record("m", 25_000_000, rig.clock.instant());
    }
    let got = rig.ask(STREAM).await;
    assert!(got.body.contains("late"), "{}", got.body);
    assert_eq!(results(&rig.record()), [(None, AttemptResult::Cancelled), (None, AttemptResult::Answered)]);
}

#[tokio::test(start_paused = true)]
async fn losing_attempt_is_cancelled_in_the_callers_trace() {
    let rig = hedging(Script::new().streams(late(SECOND * 30)).streams(prompt("soon")), 2);
    rig.change_group(|group| group.trace = true);
    let mut incoming = rig.incoming(STREAM);
    incoming.head.headers.append("x-tollgate-trace", "1".parse().unwrap());
    let got = read(serve(&rig.core, incoming).await).await;
    let trace = got.header("x-tollgate-trace").unwrap();
    assert!(trace.ends_with("; attempts: cancelled, ok"), "{trace}");
}

#[tokio::test(start_paused = true)]
async fn first_attempt_wins_when_it_answers_before_the_hedge() {
    let mut rig = hedging(Script::new().streams(late(MS * 200)).silent(), 2);
    let got = rig.ask(STREAM).await;
    assert!(got.body.contains("late"), "{}", got.body);
    let record = rig.record();
    assert_eq!(results(&record), [(None, AttemptResult::Cancelled), (None, AttemptResult::Answered)]);
    assert_eq!(record.attempts[1].account, rig.script.seen()[0].account);
    assert_eq!(rig.script.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_hedge_when_it_is_not_needed_or_not_allowed() {
    // The answer is in time; no other account; not streamed; too few latency samples; the cap is exhausted; the cost is unknown.
    let untaught = Rig::grouped(Script::new().streams(late(SECOND)), 2, |group| {
        group.hedge = Some(Hedge { cost_cap: NanoUsd(1_000_000_000) });
    });
    let whole = Script::new().answers(200, &[("content-type", "application/json")], vec![Piece::Wait(SECOND), REPLY.into()]);
    for (mut rig, body) in [
        (hedging(Script::new().streams(late(MS * 50)), 2), STREAM),
        (hedging(Script::new().streams(late(SECOND)), 1), STREAM),
        (hedging(whole, 2), CHAT),
        (untaught, STREAM),
        (hedging_for(Script::new().streams(late(SECOND)), 2, NanoUsd(1)), STREAM),
    ] {
        assert_eq!(rig.ask(body).await.status, 200);
        assert_eq!(results(&rig.record()), [(None, AttemptResult::Answered)]);
    }
    let rig = hedging(Script::new().streams(late(SECOND)), 2);
    let catalog = rig.core.shared.catalog.load_full();
    let mut channel = Channel::clone(&catalog.channels[0]);
    channel.spec.serves[0].cost = None;
    let (groups, models) = (catalog.groups.values(), catalog.models.values());
    let (groups, models) = (groups.map(|it| Group::clone(it)).collect(), models.map(|it| Model::clone(it)).collect());
    rig.core.shared.catalog.store(Arc::new(Catalog::from_parts(catalog.revision, vec![channel], groups, models)));
    assert_eq!(rig.ask(STREAM).await.header("x-tollgate-attempts"), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn no_hedge_without_retry_uncertain() {
    let rig_of = |no_resend: [bool; 2]| {
        let rig = hedging(Script::new().streams(late(SECOND)).streams(prompt("soon")), 1);
        let catalog = rig.core.shared.catalog.load_full();
        let mut channels = vec![Channel::clone(&catalog.channels[0]), Channel::clone(&catalog.channels[0])];
        channels[1].id = tollgate_core::ChannelId::from_parts(Timestamp(1), [2; 10]);
        channels[1].spec.name = "two".to_owned();
        channels[1].spec.priority = 1;
        channels[1].accounts = vec![Arc::new(account(2))];
        for (channel, no_resend) in channels.iter_mut().zip(no_resend) {
            channel.spec.retry_uncertain = !no_resend;
        }
        let mut group = Group::clone(&catalog.groups[0]);
        group.channels.push(channels[1].id);
        let models = catalog.models.values().map(|it| Model::clone(it)).collect();
        rig.core.shared.catalog.store(Arc::new(Catalog::from_parts(catalog.revision, channels, vec![group], models)));
        rig
    };
    for (no_resend, attempts) in [([false, false], "2"), ([true, false], "1"), ([false, true], "1"), ([true, true], "1")] {
        let mut rig = rig_of(no_resend);
        let got = rig.ask(STREAM).await;
        assert_eq!((got.status, got.header("x-tollgate-attempts")), (200, Some(attempts)), "{no_resend:?}");
        rig.record();
    }
}

/// 100 tokens of output at 1 USD per million and a few of input: between 100,000 and 120,000 nano-USD at most.
const BOUNDED: &str = r#"{"model":"m","stream":true,"max_tokens":100,"messages":[{"role":"user","content":"hello there"}]}"#;

/// Asserts that exactly this amount of a cap is spent or reserved.
fn assert_spent(rig: &Rig, spent: NanoUsd) {
    let (group, day) = (rig.core.shared.catalog.load().groups[0].id, rig.clock.now().day());
    let take = |more| rig.core.shared.traffic.hedges.reserve(group, NanoUsd(1_000_000), NanoUsd(1_000_000 - spent.0 + more), day);
    assert!(take(1).is_none(), "less than {spent:?} is spent");
    assert!(take(0).is_some(), "more than {spent:?} is spent");
}

/// Cost of the attempts that were given up.
fn beside(record: &UsageRecord) -> NanoUsd {
    NanoUsd(record.attempts.iter().filter(|attempt| attempt.hedged).map(|attempt| attempt.cost.unwrap().0).sum())
}

#[tokio::test(start_paused = true)]
async fn largest_cost_of_a_second_attempt_is_reserved_so_concurrent_ones_keep_the_cap() {
    let script = Script::new().streams(late(SECOND)).streams(late(SECOND)).streams(late(MS * 50)).streams(late(SECOND));
    let mut rig = hedging_for(script, 2, NanoUsd(150_000));
    let (one, other) = tokio::join!(rig.ask(BOUNDED), rig.ask(BOUNDED));
    let mut attempts = [one.header("x-tollgate-attempts"), other.header("x-tollgate-attempts")];
    attempts.sort_unstable();
    assert_eq!(attempts, [Some("1"), Some("2")], "the cap allows one");
    let spent: i64 = rig.records().iter().map(|record| beside(record).0).sum();
    assert!(spent > 0);
    assert_spent(&rig, NanoUsd(spent));
    assert_eq!(rig.ask(BOUNDED).await.header("x-tollgate-attempts"), Some("2"), "the unused rest was released");
}

#[tokio::test(start_paused = true)]
async fn reservation_covers_the_more_expensive_attempt() {
    let mut rig = hedging_for(Script::new().streams(late(SECOND)), 1, NanoUsd(150_000));
    rig.add_channel(|channel| {
        channel.spec.priority = 1;
        channel.spec.serves[0].cost = Some(price(1_000_000, 1_000_000));
    });
    rig.change(|channels, _, _| channels[0].spec.serves[0].cost = Some(price(500_000_000, 2_000_000_000)));
    assert_eq!(rig.ask(BOUNDED).await.header("x-tollgate-attempts"), Some("1"), "the first one is the dear one");
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn every_ending_settles_the_reservation() {
    let breaks = || vec![role(), Piece::Wait(MS * 300), Piece::Break];
    for script in [
        Script::new().streams(late(SECOND)).streams(prompt("second wins")),
        Script::new().streams(late(MS * 200)).silent(),
        Script::new().streams(late(SECOND)).refuses(500, &[]),
        Script::new().streams(breaks()).streams(late(SECOND)),
        Script::new().streams(late(SECOND)).refuses(400, &[]),
        Script::new().silent().silent(),
    ] {
        let mut rig = hedging(script, 2);
        let _ = tokio::time::timeout(SECOND * 5, rig.ask(BOUNDED)).await;
        let record = rig.record();
        assert_eq!(record.attempts.iter().map(|attempt| attempt.hedged).collect::<Vec<_>>(), [true, false]);
        assert_spent(&rig, beside(&record));
    }
}

#[tokio::test(start_paused = true)]
async fn spending_of_the_last_process_counts_against_the_cap() {
    let rig = hedging_for(Script::new().streams(late(SECOND)), 2, NanoUsd(150_000));
    let group = rig.core.shared.catalog.load().groups[0].id;
    rig.core.shared.traffic.hedged_before([(group, NanoUsd(60_000))], rig.clock.now().day());
    assert_eq!(rig.ask(BOUNDED).await.header("x-tollgate-attempts"), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn failure_of_one_attempt_leaves_the_other_running() {
    let mut rig = hedging(Script::new().streams(late(SECOND)).refuses(500, &[]), 2);
    let got = rig.ask(STREAM).await;
    assert!(got.body.contains("late"), "{}", got.body);
    assert_eq!(results(&rig.record()), [(Some("E55"), AttemptResult::Refused), (None, AttemptResult::Answered)]);

    let breaks = vec![role(), Piece::Wait(MS * 300), Piece::Break];
    let mut rig = hedging(Script::new().streams(breaks).streams(late(SECOND)), 2);
    let got = rig.ask(STREAM).await;
    assert!(got.body.contains("late"), "{}", got.body);
    let record = rig.record();
    assert_eq!(results(&record), [(Some("E58"), AttemptResult::Failed), (None, AttemptResult::Answered)]);
    assert_eq!(record.attempts[0].account, rig.script.seen()[0].account);
}

#[tokio::test(start_paused = true)]
async fn when_both_fail_the_third_account_is_tried() {
    let breaks = vec![role(), Piece::Wait(MS * 300), Piece::Break];
    let mut rig = hedging(Script::new().streams(breaks).refuses(500, &[]).streams(prompt("third")), 3);
    let got = rig.ask(STREAM).await;
    assert!(got.body.contains("third"), "{}", got.body);
    let record = rig.record();
    assert_eq!(
        results(&record),
        [(Some("E55"), AttemptResult::Refused), (Some("E58"), AttemptResult::Failed), (None, AttemptResult::Answered)]
    );
    let mut accounts: Vec<_> = rig.script.seen().iter().map(|seen| seen.account).collect();
    accounts.sort();
    accounts.dedup();
    assert_eq!(accounts.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn rejected_request_ends_both_attempts() {
    let mut rig = hedging(Script::new().streams(late(SECOND * 30)).refuses(400, &[]), 2);
    let began = tokio::time::Instant::now();
    assert_eq!(rig.ask(STREAM).await.status, 400);
    assert!(began.elapsed() < SECOND);
    assert_eq!(results(&rig.record()), [(None, AttemptResult::Cancelled), (Some("E52"), AttemptResult::Refused)]);
    assert_eq!(rig.script.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn caller_leaving_ends_and_records_both_attempts() {
    let mut rig = hedging(Script::new().silent().silent(), 2);
    assert!(tokio::time::timeout(SECOND, rig.ask(STREAM)).await.is_err());
    let record = rig.record();
    assert_eq!(results(&record), [(None, AttemptResult::Cancelled), (None, AttemptResult::Cancelled)]);
    assert_eq!((record.outcome, rig.script.open()), (Outcome::CallerLeft, 0));
}

#[tokio::test(start_paused = true)]
async fn hedges_use_the_retry_budget() {
    let script = (0..60).fold(Script::new(), |script, _| script.streams(late(MS * 300)));
    let mut rig = hedging(script, 2);
    for _ in 0..20 {
        assert_eq!(rig.ask(STREAM).await.status, 200);
    }
    let attempts: usize = rig.records().iter().map(|record| record.attempts.len()).sum();
    assert_eq!(attempts, 20 + 20 / 5 + 10);
}
