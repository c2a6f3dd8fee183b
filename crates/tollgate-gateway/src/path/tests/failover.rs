//! Failures that lead to another attempt, the error that the caller gets, and the effect on account health.

use tollgate_core::{AttemptResult, Availability, Catalog, CoolingReason, CoolingRules, NanoUsd, Observation, Outcome};

use super::*;

/// Adds a fault to a script, the expected error id, and the recorded result of the attempt.
type Fault = (fn(Script) -> Script, &'static str, AttemptResult);

fn results(record: &UsageRecord) -> Vec<(Option<&str>, AttemptResult)> {
    record.attempts.iter().map(|attempt| (attempt.error.as_deref(), attempt.result)).collect()
}

#[tokio::test(start_paused = true)]
async fn answer_is_delivered_with_its_headers_and_recorded() {
    let mut rig = Rig::new(Script::new().replies(REPLY), 1);
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.aborted), (200, false));
    assert_eq!(got.body, REPLY.replace("up-m", "m"), "the caller's name of the model is put back");
    assert_eq!(got.header("content-type"), Some("application/json; charset=utf-8"));
    assert_eq!(got.header("x-tollgate-attempts"), Some("1"));
    let record = rig.record();
    assert_eq!(got.header("x-request-id"), Some(record.id.to_string().as_str()));
    assert_eq!((record.outcome, record.status, record.reason.as_deref()), (Outcome::Completed, 200, None));
    assert_eq!((record.tokens.input, record.tokens.output), (3, 1));
    assert_eq!((record.sale, record.cost), (Some(NanoUsd(5_000)), Some(NanoUsd(2_500))));
    assert_eq!(results(&record), [(None, AttemptResult::Answered)]);
    assert_eq!(record.price_version, Revision(7));
    let seen = rig.script.seen();
    assert_eq!(seen[0].path, "/chat/completions");
    assert_eq!(seen[0].body, CHAT.replace("\"m\"", "\"up-m\""), "only the model's name was changed");
}

