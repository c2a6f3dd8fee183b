//! Encodes a complete response. It equals the response in the last event of the stream of the same answer.

use bytes::{Bytes, BytesMut};

use super::stream_encoder::ResponsesStreamEncoder;
use crate::{
    Protocol,
    neutral::{Candidate, Event, PartKind, Reply, ReplyContext, StreamEncoder},
};

pub(super) fn encode(reply: &Reply, from: Protocol, context: &ReplyContext) -> Bytes {
    let mut encoder = ResponsesStreamEncoder::complete(from, context);
    let mut unwritten = BytesMut::new();
    let mut push = |event| encoder.push(event, &mut unwritten);
    if let Some(usage) = reply.usage {
        push(Event::Usage(usage));
    }
    match (&reply.blocked, reply.candidates.first()) {
        (Some(blocked), _) => push(Event::BlockedPrompt(blocked.clone())),
        (None, Some(candidate)) => events(candidate, push),
        (None, None) => {}
    }
    encoder.into_response()
}

fn events(candidate: &Candidate, mut push: impl FnMut(Event)) {
    let index = candidate.index;
    if let Some(tokens) = candidate.logprobs.clone() {
        push(Event::Logprobs { candidate: index, tokens });
    }
    if !candidate.citations.is_empty() {
        push(Event::Citations { candidate: index, citations: candidate.citations.clone() });
    }
    for (call, part) in (0..).zip(&candidate.parts) {
        let signature = part.signature.clone();
        match &part.kind {
            PartKind::Text(text) => push(Event::Text { candidate: index, text: text.clone(), signature }),
            PartKind::Think { text, redacted } => {
                push(Event::Think { candidate: index, text: text.clone(), redacted: redacted.clone(), signature });
            }
            PartKind::Media(media) => push(Event::Media { candidate: index, media: media.clone() }),
            PartKind::Call { id, name, args, custom } => {
                let (id, name, custom) = (id.clone(), name.clone(), *custom);
                push(Event::CallOpen { candidate: index, call, id, name, custom, signature });
                push(Event::CallArgs { candidate: index, call, fragment: args.clone() });
                push(Event::CallDone { candidate: index, call });
            }
            PartKind::Result { .. } | PartKind::Code { .. } | PartKind::CodeOutput { .. } | PartKind::Opaque { .. } => {}
        }
    }
    if let Some(text) = candidate.refusal.clone() {
        push(Event::Refusal { candidate: index, text });
    }
    let (finish, native, message) = (candidate.finish(), candidate.native.clone(), candidate.message.clone());
    push(Event::Finish { candidate: index, finish, native, message });
}
