//! Decodes a chat completions stream.

use super::{
    decode_reply::{is_error, read_usage},
    events::{self, ChoiceTexts},
    finish,
    wire::{ChatCompletion, ChoiceMessage, CompletionChoice},
};
use crate::{
    Codec, FinishReason, StreamError,
    lenient::{LenientText, TextJoiner},
    neutral::{CALL_BYTES_LIMIT, CANDIDATE_LIMIT, Event, OPEN_CALL_LIMIT, Signature, StreamDecoder, find_or_insert},
};

/// Decodes a chat completions stream. Fragments of several calls may interleave; a call is complete at the end of the stream.
#[derive(Debug, Default)]
pub(super) struct ChatStreamDecoder {
    choices: Vec<ChoiceState>,
    calls: Vec<PendingCall>,
    next_call: u32,
    /// Bytes of arguments received before the name of their call.
    early_args_bytes: usize,
}

#[derive(Debug, Default)]
struct ChoiceState {
    candidate: u32,
    finished: bool,
    /// The finish reason is an empty string, which some upstreams send in every chunk and others at the end.
    blank: bool,
    texts: ChoiceTexts,
}

#[derive(Debug, Default)]
struct PendingCall {
    candidate: u32,
    /// Index on the wire; `None` if the upstream sends none.
    index: Option<u64>,
    number: u32,
    id: String,
    name: String,
    /// Arguments received before the call could be opened.
    early_args: String,
    args: TextJoiner,
    signature: Option<Signature>,
    opened: bool,
}

struct Fragment {
    index: Option<u64>,
    id: String,
    name: String,
    args: LenientText,
    signature: Option<Signature>,
}

impl StreamDecoder for ChatStreamDecoder {
    fn push(&mut self, data: &[u8], out: &mut Vec<Event>) -> Result<(), StreamError> {
        if data.trim_ascii() == b"[DONE]" {
            self.end(out)?;
            for state in self.choices.iter().filter(|state| state.blank && !state.finished) {
                let candidate = state.candidate;
                out.push(Event::Finish { candidate, finish: FinishReason::Stop, native: None, message: None });
            }
            out.push(Event::End);
            return Ok(());
        }
        let answer: ChatCompletion<'_> = serde_json::from_slice(data).map_err(|_| StreamError::Malformed("not a chunk"))?;
        if is_error(&answer) {
            return Err(StreamError::Problem(Box::new(super::OpenAi.decode_problem(200, data))));
        }
        for (position, choice) in answer.choices.unwrap_or_default().into_iter().enumerate() {
            self.choice(position, choice, out)?;
        }
        if let Some(usage) = answer.usage.and_then(read_usage) {
            out.push(Event::Usage(usage));
        }
        Ok(())
    }

    /// Calls are complete only now: a fragment may follow any finish reason.
    fn end(&mut self, out: &mut Vec<Event>) -> Result<(), StreamError> {
        for state in &mut self.choices {
            state.texts.finish(state.candidate, out);
        }
        for mut call in self.calls.drain(..) {
            if call.name.is_empty() {
                return Err(StreamError::Malformed("a call without a name"));
            }
            if !call.opened {
                call.release(out);
            }
            let fragment = call.args.finish();
            out.extend(fragment.map(|fragment| Event::CallArgs { candidate: call.candidate, call: call.number, fragment }));
            out.push(Event::CallDone { candidate: call.candidate, call: call.number });
        }
        Ok(())
    }

    fn held_bytes(&self) -> usize {
        let signature = |call: &PendingCall| call.signature.as_ref().map_or(0, |signature| signature.value.capacity());
        self.calls.iter().map(|call| call.early_args.capacity() + signature(call)).sum()
    }

    fn harmless_tail(&self) -> fn(&[u8]) -> bool {
        super::relay::is_without_content
    }

    fn marks_end(&self) -> bool {
        true
    }
}

impl ChatStreamDecoder {
    fn choice(&mut self, position: usize, choice: CompletionChoice<'_>, out: &mut Vec<Event>) -> Result<(), StreamError> {
        let candidate = choice.index.given().unwrap_or(position as u64);
        let candidate = u32::try_from(candidate).ok().filter(|candidate| *candidate < CANDIDATE_LIMIT);
        let candidate = candidate.ok_or(StreamError::Malformed("a choice index out of bounds"))?;
        if let Some(mut message) = choice.delta.or(choice.message) {
            let state = self.choice_state(candidate);
            events::content(candidate, &mut message, choice.logprobs, &mut state.texts, out);
            self.calls(candidate, message, out)?;
        }
        match choice.finish_reason {
            Some(native) if native.0.is_empty() => self.choice_state(candidate).blank = true,
            Some(native) => {
                self.choice_state(candidate).finished = true;
                let finish = finish::read(&native.0);
                out.push(Event::Finish { candidate, finish, native: Some(native.0), message: None });
            }
            None => {}
        }
        Ok(())
    }

