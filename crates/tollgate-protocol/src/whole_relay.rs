//! Relays a complete answer that is too large to keep in memory, in pieces: its bytes are passed on, and its outline is checked at
//! the end like a whole answer.

use bytes::Bytes;

use crate::{
    Codec, InvalidReply, Method, Problem, ReplyEdits, ReplySummary, StreamError, StreamRelay, edits,
    outline::{JsonOutline, Mark},
};

/// A relay that has read the beginning of an answer. `None` if the beginning is not recognised as that of an answer, or may be that of
/// an error; such a body must be read as a whole. A body of more than `max_bytes` ends with an error.
#[must_use]
pub fn relay_whole(
    codec: &'static dyn Codec,
    (method, max_bytes): (Method, usize),
    edits: &ReplyEdits,
    beginning: &Bytes,
    out: &mut Vec<Bytes>,
) -> Option<Box<dyn StreamRelay>> {
    let model = edits.caller_model.as_deref().map(|model| Bytes::from(edits::literal(model)));
    let mut relay =
        WholeRelay { codec, method, model, left: max_bytes, outline: JsonOutline::new(), replaces: false, summary: None };
    let is_read = relay.push(beginning, out).is_ok();
    let outline = &relay.outline;
    let is_answer = is_read && outline.has_answer() && !outline.names_error() && !outline.has_ended();
    if !is_answer {
        out.clear();
    }
    is_answer.then(|| Box::new(relay) as _)
}

struct WholeRelay {
    codec: &'static dyn Codec,
    method: Method,
    /// The caller's name of the model, as a JSON literal, if the upstream's differs.
    model: Option<Bytes>,
    /// Bytes that may follow.
    left: usize,
    outline: JsonOutline,
    /// The name of the model is being replaced.
    replaces: bool,
    /// Summary of the complete answer.
    summary: Option<ReplySummary>,
}

impl StreamRelay for WholeRelay {
    fn push(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        self.left = self.left.checked_sub(chunk.len()).ok_or(StreamError::Malformed("too large"))?;
        let Self { outline, model, replaces, .. } = self;
        let mut from = 0;
        let pushed = outline.push(chunk, |outline, mark, at| {
            let is_model = matches!(outline.top_name(), b"model" | b"modelVersion");
            match (mark, &*model) {
                (Mark::TextBegins, Some(_)) if is_model => {
                    out.extend((from < at).then(|| chunk.slice(from..at)));
                    *replaces = true;
                }
                (Mark::TextEnds, Some(model)) if *replaces => {
                    out.push(model.clone());
                    (*replaces, from) = (false, at + 1);
                }
                _ => {}
            }
        });
        if pushed.is_ok() && !*replaces && from < chunk.len() {
            out.push(chunk.slice(from..));
        }
        pushed
    }

    fn finish(&mut self, _: &mut Vec<Bytes>) -> Result<(), StreamError> {
        self.outline.finish()?;
        let outline = Bytes::copy_from_slice(self.outline.kept());
        let mut summary = match self.codec.read_reply(self.method, &outline, &ReplyEdits::default()) {
            Ok(checked) => checked.summary,
            Err(InvalidReply::Problem(problem)) => return Err(StreamError::Problem(problem)),
            Err(InvalidReply::Unreadable(what)) => return Err(StreamError::Malformed(what)),
        };
        summary.text_bytes += self.outline.cut_output_bytes();
        self.summary = Some(summary);
        Ok(())
    }

    fn summary(&self) -> ReplySummary {
        let so_far = ReplySummary { content: true, text_bytes: self.outline.output_bytes(), ..ReplySummary::default() };
        self.summary.unwrap_or(so_far)
    }

    fn held_bytes(&self) -> usize {
        self.outline.held_bytes()
    }

    fn complete(&self) -> bool {
        self.summary.is_some()
    }

    /// A JSON document marks its own end, which [`StreamRelay::finish`] checks.
    fn may_end_unmarked(&self, _: u32) -> bool {
        true
    }

    fn awaiting_body_end(&self) -> bool {
        self.outline.has_ended()
    }

    /// Nothing can be added to an answer that is not an event stream.
    fn problem(&mut self, _: &Problem) -> Bytes {
        Bytes::new()
    }

    /// White space would be allowed only between two values.
    fn keep_alive(&self) -> &'static [u8] {
        b""
    }
}

#[cfg(test)]
mod tests;
