//! Decodes a Messages stream (Anthropic API docs, "Streaming messages").

use serde_json::value::RawValue;

use super::{
    decode_reply::{read_usage, redacted, signature},
    finish,
    usage::MessagesUsageCounts,
    wire::{self, ContentBlock, Delta, StreamEvent},
};
use crate::{
    Codec, StreamError,
    lenient::{LenientText, TextJoiner, is_truthy},
    neutral::{Citation, Event, StreamDecoder},
};

/// Maximum number of blocks open at once. Anthropic streams one block at a time.
const OPEN_BLOCK_LIMIT: usize = 64;
/// Maximum number of citations of one text block.
const CITATION_LIMIT: usize = 256;

#[derive(Debug, Default)]
pub(super) struct MessagesStreamDecoder {
    usage: MessagesUsageCounts,
    blocks: Vec<OpenBlock>,
    next_call: u32,
    /// Text received so far, in bytes.
    text: usize,
}

#[derive(Debug)]
struct OpenBlock {
    index: u64,
    kind: BlockKind,
    /// The block's text, thought or arguments.
    joiner: TextJoiner,
}

#[derive(Debug)]
enum BlockKind {
    /// Text that starts at byte `start` of the joined text.
    Text {
        start: usize,
        citations: Vec<Citation>,
    },
    Thinking {
        signature: Option<LenientText>,
    },
    /// A call. `input` is the input in the block start; it is used only when no piece was streamed.
    Call {
        call: u32,
        input: Option<String>,
        streamed: bool,
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
                    let message = delta.stop_details.and_then(|details| LenientText::filled(details.explanation));
                    out.push(Event::Finish { candidate: 0, finish: finish::read(&native), native: Some(native), message });
                }
            }
            Some("message_stop") => {
                self.end(out)?;
                out.push(Event::End);
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<Event>) -> Result<(), StreamError> {
        for block in std::mem::take(&mut self.blocks) {
            self.close(block, out);
        }
        Ok(())
    }

    fn held_bytes(&self) -> usize {
        0
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
        let mut joiner = TextJoiner::default();
        let kind = match block.kind.0.as_str() {
            "text" => {
                let start = self.text;
                self.text(joiner.join(block.text.unwrap_or_default()), out);
                BlockKind::Text { start, citations: Vec::new() }
            }
            "thinking" => {
                thinking(joiner.join(block.thinking.unwrap_or_default()), out);
                BlockKind::Thinking { signature: block.signature }
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
                BlockKind::Call { call, input: wire::input(block.input)?, streamed: false }
            }
            _ => {
                out.push(Event::Unknown { candidate: 0 });
                return Ok(());
            }
        };
        if self.blocks.len() == OPEN_BLOCK_LIMIT {
            return Err(StreamError::Malformed("too many blocks open at once"));
        }
        self.blocks.push(OpenBlock { index, kind, joiner });
        Ok(())
    }

    fn text(&mut self, text: String, out: &mut Vec<Event>) {
        if !text.is_empty() {
            self.text += text.len();
            out.push(Event::Text { candidate: 0, text, signature: None });
        }
    }

    fn delta(&mut self, index: u64, delta: Delta<'_>, out: &mut Vec<Event>) {
        let Some(at) = self.blocks.iter().position(|open| open.index == index) else { return };
        let OpenBlock { kind, joiner, .. } = &mut self.blocks[at];
        match (delta.kind.map(|kind| kind.0).as_deref(), kind) {
            (Some("text_delta"), BlockKind::Text { .. }) => {
                let text = joiner.join(delta.text.unwrap_or_default());
                self.text(text, out);
            }
            (Some("citations_delta"), BlockKind::Text { start, citations }) => {
                if let Some(citation) = delta.citation.and_then(|raw| wire::citation(raw, *start, *start))
                    && citations.len() < CITATION_LIMIT
                {
                    citations.push(citation);
                }
            }
            (Some("thinking_delta"), BlockKind::Thinking { .. }) => thinking(joiner.join(delta.thinking.unwrap_or_default()), out),
            (Some("signature_delta"), BlockKind::Thinking { signature }) => *signature = delta.signature,
            (Some("input_json_delta"), BlockKind::Call { call, streamed, .. }) => {
                let fragment = joiner.join(delta.partial_json.unwrap_or_default());
                if !fragment.is_empty() {
                    *streamed = true;
                    out.push(Event::CallArgs { candidate: 0, call: *call, fragment });
                }
            }
            _ => {}
        }
    }

    fn stop(&mut self, index: u64, out: &mut Vec<Event>) {
        if let Some(at) = self.blocks.iter().position(|open| open.index == index) {
            let block = self.blocks.remove(at);
            self.close(block, out);
        }
    }

    fn close(&mut self, mut block: OpenBlock, out: &mut Vec<Event>) {
        let rest = block.joiner.finish().unwrap_or_default();
        match block.kind {
            BlockKind::Text { mut citations, .. } => {
                self.text(rest, out);
                for citation in &mut citations {
                    citation.end = self.text;
                }
                if !citations.is_empty() {
                    out.push(Event::Citations { candidate: 0, citations });
                }
            }
            BlockKind::Thinking { signature: value } => {
                thinking(rest, out);
                if let Some(signature) = signature(value) {
                    out.push(Event::Think { candidate: 0, text: String::new(), redacted: None, signature: Some(signature) });
                }
            }
            BlockKind::Call { call, input, streamed } => {
                if let Some(fragment) = input.filter(|_| !streamed).or(Some(rest).filter(|rest| !rest.is_empty())) {
                    out.push(Event::CallArgs { candidate: 0, call, fragment });
                }
                out.push(Event::CallDone { candidate: 0, call });
            }
        }
    }
}

fn thinking(text: String, out: &mut Vec<Event>) {
    if !text.is_empty() {
        out.push(Event::Think { candidate: 0, text, redacted: None, signature: None });
    }
}
