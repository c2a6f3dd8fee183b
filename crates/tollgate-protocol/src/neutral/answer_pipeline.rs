//! The steps between the upstream's decoder and the caller's encoder, for complete and streamed answers: generate missing
//! call ids, map tool names back, unwrap custom tools, drop surplus parallel calls, normalise finish reasons, and count
//! the figures of the usage record. Memory is constant except for open calls.

use super::{BlockedPrompt, Event, Media, ReplyContext, find_or_insert};
use crate::{FinishReason, ReplySummary, StreamError, UpstreamProblem, lenient::LenientText, reply_summary::ACCOUNT_LIMITED};

/// Maximum number of candidates in one answer.
pub(crate) const CANDIDATE_LIMIT: u32 = 128;
/// Maximum number of calls open at the same time.
pub(crate) const OPEN_CALL_LIMIT: usize = 1024;
/// Maximum size of the ids, names and arguments of all calls of one answer, in bytes. Encoders buffer calls until they are
/// complete, so this bounds the memory of a stream.
pub(crate) const CALL_BYTES_LIMIT: usize = 16 * 1024 * 1024;

/// Maximum size of the citations read or kept per candidate, in bytes.
pub(crate) const CITATION_BYTES_LIMIT: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct AnswerPipeline {
    /// True for media that the caller's protocol can represent in an answer.
    supports_media: fn(&Media) -> bool,
    context: ReplyContext,
    candidates: Vec<CandidateState>,
    open: Vec<OpenCall>,
    call_bytes: usize,
    generated_ids: u64,
    summary: ReplySummary,
    blocked: bool,
    /// Content followed the finish of its candidate.
    continued: bool,
    ended: bool,
}

#[derive(Debug, Default)]
struct CandidateState {
    index: u32,
    /// Text, a call or media was received.
    usable: bool,
    called: bool,
    /// Content was received that the caller's protocol cannot represent.
    discarded: bool,
    /// The last finish received. It is forwarded at the end of the answer, because some upstreams send one in every event.
    finish: Option<ReceivedFinish>,
}

#[derive(Debug)]
struct ReceivedFinish {
    finish: FinishReason,
    native: Option<String>,
    message: Option<String>,
}

impl CandidateState {
    /// The finish reason for the caller, from the upstream's.
    const fn settled(&self, finish: FinishReason) -> FinishReason {
        match finish {
            FinishReason::Stop | FinishReason::Tool | FinishReason::Other | FinishReason::Fail if self.called => FinishReason::Tool,
            FinishReason::Tool | FinishReason::Fail => FinishReason::Stop,
            FinishReason::Stop | FinishReason::Length | FinishReason::Filter | FinishReason::Other => finish,
        }
    }
}

/// A forwarded call whose end has not been received.
#[derive(Debug)]
struct OpenCall {
    call: u32,
    /// Arguments of a custom tool received so far. They can be unwrapped only when complete.
    wrapped: Option<String>,
}

impl AnswerPipeline {
    /// `supports_media` is true for media that the caller's protocol can represent in an answer.
    pub(crate) fn new(context: &ReplyContext, supports_media: fn(&Media) -> bool) -> Self {
        Self {
            supports_media,
            context: context.clone(),
            candidates: Vec::new(),
            open: Vec::new(),
            call_bytes: 0,
            generated_ids: 0,
            summary: ReplySummary::default(),
            blocked: false,
            continued: false,
            ended: false,
        }
    }

    pub(crate) fn summary(&self) -> ReplySummary {
        self.summary
    }

    /// Bytes of memory kept between two events.
    pub(crate) fn held_bytes(&self) -> usize {
        self.open.iter().filter_map(|call| call.wrapped.as_ref()).map(String::capacity).sum()
    }

    /// True when every candidate has finished, or the prompt was blocked.
    pub(crate) fn finished(&self) -> bool {
        self.blocked || (!self.candidates.is_empty() && self.candidates.iter().all(|state| state.finish.is_some()))
    }

    /// True when at least `candidates` have finished and no content followed the finish of one, or the prompt was blocked.
    pub(crate) fn finished_for_good(&self, candidates: u32) -> bool {
        let finished = self.candidates.iter().filter(|state| state.finish.is_some()).count();
        let all = u32::try_from(finished).is_ok_and(|finished| finished >= candidates.min(CANDIDATE_LIMIT));
        self.blocked || (all && !self.continued)
    }

