//! Anthropic Messages (`/v1/messages`, API version 2023-06-01 unless the caller names another).

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
pub(crate) mod samples;
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
    neutral::{self, Event, Reply, ReplyCodec, ReplyContext, StreamDecoder, StreamEncoder},
};

/// The wire format [`Protocol::Anthropic`].
#[derive(Debug)]
pub(crate) struct Anthropic;

impl Codec for Anthropic {
    fn summarise(&self, target: &Target, body: &[u8]) -> Result<RequestSummary, Malformed> {
        summary::summarise(target, body)
    }

    fn forward_request(&self, body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> Bytes {
        splice::forward(body, summary, edits).0
    }

    fn forward(&self, body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> (Bytes, Vec<String>) {
        let (body, left) = splice::forward(body, summary, edits);
        (body, left.map(str::to_owned).into_iter().collect())
    }

    fn left_out(&self, body: &[u8], summary: &RequestSummary) -> Vec<String> {
        splice::left_out(body, summary).map(str::to_owned).into_iter().collect()
    }

    fn upstream_path(&self, method: Method, _upstream_model: &str, _framing: Framing) -> String {
        match method {
            Method::CountTokens => "/messages/count_tokens",
            // The protocol has neither embeddings nor compaction; routing excludes them.
            Method::Chat
            | Method::Generate
            | Method::StreamGenerate
            | Method::Embeddings
            | Method::EmbedContent
            | Method::BatchEmbedContents
            | Method::Compact => "/messages",
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
        neutral::read_input_tokens(body)
    }

    fn encode_count(&self, tokens: u64) -> Bytes {
        Bytes::from(format!("{{\"input_tokens\":{tokens}}}"))
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
}
