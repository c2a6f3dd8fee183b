//! Gemini's native `generateContent` family (`/v1beta`).

mod decode_reply;
pub(crate) mod decode_request;
mod embeddings;
mod encode_reply;
pub(crate) mod encode_request;
mod events;
mod finish;
mod partial_calls;
mod parts;
mod path;
mod problem;
mod relay;
mod reply;
mod reply_fields;
mod reply_scan;
pub(crate) mod samples;
mod sources;
mod splice;
mod stream_decoder;
mod stream_encoder;
mod summary;
pub(crate) mod usage;
mod wire;

use bytes::Bytes;

use crate::{
    CheckedReply, Codec, Framing, InvalidReply, Malformed, Method, Problem, Protocol, ReplyEdits, RequestEdits, RequestSummary,
    StreamRelay, Target, UpstreamProblem,
    neutral::{Embeddings, Event, Reply, ReplyCodec, ReplyContext, StreamDecoder, StreamEncoder},
};

/// The wire format [`Protocol::Gemini`].
#[derive(Debug)]
pub(crate) struct Gemini;

impl Codec for Gemini {
    fn summarise(&self, target: &Target, body: &[u8]) -> Result<RequestSummary, Malformed> {
        summary::summarise(target, body)
    }

    fn forward_request(&self, body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> Bytes {
        splice::forward_request(body, summary, edits)
    }

    fn upstream_path(&self, method: Method, upstream_model: &str, framing: Framing) -> String {
        path::upstream_path(method, upstream_model, framing)
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

impl ReplyCodec for Gemini {
    fn decode_reply(&self, body: &[u8], out: &mut Vec<Event>) -> Result<(), InvalidReply> {
        decode_reply::decode(body, out)
    }

    fn encode_reply(&self, reply: &Reply, _from: Protocol, context: &ReplyContext) -> Bytes {
        encode_reply::encode(reply, context)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(stream_decoder::GeminiStreamDecoder::default())
    }

    fn stream_encoder(&self, _from: Protocol, context: &ReplyContext) -> Box<dyn StreamEncoder> {
        Box::new(stream_encoder::GeminiStreamEncoder::new(context))
    }

    fn decode_embeddings(&self, body: &[u8]) -> Result<Embeddings, InvalidReply> {
        embeddings::decode(body)
    }

    fn encode_embeddings(&self, vectors: &Embeddings, context: &ReplyContext) -> Bytes {
        embeddings::encode(vectors, context)
    }

    fn decode_count(&self, body: &[u8]) -> Result<u64, InvalidReply> {
        embeddings::decode_count(body)
    }

    fn encode_count(&self, tokens: u64) -> Bytes {
        embeddings::encode_count(tokens)
    }
}
