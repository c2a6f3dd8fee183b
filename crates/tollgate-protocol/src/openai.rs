//! OpenAI chat completions and embeddings (`/v1`).

mod decode_reply;
pub(crate) mod decode_request;
mod embeddings;
mod encode_reply;
pub(crate) mod encode_request;
mod events;
mod finish;
mod problem;
mod relay;
mod reply;
mod reply_fields;
mod reply_scan;
pub(crate) mod samples;
mod splice;
mod stream_decoder;
mod stream_encoder;
mod summary;
pub(crate) mod usage;
mod wire;

pub(crate) use self::{
    events::{custom_arguments, read_tokens},
    problem::{decode as decode_problem, encode as encode_problem},
    reply_fields::{carries, write_token_entries, write_tokens},
};

use bytes::Bytes;

use crate::{
    CheckedReply, Codec, Framing, InvalidReply, Malformed, Method, Problem, Protocol, ReplyEdits, RequestEdits, RequestSummary,
    StreamRelay, Target, UpstreamProblem,
    neutral::{Embeddings, Event, Reply, ReplyCodec, ReplyContext, StreamDecoder, StreamEncoder},
};

/// The wire format [`Protocol::OpenAi`].
#[derive(Debug)]
pub(crate) struct OpenAi;

impl Codec for OpenAi {
    fn summarise(&self, target: &Target, body: &[u8]) -> Result<RequestSummary, Malformed> {
        summary::summarise(target, body)
    }

    fn forward_request(&self, body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> Bytes {
        splice::forward_request(body, summary, edits)
    }

    fn upstream_path(&self, method: Method, _upstream_model: &str, _framing: Framing) -> String {
        match method {
            Method::Embeddings | Method::EmbedContent | Method::BatchEmbedContents => "/embeddings",
            // The protocol has neither a token counter, whose counts the gateway estimates, nor compaction, which routing excludes.
            Method::Chat | Method::Generate | Method::StreamGenerate | Method::CountTokens | Method::Compact => "/chat/completions",
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

impl ReplyCodec for OpenAi {
    fn decode_reply(&self, body: &[u8], out: &mut Vec<Event>) -> Result<(), InvalidReply> {
        decode_reply::decode(body, out)
    }

    fn encode_reply(&self, reply: &Reply, _from: Protocol, context: &ReplyContext) -> Bytes {
        encode_reply::encode(reply, context)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(stream_decoder::ChatStreamDecoder::default())
    }

    fn stream_encoder(&self, from: Protocol, context: &ReplyContext) -> Box<dyn StreamEncoder> {
        Box::new(stream_encoder::ChatStreamEncoder::new(from, context))
    }

    fn decode_embeddings(&self, body: &[u8]) -> Result<Embeddings, InvalidReply> {
        embeddings::decode(body)
    }

    fn encode_embeddings(&self, vectors: &Embeddings, context: &ReplyContext) -> Bytes {
        embeddings::encode(vectors, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_depends_on_the_method_only() {
        assert_eq!(OpenAi.upstream_path(Method::Chat, "m", Framing::Sse), "/chat/completions");
        assert_eq!(OpenAi.upstream_path(Method::StreamGenerate, "m", Framing::JsonArray), "/chat/completions");
        assert_eq!(OpenAi.upstream_path(Method::Embeddings, "m", Framing::Sse), "/embeddings");
    }
}
