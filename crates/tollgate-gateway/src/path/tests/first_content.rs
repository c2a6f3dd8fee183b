//! Time limits before an upstream's first content, and errors after its last.

use tollgate_core::{AttemptResult, Availability, NanoUsd, Outcome, RestingReason};
use tollgate_protocol::Protocol;

use super::*;

/// `times` copies of the piece, each after a pause.
fn repeated(times: usize, pause: Duration, piece: &str) -> Vec<Piece> {
    (0..times).flat_map(|_| [Piece::Wait(pause), piece.into()]).collect()
}

const COMMENT: &str = ": still here\n\n";
const PING: &str = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
const KEEPALIVE: &str = "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n";

/// By protocol: a model's events before its thoughts, its events after them, and a keep-alive.
fn thinker(protocol: Protocol) -> (&'static str, &'static str, &'static str) {
    match protocol {
        Protocol::OpenAi => (
            "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"up-m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
            "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"up-m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"at last\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}}\n\ndata: [DONE]\n\n",
            COMMENT,
        ),
        Protocol::Anthropic => (
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_up\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"up-m\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n",
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"at last\"}}\n\nevent: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":2}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            PING,
        ),
        Protocol::Responses => (
            "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_up\",\"object\":\"response\",\"created_at\":7,\"status\":\"in_progress\",\"model\":\"up-m\",\"output\":[]}}\n\nevent: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_number\":1,\"output_index\":0,\"item\":{\"id\":\"rs_1\",\"type\":\"reasoning\",\"summary\":[]}}\n\n",
            "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":4,\"item_id\":\"msg_1\",\"output_index\":1,\"content_index\":0,\"delta\":\"at last\"}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":5,\"response\":{\"id\":\"resp_up\",\"object\":\"response\",\"created_at\":7,\"status\":\"completed\",\"model\":\"up-m\",\"output\":[{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"status\":\"completed\",\"content\":[{\"type\":\"output_text\",\"text\":\"at last\",\"annotations\":[]}]}],\"usage\":{\"input_tokens\":3,\"output_tokens\":2,\"total_tokens\":5}}}\n\n",
            KEEPALIVE,
        ),
        Protocol::Gemini => (
            "data: {\"usageMetadata\":{\"promptTokenCount\":3}}\n\n",
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"at last\"}]},\"finishReason\":\"STOP\",\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":3,\"candidatesTokenCount\":2}}\n\n",
            "data: {\"usageMetadata\":{\"promptTokenCount\":3}}\n\n",
        ),
    }
}

