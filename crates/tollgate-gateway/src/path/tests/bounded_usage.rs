//! Implausible usage, answers whose callers left after the finish, and sales below cost.

use tollgate_core::{Outcome, TokenSource};

use super::*;

/// A stream piece with this finish or usage.
fn event(rest: &str) -> Piece {
    let head = r#""id":"x","object":"chat.completion.chunk","created":1,"model":"up-m""#;
    format!("data: {{{head},{rest}}}\n\n").as_str().into()
}

fn finish() -> Piece {
    event(r#""choices":[{"index":0,"delta":{},"finish_reason":"stop"}]"#)
}

fn usage(completion: u64) -> Piece {
    event(&format!(r#""choices":[],"usage":{{"prompt_tokens":3,"completion_tokens":{completion},"total_tokens":{completion}}}"#))
}

/// Reads a stream until its caller has the finish, and leaves.
async fn leave_behind_the_finish(rig: &Rig) {
    let mut body = serve(&rig.core, rig.incoming(STREAM)).await.into_body();
    let mut text = String::new();
    while !text.contains("\"stop\"") {
        let frame = tokio::time::timeout(SECOND, body.frame()).await.expect("the finish").unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn impossible_usage_is_capped_marked_and_counted() {
    let lying = REPLY.replace(r#""completion_tokens":1,"#, r#""completion_tokens":1000000000,"#);
    let mut rig = Rig::new(Script::new().replies(&lying), 1);
    let body = CHAT.replacen('{', r#"{"max_tokens":5,"#, 1);
    assert_eq!(rig.ask(&body).await.status, 200);
    let record = rig.record();
    assert!(record.tokens.output < 100 && record.sale.unwrap().0 < 1_000_000, "{record:?}");
    assert_eq!((record.reason.as_deref(), record.tokens.source), (Some("usage_excess"), TokenSource::Estimated));
    let text = rig.core.shared.metrics.render();
    assert!(text.contains(r#"tollgate_usage_excess_total{channel="one"} 1"#), "{text}");
    assert!(text.contains(r#"tollgate_usage_excess_tokens_total{channel="one"} 9999"#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn caller_leaving_after_the_finish_pays_the_reported_usage() {
    let late = Piece::Wait(Duration::from_millis(200));
    let script = Script::new().streams(vec![role(), chunk("one two three"), finish(), late, usage(5_000), Piece::Stall]);
    let mut rig = Rig::new(script, 1);
    leave_behind_the_finish(&rig).await;
    tokio::time::sleep(SECOND).await;
    let record = rig.record();
    assert_eq!((record.outcome, record.tokens.output, record.attempts[0].tokens.output), (Outcome::CallerLeft, 5_000, 5_000));
    assert_eq!(rig.script.open(), 0, "the upstream's connection is closed");
}

#[tokio::test(start_paused = true)]
async fn missing_usage_is_awaited_for_half_a_minute_after_the_caller_left() {
    let mut rig = Rig::new(Script::new().streams(vec![role(), chunk("one two three"), finish(), Piece::Stall]), 1);
    leave_behind_the_finish(&rig).await;
    tokio::time::sleep(SECOND * 31).await;
    let record = rig.record();
    assert_eq!((record.outcome, record.tokens.output), (Outcome::CallerLeft, 4));
}

#[tokio::test(start_paused = true)]
async fn sale_below_cost_is_counted_and_can_be_forbidden() {
    let dear = |channel: &mut Channel| channel.spec.serves[0].cost = Some(price(9_000_000_000, 9_000_000_000));
    let mut rig = Rig::with(Script::new().replies(REPLY), 1, dear);
    assert_eq!(rig.ask(CHAT).await.status, 200);
    assert!(rig.record().sale < Some(tollgate_core::NanoUsd(36_000)));
    let text = rig.core.shared.metrics.render();
    assert!(text.contains(r#"tollgate_sold_below_cost_total{model="m",group="default"} 1"#), "{text}");
    assert!(text.contains(r#"tollgate_loss_usd_total{model="m",group="default"} 0.00003"#), "{text}");

    let mut rig = Rig::with(Script::new(), 1, dear);
    rig.change_group(|group| group.never_below_cost = true);
    let refused = rig.ask(CHAT).await;
    assert_eq!((refused.status, rig.script.seen().len()), (503, 0), "{}", refused.body);
    let record = rig.record();
    assert_eq!((record.reason.as_deref(), &*record.trace[0].code), (Some("E41"), "below_cost"));
    assert_eq!(record.trace[0].detail.as_deref(), Some("input sells for 1.00 and costs 9.00 USD per 1M tokens"));
}
