//! Bodies of the Gemini API: summary, pass-through edits, full decoding.
//!
//! Input: one byte selecting the method, then the body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::{request, selectors};
use tollgate_protocol::{Method, Protocol};

const METHODS: [Method; 5] =
    [Method::Generate, Method::StreamGenerate, Method::CountTokens, Method::EmbedContent, Method::BatchEmbedContents];

fuzz_target!(|input: &[u8]| {
    let Some(([method], body)) = selectors(input) else { return };
    request(Protocol::Gemini, METHODS[usize::from(method) % METHODS.len()], body);
});
