//! Bodies of Anthropic Messages: the full reading, and the edits on the way to an upstream of the same protocol.
//!
//! Input: one byte that chooses the method, then the body.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::{choices, is_json, request};
use tollgate_protocol::{Framing, Method, Protocol, RequestEdits, Target, codec};

const METHODS: [Method; 2] = [Method::Chat, Method::CountTokens];

fuzz_target!(|input: &[u8]| {
    let Some(([method], body)) = choices(input) else { return };
    request(Protocol::Anthropic, METHODS[usize::from(method) % METHODS.len()], body);
    pass(&Bytes::copy_from_slice(body));
});

/// There are no callers of this protocol yet, so nothing has a summary; the edits look at the body alone.
fn pass(body: &Bytes) {
    let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    let plain = br#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let summary = codec(Protocol::OpenAi).summarise(&target, plain).expect("a plain body has a summary");
    let edits = [
        RequestEdits::default(),
        RequestEdits { upstream_model: Some("other \"model\""), max_output: Some(7), ..RequestEdits::default() },
    ];
    for edits in edits {
        let passed = codec(Protocol::Anthropic).forward_request(body, &summary, &edits);
        assert_eq!(is_json(&passed), is_json(body), "edits neither break nor mend a body");
    }
}
