//! Encodes a Messages stream: one open block at a time, consecutive indexes, and each call as a block of its own once it is
//! complete. The message begins with the first text, thought or call.

use bytes::{BufMut, BytesMut};

use super::reply_fields::{Stop, UNKNOWN_USAGE, foreign_signature, input, write_stop, write_usage};
use crate::{
    FinishReason, Protocol, Usage,
    json_text::write_string,
    neutral::{
        Event, ReplyContext, Signature, StreamEncoder,
        names::PlainIds,
        signature::{self, SealedItem, ThoughtMember, signature_item},
    },
    opaque_state::{HIDDEN_THOUGHT_LIMIT, hidden_thought},
};

/// Maximum length of a refusal that is repeated as explanation, in bytes.
const REFUSAL_LIMIT: usize = 4 * 1024;

/// State of one stream. The protocol has one candidate; the first to appear is encoded.
#[derive(Debug)]
pub(super) struct MessagesStreamEncoder {
    from: Protocol,
    id: String,
    model: String,
    include_thoughts: bool,
    carry_thinking: bool,
    /// Signature of thinking that its upstream did not seal.
    signature: String,
    /// Whether thoughts without a seal are returned to the upstream with the history.
    goes_back: bool,
    /// The thought of a chat upstream that is hidden from the caller and sent as a signature.
    hidden: String,
    /// True if `hidden` reached [`HIDDEN_THOUGHT_LIMIT`] and the rest of the thought is dropped.
    is_hidden_cut: bool,
    id_signatures: bool,
    candidate: Option<u32>,
    started: bool,
    /// Index of the open block, or of the next one.
    index: u32,
    open: Option<TextBlock>,
    calls: Vec<PendingCall>,
    ids: PlainIds,
    stop: Stop,
    refusal: String,
    usage: Option<Usage>,
}

/// Kind of a block that receives several deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextBlock {
    Text,
    Thinking,
}

#[derive(Debug)]
struct PendingCall {
    call: u32,
    id: String,
    name: String,
    args: String,
    signature: Option<Signature>,
}

impl MessagesStreamEncoder {
    pub(super) fn new(from: Protocol, context: &ReplyContext) -> Self {
        Self {
            from,
            id: format!("msg_{}", context.request_id),
            model: context.model.clone(),
            include_thoughts: context.include_thoughts,
            carry_thinking: context.carry_thinking,
            signature: foreign_signature(from),
            goes_back: from == Protocol::OpenAi,
            hidden: String::new(),
            is_hidden_cut: false,
            id_signatures: context.id_signatures,
            candidate: None,
            started: false,
            index: 0,
            open: None,
            calls: Vec::new(),
            ids: PlainIds::default(),
            stop: Stop::default(),
            refusal: String::new(),
            usage: None,
        }
    }

    fn is_encoded(&mut self, candidate: u32) -> bool {
        *self.candidate.get_or_insert(candidate) == candidate
    }

