//! Gemini replies to and from the neutral form.

use bytes::Bytes;

use super::{Gemini, decode_reply, embeddings, stream_decoder::GeminiStreamDecoder};
use crate::{
    InvalidReply, Protocol,
    neutral::{Embeddings, Event, Reply, ReplyCodec, ReplyContext, StreamDecoder, StreamEncoder},
};

impl ReplyCodec for Gemini {
    fn decode_reply(&self, body: &[u8], out: &mut Vec<Event>) -> Result<(), InvalidReply> {
        decode_reply::decode(body, out)
    }

    fn encode_reply(&self, reply: &Reply, _from: Protocol, context: &ReplyContext) -> Bytes {
        super::encode_reply::encode(reply, context)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(GeminiStreamDecoder::default())
    }

    fn stream_encoder(&self, _from: Protocol, context: &ReplyContext) -> Box<dyn StreamEncoder> {
        Box::new(super::stream_encoder::GeminiStreamEncoder::new(context))
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
