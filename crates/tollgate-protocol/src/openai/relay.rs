//! Relays streamed replies. Events are forwarded as slices of the received chunks; members that callers must not receive are
//! removed, and only unreadable events stop the stream.

use bytes::Bytes;

use super::{
    problem,
    reply_scan::{ChatReplyScan, Choices},
};
use crate::{
    Framing, Problem, ReplyEdits, ReplySummary, StreamError, StreamRelay,
    edits::{self, Edits},
    passthrough::{self, BodyKind, ChunkWriter},
    reply_summary::CandidateProgress,
    sse::{self, SseEvent, SseParser},
};

const DONE: &[u8] = b"[DONE]";
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// A relay for one reply. Chat completions have one framing only.
pub(super) fn relay(_framing: Framing, edits: &ReplyEdits) -> Box<dyn StreamRelay> {
    Box::new(Relay {
        opening: BodyKind::default(),
        parser: SseParser::new(),
        events: Events {
            model: edits.caller_model.as_deref().map(edits::literal),
            hide_usage: edits.hide_usage,
            ..Events::default()
        },
    })
}

struct Relay {
    opening: BodyKind,
    parser: SseParser,
    events: Events,
}

#[derive(Default)]
struct Events {
    /// The caller's name of the model as a JSON literal.
    model: Option<String>,
    hide_usage: bool,
    summary: ReplySummary,
    candidates: CandidateProgress,
    done: bool,
}

impl StreamRelay for Relay {
    fn push(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        if self.events.done {
            return Ok(());
        }
        self.opening.inspect(chunk)?;
        if matches!(self.opening, BodyKind::Array) {
            // Google's OpenAI-compatible endpoint wraps error objects in an array.
            self.opening = BodyKind::Document(Vec::new());
            self.opening.inspect(chunk)?;
        }
        if matches!(self.opening, BodyKind::Document(_)) {
            return Ok(());
        }
        let events = &mut self.events;
        let mut outbox = ChunkWriter::new(chunk, out);
        self.parser.push(chunk, |event| events.event(&event, &mut outbox))
    }

    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        if self.events.done {
            return Ok(());
        }
        if let BodyKind::Document(body) = &self.opening {
            return Err(passthrough::document_error(body, problem::decode));
        }
        let events = &mut self.events;
        let nothing = Bytes::new();
        let mut outbox = ChunkWriter::new(&nothing, out);
        let tail = passthrough::finish_events(&mut self.parser, is_without_content, |event| events.event(event, &mut outbox));
        if events.done {
            return Ok(());
        }
        // Some upstreams omit the end marker. But if content followed a finish reason, only the marker shows that the stream is complete.
        let all_ended = events.candidates.all_ended() && !events.candidates.continued();
        passthrough::check_stream_end(tail, all_ended)?;
        events.done = true;
        outbox.write(Bytes::from_static(b"data: [DONE]\n\n"));
        Ok(())
    }

    fn summary(&self) -> ReplySummary {
        self.events.summary
    }

    fn held_bytes(&self) -> usize {
        self.opening.held_bytes() + self.parser.held_bytes()
    }

    fn reads_document(&self) -> bool {
        matches!(self.opening, BodyKind::Document(_))
    }

    fn complete(&self) -> bool {
        self.events.done
    }

    fn may_end_unmarked(&self, candidates: u32) -> bool {
        self.events.candidates.ended_for_good(candidates)
    }

    fn awaiting_end_marker(&self) -> bool {
        let candidates = &self.events.candidates;
        self.events.summary.usage.is_some() && candidates.all_ended() && !candidates.continued()
    }

    fn problem(&mut self, problem: &Problem) -> Bytes {
        sse::event(&problem::encode(problem))
    }

    fn keep_alive(&self) -> &'static [u8] {
        KEEP_ALIVE
    }
}

/// Whether an event that was cut cannot have been content: the end marker, or a usage chunk.
pub(super) fn is_without_content(cut: &[u8]) -> bool {
    DONE.starts_with(cut.trim_ascii()) || memchr::memmem::find(cut, b"\"choices\":[]").is_some()
}

impl Events {
    fn event(&mut self, event: &SseEvent<'_>, outbox: &mut ChunkWriter<'_>) -> Result<(), StreamError> {
        if self.done {
            return Ok(());
        }
        if event.data.trim_ascii() == DONE {
            if !self.candidates.all_ended_or_blank() {
                return Err(StreamError::Truncated);
            }
            self.done = true;
            outbox.forward(event);
            return Ok(());
        }
        let named_error = event.name == b"error";
        let Ok(answer) = ChatReplyScan::read(event.data) else {
            if named_error {
                return Err(StreamError::Problem(Box::new(problem::decode(200, event.data))));
            }
            return Err(StreamError::Malformed("an event that is not a JSON object"));
        };
        if named_error || answer.error {
            return Err(StreamError::Problem(Box::new(problem::decode(200, event.data))));
        }
        match answer.choices {
            Choices::Wrong => return Err(StreamError::Malformed("'choices' is not an array")),
            Choices::Unusable => return Err(StreamError::Malformed("a choice that is not an object")),
            Choices::Missing | Choices::Null(_) | Choices::Listed(_) => {}
        }
        self.summary.add(&answer.summary);
        self.candidates.join(answer.candidates);
        self.forward(event, &answer, outbox);
        Ok(())
    }

    fn forward(&self, event: &SseEvent<'_>, answer: &ChatReplyScan, outbox: &mut ChunkWriter<'_>) {
        let no_choices = !matches!(answer.choices, Choices::Listed(1..));
        if no_choices && answer.usage_object && self.hide_usage {
            return;
        }
        let mut changes = Edits::new();
        match &answer.choices {
            // SDKs iterate over `choices` of every chunk.
            Choices::Null(range) => changes.replace(range.clone(), b"[]"),
            Choices::Missing if answer.usage_object => {
                let open = event.data.len() - event.data.trim_ascii_start().len() + 1;
                changes.replace(open..open, b"\"choices\":[],");
            }
            // The event is neither a chunk nor an error. Drop it.
            Choices::Missing => return,
            Choices::Wrong | Choices::Unusable | Choices::Listed(_) => {}
        }
        self.remove_members(event, answer, &mut changes);
        changes.replace_all(answer.models.iter().cloned(), self.model.as_deref());
        if changes.is_empty() {
            outbox.forward(event);
        } else {
            outbox.write(sse::event(&passthrough::one_line(&changes.apply(event.data))));
        }
    }

    /// Removes `obfuscation`, and `usage` where the caller did not request it.
    fn remove_members(&self, event: &SseEvent<'_>, answer: &ChatReplyScan, changes: &mut Edits<'_>) {
        let usage: &[_] = if self.hide_usage { &answer.usage_members } else { &[] };
        if usage.is_empty() && answer.padding.is_empty() {
            return;
        }
        let mut members: Vec<_> = usage.iter().chain(&answer.padding).cloned().collect();
        members.sort_by_key(|range| range.start);
        for member in members {
            changes.remove_member(event.data, member);
        }
    }
}

#[cfg(test)]
mod tests;
