//! What an answer goes through between the upstream's decoder and the caller's encoder, streamed or not: missing ids
//! are made up, tool names mapped back, custom tools unwrapped, surplus parallel calls left out, finish reasons judged,
//! and what the records need is counted. Memory is constant but for the calls that are open.

use super::{BlockedPrompt, Event, Media, ReplyContext};
use crate::{FinishReason, ReplySummary, StreamError, UpstreamProblem, lenient::LenientText, reply_summary::ACCOUNT_LIMITED};

/// Most candidates of one answer.
pub(crate) const CANDIDATE_LIMIT: u32 = 128;
/// Most calls that may be open at the same time.
pub(crate) const OPEN_CALL_LIMIT: usize = 1024;
/// Most bytes of ids, names and arguments of all calls of one answer. Encoders keep calls back until they are whole, so
/// this bounds what a stream may hold.
pub(crate) const CALL_BYTES_LIMIT: usize = 16 * 1024 * 1024;

/// Most bytes of the sources of one candidate that are read or kept.
pub(crate) const CITATION_BYTES_LIMIT: usize = 1024 * 1024;

/// The steps between decoder and encoder.
#[derive(Debug)]
pub(crate) struct AnswerPipeline {
    /// Whether the caller's protocol has a form for media.
    carries: fn(&Media) -> bool,
    request_id: String,
    parallel: bool,
    custom_tools: Vec<String>,
    name_map: Vec<(String, String)>,
    candidates: Vec<CandidateState>,
    open: Vec<OpenCall>,
    call_bytes: usize,
    made_ids: u64,
    summary: ReplySummary,
    blocked: bool,
    ended: bool,
}

/// What has been state of a candidate.
#[derive(Debug)]
struct CandidateState {
    index: u32,
    /// Text, a call or media came: something a caller can use.
    usable: bool,
    called: bool,
    /// Content came that cannot be handed on.
    lost: bool,
    finished: bool,
}

/// A call that is not whole yet and is handed on.
#[derive(Debug)]
struct OpenCall {
    call: u32,
    /// Arguments of a custom tool, which can only be unwrapped when they are whole.
    wrapped: Option<String>,
}

impl AnswerPipeline {
    /// `carries` says what media an answer of the caller's protocol can hold.
    pub(crate) fn new(context: &ReplyContext, carries: fn(&Media) -> bool) -> Self {
        Self {
            carries,
            request_id: context.request_id.clone(),
            parallel: context.parallel,
            custom_tools: context.custom_tools.clone(),
            name_map: context.name_map.clone(),
            candidates: Vec::new(),
            open: Vec::new(),
            call_bytes: 0,
            made_ids: 0,
            summary: ReplySummary::default(),
            blocked: false,
            ended: false,
        }
    }

    /// What has been read so far.
    pub(crate) fn summary(&self) -> ReplySummary {
        self.summary
    }

    /// Whether every candidate state has ended, or the prompt was blocked.
    pub(crate) fn finished(&self) -> bool {
        self.blocked || (!self.candidates.is_empty() && self.candidates.iter().all(|state| state.finished))
    }

