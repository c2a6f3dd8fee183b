//! Accounts with limits: which requests wait, fail over or are refused, and that every ending releases its permit.

use tollgate_core::{Account, AccountId, AccountSpec, AttemptResult, CoolingRules, Observation, Outcome};

use super::*;
use crate::state::capacity_limiter::{LimitedRow, Permit};

/// A rig whose accounts all have these limits.
fn bounded(script: Script, accounts: u8, concurrency: u32, rpm: u32, tpm: u64) -> Rig {
    Rig::with(script, accounts, |channel| {
        for account in &mut channel.accounts {
            *account = Arc::new(Account {
                spec: AccountSpec { concurrency, rpm, tpm, ..account.spec.clone() },
                ..Account::clone(account)
            });
        }
    })
}

impl Rig {
    fn running(&self, number: u8) -> u32 {
        self.core.shared.traffic.limiters.running(self::id(number))
    }

    fn waiting(&self, number: u8) -> usize {
        self.core.shared.traffic.limiters.waiting(self::id(number))
    }
}

fn id(number: u8) -> AccountId {
    account(number).id
}

fn late_reply(seconds: u32) -> Vec<Piece> {
    vec![Piece::Wait(SECOND * seconds), REPLY.into()]
}

const JSON_HEAD: &[(&str, &str)] = &[("content-type", "application/json")];

