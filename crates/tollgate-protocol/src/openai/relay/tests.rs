//! Chat streams are forwarded unchanged, except for a usage chunk that the caller did not request.

use proptest::prelude::*;

use super::*;
use crate::{
    FinishReason, Usage,
    passthrough::tests::{Run, run, run_cut_everywhere},
};

fn make(hide_usage: bool, model: Option<&str>) -> Box<dyn StreamRelay> {
    relay(Framing::Sse, &ReplyEdits { caller_model: model.map(str::to_owned), hide_usage })
}

/// Relays the stream, also split at every byte.
fn pass(stream: &str) -> Run {
    run_cut_everywhere(|| make(false, None), stream.as_bytes())
}

fn fault(stream: &str) -> StreamError {
    pass(stream).1.unwrap_err()
}

const ROLE: &str = r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"up","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null}]}"#;
const TEXT: &str = r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"up","choices":[{"index":0,"delta":{"content":"hé"},"finish_reason":null}],"x":1.50}"#;
const STOP: &str = r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"up","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const USAGE: &str = r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"up","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#;
const DONE_LINE: &str = "data: [DONE]";

fn stream(events: &[&str]) -> String {
    events.iter().map(|event| [event, "\n\n"].concat()).collect()
}

fn usage(prompt_total: u64, completion_total: u64) -> Usage {
    Usage { prompt_total, completion_total, ..Usage::default() }
}

#[test]
fn stream_is_forwarded_byte_for_byte() {
    let text = stream(&[ROLE, TEXT, STOP, USAGE, DONE_LINE]);
    let (out, result, summary) = pass(&text);
    assert_eq!((out, result), (text, Ok(())));
    assert_eq!(
        summary,
        ReplySummary {
            usage: Some(usage(3, 2)),
            finish: Some(FinishReason::Stop),
            content: true,
            text_bytes: 3,
            media: 0,
            unknown: 0,
            surplus_calls: 0,
            searches: None,
            account_refused: false
        }
    );
}

#[test]
fn unchanged_events_of_a_chunk_are_one_slice() {
    let chunk = Bytes::from(stream(&[ROLE, TEXT, STOP, DONE_LINE]));
    let mut out = Vec::new();
    make(false, None).push(&chunk, &mut out).unwrap();
    assert_eq!(out.len(), 1);
    assert_eq!((out[0].as_ptr(), out[0].len()), (chunk.as_ptr(), chunk.len()));
}

#[test]
fn unrequested_usage_is_removed() {
    let with_null = TEXT.replace("\"x\":1.50", "\"usage\":null,\"x\":1.50");
    let last_null = STOP.replace("}]}", "}],\"usage\":null}");
    let running = STOP.replace("}]}", "}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,\"total_tokens\":4}}");
    let text = stream(&[ROLE, &with_null, &last_null, &running, USAGE, DONE_LINE]);
    let (out, result, summary) = run_cut_everywhere(|| make(true, None), text.as_bytes());
    assert_eq!((out, result), (stream(&[ROLE, TEXT, STOP, STOP, DONE_LINE]), Ok(())));
    assert_eq!(summary.usage, Some(usage(3, 2)));
}

#[test]
fn requested_usage_is_kept() {
    let with_null = TEXT.replace("\"x\":1.50", "\"usage\":null,\"x\":1.50");
    let text = stream(&[&with_null, STOP, USAGE, DONE_LINE]);
    assert_eq!(pass(&text).0, text);
}

