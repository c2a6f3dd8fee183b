//! Relays streams whose events have names and whose last event is an end marker in any case (Anthropic Messages, `OpenAI` Responses).

use bytes::Bytes;

use crate::{
    Problem, ReplySummary, StreamError, StreamRelay, UpstreamProblem,
    passthrough::{self, BodyKind, ChunkWriter},
    sse::{SseEvent, SseParser},
};

/// The differences between the protocols with named events.
pub(crate) trait NamedEvents: Send {
    /// A keep-alive that the protocol's SDKs accept.
    const KEEP_ALIVE: &'static [u8];

    /// Reads one event and forwards it. Events after the end marker are ignored.
    ///
    /// # Errors
    /// When the stream cannot continue.
    fn event(&mut self, event: &SseEvent<'_>, out: &mut ChunkWriter<'_>) -> Result<(), StreamError>;

    fn summary(&self) -> ReplySummary;

    /// Bytes of memory kept between two events.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Whether the end marker was received.
    fn has_ended(&self) -> bool;

    /// The events that end a broken stream.
    fn problem(&mut self, problem: &Problem) -> Bytes;

    /// Decodes an error that was sent instead of a stream.
    fn decode_problem(status: u16, body: &[u8]) -> UpstreamProblem;
}

/// A relay for one answer.
pub(crate) struct NamedEventRelay<E> {
    body_kind: BodyKind,
    parser: SseParser,
    events: E,
}

impl<E: NamedEvents> NamedEventRelay<E> {
    pub(crate) fn new(events: E) -> Self {
        Self { body_kind: BodyKind::default(), parser: SseParser::new(), events }
    }
}

impl<E: NamedEvents> StreamRelay for NamedEventRelay<E> {
    fn push(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        self.body_kind.inspect(chunk)?;
        if let BodyKind::Document(_) = self.body_kind {
            return Ok(());
        }
        let events = &mut self.events;
        let mut writer = ChunkWriter::new(chunk, out);
        self.parser.push(chunk, |event| events.event(&event, &mut writer))
    }

    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        if let BodyKind::Document(body) = &self.body_kind {
            return Err(passthrough::document_error(body, E::decode_problem));
        }
        let events = &mut self.events;
        let nothing = Bytes::new();
        let mut writer = ChunkWriter::new(&nothing, out);
        let tail = self.parser.finish(|event| events.event(&event, &mut writer));
        passthrough::check_stream_end(tail, events.has_ended())
    }

    fn summary(&self) -> ReplySummary {
        self.events.summary()
    }

    fn held_bytes(&self) -> usize {
        self.body_kind.held_bytes() + self.parser.held_bytes() + self.events.held_bytes()
    }

    fn reads_document(&self) -> bool {
        matches!(self.body_kind, BodyKind::Document(_))
    }

    fn complete(&self) -> bool {
        self.events.has_ended()
    }

    /// The end marker is sent in any case, which [`StreamRelay::finish`] checks.
    fn may_end_unmarked(&self, _: u32) -> bool {
        true
    }

    fn problem(&mut self, problem: &Problem) -> Bytes {
        self.events.problem(problem)
    }

    fn keep_alive(&self) -> &'static [u8] {
        E::KEEP_ALIVE
    }
}
