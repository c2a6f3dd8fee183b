//! A relay reports the bytes that it keeps between two pieces: those of an unfinished event, and of calls that are sent in one piece.

use bytes::Bytes;
use tollgate_protocol::{Framing, Protocol, ReplyEdits, StreamRelay, codec, neutral::ReplyContext, translating_relay};

const TEXT: usize = 300_000;

/// The beginning of a stream up to an event of [`TEXT`] bytes and more that has no end yet.
fn large_event(upstream: Protocol) -> String {
    let text = "x".repeat(TEXT);
    match upstream {
        Protocol::OpenAi => format!(r#"data: {{"choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":null}}]}}"#),
        Protocol::Gemini => format!(r#"data: {{"candidates":[{{"content":{{"parts":[{{"text":"{text}"}}]}},"index":0}}]}}"#),
        Protocol::Anthropic => format!(
            "event: content_block_start\ndata: {}\n\nevent: content_block_delta\ndata: {}",
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            format_args!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"}}}}"#)
        ),
        Protocol::Responses => format!(r#"data: {{"type":"response.output_text.delta","output_index":0,"delta":"{text}"}}"#),
    }
}

/// Pushes `bytes` in pieces; returns how many bytes the relay wrote.
fn push(relay: &mut dyn StreamRelay, bytes: &str) -> usize {
    let mut out = Vec::new();
    for piece in bytes.as_bytes().chunks(10_000) {
        relay.push(&Bytes::copy_from_slice(piece), &mut out).expect("a valid stream");
    }
    out.iter().map(Bytes::len).sum()
}

#[test]
fn event_is_held_until_it_ends() {
    let all = Protocol::ALL;
    for (upstream, caller) in all.into_iter().flat_map(|upstream| all.map(|caller| (upstream, caller))) {
        let mut relay = if upstream == caller {
            codec(upstream).relay(Framing::Sse, &ReplyEdits::default())
        } else {
            translating_relay(upstream, caller, &ReplyContext::new("r", 1, "m"))
        };
        assert!(relay.held_bytes() < 1_000, "{upstream:?} {caller:?}");
        push(&mut *relay, &large_event(upstream));
        let held = relay.held_bytes();
        assert!((TEXT..3 * TEXT).contains(&held), "{upstream:?} {caller:?}: {held}");
        assert!(push(&mut *relay, "\n\n") > TEXT, "{upstream:?} {caller:?}");
        // A stream of Responses ends with the whole answer.
        let repeats = caller == Protocol::Responses && upstream != caller;
        assert_eq!(relay.held_bytes() < 1_000, !repeats, "{upstream:?} {caller:?}: {}", relay.held_bytes());
    }
}

/// An event with a piece of the arguments of one call.
fn arguments(upstream: Protocol, piece: &str, is_first: bool) -> String {
    match upstream {
        Protocol::OpenAi => {
            let name = if is_first { r#""id":"c","type":"function","# } else { "" };
            let function = if is_first { r#""name":"f","# } else { "" };
            format!(
                "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{{\"index\":0,{name}\"function\":{{{function}\"arguments\":\"{piece}\"}}}}]}},\"finish_reason\":null}}]}}\n\n"
            )
        }
        Protocol::Anthropic => {
            let start = r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"f","input":{}}}"#;
            let start = if is_first { format!("{start}\n\n") } else { String::new() };
            format!(
                "{start}data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"input_json_delta\",\"partial_json\":\"{piece}\"}}}}\n\n"
            )
        }
        Protocol::Responses => {
            let item = r#"{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":""}"#;
            let start = format!("data: {{\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{item}}}\n\n");
            format!(
                "{}data: {{\"type\":\"response.function_call_arguments.delta\",\"output_index\":0,\"delta\":\"{piece}\"}}\n\n",
                if is_first { start.as_str() } else { "" }
            )
        }
        Protocol::Gemini => unreachable!("its calls arrive whole"),
    }
}

#[test]
fn call_arguments_written_at_once_are_held_until_the_call_ends() {
    for (upstream, caller) in [
        (Protocol::OpenAi, Protocol::Gemini),
        (Protocol::Anthropic, Protocol::Gemini),
        (Protocol::OpenAi, Protocol::Anthropic),
        (Protocol::Responses, Protocol::Gemini),
    ] {
        let mut relay = translating_relay(upstream, caller, &ReplyContext::new("r", 1, "m"));
        let written = push(&mut *relay, &arguments(upstream, "{\\\"a\\\":\\\"", true))
            + (0..30).map(|_| push(&mut *relay, &arguments(upstream, &"x".repeat(TEXT / 30), false))).sum::<usize>();
        assert!(written < TEXT, "{upstream:?} {caller:?} writes the arguments at once");
        let held = relay.held_bytes();
        assert!((TEXT..3 * TEXT).contains(&held), "{upstream:?} {caller:?}: {held}");
    }
}

#[test]
fn text_repeated_by_a_responses_stream_is_held_once() {
    const PIECES: usize = 1_000;
    let (piece, upstream) = ("quoted \\\" and plain ".repeat(200), Protocol::OpenAi);
    let length = piece.len() * PIECES;
    let mut relay = translating_relay(upstream, Protocol::Responses, &ReplyContext::new("r", 1, "m"));
    let mut text = String::new();
    let mut push = |relay: &mut dyn StreamRelay, event: &str| {
        let mut out = Vec::new();
        relay.push(&Bytes::copy_from_slice(event.as_bytes()), &mut out).expect("a valid stream");
        let most = relay.held_bytes();
        out.extend(std::iter::from_fn(|| relay.next_shared()));
        for bytes in &out {
            text.push_str(std::str::from_utf8(bytes).expect("UTF-8"));
        }
        most
    };
    for _ in 0..PIECES {
        push(
            &mut *relay,
            &format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{piece}\"}},\"finish_reason\":null}}]}}\n\n"),
        );
    }
    let held = relay.held_bytes();
    assert!((length..length + length / 8).contains(&held), "{held} for {length}");
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let most = push(&mut *relay, end);
    assert!(most < length + length / 4, "{most} for {length}, with the events at the end");
    let whole = piece.repeat(PIECES);
    for event in ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"] {
        let data = text.split_once(&format!("event: {event}\ndata: ")).expect(event).1.split_once("\n\n").expect("an end").0;
        let data: serde_json::Value = serde_json::from_str(data).expect(event);
        assert_eq!(data.to_string().matches("quoted").count(), PIECES * 200, "{event}");
        assert!(data.to_string().contains(&whole), "{event}");
    }
}