#[tokio::test(start_paused = true)]
async fn beginning_is_in_the_journal_before_anything_is_sent() {
    let mut rig = Rig::new(Script::new().refuses(500, &[]).replies(REPLY), 2);
    rig.ask(CHAT).await;
    let begun: Vec<_> = rig.script.seen().iter().map(|seen| seen.begun).collect();
    assert_eq!(begun, [1, 1]);
    assert_eq!(rig.record().attempts.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn every_account_failure_fails_over() {
    let faults: [Fault; 21] = [
        (Script::not_sent, "E50", AttemptResult::NotSent),
        (Script::lost, "E50", AttemptResult::Failed),
        (Script::silent, "E51", AttemptResult::Failed),
        (|it| it.refuses(401, &[]), "E53", AttemptResult::Refused),
        (|it| it.refuses(403, &[]), "E53", AttemptResult::Refused),
        (|it| it.refuses(429, &[]), "E54", AttemptResult::Refused),
        (|it| it.refuses(500, &[]), "E55", AttemptResult::Refused),
        (|it| it.refuses(503, &[]), "E56", AttemptResult::Refused),
        (|it| it.refuses(504, &[]), "E57", AttemptResult::Refused),
        (|it| it.replies("<html>busy</html>"), "E58", AttemptResult::Failed),
        (|it| it.replies(r#"{"id":"x","choices":null}"#), "E58", AttemptResult::Failed),
        (|it| it.answers(200, &[], Vec::new()), "E58", AttemptResult::Failed),
        (
            |it| it.replies(r#"{"id":"x","choices":[{"index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}"#),
            "E58",
            AttemptResult::Failed,
        ),
        (|it| it.answers(200, &[("content-type", "text/plain")], vec![REPLY.into()]), "E58", AttemptResult::Failed),
        (
            |it| it.answers(200, &[("content-type", "text/plain")], vec![r#"{"error":{"message":"busy","code":429}}"#.into()]),
            "E54",
            AttemptResult::Refused,
        ),
        (|it| it.answers(404, &[("content-type", "text/html")], vec!["<html>".into()]), "E55", AttemptResult::Refused),
        (|it| it.answers(404, &[], vec![r#"{"message":"Not Found"}"#.into()]), "E55", AttemptResult::Refused),
        (|it| it.answers(400, &[("content-type", "text/html")], vec!["<html>".into()]), "E55", AttemptResult::Refused),
        (|it| it.answers(413, &[], vec!["<html>".into()]), "E52", AttemptResult::Refused),
        (
            |it| {
                let refused = r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]"#;
                it.answers(400, &[], vec![refused.into()])
            },
            "E53",
            AttemptResult::Refused,
        ),
        (|it| it.answers(302, &[("location", "http://127.0.0.1:1/")], Vec::new()), "E58", AttemptResult::Failed),
    ];
    for (fault, id, result) in faults {
        let mut rig = Rig::new(fault(Script::new()).replies(REPLY), 2);
        let got = rig.ask(CHAT).await;
        let sent = if result == AttemptResult::NotSent { "1" } else { "2" };
        assert_eq!((got.status, got.header("x-tollgate-attempts")), (200, Some(sent)), "{id}");
        let record = rig.record();
        assert_eq!(results(&record), [(Some(id), result), (None, AttemptResult::Answered)]);
        assert_eq!(record.outcome, Outcome::Completed);
        let seen = rig.script.seen();
        assert_ne!(seen[0].account, seen[1].account, "an account is never tried twice");
    }
}

#[tokio::test(start_paused = true)]
async fn rate_limit_of_every_account_is_recorded_as_refused_and_a_failure_as_broken() {
    for (status, id, outcome) in [(429, "E54", Outcome::Refused), (500, "E55", Outcome::UpstreamBroke)] {
        let mut rig = Rig::new(Script::new().refuses(status, &[]), 1);
        rig.ask(CHAT).await;
        let record = rig.record();
        assert_eq!((record.outcome, record.reason.as_deref()), (outcome, Some(id)));
    }
}

#[tokio::test(start_paused = true)]
async fn answers_with_a_missing_or_generic_content_type_are_parsed() {
    for kind in [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/vnd.api+json",
        "text/json",
        "application/octet-stream",
        "",
    ] {
        let mut rig = Rig::new(Script::new().answers(200, &[("content-type", kind)], vec![REPLY.into()]), 1);
        assert_eq!(rig.ask(CHAT).await.status, 200, "{kind}");
        rig.record();
    }
    let mut rig = Rig::new(Script::new().answers(200, &[], vec![REPLY.into()]), 1);
    assert_eq!(rig.ask(CHAT).await.status, 200, "no type at all");
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn last_account_cooling_for_unreadable_answers_is_tried() {
    let script = (0..3).fold(Script::new(), |script, _| script.replies("{}")).replies(REPLY);
    let mut rig = Rig::new(script, 1);
    for _ in 0..3 {
        assert_eq!(rig.ask(CHAT).await.status, 502);
    }
    let account = rig.core.shared.catalog.load().channels[0].accounts[0].id;
    let availability = rig.registry.of(account).availability(rig.clock.now());
    assert!(matches!(availability, Availability::Cooling { why: CoolingReason::BadAnswer, .. }), "{availability:?}");
    assert_eq!(rig.ask(CHAT).await.status, 200, "it is not an outage of as long as the account cools");
    assert_eq!(rig.records().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn wrong_address_is_502_without_alternative_and_cools_its_account() {
    let page = |it: Script| it.answers(404, &[("content-type", "text/html")], vec!["<html>".into()]);
    let mut rig = Rig::new(page(page(page(Script::new()))), 1);
    for _ in 0..3 {
        let got = rig.ask(CHAT).await;
        assert_eq!((got.status, got.code().as_str()), (502, "upstream_error"));
        assert!(got.body.contains("failed with status 404"), "{}", got.body);
    }
    assert!(rig.records().iter().all(|record| results(record) == [(Some("E55"), AttemptResult::Refused)]));
    let account = rig.core.shared.catalog.load().channels[0].accounts[0].id;
    let availability = rig.registry.of(account).availability(rig.clock.now());
    assert!(matches!(availability, Availability::Cooling { why: CoolingReason::BadAnswer, .. }), "{availability:?}");
}

#[tokio::test(start_paused = true)]
async fn overloaded_account_cools_for_its_retry_after() {
    let busy = Script::new().refuses(503, &[("retry-after", "40")]).replies(REPLY).replies(REPLY).replies(REPLY);
    let mut rig = Rig::new(busy, 2);
    for attempts in ["2", "1", "1"] {
        let got = rig.ask(CHAT).await;
        assert_eq!((got.status, got.header("x-tollgate-attempts")), (200, Some(attempts)));
    }
    rig.records();
    let seen = rig.script.seen();
    assert!(seen[1..].iter().all(|later| later.account != seen[0].account));
}

#[tokio::test(start_paused = true)]
async fn changes_during_an_attempt_apply_to_the_next_one() {
    type Change = fn(&Rig);
    let changes: [Change; 2] = [
        |rig| {
            for account in rig.core.shared.catalog.load().channels.values().flat_map(|channel| &channel.accounts) {
                rig.registry.observe(account.id, &Observation::Refused, CoolingRules::default(), rig.clock.now());
            }
        },
        |rig| {
            let mut catalog = Catalog::clone(&rig.core.shared.catalog.load());
            for channel in catalog.channels.values_mut() {
                Arc::make_mut(channel).spec.on = false;
            }
            rig.core.shared.catalog.store(Arc::new(catalog));
        },
    ];
    for change in changes {
        let mut rig = Rig::new(Script::new().silent().replies(REPLY), 2);
        let later = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            change(&rig);
        };
        let (got, ()) = tokio::join!(rig.ask(CHAT), later);
        assert_eq!((got.status, got.header("x-tollgate-attempts")), (504, Some("1")));
        assert_eq!(rig.script.seen().len(), 1, "the account that was planned next is not asked");
        assert_eq!(results(&rig.record()), [(Some("E51"), AttemptResult::Failed)]);
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_request_is_returned_at_once_and_blames_no_account() {
    for status in [400, 409, 413, 415, 422] {
        let mut rig = Rig::new(Script::new().refuses(status, &[]).replies(REPLY), 2);
        let got = rig.ask(CHAT).await;
        assert_eq!((got.status, got.code()), (status, "c".to_owned()));
        let record = rig.record();
        assert_eq!(results(&record), [(Some("E52"), AttemptResult::Refused)]);
        assert_eq!((record.outcome, record.status, record.sale), (Outcome::Refused, status, Some(NanoUsd(0))));
        let account = rig.script.seen()[0].account;
        assert_eq!(rig.registry.of(account).availability(rig.clock.now()), Availability::Usable);
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_three_attempts_are_made() {
    let script = Script::new().refuses(500, &[]).refuses(502, &[]).refuses(503, &[("retry-after", "7")]).replies(REPLY);
    let mut rig = Rig::new(script, 5);
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.code().as_str()), (503, "upstream_overloaded"));
    assert_eq!((got.header("retry-after"), got.header("x-tollgate-attempts")), (Some("7"), Some("3")));
    let record = rig.record();
    assert_eq!(results(&record).iter().map(|(id, _)| id.unwrap()).collect::<Vec<_>>(), ["E55", "E55", "E56"]);
    assert_eq!((record.outcome, record.reason.as_deref()), (Outcome::UpstreamBroke, Some("E56")));
    assert_eq!(record.detail.as_deref(), Some("The upstream provider is overloaded."));
}

#[tokio::test(start_paused = true)]
async fn uncertain_attempt_is_not_repeated_without_retry_uncertain() {
    type Uncertain = (fn(Script) -> Script, u16);
    // The request was sent, and its answer is unusable or its outcome is unknown.
    let uncertain: [Uncertain; 9] = [
        (Script::lost, 502),
        (Script::silent, 504),
        (|it| it.refuses(408, &[]), 504),
        (|it| it.refuses(504, &[]), 504),
        (|it| it.refuses(524, &[]), 504),
        (|it| it.answers(200, &[], vec!["{".into(), Piece::Break]), 502),
        (|it| it.answers(200, &[], vec!["{".into(), Piece::Stall]), 504),
        (|it| it.replies("<html>busy</html>"), 502),
        (|it| it.streams(vec![role(), Piece::Break]), 502),
    ];
    for (at, (fault, status)) in uncertain.into_iter().enumerate() {
        let mut rig = Rig::with(fault(Script::new()).replies(REPLY), 2, |channel| channel.spec.retry_uncertain = false);
        assert_eq!((at, rig.ask(CHAT).await.status), (at, status));
        assert_eq!(rig.record().attempts.len(), 1);
    }
    // The request was not sent, or the answer says that it was not processed.
    let certain: [fn(Script) -> Script; 5] = [
        Script::not_sent,
        |it| it.refuses(429, &[]),
        |it| it.refuses(500, &[]),
        |it| it.refuses(503, &[]),
        |it| it.answers(302, &[("location", "http://127.0.0.1:1/")], Vec::new()),
    ];
    for (at, fault) in certain.into_iter().enumerate() {
        let mut rig = Rig::with(fault(Script::new()).replies(REPLY), 2, |channel| channel.spec.retry_uncertain = false);
        assert_eq!((at, rig.ask(CHAT).await.status), (at, 200));
        assert_eq!(rig.record().attempts.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn another_address_is_tried_before_an_unreachable_one() {
    for cooling in [true, false] {
        let mut rig = Rig::with(Script::new().not_sent().replies(REPLY), 5, |channel| channel.spec.cooling = cooling);
        rig.add_channel(|channel| {
            channel.spec.base_url = "http://127.0.0.2:1/v1".to_owned();
            channel.spec.priority = 1;
        });
        let got = rig.ask(CHAT).await;
        assert_eq!((got.status, got.header("x-tollgate-attempts")), (200, Some("1")));
        assert_eq!(rig.record().attempts[1].channel_name, "two", "not one of the other four at the same address");
    }
}

fn not_sent(script: Script, times: usize) -> Script {
    (0..times).fold(script, |script, _| script.not_sent())
}

#[tokio::test(start_paused = true)]
async fn unsent_attempts_do_not_count_as_attempts() {
    let mut rig = Rig::new(not_sent(Script::new(), 5).replies(REPLY), 6);
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.header("x-tollgate-attempts")), (200, Some("1")), "one reached an upstream");
    assert_eq!(rig.record().attempts.len(), 6);

    let script = not_sent(Script::new(), 1).refuses(500, &[]).refuses(500, &[]);
    let mut rig = Rig::new(not_sent(script, 2).refuses(500, &[]).replies(REPLY), 9);
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.header("x-tollgate-attempts")), (502, Some("3")));
    assert_eq!(rig.record().attempts.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn unsent_attempts_are_limited_to_eight_and_use_no_retry_budget() {
    let mut rig = Rig::with(not_sent(Script::new(), 13 * 8), 12, |channel| channel.spec.cooling = false);
    for _ in 0..13 {
        let got = rig.ask(CHAT).await;
        assert_eq!((got.status, got.code().as_str()), (502, "upstream_unreachable"));
        assert_eq!(got.header("x-tollgate-attempts"), None, "none reached an upstream");
    }
    assert!(rig.records().iter().all(|record| record.attempts.len() == 8));
    let left = (0..100).filter(|_| rig.core.shared.retries.try_acquire(rig.clock.instant())).count();
    assert_eq!(left, 12, "ten, and a fifth of thirteen");
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_that_of_the_account_that_recovers_first() {
    for waits in [["7", "50"], ["50", "7"]] {
        let [one, other] = waits.map(|wait| [("retry-after", wait)]);
        let mut rig = Rig::new(Script::new().refuses(429, &one).refuses(429, &other), 2);
        let got = rig.ask(CHAT).await;
        assert_eq!((got.status, got.code().as_str()), (429, "upstream_rate_limited"));
        assert_eq!(got.header("retry-after"), Some("7"), "{waits:?}");
        let got = rig.ask(CHAT).await;
        assert_eq!((got.status, got.header("retry-after")), (503, Some("7")), "and so is that of the next request");
        assert_eq!(rig.records().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn price_limit_beside_disabled_channels_is_not_retryable() {
    let mut rig = Rig::new(Script::new(), 1);
    rig.add_channel(|channel| channel.spec.on = false);
    let mut incoming = rig.incoming(CHAT);
    incoming.head.headers.append("x-tollgate-max-price", "input=0.5".parse().unwrap());
    let got = read(serve(&rig.core, incoming).await).await;
    assert_eq!((got.status, got.header("x-tollgate-cause")), (503, Some("price_limit")));
    assert_eq!(got.header("x-should-retry"), Some("false"));
    assert!(got.body.contains("limit 0.50, cheapest 1.00 USD"), "{}", got.body);
    assert_eq!(rig.record().reason.as_deref(), Some("E41"));
}

#[tokio::test(start_paused = true)]
async fn silent_upstream_times_out_at_the_first_byte_limit() {
    let mut rig = Rig::with(Script::new(), 1, |channel| channel.spec.timeouts.first_byte_ms = 7_000);
    let began = tokio::time::Instant::now();
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.code().as_str()), (504, "upstream_timeout"));
    assert!(got.body.contains("within 7 s"), "{}", got.body);
    assert_eq!(began.elapsed().as_secs(), 7);
    assert_eq!((rig.record().outcome, rig.script.open()), (Outcome::UpstreamBroke, 0));
}

#[tokio::test(start_paused = true)]
async fn attempt_timeout_fails_over_to_another_account() {
    // No head in time; a body that never ends although it never pauses for long; a stream without content.
    let trickle = || (0..100).flat_map(|_| [Piece::Wait(SECOND), " ".into()]).collect::<Vec<_>>();
    let json: &[(&str, &str)] = &[("content-type", "application/json")];
    let pings = (0..100).flat_map(|_| [Piece::Wait(SECOND), ": ping\n\n".into()]).collect();
    for (script, body) in [
        (Script::new().answers(200, json, trickle()).replies(REPLY), CHAT),
        (Script::new().streams(pings).streams(vec![role(), chunk("hello"), tail()]), STREAM),
    ] {
        let mut rig = Rig::with(script, 2, |channel| channel.spec.timeouts.total_ms = 7_000);
        let began = tokio::time::Instant::now();
        let got = rig.ask(body).await;
        assert_eq!((got.status, began.elapsed().as_secs()), (200, 7), "{}", got.body);
        let record = rig.record();
        let results: Vec<AttemptResult> = record.attempts.iter().map(|attempt| attempt.result).collect();
        assert_eq!(results, [AttemptResult::Failed, AttemptResult::Answered]);
        assert_eq!(record.attempts[0].error.as_deref(), Some("E51"));
        assert_eq!(rig.registry.of(record.attempts[0].account).failures, 1);
    }
    let mut rig = Rig::with(Script::new(), 1, |channel| channel.spec.timeouts.total_ms = 7_000);
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.code().as_str()), (504, "upstream_timeout"));
    assert!(got.body.contains("within 7 s"), "{}", got.body);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn request_ends_after_ten_minutes() {
    let mut rig = Rig::with(Script::new(), 3, |channel| channel.spec.timeouts.first_byte_ms = 250_000);
    let began = tokio::time::Instant::now();
    assert_eq!(rig.ask(CHAT).await.status, 504);
    assert_eq!(began.elapsed().as_secs(), 600);
    let record = rig.record();
    assert_eq!(record.attempts.len(), 3);
    let failures: Vec<u32> = record.attempts.iter().map(|attempt| rig.registry.of(attempt.account).failures).collect();
    assert_eq!(failures, [1, 1, 0], "the last account was well within its own limit");
    assert_eq!(record.detail.as_deref(), Some("The upstream provider did not answer within 600 s."));
}

#[tokio::test(start_paused = true)]
async fn body_cut_by_the_request_timeout_blames_no_account() {
    let trickle = (0..700).flat_map(|_| [Piece::Wait(SECOND), " ".into()]).collect();
    let mut rig = Rig::new(Script::new().answers(200, &[("content-type", "application/json")], trickle).replies(REPLY), 2);
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.header("x-tollgate-attempts")), (504, Some("1")));
    let record = rig.record();
    assert_eq!(results(&record), [(Some("E51"), AttemptResult::Failed)]);
    assert_eq!(rig.registry.of(record.attempts[0].account).failures, 0);
}

#[tokio::test(start_paused = true)]
async fn stalled_body_ends_at_the_idle_limit_and_fails_over() {
    let stalls = vec![Piece::from("{\"id\":"), Piece::Stall];
    let mut rig = Rig::new(Script::new().answers(200, &[], stalls).replies(REPLY), 2);
    let began = tokio::time::Instant::now();
    assert_eq!(rig.ask(CHAT).await.status, 200);
    assert_eq!(began.elapsed().as_secs(), 90);
    assert_eq!(rig.record().attempts[0].error.as_deref(), Some("E51"));
}

#[tokio::test(start_paused = true)]
async fn rate_limited_account_cools_for_its_retry_after_and_is_then_probed() {
    let script = Script::new().refuses(429, &[("retry-after", "20")]).replies(REPLY).replies(REPLY);
    let mut rig = Rig::new(script, 1);
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.code().as_str(), got.header("retry-after")), (429, "upstream_rate_limited", Some("20")));
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.header("x-tollgate-cause")), (503, Some("upstream_rate_limited")));
    assert_eq!(got.header("retry-after"), Some("20"));
    assert_eq!(got.header("x-tollgate-attempts"), None, "no upstream was reached");
    tokio::time::advance(SECOND * 21).await;
    assert_eq!(rig.ask(CHAT).await.status, 200);
    let outcomes: Vec<_> = rig.records().iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, [Outcome::Refused, Outcome::Refused, Outcome::Completed]);
}

#[tokio::test(start_paused = true)]
async fn total_outage_adds_at_most_a_fifth_of_attempts() {
    let script = (0..1_000).fold(Script::new(), |script, _| script.refuses(500, &[]));
    let mut rig = Rig::with(script, 5, |channel| channel.spec.cooling = false);
    for _ in 0..200 {
        assert_eq!(rig.ask(CHAT).await.status, 502);
    }
    let attempts: usize = rig.records().iter().map(|record| record.attempts.len()).sum();
    assert_eq!(attempts, 200 + 200 / 5 + 10);
}

#[tokio::test(start_paused = true)]
async fn upstream_message_is_forwarded_without_the_credential() {
    let body = r#"{"error":{"message":"Unsupported parameter: 'x' (key sk-upstream-secret)","type":"invalid_request_error","param":"x","code":"unsupported_parameter"}}"#;
    let mut rig = Rig::new(Script::new().answers(400, &[("set-cookie", "a=b"), ("x-secret", "y")], vec![body.into()]), 1);
    let got = rig.ask(CHAT).await;
    assert!(got.body.contains("Unsupported parameter: 'x'"), "{}", got.body);
    assert!(!got.body.contains("sk-upstream-secret"), "{}", got.body);
    assert_eq!((got.header("set-cookie"), got.header("x-secret")), (None, None));
    assert!(!rig.record().detail.unwrap().contains("sk-upstream-secret"));
}

#[tokio::test(start_paused = true)]
async fn huge_error_page_is_read_in_part() {
    let page: Vec<Piece> = (0..50_000).map(|_| Piece::Data(Bytes::from_static(&[b'x'; 1_024]))).collect();
    let mut rig = Rig::new(Script::new().answers(500, &[("content-type", "text/html")], page), 1);
    assert_eq!(rig.ask(CHAT).await.code(), "upstream_error");
    assert_eq!(rig.script.open(), 0);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn endless_error_page_is_read_for_five_seconds() {
    let mut rig = Rig::new(Script::new().answers(500, &[], vec!["{".into(), Piece::Stall]), 1);
    let began = tokio::time::Instant::now();
    assert_eq!(rig.ask(CHAT).await.code(), "upstream_error");
    assert_eq!(began.elapsed().as_secs(), 5);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn unrequested_gzip_is_a_bad_response() {
    let bomb = Piece::Data(Bytes::from_static(b"\x1f\x8b\x08\x00"));
    let mut rig = Rig::new(Script::new().answers(200, &[("content-encoding", "gzip")], vec![bomb]), 1);
    assert_eq!(rig.ask(CHAT).await.code(), "upstream_bad_response");
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn body_above_64_mib_is_a_bad_response() {
    let mib = Bytes::from(vec![b' '; 1 << 20]);
    let pieces = (0..1_024).map(|_| Piece::Data(mib.clone())).collect();
    let mut rig = Rig::new(Script::new().answers(200, &[], pieces), 1);
    assert_eq!(rig.ask(CHAT).await.code(), "upstream_bad_response");
    assert_eq!(rig.script.open(), 0);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn error_object_in_a_200_counts_as_its_status() {
    let body = r#"{"error":{"message":"slow down","type":"rate_limit_error","param":null,"code":429}}"#;
    let mut rig = Rig::new(Script::new().replies(body).replies(REPLY), 2);
    assert_eq!(rig.ask(CHAT).await.status, 200);
    assert_eq!(rig.record().attempts[0].error.as_deref(), Some("E54"));
}
