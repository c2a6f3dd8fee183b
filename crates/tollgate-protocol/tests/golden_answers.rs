//! Golden cases of pass-through on the answer side, byte for byte (`fixtures/golden/passthrough.jsonl`).

use std::{fs, path::Path};

use bytes::Bytes;
use serde::Deserialize;
use tollgate_protocol::{Framing, Method, Protocol, ReplyEdits, codec};

#[derive(Deserialize)]
struct Case {
    name: String,
    kind: String,
    ctx: Context,
    input: String,
    expected: String,
}

#[derive(Deserialize)]
struct Context {
    protocol: String,
    #[serde(default = "callers_name")]
    model: String,
    upstream_model: String,
    #[serde(default)]
    include_usage: bool,
}

fn callers_name() -> String {
    "m".to_owned()
}

fn cases(kind: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden/passthrough.jsonl");
    let text = fs::read_to_string(path).expect("the fixture is part of the crate");
    text.lines().map(|line| serde_json::from_str::<Case>(line).expect("a case a line")).filter(|case| case.kind == kind).collect()
}

fn edits(ctx: &Context) -> ReplyEdits {
    ReplyEdits { caller_model: (ctx.model != ctx.upstream_model).then(|| ctx.model.clone()), hide_usage: !ctx.include_usage }
}

#[test]
fn responses_pass_byte_for_byte() {
    let cases = cases("response");
    assert!(cases.len() >= 2, "the fixture holds response cases");
    for case in cases {
        let protocol = Protocol::parse(&case.ctx.protocol).unwrap();
        let method = if protocol == Protocol::Gemini { Method::Generate } else { Method::Chat };
        let passed = codec(protocol).read_reply(method, &Bytes::from(case.input), &edits(&case.ctx));
        assert_eq!(passed.map(|passed| passed.body), Ok(Bytes::from(case.expected)), "{}", case.name);
    }
}

#[test]
fn streams_pass_byte_for_byte() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/schemas/samples");
    let recorded = [
        (Protocol::OpenAi, "openai-chat-chunk--ok-stream.sse"),
        (Protocol::Gemini, "gemini-generate-content-response--ok-stream.sse"),
        (Protocol::Anthropic, "anthropic-stream-event--ok-stream.sse"),
    ];
    for (protocol, file) in recorded {
        let text = fs::read_to_string(samples.join(file)).unwrap();
        for cut in [1, 7, 100, text.len()] {
            let mut relay = codec(protocol).relay(Framing::Sse, &ReplyEdits::default());
            let mut out = Vec::new();
            for piece in text.as_bytes().chunks(cut) {
                relay.push(&Bytes::copy_from_slice(piece), &mut out).unwrap();
            }
            relay.finish(&mut out).unwrap();
            assert!(relay.complete() && relay.reading().content && relay.reading().usage.is_some(), "{file}");
            let passed = String::from_utf8(out.concat()).unwrap();
            assert_eq!(passed, without_heartbeats(&text), "{file} in pieces of {cut}");
        }
    }
    for case in cases("stream") {
        let mut relay = codec(Protocol::parse(&case.ctx.protocol).unwrap()).relay(Framing::Sse, &edits(&case.ctx));
        let mut out = Vec::new();
        relay.push(&Bytes::from(case.input), &mut out).unwrap();
        relay.finish(&mut out).unwrap();
        assert_eq!(String::from_utf8(out.concat()).unwrap(), case.expected, "{}", case.name);
    }
}

/// Heartbeats are the gateway's own business: the upstream's are taken out.
fn without_heartbeats(stream: &str) -> String {
    let events = stream.split("\n\n").map(str::trim).filter(|event| !event.is_empty() && !event.starts_with(':'));
    events.flat_map(|event| [event, "\n\n"]).collect()
}
