//! Runs the golden pass-through cases byte by byte (`fixtures/golden/README.md` explains the format).

use std::{fs, path::Path};

use bytes::Bytes;
use serde::Deserialize;
use tollgate_protocol::{Framing, Method, Outline, Protocol, RequestEdits, SplicePoints, Target, codec};

#[derive(Deserialize)]
struct Case {
    name: String,
    kind: String,
    ctx: Facts,
    input: String,
    expected: String,
}

#[derive(Deserialize)]
struct Facts {
    protocol: String,
    upstream_model: String,
}

fn cases(kind: &str) -> Vec<Case> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden/passthrough.jsonl");
    let text = fs::read_to_string(file).expect("the fixture is in the repository");
    let cases: Vec<Case> = text.lines().map(|line| serde_json::from_str(line).expect("a case a line")).collect();
    cases.into_iter().filter(|case| case.kind == kind).collect()
}

/// The caller's name of the model in every case.
const MODEL: &str = "m";

fn outline_of(protocol: Protocol, body: &[u8]) -> Outline {
    let (method, model) = match protocol {
        Protocol::OpenAi => (Method::Chat, None),
        Protocol::Gemini => (Method::Generate, Some(MODEL.to_owned())),
        // There is no caller side: what the gateway would know without an outline.
        Protocol::Anthropic => return blank_outline(),
    };
    codec(protocol).outline(&Target { method, model, framing: Framing::Sse }, body).expect("golden requests are well formed")
}

fn blank_outline() -> Outline {
    Outline {
        model: MODEL.to_owned(),
        method: Method::Chat,
        stream: false,
        include_usage: false,
        max_output: None,
        candidates: 1,
        fields: Vec::new(),
        text_bytes: 0,
        turns: 0,
        images: 0,
        audio_bytes: 0,
        document_bytes: 0,
        tools: 0,
        affinity: None,
        splices: SplicePoints::default(),
    }
}

#[test]
fn requests_pass_with_nothing_but_their_splices() {
    let cases = cases("request");
    assert!(cases.len() >= 9, "the fixture was cut: {} requests", cases.len());
    for case in cases {
        let protocol = Protocol::parse(&case.ctx.protocol).expect("a protocol");
        let body = Bytes::from(case.input.clone());
        let outline = outline_of(protocol, &body);
        assert_eq!(outline.model, MODEL, "{}", case.name);
        let upstream_model = (case.ctx.upstream_model != MODEL).then_some(case.ctx.upstream_model.as_str());
        let edits = RequestEdits { upstream_model, force_usage: true, ..RequestEdits::default() };
        let forwarded = codec(protocol).forward_request(&body, &outline, &edits);
        assert_eq!(forwarded, case.expected.as_bytes(), "{}", case.name);
        if case.expected == case.input {
            assert_eq!(forwarded.as_ptr(), body.as_ptr(), "{}: the same buffer", case.name);
        }
    }
}
