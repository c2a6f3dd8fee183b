//! Streamed answers, forwarded and translated: the result, errors included, does not depend on how the bytes are cut, and callers
//! are sent only complete events.
//!
//! Input: a byte selecting the upstream's and the caller's protocol, a seed byte for the cuts, a byte of flags, then the
//! upstream's bytes.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::{PROTOCOLS, context, cut, selectors, written_events};
use tollgate_protocol::{Framing, Protocol, ReplyEdits, ReplySummary, StreamError, StreamRelay, codec, translating_relay};

fuzz_target!(|input: &[u8]| {
    let Some(([pair, seed, flags], stream)) = selectors(input) else { return };
    let pair = usize::from(pair) % (PROTOCOLS.len() * PROTOCOLS.len());
    let (upstream, caller) = (PROTOCOLS[pair / PROTOCOLS.len()], PROTOCOLS[pair % PROTOCOLS.len()]);
    let whole = relayed(relay(upstream, caller, flags), stream, 0);
    for seed in [1, seed] {
        let cut = relayed(relay(upstream, caller, flags), stream, seed);
        assert_eq!(cut, whole);
    }
    if upstream != caller && (caller != Protocol::Gemini || context(flags).framing == Framing::Sse) {
        written_events(&whole.sent);
    }
});

fn relay(upstream: Protocol, caller: Protocol, flags: u8) -> Box<dyn StreamRelay> {
    let context = context(flags);
    if upstream != caller {
        return translating_relay(upstream, caller, &context);
    }
    let caller_model = (flags & 128 != 0).then(|| "own \"name\"".to_owned());
    codec(upstream).relay(context.framing, &ReplyEdits { caller_model, hide_usage: !context.include_usage })
}

/// Result of relaying a stream.
#[derive(PartialEq)]
struct RelayResult {
    sent: Vec<u8>,
    fault: Option<StreamError>,
    summary: ReplySummary,
    complete: bool,
}

impl std::fmt::Debug for RelayResult {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sent, fault, summary, complete } = self;
        write!(to, "{fault:?}, {summary:?}, complete {complete}, sent:\n{}", String::from_utf8_lossy(sent))
    }
}

fn relayed(mut relay: Box<dyn StreamRelay>, stream: &[u8], seed: u8) -> RelayResult {
    let mut out: Vec<Bytes> = Vec::new();
    let mut fault = None;
    for chunk in cut(stream, seed) {
        if let Err(found) = relay.push(&chunk, &mut out) {
            fault = Some(found);
            break;
        }
    }
    if fault.is_none() {
        fault = relay.finish(&mut out).err();
    }
    RelayResult { sent: out.concat(), fault, summary: relay.summary(), complete: relay.complete() }
}
