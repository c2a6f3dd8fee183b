//! Native content generation (`/v1beta`).

mod answer;
mod answers;
mod decode_reply;
pub(crate) mod decode_request;
mod encode_reply;
pub(crate) mod encode_request;
mod events;
mod finish;
mod members;
mod outline;
mod partial_calls;
mod parts;
mod path;
mod problem;
mod relay;
mod reply;
mod sources;
mod splice;
mod stream_decoder;
mod stream_encoder;
pub(crate) mod usage;
mod vectors;
mod wire;

use bytes::Bytes;

use crate::{
    BadReply, Codec, Framing, Malformed, Method, Outline, PassedReply, Problem, Protocol, ReplyEdits, RequestEdits, StreamRelay,
    Target, UpstreamProblem,
};

/// The wire format [`Protocol::Gemini`].
#[derive(Debug)]
pub(crate) struct Gemini;

impl Codec for Gemini {
    fn protocol(&self) -> Protocol {
        Protocol::Gemini
    }

    fn outline(&self, target: &Target, body: &[u8]) -> Result<Outline, Malformed> {
        outline::outline(target, body)
    }

    fn forward_request(&self, body: &Bytes, outline: &Outline, edits: &RequestEdits<'_>) -> Bytes {
        splice::forward_request(body, outline, edits)
    }

    fn upstream_path(&self, method: Method, upstream_model: &str, framing: Framing) -> String {
        path::upstream_path(method, upstream_model, framing)
    }

    fn read_reply(&self, method: Method, body: &Bytes, edits: &ReplyEdits) -> Result<PassedReply, BadReply> {
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
