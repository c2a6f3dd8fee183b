//! Gemini streams are forwarded in both framings, with the caller's model name.

use proptest::prelude::*;

use super::*;
use crate::{
    FinishReason, Usage,
    passthrough::tests::{Run, run, run_cut_everywhere},
};

fn make(framing: Framing, model: Option<&str>) -> Box<dyn StreamRelay> {
    relay(framing, &ReplyEdits { caller_model: model.map(str::to_owned), hide_usage: false })
}

fn pass(stream: &str) -> Run {
    run_cut_everywhere(|| make(Framing::Sse, None), stream.as_bytes())
}

fn pass_as_array(stream: &str) -> Run {
    run_cut_everywhere(|| make(Framing::JsonArray, None), stream.as_bytes())
}

const TEXT: &str =
    r#"{"candidates":[{"content":{"parts":[{"text":"hé"}],"role":"model"},"index":0}],"modelVersion":"up","x":1.50}"#;
const CALL: &str = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{}}}],"role":"model"}}]}"#;
const STOP: &str = r#"{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"totalTokenCount":5},"modelVersion":"up"}"#;

fn stream(chunks: &[&str]) -> String {
    chunks.iter().map(|chunk| ["data: ", chunk, "\n\n"].concat()).collect()
}

#[test]
fn stream_is_forwarded_byte_for_byte() {
    let text = stream(&[TEXT, CALL, STOP]);
    let (out, result, summary) = pass(&text);
    assert_eq!((out, result), (text, Ok(())));
    let usage = Some(Usage { prompt_total: 3, completion_total: 2, ..Usage::default() });
    assert_eq!(
        summary,
        ReplySummary {
            usage,
            finish: Some(FinishReason::Tool),
            content: true,
            text_bytes: 5,
            media: 0,
            unknown: 0,
            surplus_calls: 0,
            searches: Some(0),
            account_refused: false
        }
    );
}

#[test]
fn unchanged_events_of_a_chunk_are_one_slice() {
    let chunk = Bytes::from(stream(&[TEXT, CALL, STOP]));
    let mut out = Vec::new();
    make(Framing::Sse, None).push(&chunk, &mut out).unwrap();
    assert_eq!((out.len(), out[0].as_ptr(), out[0].len()), (1, chunk.as_ptr(), chunk.len()));
}

#[test]
fn every_framing_is_rewritten_to_the_canonical_form() {
    let pretty = TEXT.replace(",\"modelVersion\"", "\ndata: ,\"modelVersion\"");
    let text = format!(
        ": comment\n\ndata: {TEXT}\r\n\r\nevent: message\nid: 4\ndata:{TEXT}\n\n: comment\ndata:{CALL}\n\n\n\ndata: {pretty}\r\r\
         data: {STOP}\n\ndata: [DONE]\n\n"
    );
    let folded = TEXT.replace(",\"modelVersion\"", " ,\"modelVersion\"");
    assert_eq!(pass(&text).0, stream(&[TEXT, TEXT, CALL, &folded, STOP]));
}

#[test]
fn line_separators_are_escaped() {
    let raw = "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\u{2028}\u{2029}b\u{85}\u{e9}\u{20ac}\u{a0}\"}]},\"finishReason\":\"STOP\"}]}";
    let written = raw.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029").replace('\u{85}', "\\u0085");
    assert_eq!(pass(&stream(&[raw])).0, stream(&[&written]));
}

#[test]
fn model_is_restored_in_every_event() {
    let text = stream(&[TEXT, CALL, STOP]);
    let (out, result, _) = run_cut_everywhere(|| make(Framing::Sse, Some("mine")), text.as_bytes());
    assert_eq!((out, result), (text.replace("\"modelVersion\":\"up\"", "\"modelVersion\":\"mine\""), Ok(())));
}

#[test]
fn array_framing_is_written_on_request() {
    let (out, result, _) = pass_as_array(&stream(&[TEXT, CALL, STOP]));
    assert_eq!((out, result), (format!("[{TEXT},{CALL},{STOP}]"), Ok(())));
}

