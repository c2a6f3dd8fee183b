//! Encodes a chat completions stream.

use bytes::{BufMut, Bytes, BytesMut};

use super::reply_fields::{
    blocked_native, image_url, sealed_thought, write_annotations, write_extra_content, write_finish, write_logprobs, write_usage,
};
use crate::{
    FinishReason, Protocol, Usage,
    json_text::write_string,
    neutral::{
        CITATION_BYTES_LIMIT, Citation, Event, Media, ReplyContext, Signature, StreamEncoder, TextMap, TokenLogprob,
        filtered_sentence, find_or_insert,
        signature::{self, SealedItem},
    },
};

/// Maximum size in bytes of sealed thoughts that wait for a call; later ones are dropped.
const SEALED_BYTES_LIMIT: usize = 1024 * 1024;

/// Encodes a stream for a chat completions caller. State is kept per choice: role sent, tool index, content sent.
#[derive(Debug)]
pub(super) struct ChatStreamEncoder {
    frame: Frame,
    choices: Vec<Choice>,
    usage: Option<Usage>,
    include_usage: bool,
}

/// Bytes common to all chunks.
#[derive(Debug)]
struct Frame {
    /// From `data: ` to the bracket that opens `choices`.
    head: Vec<u8>,
    /// From the bracket that closes `choices` to the end of the event.
    tail: &'static [u8],
    /// Whether signatures are carried as suffixes of call ids.
    id_signatures: bool,
    /// Whether the call is written as `function_call`.
    legacy_calls: bool,
    /// Whether the upstream may send sealed thoughts, which are attached to the next call.
    seals: bool,
}

#[derive(Debug, Default)]
struct Choice {
    index: u32,
    /// The chunk with the role was sent.
    role: bool,
    /// `content` was sent with a value other than `null`.
    text: bool,
    /// A call, an image or a refusal was sent.
    other: bool,
    /// `tool_calls[].index` of the next call.
    next_call: u32,
    open: Vec<OpenCall>,
    images: u32,
    logprobs: Vec<TokenLogprob>,
    /// Maps byte to character offsets of the text so far, for citations.
    map: TextMap,
    /// Citations, sent in one chunk before the finish: the accumulators of client libraries reject lists that arrive in pieces.
    citations: Vec<Citation>,
    citation_bytes: usize,
    thoughts: SealedThoughts,
}

/// Thoughts that the upstream sealed and that wait for a call.
#[derive(Debug, Default)]
struct SealedThoughts {
    /// The text of the thought that has not ended.
    summary: String,
    items: Vec<Bytes>,
    bytes: usize,
}

impl SealedThoughts {
    fn push(&mut self, text: &str, signature: Option<&Signature>) {
        if self.bytes + self.summary.len() + text.len() <= SEALED_BYTES_LIMIT {
            self.summary.push_str(text);
        }
        let Some(sealed) = SealedItem::of(signature) else { return };
        let item = sealed_thought(sealed, &std::mem::take(&mut self.summary));
        if self.bytes + item.len() <= SEALED_BYTES_LIMIT {
            self.bytes += item.len();
            self.items.push(item);
        }
    }

    /// Takes the thoughts that precede a call.
    fn take(&mut self) -> Vec<Bytes> {
        std::mem::take(self).items
    }

    const fn held_bytes(&self) -> usize {
        self.bytes + self.summary.len()
    }
}

