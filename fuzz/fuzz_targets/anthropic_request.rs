//! Bodies of Anthropic Messages: full decoding, and the edits when forwarding to an upstream of the same protocol.
//!
//! Input: one byte selecting the method, then the body.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::{is_json, request, selectors};
use tollgate_protocol::{Framing, Method, Protocol, RequestEdits, Target, codec};

const METHODS: [Method; 2] = [Method::Chat, Method::CountTokens];

fuzz_target!(|input: &[u8]| {
    let Some(([method], body)) = selectors(input) else { return };
    request(Protocol::Anthropic, METHODS[usize::from(method) % METHODS.len()], body);
    forward(&Bytes::copy_from_slice(body));
});

/// This protocol has no callers and thus no summaries; the edits use only the body.
fn forward(body: &Bytes) {
    let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    let plain = br#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let summary = codec(Protocol::OpenAi).summarise(&target, plain).expect("a plain body has a summary");
    let edits = [
        RequestEdits::default(),
        RequestEdits { upstream_model: Some("other \"model\""), max_output: Some(7), ..RequestEdits::default() },
    ];
    for edits in edits {
        let passed = codec(Protocol::Anthropic).forward_request(body, &summary, &edits);
        assert_eq!(is_json(&passed), is_json(body), "edits keep a body valid or invalid");
    }
}