#[test]
fn array_from_an_upstream_is_parsed() {
    let array = format!("[{TEXT}\r\n,\n{STOP}\n]\n");
    assert_eq!(pass(&array).0, stream(&[TEXT, STOP]));
    assert_eq!(pass_as_array(&array).0, format!("[{TEXT},{STOP}]"));
    assert_eq!(pass(&format!("[{TEXT},")).1, Err(StreamError::Truncated));
    assert_eq!(pass_as_array(&format!("[{TEXT},{STOP}")).0, format!("[{TEXT},{STOP}]"), "the answer is complete");
    let pretty = format!("[{}]", STOP.replace(',', ",\n  "));
    assert_eq!(pass(&pretty).0, stream(&[&STOP.replace(',', ",   ")]));
    let error = r#"[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}]"#;
    assert!(matches!(pass(error).1, Err(StreamError::Problem(problem)) if problem.status == 429));
}

#[test]
fn every_candidate_must_finish() {
    let second = TEXT.replace("\"index\":0", "\"index\":1");
    assert_eq!(pass(&stream(&[TEXT, &second, STOP])).1, Err(StreamError::Truncated));
    let second_stop = STOP.replace("\"finishReason\"", "\"index\":1,\"finishReason\"");
    let (_, result, summary) = pass(&stream(&[TEXT, &second_stop.replace("STOP", "SAFETY"), STOP]));
    assert_eq!((result, summary.finish), (Ok(()), Some(FinishReason::Stop)));
}

#[test]
fn stream_without_a_finish_is_truncated() {
    for text in [
        String::new(),
        stream(&[TEXT]),
        stream(&["{}"]),
        "\n\n".to_owned(),
        stream(&[TEXT, "[DONE]"]),
        format!("data: {}", &TEXT[..40]),
    ] {
        let (out, result, _) = pass_as_array(&text);
        assert_eq!(result, Err(StreamError::Truncated), "{text}");
        assert!(!out.contains("\n]") && !out.ends_with("}]"), "a broken array is never closed: {out}");
    }
}

#[test]
fn blocked_prompt_is_complete() {
    let blocked = r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4}}"#;
    let (out, result, summary) = pass(&stream(&[blocked]));
    assert_eq!((out, result, summary.content), (stream(&[blocked]), Ok(()), true));
}

#[test]
fn chunks_after_the_finish_count() {
    let late = r#"{"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":8}}"#;
    let (out, _, summary) = pass(&stream(&[STOP, late]));
    assert_eq!((out, summary.usage.unwrap().prompt_total), (stream(&[STOP, late]), 9));
}

#[test]
fn stream_cut_inside_an_event_after_a_finish_is_truncated() {
    let event = format!("data: {TEXT}");
    for (length, _) in event.char_indices().skip(1) {
        let cut = &event[..length];
        let (out, result, _) = pass(&format!("{}{cut}", stream(&[TEXT, STOP])));
        assert_eq!((out, result), (stream(&[TEXT, STOP]), Err(StreamError::Truncated)), "{cut}");
    }
    for (length, _) in TEXT.char_indices().skip(1) {
        assert_eq!(pass(&format!("[{TEXT},{STOP},{}", &TEXT[..length])).1, Err(StreamError::Truncated), "{length}");
    }
    assert_eq!(pass(&format!("{}: comment", stream(&[TEXT, STOP]))).1, Ok(()));
}

#[test]
fn text_after_a_finish_does_not_end_the_stream() {
    let text = stream(&[STOP, TEXT, STOP, TEXT]);
    let (out, result, summary) = pass(&text);
    assert_eq!((out, result, summary.text_bytes), (text.clone(), Ok(()), 6));
    let mut relay = make(Framing::Sse, None);
    relay.push(&Bytes::from(stream(&[STOP])), &mut Vec::new()).unwrap();
    assert!(!relay.complete() && relay.awaiting_body_end() && relay.may_end_unmarked(1) && !relay.may_end_unmarked(2));
    relay.push(&Bytes::from(stream(&[TEXT])), &mut Vec::new()).unwrap();
    assert!(!relay.complete() && !relay.awaiting_body_end() && !relay.may_end_unmarked(1));
}

