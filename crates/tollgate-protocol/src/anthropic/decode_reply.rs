//! Decodes a complete message (Anthropic API reference, "Messages").

use serde_json::value::RawValue;

use super::{
    finish,
    usage::MessagesUsageCounts,
    wire::{self, ContentBlock, MessagesResponse},
};
use crate::{
    Codec, FinishReason, InvalidReply, Protocol, Usage,
    lenient::{LenientText, is_truthy, text_of},
    neutral::{Event, Signature},
    scan::Scanner,
};

pub(super) fn decode(body: &[u8], out: &mut Vec<Event>) -> Result<(), InvalidReply> {
    let answer: MessagesResponse<'_> = serde_json::from_slice(body).map_err(|_| InvalidReply::Unreadable("not a message"))?;
    if is_truthy(answer.error) || answer.kind.as_ref().is_some_and(|kind| kind.0 == "error") {
        return Err(InvalidReply::Problem(Box::new(super::Anthropic.decode_problem(200, body))));
    }
    if let Some(usage) = answer.usage.and_then(|raw| read_usage(&mut MessagesUsageCounts::default(), raw)) {
        out.push(Event::Usage(usage));
    }
    let content = answer.content.ok_or(InvalidReply::Unreadable("a message without content"))?;
    let begin = out.len();
    let mut position = ReplyPosition::default();
    for block in content {
        self::block(block, &mut position, out)?;
    }
    let native = LenientText::filled(answer.stop_reason);
    if native.is_none() && out[begin..].iter().all(|event| !event.is_content()) {
        return Err(InvalidReply::Unreadable("an empty message"));
    }
    let finish = native.as_deref().map_or(FinishReason::Stop, finish::read);
    let message = answer.stop_details.and_then(|details| LenientText::filled(details.explanation));
    out.push(Event::Finish { candidate: 0, finish, native, message });
    out.push(Event::End);
    Ok(())
}

/// Updates `counts` with a `usage` object and returns the usage known so far.
pub(super) fn read_usage(counts: &mut MessagesUsageCounts, raw: &RawValue) -> Option<Usage> {
    counts.read(&mut Scanner::answer(raw.get().as_bytes()).ok()?).ok()?;
    counts.usage()
}

/// Position of a block in the answer.
#[derive(Default)]
struct ReplyPosition {
    /// Preceding calls.
    calls: u32,
    /// Preceding bytes of text.
    text: usize,
}

fn block(block: ContentBlock<'_>, position: &mut ReplyPosition, out: &mut Vec<Event>) -> Result<(), InvalidReply> {
    match block.kind.0.as_str() {
        "text" => {
            let text = block.text.unwrap_or_default().0;
            let start = position.text;
            position.text += text.len();
            out.push(Event::Text { candidate: 0, text, signature: None });
            if let Some(citations) = block.citations {
                let list = serde_json::from_str::<Option<Vec<&RawValue>>>(citations.get()).ok().flatten().unwrap_or_default();
                let citations: Vec<_> = list.into_iter().filter_map(|raw| wire::citation(raw, start, position.text)).collect();
                if !citations.is_empty() {
                    out.push(Event::Citations { candidate: 0, citations });
                }
            }
        }
        "thinking" => {
            let text = block.thinking.unwrap_or_default().0;
            out.push(Event::Think { candidate: 0, text, redacted: None, signature: signature(block.signature) });
        }
        "redacted_thinking" => out.extend(redacted(block.data)),
        "tool_use" => {
            let call = position.calls;
            position.calls = position.calls.wrapping_add(1);
            let id = block.id.unwrap_or_default().0;
            let name = LenientText::filled(block.name).ok_or(InvalidReply::Unreadable("a call without a name"))?;
            let fragment = wire::input(block.input)?.unwrap_or_else(|| "{}".to_owned());
            out.push(Event::CallOpen { candidate: 0, call, id, name, custom: false, signature: None });
            out.push(Event::CallArgs { candidate: 0, call, fragment });
            out.push(Event::CallDone { candidate: 0, call });
        }
        _ => out.push(Event::Unknown { candidate: 0 }),
    }
    Ok(())
}

pub(super) fn signature(value: Option<LenientText>) -> Option<Signature> {
    LenientText::filled(value).map(|value| Signature { owner: Protocol::Anthropic, value })
}

/// The event of a `redacted_thinking` block.
pub(super) fn redacted(data: Option<&RawValue>) -> Option<Event> {
    let data = data.and_then(text_of)?;
    Some(Event::Think { candidate: 0, text: String::new(), redacted: Some(data), signature: None })
}
