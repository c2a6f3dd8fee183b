//! Decodes a complete chat completion.

use super::{
    events::{self, ChoiceTexts},
    finish, usage,
    wire::{ChatCompletion, ChoiceMessage, CompletionChoice},
};
use crate::{
    Codec, FinishReason, InvalidReply,
    lenient::{LenientText, is_truthy},
    neutral::Event,
    scan::Scanner,
};

/// Appends the events of a complete reply, including `Event::End`.
pub(super) fn decode(body: &[u8], out: &mut Vec<Event>) -> Result<(), InvalidReply> {
    let answer: ChatCompletion<'_> = serde_json::from_slice(body).map_err(|_| InvalidReply::Unreadable("not a chat completion"))?;
    if is_error(&answer) {
        return Err(InvalidReply::Problem(Box::new(super::OpenAi.decode_problem(200, body))));
    }
    if let Some(usage) = answer.usage.and_then(read_usage) {
        out.push(Event::Usage(usage));
    }
    let choices = answer.choices.unwrap_or_default();
    if choices.is_empty() {
        return Err(InvalidReply::Unreadable("no choices"));
    }
    let mut calls = 0;
    for (position, choice) in choices.into_iter().enumerate() {
        self::choice(position, choice, &mut calls, out)?;
    }
    out.push(Event::End);
    Ok(())
}

/// True for an `error` member and for the flat error object some servers send.
pub(super) fn is_error(answer: &ChatCompletion<'_>) -> bool {
    is_truthy(answer.error) || answer.object.as_ref().is_some_and(|object| object.0 == "error")
}

pub(super) fn read_usage(raw: &serde_json::value::RawValue) -> Option<crate::Usage> {
    usage::read(&mut Scanner::answer(raw.get().as_bytes()).ok()?).ok().flatten()
}

fn choice(position: usize, choice: CompletionChoice<'_>, calls: &mut u32, out: &mut Vec<Event>) -> Result<(), InvalidReply> {
    let candidate = u32::try_from(choice.index.given().unwrap_or(position as u64))
        .map_err(|_| InvalidReply::Unreadable("a choice index out of bounds"))?;
    let mut message = choice.message.or(choice.delta).ok_or(InvalidReply::Unreadable("a choice without a message"))?;
    let begin = out.len();
    let mut texts = ChoiceTexts::default();
    events::content(candidate, &mut message, choice.logprobs, &mut texts, out);
    texts.finish(candidate, out);
    self::calls(candidate, &message, calls, out)?;
    let native = LenientText::filled(choice.finish_reason);
    if native.is_none() && out[begin..].iter().all(|event| !event.is_content()) {
        return Err(InvalidReply::Unreadable("an empty choice"));
    }
    let finish = native.as_deref().map_or(FinishReason::Stop, finish::read);
    out.push(Event::Finish { candidate, finish, native, message: None });
    Ok(())
}

fn calls(candidate: u32, message: &ChoiceMessage<'_>, calls: &mut u32, out: &mut Vec<Event>) -> Result<(), InvalidReply> {
    let listed = message.tool_calls.iter().flatten().map(|call| {
        let id = call.id.as_ref().map(|id| id.0.clone()).unwrap_or_default();
        let (name, args) = match (&call.function, &call.custom) {
            (Some(function), _) => (function.name.as_ref(), function.arguments().0),
            (None, Some(custom)) => (custom.name.as_ref(), events::custom_arguments(custom.input)),
            (None, None) => (None, String::new()),
        };
        (id, name, args, call.signature())
    });
    let single = message.function_call.iter().map(|call| (String::new(), call.name.as_ref(), call.arguments().0, None));
    for (id, name, fragment, signature) in listed.chain(single) {
        let name = name.filter(|name| !name.0.is_empty()).ok_or(InvalidReply::Unreadable("a call without a name"))?;
        let call = *calls;
        *calls = calls.wrapping_add(1);
        out.push(Event::CallOpen { candidate, call, id, name: name.0.clone(), custom: false, signature });
        out.push(Event::CallArgs { candidate, call, fragment });
        out.push(Event::CallDone { candidate, call });
    }
    Ok(())
}
