//! Calls of a stream. Fragments of several calls may interleave, so that calls stay open beside the item that is written.

use bytes::BufMut;

use super::{
    ResponsesStreamEncoder,
    items::{OpenItem, write_delta},
};
use crate::{
    json_text::write_string,
    neutral::{Signature, signature},
    responses::{carrier, output::quoted},
    shared_pieces::SharedPieces,
};

#[derive(Debug)]
pub(super) struct OpenCall {
    call: u32,
    index: usize,
    id: String,
    /// Id of the item.
    item_id: String,
    name: String,
    custom: bool,
    /// The arguments, escaped.
    args: SharedPieces,
    /// True once all arguments have arrived.
    is_complete: bool,
}

impl OpenCall {
    pub(super) fn new(call: u32, id: String, name: String, custom: bool) -> Self {
        let args = SharedPieces::default();
        Self { call, index: 0, id, item_id: String::new(), name, custom, args, is_complete: false }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.id.capacity() + self.item_id.capacity() + self.name.capacity() + self.args.held_bytes()
    }

    /// Name of the arguments in items and of their events.
    const fn member(&self) -> (&'static str, &'static str) {
        if self.custom { ("input", "custom_tool_call_input") } else { ("arguments", "function_call_arguments") }
    }
}

impl ResponsesStreamEncoder {
    /// Begins a call. Its signature goes into the thought before it, or into an item without a text.
    pub(super) fn open_call(&mut self, out: &mut SharedPieces, call: OpenCall, given: Option<&Signature>) {
        let signed = signature::google(given).map(str::to_owned).or_else(|| self.carried.take());
        if let Some(signed) = signed {
            let sealed = carrier::of_call(&signed);
            if matches!(self.open, Some(OpenItem::Reasoning(_))) {
                self.close_reasoning(out, Some(&sealed));
            } else {
                self.sealed_item(out, &sealed);
            }
        }
        let index = self.begin_item(out);
        let prefix = if call.custom { "ctc" } else { "fc" };
        let call = OpenCall { index, item_id: format!("{prefix}_{}_{index}", self.frame.request_id), ..call };
        self.has_content = true;
        let item = SharedPieces::written(|out| self.call_item(out, &call, "in_progress"));
        self.item_added(out, index, |out| out.append(&item));
        self.calls.push(call);
    }

    fn call_item(&self, out: &mut SharedPieces, call: &OpenCall, status: &str) {
        let kind = if call.custom { "custom_tool_call" } else { "function_call" };
        let tool = self.frame.namespaced(&call.name);
        out.put_slice(b"{\"id\":");
        write_string(out, &call.item_id);
        out.put_slice(format!(",\"type\":\"{kind}\",\"status\":\"{status}\",\"call_id\":").as_bytes());
        write_string(out, &call.id);
        out.put_slice(b",\"name\":");
        write_string(out, tool.map_or(&call.name, |tool| &tool.name));
        out.put_slice(format!(",\"{}\":", call.member().0).as_bytes());
        quoted(out, &call.args);
        if let Some(tool) = tool {
            out.put_slice(b",\"namespace\":");
            write_string(out, &tool.namespace);
        }
        out.put_u8(b'}');
    }

    pub(super) fn arguments(&mut self, out: &mut SharedPieces, call: u32, fragment: &str) {
        let escaped = self.escape(fragment);
        let Some(open) = self.calls.iter_mut().rfind(|open| open.call == call).filter(|_| !fragment.is_empty()) else { return };
        open.args.extend(&escaped);
        let (index, id, (_, event)) = (open.index, open.item_id.clone(), open.member());
        self.event(out, &format!("response.{event}.delta"), |out| {
            item_place(out, &id, index);
            write_delta(out, &escaped);
        });
        self.put_back(escaped);
    }

    /// Handles the end of a call's arguments. Whether the last item is complete is known only at the end of the answer.
    pub(super) fn call_done(&mut self, out: &mut SharedPieces, call: u32) {
        if let Some(open) = self.calls.iter_mut().rfind(|open| open.call == call) {
            open.is_complete = true;
        }
        let last = self.items.len().saturating_sub(1);
        while let Some(at) = self.calls.iter().position(|open| open.is_complete && open.index < last) {
            let call = self.calls.remove(at);
            self.close_call(out, call, "completed");
        }
    }

    pub(super) fn close_complete_calls(&mut self, out: &mut SharedPieces) {
        while let Some(at) = self.calls.iter().position(|open| open.is_complete) {
            let call = self.calls.remove(at);
            self.close_call(out, call, "completed");
        }
    }

    /// Closes all calls: the one with index `last` with this status, the others as completed.
    pub(super) fn close_calls(&mut self, out: &mut SharedPieces, last: usize, status: &str) {
        for call in std::mem::take(&mut self.calls) {
            let status = if call.index == last { status } else { "completed" };
            self.close_call(out, call, status);
        }
    }

    fn close_call(&mut self, out: &mut SharedPieces, mut call: OpenCall, status: &str) {
        let (member, event) = call.member();
        let index = call.index;
        if call.args.is_empty() && !call.custom {
            call.args.extend(b"{}");
            let id = call.item_id.clone();
            self.event(out, &format!("response.{event}.delta"), |out| {
                item_place(out, &id, index);
                out.put_slice(b",\"delta\":\"{}\"");
            });
        }
        let name = self.frame.namespaced(&call.name).map_or(&call.name, |tool| &tool.name).clone();
        self.event(out, &format!("response.{event}.done"), |out| {
            item_place(out, &call.item_id, index);
            if !call.custom {
                out.put_slice(b",\"name\":");
                write_string(out, &name);
            }
            out.put_slice(format!(",\"{member}\":").as_bytes());
            quoted(out, &call.args);
        });
        let item = SharedPieces::written(|out| self.call_item(out, &call, status));
        self.item_done(out, index, |out| out.append(&item));
    }
}

/// Writes where an item is, with a leading comma.
fn item_place(out: &mut SharedPieces, id: &str, index: usize) {
    out.put_slice(b",\"item_id\":");
    write_string(out, id);
    out.put_slice(format!(",\"output_index\":{index}").as_bytes());
}
