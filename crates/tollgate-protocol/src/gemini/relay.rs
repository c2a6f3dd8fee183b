//! Relays streamed replies. Requests to upstreams ask for an event stream; callers receive an event stream in the one format all SDKs
//! parse, or a JSON array.

use std::borrow::Cow;

use bytes::Bytes;

use super::{
    problem,
    reply_scan::{self, GeminiReplyScan},
    usage::GeminiUsageCounts,
};
use crate::{
    Framing, Problem, ReplyEdits, ReplySummary, StreamError, StreamRelay,
    edits::{self, Edits},
    json_array::ArraySplitter,
    json_text::line_end,
    passthrough::{self, BodyKind, ChunkWriter},
    reply_summary::CandidateProgress,
    sse::{self, SseEvent, SseParser},
};

pub(super) fn relay(framing: Framing, edits: &ReplyEdits) -> Box<dyn StreamRelay> {
    Box::new(Relay::new(framing, edits))
}

struct Relay {
    opening: BodyKind,
    parser: SseParser,
    /// For upstreams that send a JSON array nevertheless.
    array: ArraySplitter,
    chunks: Chunks,
}

#[derive(Default)]
struct Chunks {
    framing: Framing,
    /// The caller's model name as a JSON literal.
    model: Option<String>,
    summary: ReplySummary,
    counts: GeminiUsageCounts,
    progress: CandidateProgress,
    blocked: bool,
    call: bool,
    /// An element was written, so the next one needs a comma.
    begun: bool,
    /// The body has ended. The protocol has no other end: finish reasons may be in any event, or in every one.
    ended: bool,
}

impl Relay {
    fn new(framing: Framing, edits: &ReplyEdits) -> Self {
        let model = edits.caller_model.as_deref().map(edits::literal);
        let chunks = Chunks { framing, model, ..Chunks::default() };
        Self { opening: BodyKind::default(), parser: SseParser::new(), array: ArraySplitter::new(), chunks }
    }
}

impl StreamRelay for Relay {
    fn push(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        self.opening.inspect(chunk)?;
        let chunks = &mut self.chunks;
        let mut outbox = ChunkWriter::new(chunk, out);
        match self.opening {
            BodyKind::Document(_) => Ok(()),
            BodyKind::Array => self.array.push(chunk, |element| chunks.element(element, &mut outbox)),
            BodyKind::Unknown | BodyKind::Events => self.parser.push(chunk, |event| chunks.event(&event, &mut outbox)),
        }
    }

    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        let chunks = &mut self.chunks;
        if chunks.ended {
            return Ok(());
        }
        if let BodyKind::Document(body) = &self.opening {
            return Err(passthrough::document_error(body, problem::decode));
        }
        let nothing = Bytes::new();
        let mut outbox = ChunkWriter::new(&nothing, out);
        let tail = passthrough::finish_events(&mut self.parser, |_| false, |event| chunks.event(event, &mut outbox));
        passthrough::check_stream_end(tail, chunks.all_ended() && !self.array.in_element())?;
        chunks.ended = true;
        if chunks.framing == Framing::JsonArray {
            outbox.write(Bytes::from_static(b"]"));
        }
        Ok(())
    }

    fn summary(&self) -> ReplySummary {
        let chunks = &self.chunks;
        ReplySummary { finish: reply_scan::with_call(chunks.summary.finish, chunks.call), ..chunks.summary }
    }

    fn held_bytes(&self) -> usize {
        self.opening.held_bytes() + self.parser.held_bytes() + self.array.held_bytes()
    }

    fn reads_document(&self) -> bool {
        matches!(self.opening, BodyKind::Document(_))
    }

    fn complete(&self) -> bool {
        self.chunks.ended
    }

    fn may_end_unmarked(&self, candidates: u32) -> bool {
        self.chunks.progress.ended_for_good(candidates) || self.chunks.is_refused()
    }

    fn awaiting_body_end(&self) -> bool {
        !self.chunks.ended && self.chunks.all_ended() && !self.chunks.progress.continued()
    }

    fn problem(&mut self, problem: &Problem) -> Bytes {
        self.chunks.written(&problem::encode(problem))
    }

    fn keep_alive(&self) -> &'static [u8] {
        match self.chunks.framing {
            // Blank lines between events; SDKs fail on comments.
            Framing::Sse => b"\n\n",
            // White space is allowed between elements.
            Framing::JsonArray => b"\n",
        }
    }
}