    fn choice_state(&mut self, candidate: u32) -> &mut ChoiceState {
        let new = || ChoiceState { candidate, ..ChoiceState::default() };
        find_or_insert(&mut self.choices, |state| state.candidate == candidate, new)
    }

    fn calls(&mut self, candidate: u32, message: ChoiceMessage<'_>, out: &mut Vec<Event>) -> Result<(), StreamError> {
        let filled = |text: Option<LenientText>| text.map(|text| text.0).unwrap_or_default();
        for call in message.tool_calls.unwrap_or_default() {
            let index = call.index.given();
            let signature = call.signature();
            let id = filled(call.id);
            let (args, name) = match (call.function, call.custom) {
                (Some(function), _) => (function.arguments(), filled(function.name)),
                (None, Some(custom)) => (events::custom_arguments(custom.input).into(), filled(custom.name)),
                (None, None) => (LenientText::default(), String::new()),
            };
            self.fragment(candidate, Fragment { index, id, name, args, signature }, out)?;
        }
        if let Some(function) = message.function_call {
            let args = function.arguments();
            let (id, name) = (String::new(), filled(function.name));
            self.fragment(candidate, Fragment { index: Some(0), id, name, args, signature: None }, out)?;
        }
        Ok(())
    }

    /// Adds a fragment of a call: the first non-empty id and name count, arguments are concatenated.
    fn fragment(&mut self, candidate: u32, fragment: Fragment, out: &mut Vec<Event>) -> Result<(), StreamError> {
        let at = self.call_at(candidate, &fragment)?;
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id = fragment.id;
        }
        if call.name.is_empty() {
            call.name = fragment.name;
        }
        call.signature = call.signature.take().or(fragment.signature);
        let args = call.args.join(fragment.args);
        if call.opened {
            out.push(Event::CallArgs { candidate, call: call.number, fragment: args });
            return Ok(());
        }
        self.early_args_bytes += args.len();
        if self.early_args_bytes > CALL_BYTES_LIMIT {
            return Err(StreamError::Malformed("calls larger than the limit"));
        }
        call.early_args.push_str(&args);
        // In order: a call is not opened before an earlier one that still lacks its id or name.
        for call in self.calls.iter_mut().filter(|call| call.candidate == candidate && !call.opened) {
            if call.id.is_empty() || call.name.is_empty() {
                break;
            }
            call.release(out);
        }
        Ok(())
    }

    /// Position of the call a fragment belongs to. Without an index, the id decides: a new id starts a new call, no id continues
    /// the last one. With an index too, a name under a new id starts a new call, because some upstreams give every call index 0;
    /// others give every fragment an id of its own, but only the first one a name.
    fn call_at(&mut self, candidate: u32, fragment: &Fragment) -> Result<usize, StreamError> {
        let found = match fragment.index {
            Some(index) => {
                let last = self.calls.iter().rposition(|call| call.candidate == candidate && call.index == Some(index));
                last.filter(|at| !self.calls[*at].is_other_call(fragment))
            }
            None if fragment.id.is_empty() => self.calls.iter().rposition(|call| call.candidate == candidate),
            None => self.calls.iter().rposition(|call| call.candidate == candidate && call.id == fragment.id),
        };
        if let Some(at) = found {
            return Ok(at);
        }
        if self.calls.len() == OPEN_CALL_LIMIT {
            return Err(StreamError::Malformed("too many calls open at once"));
        }
        let (index, number) = (fragment.index, self.next_call);
        self.calls.push(PendingCall { candidate, index, number, ..PendingCall::default() });
        self.next_call = self.next_call.wrapping_add(1);
        Ok(self.calls.len() - 1)
    }
}

impl PendingCall {
    /// Whether a fragment with the index of this call begins another one.
    fn is_other_call(&self, fragment: &Fragment) -> bool {
        let other_id = !fragment.id.is_empty() && !self.id.is_empty() && fragment.id != self.id;
        other_id && !fragment.name.is_empty() && !self.name.is_empty()
    }

    fn release(&mut self, out: &mut Vec<Event>) {
        self.opened = true;
        let (candidate, call) = (self.candidate, self.number);
        let (id, name) = (self.id.clone(), self.name.clone());
        out.push(Event::CallOpen { candidate, call, id, name, custom: false, signature: self.signature.take() });
        out.push(Event::CallArgs { candidate, call, fragment: std::mem::take(&mut self.early_args) });
    }
}
