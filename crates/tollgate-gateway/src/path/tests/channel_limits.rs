//! Channels with limits, which apply to all their accounts together.

use tollgate_core::{Outcome, Provider};

use super::*;
use crate::state::capacity_limiter::LimitedId;

/// A rig of three accounts without limits, on a channel with these.
fn limited(script: Script, concurrency: u32, rpm: u32, tpm: u64) -> Rig {
    Rig::with(script, 3, |channel| {
        channel.spec.concurrency = concurrency;
        channel.spec.rpm = rpm;
        channel.spec.tpm = tpm;
    })
}

/// Requests that hold a permit of the channel.
fn running(rig: &Rig) -> u32 {
    let catalog = rig.core.shared.catalog.load();
    let channel = catalog.channels.values().find(|channel| channel.spec.provider != Provider::Echo).unwrap();
    rig.core.shared.traffic.limiters.in_use(LimitedId::Channel(channel.id)).running
}

fn late_reply() -> Vec<Piece> {
    vec![Piece::Wait(SECOND), REPLY.into()]
}

const JSON_HEAD: &[(&str, &str)] = &[("content-type", "application/json")];

#[tokio::test(start_paused = true)]
async fn requests_wait_for_a_full_channel_whatever_account_they_would_use() {
    let script = Script::new().answers(200, JSON_HEAD, late_reply()).answers(200, JSON_HEAD, late_reply()).replies(REPLY);
    let mut rig = limited(script, 2, 0, 0);
    let began = tokio::time::Instant::now();
    let (first, second, third) = tokio::join!(biased; rig.ask(CHAT), rig.ask(CHAT), rig.ask(CHAT));
    assert_eq!([first.status, second.status, third.status], [200; 3]);
    assert_eq!((began.elapsed(), running(&rig)), (SECOND, 0));
    assert!(rig.records().iter().all(|record| record.outcome == Outcome::Completed && record.attempts.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn refusal_of_a_full_channel_has_the_cause_concurrency_and_its_record_names_the_channel() {
    let mut rig = limited(Script::new().answers(200, JSON_HEAD, vec![Piece::Wait(SECOND * 30), REPLY.into()]), 1, 0, 0);
    let (first, second) = tokio::join!(biased; rig.ask(CHAT), rig.ask(CHAT));
    assert_eq!((first.status, second.status, second.header("x-tollgate-cause")), (200, 503, Some("concurrency")));
    let record = rig.records().into_iter().find(|record| record.outcome != Outcome::Completed).unwrap();
    let trace: Vec<_> = record.trace.iter().map(|it| (&*it.code, it.detail.as_deref())).collect();
    assert_eq!(trace, [("concurrency", Some("limit of the channel")); 3]);
}

#[tokio::test(start_paused = true)]
async fn requests_a_minute_of_the_channel_are_counted_over_its_accounts() {
    let mut rig = limited((0..3).fold(Script::new(), |script, _| script.replies(REPLY)), 0, 2, 0);
    let statuses = [rig.ask(CHAT).await.status, rig.ask(CHAT).await.status];
    let refused = rig.ask(CHAT).await;
    assert_eq!((statuses, refused.status, refused.header("retry-after")), ([200; 2], 503, Some("60")));
    tokio::time::advance(SECOND * 121).await;
    assert_eq!(rig.ask(CHAT).await.status, 200);
    assert_eq!(rig.records().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn tokens_of_the_channel_are_the_estimate_until_the_answer_has_usage() {
    let asks = r#"{"model":"m","max_tokens":500,"messages":[{"role":"user","content":"hello there"}]}"#;
    let mut rig = limited(Script::new().replies(REPLY).replies(REPLY), 0, 0, 600);
    for _ in 0..2 {
        // Each is estimated above half of the limit and uses 4 tokens.
        assert_eq!(rig.ask(asks).await.status, 200);
    }
    rig.records();
}

#[tokio::test(start_paused = true)]
async fn failed_attempts_release_the_channel_before_the_next_account_is_tried() {
    let mut rig = limited(Script::new().refuses(500, &[]).replies(REPLY), 1, 0, 0);
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.header("x-tollgate-attempts"), running(&rig)), (200, Some("2"), 0));
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn streams_hold_the_channel_until_they_end() {
    let script = Script::new().streams(vec![role(), chunk("hi"), Piece::Wait(SECOND), tail()]).replies(REPLY);
    let mut rig = limited(script, 1, 0, 0);
    let began = tokio::time::Instant::now();
    let (first, second) = tokio::join!(biased; rig.ask(STREAM), rig.ask(CHAT));
    assert_eq!((first.status, second.status, began.elapsed(), running(&rig)), (200, 200, SECOND, 0));
    rig.records();
}
