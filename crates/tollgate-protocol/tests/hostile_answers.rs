//! Malformed and extreme upstream answers in passthrough, for every protocol they can occur in.

use bytes::Bytes;
use proptest::prelude::*;
use tollgate_protocol::{
    CheckedReply, Codec, Framing, InvalidReply, Method, Protocol, ReplyEdits, ReplySummary, StreamError, StreamRelay, codec,
};

const ALL: [Protocol; 4] = Protocol::ALL;

fn method(protocol: Protocol) -> Method {
    if protocol == Protocol::Gemini { Method::Generate } else { Method::Chat }
}

fn reply(protocol: Protocol, body: impl AsRef<[u8]>) -> Result<CheckedReply, InvalidReply> {
    codec(protocol).read_reply(method(protocol), &Bytes::copy_from_slice(body.as_ref()), &ReplyEdits::default())
}

fn relay(protocol: Protocol) -> Box<dyn StreamRelay> {
    codec(protocol).relay(Framing::Sse, &ReplyEdits { caller_model: None, hide_usage: true })
}

/// Relays a stream. Returns its output, its result, and the summary of the reply.
fn stream<'a>(protocol: Protocol, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Result<(), StreamError>, ReplySummary) {
    let mut relay = relay(protocol);
    let mut out = Vec::new();
    let mut result = Ok(());
    for piece in pieces {
        result = relay.push(&Bytes::copy_from_slice(piece), &mut out);
        if result.is_err() {
            break;
        }
    }
    let result = result.and_then(|()| relay.finish(&mut out));
    (out.concat(), result, relay.summary())
}

fn streamed(protocol: Protocol, text: impl AsRef<[u8]>) -> (Vec<u8>, Result<(), StreamError>, ReplySummary) {
    stream(protocol, [text.as_ref()])
}

/// A complete answer with `text` and `usage`, and the same answer as a stream.
fn answers(text: &str, usage: &str) -> [(Protocol, String, String); 2] {
    let chat = |choice: &str| format!("{{\"choices\":[{{\"index\":0,{choice}}}],\"usage\":{usage}}}");
    let native = |end: &str| {
        format!("{{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{text}\"}}]}}{end}}}],\"usageMetadata\":{usage}}}")
    };
    [
        (
            Protocol::OpenAi,
            chat(&format!("\"message\":{{\"content\":\"{text}\"}},\"finish_reason\":\"stop\"")),
            format!(
                "data: {}\n\ndata: {}\n\ndata: [DONE]\n\n",
                chat(&format!("\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null")),
                chat("\"delta\":{},\"finish_reason\":\"stop\"")
            ),
        ),
        (
            Protocol::Gemini,
            native(",\"finishReason\":\"STOP\""),
            format!("data: {}\n\ndata: {}\n\n", native(""), native(",\"finishReason\":\"STOP\"")),
        ),
    ]
}

fn unreadable(body: impl AsRef<[u8]>) {
    for protocol in ALL {
        assert!(matches!(reply(protocol, &body), Err(InvalidReply::Unreadable(_))), "{protocol:?}");
    }
}

#[test]
fn truncated_json_is_unreadable() {
    for (protocol, whole, events) in answers("abc", "null") {
        for length in 0..whole.len() {
            assert!(reply(protocol, &whole[..length]).is_err(), "{protocol:?}: {length} bytes");
        }
        let first = events.find("\n\n").unwrap();
        for length in 0..first {
            assert_eq!(streamed(protocol, &events[..length]).1, Err(StreamError::Truncated), "{protocol:?}: {length} bytes");
        }
    }
}

#[test]
fn html_or_empty_200_is_unreadable() {
    for body in ["<!DOCTYPE html><html><body>ok</body></html>", "", " \r\n", "\u{feff}", "OK", "null", "0"] {
        unreadable(body);
        for protocol in ALL {
            let (out, result, _) = streamed(protocol, body);
            assert!(out.is_empty() && result.is_err(), "{protocol:?}: {body}");
        }
    }
}

#[test]
fn json_of_the_wrong_shape_is_unreadable() {
    for body in
        ["{}", "[]", "[{}]", "\"text\"", "{\"ok\":true}", "{\"choices\":{\"0\":1}}", "{\"candidates\":\"x\"}", "{\"content\":7}"]
    {
        unreadable(body);
    }
}

#[test]
fn null_choices_are_unreadable() {
    unreadable("{\"choices\":null,\"candidates\":null,\"content\":null}");
}