impl Chunks {
    /// True when every candidate has a finish reason, or the prompt was blocked.
    fn all_ended(&self) -> bool {
        self.progress.all_ended() || self.is_refused()
    }

    /// The prompt was blocked, so there are no candidates.
    fn is_refused(&self) -> bool {
        self.blocked && !self.progress.any()
    }

    fn event(&mut self, event: &SseEvent<'_>, outbox: &mut ChunkWriter<'_>) -> Result<(), StreamError> {
        // `[DONE]` is not part of this protocol, and its SDKs fail on it.
        if event.data.trim_ascii() == b"[DONE]" {
            return Ok(());
        }
        if event.name == b"error" {
            return Err(StreamError::Problem(Box::new(problem::decode(200, event.data))));
        }
        match self.chunk(event.data)? {
            None if self.framing == Framing::Sse && event.has_space() && matches!(escaped(event.data), Cow::Borrowed(_)) => {
                outbox.forward(event);
            }
            None => outbox.write(self.written(event.data)),
            Some(changed) => outbox.write(self.written(&changed)),
        }
        Ok(())
    }

    fn element(&mut self, element: &[u8], outbox: &mut ChunkWriter<'_>) -> Result<(), StreamError> {
        let changed = self.chunk(element)?;
        outbox.write(self.written(changed.as_deref().unwrap_or(element)));
        Ok(())
    }

    /// Reads one chunk. Returns its text with the caller's model name, or `None` if it is unchanged.
    fn chunk(&mut self, data: &[u8]) -> Result<Option<Vec<u8>>, StreamError> {
        let Ok(answer) = GeminiReplyScan::read(data, self.counts) else {
            // In a JSON array, an error may be wrapped in another array.
            let problem = problem::decode(200, data);
            return Err(if data.trim_ascii_start().starts_with(b"[") && problem.is_error_object {
                StreamError::Problem(Box::new(problem))
            } else {
                StreamError::Malformed("an event that is not a JSON object")
            });
        };
        if answer.error {
            return Err(StreamError::Problem(Box::new(problem::decode(200, data))));
        }
        if answer.unusable {
            return Err(StreamError::Malformed("a candidate that is not an object"));
        }
        self.note(&answer);
        let mut changes = Edits::new();
        changes.replace_all(answer.models, self.model.as_deref());
        Ok(if changes.is_empty() { None } else { Some(changes.apply(data)) })
    }

    fn note(&mut self, answer: &GeminiReplyScan) {
        // Counts are cumulative: the last valid value of each member counts.
        self.counts = answer.counts;
        self.summary.add(&answer.summary);
        self.progress.join(answer.progress);
        self.blocked |= answer.blocked;
        self.call |= answer.call;
    }

    /// Formats one chunk in the caller's framing.
    fn written(&mut self, json: &[u8]) -> Bytes {
        match self.framing {
            Framing::Sse => sse::event(&escaped(&passthrough::one_line(json))),
            Framing::JsonArray => {
                let before = if std::mem::replace(&mut self.begun, true) { b',' } else { b'[' };
                let mut out = Vec::with_capacity(json.len() + 1);
                out.push(before);
                out.extend_from_slice(json);
                Bytes::from(out)
            }
        }
    }
}

/// Escapes U+2028, U+2029 and U+0085, which some SDKs treat as line ends. They occur only inside strings.
fn escaped(json: &[u8]) -> Cow<'_, [u8]> {
    let next = |from: usize| {
        let mut at = memchr::memchr2_iter(0xe2, 0xc2, &json[from..]).map(|at| from + at);
        at.find_map(|at| line_end(&json[at..]).map(|(escape, length)| (at, length, escape)))
    };
    let Some(mut found) = next(0) else { return Cow::Borrowed(json) };
    let mut out = Vec::with_capacity(json.len() + 16);
    let mut from = 0;
    loop {
        let (at, length, escape) = found;
        out.extend_from_slice(&json[from..at]);
        out.extend_from_slice(escape);
        from = at + length;
        match next(from) {
            Some(more) => found = more,
            None => break,
        }
    }
    out.extend_from_slice(&json[from..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests;
