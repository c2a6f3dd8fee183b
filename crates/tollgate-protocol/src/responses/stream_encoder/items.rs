//! Messages, thoughts and images of a stream.

use bytes::{BufMut, BytesMut};

use super::ResponsesStreamEncoder;
use crate::{
    json_text::write_string,
    neutral::{TextMap, TokenLogprob},
    openai::write_tokens,
    responses::{carrier, output},
};

/// An item that receives text.
#[derive(Debug)]
pub(super) enum OpenItem {
    Message(OpenMessage),
    Reasoning(OpenReasoning),
}

#[derive(Debug)]
pub(super) struct OpenMessage {
    index: usize,
    text: String,
    is_refusal: bool,
    logprobs: Vec<TokenLogprob>,
    /// Maps byte to character offsets, for citations.
    map: TextMap,
    /// A Gemini signature of the text: an item of its own behind the message.
    pub(super) signature: Option<String>,
}

#[derive(Debug)]
pub(super) struct OpenReasoning {
    index: usize,
    text: String,
}

impl OpenItem {
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Message(message) => {
                let logprobs: usize = message.logprobs.iter().map(TokenLogprob::held_bytes).sum();
                message.text.capacity() + message.map.held_bytes() + logprobs
            }
            Self::Reasoning(reasoning) => reasoning.text.capacity(),
        }
    }
}

impl ResponsesStreamEncoder {
    fn item_id(&self, prefix: &str, index: usize) -> String {
        format!("{prefix}_{}_{index}", self.frame.request_id)
    }

    /// Begins an item: what can be closed is closed, and the next index is taken.
    pub(super) fn begin_item(&mut self, out: &mut BytesMut) -> usize {
        self.start(out);
        self.close_open(out);
        self.close_complete_calls(out);
        self.items.push(None);
        self.items.len() - 1
    }

    pub(super) fn item_added(&mut self, out: &mut BytesMut, index: usize, item: &str) {
        self.event(out, "response.output_item.added", |out| {
            out.put_slice(format!(",\"output_index\":{index},\"item\":{item}").as_bytes());
        });
    }

    pub(super) fn item_done(&mut self, out: &mut BytesMut, index: usize, item: String) {
        self.event(out, "response.output_item.done", |out| {
            out.put_slice(format!(",\"output_index\":{index},\"item\":{item}").as_bytes());
        });
        self.items[index] = Some(item);
    }

    /// Closes the open message or thought as complete.
    pub(super) fn close_open(&mut self, out: &mut BytesMut) {
        match self.open.take() {
            Some(OpenItem::Message(message)) => self.close_message(out, message, "completed"),
            Some(open @ OpenItem::Reasoning(_)) => {
                self.open = Some(open);
                let sealed = carrier::unsealed(self.from);
                self.close_reasoning(out, sealed.as_deref());
            }
            None => {}
        }
    }

    /// Closes what is still open. The last item has the status of the response if it is a message or a call.
    pub(super) fn close_all(&mut self, out: &mut BytesMut, status: &str) {
        let last = self.items.len().saturating_sub(1);
        match self.open.take() {
            Some(OpenItem::Message(message)) => {
                let status = if message.index == last { status } else { "completed" };
                self.close_message(out, message, status);
            }
            open @ (Some(OpenItem::Reasoning(_)) | None) => {
                self.open = open;
                self.close_open(out);
            }
        }
        self.close_calls(out, last, status);
    }

    // --- messages ---

    /// Appends text to a message; a refusal is a message of its own.
    pub(super) fn message_text(&mut self, out: &mut BytesMut, text: &str, is_refusal: bool) {
        let fits = matches!(&self.open, Some(OpenItem::Message(message)) if message.is_refusal == is_refusal);
        if !fits {
            self.begin_message(out, is_refusal);
        }
        self.has_content = true;
        let tokens = std::mem::take(&mut self.logprobs);
        let Some(OpenItem::Message(message)) = &mut self.open else { return };
        message.text.push_str(text);
        message.map.push(text);
        let index = message.index;
        message.logprobs.extend(tokens.iter().cloned());
        if text.is_empty() {
            return;
        }
        let id = self.item_id("msg", index);
        let kind = if is_refusal { "response.refusal.delta" } else { "response.output_text.delta" };
        self.event(out, kind, |out| {
            content_place(out, &id, index);
            out.put_slice(b",\"delta\":");
            write_string(out, text);
            if !is_refusal {
                out.put_slice(b",\"logprobs\":");
                write_tokens(out, &tokens);
            }
        });
    }

    fn begin_message(&mut self, out: &mut BytesMut, is_refusal: bool) {
        let index = self.begin_item(out);
        let id = self.item_id("msg", index);
        self.item_added(out, index, &output::message(&id, "in_progress", ""));
        let part = output::content_part("", is_refusal, "[]", &[]);
        self.event(out, "response.content_part.added", |out| {
            content_place(out, &id, index);
            out.put_slice(b",\"part\":");
            out.put_slice(part.as_bytes());
        });
        let (text, map) = (String::new(), TextMap::default());
        self.open = Some(OpenItem::Message(OpenMessage { index, text, is_refusal, logprobs: Vec::new(), map, signature: None }));
    }

