//! Conversion between one wire format's answers, complete or streamed, and the neutral form.

use bytes::{Bytes, BytesMut};

use serde::Deserialize;

use super::{Embeddings, Event, Reply, ReplyContext};
use crate::{InvalidReply, Protocol, StreamError, lenient::LenientCount, shared_pieces::Piece};

/// Decodes upstream answers and encodes caller answers of one wire format.
pub(crate) trait ReplyCodec: Send + Sync {
    /// Decodes a complete answer and appends its events, [`Event::End`] last.
    fn decode_reply(&self, body: &[u8], out: &mut Vec<Event>) -> Result<(), InvalidReply>;

    /// Encodes a complete answer that came from the upstream protocol `from`.
    fn encode_reply(&self, reply: &Reply, from: Protocol, context: &ReplyContext) -> Bytes;

    fn stream_decoder(&self) -> Box<dyn StreamDecoder>;

    /// An encoder for one stream that comes from the upstream protocol `from`.
    fn stream_encoder(&self, from: Protocol, context: &ReplyContext) -> Box<dyn StreamEncoder>;

    fn decode_embeddings(&self, _body: &[u8]) -> Result<Embeddings, InvalidReply> {
        Err(InvalidReply::Unreadable("the protocol has no vectors"))
    }

    fn encode_embeddings(&self, _vectors: &Embeddings, _context: &ReplyContext) -> Bytes {
        Bytes::new()
    }

    fn decode_count(&self, _body: &[u8]) -> Result<u64, InvalidReply> {
        Err(InvalidReply::Unreadable("the protocol counts no tokens"))
    }

    fn encode_count(&self, _tokens: u64) -> Bytes {
        Bytes::new()
    }
}

/// Decodes the events of one streamed answer of an upstream. One instance per answer.
pub trait StreamDecoder: Send {
    /// Decodes the data of one complete event and appends the neutral events. Events appended before an error are valid.
    /// A finish reason ends nothing: content of its candidate may follow, and another finish reason.
    fn push(&mut self, data: &[u8], out: &mut Vec<Event>) -> Result<(), StreamError>;

    /// Appends the outstanding events at the end of the answer, except [`Event::End`]. Called once, unless [`StreamDecoder::push`]
    /// appended [`Event::End`].
    fn end(&mut self, out: &mut Vec<Event>) -> Result<(), StreamError>;

    /// Bytes of memory kept between two events. State bounded to a few KiB may be left out.
    fn held_bytes(&self) -> usize;

    /// Bytes of calls that were received in pieces and are appended only when complete. Changes with every piece.
    fn withheld_bytes(&self) -> usize {
        0
    }

    /// Whether an event that was cut off at the end of the body cannot have been content.
    fn harmless_tail(&self) -> fn(&[u8]) -> bool {
        |_| false
    }

    /// True when the protocol has an end marker. Otherwise the end of the body is the end of the answer.
    fn marks_end(&self) -> bool;
}

pub(crate) trait StreamEncoder: Send {
    /// Encodes one event. Events arrive in order: none of a candidate after its finish, and a single [`Event::End`] last.
    fn push(&mut self, event: Event, out: &mut BytesMut);

    /// Writes the beginning of a stream before any content, once. Writes nothing if the first content includes it.
    fn open(&mut self, _out: &mut BytesMut) {}

    /// Takes the pieces that precede the bytes in the buffer. Pieces of repeated texts share their memory with the encoder.
    fn take_pieces(&mut self) -> Vec<Piece> {
        Vec::new()
    }

    /// Bytes of memory kept between two events, including shared pieces that were taken. State bounded to a few KiB may be left out.
    fn held_bytes(&self) -> usize;

    /// Bytes of the model's output that were pushed but not written yet, because the caller gets them in one piece (arguments of a call).
    /// They are lost if the stream breaks.
    fn unwritten_output_bytes(&self) -> usize {
        0
    }

    /// Writes an error event with an error body. The stream is aborted afterwards.
    fn problem(&mut self, body: &[u8], out: &mut BytesMut);

    /// A keep-alive that the protocol's client libraries accept.
    fn keep_alive(&self) -> &'static [u8];
}

/// Reads the answer to a token count, in the form that Anthropic and `OpenAI` share: `{"input_tokens":12}`.
pub(crate) fn read_input_tokens(body: &[u8]) -> Result<u64, InvalidReply> {
    #[derive(Deserialize)]
    struct Counted {
        #[serde(default)]
        input_tokens: LenientCount,
    }
    let counted: Counted = serde_json::from_slice(body).map_err(|_| InvalidReply::Unreadable("not a token count"))?;
    counted.input_tokens.given().ok_or(InvalidReply::Unreadable("not a token count"))
}
