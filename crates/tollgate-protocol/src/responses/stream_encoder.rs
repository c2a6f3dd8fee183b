//! Encodes a Responses stream: output items one after the other, each with its events, and the whole response at the end. The encoder
//! therefore keeps all items. The events that end an item and the response repeat its text, which is kept once, in shared pieces.

mod call;
mod items;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;

use self::{call::OpenCall, items::OpenItem};
use super::{
    carrier, finish,
    output::{ResponseFrame, Status},
};
use crate::{
    FinishReason, Protocol, Usage,
    json_text::{write_separator, write_string},
    neutral::{
        CITATION_BYTES_LIMIT, Citation, Event, Media, MediaSource, ReplyContext, Signature, StreamEncoder, TokenLogprob,
        filtered_sentence,
        signature::{self, ThoughtMember},
    },
    shared_pieces::{Piece, SharedPieces},
    upstream_error::CONTEXT_EXCEEDED,
};

/// End of an event, after its members.
const EVENT_END: &[u8] = b"}\n\n";

/// State of one stream. A response has one candidate; the first to appear is encoded.
#[derive(Debug)]
pub(super) struct ResponsesStreamEncoder {
    /// The member in which a chat upstream sends its thoughts; `None` for other upstreams.
    thought_member: Option<ThoughtMember>,
    frame: ResponseFrame,
    /// False for a complete answer, of which only the response of the last event is written.
    streams: bool,
    started: bool,
    sequence: u64,
    candidate: Option<u32>,
    /// The items so far, `None` for those that are open.
    items: Vec<Option<SharedPieces>>,
    /// The open message or thought.
    open: Option<OpenItem>,
    /// The open calls, in the order of their items.
    calls: Vec<OpenCall>,
    /// A Gemini signature that arrived with a thought. It belongs to the text or call that follows.
    carried: Option<String>,
    /// Log probabilities of the text that follows.
    logprobs: Vec<TokenLogprob>,
    citations: Vec<Citation>,
    citation_bytes: usize,
    /// Bytes of the texts of closed messages.
    text_bytes: usize,
    /// A message, a call or an image was written.
    has_content: bool,
    end: Option<AnswerEnd>,
    usage: Option<Usage>,
    /// Pieces that precede the bytes in the buffer.
    pieces: Vec<Piece>,
    /// The text that is being written, escaped.
    escaped: BytesMut,
}

#[derive(Debug)]
struct AnswerEnd {
    finish: FinishReason,
    native: Option<String>,
    message: Option<String>,
}

impl ResponsesStreamEncoder {
    pub(super) fn new(from: Protocol, context: &ReplyContext) -> Self {
        Self {
            thought_member: (from == Protocol::OpenAi).then_some(ThoughtMember::ReasoningContent),
            frame: ResponseFrame::new(context),
            streams: true,
            started: false,
            sequence: 0,
            candidate: None,
            items: Vec::new(),
            open: None,
            calls: Vec::new(),
            carried: None,
            logprobs: Vec::new(),
            citations: Vec::new(),
            citation_bytes: 0,
            text_bytes: 0,
            has_content: false,
            end: None,
            usage: None,
            pieces: Vec::new(),
            escaped: BytesMut::new(),
        }
    }

    /// An encoder for a complete answer: [`ResponsesStreamEncoder::into_response`] gives it once the events are pushed.
    pub(super) fn complete(from: Protocol, context: &ReplyContext) -> Self {
        Self { streams: false, ..Self::new(from, context) }
    }

    fn is_encoded(&mut self, candidate: u32) -> bool {
        *self.candidate.get_or_insert(candidate) == candidate
    }

    /// Writes an event; `members` writes the members after its sequence number, with a leading comma.
    fn event(&mut self, out: &mut SharedPieces, kind: &str, members: impl FnOnce(&mut SharedPieces)) {
        if self.begin_event(out, kind) {
            members(out);
            out.put_slice(EVENT_END);
        }
    }

    /// Writes an event up to its number. `false` where events are not written.
    fn begin_event(&mut self, out: &mut SharedPieces, kind: &str) -> bool {
        if !self.streams {
            return false;
        }
        out.put_slice(b"event: ");
        out.put_slice(kind.as_bytes());
        out.put_slice(b"\ndata: {\"type\":\"");
        out.put_slice(kind.as_bytes());
        out.put_slice(format!("\",\"sequence_number\":{}", self.sequence).as_bytes());
        self.sequence += 1;
        true
    }

    /// Writes an event with the whole response.
    fn response_event(&mut self, out: &mut SharedPieces, kind: &str, status: Status<'_>) {
        if self.begin_event(out, kind) {
            out.put_slice(b",\"response\":");
            self.write_response(out, status);
            out.put_slice(EVENT_END);
        }
    }