#[test]
fn last_valid_usage_counts_and_invalid_usage_is_ignored() {
    let with = |usage: &str| format!("{{\"usageMetadata\":{usage}}}");
    let last = |events: &[&str]| {
        let chunks: Vec<_> = events.iter().map(|usage| with(usage)).collect();
        let mut all: Vec<&str> = chunks.iter().map(String::as_str).collect();
        all.push(r#"{"candidates":[{"finishReason":"STOP"}]}"#);
        pass(&stream(&all)).2.usage.map(|usage| (usage.prompt_total, usage.completion_total))
    };
    assert_eq!(last(&[r#"{"promptTokenCount":9,"candidatesTokenCount":9}"#, r#"{"promptTokenCount":3}"#]), Some((3, 9)));
    assert_eq!(last(&[r#"{"promptTokenCount":9}"#, "null", "{}", r#"{"promptTokenCount":-1}"#]), Some((9, 0)));
    assert_eq!(last(&["null", "7", "\"x\""]), None);
}

#[test]
fn errors_and_malformed_events_are_recognised() {
    for (event, status) in [
        (r#"data: {"error":{"code":503,"message":"m","status":"UNAVAILABLE","details":[]}}"#, 503),
        ("event: error\ndata: {\"error\":{\"message\":\"m\",\"status\":\"INTERNAL\"}}", 500),
        (r#"data: [{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]"#, 400),
    ] {
        let (out, result, _) = pass(&format!("{}{event}\n\n", stream(&[TEXT])));
        let Err(StreamError::Problem(problem)) = result else { panic!("{event} is an error") };
        assert_eq!((problem.status, out), (status, stream(&[TEXT])), "{event}");
    }
    for event in ["nonsense", "{\"candidates\":[", "[]", "{\"candidates\":[7]}", "{} {}"] {
        let (out, result, _) = pass(&stream(&[TEXT, event, STOP]));
        assert!(matches!(result, Err(StreamError::Malformed(_))), "{event}");
        assert_eq!(out, stream(&[TEXT]));
    }
    assert!(matches!(pass("<html>").1, Err(StreamError::Malformed(_))));
    assert!(matches!(pass("{\"error\":{\"code\":403,\"message\":\"m\"}}").1, Err(StreamError::Problem(_))));
}

#[test]
fn aborted_stream_ends_with_an_error_in_the_callers_framing() {
    let problem = Problem {
        status: 502,
        message: "broken".to_owned(),
        request_id: "req_1".to_owned(),
        openai: crate::OpenAiErrorFields::default(),
        native: crate::GeminiErrorFields {
            status: "UNAVAILABLE",
            reason: "UPSTREAM_STREAM_INTERRUPTED".to_owned(),
            ..crate::GeminiErrorFields::default()
        },
        retry_after: None,
        stop: false,
        ..Problem::default()
    };
    let body = String::from_utf8(problem::encode(&problem).to_vec()).unwrap();
    assert!(body.starts_with("{\"error\":{\"code\":502,"));
    assert_eq!(make(Framing::Sse, None).problem(&problem), format!("data: {body}\n\n"));
    let mut array = make(Framing::JsonArray, None);
    assert_eq!(array.problem(&problem), format!("[{body}"));
    assert_eq!(array.problem(&problem), format!(",{body}"));
    assert_eq!((make(Framing::Sse, None).keep_alive(), array.keep_alive()), (&b"\n\n"[..], &b"\n"[..]));
}

#[test]
fn memory_is_constant_over_a_hundred_thousand_events() {
    let mut relay = Relay::new(Framing::Sse, &ReplyEdits::default());
    let event = Bytes::from(stream(&[TEXT]));
    let (left, right) = (event.slice(..30), event.slice(30..));
    for _ in 0..100_000 {
        let mut out = Vec::new();
        relay.push(&left, &mut out).unwrap();
        relay.push(&right, &mut out).unwrap();
        assert_eq!(out.len(), 1);
    }
    assert!(relay.parser.held_bytes() <= 2 * event.len(), "{}", relay.parser.held_bytes());
    assert_eq!(relay.summary().text_bytes, 300_000);
}

proptest! {
    #[test]
    fn random_cuts_change_nothing(
        picks in proptest::collection::vec(0_usize..10, 0..12),
        cuts in proptest::collection::vec(0_usize..2500, 0..10),
        array in any::<bool>(),
        rename in any::<bool>(),
    ) {
        let pieces = [TEXT, CALL, STOP, "[DONE]", "{\"error\":{\"message\":\"m\"}}", "{", "\r", "{}", "\n: c", "\nevent: e"];
        let text = stream(&picks.iter().map(|pick| pieces[*pick]).collect::<Vec<_>>());
        let bytes = text.as_bytes();
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        let framing = if array { Framing::JsonArray } else { Framing::Sse };
        let model = rename.then_some("mine");
        let cut = run(make(framing, model), cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]));
        prop_assert_eq!(cut, run(make(framing, model), [bytes]));
    }
}
