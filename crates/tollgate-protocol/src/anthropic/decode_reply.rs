//! Reads a complete message (Anthropic wire reference, section 7).

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

/// Appends what a complete answer means, its end included.
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
    let mut state = Position::default();
    for block in content {
        self::block(block, &mut state, out)?;
    }
    let native = LenientText::filled(answer.stop_reason);
    if native.is_none() && out[begin..].iter().all(|event| !event.is_content()) {
        return Err(InvalidReply::Unreadable("a message with nothing in it"));
    }
    let finish = native.as_deref().map_or(FinishReason::Stop, finish::read);
    let message = answer.stop_details.and_then(|details| LenientText::filled(details.explanation));
    out.push(Event::Finish { candidate: 0, finish, native, message });
    out.push(Event::End);
    Ok(())
}

/// The usage known with a usage object on top of `counts`.
pub(super) fn read_usage(counts: &mut MessagesUsageCounts, raw: &RawValue) -> Option<Usage> {
    counts.read(&mut Scanner::answer(raw.get().as_bytes()).ok()?).ok()?;
    counts.usage()
}

/// Where in the answer a block stands.
#[derive(Default)]
struct Position {
    calls: u32,
    text: usize,
}

fn block(block: ContentBlock<'_>, at: &mut Position, out: &mut Vec<Event>) -> Result<(), InvalidReply> {
    match block.kind.0.as_str() {
        "text" => {
            let text = block.text.unwrap_or_default().0;
            let start = at.text;
            at.text += text.len();
            out.push(Event::Text { candidate: 0, text, signature: None });
            if let Some(citations) = block.citations {
                let list = serde_json::from_str::<Option<Vec<&RawValue>>>(citations.get()).ok().flatten().unwrap_or_default();
                let citations: Vec<_> = list.into_iter().filter_map(|raw| wire::citation(raw, start, at.text)).collect();
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
            let call = at.calls;
            at.calls = at.calls.wrapping_add(1);
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

/// The signature of a block.
pub(super) fn signature(value: Option<LenientText>) -> Option<Signature> {
    LenientText::filled(value).map(|value| Signature { owner: Protocol::Anthropic, value })
}

/// A redacted block.
pub(super) fn redacted(data: Option<&RawValue>) -> Option<Event> {
    let data = data.and_then(text_of)?;
    Some(Event::Think { candidate: 0, text: String::new(), redacted: Some(data), signature: None })
}
