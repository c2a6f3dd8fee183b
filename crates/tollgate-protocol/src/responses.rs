//! OpenAI Responses (`/v1/responses`). The gateway keeps no responses: a caller sends the whole conversation, in which reasoning items
//! carry sealed content from upstreams of any protocol.

mod carrier;
mod decode_reply;
pub(crate) mod decode_request;
mod encode_reply;
pub(crate) mod encode_request;
mod finish;
mod output;
mod problem;
mod relay;
mod reply;
mod reply_scan;
pub(crate) mod samples;
mod splice;
mod stream_decoder;
mod stream_encoder;
mod summary;
pub(crate) mod usage;
mod wire;

use bytes::{Bytes, BytesMut};

use crate::{
    CheckedReply, Codec, Framing, InvalidReply, Malformed, Method, Problem, Protocol, ReplyEdits, RequestEdits, RequestSummary,
    StreamRelay, Target, UpstreamProblem,
    neutral::{self, Event, Media, MediaSource, Reply, ReplyCodec, ReplyContext, StreamDecoder, StreamEncoder},
    openai::encode_problem,
};

/// The wire format [`Protocol::Responses`].
#[derive(Debug)]
pub(crate) struct Responses;

impl Codec for Responses {
    fn summarise(&self, target: &Target, body: &[u8]) -> Result<RequestSummary, Malformed> {
        summary::summarise(target, body)
    }

    fn forward_request(&self, body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> Bytes {
        splice::forward(body, summary, edits).0
    }

    fn left_out(&self, body: &[u8], summary: &RequestSummary) -> Vec<String> {
        splice::left_out(body, summary)
    }

    fn forward(&self, body: &Bytes, summary: &RequestSummary, edits: &RequestEdits<'_>) -> (Bytes, Vec<String>) {
        splice::forward(body, summary, edits)
    }

    fn upstream_path(&self, method: Method, _upstream_model: &str, _framing: Framing) -> String {
        match method {
            Method::CountTokens => "/responses/input_tokens",
            Method::Compact => "/responses/compact",
            // The protocol has no embeddings; routing excludes them.
            Method::Chat
            | Method::Generate
            | Method::StreamGenerate
            | Method::Embeddings
            | Method::EmbedContent
            | Method::BatchEmbedContents => "/responses",
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
        encode_problem(problem)
    }

    fn context_exceeded_stream(&self, problem: &Problem, model: &str, now: i64) -> Option<Bytes> {
        let request_id = problem.request_id.strip_prefix("req_").unwrap_or(&problem.request_id);
        let context = ReplyContext::new(request_id, now, model);
        let mut encoder = stream_encoder::ResponsesStreamEncoder::new(Protocol::Responses, &context);
        let mut out = BytesMut::new();
        encoder.problem(&encode_problem(problem), &mut out);
        Some(out.freeze())
    }
}

impl ReplyCodec for Responses {
    fn decode_reply(&self, body: &[u8], out: &mut Vec<Event>) -> Result<(), InvalidReply> {
        decode_reply::decode(body, out)
    }

    fn encode_reply(&self, reply: &Reply, from: Protocol, context: &ReplyContext) -> Bytes {
        encode_reply::encode(reply, from, context)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(stream_decoder::ResponsesStreamDecoder::default())
    }

    fn stream_encoder(&self, from: Protocol, context: &ReplyContext) -> Box<dyn StreamEncoder> {
        Box::new(stream_encoder::ResponsesStreamEncoder::new(from, context))
    }

    fn decode_count(&self, body: &[u8]) -> Result<u64, InvalidReply> {
        neutral::read_input_tokens(body)
    }

    fn encode_count(&self, tokens: u64) -> Bytes {
        Bytes::from(format!("{{\"object\":\"response.input_tokens\",\"input_tokens\":{tokens}}}"))
    }
}

/// Whether an answer can hold these media: images as base64.
pub(crate) fn carries(media: &Media) -> bool {
    matches!(media.source, MediaSource::Inline(_)) && media.mime.starts_with("image/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_depends_on_the_method_alone() {
        assert_eq!(Responses.upstream_path(Method::Generate, "m", Framing::Sse), "/responses");
        assert_eq!(Responses.upstream_path(Method::CountTokens, "m", Framing::Sse), "/responses/input_tokens");
        assert_eq!(Responses.upstream_path(Method::Compact, "m", Framing::Sse), "/responses/compact");
    }

    #[test]
    fn token_count_round_trips() {
        assert_eq!(Responses.decode_count(&Responses.encode_count(12)), Ok(12));
        assert!(Responses.decode_count(b"{}").is_err());
    }
}
