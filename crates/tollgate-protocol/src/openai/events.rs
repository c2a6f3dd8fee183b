//! Converts members of a chat completions message or delta to events.

use serde_json::value::RawValue;

use super::wire::{Annotation, Audio, ChoiceMessage, Image, LogprobEntry, Logprobs, MessageContent};
use crate::{
    lenient::{LenientText, TextJoiner, part_of, text_of},
    neutral::{Citation, Event, Media, MediaSource, TextMap, TokenLogprob, media, signature::ThoughtMember},
};

/// The texts of one choice so far.
#[derive(Debug, Default)]
pub(super) struct ChoiceTexts {
    /// The content, for annotations.
    map: TextMap,
    content: TextJoiner,
    reasoning: TextJoiner,
    /// True once a thought has named its member.
    says_member: bool,
    refusal: TextJoiner,
}

impl ChoiceTexts {
    /// Appends a pending half of a surrogate pair at the end of the answer.
    pub(super) fn finish(&mut self, candidate: u32, out: &mut Vec<Event>) {
        let think = |text| Event::Think { candidate, text, redacted: None, signature: None };
        out.extend(self.reasoning.finish().map(think));
        out.extend(self.content.finish().map(|text| Event::Text { candidate, text, signature: None }));
        out.extend(self.refusal.finish().map(|text| Event::Refusal { candidate, text }));
    }
}

/// Appends everything of a message except its calls, reasoning first.
pub(super) fn content(
    candidate: u32,
    message: &mut ChoiceMessage<'_>,
    logprobs: Option<&RawValue>,
    texts: &mut ChoiceTexts,
    out: &mut Vec<Event>,
) {
    let part = |raw: Option<&RawValue>| raw.and_then(part_of).filter(|text| !text.0.is_empty());
    let named = |raw, member| part(raw).map(|text| (text, member));
    let reasoning = named(message.reasoning_content, ThoughtMember::ReasoningContent)
        .or_else(|| named(message.reasoning, ThoughtMember::Reasoning))
        .map(|(text, member)| (texts.reasoning.join(text), member));
    if let Some((text, member)) = reasoning.filter(|(text, _)| !text.is_empty()) {
        // The usual member needs no signature. All thoughts of an answer are in one member, so only the first one names it.
        let is_named = member == ThoughtMember::Reasoning && !std::mem::replace(&mut texts.says_member, true);
        out.push(Event::Think { candidate, text, redacted: None, signature: is_named.then(|| member.signature()) });
    }
    if let Some(tokens) = logprobs.map(self::logprobs).filter(|tokens| !tokens.is_empty()) {
        out.push(Event::Logprobs { candidate, tokens });
    }
    if let Some(MessageContent { text, unknown }) = message.content.take() {
        out.extend(std::iter::repeat_n(Event::Unknown { candidate }, unknown));
        let text = texts.content.join(text);
        if !text.is_empty() {
            texts.map.push(&text);
            out.push(Event::Text { candidate, text, signature: None });
        }
    }
    if let Some(text) = part(message.refusal).map(|text| texts.refusal.join(text)).filter(|text| !text.is_empty()) {
        out.push(Event::Refusal { candidate, text });
    }
    // No other protocol has spoken replies.
    if message.audio.is_some_and(has_audio) {
        out.push(Event::Unknown { candidate });
    }
    for media in message.images.map(images).unwrap_or_default() {
        out.push(Event::Media { candidate, media });
    }
    if let Some(citations) = message.annotations.map(|raw| citations(raw, &texts.map)).filter(|found| !found.is_empty()) {
        out.push(Event::Citations { candidate, citations });
    }
}

fn logprobs(raw: &RawValue) -> Vec<TokenLogprob> {
    let Ok(logprobs) = serde_json::from_str::<Option<Logprobs>>(raw.get()) else { return Vec::new() };
    tokens(logprobs.and_then(|logprobs| logprobs.content).unwrap_or_default())
}

/// Log probabilities in a list.
pub(crate) fn read_tokens(raw: &RawValue) -> Vec<TokenLogprob> {
    tokens(serde_json::from_str::<Option<Vec<LogprobEntry>>>(raw.get()).ok().flatten().unwrap_or_default())
}

fn tokens(list: Vec<LogprobEntry>) -> Vec<TokenLogprob> {
    list.into_iter()
        .map(|token| TokenLogprob {
            token: token.token.0,
            logprob: token.logprob,
            top: token.top_logprobs.unwrap_or_default().into_iter().map(|top| (top.token.0, top.logprob)).collect(),
        })
        .collect()
}

/// Images given as URLs. A `data:` URL of another media type is ignored.
fn images(raw: &RawValue) -> Vec<Media> {
    let images = serde_json::from_str::<Option<Vec<Image>>>(raw.get()).ok().flatten().unwrap_or_default();
    let media = images.into_iter().filter_map(|image| media::from_url(&image.image_url?.url.0, String::new()).ok());
    media.filter(|media| media.mime.starts_with("image/") || !matches!(media.source, MediaSource::Inline(_))).collect()
}

/// Whether `audio` contains sound or a transcript. An id or an expiry time alone does not count.
fn has_audio(raw: &RawValue) -> bool {
    let audio = serde_json::from_str::<Option<Audio>>(raw.get()).ok().flatten();
    audio.is_some_and(|audio| LenientText::filled(audio.data).is_some() || LenientText::filled(audio.transcript).is_some())
}

/// Citations with character offsets converted to bytes; those outside the text are dropped.
fn citations(raw: &RawValue, map: &TextMap) -> Vec<Citation> {
    let annotations = serde_json::from_str::<Option<Vec<Annotation>>>(raw.get()).ok().flatten().unwrap_or_default();
    let place = |count: u64| usize::try_from(count).ok().and_then(|character| map.byte_at(character));
    annotations
        .into_iter()
        .filter_map(|annotation| {
            let citation = annotation.url_citation?;
            let start = place(citation.start_index.or_zero())?;
            let end = place(citation.end_index.or_zero())?;
            let url = citation.url.0;
            let title = citation.title.map_or_else(|| url.clone(), |title| title.0);
            Some(Citation { start, end, url, title })
        })
        .collect()
}

/// The input of a custom tool call, wrapped in the object that its substitute function takes.
pub(crate) fn custom_arguments(input: Option<&RawValue>) -> String {
    serde_json::json!({ "input": input.and_then(text_of).unwrap_or_default() }).to_string()
}
