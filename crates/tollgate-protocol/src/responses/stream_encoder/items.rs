//! Messages, thoughts and images of a stream.

use bytes::{BufMut, BytesMut};

use super::ResponsesStreamEncoder;
use crate::{
    json_text::{write_escaped, write_string},
    neutral::{TextMap, TokenLogprob, signature::ThoughtMember},
    openai::{write_token_entries, write_tokens},
    responses::{
        carrier,
        output::{self, TextParts, quoted},
    },
    shared_pieces::SharedPieces,
};

/// Buffers of longer texts are not kept for the next one.
const LARGE_DELTA: usize = 16 * 1024;

/// An item that receives text.
#[derive(Debug)]
pub(super) enum OpenItem {
    Message(OpenMessage),
    Reasoning(OpenReasoning),
}

#[derive(Debug)]
pub(super) struct OpenMessage {
    index: usize,
    /// The escaped text, and its length before escaping.
    text: SharedPieces,
    text_bytes: usize,
    is_refusal: bool,
    /// The entries of the list of log probabilities.
    logprobs: SharedPieces,
    /// Maps byte to character offsets, for citations.
    map: TextMap,
    /// A Gemini signature of the text. It becomes a separate item after the message.
    pub(super) signature: Option<String>,
}

#[derive(Debug)]
pub(super) struct OpenReasoning {
    index: usize,
    /// The text, escaped.
    text: SharedPieces,
}

impl OpenMessage {
    fn new(index: usize, is_refusal: bool) -> Self {
        Self {
            index,
            text: SharedPieces::default(),
            text_bytes: 0,
            is_refusal,
            logprobs: SharedPieces::default(),
            map: TextMap::default(),
            signature: None,
        }
    }

    fn keep_tokens(&mut self, tokens: &[TokenLogprob]) {
        if !tokens.is_empty() && !self.is_refusal {
            let mut entries = BytesMut::new();
            if !self.logprobs.is_empty() {
                entries.put_u8(b',');
            }
            write_token_entries(&mut entries, tokens);
            self.logprobs.extend(&entries);
        }
    }

    /// Writes its content part.
    fn write_part(&self, out: &mut SharedPieces, annotations: &str) {
        let parts = TextParts { annotations, logprobs: &self.logprobs };
        output::content_part(out, &self.text, (!self.is_refusal).then_some(&parts));
    }
}

impl OpenItem {
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Message(message) => message.text.held_bytes() + message.map.held_bytes() + message.logprobs.held_bytes(),
            Self::Reasoning(reasoning) => reasoning.text.held_bytes(),
        }
    }
}

impl ResponsesStreamEncoder {
    fn item_id(&self, prefix: &str, index: usize) -> String {
        format!("{prefix}_{}_{index}", self.frame.request_id)
    }

    /// Begins an item: closes the items that can be closed and takes the next index.
    pub(super) fn begin_item(&mut self, out: &mut SharedPieces) -> usize {
        self.start(out);
        self.close_open(out);
        self.close_complete_calls(out);
        self.items.push(None);
        self.items.len() - 1
    }

    /// Writes the event for a new item. `write` writes the item.
    pub(super) fn item_added(&mut self, out: &mut SharedPieces, index: usize, write: impl FnOnce(&mut SharedPieces)) {
        self.event(out, "response.output_item.added", |out| {
            out.put_slice(format!(",\"output_index\":{index},\"item\":").as_bytes());
            write(out);
        });
    }

    /// Writes the event for a finished item and keeps the item for the response at the end. `write` writes the item.
    pub(super) fn item_done(&mut self, out: &mut SharedPieces, index: usize, write: impl FnOnce(&mut SharedPieces)) {
        let item = SharedPieces::written(write);
        self.event(out, "response.output_item.done", |out| {
            out.put_slice(format!(",\"output_index\":{index},\"item\":").as_bytes());
            out.append(&item);
        });
        self.items[index] = Some(item);
    }