#[test]
fn invalid_usage_does_not_affect_the_answer() {
    for (usage, expected) in [
        ("null", None),
        ("{}", None),
        ("7", None),
        ("\"many\"", None),
        ("[]", None),
        ("{\"P\":0,\"C\":0}", Some((0, 0))),
        ("{\"P\":3,\"C\":-2}", None),
        ("{\"P\":3.0,\"C\":2.4}", Some((3, 2))),
        ("{\"P\":9223372036854775808,\"C\":2}", None),
        ("{\"P\":\"3\",\"C\":\"2\"}", Some((3, 2))),
        ("{\"P\":9,\"C\":9,\"P\":3,\"C\":2}", Some((3, 2))),
        ("{\"P\":{},\"C\":[]}", None),
    ] {
        for (protocol, whole, events) in answers("abc", usage) {
            let named = |text: &str| {
                let (prompt, completion) = if protocol == Protocol::OpenAi {
                    ("\"prompt_tokens\"", "\"completion_tokens\"")
                } else {
                    ("\"promptTokenCount\"", "\"candidatesTokenCount\"")
                };
                text.replace("\"P\"", prompt).replace("\"C\"", completion)
            };
            let body = named(&whole);
            let passed = reply(protocol, &body).unwrap();
            let read = |summary: ReplySummary| summary.usage.map(|usage| (usage.prompt_total, usage.completion_total));
            assert_eq!((passed.body, read(passed.summary)), (Bytes::from(body), expected), "{protocol:?} {usage}");
            let (_, result, summary) = streamed(protocol, named(&events));
            assert_eq!((result, read(summary)), (Ok(()), expected), "{protocol:?} {usage} streamed");
        }
    }
}

#[test]
fn last_usage_of_a_stream_is_used() {
    let event = |(prompt, completion)| {
        format!("data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{completion}}}}}\n\n")
    };
    let mut text = [(3, 1), (3, 9), (2, 4), (2, 4)].map(event).concat();
    text += "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let usage = streamed(Protocol::OpenAi, text).2.usage.unwrap();
    assert_eq!((usage.prompt_total, usage.completion_total), (2, 4));
}

#[test]
fn error_object_in_a_200_is_an_error() {
    for protocol in ALL {
        let body = r#"{"type":"error","error":{"message":"m","type":"rate_limit_error","code":429}}"#;
        assert!(matches!(reply(protocol, body), Err(InvalidReply::Problem(problem)) if problem.status == 429));
        let (_, result, _) = streamed(protocol, format!("data: {body}\n\n"));
        assert!(matches!(result, Err(StreamError::Problem(problem)) if problem.status == 429), "{protocol:?}");
    }
}

#[test]
fn html_and_huge_error_bodies_are_handled() {
    let huge = format!("{{\"error\":{{\"message\":\"{}\"}}}}", "x".repeat(50_000_000));
    for protocol in ALL {
        let problem = codec(protocol).decode_problem(502, b"<html><h1>502 Bad Gateway</h1></html>");
        assert_eq!((problem.status, problem.is_error_object, problem.message.as_str()), (502, false, ""));
        let problem = codec(protocol).decode_problem(500, huge.as_bytes());
        assert_eq!((problem.status, problem.is_error_object), (500, false));
        assert!(problem.message.len() < 10_000);
    }
}

#[test]
fn endless_comments_give_no_output_and_use_no_memory() {
    for protocol in ALL {
        let mut relay = relay(protocol);
        let mut out = Vec::new();
        for _ in 0..100_000 {
            relay.push(&Bytes::from_static(b": keep-alive\n\n: x\n"), &mut out).unwrap();
        }
        assert!(out.is_empty());
        assert_eq!(relay.finish(&mut out), Err(StreamError::Truncated));
    }
}

#[test]
fn empty_deltas_are_not_content() {
    let empty = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":null}]}\n\n".repeat(1000);
    let (_, result, summary) = streamed(Protocol::OpenAi, empty);
    assert_eq!((result, summary.content), (Err(StreamError::Truncated), false));
    let empty = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\"}]}}]}\n\n".repeat(1000);
    assert!(!streamed(Protocol::Gemini, empty).2.content);
}

#[test]
fn one_byte_chunks_and_split_characters_do_not_matter() {
    for (protocol, _, events) in answers("h\u{e9} \u{1f600}", "null") {
        for text in [events.clone(), events.replace('\n', "\r\n"), events.replace('\n', "\r")] {
            let whole = streamed(protocol, &text);
            assert_eq!(whole.1, Ok(()));
            assert_eq!(stream(protocol, text.as_bytes().chunks(1)), whole, "{protocol:?}");
        }
    }
}

