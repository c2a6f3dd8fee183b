//! Answers of the native protocol.

use bytes::Bytes;

use super::{Gemini, decode_reply, stream_decoder::Decoder, vectors};
use crate::{
    BadReply, Protocol,
    neutral::{Answers, Event, Reply, ReplyContext, StreamDecoder, StreamEncoder, Vectors},
};

impl Answers for Gemini {
    fn decode_reply(&self, body: &[u8], out: &mut Vec<Event>) -> Result<(), BadReply> {
        decode_reply::decode(body, out)
    }

    fn encode_reply(&self, reply: &Reply, _from: Protocol, context: &ReplyContext) -> Bytes {
        super::encode_reply::encode(reply, context)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(Decoder::default())
    }

    fn stream_encoder(&self, _from: Protocol, context: &ReplyContext) -> Box<dyn StreamEncoder> {
        Box::new(super::stream_encoder::Encoder::new(context))
    }

    fn decode_vectors(&self, body: &[u8]) -> Result<Vectors, BadReply> {
        vectors::decode(body)
    }

    fn encode_vectors(&self, vectors: &Vectors, context: &ReplyContext) -> Bytes {
        vectors::encode(vectors, context)
    }

    fn decode_count(&self, body: &[u8]) -> Result<u64, BadReply> {
        vectors::decode_count(body)
    }

    fn encode_count(&self, tokens: u64) -> Bytes {
        vectors::encode_count(tokens)
    }
}