impl Choice {
    fn keep(&mut self, citations: Vec<Citation>) {
        for citation in citations {
            self.citation_bytes += size_of::<Citation>() + citation.url.len() + citation.title.len();
            if self.citation_bytes > CITATION_BYTES_LIMIT {
                return;
            }
            self.citations.push(citation);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct OpenCall {
    call: u32,
    index: u32,
    custom: bool,
    /// A part of the arguments was sent.
    begun: bool,
}

impl ChatStreamEncoder {
    pub(super) fn new(from: Protocol, context: &ReplyContext) -> Self {
        let mut head = BytesMut::new();
        head.put_slice(b"data: {\"id\":");
        write_string(&mut head, &format!("chatcmpl-{}", context.request_id));
        head.put_slice(format!(",\"object\":\"chat.completion.chunk\",\"created\":{},\"model\":", context.now).as_bytes());
        write_string(&mut head, &context.model);
        head.put_slice(b",\"choices\":[");
        let tail: &[u8] = if context.include_usage { b"],\"usage\":null}\n\n" } else { b"]}\n\n" };
        let seals = from == Protocol::Responses;
        let (id_signatures, legacy_calls) = (context.id_signatures, context.legacy_calls);
        let frame = Frame { head: head.to_vec(), tail, id_signatures, legacy_calls, seals };
        Self { frame, choices: Vec::new(), usage: None, include_usage: context.include_usage }
    }

    fn choice(&mut self, candidate: u32) -> (&Frame, &mut Choice) {
        let new = || Choice { index: candidate, ..Choice::default() };
        (&self.frame, find_or_insert(&mut self.choices, |choice| choice.index == candidate, new))
    }

    fn end(&mut self, out: &mut BytesMut) {
        if let Some(usage) = self.usage.filter(|_| self.include_usage) {
            out.put_slice(&self.frame.head);
            out.put_slice(b"],\"usage\":");
            write_usage(out, &usage);
            out.put_slice(b"}\n\n");
        }
        out.put_slice(b"data: [DONE]\n\n");
    }
}

impl Frame {
    /// Writes one chunk; `delta` writes the members of its delta.
    fn chunk(&self, out: &mut BytesMut, index: u32, logprobs: &[TokenLogprob], delta: impl FnOnce(&mut BytesMut)) {
        out.put_slice(&self.head);
        out.put_slice(b"{\"index\":");
        out.put_slice(index.to_string().as_bytes());
        out.put_slice(b",\"delta\":{");
        delta(out);
        out.put_slice(b"},\"logprobs\":");
        write_logprobs(out, logprobs);
        out.put_slice(b",\"finish_reason\":null}");
        out.put_slice(self.tail);
    }

    /// Writes the last chunk of a choice.
    fn finish(&self, out: &mut BytesMut, index: u32, finish: FinishReason, native: Option<&str>) {
        out.put_slice(&self.head);
        out.put_slice(b"{\"index\":");
        out.put_slice(index.to_string().as_bytes());
        out.put_slice(b",\"delta\":{},\"logprobs\":null,");
        write_finish(out, finish, native, self.legacy_calls);
        out.put_u8(b'}');
        out.put_slice(self.tail);
    }

    /// Writes a chunk whose delta has one string member.
    fn member(&self, out: &mut BytesMut, choice: &mut Choice, name: &str, text: &str, signature: Option<&Signature>) {
        let logprobs = if name == "content" { std::mem::take(&mut choice.logprobs) } else { Vec::new() };
        self.chunk(out, choice.index, &logprobs, |out| {
            out.put_u8(b'"');
            out.put_slice(name.as_bytes());
            out.put_slice(b"\":");
            write_string(out, text);
            write_extra_content(out, signature, &[]);
        });
    }

    /// Writes the first chunk of a choice, once. `text`: the choice starts with text.
    fn role(&self, out: &mut BytesMut, choice: &mut Choice, text: bool) {
        if choice.role {
            return;
        }
        choice.role = true;
        choice.text |= text;
        let content: &[u8] = if text { b"\"\"" } else { b"null" };
        self.chunk(out, choice.index, &[], |out| {
            out.put_slice(b"\"role\":\"assistant\",\"content\":");
            out.put_slice(content);
            out.put_slice(b",\"refusal\":null");
        });
    }

    fn text(&self, out: &mut BytesMut, choice: &mut Choice, text: &str, signature: Option<&Signature>) {
        let signature = signature.filter(|_| signature::google(signature).is_some());
        if text.is_empty() && signature.is_none() {
            return;
        }
        self.role(out, choice, true);
        if text.is_empty() {
            self.chunk(out, choice.index, &[], |out| {
                let mut extra = BytesMut::new();
                write_extra_content(&mut extra, signature, &[]);
                out.put_slice(&extra[1..]);
            });
            return;
        }
        choice.text = true;
        choice.map.push(text);
        self.member(out, choice, "content", text, signature);
    }

    fn refusal(&self, out: &mut BytesMut, choice: &mut Choice, text: &str) {
        if !text.is_empty() {
            self.role(out, choice, false);
            choice.other = true;
            self.member(out, choice, "refusal", text, None);
        }
    }

    fn image(&self, out: &mut BytesMut, choice: &mut Choice, media: &Media) {
        let Some(url) = image_url(media) else { return };
        self.role(out, choice, false);
        choice.other = true;
        self.chunk(out, choice.index, &[], |out| {
            // The accumulators of client libraries reject list entries without an index.
            out.put_slice(
                format!("\"images\":[{{\"index\":{},\"type\":\"image_url\",\"image_url\":{{\"url\":", choice.images).as_bytes(),
            );
            write_string(out, &url);
            out.put_slice(b"}}]");
        });
        choice.images += 1;
    }

    /// Writes the first chunk of a call, the only one with id, type and name.
    fn open_call(
        &self,
        out: &mut BytesMut,
        choice: &mut Choice,
        call: OpenCall,
        id: &str,
        name: &str,
        signature: Option<&Signature>,
    ) {
        self.role(out, choice, false);
        choice.other = true;
        let index = choice.next_call;
        choice.next_call += 1;
        let thoughts = choice.thoughts.take();
        self.chunk(out, choice.index, &[], |out| {
            if self.legacy_calls {
                out.put_slice(b"\"function_call\":{\"name\":");
                write_string(out, name);
                out.put_slice(b",\"arguments\":\"\"}");
                return;
            }
            out.put_slice(format!("\"tool_calls\":[{{\"index\":{index},\"id\":").as_bytes());
            write_string(out, &signature::signed_id(id, signature.filter(|_| self.id_signatures)));
            if call.custom {
                out.put_slice(b",\"type\":\"custom\",\"custom\":{\"name\":");
                write_string(out, name);
                out.put_slice(b",\"input\":\"\"}");
            } else {
                out.put_slice(b",\"type\":\"function\",\"function\":{\"name\":");
                write_string(out, name);
                out.put_slice(b",\"arguments\":\"\"}");
            }
            write_extra_content(out, signature.filter(|_| !call.custom), &thoughts);
            out.put_slice(b"}]");
        });
        choice.open.push(OpenCall { index, ..call });
    }

    fn arguments(&self, out: &mut BytesMut, choice: &mut Choice, call: u32, fragment: &str) {
        let Some(open) = choice.open.iter_mut().rfind(|open| open.call == call) else { return };
        open.begun = true;
        let (index, custom) = (open.index, open.custom);
        self.chunk(out, choice.index, &[], |out| {
            if self.legacy_calls {
                out.put_slice(b"\"function_call\":{\"arguments\":");
                write_string(out, fragment);
                out.put_u8(b'}');
                return;
            }
            let member = if custom { "\"custom\":{\"input\":" } else { "\"function\":{\"arguments\":" };
            out.put_slice(format!("\"tool_calls\":[{{\"index\":{index},{member}").as_bytes());
            write_string(out, fragment);
            out.put_slice(b"}}]");
        });
    }

    fn close_call(&self, out: &mut BytesMut, choice: &mut Choice, call: u32) {
        let Some(at) = choice.open.iter().rposition(|open| open.call == call) else { return };
        if !choice.open[at].begun && !choice.open[at].custom {
            self.arguments(out, choice, call, "{}");
        }
        choice.open.remove(at);
    }

    fn end_choice(
        &self,
        out: &mut BytesMut,
        choice: &mut Choice,
        finish: FinishReason,
        native: Option<&str>,
        message: Option<&str>,
    ) {
        if !choice.logprobs.is_empty() {
            self.flush_logprobs(out, choice);
        }
        self.annotations(out, choice);
        if finish == FinishReason::Filter && !choice.text && !choice.other {
            self.refusal(out, choice, &filtered_sentence(message, native));
        } else if !choice.text && !choice.other {
            // The text of an empty reply is empty, not null.
            if choice.role {
                choice.text = true;
                self.member(out, choice, "content", "", None);
            } else {
                self.role(out, choice, true);
            }
        }
        self.finish(out, choice.index, finish, native);
    }

    fn annotations(&self, out: &mut BytesMut, choice: &mut Choice) {
        let mut members = BytesMut::new();
        write_annotations(&mut members, &std::mem::take(&mut choice.citations), &choice.map);
        if !members.is_empty() {
            self.chunk(out, choice.index, &[], |out| out.put_slice(&members[1..]));
        }
    }

    fn flush_logprobs(&self, out: &mut BytesMut, choice: &mut Choice) {
        self.role(out, choice, true);
        let logprobs = std::mem::take(&mut choice.logprobs);
        self.chunk(out, choice.index, &logprobs, |_| {});
    }
}

impl StreamEncoder for ChatStreamEncoder {
    fn push(&mut self, event: Event, out: &mut BytesMut) {
        match event {
            Event::Text { candidate, text, signature } => {
                let (frame, choice) = self.choice(candidate);
                frame.text(out, choice, &text, signature.as_ref());
            }
            Event::Think { candidate, text, signature, .. } => {
                let (frame, choice) = self.choice(candidate);
                if !text.is_empty() {
                    frame.role(out, choice, false);
                    frame.member(out, choice, "reasoning_content", &text, None);
                }
                if frame.seals {
                    choice.thoughts.push(&text, signature.as_ref());
                }
            }
            Event::CallOpen { candidate, call, id, name, custom, signature } => {
                let (frame, choice) = self.choice(candidate);
                let call = OpenCall { call, custom, index: 0, begun: false };
                frame.open_call(out, choice, call, &id, &name, signature.as_ref());
            }
            Event::CallArgs { candidate, call, fragment } => {
                let (frame, choice) = self.choice(candidate);
                frame.arguments(out, choice, call, &fragment);
            }
            Event::CallDone { candidate, call } => {
                let (frame, choice) = self.choice(candidate);
                frame.close_call(out, choice, call);
            }
            Event::Media { candidate, media } => {
                let (frame, choice) = self.choice(candidate);
                frame.image(out, choice, &media);
            }
            Event::Refusal { candidate, text } => {
                let (frame, choice) = self.choice(candidate);
                frame.refusal(out, choice, &text);
            }
            Event::Logprobs { candidate, tokens } => {
                let (frame, choice) = self.choice(candidate);
                if !choice.logprobs.is_empty() {
                    frame.flush_logprobs(out, choice);
                }
                choice.logprobs = tokens;
            }
            Event::Finish { candidate, finish, native, message } => {
                let (frame, choice) = self.choice(candidate);
                frame.end_choice(out, choice, finish, native.as_deref(), message.as_deref());
            }
            Event::BlockedPrompt(blocked) => {
                let (frame, choice) = self.choice(0);
                frame.refusal(out, choice, &blocked.sentence());
                frame.finish(out, 0, FinishReason::Filter, Some(&blocked_native(&blocked)));
            }
            Event::Usage(usage) => self.usage = Some(usage),
            Event::End => self.end(out),
            Event::Citations { candidate, citations } => self.choice(candidate).1.keep(citations),
            Event::Unknown { .. } | Event::Searches(_) => {}
        }
    }

    fn held_bytes(&self) -> usize {
        let of = |choice: &Choice| {
            let logprobs = choice.logprobs.iter().map(TokenLogprob::held_bytes).sum::<usize>();
            logprobs + choice.citation_bytes + choice.map.held_bytes() + choice.thoughts.held_bytes()
        };
        self.choices.iter().map(of).sum()
    }

    fn problem(&mut self, body: &[u8], out: &mut BytesMut) {
        out.put_slice(b"data: ");
        out.put_slice(body);
        out.put_slice(b"\n\n");
    }

    fn keep_alive(&self) -> &'static [u8] {
        b": keep-alive\n\n"
    }
}
