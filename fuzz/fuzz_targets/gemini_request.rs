//! Bodies of the native protocol: the light scan, the edits of pass-through, the full reading.
//!
//! Input: one byte that chooses the method, then the body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::{choices, request};
use tollgate_protocol::{Method, Protocol};

const METHODS: [Method; 5] =
    [Method::Generate, Method::StreamGenerate, Method::CountTokens, Method::EmbedContent, Method::BatchEmbedContents];

fuzz_target!(|input: &[u8]| {
    let Some(([method], body)) = choices(input) else { return };
    request(Protocol::Gemini, METHODS[usize::from(method) % METHODS.len()], body);
});
