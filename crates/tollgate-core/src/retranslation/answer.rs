//! Translates the answer that a caller got into the protocol of the upstream. The upstream's own bytes are not stored.

use bytes::Bytes;
use serde_json::Value;
use tollgate_protocol::{Framing, ReplyEdits, StreamRelay, codec, neutral::ReplyContext, translate_reply, translating_relay};

use super::{ReplyFacts, Retranslation};

impl Retranslation {
    /// The answer in the upstream's protocol; `None` if it cannot be read, for example because it was shortened.
    #[must_use]
    pub fn upstream_answer(&self, answer: &str) -> Option<String> {
        let bytes = Bytes::copy_from_slice(answer.as_bytes());
        let written = if self.reply.streams { self.stream(answer, &bytes) } else { self.whole(&bytes) }?;
        String::from_utf8(written).ok().filter(|text| !text.is_empty())
    }

    fn whole(&self, answer: &Bytes) -> Option<Vec<u8>> {
        let checked = if self.from == self.to {
            codec(self.to).read_reply(self.reply.method, answer, &self.edits())
        } else {
            translate_reply(self.from, self.to, answer, &self.context())
        };
        checked.ok().map(|reply| reply.body.to_vec())
    }

    fn stream(&self, text: &str, answer: &Bytes) -> Option<Vec<u8>> {
        // Upstreams always stream events, even if the caller got one JSON array.
        let events = if text.trim_start().starts_with('[') { as_events(text)? } else { answer.clone() };
        let relay = if self.from == self.to {
            codec(self.to).relay(Framing::Sse, &self.edits())
        } else {
            translating_relay(self.from, self.to, &self.context())
        };
        relayed(relay, &events)
    }

    /// Replaces the caller's name of the model by the upstream's.
    fn edits(&self) -> ReplyEdits {
        let model = self.reply.is_renamed.then(|| self.reply.upstream_model.clone());
        ReplyEdits { caller_model: model, hide_usage: false }
    }

    fn context(&self) -> ReplyContext {
        let ReplyFacts { request_id, seconds, upstream_model, streams, kind, tools, custom_tools, .. } = &self.reply;
        ReplyContext {
            kind: *kind,
            framing: Framing::Sse,
            stream: *streams,
            include_usage: true,
            include_thoughts: true,
            carry_thinking: true,
            custom_tools: custom_tools.clone(),
            name_map: tools.clone(),
            ..ReplyContext::new(request_id, *seconds, upstream_model)
        }
    }
}

/// The output of a relay for an answer, up to the first part that it cannot read.
fn relayed(mut relay: Box<dyn StreamRelay>, answer: &Bytes) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut is_whole = relay.push(answer, &mut out).is_ok();
    while let Some(piece) = relay.next_shared() {
        out.push(piece);
    }
    is_whole = is_whole && relay.finish(&mut out).is_ok();
    while let Some(piece) = relay.next_shared() {
        out.push(piece);
    }
    let written = out.concat();
    (is_whole || !written.is_empty()).then_some(written)
}

/// A stream that was sent as one array, as events.
fn as_events(text: &str) -> Option<Bytes> {
    let items: Vec<Value> = serde_json::from_str(text).ok()?;
    let events: Vec<String> = items.iter().map(|item| format!("data: {item}\n\n")).collect();
    Some(Bytes::from(events.concat()))
}
