//! Memory of answers, and the effect of one key's requests on other keys.

use super::*;
use crate::{
    state::shares::{HELD_REQUESTS, InFlightRequest},
    upstream::call::ConnectFault,
};

/// An answer of about this many bytes.
fn large(bytes: usize) -> String {
    REPLY.replace("\"hi\"", &format!("\"{}\"", "x".repeat(bytes)))
}

/// A request whose body and answer count against `limit`. The request ends when the second value is dropped.
pub(super) fn within(rig: &Rig, limit: usize) -> (Incoming, Arc<InFlightRequest>) {
    let request = rig.core.shared.serving.enter(100, limit);
    let mut incoming = rig.incoming(CHAT);
    incoming.body = incoming.body.within(Arc::clone(&request));
    (incoming, request)
}

#[tokio::test(start_paused = true)]
async fn complete_answer_counts_against_the_memory_until_it_is_read() {
    let mut rig = Rig::new(Script::new().replies(&large(600_000)).replies(&large(600_000)).replies(REPLY), 1);
    let serving = Arc::clone(&rig.core.shared.serving);
    let (first, first_request) = within(&rig, 1_000_000);
    let answered = serve(&rig.core, first).await;
    assert_eq!(answered.status(), 200);
    let used = serving.memory.used();
    assert!((600_000..610_000).contains(&used), "{used}");

    // The second waits until the first caller has its answer.
    let (second, second_request) = within(&rig, 1_000_000);
    let began = rig.clock.instant();
    let reads = async {
        tokio::time::sleep(SECOND * 5).await;
        assert_eq!(read(answered).await.status, 200);
        drop(first_request);
    };
    let (answer, ()) = tokio::join!(serve(&rig.core, second), reads);
    assert_eq!((answer.status(), rig.clock.instant().saturating_duration_since(began)), (http::StatusCode::OK, SECOND * 5));
    drop((answer, second_request));
    assert_eq!((serving.memory.used(), serving.in_flight()), (0, 0));
    assert_eq!(rig.records().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn answer_without_memory_is_refused_and_not_blamed_on_the_account() {
    let mut rig = Rig::new((0..4).fold(Script::new(), |script, _| script.replies(&large(600_000))).replies(REPLY), 1);
    for _ in 0..4 {
        let (incoming, _request) = within(&rig, 300_000);
        let got = read(serve(&rig.core, incoming).await).await;
        assert_eq!((got.status, got.code().as_str()), (503, "server_overloaded"));
    }
    assert_eq!(rig.core.shared.serving.memory.used(), 0, "what was read is released");
    assert_eq!(rig.ask(CHAT).await.status, 200, "the account does not cool");
    assert!(rig.records()[..4].iter().all(|record| record.reason.as_deref() == Some("E63") && record.attempts.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn delayed_refusal_does_not_count_as_a_request_in_progress() {
    let rig = Rig::new(Script::new(), 1);
    let serving = Arc::clone(&rig.core.shared.serving);
    // Each of the first ten refusals of a minute is recorded and sent at once; further ones are delayed.
    for (number, (delayed, in_progress)) in (0..12).map(|number| (number, if number < 10 { (false, 1) } else { (true, 0) })) {
        let request = serving.enter(100, 1_000_000);
        let mut incoming = rig.incoming(&CHAT.replace("\"m\"", "\"unknown\""));
        incoming.body = incoming.body.within(Arc::clone(&request));
        let began = rig.clock.instant();
        let during = async {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            serving.in_flight()
        };
        let (answer, during) = tokio::join!(serve(&rig.core, incoming), during);
        assert_eq!(answer.status(), 404);
        let took = rig.clock.instant().saturating_duration_since(began);
        assert_eq!((took > std::time::Duration::from_millis(5), during), (delayed, in_progress), "{number}");
        drop((answer, request));
        assert_eq!(serving.in_flight(), 0, "it leaves once");
    }
}

#[tokio::test(start_paused = true)]
async fn request_above_the_limit_of_requests_in_progress_is_refused() {
    let mut rig = Rig::new(Script::new().replies(REPLY).replies(REPLY), 1);
    let among = |max: usize| {
        let request = rig.core.shared.serving.enter(max, 1_000_000);
        let mut incoming = rig.incoming(CHAT);
        incoming.body = incoming.body.within(Arc::clone(&request));
        (incoming, request)
    };
    let (first, running) = among(1);
    assert_eq!(serve(&rig.core, first).await.status(), 200);
    let (second, refused) = among(1);
    let got = read(serve(&rig.core, second).await).await;
    assert_eq!((got.status, got.code().as_str()), (503, "server_overloaded"));
    assert!(got.headers.contains_key("retry-after"));
    drop((running, refused));
    let (third, _request) = among(1);
    assert_eq!(serve(&rig.core, third).await.status(), 200);
    let reasons: Vec<_> = rig.records().iter().map(|record| record.reason.clone()).collect();
    assert_eq!(reasons, [None, Some("E63".to_owned()), None]);
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_requests_queued_at_a_busy_core() {
    let mut rig = Rig::new((0..100).fold(Script::new(), |script, _| script.replies(REPLY)), 1);
    let serving = Arc::clone(&rig.core.shared.serving);
    let mut waiting = Vec::new();
    for _ in 0..100 {
        let (incoming, request) = within(&rig, 1_000_000);
        let mut running = Box::pin(async {
            let answer = serve(&rig.core, incoming).await;
            drop(request);
            answer.status()
        });
        if futures_util::poll!(&mut running).is_pending() && serving.requests.used() < serving.in_flight() {
            waiting.push(running);
        }
    }
    assert!(!waiting.is_empty() && serving.in_flight() >= waiting.len());
    serving.drain();
    let mut quiet = Box::pin(serving.quiet());
    assert!(futures_util::poll!(&mut quiet).is_pending());
    let statuses = futures_util::future::join_all(waiting).await;
    assert!(statuses.iter().all(|status| *status == 200));
    assert!(futures_util::poll!(&mut quiet).is_ready());
    assert_eq!(rig.records().len(), 100);
}

/// An answer in pieces of `size` bytes.
fn pieces(answer: &str, size: usize) -> Vec<Piece> {
    answer.as_bytes().chunks(size).map(|piece| Piece::Data(Bytes::copy_from_slice(piece))).collect()
}

const JSON_ANSWER: &[(&str, &str)] = &[("content-type", "application/json")];

#[tokio::test(start_paused = true)]
async fn large_answer_is_forwarded_in_pieces_and_takes_little_memory() {
    let answer = large(3_000_000);
    let mut rig = Rig::new(Script::new().answers(200, JSON_ANSWER, pieces(&answer, 50_000)), 1);
    let (incoming, request) = within(&rig, 1_000_000);
    let answered = serve(&rig.core, incoming).await;
    assert_eq!(rig.script.open(), 1, "the upstream is still being read");
    let got = read(answered).await;
    assert_eq!((got.status, got.aborted), (200, false));
    assert_eq!(got.headers["content-type"], "application/json; charset=utf-8");
    assert!(got.body == answer.replace("up-m", "m"), "{} bytes of {}", got.body.len(), answer.len());
    assert!(rig.core.shared.serving.memory.used() < 400_000);
    drop(request);
    let record = &rig.records()[0];
    assert_eq!((record.status, record.tokens.output, record.attempts.len()), (200, 1, 1));
    assert_eq!(record.outcome, tollgate_core::Outcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn large_answer_that_breaks_in_the_middle_is_aborted_and_recorded_as_broken() {
    let answer = large(1_000_000);
    let cut = |end: Piece| pieces(&answer[..800_000], 50_000).into_iter().chain([end]).collect();
    let with_error = answer.trim_end_matches('}').to_owned() + "},\"error\":{\"message\":\"m\"}}";
    for broken in [cut(Piece::Break), cut(Piece::Stall), pieces(&answer[..800_000], 50_000), pieces(&with_error, 50_000)] {
        let mut rig = Rig::new(Script::new().answers(200, JSON_ANSWER, broken).replies(REPLY), 2);
        let got = rig.ask(CHAT).await;
        assert!(got.status == 200 && got.aborted, "the caller sees that the answer is not complete");
        let record = &rig.records()[0];
        assert_eq!((record.outcome, record.attempts.len()), (tollgate_core::Outcome::UpstreamBroke, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn answer_that_breaks_before_it_is_forwarded_fails_over() {
    let answer = large(1_000_000);
    let early = pieces(&answer[..200_000], 50_000).into_iter().chain([Piece::Break]).collect();
    let error = answer.replace("{\"id\"", "{\"error\":{\"message\":\"m\"},\"id\"");
    for broken in [early, pieces(&error, 50_000)] {
        let mut rig = Rig::new(Script::new().answers(200, JSON_ANSWER, broken).replies(REPLY), 2);
        let got = rig.ask(CHAT).await;
        assert_eq!((got.status, got.aborted, rig.records()[0].attempts.len()), (200, false, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn usage_of_a_large_answer_is_read_after_the_caller_left() {
    let answer = large(1_000_000);
    let mut rig = Rig::new(Script::new().answers(200, JSON_ANSWER, pieces(&answer, 50_000)), 1);
    let mut answered = serve(&rig.core, rig.incoming(CHAT)).await;
    assert!(answered.body_mut().frame().await.unwrap().is_ok());
    drop(answered);
    let serving = Arc::clone(&rig.core.shared.serving);
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let record = &rig.records()[0];
    assert_eq!((record.outcome, record.tokens.output), (tollgate_core::Outcome::CallerLeft, 1), "{record:?}");
    assert_eq!(serving.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn copies_of_a_request_count_against_the_memory_of_bodies() {
    let long = CHAT.replace("hello there", &"x".repeat(300_000));
    let ask = async |limit: usize, protocol: tollgate_protocol::Protocol| {
        let script = if protocol == tollgate_protocol::Protocol::OpenAi {
            Script::new().replies(REPLY)
        } else {
            Script::new().replies(NATIVE_REPLY)
        };
        let rig = Rig::with(script, 1, |channel| channel.spec.protocol = protocol);
        let request = rig.core.shared.serving.enter(100, limit);
        let mut incoming = rig.incoming(&long);
        incoming.body = incoming.body.within(Arc::clone(&request));
        let status = serve(&rig.core, incoming).await.status().as_u16();
        (status, rig.core.shared.serving.memory.used(), rig.script.seen().len())
    };
    // The body, and the copy with the upstream's name of the model.
    let (status, used, _) = ask(10_000_000, tollgate_protocol::Protocol::OpenAi).await;
    assert!(status == 200 && (600_000..620_000).contains(&used), "{status} {used}");
    // The body, the request as decoded, and as encoded for the upstream.
    let (status, used, _) = ask(10_000_000, tollgate_protocol::Protocol::Gemini).await;
    assert!(status == 200 && (900_000..920_000).contains(&used), "{status} {used}");
    for protocol in [tollgate_protocol::Protocol::OpenAi, tollgate_protocol::Protocol::Gemini] {
        let (status, _, sent) = ask(500_000, protocol).await;
        assert_eq!((status, sent), (503, 0), "{protocol:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn request_without_a_connection_tries_another_channel_and_is_not_blamed_on_the_account() {
    let script = (0..4).fold(Script::new(), |script, _| script.fails_to_connect(ConnectFault::AllTaken));
    let mut rig = Rig::new(script.fails_to_connect(ConnectFault::AllTaken).replies(REPLY).replies(REPLY), 3);
    for _ in 0..4 {
        let got = rig.ask(CHAT).await;
        assert_eq!((got.status, got.code().as_str()), (503, "server_overloaded"));
    }
    assert_eq!(rig.script.seen().len(), 4, "the other accounts of the channel use the same connections");
    rig.add_channel(|channel| channel.spec.priority = 9);
    assert_eq!(rig.ask(CHAT).await.status, 200, "the other channel has connections");
    assert_eq!(rig.ask(CHAT).await.status, 200);
    let records = rig.records();
    assert_eq!((records[4].attempts.len(), records[5].attempts.len()), (2, 1), "no account cools");
    assert!(records[..4].iter().all(|record| record.reason.as_deref() == Some("E63") && record.attempts.len() == 1));
}

const NATIVE_REPLY: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1,"totalTokenCount":4}}"#;

/// Callers that use as much as they can: one key, and one member with many keys.
const TAKERS: [&[(u8, u8)]; 2] = [&[(1, 1)], &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1)]];
/// A key of another member.
const OTHER: (u8, u8) = (99, 99);

#[tokio::test(start_paused = true)]
async fn one_key_or_member_cannot_use_all_retries() {
    const REQUESTS: usize = 21;
    for takers in TAKERS {
        // Each request fails and may be retried once, with the other account.
        let script = (0..10 * REQUESTS).fold(Script::new(), |script, _| script.refuses(500, &[]));
        let rig = Rig::with(script, 2, |channel| channel.spec.cooling = false);
        for taker in takers.iter().cycle().take(REQUESTS) {
            assert!(rig.ask_as(*taker, CHAT).await.status >= 500);
        }
        let before = rig.script.seen().len();
        assert!((REQUESTS + 4..2 * REQUESTS).contains(&before), "some are retried: {before} attempts");
        assert!(rig.ask_as(OTHER, CHAT).await.status >= 500);
        assert_eq!(rig.script.seen().len() - before, 2, "the request of another member is retried");
    }
}

#[tokio::test(start_paused = true)]
async fn one_key_or_member_cannot_fill_the_memory_of_a_full_journal() {
    const FREE: usize = 8;
    for takers in TAKERS {
        let rig = Rig::new((0..=FREE).fold(Script::new(), |script, _| script.replies(REPLY)), 1);
        let serving = &rig.core.shared.serving;
        let mut free = FREE;
        serving.set_in_memory_only(HELD_REQUESTS - free);
        for taker in takers.iter().cycle().take(10 * FREE) {
            let status = rig.ask_as(*taker, CHAT).await.status;
            if status == 503 {
                continue;
            }
            assert_eq!(status, 200);
            free -= 1;
            assert!(free > 0, "nothing is left to others");
            serving.set_in_memory_only(HELD_REQUESTS - free);
        }
        assert!(free < FREE);
        assert_eq!(rig.ask_as(OTHER, CHAT).await.status, 200, "the request of another member is recorded");
    }
}

#[tokio::test(start_paused = true)]
async fn unsupported_fields_learned_from_one_key_or_member_do_not_apply_to_others() {
    const BIASED: &str = r#"{"model":"m","logit_bias":{"1":2},"messages":[{"role":"user","content":"hello there"}]}"#;
    const REFUSED: &str =
        r#"{"error":{"message":"m","type":"invalid_request_error","param":"logit_bias","code":"unsupported_parameter"}}"#;
    for takers in TAKERS {
        let script = (0..3).fold(Script::new(), |script, _| script.answers(400, JSON_ANSWER, vec![REFUSED.into()]));
        let rig = Rig::with(script.replies(REPLY), 1, |channel| channel.spec.learn_unsupported = true);
        for taker in takers.iter().cycle().take(10) {
            assert_eq!(rig.ask_as(*taker, BIASED).await.status, 400);
        }
        assert_eq!(rig.script.seen().len(), 3, "after three refusals the taker's requests are not sent");
        assert_eq!(rig.ask_as(OTHER, BIASED).await.status, 200, "the request of another member is sent");
    }
}
