//! Anthropic Messages (API version 2023-06-01).
//!
//! Only upstreams speak this protocol today. The caller half (`decode_request`, `encode_reply`, `stream_encoder`) has no
//! route yet: it is complete and tested because a Messages endpoint for callers is planned. Until then `summarise`
//! refuses every body.

mod decode_reply;
pub(crate) mod decode_request;
mod encode_reply;
pub(crate) mod encode_request;
mod finish;
mod problem;
mod relay;
mod reply;
mod reply_fields;
mod reply_scan;
mod splice;
mod stream_decoder;
mod stream_encoder;
pub(crate) mod usage;
mod wire;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    CheckedReply, Codec, Framing, InvalidReply, Malformed, MalformedKind, Method, Problem, Protocol, ReplyEdits, RequestEdits,
    RequestSummary, StreamRelay, Target, UpstreamProblem,
    lenient::LenientCount,
    neutral::{Event, Reply, ReplyCodec, ReplyContext, StreamDecoder, StreamEncoder},
};

/// The smallest body: one user message, and `max_tokens`, which is required.
pub(crate) fn minimal_body(model: &str, text: &str) -> Value {
    json!({"model": model, "max_tokens": 16, "messages": [{"role": "user", "content": text}]})
}

/// The wire format [`Protocol::Anthropic`].
#[derive(Debug)]
pub(crate) struct Anthropic;

impl Codec for Anthropic {
    /// There is no caller route for this protocol yet, so every body is refused.
    fn summarise(&self, _target: &Target, _body: &[u8]) -> Result<RequestSummary, Malformed> {
        let message = "The protocol 'anthropic' is not offered to callers.".to_owned();
        Err(Malformed { kind: MalformedKind::InvalidValue, message, violations: Vec::new() })
    }

    fn forward_request(&self, body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> Bytes {
        splice::forward_request(body, summary, edits)
    }

    fn upstream_path(&self, method: Method, _upstream_model: &str, _framing: Framing) -> String {
        match method {
            Method::CountTokens => "/messages/count_tokens",
            // The protocol has no embeddings; routing excludes them.
            Method::Chat
            | Method::Generate
            | Method::StreamGenerate
            | Method::Embeddings
            | Method::EmbedContent
            | Method::BatchEmbedContents => "/messages",
        }
        .to_owned()
    }

    fn read_reply(&self, method: Method, body: &Bytes, edits: &ReplyEdits) -> Result<CheckedReply, InvalidReply> {
        reply::read_reply(method, body, edits)
    }

    fn relay(&self, framing: Framing, edits: &ReplyEdits) -> Box<dyn StreamRelay> {
        relay::relay(framing, edits)
    }

    fn decode_problem(&self, status: u16, body: &[u8]) -> UpstreamProblem {
        problem::decode(status, body)
    }

    fn encode_problem(&self, problem: &Problem) -> Bytes {
        problem::encode(problem)
    }
}

impl ReplyCodec for Anthropic {
    fn decode_reply(&self, body: &[u8], out: &mut Vec<Event>) -> Result<(), InvalidReply> {
        decode_reply::decode(body, out)
    }

    fn encode_reply(&self, reply: &Reply, from: Protocol, context: &ReplyContext) -> Bytes {
        encode_reply::encode(reply, from, context)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(stream_decoder::MessagesStreamDecoder::default())
    }

    fn stream_encoder(&self, from: Protocol, context: &ReplyContext) -> Box<dyn StreamEncoder> {
        Box::new(stream_encoder::MessagesStreamEncoder::new(from, context))
    }

    fn decode_count(&self, body: &[u8]) -> Result<u64, InvalidReply> {
        #[derive(serde::Deserialize)]
        struct Counted {
            #[serde(default)]
            input_tokens: LenientCount,
        }
        let counted: Counted = serde_json::from_slice(body).map_err(|_| InvalidReply::Unreadable("not a token count"))?;
        counted.input_tokens.given().ok_or(InvalidReply::Unreadable("not a token count"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_depends_on_the_method_alone() {
        assert_eq!(Anthropic.upstream_path(Method::Generate, "m", Framing::Sse), "/messages");
        assert_eq!(Anthropic.upstream_path(Method::CountTokens, "m", Framing::Sse), "/messages/count_tokens");
    }

    #[test]
    fn every_body_is_refused() {
        let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
        let refusal = Anthropic.summarise(&target, b"{}").expect_err("not offered");
        assert!(refusal.message.contains("not offered to callers"));
    }
}
