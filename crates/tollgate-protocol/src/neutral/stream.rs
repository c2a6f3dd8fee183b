//! The seams of a translated stream: one decoder per upstream protocol, one encoder per caller protocol.

use bytes::BytesMut;

use super::Event;
use crate::StreamError;

/// Reads the events of one upstream's stream.
pub trait StreamDecoder: Send {
    /// Takes the data of one whole event and appends what it means. An event without meaning appends nothing.
    ///
    /// # Errors
    /// An event that is not what the protocol allows, or an error event. What was appended before stays good.
    fn push(&mut self, data: &[u8], out: &mut Vec<Event>) -> Result<(), StreamError>;

    /// Whether the protocol marks the end of a stream. Without a mark a stream may end once its candidates have.
    fn marks_end(&self) -> bool;
}

/// Writes a stream for one caller. Only whole events are written.
pub trait StreamEncoder: Send {
    /// Takes one event, which is always in order: nothing of a candidate behind its finish, one [`Event::End`], last.
    fn push(&mut self, event: Event, out: &mut BytesMut);

    /// Writes an error event around an error body; the stream is aborted behind it.
    fn problem(&mut self, body: &[u8], out: &mut BytesMut);

    /// A keep-alive that the callers' libraries accept.
    fn keep_alive(&self) -> &'static [u8];
}
