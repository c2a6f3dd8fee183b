//! Streams are held back until the first content, relayed as they arrive, and never end cleanly after a break.

use tollgate_core::{AttemptResult, NanoUsd, Outcome};

use super::*;

#[tokio::test(start_paused = true)]
async fn stream_is_relayed_without_usage_unless_requested() {
    let mut rig = Rig::new(Script::new().streams(vec![role(), chunk("hel"), chunk("lo"), tail()]), 1);
    let got = rig.ask(STREAM).await;
    assert_eq!((got.status, got.aborted), (200, false));
    assert_eq!(got.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!((got.header("cache-control"), got.header("x-accel-buffering")), (Some("no-cache"), Some("no")));
    assert!(got.body.ends_with("data: [DONE]\n\n"), "{}", got.body);
    assert!(!got.body.contains("usage") && !got.body.contains("up-m"), "{}", got.body);
    assert!(rig.script.seen()[0].body.contains("include_usage"), "usage is asked for all the same");
    let record = rig.record();
    assert_eq!((record.outcome, record.stream), (Outcome::Completed, true));
    assert_eq!((record.tokens.input, record.tokens.output), (3, 2));
    assert_eq!((record.sale, record.cost), (Some(NanoUsd(7_000)), Some(NanoUsd(3_500))));
}

#[tokio::test(start_paused = true)]
async fn fail_over_is_possible_until_the_first_content() {
    let beginnings: Vec<(Vec<Piece>, &str)> = vec![
        (vec![role(), Piece::Break], "E58"),
        (vec![role()], "E58"),
        (vec![], "E58"),
        (vec![role(), "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\",\"code\":503}}\n\n".into()], "E56"),
        (vec![role(), "data: not json\n\n".into()], "E58"),
        (vec![role(), Piece::Stall], "E51"),
        (vec![": ping\n\n".into(), Piece::Wait(SECOND * 20), ": ping\n\n".into(), Piece::Stall], "E51"),
    ];
    for (pieces, id) in beginnings {
        let mut rig = Rig::new(Script::new().streams(pieces).streams(vec![role(), chunk("hi"), tail()]), 2);
        let got = rig.ask(STREAM).await;
        assert_eq!((got.status, got.aborted), (200, false), "{id}");
        assert!(got.body.contains("hi") && got.body.ends_with("[DONE]\n\n"), "{}", got.body);
        let record = rig.record();
        assert_eq!(record.attempts[0].error.as_deref(), Some(id));
        assert_eq!((record.outcome, record.attempts.len()), (Outcome::Completed, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn error_instead_of_a_stream_is_an_http_error() {
    let mut rig = Rig::new(Script::new().refuses(400, &[]), 1);
    let got = rig.ask(STREAM).await;
    assert_eq!((got.status, got.header("content-type")), (400, Some("application/json; charset=utf-8")));
    rig.record();
    let json = r#"{"error":{"message":"x","type":"server_error","param":null,"code":500}}"#;
    let mut rig = Rig::new(Script::new().replies(json), 1);
    assert_eq!(rig.ask(STREAM).await.code(), "upstream_error", "an error object where a stream was asked for");
    rig.record();
    let mut rig = Rig::new(Script::new().answers(200, &[("content-type", "text/html")], vec!["<html>".into()]), 1);
    assert_eq!(rig.ask(STREAM).await.code(), "upstream_bad_response");
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn broken_stream_ends_in_an_error_event_and_an_abort() {
    let breaks: Vec<Vec<Piece>> = vec![
        vec![role(), chunk("hello"), Piece::Break],
        vec![role(), chunk("hello")],
        vec![role(), chunk("hello"), "data: {\"id\":".into()],
        vec![role(), chunk("hello"), "data: {\"error\":{\"message\":\"secret text\",\"type\":\"server_error\"}}\n\n".into()],
        vec![role(), chunk("hello"), "data: [1,2\n\n".into()],
    ];
    for pieces in breaks {
        let shown = format!("{pieces:?}");
        let mut rig = Rig::new(Script::new().streams(pieces).replies(REPLY), 2);
        let got = rig.ask(STREAM).await;
        assert_eq!((got.status, got.aborted), (200, true), "{shown}");
        let tail = "data: {\"error\":{\"message\":\"The upstream provider's stream ended before the answer was complete.\",\"type\":\"server_error\",\"param\":null,\"code\":\"upstream_stream_interrupted\"}}\n\n";
        assert!(got.body.contains("hello") && got.body.ends_with(tail), "{}", got.body);
        assert!(!got.body.contains("[DONE]") && !got.body.contains("secret text"), "{}", got.body);
        let record = rig.record();
        assert_eq!((record.outcome, record.reason.as_deref(), record.status), (Outcome::UpstreamBroke, Some("E59"), 200));
        assert_eq!(record.attempts[0].result, AttemptResult::Broke);
        assert_eq!(rig.script.seen().len(), 1, "never another attempt behind the first byte");
        assert!(record.tokens.output > 0, "what was delivered is counted");
    }
}

#[tokio::test(start_paused = true)]
async fn keep_alives_are_sent_during_silence_until_the_idle_limit() {
    let mut rig = Rig::new(Script::new().streams(vec![role(), chunk("hello"), Piece::Stall]), 1);
    let began = tokio::time::Instant::now();
    let got = rig.ask(STREAM).await;
    assert!(got.aborted);
    assert_eq!(began.elapsed().as_secs(), 90);
    assert_eq!(got.body.matches(": keep-alive\n\n").count(), 8, "every 10 s until 90 s: {}", got.body);
    assert!(got.body.contains("sent nothing for 90 s") && got.body.contains("upstream_timeout"), "{}", got.body);
    let record = rig.record();
    assert_eq!((record.reason.as_deref(), rig.script.open()), (Some("E60"), 0));
}

#[tokio::test(start_paused = true)]
async fn idle_limit_below_the_keep_alive_interval_applies() {
    let script = Script::new().streams(vec![role(), chunk("hello"), Piece::Stall]);
    let mut rig = Rig::with(script, 1, |channel| channel.spec.timeouts.idle_ms = 3_000);
    let began = tokio::time::Instant::now();
    assert!(rig.ask(STREAM).await.body.contains("sent nothing for 3 s"));
    assert_eq!(began.elapsed().as_secs(), 3);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn attempt_timeout_ends_a_stream_like_the_idle_limit() {
    // A stream that pauses, one that never does, and one whose silence begins before the limit.
    let busy = (0..400).flat_map(|_| [Piece::Wait(Duration::from_millis(50)), chunk("a")]).collect();
    for rest in [vec![Piece::Stall], busy, vec![Piece::Wait(SECOND * 4), chunk("b"), Piece::Stall]] {
        let pieces = [vec![role(), chunk("hello")], rest].concat();
        let mut rig = Rig::with(Script::new().streams(pieces), 2, |channel| channel.spec.timeouts.total_ms = 5_000);
        let began = tokio::time::Instant::now();
        let got = rig.ask(STREAM).await;
        assert!(got.aborted && got.body.contains("took longer than 5 s"), "{}", got.body);
        assert!(got.body.contains("hello") && got.body.contains("upstream_timeout"), "{}", got.body);
        assert_eq!(began.elapsed().as_secs(), 5);
        let record = rig.record();
        assert_eq!((record.reason.as_deref(), record.outcome, rig.script.open()), (Some("E60"), Outcome::UpstreamBroke, 0));
        assert_eq!((record.attempts.len(), record.attempts[0].result), (1, AttemptResult::Broke));
        assert_eq!(rig.registry.of(record.attempts[0].account).failures, 1, "as after a pause that is too long");
        assert!(record.tokens.output > 0, "what came is charged");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_before_the_attempt_timeout_is_reported_as_silence() {
    let script = Script::new().streams(vec![role(), chunk("hello"), Piece::Stall]);
    let mut rig = Rig::with(script, 1, |channel| {
        (channel.spec.timeouts.idle_ms, channel.spec.timeouts.total_ms) = (3_000, 5_000);
    });
    assert!(rig.ask(STREAM).await.body.contains("sent nothing for 3 s"));
    rig.record();
    let quick = Script::new().streams(vec![role(), Piece::Wait(SECOND * 4), chunk("hello"), tail()]);
    let mut rig = Rig::with(quick, 1, |channel| channel.spec.timeouts.total_ms = 5_000);
    let got = rig.ask(STREAM).await;
    assert!(!got.aborted && got.body.ends_with("[DONE]\n\n"), "{}", got.body);
    assert_eq!(rig.record().outcome, Outcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn slow_stream_is_kept_alive_and_completes() {
    let slow = vec![role(), chunk("a"), Piece::Wait(SECOND * 80), chunk("b"), Piece::Wait(SECOND * 80), chunk("c"), tail()];
    let mut rig = Rig::new(Script::new().streams(slow), 1);
    let got = rig.ask(STREAM).await;
    assert!(!got.aborted && got.body.ends_with("[DONE]\n\n"));
    assert_eq!(got.body.matches(": keep-alive\n\n").count(), 14);
    let record = rig.record();
    assert_eq!((record.outcome, record.duration_us / 1_000_000), (Outcome::Completed, 160));
}

#[tokio::test(start_paused = true)]
async fn complete_answer_does_not_wait_for_the_upstream_to_close() {
    let mut rig = Rig::new(Script::new().streams(vec![role(), chunk("hi"), tail(), Piece::Stall]), 1);
    let began = tokio::time::Instant::now();
    let got = rig.ask(STREAM).await;
    assert!(!got.aborted && got.body.ends_with("[DONE]\n\n"), "{}", got.body);
    assert!(began.elapsed() < SECOND);
    assert_eq!(rig.record().tokens.output, 2);
}

/// A last chunk without a terminator, and possible bytes after it.
const FINISH: &str = "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"up-m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const USAGE: &str = "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"up-m\",\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}}\n\n";

#[tokio::test(start_paused = true)]
async fn answer_with_a_finish_reason_but_no_end_marker_is_complete() {
    let endings: [(Vec<Piece>, u64); 6] = [
        (vec![FINISH.into(), USAGE.into(), Piece::Stall], 5),
        (vec![USAGE.into(), FINISH.into(), Piece::Stall], 5),
        (vec![FINISH.into(), USAGE.into(), Piece::Break], 0),
        // Its usage may still arrive; at the idle limit the text is complete without it.
        (vec![FINISH.into(), Piece::Stall], 90),
        (vec![FINISH.into(), Piece::Break], 0),
        (vec![FINISH.into(), Piece::Wait(SECOND * 60), USAGE.into(), Piece::Stall], 65),
    ];
    for (ending, secs) in endings {
        let shown = format!("{ending:?}");
        let pieces = [vec![role(), chunk("hello")], ending].concat();
        let mut rig = Rig::new(Script::new().streams(pieces), 1);
        let began = tokio::time::Instant::now();
        let got = rig.ask(STREAM).await;
        assert_eq!((got.status, got.aborted, began.elapsed().as_secs()), (200, false, secs), "{shown}");
        assert!(got.body.contains("hello") && got.body.ends_with("data: [DONE]\n\n"), "{}", got.body);
        assert!(!got.body.contains("error"), "{}", got.body);
        let record = rig.record();
        assert_eq!((record.outcome, record.reason.as_deref(), rig.script.open()), (Outcome::Completed, None, 0), "{shown}");
        assert_eq!(record.attempts[0].result, AttemptResult::Answered);
        let account = rig.core.shared.catalog.load().channels[0].accounts[0].id;
        assert_eq!(rig.registry.of(account).failures, 0, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn short_idle_limit_applies_after_a_finish_reason() {
    let script = Script::new().streams(vec![role(), chunk("hello"), FINISH.into(), USAGE.into(), Piece::Stall]);
    let mut rig = Rig::with(script, 1, |channel| channel.spec.timeouts.idle_ms = 1_000);
    let began = tokio::time::Instant::now();
    let got = rig.ask(STREAM).await;
    assert!(!got.aborted && got.body.ends_with("[DONE]\n\n"), "{}", got.body);
    assert_eq!((began.elapsed().as_secs(), rig.record().outcome), (1, Outcome::Completed));
}

/// `count` pieces, one every 400 ms.
fn drip(piece: &str, count: usize) -> Vec<Piece> {
    (0..count).flat_map(|_| [Piece::Wait(Duration::from_millis(400)), piece.into()]).collect()
}

const NOTHING: [&str; 2] = [
    ": ping\n\n",
    "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"up-m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":null}]}\n\n",
];

#[tokio::test(start_paused = true)]
async fn comments_and_empty_deltas_after_a_finish_reason_count_as_silence() {
    for nothing in NOTHING {
        let endings: [(Vec<Piece>, u64, u64); 4] = [
            (vec![FINISH.into(), USAGE.into()], 1_500, 1_500),
            (vec![FINISH.into(), USAGE.into()], 90_000, 5_000),
            (vec![FINISH.into()], 1_500, 1_500),
            (vec![FINISH.into()], 90_000, 90_000),
        ];
        for (ending, idle_ms, ends_ms) in endings {
            let pieces = [vec![role(), chunk("hello")], ending, drip(nothing, 3_000)].concat();
            let mut rig = Rig::with(Script::new().streams(pieces), 1, |channel| channel.spec.timeouts.idle_ms = idle_ms);
            let began = tokio::time::Instant::now();
            let got = rig.ask(STREAM).await;
            let took = u64::try_from(began.elapsed().as_millis()).unwrap();
            assert!((ends_ms..ends_ms + 401).contains(&took), "{nothing} {idle_ms}: {took} ms");
            assert!(!got.aborted && got.body.ends_with("data: [DONE]\n\n"), "{}", got.body);
            assert_eq!((rig.record().outcome, rig.script.open()), (Outcome::Completed, 0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn comments_and_empty_deltas_before_a_finish_reason_extend_the_stream_to_the_stall_limit() {
    for nothing in NOTHING {
        let thinks = [vec![role(), chunk("hello")], drip(nothing, 1_000), vec![chunk("and"), tail()]].concat();
        let mut rig = Rig::with(Script::new().streams(thinks), 1, |channel| channel.spec.timeouts.idle_ms = 1_500);
        let got = rig.ask(STREAM).await;
        assert!(!got.aborted && got.body.contains("and") && got.body.ends_with("data: [DONE]\n\n"), "{nothing}: {}", got.body);
        rig.record();

        let holds = [vec![role(), chunk("hello")], drip(nothing, 6_000)].concat();
        let mut rig = Rig::with(Script::new().streams(holds), 1, |channel| channel.spec.timeouts.idle_ms = 1_500);
        let began = tokio::time::Instant::now();
        let got = rig.ask(STREAM).await;
        assert!(got.aborted && got.body.contains("upstream_timeout"), "{}", got.body);
        assert_eq!((began.elapsed().as_secs(), rig.record().reason.as_deref()), (1_800, Some("E60")));
    }
}

#[tokio::test(start_paused = true)]
async fn break_after_a_complete_answer_is_ignored() {
    let mut rig = Rig::new(Script::new().streams(vec![role(), chunk("hi"), tail(), Piece::Break]), 1);
    let got = rig.ask(STREAM).await;
    assert!(!got.aborted && got.body.ends_with("[DONE]\n\n"), "{}", got.body);
    assert_eq!(rig.record().outcome, Outcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn end_is_in_the_journal_before_the_last_bytes_are_sent() {
    let mut rig = Rig::new(Script::new().streams(vec![role(), chunk("hi"), Piece::Wait(SECOND), tail()]), 1);
    let mut body = serve(&rig.core, rig.incoming(STREAM)).await.into_body();
    let mut text = String::new();
    while let Some(frame) = body.frame().await {
        let bytes = frame.unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&bytes).unwrap());
        let ended = rig.journal.backlog().unwrap().count();
        assert_eq!(ended, usize::from(text.contains("[DONE]") || text.contains("\"stop\"")), "after {text}");
    }
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn stream_cut_into_single_bytes_gives_the_same_answer() {
    let whole = {
        let rig = Rig::new(Script::new().streams(vec![role(), chunk("grüße"), tail()]), 1);
        rig.ask(STREAM).await.body
    };
    let bytes: Vec<Piece> = [role(), chunk("grüße"), tail()]
        .iter()
        .flat_map(|piece| match piece {
            Piece::Data(data) => data.iter().map(|byte| Piece::Data(Bytes::copy_from_slice(&[*byte]))).collect::<Vec<_>>(),
            Piece::Wait(_) | Piece::Stall | Piece::Break => unreachable!("only data here"),
        })
        .collect();
    let mut rig = Rig::new(Script::new().streams(bytes), 1);
    assert_eq!(rig.ask(STREAM).await.body, whole);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn endless_prelude_without_content_is_a_bad_response() {
    let comments: Vec<Piece> = (0..3_000).map(|_| Piece::Data(Bytes::from(format!(": {}\n\n", "x".repeat(1_000))))).collect();
    let mut rig = Rig::new(Script::new().streams(comments), 1);
    assert_eq!(rig.ask(STREAM).await.code(), "upstream_bad_response");
    assert_eq!(rig.script.open(), 0);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn line_of_a_hundred_megabytes_is_a_bad_response() {
    let mib = Bytes::from(vec![b'x'; 1 << 20]);
    let mut line = vec![role(), chunk("hi"), Piece::from("data: \"")];
    line.extend((0..100).map(|_| Piece::Data(mib.clone())));
    let mut rig = Rig::new(Script::new().streams(line), 1);
    let got = rig.ask(STREAM).await;
    assert!(got.aborted && got.body.contains("upstream_stream_interrupted"));
    rig.record();
}
