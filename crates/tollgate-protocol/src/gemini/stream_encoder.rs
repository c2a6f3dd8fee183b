//! Encodes a Gemini stream from events of another protocol. Text is sent at once. Calls are held until they are complete. The
//! finish is held until the end of the stream, because the usage arrives after it.

use bytes::{BufMut, BytesMut};

use super::{
    parts::PartBuffer,
    reply_fields::{
        CandidateEnd, Mean, identity, write_content, write_ending, write_feedback, write_grounding, write_logprobs, write_usage,
    },
};
use crate::{
    FinishReason, Framing, Usage,
    neutral::{Citation, Event, ReplyContext, StreamEncoder, TokenLogprob, find_or_insert},
};

/// Maximum size in bytes of a refusal repeated as `finishMessage`.
const REFUSAL_LIMIT: usize = 4 * 1024;
/// Maximum number of tokens whose log probabilities wait for their text.
const LOGPROB_LIMIT: usize = 4 * 1024;
/// Maximum number of citations held for the last event of a candidate.
const CITATION_LIMIT: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct GeminiStreamEncoder {
    context: ReplyContext,
    identity: Vec<u8>,
    opened: bool,
    candidates: Vec<CandidateBuffer>,
    blocked: Option<String>,
    usage: Option<Usage>,
}

#[derive(Debug, Default)]
struct CandidateBuffer {
    index: u32,
    parts: PartBuffer,
    calls: Vec<BufferedCall>,
    finish: Option<(FinishReason, Option<String>)>,
    refusal: String,
    /// Log probabilities of the next text.
    logprobs: Vec<TokenLogprob>,
    mean: Mean,
    citations: Vec<Citation>,
}

#[derive(Debug)]
struct BufferedCall {
    call: u32,
    id: String,
    name: String,
    args: String,
    done: bool,
}

impl CandidateBuffer {
    /// Writes complete calls, up to the first incomplete one.
    fn release_calls(&mut self) {
        let whole = self.calls.iter().take_while(|call| call.done).count();
        for call in self.calls.drain(..whole) {
            self.parts.call(&call.id, &call.name, &call.args);
        }
    }
}

impl GeminiStreamEncoder {
    pub(super) fn new(context: &ReplyContext) -> Self {
        Self { context: context.clone(), identity: identity(&context.model, &context.response_id), ..Self::default() }
    }

    fn state(&mut self, candidate: u32) -> &mut CandidateBuffer {
        let parts = || PartBuffer::new(&self.context);
        let new = || CandidateBuffer { index: candidate, parts: parts(), ..CandidateBuffer::default() };
        find_or_insert(&mut self.candidates, |state| state.index == candidate, new)
    }

    /// Writes an event with the buffered parts of a candidate, if there are any.
    fn ready(&mut self, candidate: u32, out: &mut BytesMut) {
        if self.state(candidate).parts.is_empty() {
            return;
        }
        self.begin(out);
        let state = self.state(candidate);
        out.put_slice(b"{\"candidates\":[{");
        write_content(out, &state.parts.take());
        out.put_slice(format!(",\"index\":{}", state.index).as_bytes());
        write_logprobs(out, &std::mem::take(&mut state.logprobs));
        out.put_slice(b"}],");
        self.close(out);
    }

    fn begin(&mut self, out: &mut BytesMut) {
        let lead: &[u8] = match (self.context.framing, self.opened) {
            (Framing::Sse, _) => b"data: ",
            (Framing::JsonArray, false) => b"[",
            (Framing::JsonArray, true) => b",\n",
        };
        self.opened = true;
        out.put_slice(lead);
    }

    fn close(&self, out: &mut BytesMut) {
        out.put_slice(&self.identity);
        if self.context.framing == Framing::Sse {
            out.put_slice(b"\n\n");
        }
    }

    fn close_with_usage(&self, out: &mut BytesMut) {
        if let Some(usage) = &self.usage {
            write_usage(out, usage);
            out.put_u8(b',');
        }
        self.close(out);
    }

    fn end(&mut self, out: &mut BytesMut) {
        if let Some(reason) = self.blocked.take() {
            self.begin(out);
            out.put_u8(b'{');
            write_feedback(out, &reason);
            out.put_u8(b',');
            self.close_with_usage(out);
        }
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.sort_by_key(|state| state.index);
        let last = candidates.len().saturating_sub(1);
        for (at, state) in candidates.into_iter().enumerate() {
            self.begin(out);
            last_event(out, state);
            if at == last {
                self.close_with_usage(out);
            } else {
                self.close(out);
            }
        }
        if self.context.framing == Framing::JsonArray {
            out.put_slice(if self.opened { b"]" } else { b"[]" });
        }
    }
}

