//! Streamed answers on their way back.

use bytes::Bytes;

use crate::{Problem, Protocol, Reading, StreamFault, StreamRelay, neutral::ReplyContext};

/// A relay that puts a streamed answer into the caller's protocol.
#[must_use]
pub fn translating_relay(upstream: Protocol, caller: Protocol, context: &ReplyContext) -> Box<dyn StreamRelay> {
    let _ = (upstream, caller, context);
    Box::new(Translating)
}

struct Translating;

impl StreamRelay for Translating {
    fn push(&mut self, _chunk: &Bytes, _out: &mut Vec<Bytes>) -> Result<(), StreamFault> {
        Err(StreamFault::Truncated)
    }

    fn finish(&mut self, _out: &mut Vec<Bytes>) -> Result<(), StreamFault> {
        Err(StreamFault::Truncated)
    }

    fn reading(&self) -> Reading {
        Reading::default()
    }

    fn complete(&self) -> bool {
        false
    }

    fn problem(&mut self, _problem: &Problem) -> Bytes {
        Bytes::new()
    }

    fn keep_alive(&self) -> &'static [u8] {
        b""
    }
}