#[tokio::test(start_paused = true)]
async fn request_waits_for_a_busy_account() {
    let mut rig = bounded(Script::new().answers(200, JSON_HEAD, late_reply(1)).replies(REPLY), 1, 1, 0, 0);
    let began = tokio::time::Instant::now();
    let (first, second) = tokio::join!(biased; rig.ask(CHAT), rig.ask(CHAT));
    assert_eq!((first.status, second.status, began.elapsed()), (200, 200, SECOND));
    assert_eq!((rig.running(1), rig.waiting(1)), (0, 0));
    assert!(rig.records().iter().all(|record| record.outcome == Outcome::Completed && record.attempts.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_after_two_seconds_with_e40() {
    let mut rig = bounded(Script::new().answers(200, JSON_HEAD, late_reply(30)), 1, 1, 0, 0);
    let began = tokio::time::Instant::now();
    let waits = async {
        let got = rig.ask(CHAT).await;
        (got, began.elapsed())
    };
    let (first, (second, waited)) = tokio::join!(biased; rig.ask(CHAT), waits);
    assert_eq!((first.status, second.status, waited), (200, 503, SECOND * 2));
    assert_eq!((second.code().as_str(), second.header("x-tollgate-cause")), ("no_available_accounts", Some("concurrency")));
    assert_eq!((second.header("x-should-retry"), second.header("x-tollgate-attempts")), (None, None));
    let refused = rig.records().into_iter().find(|record| record.outcome == Outcome::Refused).unwrap();
    assert_eq!((refused.trace.len(), &*refused.trace[0].code), (1, "concurrency"));
}

#[tokio::test(start_paused = true)]
async fn last_resort_account_is_waited_for() {
    let mut rig = bounded(Script::new().answers(200, JSON_HEAD, late_reply(1)).replies(REPLY), 1, 1, 0, 0);
    rig.registry.observe(id(1), &Observation::ConnectFailure, CoolingRules::default(), rig.clock.now());
    let began = tokio::time::Instant::now();
    let (first, second) = tokio::join!(biased; rig.ask(CHAT), rig.ask(CHAT));
    assert_eq!((first.status, second.status, began.elapsed()), (200, 200, SECOND));
    assert!(rig.records().iter().all(|record| !record.trace.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn no_wait_while_another_account_has_capacity() {
    let rig = bounded(Script::new().answers(200, JSON_HEAD, late_reply(1)).replies(REPLY), 2, 1, 0, 0);
    let began = tokio::time::Instant::now();
    let second = async {
        rig.ask(CHAT).await;
        began.elapsed()
    };
    let (_, waited) = tokio::join!(biased; rig.ask(CHAT), second);
    assert_eq!(waited, Duration::ZERO);
    let seen = rig.script.seen();
    assert_ne!(seen[0].account, seen[1].account);
}

#[tokio::test(start_paused = true)]
async fn fail_over_waits_for_a_busy_account() {
    // Two requests fail at the same moment on different accounts: the first to fail finds the other account still busy.
    let failing = |script: Script| script.answers(500, &[], vec![Piece::Wait(SECOND), "{}".into()]);
    let mut rig = bounded(failing(failing(Script::new())).replies(REPLY).replies(REPLY), 2, 1, 0, 0);
    let (first, second) = tokio::join!(biased; rig.ask(CHAT), rig.ask(CHAT));
    assert_eq!((first.status, second.status), (200, 200));
    assert!(rig.records().iter().all(|record| record.attempts.len() == 2));
    assert_eq!((rig.running(1), rig.running(2)), (0, 0));
}

/// Sends a request, and takes permits on these accounts while its first attempt runs.
async fn ask_while_others_are_taken(rig: &Rig, taken: impl Fn(AccountId) -> bool) -> (Got, Vec<Permit>) {
    let limiters = &rig.core.shared.traffic.limiters;
    let others = async {
        tokio::time::sleep(SECOND / 2).await;
        let catalog = rig.core.shared.catalog.load();
        let accounts = catalog.channels.values().flat_map(|channel| channel.accounts.iter().map(move |account| (channel, account)));
        let taken = accounts.filter(|(_, account)| taken(account.id));
        taken.filter_map(|(channel, account)| limiters.try_acquire(LimitedRow::of_attempt(channel, account), 0)).collect()
    };
    tokio::join!(rig.ask(CHAT), others)
}

fn fails_late() -> Script {
    Script::new().answers(500, &[], vec![Piece::Wait(SECOND), "{}".into()])
}

#[tokio::test(start_paused = true)]
async fn fail_over_uses_an_account_that_became_free() {
    for free in 1..=6 {
        let mut rig = bounded(fails_late().replies(REPLY), 6, 1, 0, 0);
        let (got, taken) = ask_while_others_are_taken(&rig, |account| account != id(free)).await;
        let seen = rig.script.seen();
        if seen[0].account == id(free) {
            // The free account is the one that failed.
            assert_eq!((got.status, seen.len()), (502, 1));
            drop(taken);
            rig.record();
            continue;
        }
        assert_eq!((got.status, got.header("x-tollgate-attempts"), seen[1].account), (200, Some("2"), id(free)));
        drop(taken);
        let record = rig.record();
        let codes: Vec<_> = record.trace.iter().map(|entry| &*entry.code).collect();
        assert_eq!(codes, ["planned", "planned", "concurrency", "concurrency", "concurrency", "concurrency"]);
        assert_eq!(record.trace[0].account.as_deref(), Some(record.attempts[0].account_name.as_str()));
    }
}

#[tokio::test(start_paused = true)]
async fn fail_over_waits_at_most_two_seconds() {
    let mut rig = bounded(fails_late().replies(REPLY), 4, 1, 0, 0);
    let began = tokio::time::Instant::now();
    let (got, taken) = ask_while_others_are_taken(&rig, |_| true).await;
    assert_eq!((got.status, got.header("x-tollgate-attempts"), began.elapsed()), (502, Some("1"), SECOND * 3));
    let left = (0..100).filter(|_| rig.core.shared.retries.try_acquire(rig.clock.instant())).count();
    assert_eq!(left, 10, "an attempt that was not made uses no retry budget");
    drop(taken);
    let record = rig.record();
    let codes: Vec<_> = record.trace.iter().map(|entry| &*entry.code).collect();
    assert_eq!(codes, ["planned", "concurrency", "concurrency", "concurrency"]);
    assert_eq!(record.reason.as_deref(), Some("E55"), "the refusal is that of the attempt that was made");
}

#[tokio::test(start_paused = true)]
async fn exhausted_request_rate_uses_other_accounts_then_refuses() {
    let mut rig = bounded((0..5).fold(Script::new(), |script, _| script.replies(REPLY)), 2, 0, 2, 0);
    for _ in 0..4 {
        assert_eq!(rig.ask(CHAT).await.status, 200);
    }
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.header("x-tollgate-cause"), got.header("retry-after")), (503, Some("concurrency"), Some("60")));
    for number in [1, 2] {
        assert_eq!(rig.script.seen().iter().filter(|seen| seen.account == id(number)).count(), 2);
    }
    tokio::time::advance(SECOND * 121).await;
    assert_eq!(rig.ask(CHAT).await.status, 200);
    assert_eq!(rig.records().iter().filter(|record| record.outcome == Outcome::Completed).count(), 5);
}

#[tokio::test(start_paused = true)]
async fn token_rate_reserves_the_estimate_and_counts_the_actual_use() {
    let asks = r#"{"model":"m","max_tokens":500,"messages":[{"role":"user","content":"hello there"}]}"#;
    let mut rig = bounded(Script::new().replies(REPLY).replies(REPLY), 1, 0, 0, 600);
    for _ in 0..2 {
        // Each is estimated above half of the limit and uses 4 tokens.
        assert_eq!(rig.ask(asks).await.status, 200);
    }
    assert!(rig.records().iter().all(|record| record.tokens.prompt() + record.tokens.completion() == 4));
}

#[tokio::test(start_paused = true)]
async fn every_ending_releases_its_permit() {
    type Ending = (fn(Script) -> Script, &'static str);
    let endings: [Ending; 9] = [
        (|it| it.replies(REPLY), CHAT),
        (|it| it.streams(vec![role(), chunk("hi"), tail()]), STREAM),
        (|it| it.streams(vec![role(), chunk("hi"), Piece::Break]), STREAM),
        (|it| it.streams(vec![role(), chunk("hi"), Piece::Stall]), STREAM),
        (|it| it.refuses(400, &[]), CHAT),
        (|it| it.refuses(500, &[]), CHAT),
        (Script::not_sent, CHAT),
        (Script::lost, CHAT),
        (Script::silent, CHAT),
    ];
    for (at, (ending, body)) in endings.into_iter().enumerate() {
        let mut rig = bounded(ending(Script::new()), 1, 1, 0, 0);
        rig.ask(body).await;
        assert_eq!((at, rig.running(1)), (at, 0));
        rig.record();
    }
}

#[tokio::test(start_paused = true)]
async fn caller_leaving_at_any_time_releases_the_permit() {
    // Before an answer, in the middle of a stream, and while it waits for a permit.
    let mut rig = bounded(Script::new().silent(), 1, 1, 0, 0);
    let left = tokio::time::timeout(SECOND, rig.ask(CHAT)).await;
    assert!(left.is_err());
    assert_eq!((rig.running(1), rig.record().outcome), (0, Outcome::CallerLeft));

    let mut rig = bounded(Script::new().streams(vec![role(), chunk("hi"), Piece::Stall]), 1, 1, 0, 0);
    let response = serve(&rig.core, rig.incoming(STREAM)).await;
    assert_eq!(rig.running(1), 1);
    drop(response);
    let record = rig.record();
    assert_eq!((rig.running(1), record.attempts[0].result), (0, AttemptResult::Cancelled));

    let mut rig = bounded(Script::new().silent(), 1, 1, 0, 0);
    let running = serve(&rig.core, rig.incoming(CHAT));
    let waits = async {
        assert!(tokio::time::timeout(SECOND, rig.ask(CHAT)).await.is_err());
        assert_eq!((rig.running(1), rig.waiting(1)), (1, 0));
    };
    tokio::select! {
        _ = running => panic!("a silent upstream answers"),
        () = waits => {}
    }
    assert_eq!(rig.running(1), 0);
    assert_eq!(rig.records().len(), 2);
}