/// A streamed request of a protocol's callers.
fn asked_by(rig: &Rig, caller: Protocol) -> Incoming {
    match caller {
        Protocol::OpenAi => rig.incoming(STREAM),
        Protocol::Gemini => rig.native(Method::StreamGenerate, r#"{"contents":[{"parts":[{"text":"hello"}]}]}"#),
        Protocol::Anthropic => {
            rig.messages(r#"{"model":"m","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"hello"}]}"#)
        }
        Protocol::Responses => rig.responses(r#"{"model":"m","stream":true,"input":"hello"}"#),
    }
}

/// Thinks for this many minutes, with a keep-alive every 15 s.
fn thinks(protocol: Protocol, minutes: usize) -> Vec<Piece> {
    let (before, behind, sign) = thinker(protocol);
    [vec![before.into()], repeated(4 * minutes, SECOND * 15, sign), vec![behind.into()]].concat()
}

#[tokio::test(start_paused = true)]
async fn model_thinking_for_twenty_minutes_is_answered_in_every_direction() {
    let all = [Protocol::OpenAi, Protocol::Anthropic, Protocol::Responses, Protocol::Gemini];
    for (upstream, caller) in all.into_iter().flat_map(|upstream| all.map(|caller| (upstream, caller))) {
        let mut rig = Rig::with(Script::new().streams(thinks(upstream, 20)), 2, |channel| speaks(channel, upstream));
        let began = tokio::time::Instant::now();
        let response = serve(&rig.core, asked_by(&rig, caller)).await;
        assert_eq!((response.status().as_u16(), began.elapsed().as_secs()), (200, 30), "{upstream:?} {caller:?}");
        let mut body = response.into_body();
        let (mut text, mut last) = (String::new(), tokio::time::Instant::now());
        while let Some(frame) = body.frame().await {
            assert!(last.elapsed() <= SECOND * 15, "{upstream:?} {caller:?}: silent for {:?}", last.elapsed());
            last = tokio::time::Instant::now();
            text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        }
        let begins = match (caller, upstream) {
            (Protocol::Anthropic, _) => "event: message_start\n",
            (Protocol::Responses, _) => "event: response.created\n",
            (Protocol::OpenAi, Protocol::OpenAi) | (Protocol::Gemini, Protocol::Gemini) => "data: {",
            (Protocol::OpenAi, _) => ": keep-alive\n\n",
            (Protocol::Gemini, _) => "\n\n",
        };
        assert!(text.starts_with(begins) && text.contains("at last"), "{upstream:?} {caller:?}: {text}");
        assert_eq!(text.matches("message_start").count(), 2 * usize::from(caller == Protocol::Anthropic), "{text}");
        let record = rig.record();
        assert_eq!((record.outcome, record.attempts.len()), (Outcome::Completed, 1), "{upstream:?} {caller:?}");
        assert_eq!(record.ttft_us.map(|us| us / 1_000_000), Some(1_200), "the first content, and not the status");
    }
}

#[tokio::test(start_paused = true)]
async fn stream_with_comments_but_no_content_ends_at_the_stall_limit() {
    let script = Script::new().streams([vec![role()], repeated(40, SECOND * 60, COMMENT)].concat()).replies(REPLY);
    let mut rig = Rig::new(script, 2);
    let began = tokio::time::Instant::now();
    let got = rig.ask(STREAM).await;
    assert!((got.status, got.aborted) == (200, true) && got.body.contains("upstream_timeout"), "{}", got.body);
    assert_eq!((rig.script.seen().len(), rig.script.open()), (1, 0), "no other account answers after the status");
    assert_eq!(began.elapsed().as_secs(), 60 + 1_800);
    let record = rig.record();
    assert_eq!((record.reason.as_deref(), record.outcome), (Some("E60"), Outcome::UpstreamBroke));
    assert_eq!((record.sale, record.ttft_us), (Some(NanoUsd::ZERO), None), "nothing was delivered");
}

#[tokio::test(start_paused = true)]
async fn idle_limit_before_content_counts_from_the_last_comment() {
    // Before the status is sent, the request fails over to another account; afterwards the stream breaks.
    for (signs, secs, answered) in [(1, 15 + 120, true), (3, 45 + 120, false)] {
        let stalls = [vec![role()], repeated(signs, SECOND * 15, COMMENT), vec![Piece::Stall]].concat();
        let mut rig = Rig::new(Script::new().streams(stalls).streams(vec![role(), chunk("hi"), tail()]), 2);
        let began = tokio::time::Instant::now();
        let got = rig.ask(STREAM).await;
        assert_eq!((got.status, got.aborted, got.body.contains("\"hi\"")), (200, !answered, answered), "{}", got.body);
        assert_eq!(began.elapsed().as_secs(), secs);
        let record = rig.record();
        let failed = if answered { record.attempts[0].error.as_deref() } else { record.reason.as_deref() };
        assert_eq!(failed, Some(if answered { "E51" } else { "E60" }));
        assert!(answered || got.body.contains("sent nothing for 120 s"), "{}", got.body);
    }
}

#[tokio::test(start_paused = true)]
async fn longer_idle_limit_applies_before_content() {
    let pieces = vec![role(), Piece::Wait(SECOND * 240), chunk("late"), tail()];
    let mut rig = Rig::with(Script::new().streams(pieces), 1, |channel| channel.spec.timeouts.idle_ms = 300_000);
    let got = rig.ask(STREAM).await;
    assert!(got.status == 200 && got.body.contains("late"), "{}", got.body);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn without_early_answers_comments_extend_the_wait_until_the_total_limit() {
    for (minutes, completes) in [(9, true), (11, false)] {
        let script = Script::new().streams(thinks(Protocol::OpenAi, minutes)).streams(vec![role(), chunk("hi"), tail()]);
        let mut rig = Rig::new(script, 2);
        let mut incoming = rig.incoming(STREAM);
        incoming.head.settings.upstream.answer_after = Duration::ZERO;
        let began = tokio::time::Instant::now();
        let response = serve(&rig.core, incoming).await;
        assert_eq!(began.elapsed().as_secs(), if completes { 540 } else { 600 });
        let got = read(response).await;
        assert_eq!((got.status, got.body.contains("at last")), if completes { (200, true) } else { (504, false) }, "{}", got.body);
        assert_eq!(rig.record().attempts.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn failure_after_an_early_answer_ends_the_stream_and_costs_the_caller_nothing() {
    let failure = "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\",\"code\":503}}\n\n";
    for (caller, error) in [(Protocol::OpenAi, "data: {\"error\""), (Protocol::Anthropic, "event: error\n")] {
        let pieces = [vec![role()], repeated(3, SECOND * 15, COMMENT), vec![failure.into()]].concat();
        let mut rig = Rig::new(Script::new().streams(pieces).replies(REPLY), 2);
        let got = read(serve(&rig.core, asked_by(&rig, caller)).await).await;
        assert!(got.status == 200 && got.aborted && got.body.contains(error), "{}", got.body);
        let record = rig.record();
        assert_eq!((record.outcome, record.reason.as_deref()), (Outcome::UpstreamBroke, Some("E56")));
        assert_eq!((record.sale, record.attempts[0].result), (Some(NanoUsd::ZERO), AttemptResult::Broke));
    }
}

#[tokio::test(start_paused = true)]
async fn context_length_error_after_the_status_keeps_its_code() {
    let failed = "event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":9,\"response\":{\"error\":{\"code\":\"context_length_exceeded\",\"message\":\"Your input exceeds the context window of account canary.\"}}}\n\n";
    for caller in [Protocol::Responses, Protocol::OpenAi, Protocol::Anthropic] {
        let mut pieces = thinks(Protocol::Responses, 1);
        pieces.pop();
        pieces.push(failed.into());
        let mut rig = Rig::with(Script::new().streams(pieces), 1, |channel| speaks(channel, Protocol::Responses));
        let got = read(serve(&rig.core, asked_by(&rig, caller)).await).await;
        let words = if caller == Protocol::Anthropic { "prompt is too long" } else { "\"code\":\"context_length_exceeded\"" };
        assert!(got.status == 200 && got.body.contains(words) && !got.body.contains("canary"), "{caller:?}: {}", got.body);
        assert!(caller != Protocol::Responses || got.body.contains("event: response.failed\n"), "{}", got.body);
        let record = rig.record();
        assert_eq!((record.reason.as_deref(), record.sale), (Some("E52"), Some(NanoUsd::ZERO)));
        let account = rig.core.shared.catalog.load().channels[0].accounts[0].id;
        assert_eq!(rig.registry.of(account).failures, 0, "the account is not to blame");
    }
}

#[tokio::test(start_paused = true)]
async fn upstream_limits_reported_after_the_status_keep_their_codes() {
    for (code, ours, id) in
        [("rate_limit_exceeded", "upstream_rate_limited", "E54"), ("server_is_overloaded", "upstream_overloaded", "E56")]
    {
        let failed = format!(
            "event: response.failed\ndata: {{\"type\":\"response.failed\",\"sequence_number\":9,\"response\":{{\"error\":{{\"code\":\"{code}\",\"message\":\"Limit of account canary.\"}}}}}}\n\n"
        );
        for caller in [Protocol::Responses, Protocol::OpenAi] {
            let mut pieces = thinks(Protocol::Responses, 1);
            pieces.pop();
            pieces.push(failed.as_str().into());
            let mut rig = Rig::with(Script::new().streams(pieces), 1, |channel| speaks(channel, Protocol::Responses));
            let got = read(serve(&rig.core, asked_by(&rig, caller)).await).await;
            let word = format!("\"code\":\"{ours}\"");
            assert!(got.status == 200 && got.body.contains(&word) && !got.body.contains("canary"), "{caller:?}: {}", got.body);
            assert_eq!(rig.record().reason.as_deref(), Some(id));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn trickling_document_is_not_treated_as_thinking() {
    let pieces =
        [vec!["{\"error\":".into()], repeated(4, SECOND * 15, " "), vec!["{\"message\":\"x\",\"code\":503}}".into()]].concat();
    let mut rig = Rig::new(Script::new().streams(pieces).streams(vec![role(), chunk("hi"), tail()]), 2);
    let got = rig.ask(STREAM).await;
    assert!(got.status == 200 && !got.aborted && got.body.contains("hi"), "{}", got.body);
    rig.record();
}

/// A native answer that reports a limited account after its text.
const LIMITED: &str =
    r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"PUP_LIMITED_DISABLED","index":0}]}"#;

#[tokio::test(start_paused = true)]
async fn answer_reporting_an_exhausted_account_is_delivered_and_the_account_rests() {
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
        // It rests for the key only, until a probe has shown whether the account is exhausted.
        let until = Some(rig.clock.now().plus_ms(600_000));
        assert_eq!(availability, Availability::Resting { why: RestingReason::Refused, until }, "{method:?} {streams}");
    }
}