    /// Whether [`Event::End`] was handed on.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Takes one event and appends what is to be handed on.
    pub(crate) fn take(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), StreamError> {
        if self.ended {
            return Ok(());
        }
        match event {
            Event::Usage(usage) => {
                self.summary.usage = Some(usage);
                out.push(Event::Usage(usage));
            }
            Event::BlockedPrompt(blocked) => self.blocked(blocked, out),
            Event::Unknown { candidate } => self.lose(candidate)?,
            Event::Media { candidate, ref media } if !(self.carries)(media) => self.lose(candidate)?,
            Event::End => {
                if !self.finished() {
                    return Err(StreamError::Truncated);
                }
                self.ended = true;
                out.push(Event::End);
            }
            Event::Finish { candidate, finish, native, message } => self.finish(candidate, finish, native, message, out)?,
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

    fn blocked(&mut self, blocked: BlockedPrompt, out: &mut Vec<Event>) {
        if self.blocked || !self.candidates.is_empty() {
            return;
        }
        self.blocked = true;
        self.summary.content = true;
        self.summary.finish = Some(FinishReason::Filter);
        out.push(Event::BlockedPrompt(blocked));
    }

    /// The candidate, unless it has ended or the prompt was blocked.
    fn candidate(&mut self, candidate: u32) -> Result<Option<&mut CandidateState>, StreamError> {
        if candidate >= CANDIDATE_LIMIT {
            return Err(StreamError::Malformed("a candidate index out of bounds"));
        }
        if self.blocked {
            return Ok(None);
        }
        let at = self.candidates.iter().position(|state| state.index == candidate).unwrap_or_else(|| {
            self.candidates.push(CandidateState { index: candidate, usable: false, called: false, lost: false, finished: false });
            self.candidates.len() - 1
        });
        Ok(Some(&mut self.candidates[at]).filter(|state| !state.finished))
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
            | Event::Unknown { .. }
            | Event::End => return Ok(()),
        };
        let Some(state) = self.candidate(candidate)? else { return Ok(()) };
        state.usable |= usable;
        self.summary.content |= bytes > 0 || media > 0;
        self.summary.text_bytes += bytes as u64;
        self.summary.media += media;
        out.push(event);
        Ok(())
    }

    /// Content without a form in the caller's protocol is counted and not handed on.
    fn lose(&mut self, candidate: u32) -> Result<(), StreamError> {
        if let Some(state) = self.candidate(candidate)? {
            state.lost = true;
            self.summary.unknown = self.summary.unknown.saturating_add(1);
        }
        Ok(())
    }

    fn open_call(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), StreamError> {
        let Event::CallOpen { candidate, call, mut id, mut name, custom: _, signature } = event else { return Ok(()) };
        let parallel = self.parallel;
        let Some(state) = self.candidate(candidate)? else { return Ok(()) };
        if state.called && !parallel {
            return Ok(());
        }
        state.called = true;
        state.usable = true;
        self.summary.content = true;
        if self.open.len() == OPEN_CALL_LIMIT {
            return Err(StreamError::Malformed("too many calls open at once"));
        }
        if id.is_empty() {
            id = format!("call_{}_{}", self.request_id, self.made_ids);
            self.made_ids += 1;
        }
        if let Some((_, own)) = self.name_map.iter().find(|(upstream, _)| *upstream == name) {
            name.clone_from(own);
        }
        self.count_call_bytes(id.len() + name.len())?;
        let custom = self.custom_tools.contains(&name);
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

    fn finish(
        &mut self,
        candidate: u32,
        finish: FinishReason,
        native: Option<String>,
        message: Option<String>,
        out: &mut Vec<Event>,
    ) -> Result<(), StreamError> {
        let Some(state) = self.candidate(candidate)? else { return Ok(()) };
        let limited = finish == FinishReason::Fail && native.as_deref() == Some(ACCOUNT_LIMITED);
        let finish = match finish {
            FinishReason::Fail if !state.usable => return Err(failure(native.as_deref())),
            // Whatever came cannot be handed on: an empty answer would be taken for the model's.
            FinishReason::Stop | FinishReason::Tool | FinishReason::Length | FinishReason::Other if state.lost && !state.usable => {
                return Err(StreamError::Malformed("nothing in it that the caller's protocol has a form for"));
            }
            FinishReason::Stop | FinishReason::Tool | FinishReason::Other | FinishReason::Fail if state.called => {
                FinishReason::Tool
            }
            FinishReason::Tool | FinishReason::Fail => FinishReason::Stop,
            FinishReason::Stop | FinishReason::Length | FinishReason::Filter | FinishReason::Other => finish,
        };
        state.finished = true;
        // What came is the answer; the account gives no other.
        self.summary.account_refused |= limited;
        let first = self.candidates.first().is_some_and(|state| state.index == candidate);
        if first {
            self.summary.finish = Some(finish);
        }
        out.push(Event::Finish { candidate, finish, native, message });
        Ok(())
    }
}

/// A custom tool was offered as a function with one string `input`; what the model wrote there is the tool's text.
fn unwrap_input(arguments: String) -> String {
    #[derive(serde::Deserialize)]
    struct Wrapped {
        input: LenientText,
    }
    serde_json::from_str::<Wrapped>(&arguments).map_or(arguments, |wrapped| wrapped.input.0)
}

/// The fault of a candidate in which the upstream failed before anything usable.
fn failure(native: Option<&str>) -> StreamError {
    let word = match native.unwrap_or_default() {
        // The account behind the upstream is limited: not an answer but a refusal of our account.
        ACCOUNT_LIMITED => {
            return StreamError::Problem(Box::new(UpstreamProblem {
                status: 403,
                message: ACCOUNT_LIMITED.to_owned(),
                is_error_object: true,
                account_refused: true,
                ..UpstreamProblem::default()
            }));
        }
        "MALFORMED_FUNCTION_CALL" => "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL" => "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS" => "TOO_MANY_TOOL_CALLS",
        "MALFORMED_RESPONSE" => "MALFORMED_RESPONSE",
        "MISSING_THOUGHT_SIGNATURE" => "MISSING_THOUGHT_SIGNATURE",
        "NO_IMAGE" => "NO_IMAGE",
        "IMAGE_OTHER" => "IMAGE_OTHER",
        _ => "failed without an answer",
    };
    StreamError::Malformed(word)
}

#[cfg(test)]
mod tests;
