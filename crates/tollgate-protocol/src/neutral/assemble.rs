//! Builds a complete [`Reply`] from events.

use super::{Candidate, Event, Part, PartKind, Reply};
use crate::FinishReason;

impl Reply {
    /// Builds a reply from the events of a complete answer. Calls keep the position at which they were opened; candidates
    /// are sorted by index.
    pub(crate) fn assemble(events: Vec<Event>) -> Self {
        let mut reply = Self::default();
        // Position of each call: call, candidate index, part index.
        let mut calls: Vec<(u32, u32, usize)> = Vec::new();
        for event in events {
            match event {
                Event::Text { candidate, text, signature } => reply.part(candidate, PartKind::Text(text), signature),
                Event::Think { candidate, text, redacted, signature } => {
                    reply.part(candidate, PartKind::Think { text, redacted }, signature);
                }
                Event::Media { candidate, media } => reply.part(candidate, PartKind::Media(media), None),
                Event::CallOpen { candidate, call, id, name, custom, signature } => {
                    calls.push((call, candidate, reply.candidate(candidate).parts.len()));
                    reply.part(candidate, PartKind::Call { id, name, args: String::new(), custom }, signature);
                }
                Event::CallArgs { candidate, call, fragment } => {
                    if let Some((_, _, at)) = calls.iter().rfind(|(open, _, _)| *open == call)
                        && let Some(Part { kind: PartKind::Call { args, .. }, .. }) = reply.candidate(candidate).parts.get_mut(*at)
                    {
                        args.push_str(&fragment);
                    }
                }
                Event::Refusal { candidate, text } => reply.candidate(candidate).refusal.get_or_insert_default().push_str(&text),
                Event::Logprobs { candidate, tokens } => reply.candidate(candidate).logprobs.get_or_insert_default().extend(tokens),
                Event::Citations { candidate, citations } => reply.candidate(candidate).citations.extend(citations),
                Event::Finish { candidate, finish, native, message } => {
                    let candidate = reply.candidate(candidate);
                    candidate.finish = Some(finish);
                    candidate.native = native;
                    candidate.message = message;
                }
                Event::BlockedPrompt(blocked) => reply.blocked = Some(blocked),
                Event::Usage(usage) => reply.usage = Some(usage),
                Event::CallDone { .. } | Event::Unknown { .. } | Event::End => {}
            }
        }
        reply.candidates.sort_by_key(|candidate| candidate.index);
        reply
    }

    fn candidate(&mut self, index: u32) -> &mut Candidate {
        let at = self.candidates.iter().position(|candidate| candidate.index == index).unwrap_or_else(|| {
            self.candidates.push(Candidate {
                index,
                parts: Vec::new(),
                finish: None,
                native: None,
                message: None,
                refusal: None,
                logprobs: None,
                citations: Vec::new(),
            });
            self.candidates.len() - 1
        });
        &mut self.candidates[at]
    }

    fn part(&mut self, index: u32, kind: PartKind, signature: Option<super::Signature>) {
        self.candidate(index).parts.push(Part { kind, signature, path: String::new() });
    }
}

impl Candidate {
    /// The finish reason; a natural end where the upstream gave none.
    pub(crate) fn finish(&self) -> FinishReason {
        self.finish.unwrap_or(FinishReason::Stop)
    }
}
