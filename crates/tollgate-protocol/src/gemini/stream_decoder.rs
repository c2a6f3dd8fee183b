//! Decodes a Gemini stream.

use super::{events, usage::GeminiUsageCounts, wire::GenerateContentResponse};
use crate::{
    Codec, StreamError,
    lenient::{LenientText, is_truthy},
    neutral::{BlockedPrompt, Event, StreamDecoder},
    scan::Scanner,
};

/// Decodes a Gemini stream. Calls arrive complete, one or several per event; events without candidates are normal.
#[derive(Debug, Default)]
pub(super) struct GeminiStreamDecoder {
    progress: events::DecodeState,
    usage: GeminiUsageCounts,
}

impl StreamDecoder for GeminiStreamDecoder {
    fn push(&mut self, data: &[u8], out: &mut Vec<Event>) -> Result<(), StreamError> {
        if data == b"[DONE]" {
            return Ok(());
        }
        let answer: GenerateContentResponse<'_> = match serde_json::from_slice(data) {
            Ok(answer) => answer,
            Err(_) if data.first() == Some(&b'[') => return Err(wrapped_error(data)),
            Err(_) => return Err(StreamError::Malformed("not a native event")),
        };
        if is_truthy(answer.error) {
            return Err(StreamError::Problem(Box::new(super::Gemini.decode_problem(200, data))));
        }
        if let Some(usage) = answer.usage.and_then(|raw| self.usage.merge(&mut Scanner::answer(raw.get().as_bytes()).ok()?).ok()?) {
            out.push(Event::Usage(usage));
        }
        let candidates = answer.candidates.unwrap_or_default();
        if candidates.is_empty()
            && let Some(feedback) = answer.feedback
            && let Some(reason) = LenientText::filled(feedback.reason)
        {
            out.push(Event::BlockedPrompt(BlockedPrompt { reason, message: LenientText::filled(feedback.message) }));
        }
        for (position, candidate) in candidates.into_iter().enumerate() {
            events::candidate(position, candidate, &mut self.progress, out)?;
        }
        self.progress.end_candidates(out);
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<Event>) -> Result<(), StreamError> {
        self.progress.close(out);
        Ok(())
    }

    fn held_bytes(&self) -> usize {
        self.progress.held_bytes()
    }

    fn withheld_bytes(&self) -> usize {
        self.progress.withheld_bytes()
    }

    fn marks_end(&self) -> bool {
        false
    }
}

fn wrapped_error(data: &[u8]) -> StreamError {
    let wrapped = serde_json::from_slice::<[GenerateContentResponse<'_>; 1]>(data);
    if wrapped.is_ok_and(|[answer]| is_truthy(answer.error)) {
        return StreamError::Problem(Box::new(super::Gemini.decode_problem(200, data)));
    }
    StreamError::Malformed("not a native event")
}
