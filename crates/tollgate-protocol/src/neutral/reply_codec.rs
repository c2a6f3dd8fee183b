//! The seam between answers of one wire format and their meaning.

use bytes::Bytes;

use super::{Embeddings, Event, Reply, ReplyContext, StreamDecoder, StreamEncoder};
use crate::{InvalidReply, Protocol};

/// Answers of one wire format, read from upstreams and written for callers. One implementation per format.
pub(crate) trait ReplyCodec: Send + Sync {
    /// Appends what a complete answer means, [`Event::End`] last.
    ///
    /// # Errors
    /// What is no answer, and an error object.
    fn decode_reply(&self, body: &[u8], out: &mut Vec<Event>) -> Result<(), InvalidReply>;

    /// Writes a complete answer of the upstream protocol `from`.
    fn encode_reply(&self, reply: &Reply, from: Protocol, context: &ReplyContext) -> Bytes;

    /// A reader of one stream.
    fn stream_decoder(&self) -> Box<dyn StreamDecoder>;

    /// A writer of one stream that comes from the upstream protocol `from`.
    fn stream_encoder(&self, from: Protocol, context: &ReplyContext) -> Box<dyn StreamEncoder>;

    /// Reads vectors.
    ///
    /// # Errors
    /// What is no such answer; every answer where the format has no vectors.
    fn decode_embeddings(&self, body: &[u8]) -> Result<Embeddings, InvalidReply> {
        let _ = body;
        Err(InvalidReply::Unreadable("the protocol has no vectors"))
    }

    /// Writes vectors; nothing where the format has none.
    fn encode_embeddings(&self, vectors: &Embeddings, context: &ReplyContext) -> Bytes {
        let _ = (vectors, context);
        Bytes::new()
    }

    /// Reads a number of input tokens.
    ///
    /// # Errors
    /// What is no such answer; every answer where the format counts nothing.
    fn decode_count(&self, body: &[u8]) -> Result<u64, InvalidReply> {
        let _ = body;
        Err(InvalidReply::Unreadable("the protocol counts no tokens"))
    }

    /// Writes a number of input tokens; nothing where the format has no such answer.
    fn encode_count(&self, tokens: u64) -> Bytes {
        let _ = tokens;
        Bytes::new()
    }
}
