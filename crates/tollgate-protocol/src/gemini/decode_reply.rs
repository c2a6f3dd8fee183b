//! Decodes a complete Gemini reply.

use super::{events, usage, wire::GenerateContentResponse};
use crate::{
    Codec, InvalidReply,
    lenient::{LenientText, is_truthy},
    neutral::{BlockedPrompt, Event},
    scan::Scanner,
};

/// Appends the events of a complete reply, including `Event::End`.
pub(super) fn decode(body: &[u8], out: &mut Vec<Event>) -> Result<(), InvalidReply> {
    let answer = read(body)?;
    if let Some(usage) = answer.usage.and_then(|raw| usage::read(&mut Scanner::answer(raw.get().as_bytes()).ok()?).ok()?) {
        out.push(Event::Usage(usage));
    }
    let candidates = answer.candidates.unwrap_or_default();
    if candidates.is_empty() {
        let Some(feedback) = answer.feedback else { return Err(InvalidReply::Unreadable("no candidates and no block reason")) };
        let Some(reason) = LenientText::filled(feedback.reason) else {
            return Err(InvalidReply::Unreadable("no candidates and no block reason"));
        };
        out.push(Event::BlockedPrompt(BlockedPrompt { reason, message: LenientText::filled(feedback.message) }));
    }
    let mut progress = events::DecodeState::default();
    for (position, candidate) in candidates.into_iter().enumerate() {
        let index = events::index(position, &candidate)?;
        let begin = out.len();
        events::candidate(position, candidate, &mut progress, out)?;
        close(index, begin, out)?;
    }
    progress.end_candidates(out);
    progress.close(out);
    out.push(Event::End);
    Ok(())
}

/// Ends a candidate. One without a finish reason has ended too, if it has content.
fn close(candidate: u32, begin: usize, out: &mut Vec<Event>) -> Result<(), InvalidReply> {
    if matches!(out.last(), Some(Event::Finish { .. })) && out.len() > begin {
        return Ok(());
    }
    if out[begin..].iter().all(|event| !event.is_content()) {
        return Err(InvalidReply::Unreadable("an empty candidate"));
    }
    out.push(Event::Finish { candidate, finish: crate::FinishReason::Stop, native: None, message: None });
    Ok(())
}

fn read(body: &[u8]) -> Result<GenerateContentResponse<'_>, InvalidReply> {
    match serde_json::from_slice::<GenerateContentResponse<'_>>(body) {
        Ok(answer) if is_truthy(answer.error) => Err(InvalidReply::Problem(Box::new(super::Gemini.decode_problem(200, body)))),
        Ok(answer) => Ok(answer),
        Err(_) => {
            // Google's front end wraps some errors in an array.
            let wrapped = serde_json::from_slice::<[GenerateContentResponse<'_>; 1]>(body);
            if wrapped.is_ok_and(|[answer]| is_truthy(answer.error)) {
                return Err(InvalidReply::Problem(Box::new(super::Gemini.decode_problem(200, body))));
            }
            Err(InvalidReply::Unreadable("not a native answer"))
        }
    }
}
