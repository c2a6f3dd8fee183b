//! Parts that the relays of all protocols share: forwarding without a copy, and detection of bodies that are not streams.

use std::ops::Range;

use bytes::Bytes;

use crate::{
    StreamError, UpstreamProblem,
    sse::{self, SseEvent, SseParser},
};

/// Largest document accepted in place of a stream, in bytes; enough for any error object.
const DOCUMENT_LIMIT: usize = 64 * 1024;

/// Collects the output for one chunk. Adjacent events that are forwarded unchanged become one slice of the chunk.
#[derive(Debug)]
pub(crate) struct ChunkWriter<'a> {
    chunk: &'a Bytes,
    run: Range<usize>,
    out: &'a mut Vec<Bytes>,
}

impl<'a> ChunkWriter<'a> {
    pub(crate) fn new(chunk: &'a Bytes, out: &'a mut Vec<Bytes>) -> Self {
        Self { chunk, run: 0..0, out }
    }

    /// Forwards the event without its name: its original bytes if they are in canonical form, otherwise re-encoded.
    pub(crate) fn forward(&mut self, event: &SseEvent<'_>) {
        if let Some(range) = event.range_in(self.chunk) {
            self.forward_range(range);
        } else {
            self.write(event.as_sent().unwrap_or_else(|| sse::event(&one_line(event.data))));
        }
    }

    /// Forwards the event with this name.
    pub(crate) fn forward_named(&mut self, name: &str, event: &SseEvent<'_>) {
        let is_name_sent = event.name == name.as_bytes();
        if let Some(range) = event.named_range_in(self.chunk).filter(|_| is_name_sent) {
            self.forward_range(range);
        } else {
            let sent = event.as_sent_named().filter(|_| is_name_sent);
            self.write(sent.unwrap_or_else(|| sse::named_event(name, &one_line(event.data))));
        }
    }

    fn forward_range(&mut self, range: Range<usize>) {
        if range.start == self.run.end && !self.run.is_empty() {
            self.run.end = range.end;
        } else {
            self.close_run();
            self.run = range;
        }
    }

    pub(crate) fn write(&mut self, bytes: Bytes) {
        self.close_run();
        self.out.push(bytes);
    }

    fn close_run(&mut self) {
        if !self.run.is_empty() {
            self.out.push(self.chunk.slice(std::mem::take(&mut self.run)));
        }
    }
}

impl Drop for ChunkWriter<'_> {
    fn drop(&mut self) {
        self.close_run();
    }
}

/// Valid JSON on one line: line ends can only occur between tokens.
pub(crate) fn one_line(json: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if memchr::memchr2(b'\n', b'\r', json).is_none() {
        return json.into();
    }
    json.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

#[derive(Debug, Default)]
pub(crate) enum BodyKind {
    /// Only white space so far.
    #[default]
    Unknown,
    Events,
    Array,
    /// A JSON object, buffered: an error with status 200, or the reply of an upstream that does not stream.
    Document(Vec<u8>),
}

impl BodyKind {
    /// Bytes of memory kept between two chunks.
    pub(crate) const fn held_bytes(&self) -> usize {
        match self {
            Self::Document(body) => body.capacity(),
            Self::Unknown | Self::Events | Self::Array => 0,
        }
    }

    /// Inspects the next bytes. Must be called with every chunk until the kind is known, and with every chunk of a document.
    pub(crate) fn inspect(&mut self, chunk: &[u8]) -> Result<(), StreamError> {
        match self {
            Self::Unknown => match chunk.trim_ascii_start().first() {
                None => {}
                Some(b'<') => return Err(StreamError::Malformed("HTML instead of an event stream")),
                Some(b'[') => *self = Self::Array,
                Some(b'{') => {
                    *self = Self::Document(Vec::new());
                    return self.inspect(chunk);
                }
                Some(_) => *self = Self::Events,
            },
            Self::Document(body) => {
                if body.len() + chunk.len() > DOCUMENT_LIMIT {
                    return Err(StreamError::Malformed("a document instead of an event stream"));
                }
                body.extend_from_slice(chunk);
            }
            Self::Events | Self::Array => {}
        }
        Ok(())
    }
}

/// The error for a JSON document received in place of a stream.
pub(crate) fn document_error(body: &[u8], decode: impl FnOnce(u16, &[u8]) -> UpstreamProblem) -> StreamError {
    let problem = decode(200, body);
    if problem.is_error_object {
        StreamError::Problem(Box::new(problem))
    } else {
        StreamError::Malformed("a document instead of an event stream")
    }
}

/// Ends the stream of a parser and emits the last event if only its blank line is missing. An event that was cut before its data is an
/// error; one that cannot be read is ignored if it is `harmless`.
pub(crate) fn finish_events(
    parser: &mut SseParser,
    harmless: impl Fn(&[u8]) -> bool,
    mut on: impl FnMut(&SseEvent<'_>) -> Result<(), StreamError>,
) -> Result<(), StreamError> {
    let begun = parser.has_unfinished_event();
    let mut emitted = false;
    parser.finish(|event| {
        emitted = true;
        match on(&event) {
            Err(StreamError::Malformed(_)) if harmless(event.data) => Ok(()),
            result => result,
        }
    })?;
    if begun && !emitted { Err(StreamError::Truncated) } else { Ok(()) }
}

/// The result of a stream without an end marker. `tail` is the result of its last bytes. The reply is complete if every candidate
/// has finished and no partial event remains, which may have been content.
pub(crate) fn check_stream_end(tail: Result<(), StreamError>, finished: bool) -> Result<(), StreamError> {
    match tail {
        Err(fault @ StreamError::Problem(_)) => Err(fault),
        Ok(()) if finished => Ok(()),
        _ => Err(StreamError::Truncated),
    }
}

#[cfg(test)]
pub(crate) mod tests;
