//! Bodies of the Responses API: summary, pass-through edits, full decoding.
//!
//! Input: one byte selecting the method, then the body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::{request, selectors};
use tollgate_protocol::{Method, Protocol};

const METHODS: [Method; 3] = [Method::Chat, Method::CountTokens, Method::Compact];

fuzz_target!(|input: &[u8]| {
    let Some(([method], body)) = selectors(input) else { return };
    request(Protocol::Responses, METHODS[usize::from(method) % METHODS.len()], body);
});