    /// True when content followed the finish of its candidate, so that finishes do not mark the end of this answer.
    pub(crate) fn continued(&self) -> bool {
        self.continued
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn push(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), StreamError> {
        if self.ended {
            return Ok(());
        }
        match event {
            Event::Usage(usage) => {
                self.summary.usage = Some(usage);
                out.push(Event::Usage(usage));
            }
            Event::Searches(searches) => self.summary.searches = self.summary.searches.max(Some(searches)),
            Event::BlockedPrompt(blocked) => self.block_prompt(blocked, out),
            Event::Unknown { candidate } => self.discard(candidate)?,
            Event::Media { candidate, ref media } if !(self.supports_media)(media) => self.discard(candidate)?,
            Event::End => {
                if !self.finished() {
                    return Err(StreamError::Truncated);
                }
                self.forward_finishes(out)?;
                self.ended = true;
                out.push(Event::End);
            }
            Event::Finish { candidate, finish, native, message } => {
                self.receive_finish(candidate, ReceivedFinish { finish, native, message })?;
            }
            Event::CallOpen { .. } => self.open_call(event, out)?,
            Event::CallArgs { candidate, call, fragment } => self.call_arguments(candidate, call, fragment, out)?,
            Event::CallDone { candidate, call } => self.call_done(candidate, call, out),
            Event::Text { .. }
            | Event::Think { .. }
            | Event::Media { .. }
            | Event::Refusal { .. }
            | Event::Logprobs { .. }
            | Event::Citations { .. } => self.content(event, out)?,
        }
        Ok(())
    }

    fn block_prompt(&mut self, blocked: BlockedPrompt, out: &mut Vec<Event>) {
        if self.blocked || !self.candidates.is_empty() {
            return;
        }
        self.blocked = true;
        self.summary.content = true;
        self.summary.finish = Some(FinishReason::Filter);
        out.push(Event::BlockedPrompt(blocked));
    }

    /// State of a candidate; `None` when the prompt was blocked.
    fn candidate(&mut self, candidate: u32) -> Result<Option<&mut CandidateState>, StreamError> {
        if candidate >= CANDIDATE_LIMIT {
            return Err(StreamError::Malformed("a candidate index out of bounds"));
        }
        if self.blocked {
            return Ok(None);
        }
        let new = || CandidateState { index: candidate, ..CandidateState::default() };
        Ok(Some(find_or_insert(&mut self.candidates, |state| state.index == candidate, new)))
    }

    fn content(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), StreamError> {
        let (candidate, bytes, media, usable) = match &event {
            Event::Text { candidate, text, .. } | Event::Refusal { candidate, text } => {
                (*candidate, text.len(), 0, !text.is_empty())
            }
            Event::Think { candidate, text, .. } => (*candidate, text.len(), 0, false),
            Event::Media { candidate, .. } => (*candidate, 0, 1, true),
            Event::Logprobs { candidate, .. } | Event::Citations { candidate, .. } => (*candidate, 0, 0, false),
            Event::CallOpen { .. }
            | Event::CallArgs { .. }
            | Event::CallDone { .. }
            | Event::Finish { .. }
            | Event::BlockedPrompt(_)
            | Event::Usage(_)
            | Event::Searches(_)
            | Event::Unknown { .. }
            | Event::End => return Ok(()),
        };
        let is_content = bytes > 0 || media > 0;
        let Some(state) = self.candidate(candidate)? else { return Ok(()) };
        state.usable |= usable;
        let continued = is_content && state.finish.is_some();
        self.continued |= continued;
        self.summary.content |= is_content;
        self.summary.text_bytes += bytes as u64;
        self.summary.media += media;
        out.push(event);
        Ok(())
    }

    /// Counts content that the caller's protocol cannot represent and drops it.
    fn discard(&mut self, candidate: u32) -> Result<(), StreamError> {
        if let Some(state) = self.candidate(candidate)? {
            state.discarded = true;
            self.summary.unknown = self.summary.unknown.saturating_add(1);
        }
        Ok(())
    }

    fn open_call(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), StreamError> {
        let Event::CallOpen { candidate, call, mut id, mut name, custom: _, signature } = event else { return Ok(()) };
        let parallel = self.context.parallel;
        let Some(state) = self.candidate(candidate)? else { return Ok(()) };
        if state.called && !parallel {
            self.summary.surplus_calls = self.summary.surplus_calls.saturating_add(1);
            return Ok(());
        }
        state.called = true;
        state.usable = true;
        let continued = state.finish.is_some();
        self.continued |= continued;
        self.summary.content = true;
        if self.open.len() == OPEN_CALL_LIMIT {
            return Err(StreamError::Malformed("too many calls open at once"));
        }
        if id.is_empty() {
            id = format!("call_{}_{}", self.context.request_id, self.generated_ids);
            self.generated_ids += 1;
        }
        if let Some((_, own)) = self.context.name_map.iter().find(|(upstream, _)| *upstream == name) {
            name.clone_from(own);
        }
        self.count_call_bytes(id.len() + name.len())?;
        let custom = self.context.custom_tools.contains(&name);
        self.open.push(OpenCall { call, wrapped: custom.then(String::new) });
        out.push(Event::CallOpen { candidate, call, id, name, custom, signature });
        Ok(())
    }

    fn call_arguments(&mut self, candidate: u32, call: u32, fragment: String, out: &mut Vec<Event>) -> Result<(), StreamError> {
        let Some(at) = self.open.iter().rposition(|open| open.call == call) else { return Ok(()) };
        if fragment.is_empty() {
            return Ok(());
        }
        self.count_call_bytes(fragment.len())?;
        self.summary.text_bytes += fragment.len() as u64;
        match &mut self.open[at].wrapped {
            Some(wrapped) => wrapped.push_str(&fragment),
            None => out.push(Event::CallArgs { candidate, call, fragment }),
        }
        Ok(())
    }

    fn call_done(&mut self, candidate: u32, call: u32, out: &mut Vec<Event>) {
        let Some(at) = self.open.iter().rposition(|open| open.call == call) else { return };
        let open = self.open.remove(at);
        if let Some(wrapped) = open.wrapped {
            let fragment = unwrap_input(wrapped);
            if !fragment.is_empty() {
                out.push(Event::CallArgs { candidate, call, fragment });
            }
        }
        out.push(Event::CallDone { candidate, call });
    }

    fn count_call_bytes(&mut self, bytes: usize) -> Result<(), StreamError> {
        self.call_bytes += bytes;
        if self.call_bytes > CALL_BYTES_LIMIT { Err(StreamError::Malformed("calls larger than the limit")) } else { Ok(()) }
    }

    fn receive_finish(&mut self, candidate: u32, received: ReceivedFinish) -> Result<(), StreamError> {
        let Some(state) = self.candidate(candidate)? else { return Ok(()) };
        let native = received.native.as_deref();
        if received.finish == FinishReason::Fail && !state.usable {
            return Err(failure(native));
        }
        let limited = received.finish == FinishReason::Fail && native == Some(ACCOUNT_LIMITED);
        let finish = state.settled(received.finish);
        state.finish = Some(received);
        // The content received is still the answer, but the account will refuse further requests.
        self.summary.account_refused |= limited;
        if self.candidates.first().is_some_and(|state| state.index == candidate) {
            self.summary.finish = Some(finish);
        }
        Ok(())
    }

    fn forward_finishes(&mut self, out: &mut Vec<Event>) -> Result<(), StreamError> {
        for (at, state) in self.candidates.iter_mut().enumerate() {
            let Some(ReceivedFinish { finish, native, message }) = state.finish.take() else { continue };
            // All content was discarded: an empty answer would look as if the model had returned nothing.
            if state.discarded && !state.usable && finish != FinishReason::Filter {
                return Err(StreamError::Malformed("no content that the caller's protocol can represent"));
            }
            let finish = state.settled(finish);
            if at == 0 {
                self.summary.finish = Some(finish);
            }
            out.push(Event::Finish { candidate: state.index, finish, native, message });
        }
        Ok(())
    }
}

/// The text of a custom tool call: custom tools are declared upstream as a function with one string parameter `input`.
fn unwrap_input(arguments: String) -> String {
    #[derive(serde::Deserialize)]
    struct Wrapped {
        input: LenientText,
    }
    serde_json::from_str::<Wrapped>(&arguments).map_or(arguments, |wrapped| wrapped.input.0)
}

/// Native reasons that the log shows as they are.
const FAILURES: [&str; 7] = [
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MALFORMED_RESPONSE",
    "MISSING_THOUGHT_SIGNATURE",
    "NO_IMAGE",
    "IMAGE_OTHER",
];

/// Error for a candidate that failed upstream before any usable content.
fn failure(native: Option<&str>) -> StreamError {
    let reason = match native.unwrap_or_default() {
        // The upstream limits our account: report it as a refusal of the account, not as an answer.
        ACCOUNT_LIMITED => {
            return StreamError::Problem(Box::new(UpstreamProblem {
                status: 403,
                message: ACCOUNT_LIMITED.to_owned(),
                is_error_object: true,
                account_refused: true,
                ..UpstreamProblem::default()
            }));
        }
        native => FAILURES.iter().find(|known| **known == native).unwrap_or(&"failed without an answer"),
    };
    StreamError::Malformed(reason)
}

#[cfg(test)]
mod tests;
