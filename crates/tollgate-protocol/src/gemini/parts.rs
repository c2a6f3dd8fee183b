//! Writes the parts of a Gemini reply translated from another protocol. Calls without a signature get a placeholder; thoughts that
//! another upstream signed are carried inside signatures.

use bytes::{BufMut, BytesMut};

use crate::{
    Protocol,
    json_text::{arguments_object, take_written, write_json, write_string},
    neutral::{
        Media, MediaSource, ReplyContext, Signature,
        signature::{SealedItem, signature_item},
    },
    opaque_state::{PLACEHOLDER, redacted_item, wrap_items},
};

/// Maximum size in bytes of the signatures of thoughts waiting for a part; later ones are dropped.
const WAITING_LIMIT: usize = 1024 * 1024;

/// Parts of one candidate being written.
#[derive(Debug, Default)]
pub(super) struct PartBuffer {
    include_thoughts: bool,
    carry_thinking: bool,
    /// Parts written since the last [`PartBuffer::take`], separated by commas.
    json: BytesMut,
    /// Thoughts to be carried by the next part.
    waiting: Vec<String>,
    waiting_bytes: usize,
    /// A thinking block has text and no end yet.
    block_open: bool,
    /// The placeholder of the first call was written.
    placeholder_written: bool,
    /// A call was dropped because its arguments are not an object.
    pub malformed: bool,
}

impl PartBuffer {
    /// Bytes of memory kept between two events.
    pub(super) fn held_bytes(&self) -> usize {
        self.json.len() + self.waiting_bytes
    }

    pub(super) fn new(context: &ReplyContext) -> Self {
        Self {
            include_thoughts: context.include_thoughts,
            carry_thinking: context.include_thoughts || context.carry_thinking,
            ..Self::default()
        }
    }

    /// The parts written since the last call, separated by commas; may be empty.
    pub(super) fn take(&mut self) -> BytesMut {
        take_written(&mut self.json)
    }

    /// Whether no part was written since the last [`PartBuffer::take`].
    pub(super) fn is_empty(&self) -> bool {
        self.json.is_empty()
    }

    pub(super) fn text(&mut self, text: &str) {
        self.block_open = false;
        if text.is_empty() {
            return;
        }
        self.open("text");
        write_string(&mut self.json, text);
        let waiting = self.take_waiting();
        self.close(waiting.as_deref());
    }

    /// A complete thought or a piece of one (see [`crate::neutral::Event::Think`]).
    pub(super) fn think(&mut self, text: &str, redacted: Option<&str>, signature: Option<&Signature>) {
        // Chat upstreams sign nothing, and their thoughts do not come back.
        let signature = signature.filter(|signature| signature.owner != Protocol::OpenAi);
        // An Anthropic signature is useless without its text. A seal contains the thought itself.
        let is_sealed = SealedItem::of(signature).is_some();
        if let Some(data) = redacted {
            self.push_waiting(redacted_item(data));
        } else if !text.is_empty() {
            self.block_open = signature.is_none();
            match signature {
                _ if self.include_thoughts => self.thought(text, signature),
                Some(signature) if is_sealed => self.push_waiting(signature_item(signature)),
                Some(_) | None => {}
            }
        } else if let Some(signature) = signature {
            let closes = std::mem::take(&mut self.block_open);
            if closes && self.include_thoughts {
                self.thought("", Some(signature));
            } else if !closes || is_sealed {
                self.push_waiting(signature_item(signature));
            }
        }
    }

    fn thought(&mut self, text: &str, signature: Option<&Signature>) {
        self.open("text");
        write_string(&mut self.json, text);
        self.json.put_slice(b",\"thought\":true");
        let items = signature.and_then(|signature| {
            self.waiting.push(signature_item(signature));
            self.take_waiting()
        });
        self.close(items.as_deref());
    }

    pub(super) fn call(&mut self, id: &str, name: &str, args: &str) {
        self.block_open = false;
        let Some(args) = arguments_object(args) else {
            self.malformed = true;
            return;
        };
        self.open("functionCall");
        self.json.put_slice(b"{\"id\":");
        write_string(&mut self.json, id);
        self.json.put_slice(b",\"name\":");
        write_string(&mut self.json, name);
        self.json.put_slice(b",\"args\":");
        write_json(&mut self.json, &args);
        self.json.put_u8(b'}');
        let first = !std::mem::replace(&mut self.placeholder_written, true);
        let signature = self.take_waiting().or_else(|| first.then(|| PLACEHOLDER.to_owned()));
        self.close(signature.as_deref());
    }

    pub(super) fn media(&mut self, media: &Media) {
        self.block_open = false;
        let (member, place, value) = match &media.source {
            MediaSource::Inline(data) => ("inlineData", "data", data),
            MediaSource::Uri(uri) | MediaSource::Remote(uri) => ("fileData", "fileUri", uri),
        };
        self.open(member);
        self.json.put_u8(b'{');
        if !media.mime.is_empty() {
            self.json.put_slice(b"\"mimeType\":");
            write_string(&mut self.json, &media.mime);
            self.json.put_u8(b',');
        }
        self.json.put_slice(format!("\"{place}\":").as_bytes());
        write_string(&mut self.json, value);
        self.json.put_slice(b"}}");
    }

    /// Writes waiting thoughts at the end of the reply, on an empty text.
    pub(super) fn end(&mut self) {
        if let Some(items) = self.take_waiting() {
            self.open("text");
            self.json.put_slice(b"\"\"");
            self.close(Some(&items));
        }
    }

    fn open(&mut self, member: &str) {
        if !self.json.is_empty() {
            self.json.put_u8(b',');
        }
        self.json.put_slice(b"{\"");
        self.json.put_slice(member.as_bytes());
        self.json.put_slice(b"\":");
    }

    fn close(&mut self, signature: Option<&str>) {
        if let Some(signature) = signature {
            self.json.put_slice(b",\"thoughtSignature\":");
            write_string(&mut self.json, signature);
        }
        self.json.put_u8(b'}');
    }

    fn push_waiting(&mut self, item: String) {
        if self.carry_thinking && self.waiting_bytes + item.len() <= WAITING_LIMIT {
            self.waiting_bytes += item.len();
            self.waiting.push(item);
        }
    }

    /// The waiting items as one signature.
    fn take_waiting(&mut self) -> Option<String> {
        if self.waiting.is_empty() {
            return None;
        }
        self.waiting_bytes = 0;
        Some(wrap_items(&std::mem::take(&mut self.waiting)))
    }
}