    fn close_message(&mut self, out: &mut BytesMut, message: OpenMessage, status: &str) {
        let OpenMessage { index, text, is_refusal, logprobs, map, signature } = message;
        let id = self.item_id("msg", index);
        let annotations = output::annotations(&self.citations, &map, self.text_bytes);
        let part = output::content_part(&text, is_refusal, &annotations, &logprobs);
        let (kind, member) = if is_refusal { ("response.refusal.done", "refusal") } else { ("response.output_text.done", "text") };
        self.event(out, kind, |out| {
            content_place(out, &id, index);
            out.put_slice(format!(",\"{member}\":").as_bytes());
            write_string(out, &text);
            if !is_refusal {
                out.put_slice(b",\"logprobs\":");
                write_tokens(out, &logprobs);
            }
        });
        self.event(out, "response.content_part.done", |out| {
            content_place(out, &id, index);
            out.put_slice(b",\"part\":");
            out.put_slice(part.as_bytes());
        });
        self.item_done(out, index, output::message(&id, status, &part));
        if !is_refusal {
            self.text_bytes += text.len();
        }
        if let Some(signature) = signature {
            self.sealed_item(out, &carrier::of_text(&signature));
        }
    }

    // --- thoughts ---

    /// Appends text to a thought.
    pub(super) fn summary_text(&mut self, out: &mut BytesMut, text: &str) {
        if !matches!(self.open, Some(OpenItem::Reasoning(_))) {
            self.begin_reasoning(out);
        }
        let Some(OpenItem::Reasoning(reasoning)) = &mut self.open else { return };
        reasoning.text.push_str(text);
        let index = reasoning.index;
        let id = self.item_id("rs", index);
        self.event(out, "response.reasoning_summary_text.delta", |out| {
            summary_place(out, &id, index);
            out.put_slice(b",\"delta\":");
            write_string(out, text);
        });
    }

    fn begin_reasoning(&mut self, out: &mut BytesMut) {
        let index = self.begin_item(out);
        let id = self.item_id("rs", index);
        self.item_added(out, index, &output::reasoning(&id, "in_progress", "", None));
        let part = output::summary_part("");
        self.event(out, "response.reasoning_summary_part.added", |out| {
            summary_place(out, &id, index);
            out.put_slice(b",\"part\":");
            out.put_slice(part.as_bytes());
        });
        self.open = Some(OpenItem::Reasoning(OpenReasoning { index, text: String::new() }));
    }

    /// Closes the open thought with what its upstream sealed.
    pub(super) fn close_reasoning(&mut self, out: &mut BytesMut, sealed: Option<&str>) {
        let Some(OpenItem::Reasoning(OpenReasoning { index, text })) = self.open.take() else { return };
        let id = self.item_id("rs", index);
        self.event(out, "response.reasoning_summary_text.done", |out| {
            summary_place(out, &id, index);
            out.put_slice(b",\"text\":");
            write_string(out, &text);
        });
        let part = output::summary_part(&text);
        self.event(out, "response.reasoning_summary_part.done", |out| {
            summary_place(out, &id, index);
            out.put_slice(b",\"part\":");
            out.put_slice(part.as_bytes());
        });
        self.item_done(out, index, output::reasoning(&id, "completed", &text, sealed));
    }

    /// A thought without a text.
    pub(super) fn sealed_item(&mut self, out: &mut BytesMut, sealed: &str) {
        let index = self.begin_item(out);
        let id = self.item_id("rs", index);
        self.item_added(out, index, &output::reasoning(&id, "in_progress", "", None));
        self.item_done(out, index, output::reasoning(&id, "completed", "", Some(sealed)));
    }

    // --- images ---

    pub(super) fn image_item(&mut self, out: &mut BytesMut, mime: &str, data: &str) {
        let index = self.begin_item(out);
        let id = self.item_id("ig", index);
        self.item_added(out, index, &output::image(&id, "in_progress", mime, None));
        self.item_done(out, index, output::image(&id, "completed", mime, Some(data)));
    }
}

/// Writes where a content part is, with a leading comma.
fn content_place(out: &mut BytesMut, id: &str, index: usize) {
    out.put_slice(b",\"item_id\":");
    write_string(out, id);
    out.put_slice(format!(",\"output_index\":{index},\"content_index\":0").as_bytes());
}

/// Writes where a summary part is, with a leading comma.
fn summary_place(out: &mut BytesMut, id: &str, index: usize) {
    out.put_slice(b",\"item_id\":");
    write_string(out, id);
    out.put_slice(format!(",\"output_index\":{index},\"summary_index\":0").as_bytes());
}