/// Writes the last event of a candidate, without the end that all events share.
fn last_event(out: &mut BytesMut, mut state: CandidateBuffer) {
    for call in std::mem::take(&mut state.calls) {
        state.parts.call(&call.id, &call.name, &call.args);
    }
    state.parts.end();
    out.put_slice(b"{\"candidates\":[{");
    write_content(out, &state.parts.take());
    let (finish, message) = state.finish.unwrap_or((FinishReason::Stop, None));
    let refusal = (!state.refusal.is_empty()).then_some(state.refusal.as_str());
    write_ending(out, &CandidateEnd { finish, malformed: state.parts.malformed, refusal, message: message.as_deref() });
    out.put_slice(format!(",\"index\":{}", state.index).as_bytes());
    write_logprobs(out, &state.logprobs);
    state.mean.write(out);
    write_grounding(out, &state.citations);
    out.put_slice(b"}],");
}

impl StreamEncoder for GeminiStreamEncoder {
    fn push(&mut self, event: Event, out: &mut BytesMut) {
        match event {
            Event::Text { candidate, text, .. } => {
                let state = self.state(candidate);
                if !text.is_empty() {
                    state.release_calls();
                }
                state.parts.text(&text);
                self.ready(candidate, out);
            }
            Event::Think { candidate, text, redacted, signature } => {
                let state = self.state(candidate);
                // Also for hidden text: the block's signature must not be attached to an earlier call.
                state.release_calls();
                state.parts.think(&text, redacted.as_deref(), signature.as_ref());
                self.ready(candidate, out);
            }
            Event::Refusal { candidate, text } => {
                let state = self.state(candidate);
                let remaining = REFUSAL_LIMIT.saturating_sub(state.refusal.len());
                state.refusal.push_str(&text[..text.floor_char_boundary(remaining)]);
                state.parts.text(&text);
                self.ready(candidate, out);
            }
            Event::Media { candidate, media } => {
                let state = self.state(candidate);
                state.release_calls();
                state.parts.media(&media);
                self.ready(candidate, out);
            }
            Event::CallOpen { candidate, call, id, name, .. } => {
                self.state(candidate).calls.push(BufferedCall { call, id, name, args: String::new(), done: false });
            }
            Event::CallArgs { candidate, call, fragment } => {
                if let Some(buffered) = self.state(candidate).calls.iter_mut().rfind(|buffered| buffered.call == call) {
                    buffered.args.push_str(&fragment);
                }
            }
            Event::CallDone { candidate, call } => {
                if let Some(buffered) = self.state(candidate).calls.iter_mut().rfind(|buffered| buffered.call == call) {
                    buffered.done = true;
                }
            }
            Event::Logprobs { candidate, tokens } => {
                let state = self.state(candidate);
                state.mean.add(&tokens);
                let remaining = LOGPROB_LIMIT.saturating_sub(state.logprobs.len());
                state.logprobs.extend(tokens.into_iter().take(remaining));
            }
            Event::Citations { candidate, citations } => {
                let state = self.state(candidate);
                let remaining = CITATION_LIMIT.saturating_sub(state.citations.len());
                state.citations.extend(citations.into_iter().take(remaining));
            }
            Event::Finish { candidate, finish, message, .. } => self.state(candidate).finish = Some((finish, message)),
            Event::BlockedPrompt(blocked) => self.blocked = Some(blocked.reason),
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Unknown { .. } | Event::Searches(_) => {}
            Event::End => self.end(out),
        }
    }

    fn held_bytes(&self) -> usize {
        let of = |state: &CandidateBuffer| {
            let calls = state.calls.iter().map(|call| call.id.capacity() + call.name.capacity() + call.args.capacity());
            let logprobs = state.logprobs.iter().map(TokenLogprob::held_bytes);
            let citations = state.citations.iter().map(Citation::held_bytes);
            state.parts.held_bytes() + calls.chain(logprobs).chain(citations).sum::<usize>()
        };
        self.candidates.iter().map(of).sum()
    }

    fn unwritten_output_bytes(&self) -> usize {
        self.candidates.iter().flat_map(|state| &state.calls).map(|call| call.args.len()).sum()
    }

    fn problem(&mut self, body: &[u8], out: &mut BytesMut) {
        self.begin(out);
        out.put_slice(body);
        if self.context.framing == Framing::Sse {
            out.put_slice(b"\n\n");
        }
    }

    fn keep_alive(&self) -> &'static [u8] {
        match self.context.framing {
            Framing::Sse => b"\n\n",
            Framing::JsonArray => b"\n",
        }
    }
}
