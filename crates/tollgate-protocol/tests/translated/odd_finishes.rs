//! Finish reasons in odd places: in every event, only in the first, before content and usage, of several candidates in turn, none
//! at all. All content must arrive, and an answer counts as complete only if it has ended.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_protocol::{Framing, Protocol, ReplyEdits, StreamError, StreamRelay, codec, neutral::ReplyContext, translating_relay};

use crate::framed;

/// The events of a candidate that have a finish reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finishes {
    Every,
    First,
    Last,
    After,
    None,
}

/// Pieces of text by candidate, in the order in which they are sent.
type Texts = Vec<(usize, String)>;

fn relay_to(upstream: Protocol, caller: Protocol) -> Box<dyn StreamRelay> {
    if upstream == caller {
        return codec(upstream).relay(Framing::Sse, &ReplyEdits::default());
    }
    translating_relay(upstream, caller, &ReplyContext { stream: true, include_usage: true, ..ReplyContext::new("r", 1, "m") })
}

/// Text the caller received, and how the stream ended.
fn run<'a>(mut relay: Box<dyn StreamRelay>, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Result<(), StreamError>) {
    let mut out = Vec::new();
    for piece in pieces {
        if let Err(fault) = relay.push(&Bytes::copy_from_slice(piece), &mut out) {
            return (out.concat(), Err(fault));
        }
    }
    let result = relay.finish(&mut out);
    assert_eq!(relay.complete(), result.is_ok());
    (out.concat(), result)
}

/// The events of one piece of text, of a finish reason, or of both.
fn event(upstream: Protocol, candidate: usize, text: Option<&str>, finish: bool) -> Vec<Value> {
    match upstream {
        Protocol::OpenAi => {
            let delta = text.map_or_else(|| json!({}), |text| json!({ "content": text }));
            let finish = finish.then_some("stop");
            vec![json!({ "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
                "choices": [{ "index": candidate, "delta": delta, "finish_reason": finish }] })]
        }
        Protocol::Gemini => {
            let mut row = json!({ "index": candidate });
            if let Some(text) = text {
                row["content"] = json!({ "role": "model", "parts": [{ "text": text }] });
            }
            if finish {
                row["finishReason"] = json!("STOP");
            }
            vec![json!({ "candidates": [row] })]
        }
        Protocol::Anthropic => {
            let delta =
                |text| json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } });
            let stop = json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 1 } });
            text.map(delta).into_iter().chain(finish.then_some(stop)).collect()
        }
        // Only the final response has the finish reason.
        Protocol::Responses => Vec::new(),
    }
}

