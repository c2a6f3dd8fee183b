//! Golden cases of passthrough, compared byte by byte (format: `fixtures/golden/README.md`), each a test of its own; and
//! recorded streams, forwarded unchanged for any chunk size.

use std::{collections::BTreeSet, fs, path::Path};

use bytes::Bytes;
use serde::Deserialize;
use tollgate_protocol::{Framing, Method, Protocol, ReplyEdits, RequestEdits, RequestSummary, Target, codec};

macro_rules! golden {
    ($($kind:ident: $($case:ident)+;)+) => {
        $(mod $kind {
            $(#[test]
            fn $case() {
                crate::$kind(&crate::case(concat!(stringify!($kind), ".", stringify!($case))));
            })+
        })+

        const LISTED: &[&str] = &[$($(concat!(stringify!($kind), ".", stringify!($case))),+),+];
    };
}

golden! {
    request:
        openai_bytes_identical openai_model_spliced openai_stream_usage_forced openai_stream_options_edited
        openai_markers_removed gemini_bytes_identical gemini_foreign_thought_removed gemini_foreign_signature_replaced
        anthropic_foreign_thinking_removed anthropic_claude_code_identical;
    response:
        openai_response_model_restored gemini_response_identical anthropic_pause_turn_model_restored;
}

#[derive(Deserialize)]
struct Case {
    name: String,
    ctx: Facts,
    input: String,
    expected: String,
}

#[derive(Deserialize)]
struct Facts {
    protocol: String,
    upstream_model: String,
    #[serde(default)]
    include_usage: bool,
}

/// Model name in the requests of all cases.
const MODEL: &str = "m";

fn fixture(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn cases() -> Vec<Case> {
    fixture("golden/passthrough.jsonl").lines().map(|line| serde_json::from_str(line).expect("one case per line")).collect()
}

fn case(name: &str) -> Case {
    cases().into_iter().find(|case| case.name == name).unwrap_or_else(|| panic!("the fixture has no case {name}"))
}

#[test]
fn every_case_is_listed() {
    let cases = cases();
    let found: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(LISTED.iter().copied().collect::<BTreeSet<_>>(), found);
    assert_eq!(LISTED.len(), cases.len(), "each once");
}

fn summary_of(protocol: Protocol, body: &[u8]) -> RequestSummary {
    let (method, model) = match protocol {
        Protocol::OpenAi | Protocol::Anthropic | Protocol::Responses => (Method::Chat, None),
        Protocol::Gemini => (Method::Generate, Some(MODEL.to_owned())),
    };
    codec(protocol).summarise(&Target { method, model, framing: Framing::Sse }, body).expect("golden requests are well formed")
}

/// Runs a request case: only the splices may change.
fn request(case: &Case) {
    let protocol = Protocol::parse(&case.ctx.protocol).expect("a protocol");
    let body = Bytes::from(case.input.clone());
    let summary = summary_of(protocol, &body);
    assert_eq!(summary.model, MODEL);
    let upstream_model = (case.ctx.upstream_model != MODEL).then_some(case.ctx.upstream_model.as_str());
    let edits = RequestEdits { upstream_model, force_usage: true, ..RequestEdits::default() };
    let forwarded = codec(protocol).forward_request(&body, &summary, &edits);
    assert_eq!(forwarded, case.expected.as_bytes());
    if case.expected == case.input {
        assert_eq!(forwarded.as_ptr(), body.as_ptr(), "the same buffer");
    }
}

/// Runs a case with a complete answer.
fn response(case: &Case) {
    let protocol = Protocol::parse(&case.ctx.protocol).expect("a protocol");
    let method = if protocol == Protocol::Gemini { Method::Generate } else { Method::Chat };
    let edits = ReplyEdits {
        caller_model: (case.ctx.upstream_model != MODEL).then(|| MODEL.to_owned()),
        hide_usage: !case.ctx.include_usage,
    };
    let forwarded = codec(protocol).read_reply(method, &Bytes::from(case.input.clone()), &edits);
    assert_eq!(forwarded.map(|forwarded| forwarded.body), Ok(Bytes::from(case.expected.clone())));
}

fn forwarded_for_any_chunk_size(protocol: Protocol, file: &str) {
    let text = fixture(&format!("schemas/samples/{file}"));
    for cut in 1..=text.len() {
        let mut relay = codec(protocol).relay(Framing::Sse, &ReplyEdits::default());
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(cut) {
            relay.push(&Bytes::copy_from_slice(piece), &mut out).expect("a valid stream");
        }
        relay.finish(&mut out).expect("a complete stream");
        assert!(relay.complete() && relay.summary().content && relay.summary().usage.is_some(), "in pieces of {cut}");
        let forwarded = String::from_utf8(out.concat()).expect("text");
        assert_eq!(forwarded, without_heartbeats(&text), "in pieces of {cut}");
    }
}

#[test]
fn recorded_openai_stream_is_forwarded_unchanged() {
    forwarded_for_any_chunk_size(Protocol::OpenAi, "openai-chat-chunk--ok-stream.sse");
}

#[test]
fn recorded_gemini_stream_is_forwarded_unchanged() {
    forwarded_for_any_chunk_size(Protocol::Gemini, "gemini-generate-content-response--ok-stream.sse");
}

#[test]
fn recorded_responses_stream_is_forwarded_unchanged() {
    forwarded_for_any_chunk_size(Protocol::Responses, "openai-responses-stream-event--ok-stream.sse");
}

#[test]
fn recorded_anthropic_stream_is_forwarded_unchanged() {
    forwarded_for_any_chunk_size(Protocol::Anthropic, "anthropic-stream-event--ok-stream.sse");
}

/// Removes the upstream's heartbeats, which the gateway replaces by its own.
fn without_heartbeats(stream: &str) -> String {
    let events = stream.split("\n\n").map(str::trim).filter(|event| !event.is_empty() && !event.starts_with(':'));
    events.flat_map(|event| [event, "\n\n"]).collect()
}
