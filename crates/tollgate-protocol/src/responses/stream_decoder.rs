//! Decodes a Responses stream (OpenAI API reference, "Streaming events"). Content that did not arrive in pieces is read from the finished
//! item, or from the response at the end.

use serde_json::value::RawValue;

use super::{
    decode_reply::{PART_BREAK, ReplyPosition, ResponseEnd, usage_of},
    problem,
    wire::{self, OutputItem, Response, ResponseEvent},
};
use crate::{
    FinishReason, StreamError,
    lenient::{LenientText, TextJoiner, part_of},
    neutral::{CALL_BYTES_LIMIT, Event, OPEN_CALL_LIMIT, StreamDecoder, TextMap},
    openai::{custom_arguments, read_tokens},
};

#[derive(Debug, Default)]
pub(super) struct ResponsesStreamDecoder {
    /// Items that are not done.
    open: Vec<OpenItem>,
    /// Items that are done, and calls among all items.
    done: u64,
    calls: u32,
    /// Bytes of texts so far.
    text: usize,
    /// Bytes of the inputs of custom tools, which are kept until they are whole.
    input_bytes: usize,
}

#[derive(Debug)]
struct OpenItem {
    index: u64,
    /// Number of the call, if it is one.
    call: Option<u32>,
    /// The input of a custom tool so far.
    input: Option<String>,
    /// True if some of its content arrived in pieces.
    streamed: bool,
    /// The next piece begins another part of a summary.
    begins_part: bool,
    joiner: TextJoiner,
    /// The text of the item and where it begins, for citations.
    map: TextMap,
    start: usize,
}

