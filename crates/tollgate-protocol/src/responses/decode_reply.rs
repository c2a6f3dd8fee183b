//! Decodes a complete response (OpenAI API reference, "The response object").

use serde_json::value::RawValue;

use super::{
    finish, problem, usage,
    wire::{self, ContentPart, OutputItem, Response},
};
use crate::{
    FinishReason, InvalidReply, StreamError, Usage,
    lenient::{LenientText, is_truthy},
    neutral::{Event, TextMap},
    openai::{custom_arguments, read_tokens},
    scan::Scanner,
};

/// Separates the parts of a thought, each of which is a paragraph with a heading.
pub(super) const PART_BREAK: &str = "\n\n";

pub(super) fn decode(body: &[u8], out: &mut Vec<Event>) -> Result<(), InvalidReply> {
    let answer: Response<'_> = serde_json::from_slice(body).map_err(|_| InvalidReply::Unreadable("not a response"))?;
    if is_truthy(answer.error) {
        return Err(InvalidReply::Problem(Box::new(problem::decode(200, body))));
    }
    if answer.status.is_none() && answer.output.as_ref().is_some_and(Vec::is_empty) {
        return Err(InvalidReply::Unreadable("a response without content"));
    }
    let items = answer.output.as_deref().ok_or(InvalidReply::Unreadable("a response without output"))?;
    let mut position = ReplyPosition::default();
    for item in items {
        position.item(item, out)?;
    }
    let end = ResponseEnd::of(&answer, position.calls > 0)?;
    if end.finish == FinishReason::Fail {
        return Err(InvalidReply::Problem(Box::new(problem::decode(200, body))));
    }
    end.push(out);
    out.push(Event::End);
    Ok(())
}

/// The usage that a response states.
pub(super) fn usage_of(response: &Response<'_>) -> Option<Usage> {
    response.usage.and_then(|raw| usage::read(&mut Scanner::answer(raw.get().as_bytes()).ok()?).ok().flatten())
}

/// How a response ended, and its usage.
pub(super) struct ResponseEnd {
    pub(super) finish: FinishReason,
    native: Option<String>,
    usage: Option<Usage>,
}

impl ResponseEnd {
    /// Fails for a response that is still in progress.
    pub(super) fn of(response: &Response<'_>, called: bool) -> Result<Self, StreamError> {
        let status = response.status.as_ref().map_or("completed", |status| status.0.as_str());
        let reason = response.incomplete_details.as_ref().and_then(|details| details.reason.as_ref()).map(|reason| &reason.0);
        let finish = finish::read(status, reason.map(String::as_str), called);
        let finish = finish.ok_or(StreamError::Malformed("a response that is not over"))?;
        // Only an unknown finish reason needs the upstream's own word.
        let native = (finish == FinishReason::Other).then(|| reason.cloned().unwrap_or_else(|| status.to_owned()));
        Ok(Self { finish, native, usage: usage_of(response) })
    }

    pub(super) fn push(self, out: &mut Vec<Event>) {
        out.extend(self.usage.map(Event::Usage));
        out.push(Event::Finish { candidate: 0, finish: self.finish, native: self.native, message: None });
    }
}

/// Position of an item in the answer.
#[derive(Debug, Default)]
pub(super) struct ReplyPosition {
    /// Preceding calls.
    pub(super) calls: u32,
    /// Preceding bytes of text.
    text: usize,
}

impl ReplyPosition {
    pub(super) const fn at(calls: u32, text: usize) -> Self {
        Self { calls, text }
    }

    /// Calls and bytes of text so far.
    pub(super) const fn reached(&self) -> (u32, usize) {
        (self.calls, self.text)
    }

    pub(super) fn item(&mut self, raw: &RawValue, out: &mut Vec<Event>) -> Result<(), StreamError> {
        let item: OutputItem<'_> =
            serde_json::from_str(raw.get()).map_err(|_| StreamError::Malformed("an item that is not an object"))?;
        match item.kind.as_ref().map(|kind| kind.0.as_str()) {
            Some("message") => item.content.unwrap_or_default().into_iter().for_each(|part| self.part(part, out)),
            Some("reasoning") => {
                let signature = item.sealed();
                let summary = item.summary.unwrap_or_default().into_iter().filter_map(|part| part.text);
                // Open models return the thought itself.
                let content = item.content.unwrap_or_default().into_iter().filter_map(|part| part.text);
                let texts: Vec<String> = summary.chain(content).map(|text| text.0).filter(|text| !text.is_empty()).collect();
                let text = texts.join(PART_BREAK);
                if !text.is_empty() || signature.is_some() {
                    out.push(Event::Think { candidate: 0, text, redacted: None, signature });
                }
            }
            Some("function_call") => {
                let fragment = item.arguments.unwrap_or_default().0;
                self.call(item.call_id, item.name, fragment, out)?;
            }
            Some("custom_tool_call") => self.call(item.call_id, item.name, custom_arguments(item.input), out)?,
            Some("image_generation_call") => match wire::image(item.result, item.output_format) {
                Some(media) => out.push(Event::Media { candidate: 0, media }),
                None => out.push(Event::Unknown { candidate: 0 }),
            },
            _ => out.push(Event::Unknown { candidate: 0 }),
        }
        Ok(())
    }

    fn part(&mut self, part: ContentPart<'_>, out: &mut Vec<Event>) {
        let tokens = part.logprobs.map(read_tokens).unwrap_or_default();
        if !tokens.is_empty() {
            out.push(Event::Logprobs { candidate: 0, tokens });
        }
        if let Some(text) = part.text {
            let mut map = TextMap::default();
            map.push(&text.0);
            let citations = wire::citations(part.annotations, &map, self.text);
            self.text += text.0.len();
            out.push(Event::Text { candidate: 0, text: text.0, signature: None });
            if !citations.is_empty() {
                out.push(Event::Citations { candidate: 0, citations });
            }
        }
        if let Some(text) = LenientText::filled(part.refusal) {
            out.push(Event::Refusal { candidate: 0, text });
        }
    }

    fn call(
        &mut self,
        id: Option<LenientText>,
        name: Option<LenientText>,
        fragment: String,
        out: &mut Vec<Event>,
    ) -> Result<(), StreamError> {
        let call = self.calls;
        self.calls = self.calls.wrapping_add(1);
        let name = LenientText::filled(name).ok_or(StreamError::Malformed("a call without a name"))?;
        let id = id.unwrap_or_default().0;
        out.push(Event::CallOpen { candidate: 0, call, id, name, custom: false, signature: None });
        out.push(Event::CallArgs { candidate: 0, call, fragment });
        out.push(Event::CallDone { candidate: 0, call });
        Ok(())
    }
}
