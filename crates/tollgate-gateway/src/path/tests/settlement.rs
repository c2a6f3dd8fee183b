//! Sale amount, cost and outcome of each ending, under each stream break policy of the group.

use tollgate_core::{NanoUsd, Outcome, StreamBreak, TokenSource};

use super::*;

/// Policies in the order of the columns below.
const POLICIES: [StreamBreak; 3] = [StreamBreak::Delivered, StreamBreak::ProviderUsage, StreamBreak::NoneIfEmpty];
/// 11 bytes are 3 tokens at 1 USD per million.
const INPUT: i64 = 3 * 1_000;
/// "one two three": 13 bytes are 4 tokens at 2 USD per million.
const OUTPUT: i64 = 4 * 2_000;
/// The usage of [`reported`]: 100 input tokens, 50 output tokens.
const REPORTED: i64 = 100 * 1_000 + 50 * 2_000;

/// Usage in the middle of a stream, as some upstreams report it.
fn reported() -> Piece {
    "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"up-m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":50,\"total_tokens\":150}}\n\n".into()
}

fn content() -> Piece {
    chunk("one two three")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    Stays,
    /// Disconnects after the first event of a stream.
    LeavesAfterContent,
    /// Disconnects before any byte of the answer.
    LeavesBefore,
}

/// Runs one ending under one policy and returns its record.
async fn ended(script: Script, policy: StreamBreak, body: &str, caller: Caller) -> UsageRecord {
    let mut rig = Rig::new(script, 2);
    rig.change_group(|group| group.stream_break = policy);
    match caller {
        Caller::Stays => drop(rig.ask(body).await),
        Caller::LeavesAfterContent => {
            let mut answer = serve(&rig.core, rig.incoming(body)).await.into_body();
            answer.frame().await.unwrap().unwrap();
            assert!(tokio::time::timeout(SECOND, async { while answer.frame().await.is_some() {} }).await.is_err());
        }
        Caller::LeavesBefore => {
            assert!(tokio::time::timeout(SECOND, serve(&rig.core, rig.incoming(body))).await.is_err());
        }
    }
    rig.record()
}

/// Checks one ending under all policies: outcome and reason, the sale amounts, and whether the operator has a cost.
async fn check(
    script: impl Fn() -> Script,
    body: &str,
    caller: Caller,
    (outcome, reason): (Outcome, Option<&str>),
    sales: [i64; 3],
    costs: bool,
) -> Vec<UsageRecord> {
    let mut records = Vec::new();
    for (policy, sale) in POLICIES.into_iter().zip(sales) {
        let record = ended(script(), policy, body, caller).await;
        assert_eq!((record.outcome, record.reason.as_deref()), (outcome, reason), "{policy:?}");
        assert_eq!(record.sale, Some(NanoUsd(sale)), "{policy:?} {:?}", record.tokens);
        assert_eq!(record.cost > Some(NanoUsd(0)), costs, "{policy:?} {:?}", record.cost);
        records.push(record);
    }
    records
}

#[tokio::test(start_paused = true)]
async fn complete_answer_is_charged_as_reported() {
    let script = || Script::new().replies(REPLY);
    let records = check(script, CHAT, Caller::Stays, (Outcome::Completed, None), [3 * 1_000 + 2_000; 3], true).await;
    assert!(records.iter().all(|record| record.tokens.source == TokenSource::Provider));
}

