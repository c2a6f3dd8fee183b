//! Answers of chat completions.

use bytes::Bytes;

use super::{OpenAi, decode_reply, encode_reply, stream_decoder::Decoder, stream_encoder::Encoder, vectors};
use crate::{
    BadReply, Protocol,
    neutral::{Answers, Event, Reply, ReplyContext, StreamDecoder, StreamEncoder, Vectors},
};

impl Answers for OpenAi {
    fn decode_reply(&self, body: &[u8], out: &mut Vec<Event>) -> Result<(), BadReply> {
        decode_reply::decode(body, out)
    }

    fn encode_reply(&self, reply: &Reply, _from: Protocol, context: &ReplyContext) -> Bytes {
        encode_reply::encode(reply, context)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(Decoder::default())
    }

    fn stream_encoder(&self, _from: Protocol, context: &ReplyContext) -> Box<dyn StreamEncoder> {
        Box::new(Encoder::new(context))
    }

    fn decode_vectors(&self, body: &[u8]) -> Result<Vectors, BadReply> {
        vectors::decode(body)
    }

    fn encode_vectors(&self, vectors: &Vectors, context: &ReplyContext) -> Bytes {
        vectors::encode(vectors, context)
    }
}
