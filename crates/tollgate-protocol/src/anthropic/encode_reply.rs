//! Encodes a complete message.

use bytes::{BufMut, Bytes, BytesMut};

use super::reply_fields::{Stop, foreign_signature, input, write_stop, write_usage};
use crate::{
    FinishReason, Protocol,
    json_text::{write_json, write_string},
    neutral::{
        Candidate, Part, PartKind, Reply, ReplyContext, Signature,
        names::PlainIds,
        signature::{self, SealedItem, ThoughtMember, signature_item},
    },
    opaque_state::hidden_thought,
};

/// Encodes the first candidate; the protocol has only one.
pub(super) fn encode(reply: &Reply, from: Protocol, context: &ReplyContext) -> Bytes {
    let mut out = BytesMut::with_capacity(512);
    out.put_slice(b"{\"id\":");
    write_string(&mut out, &format!("msg_{}", context.request_id));
    out.put_slice(b",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    write_string(&mut out, &context.model);
    out.put_slice(b",\"content\":[");
    let mut stop = Stop::default();
    if let Some(candidate) = reply.candidates.first() {
        content(&mut out, candidate, from, context);
        stop = if let Some(refusal) = &candidate.refusal {
            Stop::refused(refusal.clone())
        } else {
            Stop { finish: candidate.finish, native: candidate.native.clone(), explanation: candidate.message.clone() }
        };
    } else if let Some(blocked) = &reply.blocked {
        stop = Stop::refused(blocked.sentence());
    }
    out.put_slice(b"],");
    write_stop(&mut out, &stop, from);
    out.put_slice(b",\"usage\":");
    write_usage(&mut out, reply.usage.as_ref());
    out.put_u8(b'}');
    out.freeze()
}

/// Writes content blocks: one per run of text or thinking, and one per call.
struct BlockWriter<'a> {
    ids: PlainIds,
    out: &'a mut BytesMut,
    written: bool,
    /// The open run: true for thinking, and its text.
    run: Option<(bool, String)>,
    signature: String,
    id_signatures: bool,
    carry_thinking: bool,
}

impl BlockWriter<'_> {
    fn run(&mut self, thinking: bool, text: &str) {
        if text.is_empty() {
            return;
        }
        match &mut self.run {
            Some((open, run)) if *open == thinking => run.push_str(text),
            _ => {
                self.close();
                self.run = Some((thinking, text.to_owned()));
            }
        }
    }

    fn close(&mut self) {
        let Some((thinking, text)) = self.run.take() else { return };
        if thinking {
            let signature = self.signature.clone();
            return self.thinking(&text, &signature);
        }
        self.next();
        self.out.put_slice(b"{\"type\":\"text\",\"text\":");
        write_string(self.out, &text);
        self.out.put_u8(b'}');
    }

    /// Ends the open thought with the seal of its upstream, or writes a block without a text.
    fn sealed(&mut self, signature: &Signature) {
        let text = self.run.take_if(|(thinking, _)| *thinking).map(|(_, text)| text);
        self.close();
        self.thinking(&text.unwrap_or_default(), &signature_item(signature));
    }

    fn thinking(&mut self, text: &str, signature: &str) {
        self.next();
        self.out.put_slice(b"{\"type\":\"thinking\",\"thinking\":");
        write_string(self.out, text);
        self.out.put_slice(b",\"signature\":");
        write_string(self.out, signature);
        self.out.put_u8(b'}');
    }

    fn next(&mut self) {
        if std::mem::replace(&mut self.written, true) {
            self.out.put_u8(b',');
        }
    }

    fn call(&mut self, part: &Part, finish: FinishReason) {
        let PartKind::Call { id, name, args, .. } = &part.kind else { return };
        let Some(input) = input(args, finish) else { return };
        self.close();
        let (id, signature) = (self.ids.plain(id), part.signature.as_ref());
        let block = signature::call_signature_block(&id, signature).filter(|_| self.carry_thinking);
        if let Some(block) = &block {
            self.thinking("", block);
        }
        self.next();
        self.out.put_slice(b"{\"type\":\"tool_use\",\"id\":");
        let in_id = signature.filter(|_| self.id_signatures && block.is_none());
        write_string(self.out, &signature::signed_id(&id, in_id));
        self.out.put_slice(b",\"name\":");
        write_string(self.out, name);
        self.out.put_slice(b",\"input\":");
        write_json(self.out, &input);
        self.out.put_u8(b'}');
    }
}

fn content(out: &mut BytesMut, candidate: &Candidate, from: Protocol, context: &ReplyContext) {
    let mut blocks = BlockWriter {
        ids: PlainIds::default(),
        out,
        written: false,
        run: None,
        signature: foreign_signature(from),
        id_signatures: context.id_signatures,
        carry_thinking: context.carry_thinking,
    };
    for part in &candidate.parts {
        match &part.kind {
            PartKind::Text(text) => blocks.run(false, text),
            PartKind::Think { text, .. } => {
                let member = ThoughtMember::of(part.signature.as_ref());
                if let Some(member) = member {
                    member.mark().clone_into(&mut blocks.signature);
                }
                // Thoughts from `reasoning` are not sent back, so hidden ones need not be carried.
                let goes_back = from == Protocol::OpenAi && member != Some(ThoughtMember::Reasoning);
                if context.include_thoughts {
                    blocks.run(true, text);
                } else if context.carry_thinking && goes_back && !text.is_empty() {
                    blocks.close();
                    blocks.thinking("", &hidden_thought(text));
                }
                if let Some(signature) = part.signature.as_ref().filter(|signature| SealedItem::of(Some(signature)).is_some())
                    && context.carry_thinking
                {
                    blocks.sealed(signature);
                }
            }
            PartKind::Call { .. } => blocks.call(part, candidate.finish()),
            // The protocol has no media in answers.
            PartKind::Media(_)
            | PartKind::Result { .. }
            | PartKind::Code { .. }
            | PartKind::CodeOutput { .. }
            | PartKind::Opaque { .. } => {}
        }
    }
    blocks.close();
}
