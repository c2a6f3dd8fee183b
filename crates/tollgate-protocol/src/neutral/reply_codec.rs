//! [`ReplyCodec`]: conversion between one wire format's answers and the neutral form.

use bytes::Bytes;

use super::{Embeddings, Event, Reply, ReplyContext, StreamDecoder, StreamEncoder};
use crate::{InvalidReply, Protocol};

/// Decodes upstream answers and encodes caller answers of one wire format.
pub(crate) trait ReplyCodec: Send + Sync {
    /// Decodes a complete answer and appends its events, [`Event::End`] last.
    ///
    /// # Errors
    /// A body that is not an answer, or an error object.
    fn decode_reply(&self, body: &[u8], out: &mut Vec<Event>) -> Result<(), InvalidReply>;

    /// Encodes a complete answer that came from the upstream protocol `from`.
    fn encode_reply(&self, reply: &Reply, from: Protocol, context: &ReplyContext) -> Bytes;

    fn stream_decoder(&self) -> Box<dyn StreamDecoder>;

    /// An encoder for one stream that comes from the upstream protocol `from`.
    fn stream_encoder(&self, from: Protocol, context: &ReplyContext) -> Box<dyn StreamEncoder>;

    /// Decodes embeddings.
    ///
    /// # Errors
    /// A body without embeddings; any body where the format has none.
    fn decode_embeddings(&self, body: &[u8]) -> Result<Embeddings, InvalidReply> {
        let _ = body;
        Err(InvalidReply::Unreadable("the protocol has no vectors"))
    }

    /// Encodes embeddings; empty where the format has none.
    fn encode_embeddings(&self, vectors: &Embeddings, context: &ReplyContext) -> Bytes {
        let _ = (vectors, context);
        Bytes::new()
    }

    /// Decodes a count of input tokens.
    ///
    /// # Errors
    /// A body without a count; any body where the format has no token counter.
    fn decode_count(&self, body: &[u8]) -> Result<u64, InvalidReply> {
        let _ = body;
        Err(InvalidReply::Unreadable("the protocol counts no tokens"))
    }

    /// Encodes a count of input tokens; empty where the format has no token counter.
    fn encode_count(&self, tokens: u64) -> Bytes {
        let _ = tokens;
        Bytes::new()
    }
}
