//! Encodes a complete Gemini reply.

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    parts::PartBuffer,
    reply_fields::{
        CandidateEnd, Mean, identity, write_content, write_ending, write_feedback, write_grounding, write_logprobs, write_usage,
    },
};
use crate::{
    json_text::write_separator,
    neutral::{Candidate, PartKind, Reply, ReplyContext},
};

pub(super) fn encode(reply: &Reply, context: &ReplyContext) -> Bytes {
    let mut out = BytesMut::with_capacity(512);
    out.put_u8(b'{');
    if let Some(blocked) = &reply.blocked {
        write_feedback(&mut out, &blocked.reason);
    } else {
        out.put_slice(b"\"candidates\":[");
        for (at, candidate) in reply.candidates.iter().enumerate() {
            write_separator(&mut out, at);
            self::candidate(&mut out, candidate, context);
        }
        out.put_u8(b']');
    }
    out.put_u8(b',');
    if let Some(usage) = &reply.usage {
        write_usage(&mut out, usage);
        out.put_u8(b',');
    }
    out.put_slice(&identity(&context.model, &context.response_id));
    out.freeze()
}

fn candidate(out: &mut BytesMut, candidate: &Candidate, context: &ReplyContext) {
    let mut parts = PartBuffer::new(context);
    for part in &candidate.parts {
        match &part.kind {
            PartKind::Text(text) => parts.text(text),
            PartKind::Think { text, redacted } => {
                parts.think(text, redacted.as_deref(), part.signature.as_ref());
            }
            PartKind::Call { id, name, args, .. } => parts.call(id, name, args),
            PartKind::Media(media) => parts.media(media),
            PartKind::Result { .. } | PartKind::Code { .. } | PartKind::CodeOutput { .. } | PartKind::Opaque { .. } => {}
        }
    }
    if let Some(refusal) = &candidate.refusal {
        parts.text(refusal);
    }
    parts.end();
    out.put_u8(b'{');
    write_content(out, &parts.take());
    let ending = CandidateEnd {
        finish: candidate.finish(),
        malformed: parts.malformed,
        refusal: candidate.refusal.as_deref(),
        message: candidate.message.as_deref(),
    };
    write_ending(out, &ending);
    out.put_slice(format!(",\"index\":{}", candidate.index).as_bytes());
    let tokens = candidate.logprobs.as_deref().unwrap_or_default();
    let mut mean = Mean::default();
    mean.add(tokens);
    write_logprobs(out, tokens);
    mean.write(out);
    write_grounding(out, &candidate.citations);
    out.put_u8(b'}');
}