impl StreamDecoder for ResponsesStreamDecoder {
    fn push(&mut self, data: &[u8], out: &mut Vec<Event>) -> Result<(), StreamError> {
        if data.trim_ascii() == b"[DONE]" {
            return Ok(());
        }
        let event: ResponseEvent<'_> = serde_json::from_slice(data).map_err(|_| StreamError::Malformed("not a stream event"))?;
        let index = event.output_index.or_zero();
        let kind = event.kind.as_ref().map(|kind| kind.0.as_str()).unwrap_or_default();
        match kind {
            "error" | "response.failed" => {
                if self.done > 0 || self.text > 0 || self.calls > 0 {
                    // Usage up to the point where the answer broke off.
                    let response = event.response.and_then(|raw| serde_json::from_str::<Response<'_>>(raw.get()).ok());
                    out.extend(response.and_then(|response| usage_of(&response)).map(Event::Usage));
                }
                Err(StreamError::Problem(Box::new(problem::decode(200, data))))
            }
            // Servers in front of the upstream send errors without a type.
            "" if event.error.is_some() => Err(StreamError::Problem(Box::new(problem::decode(200, data)))),
            "response.output_item.added" => self.added(index, event.item, out),
            "response.output_item.done" => self.done(index, event.item, out),
            "response.output_text.delta" => {
                let tokens = event.logprobs.map(read_tokens).unwrap_or_default();
                if !tokens.is_empty() {
                    out.push(Event::Logprobs { candidate: 0, tokens });
                }
                self.text(index, event.delta, out)
            }
            "response.refusal.delta" => {
                let text = self.piece(index, event.delta)?;
                out.extend(Some(text).filter(|text| !text.is_empty()).map(|text| Event::Refusal { candidate: 0, text }));
                Ok(())
            }
            "response.reasoning_summary_part.added" => {
                let item = self.item(index)?;
                item.begins_part = item.streamed;
                Ok(())
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => self.thought(index, event.delta, out),
            "response.output_text.annotation.added" => {
                let item = self.item(index)?;
                let citation = event.annotation.and_then(|raw| wire::citation(raw, &item.map, item.start));
                out.extend(citation.map(|citation| Event::Citations { candidate: 0, citations: vec![citation] }));
                Ok(())
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.arguments(index, event.delta, out)
            }
            "response.completed" | "response.incomplete" => self.completed(event.response, data, out),
            _ => Ok(()),
        }
    }

    fn end(&mut self, out: &mut Vec<Event>) -> Result<(), StreamError> {
        for item in std::mem::take(&mut self.open) {
            close(item, out);
        }
        Ok(())
    }

    fn held_bytes(&self) -> usize {
        let of = |item: &OpenItem| item.map.held_bytes() + item.input.as_ref().map_or(0, String::capacity);
        self.open.iter().map(of).sum()
    }

    fn withheld_bytes(&self) -> usize {
        self.input_bytes
    }

    fn marks_end(&self) -> bool {
        true
    }
}

impl ResponsesStreamDecoder {
    fn added(&mut self, index: u64, item: Option<&RawValue>, out: &mut Vec<Event>) -> Result<(), StreamError> {
        let item: OutputItem<'_> = item
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .ok_or(StreamError::Malformed("an item that is not an object"))?;
        let kind = item.kind.as_ref().map(|kind| kind.0.as_str());
        let is_custom = kind == Some("custom_tool_call");
        let opened = self.item(index)?;
        opened.input = is_custom.then(String::new);
        if is_custom || kind == Some("function_call") {
            let name = LenientText::filled(item.name).ok_or(StreamError::Malformed("a call without a name"))?;
            let call = self.calls;
            self.item(index)?.call = Some(call);
            self.calls = self.calls.wrapping_add(1);
            let id = item.call_id.unwrap_or_default().0;
            out.push(Event::CallOpen { candidate: 0, call, id, name, custom: false, signature: None });
        }
        Ok(())
    }

    /// The open item with this index; a piece may come before its item.
    fn item(&mut self, index: u64) -> Result<&mut OpenItem, StreamError> {
        let at = match self.open.iter().position(|item| item.index == index) {
            Some(at) => at,
            None if self.open.len() == OPEN_CALL_LIMIT => return Err(StreamError::Malformed("too many items open at once")),
            None => {
                let (joiner, map) = (TextJoiner::default(), TextMap::default());
                let start = self.text;
                self.open.push(OpenItem {
                    index,
                    call: None,
                    input: None,
                    streamed: false,
                    begins_part: false,
                    joiner,
                    map,
                    start,
                });
                self.open.len() - 1
            }
        };
        Ok(&mut self.open[at])
    }

    /// The text of a piece.
    fn piece(&mut self, index: u64, delta: Option<&RawValue>) -> Result<String, StreamError> {
        let item = self.item(index)?;
        let text = delta.and_then(part_of).map(|text| item.joiner.join(text)).unwrap_or_default();
        item.streamed |= !text.is_empty();
        Ok(text)
    }

    fn thought(&mut self, index: u64, delta: Option<&RawValue>, out: &mut Vec<Event>) -> Result<(), StreamError> {
        let text = self.piece(index, delta)?;
        if !text.is_empty() {
            let begins_part = std::mem::take(&mut self.item(index)?.begins_part);
            think(if begins_part { [PART_BREAK, &text].concat() } else { text }, out);
        }
        Ok(())
    }

    fn text(&mut self, index: u64, delta: Option<&RawValue>, out: &mut Vec<Event>) -> Result<(), StreamError> {
        let text = self.piece(index, delta)?;
        if !text.is_empty() {
            self.item(index)?.map.push(&text);
            self.text += text.len();
            out.push(Event::Text { candidate: 0, text, signature: None });
        }
        Ok(())
    }

    fn arguments(&mut self, index: u64, delta: Option<&RawValue>, out: &mut Vec<Event>) -> Result<(), StreamError> {
        let fragment = self.piece(index, delta)?;
        let item = self.item(index)?;
        match (item.call, &mut item.input) {
            (_, Some(input)) => {
                input.push_str(&fragment);
                self.input_bytes += fragment.len();
                if self.input_bytes > CALL_BYTES_LIMIT {
                    return Err(StreamError::Malformed("calls larger than the limit"));
                }
            }
            (Some(call), None) if !fragment.is_empty() => out.push(Event::CallArgs { candidate: 0, call, fragment }),
            (_, None) => {}
        }
        Ok(())
    }

    /// Handles a finished item: content that did not arrive in pieces is read from it.
    fn done(&mut self, index: u64, raw: Option<&RawValue>, out: &mut Vec<Event>) -> Result<(), StreamError> {
        self.done = self.done.max(index + 1);
        let open = self.open.iter().position(|item| item.index == index).map(|at| self.open.remove(at));
        let Some(raw) = raw else { return Ok(()) };
        let item: OutputItem<'_> =
            serde_json::from_str(raw.get()).map_err(|_| StreamError::Malformed("an item that is not an object"))?;
        match open {
            Some(mut open) if open.call.is_some() => {
                if !open.streamed {
                    if let Some(input) = &mut open.input {
                        *input = item.input.and_then(part_of).unwrap_or_default().0;
                    } else {
                        let fragment = item.arguments.unwrap_or_default().0;
                        let call = open.call.unwrap_or_default();
                        out.push(Event::CallArgs { candidate: 0, call, fragment });
                    }
                }
                close(open, out);
            }
            Some(open) if open.streamed => {
                let sealed = item.sealed();
                let parts = item.content.unwrap_or_default();
                let citations: Vec<_> =
                    parts.iter().flat_map(|part| wire::citations(part.annotations, &open.map, open.start)).collect();
                close(open, out);
                if !citations.is_empty() {
                    out.push(Event::Citations { candidate: 0, citations });
                }
                if sealed.is_some() {
                    out.push(Event::Think { candidate: 0, text: String::new(), redacted: None, signature: sealed });
                }
            }
            Some(_) | None => self.whole(raw, out)?,
        }
        Ok(())
    }

    /// Handles an item of which nothing arrived before.
    fn whole(&mut self, raw: &RawValue, out: &mut Vec<Event>) -> Result<(), StreamError> {
        let mut position = ReplyPosition::at(self.calls, self.text);
        position.item(raw, out)?;
        (self.calls, self.text) = position.reached();
        Ok(())
    }

    fn completed(&mut self, raw: Option<&RawValue>, data: &[u8], out: &mut Vec<Event>) -> Result<(), StreamError> {
        let response: Response<'_> =
            raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).ok_or(StreamError::Malformed("an end without a response"))?;
        self.end(out)?;
        if self.done == 0 && self.text == 0 && self.calls == 0 {
            for item in response.output.iter().flatten() {
                self.whole(item, out)?;
            }
        }
        let end = ResponseEnd::of(&response, self.calls > 0)?;
        if end.finish == FinishReason::Fail {
            return Err(StreamError::Problem(Box::new(problem::decode(200, data))));
        }
        end.push(out);
        out.push(Event::End);
        Ok(())
    }
}

/// Appends the rest of an item: a pending half of a surrogate pair, the input of a custom tool.
fn close(mut item: OpenItem, out: &mut Vec<Event>) {
    let rest = item.joiner.finish().unwrap_or_default();
    match (item.call, item.input) {
        (Some(call), Some(mut input)) => {
            input.push_str(&rest);
            let raw = serde_json::value::to_raw_value(&input).ok();
            out.push(Event::CallArgs { candidate: 0, call, fragment: custom_arguments(raw.as_deref()) });
            out.push(Event::CallDone { candidate: 0, call });
        }
        (Some(call), None) => {
            if !rest.is_empty() {
                out.push(Event::CallArgs { candidate: 0, call, fragment: rest });
            }
            out.push(Event::CallDone { candidate: 0, call });
        }
        (None, _) if item.map.bytes() == 0 => think(rest, out),
        (None, _) if !rest.is_empty() => out.push(Event::Text { candidate: 0, text: rest, signature: None }),
        (None, _) => {}
    }
}

fn think(text: String, out: &mut Vec<Event>) {
    if !text.is_empty() {
        out.push(Event::Think { candidate: 0, text, redacted: None, signature: None });
    }
}