fn events(upstream: Protocol, texts: &Texts, finishes: Finishes) -> Vec<Value> {
    let mut events = Vec::new();
    if upstream == Protocol::Anthropic {
        events.push(json!({ "type": "message_start", "message": { "usage": { "input_tokens": 7, "output_tokens": 1 } } }));
        events.push(json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }));
    }
    let mut seen = Vec::new();
    for (at, (candidate, text)) in texts.iter().enumerate() {
        let first = !seen.contains(candidate);
        let last = !texts[at + 1..].iter().any(|(other, _)| other == candidate);
        seen.push(*candidate);
        let finish = match finishes {
            Finishes::Every => true,
            Finishes::First => first,
            Finishes::Last => last,
            Finishes::After | Finishes::None => false,
        };
        events.extend(event(upstream, *candidate, Some(text), finish));
        if last && finishes == Finishes::After {
            events.extend(event(upstream, *candidate, None, true));
        }
    }
    match upstream {
        Protocol::OpenAi => {
            events.push(json!({ "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
                "usage": { "prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12 } }));
            events.push(json!("[DONE]"));
        }
        Protocol::Gemini => events.push(json!({ "usageMetadata": { "promptTokenCount": 7, "candidatesTokenCount": 5 } })),
        Protocol::Anthropic => {
            events.push(json!({ "type": "content_block_stop", "index": 0 }));
            events.push(json!({ "type": "message_delta", "delta": {}, "usage": { "output_tokens": 5 } }));
            events.push(json!({ "type": "message_stop" }));
        }
        Protocol::Responses => {}
    }
    events
}

/// The text of each candidate in a caller's stream, and whether the stream states that it is complete.
fn received(caller: Protocol, out: &[u8]) -> ([String; 2], bool) {
    let mut texts = [String::new(), String::new()];
    let mut ended = false;
    for event in std::str::from_utf8(out).expect("UTF-8").split("\n\n").filter_map(|event| event.strip_prefix("data: ")) {
        if event == "[DONE]" {
            ended = true;
            continue;
        }
        let event: Value = serde_json::from_str(event).expect("JSON");
        for choice in event["choices"].as_array().into_iter().flatten() {
            assert!(!ended, "nothing follows the end");
            let index = usize::try_from(choice["index"].as_u64().expect("a valid case")).expect("a valid case");
            texts[index].push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        }
        for candidate in event["candidates"].as_array().into_iter().flatten() {
            let index = usize::try_from(candidate["index"].as_u64().unwrap_or(0)).expect("a valid case");
            let parts = candidate["content"]["parts"].as_array().into_iter().flatten();
            texts[index].extend(parts.map(|part| part["text"].as_str().unwrap_or_default()));
            ended |= caller == Protocol::Gemini && candidate.get("finishReason").is_some();
        }
    }
    (texts, ended)
}

fn sent(texts: &Texts) -> [String; 2] {
    [0, 1].map(|of| texts.iter().filter(|(candidate, _)| *candidate == of).map(|(_, text)| text.as_str()).collect())
}

fn texts() -> impl Strategy<Value = Texts> {
    let piece = (0_usize..2, "[a-zé\u{1f600} ]{1,6}");
    (proptest::collection::vec(piece, 1..6), any::<bool>(), any::<bool>()).prop_map(|(mut texts, one, in_turn)| {
        if one {
            for (candidate, _) in &mut texts {
                *candidate = 0;
            }
        }
        if in_turn {
            texts.sort_by_key(|(candidate, _)| *candidate);
        }
        texts
    })
}

fn finishes() -> impl Strategy<Value = Finishes> {
    prop::sample::select(vec![Finishes::Every, Finishes::First, Finishes::Last, Finishes::After, Finishes::None])
}

fn directions() -> impl Iterator<Item = (Protocol, Protocol)> {
    let upstreams = [Protocol::OpenAi, Protocol::Gemini, Protocol::Anthropic];
    upstreams.into_iter().flat_map(|upstream| [(upstream, Protocol::OpenAi), (upstream, Protocol::Gemini)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn all_text_is_delivered_wherever_the_finish_reason_stands(
        texts in texts(),
        finishes in finishes(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        for (upstream, caller) in directions() {
            let mut texts = texts.clone();
            if upstream == Protocol::Anthropic {
                for (candidate, _) in &mut texts {
                    *candidate = 0;
                }
            }
            let bytes = framed(upstream, &events(upstream, &texts, finishes));
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).chain([0, bytes.len()]).collect();
            at.sort_unstable();
            let relay = relay_to(upstream, caller);
            let (out, result) = run(relay, at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]));
            let (texts_received, ended) = received(caller, &out);
            prop_assert_eq!(&texts_received, &sent(&texts), "{:?} to {:?}", upstream, caller);
            if finishes == Finishes::None {
                prop_assert_eq!(result, Err(StreamError::Truncated), "{:?} to {:?}", upstream, caller);
                prop_assert!(!ended);
            } else {
                prop_assert_eq!(result, Ok(()), "{:?} to {:?}", upstream, caller);
                prop_assert!(ended);
            }
        }
    }

    #[test]
    fn stream_cut_at_any_byte_is_complete_only_at_its_end(
        texts in texts(),
        finishes in finishes(),
        cut in any::<prop::sample::Index>(),
    ) {
        for (upstream, caller) in directions() {
            let mut texts = texts.clone();
            if upstream == Protocol::Anthropic {
                for (candidate, _) in &mut texts {
                    *candidate = 0;
                }
            }
            let bytes = framed(upstream, &events(upstream, &texts, finishes));
            let cut = cut.index(bytes.len());
            let asked = if texts.iter().any(|(candidate, _)| *candidate == 1) { 2 } else { 1 };
            let mut relay = relay_to(upstream, caller);
            let pushed = relay.push(&Bytes::copy_from_slice(&bytes[..cut]), &mut Vec::new());
            let may_end = pushed.is_ok() && relay.may_end_unmarked(asked);
            let (out, result) = run(relay_to(upstream, caller), [&bytes[..cut]]);
            let (texts_received, _) = received(caller, &out);
            let texts_sent = sent(&texts);
            for (part, whole) in texts_received.iter().zip(&texts_sent) {
                prop_assert!(whole.starts_with(part.as_str()), "{part} of {whole}");
            }
            // A body that is cut after a whole event, with all candidates finished, is indistinguishable from a whole answer.
            let after_an_event = bytes[..cut].ends_with(b"}") || bytes[cut..].starts_with(b"\n") || bytes[..cut].ends_with(b"\n\n");
            if !after_an_event && texts_received != texts_sent {
                prop_assert_eq!(&result, &Err(StreamError::Truncated), "{:?} to {:?}", upstream, caller);
            }
            // If the finish is the last event of each candidate, a cut body counts as complete only after the last finish.
            if may_end && result.is_ok() && matches!(finishes, Finishes::Last | Finishes::After) {
                prop_assert_eq!(texts_received, texts_sent, "{:?} to {:?}", upstream, caller);
            }
        }
    }
}

#[test]
fn finish_reason_in_every_native_event_does_not_end_the_stream() {
    let texts = ["Once ", "upon ", "a time"].map(|text| (0, text.to_owned())).to_vec();
    let bytes = framed(Protocol::Gemini, &events(Protocol::Gemini, &texts, Finishes::Every));
    for caller in [Protocol::OpenAi, Protocol::Gemini] {
        let (out, result) = run(relay_to(Protocol::Gemini, caller), [&bytes[..]]);
        assert_eq!((result, &*received(caller, &out).0[0]), (Ok(()), "Once upon a time"));
    }
}

#[test]
fn candidates_of_a_native_stream_may_arrive_one_after_the_other() {
    let texts = [(0, "A1"), (0, "A2"), (1, "B1"), (1, "B2")].map(|(candidate, text)| (candidate, text.to_owned())).to_vec();
    let events = events(Protocol::Gemini, &texts, Finishes::Last);
    for caller in [Protocol::OpenAi, Protocol::Gemini] {
        let (out, result) = run(relay_to(Protocol::Gemini, caller), [&framed(Protocol::Gemini, &events)[..]]);
        assert_eq!((result, received(caller, &out).0), (Ok(()), ["A1A2", "B1B2"].map(str::to_owned)));
        let cut = framed(Protocol::Gemini, &events[..3]);
        assert_eq!(
            run(relay_to(Protocol::Gemini, caller), [&cut[..]]).1,
            Err(StreamError::Truncated),
            "candidate 1 has not finished"
        );
    }
}

#[test]
fn content_after_the_finish_reason_of_a_native_stream_is_delivered() {
    let events = [
        json!({ "candidates": [{ "index": 0, "content": { "parts": [{ "text": "" }] }, "finishReason": "STOP" }] }),
        json!({ "candidates": [{ "index": 0, "content": { "parts": [{ "text": "as it is" }] }, "finishReason": "MAX_TOKENS",
            "groundingMetadata": { "groundingChunks": [{ "web": { "uri": "https://a.example", "title": "a" } }],
                "groundingSupports": [{ "segment": { "endIndex": 2 }, "groundingChunkIndices": [0] }] } }] }),
        json!({ "candidates": [{ "index": 0, "content": { "parts": [{ "text": "", "thoughtSignature": "c2ln" }] } }],
            "usageMetadata": { "promptTokenCount": 4, "candidatesTokenCount": 2 } }),
    ];
    let mut relay = relay_to(Protocol::Gemini, Protocol::OpenAi);
    let mut out = Vec::new();
    relay.push(&Bytes::from(framed(Protocol::Gemini, &events)), &mut out).expect("a valid case");
    assert!(!relay.complete() && !relay.awaiting_end_marker(), "the body has not ended");
    relay.finish(&mut out).expect("a valid case");
    assert_eq!(relay.summary().usage.map(|usage| usage.prompt_total), Some(4));
    let out = String::from_utf8(out.concat()).expect("a valid case");
    for expected in ["as it is", "https://a.example", "c2ln", "\"finish_reason\":\"length\""] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    assert_eq!(out.matches("\"finish_reason\":\"").count(), 1, "{out}");
}

/// Each call of an answer: id, name, arguments.
fn calls(out: &[u8]) -> Vec<(String, String, String)> {
    let mut calls: Vec<(String, String, String)> = Vec::new();
    for event in std::str::from_utf8(out).expect("UTF-8").split("\n\n").filter_map(|event| event.strip_prefix("data: ")) {
        let event: Value = serde_json::from_str(event).expect("JSON");
        let parts = event["candidates"][0]["content"]["parts"].as_array().cloned().unwrap_or_default();
        for call in parts.iter().filter_map(|part| part.get("functionCall")) {
            let text = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
            calls.push((text("id"), text("name"), call["args"].to_string()));
        }
    }
    calls
}

fn chunk(tool_calls: &Value, finish: Option<&str>) -> Value {
    json!({ "choices": [{ "index": 0, "delta": { "tool_calls": tool_calls }, "finish_reason": finish }] })
}

#[test]
fn calls_with_different_ids_at_one_index_are_separate() {
    let call = |id: &str, name: &str, args: &str| json!([{ "index": 0, "id": id, "type": "function", "function": { "name": name, "arguments": args } }]);
    let rest = json!([{ "index": 0, "function": { "arguments": "\"y\":2}" } }]);
    for (second, expected) in [("{}", "{}"), ("", "{}")] {
        let events = [
            chunk(&call("a", "f", "{\"x\":1}"), None),
            chunk(&call("b", "g", second), None),
            chunk(&call("c", "f", "{"), None),
            chunk(&rest, Some("tool_calls")),
            json!("[DONE]"),
        ];
        let (out, result) = run(relay_to(Protocol::OpenAi, Protocol::Gemini), [&framed(Protocol::OpenAi, &events)[..]]);
        assert_eq!(result, Ok(()));
        let expected = [("a", "f", "{\"x\":1}"), ("b", "g", expected), ("c", "f", "{\"y\":2}")];
        assert_eq!(calls(&out), expected.map(|(id, name, args)| (id.to_owned(), name.to_owned(), args.to_owned())));
    }
}

#[test]
fn fragments_of_one_call_may_have_different_ids() {
    let first = json!([{ "index": 0, "id": "a", "function": { "name": "f", "arguments": "{\"x\":" } }]);
    let second = json!([{ "index": 0, "id": "b", "function": { "arguments": "1}" } }]);
    let events = [chunk(&first, None), chunk(&second, Some("tool_calls")), json!("[DONE]")];
    let (out, _) = run(relay_to(Protocol::OpenAi, Protocol::Gemini), [&framed(Protocol::OpenAi, &events)[..]]);
    assert_eq!(calls(&out), [("a".to_owned(), "f".to_owned(), "{\"x\":1}".to_owned())]);
}