#[test]
fn last_valid_usage_counts() {
    let with = |value: &str| format!(r#"data: {{"choices":[],"usage":{value}}}"#);
    let of = |prompt, completion| with(&format!("{{\"prompt_tokens\":{prompt},\"completion_tokens\":{completion}}}"));
    for (events, expected) in [
        (vec![of("9", "9"), of("3", "2")], Some(usage(3, 2))),
        (vec![of("3", "2"), with("null")], Some(usage(3, 2))),
        (vec![of("3", "2"), of("-3", "2")], Some(usage(3, 2))),
        (vec![of("3", "2"), of("9223372036854775808", "2")], Some(usage(3, 2))),
        (vec![of("3.0", "\"2\"")], Some(usage(3, 2))),
        (vec![of("0", "0")], Some(usage(0, 0))),
        (vec![with("null"), with("7"), with("{}")], None),
        (vec![], None),
    ] {
        let mut all = vec![STOP];
        all.extend(events.iter().map(String::as_str));
        all.push(DONE_LINE);
        assert_eq!(pass(&stream(&all)).2.usage, expected, "{events:?}");
    }
}

#[test]
fn model_is_restored_in_every_event() {
    let text = stream(&[ROLE, TEXT, STOP, USAGE, DONE_LINE]);
    let (out, result, _) = run_cut_everywhere(|| make(false, Some("mine")), text.as_bytes());
    assert_eq!((out, result), (text.replace("\"model\":\"up\"", "\"model\":\"mine\""), Ok(())));
}

#[test]
fn obfuscation_is_removed() {
    let padded = TEXT.replace("\"x\":1.50", "\"x\":1.50,\"obfuscation\":\"aB3\"");
    assert_eq!(pass(&stream(&[&padded, STOP, DONE_LINE])).0, stream(&[TEXT, STOP, DONE_LINE]));
    let first = format!("data: {{\"obfuscation\":\"aB3\",\"usage\":null,{}", &TEXT[7..]);
    let (out, ..) = run(make(true, None), [stream(&[&first, STOP, DONE_LINE]).as_bytes()]);
    assert_eq!(out, stream(&[TEXT, STOP, DONE_LINE]));
}

#[test]
fn other_framing_is_rewritten() {
    let text = format!(
        "\u{feff}{ROLE}\r\n\r\n: OPENROUTER PROCESSING\n\nevent: message\nid: 1\n{TEXT}\n\nretry: 3\n{STOP}\r\r{DONE_LINE}\r\n\r\n"
    );
    assert_eq!(pass(&text).0, stream(&[ROLE, TEXT, STOP, DONE_LINE]));
    let lines = TEXT.replace(",\"choices\"", "\ndata: ,\"choices\"");
    assert_eq!(
        pass(&stream(&[&lines, STOP, DONE_LINE])).0,
        stream(&[&TEXT.replace(",\"choices\"", " ,\"choices\""), STOP, DONE_LINE])
    );
}

#[test]
fn data_without_a_space_is_forwarded() {
    let text = stream(&[&TEXT.replace("data: ", "data:"), STOP, DONE_LINE]);
    assert_eq!(pass(&text).0, text);
}

#[test]
fn empty_events_and_heartbeats_are_dropped() {
    let text = format!("event: ping\n\ndata: \n\ndata:\n\n: x\n\n\n\n{TEXT}\n\ndata: {{}}\n\n{STOP}\n\n{DONE_LINE}\n\n");
    assert_eq!(pass(&text).0, stream(&[TEXT, STOP, DONE_LINE]));
}

#[test]
fn missing_done_is_added_and_data_after_it_is_ignored() {
    assert_eq!(pass(&stream(&[TEXT, STOP])).0, stream(&[TEXT, STOP, DONE_LINE]));
    assert_eq!(pass(&format!("{TEXT}\n\n{STOP}\n\n{DONE_LINE}")).0, stream(&[TEXT, STOP, DONE_LINE]));
    assert_eq!(pass(&format!("{TEXT}\n\n{STOP}")).0, stream(&[TEXT, STOP, DONE_LINE]));
    let behind = stream(&[TEXT, STOP, DONE_LINE, TEXT, "data: garbage", DONE_LINE]);
    assert_eq!(pass(&behind).0, stream(&[TEXT, STOP, DONE_LINE]));
}

#[test]
fn cut_event_after_the_finish_is_ignored_unless_it_may_contain_content() {
    let choices = USAGE.find("\"choices\":[]").unwrap() + "\"choices\":[]".len();
    for cut in [&USAGE[..choices], &USAGE[..choices + 30], "data: [DO"] {
        let text = format!("{}{cut}", stream(&[TEXT, STOP]));
        assert_eq!(pass(&text), pass(&stream(&[TEXT, STOP, DONE_LINE])), "{cut}");
    }
    for cut in ["d", "data:", &USAGE[..60], &TEXT[..120]] {
        let (_, result, _) = pass(&format!("{}{cut}", stream(&[TEXT, STOP])));
        assert_eq!(result, Err(StreamError::Truncated), "{cut}");
    }
}

#[test]
fn text_after_a_finish_requires_the_done_marker() {
    let text = stream(&[STOP, TEXT, STOP]);
    assert_eq!(pass(&text).1, Err(StreamError::Truncated));
    let whole = stream(&[STOP, TEXT, STOP, DONE_LINE]);
    let (out, result, _) = pass(&whole);
    assert_eq!((out, result), (whole, Ok(())));
}

#[test]
fn stream_without_a_finish_is_truncated() {
    for events in [&[][..], &[ROLE], &[ROLE, TEXT], &[TEXT, DONE_LINE], &[DONE_LINE], &[USAGE, DONE_LINE], &[": x"]] {
        let (out, result, _) = pass(&stream(events));
        assert_eq!(result, Err(StreamError::Truncated), "{events:?}");
        assert!(!out.contains("[DONE]"));
    }
    let cut_short = format!("{ROLE}\n\n{}", &TEXT[..80]);
    assert_eq!(pass(&cut_short).1, Err(StreamError::Truncated));
}

#[test]
fn every_choice_must_finish() {
    let second = STOP.replace("\"index\":0", "\"index\":1");
    assert_eq!(pass(&stream(&[TEXT, &TEXT.replace("\"index\":0", "\"index\":1"), STOP, DONE_LINE])).1, Err(StreamError::Truncated));
    let (_, result, summary) = pass(&stream(&[TEXT, &second.replace("stop", "length"), STOP, DONE_LINE]));
    assert_eq!((result, summary.finish), (Ok(()), Some(FinishReason::Stop)));
}

#[test]
fn empty_finish_reason_counts_only_with_done() {
    let blank = STOP.replace("\"stop\"", "\"\"");
    assert_eq!(pass(&stream(&[TEXT, &blank, DONE_LINE])).1, Ok(()));
    assert_eq!(pass(&stream(&[TEXT, &blank])).1, Err(StreamError::Truncated));
}

#[test]
fn error_events_of_every_form_are_recognised() {
    for (event, status) in [
        (r#"data: {"error":{"message":"m","type":"server_error"}}"#, 500),
        ("event: error\ndata: {\"error\":{\"message\":\"m\",\"type\":\"rate_limit_error\"}}", 429),
        ("event: error\ndata: {\"message\":\"m\",\"code\":503}", 503),
        ("event: error\ndata: boom", 500),
        (r#"data: {"object":"error","message":"m","type":"BadRequestError","code":400}"#, 400),
        (
            r#"data: {"id":"c","choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}],"error":{"code":502,"message":"m"}}"#,
            502,
        ),
        (r#"data: {"error":"m"}"#, 500),
    ] {
        let (out, result, summary) = pass(&stream(&[TEXT, event]));
        let Err(StreamError::Problem(problem)) = result else { panic!("{event} is an error") };
        assert_eq!((problem.status, out, summary.content), (status, stream(&[TEXT]), true), "{event}");
    }
}

#[test]
fn error_event_without_blank_line_is_recognised() {
    assert!(
        matches!(fault(r#"data: {"error":{"message":"m","code":503}}"#), StreamError::Problem(problem) if problem.status == 503)
    );
}

#[test]
fn non_stream_bodies_are_detected() {
    assert!(
        matches!(fault(r#"{"error":{"message":"m","type":"t","code":429}}"#), StreamError::Problem(problem) if problem.status == 429)
    );
    assert!(
        matches!(fault("[{\"error\":{\"message\":\"m\",\"code\":400}}]"), StreamError::Problem(problem) if problem.status == 400)
    );
    assert!(matches!(fault("<html></html>"), StreamError::Malformed(_)));
    assert!(matches!(fault(r#"{"choices":[{"message":{}}]}"#), StreamError::Malformed(_)));
}

#[test]
fn malformed_event_ends_the_stream_after_valid_events() {
    for event in
        ["data: nonsense", "data: {\"choices\":[", "data: []", "data: {\"choices\":{}}", "data: {\"choices\":[7]}", "data: {} {}"]
    {
        let (out, result, _) = pass(&stream(&[TEXT, event, STOP]));
        assert!(matches!(result, Err(StreamError::Malformed(_))), "{event}");
        assert_eq!(out, stream(&[TEXT]));
    }
    let invalid = [format!("{TEXT}\n\n").as_bytes(), b"data: {\"choices\":[],\"x\":\"\xff\"}\n\n"].concat();
    assert!(matches!(run(make(false, None), [&invalid[..]]).1, Err(StreamError::Malformed(_))));
    let deep = format!("data: {}\n\n", "[".repeat(100_000));
    assert!(matches!(run(make(false, None), [deep.as_bytes()]).1, Err(StreamError::Malformed(_))));
}

#[test]
fn null_choices_become_an_empty_list() {
    let null = USAGE.replace("\"choices\":[]", "\"choices\":null");
    let missing = USAGE.replace("\"choices\":[],", "");
    let inserted = USAGE.replace("\"choices\":[],", "").replacen('{', "{\"choices\":[],", 1);
    assert_eq!(pass(&stream(&[STOP, &null, DONE_LINE])).0, stream(&[STOP, USAGE, DONE_LINE]));
    assert_eq!(pass(&stream(&[STOP, &missing, DONE_LINE])).0, stream(&[STOP, &inserted, DONE_LINE]));
}

#[test]
fn lone_surrogates_nul_escapes_and_duplicates_are_forwarded() {
    let odd = r#"data: {"model":"a","model":"b","choices":[{"index":0,"delta":{"content":"\ud83d\u0000"},"finish_reason":null}]}"#;
    let text = stream(&[odd, STOP, DONE_LINE]);
    assert_eq!(pass(&text).0, text);
}

#[test]
fn aborted_stream_ends_with_an_error_event() {
    let problem = Problem {
        status: 502,
        message: "The upstream provider's stream ended before the answer was complete.".to_owned(),
        request_id: "req_1".to_owned(),
        openai: crate::OpenAiErrorFields {
            kind: "server_error".to_owned(),
            code: Some("upstream_stream_interrupted".to_owned()),
            param: None,
        },
        native: crate::GeminiErrorFields::default(),
        retry_after: None,
        stop: false,
        ..Problem::default()
    };
    let expected = "data: {\"error\":{\"message\":\"The upstream provider's stream ended before the answer was complete.\",\
                    \"type\":\"server_error\",\"param\":null,\"code\":\"upstream_stream_interrupted\"}}\n\n";
    assert_eq!(make(false, None).problem(&problem), expected);
    assert_eq!(make(false, None).keep_alive(), b": keep-alive\n\n");
}

#[test]
fn memory_is_constant_over_a_hundred_thousand_events() {
    let mut relay = Relay {
        opening: BodyKind::default(),
        parser: SseParser::new(),
        events: Events {
            model: Some("\"mine\"".to_owned()),
            hide_usage: true,
            summary: ReplySummary::default(),
            candidates: CandidateProgress::default(),
            done: false,
        },
    };
    let event = Bytes::from(format!("{TEXT}\n\n"));
    let (left, right) = (event.slice(..100), event.slice(100..));
    let mut bytes = 0;
    for _ in 0..100_000 {
        let mut out = Vec::new();
        relay.push(&left, &mut out).unwrap();
        assert!(out.is_empty());
        relay.push(&right, &mut out).unwrap();
        bytes += out.iter().map(Bytes::len).sum::<usize>();
    }
    assert_eq!(bytes, 100_000 * (event.len() + 2));
    assert_eq!(relay.events.summary.text_bytes, 300_000);
    assert!(relay.parser.held_bytes() <= 2 * event.len(), "{}", relay.parser.held_bytes());
}

proptest! {
    #[test]
    fn random_cuts_change_nothing(
        picks in proptest::collection::vec(0_usize..12, 0..12),
        cuts in proptest::collection::vec(0_usize..3000, 0..10),
        hide_usage in any::<bool>(),
        rename in any::<bool>(),
    ) {
        let pieces = [
            ROLE, TEXT, STOP, USAGE, DONE_LINE, ": c", "event: x", "data: {\"error\":{\"message\":\"m\"}}", "data: [", "\r\n", "data:", "id: 1\r",
        ];
        let text = stream(&picks.iter().map(|pick| pieces[*pick]).collect::<Vec<_>>());
        let bytes = text.as_bytes();
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        let model = rename.then_some("mine");
        let cut = run(make(hide_usage, model), cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]));
        prop_assert_eq!(cut, run(make(hide_usage, model), [bytes]));
    }
}
