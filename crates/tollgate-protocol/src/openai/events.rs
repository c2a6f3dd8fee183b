//! Converts members of a chat completions message or delta to events.

use serde_json::value::RawValue;

use super::wire::{Annotation, Audio, ChoiceMessage, Image, Logprobs, MessageContent};
use crate::{
    lenient::{LenientText, filled_text_of, text_of},
    neutral::{Citation, Event, Media, MediaSource, TextMap, TokenLogprob, media},
};

/// Appends everything of a message except its calls, reasoning first. `map` tracks the text for annotations.
pub(super) fn content(
    candidate: u32,
    message: &mut ChoiceMessage<'_>,
    logprobs: Option<&RawValue>,
    map: &mut TextMap,
    out: &mut Vec<Event>,
) {
    let reasoning = filled_text_of(message.reasoning_content).or_else(|| filled_text_of(message.reasoning));
    if let Some(text) = reasoning {
        out.push(Event::Think { candidate, text, redacted: None, signature: None });
    }
    if let Some(tokens) = logprobs.map(self::logprobs).filter(|tokens| !tokens.is_empty()) {
        out.push(Event::Logprobs { candidate, tokens });
    }
    if let Some(MessageContent { text, unknown }) = message.content.take() {
        out.extend(std::iter::repeat_n(Event::Unknown { candidate }, unknown));
        if !text.is_empty() {
            map.push(&text);
            out.push(Event::Text { candidate, text, signature: None });
        }
    }
    if let Some(text) = message.refusal.and_then(text_of).filter(|text| !text.is_empty()) {
        out.push(Event::Refusal { candidate, text });
    }
    // No other protocol has spoken replies.
    if message.audio.is_some_and(has_audio) {
        out.push(Event::Unknown { candidate });
    }
    for media in message.images.map(images).unwrap_or_default() {
        out.push(Event::Media { candidate, media });
    }
    if let Some(citations) = message.annotations.map(|raw| citations(raw, map)).filter(|found| !found.is_empty()) {
        out.push(Event::Citations { candidate, citations });
    }
}

fn logprobs(raw: &RawValue) -> Vec<TokenLogprob> {
    let Ok(logprobs) = serde_json::from_str::<Option<Logprobs>>(raw.get()) else { return Vec::new() };
    let tokens = logprobs.and_then(|logprobs| logprobs.content).unwrap_or_default();
    tokens
        .into_iter()
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
pub(super) fn custom_arguments(input: Option<&RawValue>) -> String {
    serde_json::json!({ "input": input.and_then(text_of).unwrap_or_default() }).to_string()
}