#[test]
fn line_of_100_megabytes_fails_at_the_limit() {
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    for protocol in ALL {
        let mut relay = relay(protocol);
        let mut out = Vec::new();
        relay.push(&Bytes::from_static(b"data: "), &mut out).unwrap();
        let taken = (0..100).take_while(|_| relay.push(&piece, &mut out).is_ok()).count();
        assert_eq!((taken, out.len()), (15, 0), "{protocol:?}: 16 MiB an event");
    }
}

#[test]
fn all_line_endings_give_the_same_events() {
    for (protocol, _, events) in answers("abc", "null") {
        let expected = streamed(protocol, &events);
        for end in ["\r\n", "\r"] {
            assert_eq!(streamed(protocol, events.replace('\n', end)), expected, "{protocol:?} {end:?}");
        }
        let tight = streamed(protocol, events.replace("data: ", "data:"));
        assert_eq!((tight.1, tight.2), (expected.1, expected.2), "{protocol:?} without the space");
    }
}

#[test]
fn missing_done_is_tolerated_and_data_after_it_ignored() {
    let [(protocol, _, events), _] = answers("abc", "null");
    let expected = streamed(protocol, &events);
    assert_eq!(streamed(protocol, events.replace("data: [DONE]\n\n", "")), expected);
    assert_eq!(streamed(protocol, format!("{events}data: garbage\n\n{events}")), expected);
}

#[test]
fn invalid_utf8_and_nul_are_malformed() {
    for byte in [b"\xff".as_slice(), b"\xc3", b"\xed\xa0\x80", b"\0"] {
        for (protocol, whole, events) in answers("@@", "null") {
            let damaged = |text: &str| {
                let (before, after) = text.split_once("@@").unwrap();
                [before.as_bytes(), byte, after.as_bytes()].concat()
            };
            assert!(matches!(reply(protocol, damaged(&whole)), Err(InvalidReply::Unreadable(_))), "{protocol:?} {byte:?}");
            assert!(matches!(streamed(protocol, damaged(&events)).1, Err(StreamError::Malformed(_))), "{protocol:?} {byte:?}");
        }
    }
}

#[test]
fn lone_surrogates_and_duplicate_keys_are_forwarded_unchanged() {
    for (protocol, whole, events) in answers(r"\ud83d", "null") {
        let twice = whole.replacen('{', "{\"model\":\"a\",\"model\":\"b\",", 1);
        assert_eq!(reply(protocol, &twice).unwrap().body, twice);
        assert_eq!(streamed(protocol, &events).1, Ok(()));
    }
}

#[test]
fn nesting_of_100000_is_refused_without_a_stack_overflow() {
    for nested in ["[".repeat(100_000), "{\"a\":".repeat(100_000)] {
        unreadable(&nested);
        unreadable(format!("{{\"choices\":{nested},\"candidates\":{nested}"));
        for protocol in ALL {
            assert!(matches!(streamed(protocol, format!("data: {nested}\n\n")).1, Err(StreamError::Malformed(_))));
            assert!(!codec(protocol).decode_problem(500, nested.as_bytes()).is_error_object);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_input_never_panics(
        pieces in proptest::collection::vec(prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..20),
            prop::sample::select(vec![
                &b"data: "[..], b"\n\n", b"event: error\n", b"{\"choices\":[", b"{\"candidates\":[", b"{\"error\":", b"{\"usage\":",
                b"null", b"]}", b"}", b"\"index\":", b"-1", b"1e999", b",", b"\"finish_reason\":\"stop\"", b"[DONE]", b"\r", b"\xff",
                b"{\"type\":\"message_delta\",\"delta\":", b"\\ud800", b"\"message\":",
            ]).prop_map(<[u8]>::to_vec),
        ], 0..12),
        rename in any::<bool>(),
        array in any::<bool>(),
    ) {
        let whole = pieces.concat();
        let edits = ReplyEdits { caller_model: rename.then(|| "mine".to_owned()), hide_usage: rename };
        for protocol in ALL {
            let codec: &dyn Codec = codec(protocol);
            let _judged = codec.read_reply(method(protocol), &Bytes::from(whole.clone()), &edits);
            let _read = codec.decode_problem(200, &whole);
            let framing = if array { Framing::JsonArray } else { Framing::Sse };
            let mut relay = codec.relay(framing, &edits);
            let mut out = Vec::new();
            let sound = pieces.iter().all(|piece| relay.push(&Bytes::from(piece.clone()), &mut out).is_ok());
            if sound {
                let ended = relay.finish(&mut out).is_ok();
                prop_assert!(!ended || relay.complete());
            }
        }
    }
}
