//! Reads a Messages stream (Anthropic wire reference, section 9; translation reference, section 3.3).

use serde_json::value::RawValue;

use super::{
    decode_reply::{read_usage, redacted, signature},
    finish,
    usage::MessagesUsageCounts,
    wire::{self, ContentBlock, Delta, StreamEvent},
};
use crate::{
    Codec, StreamError,
    lenient::{LenientText, is_truthy},
    neutral::{Citation, Event, StreamDecoder},
};

/// Most blocks that are open at once; the protocol has one.
const OPEN_BLOCK_LIMIT: usize = 64;
/// Most sources of one block of text.
const CITATION_LIMIT: usize = 256;

/// A Messages stream.
#[derive(Debug, Default)]
pub(super) struct MessagesStreamDecoder {
    usage: MessagesUsageCounts,
    blocks: Vec<OpenBlock>,
    next_call: u32,
    /// Bytes of text so far.
    text: usize,
}

#[derive(Debug)]
struct OpenBlock {
    index: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Text that began at this byte, with its sources.
    Text {
        start: usize,
        citations: Vec<Citation>,
    },
    Thinking {
        signature: Option<LenientText>,
    },
    /// A call; `input` stood whole in its start, `begun` once a piece of it came.
    Call {
        call: u32,
        input: Option<String>,
        begun: bool,
    },
}

impl StreamDecoder for MessagesStreamDecoder {
    fn push(&mut self, data: &[u8], out: &mut Vec<Event>) -> Result<(), StreamError> {
        let event: StreamEvent<'_> = serde_json::from_slice(data).map_err(|_| StreamError::Malformed("not a stream event"))?;
        if is_truthy(event.error) || event.kind.as_ref().is_some_and(|kind| kind.0 == "error") {
            return Err(StreamError::Problem(Box::new(super::Anthropic.decode_problem(200, data))));
        }
        let index = event.index.or_zero();
        match event.kind.map(|kind| kind.0).as_deref() {
            Some("message_start") => self.usage(event.message.and_then(|message| message.usage), out),
            Some("content_block_start") => {
                let block = event.content_block.ok_or(StreamError::Malformed("a block start without a block"))?;
                self.start(index, block, out)?;
            }
            Some("content_block_delta") => {
                if let Some(delta) = event.delta {
                    self.delta(index, delta, out);
                }
            }
            Some("content_block_stop") => self.stop(index, out),
            Some("message_delta") => {
                self.usage(event.usage, out);
                if let Some(delta) = event.delta
                    && let Some(native) = LenientText::filled(delta.stop_reason)
                {
                    self.close_all(out);
                    let message = delta.stop_details.and_then(|details| LenientText::filled(details.explanation));
                    out.push(Event::Finish { candidate: 0, finish: finish::read(&native), native: Some(native), message });
                }
            }
            Some("message_stop") => out.push(Event::End),
            _ => {}
        }
        Ok(())
    }

    fn marks_end(&self) -> bool {
        true
    }
}

impl MessagesStreamDecoder {
    fn usage(&mut self, raw: Option<&RawValue>, out: &mut Vec<Event>) {
        if let Some(usage) = raw.and_then(|raw| read_usage(&mut self.usage, raw)) {
            out.push(Event::Usage(usage));
        }
    }

    fn start(&mut self, index: u64, block: ContentBlock<'_>, out: &mut Vec<Event>) -> Result<(), StreamError> {
        self.stop(index, out);
        let kind = match block.kind.0.as_str() {
            "text" => {
                let start = self.text;
                self.text(block.text, out);
                Kind::Text { start, citations: Vec::new() }
            }
            "thinking" => {
                thinking(block.thinking, out);
                Kind::Thinking { signature: block.signature }
            }
            "redacted_thinking" => {
                out.extend(redacted(block.data));
                return Ok(());
            }
            "tool_use" => {
                let call = self.next_call;
                self.next_call = self.next_call.wrapping_add(1);
                let id = block.id.unwrap_or_default().0;
                let name = LenientText::filled(block.name).ok_or(StreamError::Malformed("a call without a name"))?;
                out.push(Event::CallOpen { candidate: 0, call, id, name, custom: false, signature: None });
                Kind::Call { call, input: wire::input(block.input)?, begun: false }
            }
            _ => {
                out.push(Event::Unknown { candidate: 0 });
                return Ok(());
            }
        };
        if self.blocks.len() == OPEN_BLOCK_LIMIT {
            return Err(StreamError::Malformed("too many blocks open at once"));
        }
        self.blocks.push(OpenBlock { index, kind });
        Ok(())
    }

    fn text(&mut self, text: Option<LenientText>, out: &mut Vec<Event>) {
        if let Some(text) = LenientText::filled(text) {
            self.text += text.len();
            out.push(Event::Text { candidate: 0, text, signature: None });
        }
    }

    fn delta(&mut self, index: u64, delta: Delta<'_>, out: &mut Vec<Event>) {
        let Some(at) = self.blocks.iter().position(|open| open.index == index) else { return };
        match (delta.kind.map(|kind| kind.0).as_deref(), &mut self.blocks[at].kind) {
            (Some("text_delta"), Kind::Text { .. }) => self.text(delta.text, out),
            (Some("citations_delta"), Kind::Text { start, citations }) => {
                if let Some(citation) = delta.citation.and_then(|raw| wire::citation(raw, *start, *start))
                    && citations.len() < CITATION_LIMIT
                {
                    citations.push(citation);
                }
            }
            (Some("thinking_delta"), Kind::Thinking { .. }) => thinking(delta.thinking, out),
            (Some("signature_delta"), Kind::Thinking { signature }) => *signature = delta.signature,
            (Some("input_json_delta"), Kind::Call { call, begun, .. }) => {
                if let Some(fragment) = LenientText::filled(delta.partial_json) {
                    *begun = true;
                    out.push(Event::CallArgs { candidate: 0, call: *call, fragment });
                }
            }
            _ => {}
        }
    }

    fn stop(&mut self, index: u64, out: &mut Vec<Event>) {
        if let Some(at) = self.blocks.iter().position(|open| open.index == index) {
            let block = self.blocks.remove(at);
            self.close(block.kind, out);
        }
    }

    fn close_all(&mut self, out: &mut Vec<Event>) {
        for block in std::mem::take(&mut self.blocks) {
            self.close(block.kind, out);
        }
    }

    fn close(&self, kind: Kind, out: &mut Vec<Event>) {
        match kind {
            Kind::Text { mut citations, .. } => {
                for citation in &mut citations {
                    citation.end = self.text;
                }
                if !citations.is_empty() {
                    out.push(Event::Citations { candidate: 0, citations });
                }
            }
            Kind::Thinking { signature: value } => {
                if let Some(signature) = signature(value) {
                    out.push(Event::Think { candidate: 0, text: String::new(), redacted: None, signature: Some(signature) });
                }
            }
            Kind::Call { call, input, begun } => {
                if let Some(fragment) = input.filter(|_| !begun) {
                    out.push(Event::CallArgs { candidate: 0, call, fragment });
                }
                out.push(Event::CallDone { candidate: 0, call });
            }
        }
    }
}

fn thinking(text: Option<LenientText>, out: &mut Vec<Event>) {
    if let Some(text) = LenientText::filled(text) {
        out.push(Event::Think { candidate: 0, text, redacted: None, signature: None });
    }
}
