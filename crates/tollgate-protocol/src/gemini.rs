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
mod reply_codec;
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
};

/// The wire format [`Protocol::Gemini`].
#[derive(Debug)]
pub(crate) struct Gemini;

impl Codec for Gemini {
    fn protocol(&self) -> Protocol {
        Protocol::Gemini
    }

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
