//! Answers of Messages.

use bytes::Bytes;

use super::{Anthropic, decode_reply, encode_reply, stream_decoder::Decoder, stream_encoder::Encoder};
use crate::{
    BadReply, Protocol,
    lenient::Count,
    neutral::{Answers, Event, Reply, ReplyContext, StreamDecoder, StreamEncoder},
};

impl Answers for Anthropic {
    fn decode_reply(&self, body: &[u8], out: &mut Vec<Event>) -> Result<(), BadReply> {
        decode_reply::decode(body, out)
    }

    fn encode_reply(&self, reply: &Reply, from: Protocol, context: &ReplyContext) -> Bytes {
        encode_reply::encode(reply, from, context)
    }

    fn stream_decoder(&self) -> Box<dyn StreamDecoder> {
        Box::new(Decoder::default())
    }

    fn stream_encoder(&self, from: Protocol, context: &ReplyContext) -> Box<dyn StreamEncoder> {
        Box::new(Encoder::new(from, context))
    }

    fn decode_count(&self, body: &[u8]) -> Result<u64, BadReply> {
        #[derive(serde::Deserialize)]
        struct Counted {
            #[serde(default)]
            input_tokens: Count,
        }
        let counted: Counted = serde_json::from_slice(body).map_err(|_| BadReply::Unreadable("not a token count"))?;
        counted.input_tokens.given().ok_or(BadReply::Unreadable("not a token count"))
    }
}
