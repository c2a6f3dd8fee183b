//! Channels' settings about the health of their accounts.

use tollgate_core::{CoolingReason, HealthState};

use super::*;

const EMPTY: &str = r#"{"id":"x","object":"chat.completion","created":1,"model":"up-m","choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":0,"total_tokens":3}}"#;

/// The states of the rig's accounts that are not usable.
fn unusable(rig: &Rig, accounts: u8) -> Vec<HealthState> {
    let states = (1..=accounts).map(|number| rig.registry.of(account(number).id).state);
    states.filter(|state| *state != HealthState::Usable).collect()
}

#[tokio::test(start_paused = true)]
async fn pausing_status_cools_the_account_at_once_and_another_answers() {
    for (status, pauses) in [(529, true), (402, true), (500, false)] {
        let script = Script::new().refuses(status, &[]).replies(REPLY);
        let mut rig = Rig::with(script, 2, |channel| channel.spec.pausing_statuses = vec![402, 529]);
        let got = rig.ask(CHAT).await;
        assert_eq!((got.status, got.header("x-tollgate-attempts")), (200, Some("2")), "{}", got.body);
        rig.record();
        let states = unusable(&rig, 2);
        let is_paused = matches!(states[..], [HealthState::Cooling { why: CoolingReason::PausingStatus, .. }]);
        assert_eq!(is_paused, pauses, "{status}: {states:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn empty_answer_is_a_failure_where_the_channel_says_so() {
    let mut rig = Rig::new(Script::new().replies(EMPTY), 2);
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.header("x-tollgate-attempts")), (200, Some("1")), "{}", got.body);
    rig.record();

    let script = Script::new().replies(EMPTY).replies(REPLY);
    let mut rig = Rig::with(script, 2, |channel| {
        channel.spec.empty_answer_is_failure = true;
        channel.spec.failures_to_cool = 1;
    });
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.header("x-tollgate-attempts")), (200, Some("2")), "{}", got.body);
    assert_eq!(rig.record().attempts[0].error.as_deref(), Some("E58"));
    assert!(matches!(unusable(&rig, 2)[..], [HealthState::Cooling { why: CoolingReason::BadAnswer, .. }]));

    // The output limit explains why there is no content.
    let cut = EMPTY.replace(r#""finish_reason":"stop""#, r#""finish_reason":"length""#);
    let mut rig = Rig::with(Script::new().replies(&cut), 2, |channel| channel.spec.empty_answer_is_failure = true);
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.header("x-tollgate-attempts")), (200, Some("1")), "{}", got.body);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn empty_stream_is_a_failure_where_the_channel_says_so() {
    for (is_failure, attempts) in [(false, "1"), (true, "2")] {
        let script = Script::new().streams(vec![role(), tail()]).streams(vec![role(), chunk("hi"), tail()]);
        let mut rig = Rig::with(script, 2, |channel| channel.spec.empty_answer_is_failure = is_failure);
        let got = rig.ask(STREAM).await;
        assert_eq!((got.status, got.header("x-tollgate-attempts")), (200, Some(attempts)), "{}", got.body);
        assert_eq!(got.body.contains("hi"), is_failure, "{}", got.body);
        rig.record();
    }
}

#[tokio::test(start_paused = true)]
async fn cooling_begins_at_the_wall_clock_of_the_failure_even_if_it_was_set_during_the_answer() {
    let script = Script::new().answers(500, &[], vec![Piece::Wait(SECOND * 4), "{}".into()]);
    let mut rig = Rig::with(script, 1, |channel| channel.spec.failures_to_cool = 1);
    let clock = Arc::clone(&rig.clock);
    let set = async {
        tokio::time::sleep(SECOND).await;
        clock.set_forward(SECOND * 3_600);
    };
    let (got, ()) = tokio::join!(rig.ask(CHAT), set);
    assert_eq!(got.status, 502);
    rig.record();
    let [HealthState::Cooling { since, until, .. }] = unusable(&rig, 1)[..] else { panic!("the account cools") };
    assert_eq!((since, until), (rig.clock.now(), rig.clock.now().plus_ms(10_000)));
}
