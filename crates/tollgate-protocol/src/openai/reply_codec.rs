//! Chat completions replies to and from the neutral form.

use bytes::Bytes;

use super::{OpenAi, decode_reply, embeddings, encode_reply, stream_decoder::ChatStreamDecoder, stream_encoder::ChatStreamEncoder};
use crate::{
    InvalidReply, Protocol,
    neutral::{Embeddings, Event, Reply, ReplyCodec, ReplyContext, StreamDecoder, StreamEncoder},
};

impl ReplyCodec for OpenAi {
    fn decode_reply(&self, body: &[u8], out: &mut Vec<Event>) -> Result<(), InvalidReply> {
        decode_reply::decode(body, out)
    }

    fn encode_reply(&self, reply: &Reply, _from: Protocol, context: &ReplyContext) -> Bytes {
        encode_reply::encode(reply, context)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(ChatStreamDecoder::default())
    }

    fn stream_encoder(&self, _from: Protocol, context: &ReplyContext) -> Box<dyn StreamEncoder> {
        Box::new(ChatStreamEncoder::new(context))
    }

    fn decode_embeddings(&self, body: &[u8]) -> Result<Embeddings, InvalidReply> {
        embeddings::decode(body)
    }

    fn encode_embeddings(&self, vectors: &Embeddings, context: &ReplyContext) -> Bytes {
        embeddings::encode(vectors, context)
    }
}
