//! Learned unsupported fields, and the routing trace that callers may request.

use super::*;

const UNSUPPORTED: &str = r#"{"error":{"message":"Unsupported parameter: 'logit_bias' is not supported with this model.","type":"invalid_request_error","param":"logit_bias","code":"unsupported_parameter"}}"#;
const BIASED: &str = r#"{"model":"m","logit_bias":{"1":2},"messages":[{"role":"user","content":"hello there"}]}"#;

fn refusing(script: Script) -> Script {
    script.answers(400, &[("content-type", "application/json")], vec![UNSUPPORTED.into()])
}

#[tokio::test(start_paused = true)]
async fn field_refused_three_times_in_a_row_is_refused_for_ten_minutes() {
    let script = refusing(refusing(refusing(Script::new()))).replies(REPLY).replies(REPLY);
    let mut rig = Rig::with(script, 1, |channel| channel.spec.learn_unsupported = true);
    for _ in 0..3 {
        assert_eq!(rig.ask(BIASED).await.status, 400);
    }
    let got = rig.ask(BIASED).await;
    assert_eq!((got.status, got.code().as_str(), got.header("x-tollgate-attempts")), (400, "unsupported_parameter", None));
    assert!(got.body.contains("Unsupported parameter: 'logit_bias'"), "{}", got.body);
    assert_eq!(rig.script.seen().len(), 3, "the fourth was not sent");
    assert_eq!(rig.ask(CHAT).await.status, 200, "requests without the field are served");
    tokio::time::advance(SECOND * 600).await;
    assert_eq!(rig.ask(BIASED).await.status, 200);
    let records = rig.records();
    let refused = &records[3];
    assert_eq!((refused.reason.as_deref(), &*refused.trace[0].code), (Some("E17"), "capability"));
    assert_eq!(refused.trace[0].detail.as_deref(), Some("logit_bias"));
}

#[tokio::test(start_paused = true)]
async fn accepted_request_with_the_field_resets_the_refusal_count() {
    let script = refusing(refusing(refusing(Script::new()))).replies(REPLY);
    let script = refusing(refusing(script)).replies(REPLY);
    let rig = Rig::with(script, 1, |channel| channel.spec.learn_unsupported = true);
    let mut statuses = Vec::new();
    for body in [BIASED, BIASED, CHAT, BIASED, BIASED, BIASED, BIASED] {
        // The third refusal is for a request without the field, so it does not count.
        statuses.push(rig.ask(body).await.status);
    }
    assert_eq!(statuses, [400, 400, 400, 200, 400, 400, 200]);
    assert_eq!(rig.script.seen().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn channel_with_learning_disabled_does_not_learn() {
    let script = (0..4).fold(Script::new(), |script, _| refusing(script));
    let rig = Rig::with(script, 1, |channel| channel.spec.learn_unsupported = false);
    for _ in 0..4 {
        assert_eq!(rig.ask(BIASED).await.status, 400);
    }
    assert_eq!(rig.script.seen().len(), 4);
}

/// A request for a trace, in a group that allows it.
async fn traced(rig: &Rig, body: &str, asks: &str) -> Got {
    let mut incoming = rig.incoming(body);
    incoming.head.headers.append("x-tollgate-trace", asks.parse().unwrap());
    read(serve(&rig.core, incoming).await).await
}

#[tokio::test(start_paused = true)]
async fn trace_header_has_codes_and_counts_if_the_group_allows_it() {
    let script = Script::new().refuses(500, &[]).replies(REPLY).streams(vec![role(), chunk("hi"), tail()]);
    let mut rig = Rig::grouped(script, 2, |group| group.trace = true);
    assert_eq!(traced(&rig, CHAT, "1").await.header("x-tollgate-trace"), Some("planned=2; attempts: E55, ok"));
    assert_eq!(traced(&rig, STREAM, "1").await.header("x-tollgate-trace"), Some("planned=2; attempts: ok"));
    rig.records();

    let refused = Rig::grouped(Script::new().refuses(429, &[("retry-after", "9")]), 1, |group| group.trace = true);
    assert_eq!(traced(&refused, CHAT, "1").await.header("x-tollgate-trace"), Some("planned=1; attempts: E54"));
    let got = traced(&refused, CHAT, "1").await;
    assert_eq!((got.status, got.header("x-tollgate-trace")), (503, Some("planned=0, cooling=1")));
}

#[tokio::test(start_paused = true)]
async fn trace_header_is_absent_unless_requested_and_allowed() {
    let rig = Rig::grouped(Script::new().replies(REPLY).replies(REPLY), 1, |group| group.trace = true);
    assert_eq!(rig.ask(CHAT).await.header("x-tollgate-trace"), None);
    assert_eq!(traced(&rig, CHAT, "0").await.header("x-tollgate-trace"), None);
    let closed = Rig::new(Script::new().replies(REPLY), 1);
    let got = traced(&closed, CHAT, "1").await;
    assert_eq!((got.status, got.header("x-tollgate-trace")), (200, None));
}
