//! [`ReplyCodec`] for Messages.

use bytes::Bytes;

use super::{Anthropic, decode_reply, encode_reply, stream_decoder::MessagesStreamDecoder, stream_encoder::MessagesStreamEncoder};
use crate::{
    InvalidReply, Protocol,
    lenient::LenientCount,
    neutral::{Event, Reply, ReplyCodec, ReplyContext, StreamDecoder, StreamEncoder},
};

impl ReplyCodec for Anthropic {
    fn decode_reply(&self, body: &[u8], out: &mut Vec<Event>) -> Result<(), InvalidReply> {
        decode_reply::decode(body, out)
    }

    fn encode_reply(&self, reply: &Reply, from: Protocol, context: &ReplyContext) -> Bytes {
        encode_reply::encode(reply, from, context)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(MessagesStreamDecoder::default())
    }

    fn stream_encoder(&self, from: Protocol, context: &ReplyContext) -> Box<dyn StreamEncoder> {
        Box::new(MessagesStreamEncoder::new(from, context))
    }

    fn decode_count(&self, body: &[u8]) -> Result<u64, InvalidReply> {
        #[derive(serde::Deserialize)]
        struct Counted {
            #[serde(default)]
            input_tokens: LenientCount,
        }
        let counted: Counted = serde_json::from_slice(body).map_err(|_| InvalidReply::Unreadable("not a token count"))?;
        counted.input_tokens.given().ok_or(InvalidReply::Unreadable("not a token count"))
    }
}