    fn write_response(&self, out: &mut SharedPieces, status: Status<'_>) {
        // Counts of an answer that is not complete are not final.
        let usage = self.usage.as_ref().filter(|_| matches!(status, Status::Completed | Status::Incomplete(_)));
        let items = |out: &mut SharedPieces| {
            for (at, item) in self.items.iter().flatten().enumerate() {
                write_separator(out, at);
                out.append(item);
            }
        };
        self.frame.write(out, status, items, usage);
    }

    /// Writes to the buffer of the caller of this encoder.
    fn write_to(&mut self, out: &mut BytesMut, write: impl FnOnce(&mut Self, &mut SharedPieces)) {
        let mut pieces = SharedPieces::new(std::mem::take(&mut self.pieces), std::mem::take(out));
        write(self, &mut pieces);
        (self.pieces, *out) = pieces.into_parts();
    }

    /// The complete response, of an encoder that writes no events.
    pub(super) fn into_response(mut self) -> Bytes {
        let mut out = SharedPieces::default();
        let status = self.close(&mut out);
        self.write_response(&mut out, status);
        out.into_bytes()
    }

    /// Writes the first two events, once.
    fn start(&mut self, out: &mut SharedPieces) {
        if !std::mem::replace(&mut self.started, true) {
            self.response_event(out, "response.created", Status::InProgress);
            self.response_event(out, "response.in_progress", Status::InProgress);
        }
    }

    // --- parts ---

    fn text(&mut self, out: &mut SharedPieces, text: &str, signature: Option<&Signature>) {
        if text.is_empty() && signature.is_none() {
            return;
        }
        let signed = signature::google(signature).map(str::to_owned).or_else(|| self.carried.take());
        if !text.is_empty() {
            self.message_text(out, text, false);
        }
        match (signed, &mut self.open) {
            (Some(signed), Some(OpenItem::Message(message))) => message.signature = Some(signed),
            (Some(signed), _) => self.sealed_item(out, &carrier::of_text(&signed)),
            (None, _) => {}
        }
    }

    fn thought(&mut self, out: &mut SharedPieces, text: &str, redacted: Option<&str>, signature: Option<&Signature>) {
        if let Some(data) = redacted {
            self.close_open(out);
            self.sealed_item(out, &carrier::of_redacted(data));
            return;
        }
        if !text.is_empty() {
            self.summary_text(out, text);
        }
        let Some(Signature { owner, value }) = signature else { return };
        match owner {
            Protocol::Gemini => self.carried = Some(value.clone()),
            Protocol::Anthropic => {
                let sealed = carrier::of_thinking(value);
                if matches!(self.open, Some(OpenItem::Reasoning(_))) {
                    self.close_reasoning(out, Some(&sealed));
                } else {
                    self.sealed_item(out, &sealed);
                }
            }
            Protocol::OpenAi => self.thought_member = ThoughtMember::of(signature),
            Protocol::Responses => {}
        }
    }

    fn image(&mut self, out: &mut SharedPieces, media: &Media) {
        if let MediaSource::Inline(data) = &media.source {
            self.has_content = true;
            self.image_item(out, &media.mime, data);
        }
    }

    fn keep(&mut self, citations: Vec<Citation>) {
        for citation in citations {
            self.citation_bytes += citation.held_bytes();
            if self.citation_bytes > CITATION_BYTES_LIMIT {
                return;
            }
            self.citations.push(citation);
        }
    }

    // --- end ---

    /// Closes everything; returns the status of the response.
    fn close(&mut self, out: &mut SharedPieces) -> Status<'static> {
        if let Some(carried) = self.carried.take() {
            self.sealed_item(out, &carrier::of_text(&carried));
        }
        let end = self.end.take().unwrap_or(AnswerEnd { finish: FinishReason::Stop, native: None, message: None });
        if !self.has_content && end.finish == FinishReason::Filter {
            self.message_text(out, &filtered_sentence(end.message.as_deref(), end.native.as_deref()), true);
        } else if self.items.is_empty() {
            self.message_text(out, "", false);
        }
        self.start(out);
        let incomplete = finish::incomplete_reason(end.finish);
        self.close_all(out, if incomplete.is_some() { "incomplete" } else { "completed" });
        incomplete.map_or(Status::Completed, Status::Incomplete)
    }

    fn end(&mut self, out: &mut SharedPieces) {
        let status = self.close(out);
        let kind = if matches!(status, Status::Incomplete(_)) { "response.incomplete" } else { "response.completed" };
        self.response_event(out, kind, status);
    }
}

