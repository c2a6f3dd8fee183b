//! Native streams have no end marker: the end of the upstream's body is the end of the answer.

use tollgate_core::Outcome;
use tollgate_protocol::Protocol;

use super::*;

const GENERATE: &str = r#"{"contents":[{"parts":[{"text":"hello"}]}]}"#;
const USAGE: &str = "data: {\"usageMetadata\":{\"promptTokenCount\":7,\"candidatesTokenCount\":5}}\n\n";

fn rig(pieces: Vec<Piece>, idle_ms: u64) -> Rig {
    Rig::with(Script::new().streams(pieces), 1, |channel| {
        channel.spec.protocol = Protocol::Gemini;
        channel.spec.provider = tollgate_core::Provider::Gemini;
        channel.spec.timeouts.idle_ms = idle_ms;
    })
}

fn text(text: &str, finish: bool) -> Piece {
    let finish = if finish { ",\"finishReason\":\"STOP\"" } else { "" };
    let event =
        format!("data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{text}\"}}]}}{finish},\"index\":0}}]}}\n\n");
    event.as_str().into()
}

fn asked(rig: &Rig) -> [Incoming; 2] {
    [rig.incoming(STREAM), rig.native(Method::StreamGenerate, GENERATE)]
}

/// The text of an answer in either protocol.
fn shown(body: &str) -> String {
    let events = body.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    let text = |event: &str| {
        let event: serde_json::Value = serde_json::from_str(event).unwrap();
        let chat = event["choices"][0]["delta"]["content"].as_str();
        chat.or(event["candidates"][0]["content"]["parts"][0]["text"].as_str()).unwrap_or_default().to_owned()
    };
    events.map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn text_and_usage_after_a_finish_reason_are_delivered() {
    let pause = Piece::Wait(Duration::from_millis(200));
    let streams: [Vec<Piece>; 3] = [
        vec![text("Once ", true), pause.clone(), text("upon ", true), pause.clone(), text("a time", true), USAGE.into()],
        vec![text("", true), Piece::Wait(SECOND * 20), text("Once upon a time", false), USAGE.into()],
        vec![text("Once upon a time", true), Piece::Wait(SECOND * 20), USAGE.into()],
    ];
    for pieces in streams {
        for chat in [0, 1] {
            let mut rig = rig(pieces.clone(), 90_000);
            let [chat_request, native] = asked(&rig);
            let got = read(serve(&rig.core, if chat == 0 { chat_request } else { native }).await).await;
            assert_eq!((got.status, got.aborted, &*shown(&got.body)), (200, false, "Once upon a time"), "{}", got.body);
            let record = rig.record();
            assert_eq!((record.outcome, record.tokens.input, record.tokens.output), (Outcome::Completed, 7, 5), "{pieces:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn break_after_a_finish_reason_completes_only_if_finish_reasons_mark_the_end() {
    let endings: [(Vec<Piece>, bool); 5] = [
        (vec![text("a", false), text("b", true), Piece::Break], true),
        (vec![text("a", true), text("b", true), Piece::Break], false),
        (vec![text("a", true), text("b", false)], true),
        (vec![text("a", true), text("b", false), Piece::Break], false),
        (vec![text("a", true), "data: {\"candi".into()], false),
    ];
    for (pieces, completes) in endings {
        for chat in [0, 1] {
            let mut rig = rig(pieces.clone(), 90_000);
            let [chat_request, native] = asked(&rig);
            let got = read(serve(&rig.core, if chat == 0 { chat_request } else { native }).await).await;
            assert_eq!((got.status, got.aborted), (200, !completes), "{pieces:?} {}", got.body);
            let outcome = if completes { Outcome::Completed } else { Outcome::UpstreamBroke };
            assert_eq!(rig.record().outcome, outcome, "{pieces:?}");
        }
    }
}

/// The end of the first of two candidates in an upstream's protocol, and the whole of the second.
fn of_two(protocol: Protocol) -> [Piece; 2] {
    let events = |index: u8| match protocol {
        Protocol::Gemini => format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"a\"}}]}},\"finishReason\":\"STOP\",\"index\":{index}}}],\"usageMetadata\":{{\"promptTokenCount\":7,\"candidatesTokenCount\":5}}}}\n\n"
        ),
        Protocol::OpenAi | Protocol::Anthropic | Protocol::Responses => format!(
            "data: {{\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":{index},\"delta\":{{\"content\":\"a\"}},\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":7,\"completion_tokens\":5,\"total_tokens\":12}}}}\n\n"
        ),
    };
    [0, 1].map(|index| events(index).as_str().into())
}

#[tokio::test(start_paused = true)]
async fn break_before_a_requested_candidate_began_is_an_error() {
    let chat = STREAM.replace("\"stream\"", "\"n\":2,\"stream\"");
    let native = r#"{"contents":[{"parts":[{"text":"hello"}]}],"generationConfig":{"candidateCount":2}}"#;
    for (upstream, caller) in [
        (Protocol::Gemini, Protocol::Gemini),
        (Protocol::Gemini, Protocol::OpenAi),
        (Protocol::OpenAi, Protocol::Gemini),
        (Protocol::OpenAi, Protocol::OpenAi),
    ] {
        let [first, second] = of_two(upstream);
        for (pieces, completes) in [
            (vec![first.clone(), Piece::Break], false),
            (vec![first.clone(), Piece::Stall], false),
            // Longer than the relay waits for an end marker.
            (vec![first.clone(), Piece::Wait(SECOND * 20), second.clone(), Piece::Break], true),
            // The upstream sent only one candidate, and ended the body.
            (vec![first.clone()], true),
        ] {
            let mut rig = Rig::with(Script::new().streams(pieces.clone()), 1, |channel| {
                channel.spec.protocol = upstream;
                channel.spec.serves.iter_mut().for_each(|mapping| mapping.profile.n_max = Some(2));
            });
            let request = if caller == Protocol::Gemini { rig.native(Method::StreamGenerate, native) } else { rig.incoming(&chat) };
            let got = read(serve(&rig.core, request).await).await;
            let case = format!("{upstream:?} to {caller:?}: {pieces:?} {}", got.body);
            assert_eq!((got.status, got.aborted), (200, !completes), "{case}");
            assert_eq!(rig.record().outcome == Outcome::Completed, completes, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unfinished_body_is_awaited_for_the_idle_limit() {
    for (pieces, completes) in [
        (vec![text("a", false), text("b", true), Piece::Stall], true),
        (vec![text("a", true), text("b", true), Piece::Stall], false),
    ] {
        for chat in [0, 1] {
            let mut rig = rig(pieces.clone(), 4_000);
            let began = tokio::time::Instant::now();
            let [chat_request, native] = asked(&rig);
            let got = read(serve(&rig.core, if chat == 0 { chat_request } else { native }).await).await;
            assert_eq!((got.aborted, began.elapsed().as_secs()), (!completes, 4), "{}", got.body);
            assert!(got.body.contains('b'), "{}", got.body);
            assert_eq!(rig.record().outcome == Outcome::Completed, completes);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn last_event_is_held_briefly_for_the_end_of_the_body() {
    let rig = rig(vec![text("a", false), Piece::Wait(SECOND), text("b", true), Piece::Wait(SECOND)], 90_000);
    let [_, native] = asked(&rig);
    let began = tokio::time::Instant::now();
    let mut body = serve(&rig.core, native).await.into_body();
    let mut arrivals = Vec::new();
    while let Some(frame) = body.frame().await {
        frame.unwrap();
        arrivals.push(began.elapsed().as_millis());
    }
    assert_eq!((arrivals, began.elapsed().as_millis()), (vec![0, 1_250], 2_000));
    let mut rig = rig;
    assert_eq!(rig.record().outcome, Outcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn end_of_a_native_stream_is_in_the_journal_before_its_last_event_is_sent() {
    let mut rig = rig(vec![text("a", false), Piece::Wait(SECOND), text("b", true)], 90_000);
    let [_, native] = asked(&rig);
    let mut body = serve(&rig.core, native).await.into_body();
    while let Some(frame) = body.frame().await {
        let bytes = frame.unwrap().into_data().unwrap();
        let text = std::str::from_utf8(&bytes).unwrap().to_owned();
        let ended = rig.journal.backlog().unwrap().count();
        assert_eq!(ended, usize::from(text.contains("finishReason")), "{text}");
    }
    rig.record();
}
