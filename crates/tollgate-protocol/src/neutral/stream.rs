//! Traits of a translated stream: one decoder per upstream protocol, one encoder per caller protocol.

use bytes::BytesMut;

use super::Event;
use crate::StreamError;

pub trait StreamDecoder: Send {
    /// Decodes the data of one complete event and appends the neutral events. Events without meaning append nothing.
    ///
    /// # Errors
    /// An event that violates the protocol, or an error event. Events appended before the error are valid.
    fn push(&mut self, data: &[u8], out: &mut Vec<Event>) -> Result<(), StreamError>;

    /// True when the protocol has an end marker. Otherwise a stream may end once its candidates have finished.
    fn marks_end(&self) -> bool;
}

/// Encodes the stream for one caller, in complete events.
pub trait StreamEncoder: Send {
    /// Encodes one event. Events arrive in order: nothing of a candidate after its finish, and a single [`Event::End`] last.
    fn push(&mut self, event: Event, out: &mut BytesMut);

    /// Writes an error event with an error body. The stream is aborted afterwards.
    fn problem(&mut self, body: &[u8], out: &mut BytesMut);

    /// A keep-alive that the protocol's client libraries accept.
    fn keep_alive(&self) -> &'static [u8];
}