    /// Closes the open message or thought as complete.
    pub(super) fn close_open(&mut self, out: &mut SharedPieces) {
        match self.open.take() {
            Some(OpenItem::Message(message)) => self.close_message(out, message, "completed"),
            Some(open @ OpenItem::Reasoning(_)) => {
                self.open = Some(open);
                let mark = self.thought_member.map(ThoughtMember::mark);
                self.close_reasoning(out, mark);
            }
            None => {}
        }
    }

    /// Closes the open item. The last item has the status of the response if it is a message or a call.
    pub(super) fn close_all(&mut self, out: &mut SharedPieces, status: &str) {
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

    /// Appends text to a message. A refusal is a separate message.
    pub(super) fn message_text(&mut self, out: &mut SharedPieces, text: &str, is_refusal: bool) {
        let fits = matches!(&self.open, Some(OpenItem::Message(message)) if message.is_refusal == is_refusal);
        if !fits {
            self.begin_message(out, is_refusal);
        }
        self.has_content = true;
        let tokens = std::mem::take(&mut self.logprobs);
        let escaped = self.escape(text);
        let Some(OpenItem::Message(message)) = &mut self.open else { return };
        message.text.extend(&escaped);
        message.text_bytes += text.len();
        message.map.push(text);
        message.keep_tokens(&tokens);
        let index = message.index;
        if !text.is_empty() {
            let id = self.item_id("msg", index);
            let kind = if is_refusal { "response.refusal.delta" } else { "response.output_text.delta" };
            self.event(out, kind, |out| {
                content_place(out, &id, index);
                write_delta(out, &escaped);
                if !is_refusal {
                    out.put_slice(b",\"logprobs\":");
                    write_tokens(out, &tokens);
                }
            });
        }
        self.put_back(escaped);
    }

    /// Escapes a text into the reused buffer. Return the buffer with [`Self::put_back`].
    pub(super) fn escape(&mut self, text: &str) -> BytesMut {
        let mut escaped = std::mem::take(&mut self.escaped);
        write_escaped(&mut escaped, text);
        escaped
    }

    pub(super) fn put_back(&mut self, mut escaped: BytesMut) {
        if escaped.capacity() <= LARGE_DELTA {
            escaped.clear();
            self.escaped = escaped;
        }
    }

    fn begin_message(&mut self, out: &mut SharedPieces, is_refusal: bool) {
        let index = self.begin_item(out);
        let id = self.item_id("msg", index);
        self.item_added(out, index, |out| output::message(out, &id, "in_progress", |_| {}));
        let message = OpenMessage::new(index, is_refusal);
        self.event(out, "response.content_part.added", |out| {
            content_place(out, &id, index);
            out.put_slice(b",\"part\":");
            message.write_part(out, "[]");
        });
        self.open = Some(OpenItem::Message(message));
    }

    fn close_message(&mut self, out: &mut SharedPieces, message: OpenMessage, status: &str) {
        let (index, is_refusal) = (message.index, message.is_refusal);
        let id = self.item_id("msg", index);
        let annotations = output::annotations(&self.citations, &message.map, self.text_bytes);
        let (kind, member) = if is_refusal { ("response.refusal.done", "refusal") } else { ("response.output_text.done", "text") };
        self.event(out, kind, |out| {
            content_place(out, &id, index);
            out.put_slice(format!(",\"{member}\":").as_bytes());
            quoted(out, &message.text);
            if !is_refusal {
                out.put_slice(b",\"logprobs\":[");
                out.append(&message.logprobs);
                out.put_u8(b']');
            }
        });
        self.event(out, "response.content_part.done", |out| {
            content_place(out, &id, index);
            out.put_slice(b",\"part\":");
            message.write_part(out, &annotations);
        });
        self.item_done(out, index, |out| {
            output::message(out, &id, status, |out| message.write_part(out, &annotations));
        });
        if !is_refusal {
            self.text_bytes += message.text_bytes;
        }
        if let Some(signature) = message.signature {
            self.sealed_item(out, &carrier::of_text(&signature));
        }
    }

    // --- thoughts ---

    /// Appends text to a thought.
    pub(super) fn summary_text(&mut self, out: &mut SharedPieces, text: &str) {
        if !matches!(self.open, Some(OpenItem::Reasoning(_))) {
            self.begin_reasoning(out);
        }
        let escaped = self.escape(text);
        let Some(OpenItem::Reasoning(reasoning)) = &mut self.open else { return };
        reasoning.text.extend(&escaped);
        let index = reasoning.index;
        let id = self.item_id("rs", index);
        self.event(out, "response.reasoning_summary_text.delta", |out| {
            summary_place(out, &id, index);
            write_delta(out, &escaped);
        });
        self.put_back(escaped);
    }

    fn begin_reasoning(&mut self, out: &mut SharedPieces) {
        let index = self.begin_item(out);
        let id = self.item_id("rs", index);
        let text = SharedPieces::default();
        self.item_added(out, index, |out| output::reasoning(out, &id, "in_progress", &text, None));
        self.event(out, "response.reasoning_summary_part.added", |out| {
            summary_place(out, &id, index);
            out.put_slice(b",\"part\":");
            output::summary_part(out, &text);
        });
        self.open = Some(OpenItem::Reasoning(OpenReasoning { index, text }));
    }

    /// Closes the open thought with the sealed content from its upstream.
    pub(super) fn close_reasoning(&mut self, out: &mut SharedPieces, sealed: Option<&str>) {
        let Some(OpenItem::Reasoning(OpenReasoning { index, text })) = self.open.take() else { return };
        let id = self.item_id("rs", index);
        self.event(out, "response.reasoning_summary_text.done", |out| {
            summary_place(out, &id, index);
            out.put_slice(b",\"text\":");
            quoted(out, &text);
        });
        self.event(out, "response.reasoning_summary_part.done", |out| {
            summary_place(out, &id, index);
            out.put_slice(b",\"part\":");
            output::summary_part(out, &text);
        });
        self.item_done(out, index, |out| output::reasoning(out, &id, "completed", &text, sealed));
    }

    /// Writes a thought without text.
    pub(super) fn sealed_item(&mut self, out: &mut SharedPieces, sealed: &str) {
        let index = self.begin_item(out);
        let id = self.item_id("rs", index);
        let text = SharedPieces::default();
        self.item_added(out, index, |out| output::reasoning(out, &id, "in_progress", &text, None));
        self.item_done(out, index, |out| output::reasoning(out, &id, "completed", &text, Some(sealed)));
    }

    // --- images ---

    pub(super) fn image_item(&mut self, out: &mut SharedPieces, mime: &str, data: &str) {
        let index = self.begin_item(out);
        let id = self.item_id("ig", index);
        let data = SharedPieces::written(|out| out.extend(&self.escape(data)));
        self.item_added(out, index, |out| output::image(out, &id, "in_progress", mime, None));
        self.item_done(out, index, |out| output::image(out, &id, "completed", mime, Some(&data)));
    }
}

/// Writes the escaped text of a delta, with a leading comma.
pub(super) fn write_delta(out: &mut SharedPieces, escaped: &[u8]) {
    out.put_slice(b",\"delta\":\"");
    out.put_slice(escaped);
    out.put_u8(b'"');
}

/// Writes where a content part is, with a leading comma.
fn content_place(out: &mut SharedPieces, id: &str, index: usize) {
    out.put_slice(b",\"item_id\":");
    write_string(out, id);
    out.put_slice(format!(",\"output_index\":{index},\"content_index\":0").as_bytes());
}

/// Writes where a summary part is, with a leading comma.
fn summary_place(out: &mut SharedPieces, id: &str, index: usize) {
    out.put_slice(b",\"item_id\":");
    write_string(out, id);
    out.put_slice(format!(",\"output_index\":{index},\"summary_index\":0").as_bytes());
}
