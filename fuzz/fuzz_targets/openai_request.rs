//! Bodies of chat completions and embeddings: the light scan, the edits of pass-through, the full reading.
//!
//! Input: one byte that chooses the method, then the body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::{choices, request};
use tollgate_protocol::{Method, Protocol};

const METHODS: [Method; 2] = [Method::Chat, Method::Embeddings];

fuzz_target!(|input: &[u8]| {
    let Some(([method], body)) = choices(input) else { return };
    request(Protocol::OpenAi, METHODS[usize::from(method) % METHODS.len()], body);
});