#[tokio::test(start_paused = true)]
async fn complete_answer_without_usage_or_with_zeros_is_counted() {
    let without = REPLY.replace(r#","usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}"#, "");
    let script = || Script::new().replies(&without);
    let records = check(script, CHAT, Caller::Stays, (Outcome::Completed, None), [INPUT + 2_000; 3], true).await;
    assert!(records.iter().all(|record| record.tokens.source == TokenSource::Counted));
    let zeros = REPLY.replace(
        r#""prompt_tokens":3,"completion_tokens":1,"total_tokens":4"#,
        r#""prompt_tokens":0,"completion_tokens":0,"total_tokens":0"#,
    );
    let script = || Script::new().replies(&zeros);
    let records = check(script, CHAT, Caller::Stays, (Outcome::Completed, None), [INPUT + 2_000; 3], true).await;
    assert!(records.iter().all(|record| record.tokens.source == TokenSource::Counted));
}

#[tokio::test(start_paused = true)]
async fn disconnect_after_the_first_byte_charges_input_and_delivered_output() {
    let script = || Script::new().streams(vec![role(), content(), Piece::Stall]);
    let ending = (Outcome::CallerLeft, Some("E64"));
    check(script, STREAM, Caller::LeavesAfterContent, ending, [INPUT + OUTPUT; 3], true).await;
}

#[tokio::test(start_paused = true)]
async fn disconnect_before_the_first_byte_charges_by_the_policy() {
    let ending = (Outcome::CallerLeft, Some("E64"));
    check(|| Script::new().silent(), STREAM, Caller::LeavesBefore, ending, [INPUT, INPUT, 0], true).await;
    // Providers rarely stop a non-streamed answer when the connection closes: 100 tokens are estimated for the second begun.
    let estimated = INPUT + 100 * 2_000;
    let records = check(|| Script::new().silent(), CHAT, Caller::LeavesBefore, ending, [estimated, estimated, 0], true).await;
    assert!(records[..2].iter().all(|record| record.tokens.source == TokenSource::Estimated));
}

#[tokio::test(start_paused = true)]
async fn broken_stream_charges_by_the_policy() {
    let cut = || Script::new().streams(vec![role(), content(), Piece::Break]);
    let ending = (Outcome::UpstreamBroke, Some("E59"));
    check(cut, STREAM, Caller::Stays, ending, [INPUT + OUTPUT; 3], true).await;
    // Usage reported before the break counts under `ProviderUsage`.
    let cut = || Script::new().streams(vec![role(), reported(), content(), Piece::Break]);
    let delivered = 100 * 1_000 + OUTPUT;
    check(cut, STREAM, Caller::Stays, ending, [delivered, REPORTED, delivered], true).await;
}

#[tokio::test(start_paused = true)]
async fn error_event_during_a_stream_charges_the_delivered_output() {
    let error = || {
        let event = "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\",\"code\":\"x\"}}\n\n";
        Script::new().streams(vec![role(), content(), event.into()])
    };
    check(error, STREAM, Caller::Stays, (Outcome::UpstreamBroke, Some("E59")), [INPUT + OUTPUT; 3], true).await;
}

#[tokio::test(start_paused = true)]
async fn idle_stream_charges_the_delivered_output_and_silent_upstream_nothing() {
    let silent = || Script::new().streams(vec![role(), content(), Piece::Stall]);
    check(silent, STREAM, Caller::Stays, (Outcome::UpstreamBroke, Some("E60")), [INPUT + OUTPUT; 3], true).await;
    let never_answers = || Script::new().silent().silent();
    let records = check(never_answers, CHAT, Caller::Stays, (Outcome::UpstreamBroke, Some("E51")), [0; 3], true).await;
    assert!(records.iter().all(|record| record.attempts.len() == 2), "each attempt costs its input");
}

#[tokio::test(start_paused = true)]
async fn request_rejected_by_the_upstream_is_free() {
    let refused = || Script::new().refuses(400, &[]);
    check(refused, CHAT, Caller::Stays, (Outcome::Refused, Some("E52")), [0; 3], false).await;
}

#[tokio::test(start_paused = true)]
async fn empty_answer_is_free() {
    let empty = || Script::new().replies("{\"choices\":[]}").replies("{\"choices\":[]}");
    let records = check(empty, CHAT, Caller::Stays, (Outcome::UpstreamBroke, Some("E58")), [0; 3], true).await;
    assert!(records.iter().all(|record| record.attempts.iter().all(|attempt| attempt.error.as_deref() == Some("E58"))));
}

#[tokio::test(start_paused = true)]
async fn retry_costs_twice_and_is_charged_once() {
    let retried = || Script::new().silent().replies(REPLY);
    let records = check(retried, CHAT, Caller::Stays, (Outcome::Completed, None), [3 * 1_000 + 2_000; 3], true).await;
    for record in records {
        let costs: Vec<i64> = record.attempts.iter().map(|attempt| attempt.cost.unwrap().0).collect();
        assert_eq!(costs, [1_500, 2_500], "the first is estimated, the second reported");
        assert_eq!(record.cost, Some(NanoUsd(costs.iter().sum())));
    }
}
