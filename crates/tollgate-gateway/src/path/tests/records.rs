//! Exactly one record per authenticated request, none for others.

use tollgate_core::{AttemptResult, NanoUsd, Outcome};

use super::*;

#[tokio::test(start_paused = true)]
async fn refusals_after_authentication_leave_one_record_with_their_reason() {
    for (body, status, reason) in [
        ("{", 400, "E18"),
        (r#"{"messages":[{"role":"user","content":"x"}]}"#, 400, "E16"),
        (r#"{"model":"m","messages":[]}"#, 400, "E21"),
        (r#"{"model":"none","messages":[{"role":"user","content":"x"}]}"#, 404, "E13"),
    ] {
        let mut rig = Rig::new(Script::new(), 1);
        let got = rig.ask(body).await;
        assert_eq!(got.status, status, "{}", got.body);
        let record = rig.record();
        assert_eq!((record.outcome, record.status, record.reason.as_deref()), (Outcome::Refused, status, Some(reason)));
        assert!(got.body.contains(&record.detail.unwrap().replace('"', "\\\"")), "the record has the caller's message");
        assert_eq!(record.group_name.as_deref(), Some("default"), "it counts in the key's group");
        assert_eq!(rig.script.seen().len(), 0, "nothing was sent");
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_before_the_body_is_read_counts_in_the_first_group_of_the_key() {
    let limits = tollgate_core::Limits { rpm: 1, ..tollgate_core::Limits::default() };
    let mut rig = Rig::keyed(Script::new().replies(REPLY), |key| key.limits = limits);
    assert_eq!((rig.ask(CHAT).await.status, rig.ask(CHAT).await.status), (200, 429));
    let record = rig.records().remove(1);
    assert_eq!((record.reason.as_deref(), record.model, record.group_name.as_deref()), (Some("E31"), None, Some("default")));
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_do_not_count_against_the_request_rate() {
    let limits = tollgate_core::Limits { rpm: 1, ..tollgate_core::Limits::default() };
    let mut rig = Rig::keyed(Script::new().replies(REPLY), |key| key.limits = limits);
    for body in ["{", r#"{"model":"m","messages":[]}"#, r#"{"model":"none","messages":[{"role":"user","content":"x"}]}"#] {
        assert!(matches!(rig.ask(body).await.status, 400 | 404), "{body}");
    }
    assert_eq!((rig.ask(CHAT).await.status, rig.ask(CHAT).await.status), (200, 429));
    rig.records();
}

#[tokio::test(start_paused = true)]
async fn unauthenticated_request_leaves_no_record() {
    let mut rig = Rig::new(Script::new(), 1);
    let mut incoming = rig.incoming(CHAT);
    incoming.head.presented_key = None;
    assert_eq!(read(serve(&rig.core, incoming).await).await.status, 401);
    assert_eq!(rig.records().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn channel_without_accounts_is_e40_with_a_trace() {
    let mut rig = Rig::with(Script::new(), 1, |channel| channel.accounts.clear());
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.header("x-tollgate-cause")), (503, Some("none_configured")));
    let record = rig.record();
    assert_eq!((record.reason.as_deref(), &*record.trace[0].code), (Some("E40"), "no_account"));
}

#[tokio::test(start_paused = true)]
async fn invalid_price_limit_header_is_refused() {
    let mut rig = Rig::new(Script::new(), 1);
    let mut incoming = rig.incoming(CHAT);
    incoming.head.headers.append("x-tollgate-max-price", "cheap".parse().unwrap());
    let got = read(serve(&rig.core, incoming).await).await;
    assert_eq!(got.status, 400);
    assert!(got.body.contains("x-tollgate-max-price"), "{}", got.body);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn price_limit_below_the_price_is_e41() {
    let mut rig = Rig::new(Script::new(), 1);
    let mut incoming = rig.incoming(CHAT);
    incoming.head.headers.append("x-tollgate-max-price", "input=0.5".parse().unwrap());
    let got = read(serve(&rig.core, incoming).await).await;
    assert_eq!(
        (got.status, got.header("x-tollgate-cause"), got.header("x-should-retry")),
        (503, Some("price_limit"), Some("false"))
    );
    assert_eq!(rig.record().reason.as_deref(), Some("E41"));
}

#[tokio::test(start_paused = true)]
async fn disconnect_before_the_answer_closes_the_upstream_and_is_recorded() {
    for body in [CHAT, STREAM] {
        let mut rig = Rig::new(Script::new().silent(), 1);
        let waiting = serve(&rig.core, rig.incoming(body));
        assert!(tokio::time::timeout(SECOND, waiting).await.is_err(), "dropped while waiting");
        assert_eq!(rig.script.open(), 0, "the upstream is closed with the caller");
        let record = rig.record();
        assert_eq!((record.outcome, record.status, record.reason.as_deref()), (Outcome::CallerLeft, 499, Some("E64")));
        assert_eq!(record.attempts[0].result, AttemptResult::Cancelled);
        assert_eq!(record.duration_us, 1_000_000);
    }
}

#[tokio::test(start_paused = true)]
async fn disconnect_during_a_stream_charges_the_delivered_part() {
    let script = Script::new().streams(vec![role(), chunk("one two three four five six"), Piece::Stall]);
    let mut rig = Rig::new(script, 1);
    let response = serve(&rig.core, rig.incoming(STREAM)).await;
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    assert!(tokio::time::timeout(SECOND, async { while body.frame().await.is_some() {} }).await.is_err());
    assert_eq!(rig.script.open(), 1);
    drop(body);
    assert_eq!(rig.script.open(), 0, "the upstream is closed with the caller");
    let record = rig.record();
    assert_eq!((record.outcome, record.status), (Outcome::CallerLeft, 200));
    assert!(record.tokens.output > 0 && record.sale > Some(NanoUsd(0)), "{:?}", record.tokens);
    assert_eq!(record.attempts[0].result, AttemptResult::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn unread_stream_is_recorded() {
    let mut rig = Rig::new(Script::new().streams(vec![role(), chunk("hi"), Piece::Stall]), 1);
    drop(serve(&rig.core, rig.incoming(STREAM)).await);
    assert_eq!((rig.record().outcome, rig.script.open()), (Outcome::CallerLeft, 0));
}

#[tokio::test(start_paused = true)]
async fn answers_cut_off_by_a_shutdown_are_recorded_as_gateway_stopped() {
    let mut rig = Rig::new(Script::new().streams(vec![role(), chunk("hi"), Piece::Stall]).silent(), 1);
    let streaming = serve(&rig.core, rig.incoming(STREAM)).await;
    let waiting = Box::pin(serve(&rig.core, rig.incoming(CHAT)));
    let waiting = match futures_util::future::select(waiting, Box::pin(tokio::time::sleep(SECOND))).await {
        futures_util::future::Either::Left(_) => panic!("a silent upstream answered"),
        futures_util::future::Either::Right(((), waiting)) => waiting,
    };
    rig.core.shared.serving.cut_off();
    drop((streaming, waiting));
    let records = rig.records();
    assert!(records.iter().all(|record| record.outcome == Outcome::GatewayStopped), "{records:?}");
    assert_eq!(records.iter().map(|record| record.status).collect::<Vec<_>>(), [200, 0]);
}

#[tokio::test(start_paused = true)]
async fn last_bytes_wait_for_the_disk_in_group_mode() {
    let options = |dir: &std::path::Path| {
        let mut options = JournalOptions::new(dir.to_owned(), uuid::Uuid::nil());
        options.sync = tollgate_store::JournalSync::Group;
        options
    };
    let script = Script::new().replies(REPLY).streams(vec![role(), chunk("hi"), tail()]);
    let mut rig = Rig::build(script, 1, options, |_| {});
    assert_eq!(rig.ask(CHAT).await.body, REPLY.replace("up-m", "m"));
    assert!(rig.ask(STREAM).await.body.ends_with("data: [DONE]\n\n"));
    assert_eq!(rig.records().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn thousand_requests_leave_a_thousand_records() {
    let script = (0..1_000).fold(Script::new(), |script, i| match i % 5 {
        0 => script.replies(REPLY),
        1 => script.refuses(400, &[]),
        2 => script.lost(),
        3 => script.streams(vec![role(), chunk("hi"), tail()]),
        _ => script.streams(vec![role(), chunk("hi"), Piece::Break]),
    });
    let mut rig = Rig::with(script, 1, |channel| channel.spec.cooling = false);
    for i in 0..1_000 {
        rig.ask(if i % 5 < 3 { CHAT } else { STREAM }).await;
    }
    let records = rig.records();
    assert_eq!(records.len(), 1_000);
    let of = |outcome| records.iter().filter(|record| record.outcome == outcome).count();
    assert_eq!((of(Outcome::Completed), of(Outcome::Refused), of(Outcome::UpstreamBroke)), (400, 200, 400));
}

#[tokio::test(start_paused = true)]
async fn fields_the_model_drops_are_removed_and_reported() {
    let mut rig = Rig::new(Script::new().replies(REPLY), 1);
    rig.change_model(|model| {
        model.spec.parameters = tollgate_core::ParameterRule::Except(vec!["logit_bias".to_owned()]);
        model.spec.on_unsupported = tollgate_core::OnUnsupported::Drop;
    });
    let got = rig.ask(&CHAT.replace("\"m\",", "\"m\",\"logit_bias\":{\"1\":2},\"seed\":9007199254740993,")).await;
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, Some("logit_bias")));
    let sent = &rig.script.seen()[0].body;
    assert!(!sent.contains("logit_bias") && sent.contains("9007199254740993") && sent.contains("up-m"), "{sent}");
    assert_eq!(rig.record().dropped, ["logit_bias"]);
}
