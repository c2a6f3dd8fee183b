//! Citations of streamed answers equal those of the complete answer.

use bytes::Bytes;
use serde_json::{Value, json};
use tollgate_protocol::{Protocol, neutral::ReplyContext, translate_reply, translating_relay};

use crate::{
    framed, relay,
    schemas::{check_reply, check_stream},
};

fn context() -> ReplyContext {
    ReplyContext { include_thoughts: true, ..ReplyContext::new("r", 7, "m") }
}

fn annotation(start: u64, end: u64, url: &str, title: &str) -> Value {
    json!({ "type": "url_citation", "url_citation": { "start_index": start, "end_index": end, "title": title, "url": url } })
}

/// `annotations` of the complete answer, and those of the stream.
fn annotations(upstream: Protocol, whole: &Value, events: &[Value]) -> (Value, Vec<Value>) {
    let direction = (upstream, Protocol::OpenAi);
    let translated = translate_reply(direction.0, direction.1, &Bytes::from(whole.to_string()), &context()).expect("an answer");
    let whole = check_reply(direction.1, &translated.body)["choices"][0]["message"]["annotations"].clone();
    let (out, fault) = relay(direction, &ReplyContext { stream: true, ..context() }, [&framed(upstream, events)[..]]);
    assert_eq!(fault, None);
    let chunks = check_stream(direction.1, &out);
    let streamed = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"].get("annotations").cloned());
    (whole, streamed.collect())
}

#[test]
fn gemini_sources_become_annotations() {
    let grounding = json!({
        "groundingChunks": [{ "web": { "uri": "https://a.test", "title": "A" } }, { "web": { "uri": "https://b.test" } }],
        "groundingSupports": [
            { "segment": { "partIndex": 1, "startIndex": 0, "endIndex": 3 }, "groundingChunkIndices": [0, 1] },
            { "segment": { "partIndex": 2, "startIndex": 1, "endIndex": 6 }, "groundingChunkIndices": [1] },
        ],
    });
    let event = |parts: Value| json!({ "candidates": [{ "content": { "parts": parts } }] });
    let thought = json!({ "text": "hm", "thought": true });
    let code = json!({ "executableCode": { "language": "PYTHON", "code": "1" } });
    let mut whole = event(json!([thought, { "text": "é漢b" }, code]));
    whole["candidates"][0]["finishReason"] = "STOP".into();
    whole["candidates"][0]["groundingMetadata"] = grounding.clone();
    let mut last = event(json!([code]));
    last["candidates"][0]["groundingMetadata"] = grounding;
    let end = json!({ "candidates": [{ "finishReason": "STOP" }] });
    let events = [event(json!([thought])), event(json!([{ "text": "é" }])), event(json!([{ "text": "漢b" }])), last, end];
    let (whole, streamed) = annotations(Protocol::Gemini, &whole, &events);
    let expected = json!([
        annotation(0, 1, "https://a.test", "A"),
        annotation(0, 1, "https://b.test", "https://b.test"),
        annotation(4, 9, "https://b.test", "https://b.test"),
    ]);
    assert_eq!(whole, expected);
    assert_eq!(streamed, [expected], "once, in front of the end");
}

#[test]
fn anthropic_citations_become_annotations() {
    let citation = json!({ "type": "web_search_result_location", "url": "https://a.test", "title": "A", "cited_text": "x" });
    let whole = json!({ "type": "message", "stop_reason": "end_turn", "content": [
        { "type": "text", "text": "é " }, { "type": "text", "text": "b漢", "citations": [citation] } ] });
    let block = |index: u64, text: &str, citation: Option<&Value>| {
        let mut events = vec![
            json!({ "type": "content_block_start", "index": index, "content_block": { "type": "text", "text": "" } }),
            json!({ "type": "content_block_delta", "index": index, "delta": { "type": "text_delta", "text": text } }),
        ];
        events.extend(citation.map(|citation| {
            json!({ "type": "content_block_delta", "index": index, "delta": { "type": "citations_delta", "citation": citation } })
        }));
        events.push(json!({ "type": "content_block_stop", "index": index }));
        events
    };
    let mut events = vec![json!({ "type": "message_start", "message": { "type": "message", "usage": {} } })];
    events.extend(block(0, "é ", None));
    events.extend(block(1, "b漢", Some(&citation)));
    events.push(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }));
    events.push(json!({ "type": "message_stop" }));
    let (whole, streamed) = annotations(Protocol::Anthropic, &whole, &events);
    let expected = json!([annotation(2, 4, "https://a.test", "A")]);
    assert_eq!((whole, streamed), (expected.clone(), vec![expected]));
}

#[test]
fn searches_are_counted_from_translated_answers() {
    let queries = |queries: &[&str]| json!({ "webSearchQueries": queries });
    let candidate = |index: u64, grounding: Option<Value>| {
        let mut one = json!({ "index": index, "content": { "parts": [{ "text": "a" }] }, "finishReason": "STOP" });
        if let Some(grounding) = grounding {
            one["groundingMetadata"] = grounding;
        }
        one
    };
    let found = |candidates: &[Value]| {
        let body = json!({ "candidates": candidates });
        let whole = translate_reply(Protocol::Gemini, Protocol::OpenAi, &Bytes::from(body.to_string()), &context());
        let mut relay = translating_relay(Protocol::Gemini, Protocol::OpenAi, &ReplyContext { stream: true, ..context() });
        // The sources are repeated.
        for _ in 0..2 {
            relay.push(&Bytes::from(framed(Protocol::Gemini, std::slice::from_ref(&body))), &mut Vec::new()).expect("an event");
        }
        (whole.expect("an answer").summary.searches, relay.summary().searches)
    };
    let maps = json!({ "groundingChunks": [{ "maps": { "uri": "https://a.test" } }] });
    for (candidates, searches) in [
        (vec![candidate(0, None)], 0),
        (vec![candidate(0, Some(queries(&["a", "b", "c"])))], 3),
        (vec![candidate(0, Some(queries(&["a", "b", "c"]))), candidate(1, Some(queries(&["d"])))], 4),
        (vec![candidate(0, Some(maps))], 1),
    ] {
        assert_eq!(found(&candidates), (Some(searches), Some(searches)), "{candidates:?}");
    }
}