impl ResponsesStreamEncoder {
    fn encode(&mut self, event: Event, out: &mut SharedPieces) {
        match event {
            Event::Text { candidate, text, signature } if self.is_encoded(candidate) => self.text(out, &text, signature.as_ref()),
            Event::Think { candidate, text, redacted, signature } if self.is_encoded(candidate) => {
                self.thought(out, &text, redacted.as_deref(), signature.as_ref());
            }
            Event::CallOpen { candidate, call, id, name, custom, signature } if self.is_encoded(candidate) => {
                self.open_call(out, OpenCall::new(call, id, name, custom), signature.as_ref());
            }
            Event::CallArgs { candidate, call, fragment } if self.is_encoded(candidate) => self.arguments(out, call, &fragment),
            Event::CallDone { candidate, call } if self.is_encoded(candidate) => self.call_done(out, call),
            Event::Media { candidate, media } if self.is_encoded(candidate) => self.image(out, &media),
            Event::Refusal { candidate, text } if self.is_encoded(candidate) && !text.is_empty() => {
                self.message_text(out, &text, true);
            }
            Event::Logprobs { candidate, tokens } if self.is_encoded(candidate) => self.logprobs.extend(tokens),
            Event::Citations { candidate, citations } if self.is_encoded(candidate) => self.keep(citations),
            Event::Finish { candidate, finish, native, message } if self.is_encoded(candidate) => {
                self.end = Some(AnswerEnd { finish, native, message });
            }
            Event::BlockedPrompt(blocked) => {
                self.end = Some(AnswerEnd { finish: FinishReason::Filter, native: None, message: Some(blocked.sentence()) });
            }
            Event::Usage(usage) => self.usage = Some(usage),
            Event::End => self.end(out),
            // Other candidates, and content that the protocol cannot represent.
            Event::Text { .. }
            | Event::Think { .. }
            | Event::CallOpen { .. }
            | Event::CallArgs { .. }
            | Event::CallDone { .. }
            | Event::Media { .. }
            | Event::Refusal { .. }
            | Event::Logprobs { .. }
            | Event::Citations { .. }
            | Event::Finish { .. }
            | Event::Searches(_)
            | Event::Unknown { .. } => {}
        }
    }
}

impl StreamEncoder for ResponsesStreamEncoder {
    fn push(&mut self, event: Event, out: &mut BytesMut) {
        self.write_to(out, |encoder, out| encoder.encode(event, out));
    }

    fn open(&mut self, out: &mut BytesMut) {
        self.write_to(out, Self::start);
    }

    fn take_pieces(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.pieces)
    }

    fn held_bytes(&self) -> usize {
        let items: usize = self.items.iter().flatten().map(SharedPieces::held_bytes).sum();
        let calls: usize = self.calls.iter().map(OpenCall::held_bytes).sum();
        let logprobs: usize = self.logprobs.iter().map(TokenLogprob::held_bytes).sum();
        let open = self.open.as_ref().map_or(0, OpenItem::held_bytes);
        items + calls + logprobs + open + self.citation_bytes + self.frame.held_bytes()
    }

    /// The failed response with the items that are done, then the error in both forms that clients look for. The body ends after it.
    fn problem(&mut self, body: &[u8], out: &mut BytesMut) {
        let error = ErrorBody::of(body);
        self.write_to(out, |encoder, out| {
            encoder.start(out);
            encoder.response_event(out, "response.failed", error.status());
            encoder.event(out, "error", |out| error.write(out));
        });
    }

    fn keep_alive(&self) -> &'static [u8] {
        b": keep-alive\n\n"
    }
}

/// The members of an error body of the gateway.
#[derive(Debug, Default)]
pub(super) struct ErrorBody {
    message: String,
    code: Option<String>,
    /// The error object, unchanged.
    raw: String,
}

impl ErrorBody {
    pub(super) fn of(body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Body<'a> {
            #[serde(borrow)]
            error: &'a serde_json::value::RawValue,
        }
        #[derive(Deserialize)]
        struct Members {
            message: String,
            code: Option<String>,
        }
        let Ok(Body { error }) = serde_json::from_slice(body) else { return Self::default() };
        let Ok(Members { message, code }) = serde_json::from_str(error.get()) else { return Self::default() };
        Self { message, code, raw: error.get().to_owned() }
    }

    /// The failed response. Clients react to many codes in special ways, so only the code for an exceeded context is passed on.
    pub(super) fn status(&self) -> Status<'_> {
        let code = self.code.as_deref().filter(|code| *code == CONTEXT_EXCEEDED).unwrap_or("server_error");
        Status::Failed { code, message: &self.message }
    }

    /// Writes the members of an `error` event, with a leading comma.
    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_slice(b",\"code\":");
        match &self.code {
            Some(code) => write_string(out, code),
            None => out.put_slice(b"null"),
        }
        out.put_slice(b",\"message\":");
        write_string(out, &self.message);
        out.put_slice(b",\"param\":null,\"error\":");
        out.put_slice(if self.raw.is_empty() { b"null" } else { self.raw.as_bytes() });
    }
}
