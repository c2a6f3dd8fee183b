//! Time limits before an upstream's first content, and errors after its last.

use tollgate_core::{Availability, Outcome, RestingReason};

use super::*;

/// Comments and a role, one a minute, so that it is never silent for as long as the idle limit.
fn dripping(minutes: usize) -> Vec<Piece> {
    let mut pieces = vec![role()];
    for _ in 0..minutes {
        pieces.extend([Piece::Wait(SECOND * 60), ": still here\n\n".into()]);
    }
    pieces
}

#[tokio::test(start_paused = true)]
async fn comments_before_content_end_at_the_first_byte_limit() {
    let script = Script::new().streams(dripping(9)).streams(vec![role(), chunk("hi"), tail()]);
    let mut rig = Rig::new(script, 2);
    let began = tokio::time::Instant::now();
    let got = rig.ask(STREAM).await;
    assert!(got.body.contains("hi"), "{}", got.body);
    assert_eq!(began.elapsed().as_secs(), 120);
    let record = rig.record();
    assert_eq!((record.attempts[0].error.as_deref(), record.outcome), (Some("E51"), Outcome::Completed));
    assert_eq!(rig.script.open(), 0, "the dripping connection is closed");
}

#[tokio::test(start_paused = true)]
async fn comments_are_accepted_until_the_longer_of_first_byte_and_idle_limit() {
    for (minutes, idle_ms) in [(1, 90_000), (4, 300_000)] {
        let mut pieces = dripping(minutes);
        pieces.extend([chunk("late"), tail()]);
        let mut rig = Rig::with(Script::new().streams(pieces), 1, |channel| channel.spec.timeouts.idle_ms = idle_ms);
        let got = rig.ask(STREAM).await;
        assert!(got.status == 200 && got.body.contains("late"), "{}", got.body);
        rig.record();
    }
}

/// A native answer whose account was limited behind its text.
const LIMITED: &str =
    r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"PUP_LIMITED_DISABLED","index":0}]}"#;

#[tokio::test(start_paused = true)]
async fn answer_that_reports_an_exhausted_account_is_delivered_and_rests_the_account() {
    let generate = r#"{"contents":[{"parts":[{"text":"hello"}]}]}"#;
    for (method, body) in
        [(Method::Chat, CHAT), (Method::Chat, STREAM), (Method::Generate, generate), (Method::StreamGenerate, generate)]
    {
        let streams = body == STREAM || method == Method::StreamGenerate;
        let script = Script::new();
        let script =
            if streams { script.streams(vec![format!("data: {LIMITED}\n\n").as_str().into()]) } else { script.replies(LIMITED) };
        let mut rig = Rig::with(script, 1, |channel| {
            channel.spec.protocol = tollgate_protocol::Protocol::Gemini;
            channel.spec.provider = tollgate_core::Provider::Gemini;
        });
        let incoming = if method == Method::Chat { rig.incoming(body) } else { rig.native(method, body) };
        let got = read(serve(&rig.core, incoming).await).await;
        assert!(got.status == 200 && !got.aborted && got.body.contains("hi"), "{}", got.body);
        assert_eq!(rig.record().outcome, Outcome::Completed);
        let availability = rig.registry.of(account(1).id).availability(rig.clock.now());
        // For the key, until a probe has shown whether that is so.
        let until = Some(rig.clock.now().plus_ms(600_000));
        assert_eq!(availability, Availability::Resting { why: RestingReason::Refused, until }, "{method:?} {streams}");
    }
}