    fn start(&mut self, out: &mut BytesMut) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        begin(out, "message_start");
        out.put_slice(b",\"message\":{\"id\":");
        write_string(out, &self.id);
        out.put_slice(b",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
        write_string(out, &self.model);
        out.put_slice(b",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
        // The counts known so far are not final; those of `message_delta` are.
        out.put_slice(UNKNOWN_USAGE);
        out.put_slice(b"}}\n\n");
    }

    fn open_block(&mut self, out: &mut BytesMut, block: TextBlock) {
        if self.open == Some(block) && self.hidden.is_empty() {
            return;
        }
        self.close_block(out);
        self.start(out);
        self.open = Some(block);
        begin(out, "content_block_start");
        let empty = match block {
            TextBlock::Text => "{\"type\":\"text\",\"text\":\"\"}",
            TextBlock::Thinking => "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}",
        };
        out.put_slice(format!(",\"index\":{},\"content_block\":{empty}}}\n\n", self.index).as_bytes());
    }

    fn delta(&self, out: &mut BytesMut, kind: &str, member: &str, text: &str) {
        begin(out, "content_block_delta");
        out.put_slice(format!(",\"index\":{},\"delta\":{{\"type\":\"{kind}\",\"{member}\":", self.index).as_bytes());
        write_string(out, text);
        out.put_slice(b"}}\n\n");
    }

    fn close_block(&mut self, out: &mut BytesMut) {
        if let Some(block) = self.open.take() {
            if block == TextBlock::Thinking {
                self.delta(out, "signature_delta", "signature", &self.signature);
            }
            self.stop_block(out);
        }
        self.write_hidden(out);
    }

    fn thought(&mut self, out: &mut BytesMut, text: &str, signature: Option<&Signature>) {
        if let Some(member) = ThoughtMember::of(signature) {
            member.mark().clone_into(&mut self.signature);
            // Thoughts from `reasoning` are not sent back, so hidden ones need not be carried.
            self.goes_back &= member != ThoughtMember::Reasoning;
        }
        if self.include_thoughts && !text.is_empty() {
            self.open_block(out, TextBlock::Thinking);
            self.delta(out, "thinking_delta", "thinking", text);
        } else if self.carry_thinking && self.goes_back && !self.is_hidden_cut {
            let kept = text.floor_char_boundary(HIDDEN_THOUGHT_LIMIT - self.hidden.len());
            self.hidden.push_str(&text[..kept]);
            self.is_hidden_cut = kept < text.len();
        }
        if let Some(signature) = signature.filter(|_| self.carry_thinking && SealedItem::of(signature).is_some()) {
            self.signature_block(out, &signature_item(signature));
        }
    }

    /// Ends the open thought with a signature, or writes a block without a text.
    fn signature_block(&mut self, out: &mut BytesMut, signature: &str) {
        self.open_block(out, TextBlock::Thinking);
        self.open = None;
        self.delta(out, "signature_delta", "signature", signature);
        self.stop_block(out);
    }

    /// Writes the hidden part of the preceding thought as a block without text.
    fn write_hidden(&mut self, out: &mut BytesMut) {
        let hidden = std::mem::take(&mut self.hidden);
        self.is_hidden_cut = false;
        if hidden.is_empty() {
            return;
        }
        self.signature_block(out, &hidden_thought(&hidden));
    }

    fn stop_block(&mut self, out: &mut BytesMut) {
        begin(out, "content_block_stop");
        out.put_slice(format!(",\"index\":{}}}\n\n", self.index).as_bytes());
        self.index += 1;
    }

    fn text(&mut self, out: &mut BytesMut, text: &str) {
        if !text.is_empty() {
            self.open_block(out, TextBlock::Text);
            self.delta(out, "text_delta", "text", text);
        }
    }

    fn call(&mut self, out: &mut BytesMut, call: &PendingCall, finish: FinishReason) {
        let Some(input) = input(&call.args, finish) else { return };
        self.close_block(out);
        self.start(out);
        let (id, signature) = (self.ids.plain(&call.id), call.signature.as_ref());
        let block = signature::call_signature_block(&id, signature).filter(|_| self.carry_thinking);
        if let Some(block) = &block {
            self.signature_block(out, block);
        }
        begin(out, "content_block_start");
        out.put_slice(format!(",\"index\":{},\"content_block\":{{\"type\":\"tool_use\",\"id\":", self.index).as_bytes());
        let in_id = signature.filter(|_| self.id_signatures && block.is_none());
        write_string(out, &signature::signed_id(&id, in_id));
        out.put_slice(b",\"name\":");
        write_string(out, &call.name);
        out.put_slice(b",\"input\":{}}}\n\n");
        self.delta(out, "input_json_delta", "partial_json", &input);
        self.stop_block(out);
    }

    fn end(&mut self, out: &mut BytesMut) {
        let mut stop = std::mem::take(&mut self.stop);
        for call in std::mem::take(&mut self.calls) {
            self.call(out, &call, stop.finish());
        }
        if !self.refusal.is_empty() {
            stop = Stop::refused(std::mem::take(&mut self.refusal));
        }
        self.start(out);
        self.close_block(out);
        begin(out, "message_delta");
        out.put_slice(b",\"delta\":{");
        write_stop(out, &stop, self.from);
        out.put_slice(b"},\"usage\":");
        write_usage(out, self.usage.as_ref());
        out.put_slice(b"}\n\n");
        begin(out, "message_stop");
        out.put_slice(b"}\n\n");
    }
}

/// Writes the event name and the data up to `type`.
fn begin(out: &mut BytesMut, kind: &str) {
    out.put_slice(format!("event: {kind}\ndata: {{\"type\":\"{kind}\"").as_bytes());
}

impl StreamEncoder for MessagesStreamEncoder {
    fn push(&mut self, event: Event, out: &mut BytesMut) {
        match event {
            Event::Text { candidate, text, .. } if self.is_encoded(candidate) => self.text(out, &text),
            Event::Think { candidate, text, signature, .. } if self.is_encoded(candidate) => {
                self.thought(out, &text, signature.as_ref());
            }
            Event::Refusal { candidate, text } if self.is_encoded(candidate) => {
                let remaining = REFUSAL_LIMIT.saturating_sub(self.refusal.len());
                self.refusal.push_str(&text[..text.floor_char_boundary(remaining)]);
            }
            Event::CallOpen { candidate, call, id, name, signature, .. } if self.is_encoded(candidate) => {
                // The call is sent once it is complete, which may take minutes. The message begins immediately, so that the caller gets
                // its headers and pings meanwhile.
                self.start(out);
                self.calls.push(PendingCall { call, id, name, args: String::new(), signature });
            }
            Event::CallArgs { candidate, call, fragment } if self.is_encoded(candidate) => {
                if let Some(pending) = self.calls.iter_mut().rfind(|pending| pending.call == call) {
                    pending.args.push_str(&fragment);
                }
            }
            Event::CallDone { candidate, call } if self.is_encoded(candidate) => {
                // Arguments that are not an object may be truncated by the token limit: wait for the finish reason.
                let complete =
                    |pending: &PendingCall| pending.call == call && crate::json_text::arguments_object(&pending.args).is_some();
                if self.calls.first().is_some_and(complete) {
                    let call = self.calls.remove(0);
                    self.call(out, &call, FinishReason::Tool);
                }
            }
            Event::Finish { candidate, finish, native, message } if self.is_encoded(candidate) => {
                self.stop = Stop { finish: Some(finish), native, explanation: message };
            }
            Event::BlockedPrompt(blocked) => self.stop = Stop::refused(blocked.sentence()),
            Event::Usage(usage) => self.usage = Some(usage),
            Event::End => self.end(out),
            // Other candidates, and content that the protocol cannot represent.
            Event::Text { .. }
            | Event::Searches(_)
            | Event::Unknown { .. }
            | Event::Think { .. }
            | Event::Refusal { .. }
            | Event::CallOpen { .. }
            | Event::CallArgs { .. }
            | Event::CallDone { .. }
            | Event::Finish { .. }
            | Event::Media { .. }
            | Event::Logprobs { .. }
            | Event::Citations { .. } => {}
        }
    }

    fn open(&mut self, out: &mut BytesMut) {
        self.start(out);
    }

    fn held_bytes(&self) -> usize {
        let calls = self.calls.iter().map(|call| call.id.capacity() + call.name.capacity() + call.args.capacity());
        self.hidden.capacity() + calls.sum::<usize>()
    }

    fn unwritten_output_bytes(&self) -> usize {
        self.calls.iter().map(|call| call.args.len()).sum()
    }

    fn problem(&mut self, body: &[u8], out: &mut BytesMut) {
        out.put_slice(b"event: error\ndata: ");
        out.put_slice(body);
        out.put_slice(b"\n\n");
    }

    fn keep_alive(&self) -> &'static [u8] {
        b"event: ping\ndata: {\"type\":\"ping\"}\n\n"
    }
}
