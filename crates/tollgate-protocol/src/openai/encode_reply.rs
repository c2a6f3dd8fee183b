//! Encodes a complete chat completion.

use bytes::{BufMut, Bytes, BytesMut};

use super::reply_fields::{
    arguments, blocked_native, image_url, sealed_thought, write_annotations, write_extra_content, write_finish, write_logprobs,
    write_usage,
};
use crate::{
    FinishReason,
    json_text::{write_separator, write_string},
    neutral::{
        Candidate, Part, PartKind, Reply, ReplyContext, Signature, TextMap, filtered_sentence,
        signature::{self, SealedItem},
    },
};

pub(super) fn encode(reply: &Reply, context: &ReplyContext) -> Bytes {
    let mut out = BytesMut::with_capacity(512);
    out.put_slice(b"{\"id\":");
    write_string(&mut out, &format!("chatcmpl-{}", context.request_id));
    out.put_slice(format!(",\"object\":\"chat.completion\",\"created\":{},\"model\":", context.now).as_bytes());
    write_string(&mut out, &context.model);
    out.put_slice(b",\"choices\":[");
    if let Some(blocked) = &reply.blocked {
        out.put_slice(b"{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":null,\"refusal\":");
        write_string(&mut out, &blocked.sentence());
        out.put_slice(b"},\"logprobs\":null,");
        write_finish(&mut out, FinishReason::Filter, Some(&blocked_native(blocked)), false);
        out.put_u8(b'}');
    }
    for (at, candidate) in reply.candidates.iter().enumerate() {
        write_separator(&mut out, at);
        choice(&mut out, candidate, context);
    }
    out.put_u8(b']');
    if let Some(usage) = &reply.usage {
        out.put_slice(b",\"usage\":");
        write_usage(&mut out, usage);
    }
    out.put_u8(b'}');
    out.freeze()
}

/// Message members collected from the parts of a candidate.
#[derive(Default)]
struct Message<'a> {
    text: String,
    reasoning: String,
    /// Each call, with the sealed thoughts before it.
    calls: Vec<(&'a Part, Vec<Bytes>)>,
    images: Vec<String>,
    signature: Option<&'a Signature>,
}

impl<'a> Message<'a> {
    fn of(parts: &'a [Part]) -> Self {
        let mut message = Self::default();
        let mut thoughts = Vec::new();
        for part in parts {
            match &part.kind {
                PartKind::Text(text) => {
                    message.text.push_str(text);
                    message.signature = part.signature.as_ref().or(message.signature);
                }
                PartKind::Think { text, .. } => {
                    message.reasoning.push_str(text);
                    thoughts.extend(SealedItem::of(part.signature.as_ref()).map(|sealed| sealed_thought(sealed, text)));
                }
                PartKind::Call { .. } => message.calls.push((part, std::mem::take(&mut thoughts))),
                PartKind::Media(media) => message.images.extend(image_url(media)),
                PartKind::Result { .. } | PartKind::Code { .. } | PartKind::CodeOutput { .. } | PartKind::Opaque { .. } => {}
            }
        }
        message
    }
}

fn choice(out: &mut BytesMut, candidate: &Candidate, context: &ReplyContext) {
    let message = Message::of(&candidate.parts);
    let finish = candidate.finish();
    let silent = message.text.is_empty() && message.calls.is_empty() && message.images.is_empty();
    let native = candidate.native.as_deref();
    let refusal = candidate
        .refusal
        .clone()
        .or_else(|| (silent && finish == FinishReason::Filter).then(|| filtered_sentence(candidate.message.as_deref(), native)));
    out.put_slice(format!("{{\"index\":{},\"message\":{{\"role\":\"assistant\",\"content\":", candidate.index).as_bytes());
    if message.text.is_empty() && (!silent || refusal.is_some()) {
        out.put_slice(b"null");
    } else {
        write_string(out, &message.text);
    }
    out.put_slice(b",\"refusal\":");
    match &refusal {
        Some(refusal) => write_string(out, refusal),
        None => out.put_slice(b"null"),
    }
    if !message.reasoning.is_empty() {
        out.put_slice(b",\"reasoning_content\":");
        write_string(out, &message.reasoning);
    }
    calls(out, &message.calls, context);
    for (at, url) in message.images.iter().enumerate() {
        out.put_slice(if at == 0 { b",\"images\":[" } else { b"," });
        out.put_slice(b"{\"type\":\"image_url\",\"image_url\":{\"url\":");
        write_string(out, url);
        out.put_slice(b"}}");
    }
    if !message.images.is_empty() {
        out.put_u8(b']');
    }
    if !candidate.citations.is_empty() {
        let mut map = TextMap::default();
        map.push(&message.text);
        write_annotations(out, &candidate.citations, &map);
    }
    if signature::google(message.signature).is_some() {
        write_extra_content(out, message.signature, &[]);
    }
    out.put_slice(b"},\"logprobs\":");
    write_logprobs(out, candidate.logprobs.as_deref().unwrap_or_default());
    out.put_u8(b',');
    write_finish(out, finish, native, context.legacy_calls);
    out.put_u8(b'}');
}

fn calls(out: &mut BytesMut, calls: &[(&Part, Vec<Bytes>)], context: &ReplyContext) {
    if context.legacy_calls {
        if let Some(PartKind::Call { name, args, .. }) = calls.first().map(|(part, _)| &part.kind) {
            out.put_slice(b",\"function_call\":{\"name\":");
            write_string(out, name);
            out.put_slice(b",\"arguments\":");
            write_string(out, arguments(args));
            out.put_u8(b'}');
        }
        return;
    }
    for (at, (part, thoughts)) in calls.iter().enumerate() {
        let PartKind::Call { id, name, args, custom } = &part.kind else { continue };
        out.put_slice(if at == 0 { b",\"tool_calls\":[" } else { b"," });
        out.put_slice(b"{\"id\":");
        write_string(out, &signature::signed_id(id, part.signature.as_ref().filter(|_| context.id_signatures)));
        if *custom {
            out.put_slice(b",\"type\":\"custom\",\"custom\":{\"name\":");
            write_string(out, name);
            out.put_slice(b",\"input\":");
            write_string(out, args);
            out.put_u8(b'}');
        } else {
            out.put_slice(b",\"type\":\"function\",\"function\":{\"name\":");
            write_string(out, name);
            out.put_slice(b",\"arguments\":");
            write_string(out, arguments(args));
            out.put_u8(b'}');
        }
        write_extra_content(out, part.signature.as_ref().filter(|_| !custom), thoughts);
        out.put_u8(b'}');
    }
    if !calls.is_empty() {
        out.put_u8(b']');
    }
}
