//! Converts the parts of a Gemini reply, complete or streamed, to events.

use serde_json::value::RawValue;

use super::{
    partial_calls::{CompleteCall, PartialCalls},
    reply_scan,
    sources::GroundingSources,
    wire::{FunctionCall, Logprob, LogprobsResult, ResponseCandidate, ResponsePart},
};
use crate::{
    Protocol, StreamError,
    json_text::compact,
    lenient::{LenientText, TextJoiner},
    neutral::{
        Event, Media, MediaSource, Signature, TokenLogprob,
        encode_context::fenced,
        find_or_insert,
        media::{self, standard_base64},
    },
    scan::Scanner,
};

#[derive(Debug, Default)]
pub(super) struct DecodeState {
    calls: CallState,
    sources: GroundingSources,
    texts: Vec<CandidateTexts>,
    /// Searches of the candidates of the answer or event that is being read.
    searches: Option<u32>,
}

/// The texts of a candidate so far.
#[derive(Debug, Default)]
struct CandidateTexts {
    candidate: u32,
    text: TextJoiner,
    thought: TextJoiner,
}

impl CandidateTexts {
    /// Appends a pending half of a surrogate pair before a part of another kind.
    fn finish(&mut self, out: &mut Vec<Event>) {
        self.finish_thought(out);
        self.finish_text(out);
    }

    fn finish_thought(&mut self, out: &mut Vec<Event>) {
        let candidate = self.candidate;
        out.extend(self.thought.finish().map(|text| Event::Think { candidate, text, redacted: None, signature: None }));
    }

    fn finish_text(&mut self, out: &mut Vec<Event>) {
        let candidate = self.candidate;
        out.extend(self.text.finish().map(|text| Event::Text { candidate, text, signature: None }));
    }
}

#[derive(Debug, Default)]
struct CallState {
    next: u32,
    partial: PartialCalls,
}

impl DecodeState {
    /// Bytes of memory kept between two events.
    pub(super) fn held_bytes(&self) -> usize {
        self.withheld_bytes() + self.sources.held_bytes()
    }

    /// Bytes of the calls that are streamed in pieces and still incomplete.
    pub(super) fn withheld_bytes(&self) -> usize {
        self.calls.partial.held_bytes()
    }

    /// Appends the number of searches, if known, after all candidates of an answer or an event were read.
    pub(super) fn end_candidates(&mut self, out: &mut Vec<Event>) {
        out.extend(self.searches.take().map(Event::Searches));
    }

    /// Appends unfinished calls and the citations at the end of the answer.
    pub(super) fn close(&mut self, out: &mut Vec<Event>) {
        for texts in &mut self.texts {
            texts.finish(out);
        }
        for (candidate, call) in self.calls.partial.close_all() {
            self.calls.push(candidate, Some(call), out);
        }
        for (candidate, citations) in self.sources.take_all() {
            out.push(Event::Citations { candidate, citations });
        }
    }
}

/// Appends the events of one candidate of a complete reply or a stream event.
pub(super) fn candidate(
    position: usize,
    response: ResponseCandidate<'_>,
    progress: &mut DecodeState,
    out: &mut Vec<Event>,
) -> Result<(), StreamError> {
    let candidate = index(position, &response)?;
    let DecodeState { calls, sources, texts, searches } = progress;
    let new = || CandidateTexts { candidate, ..CandidateTexts::default() };
    let texts = find_or_insert(texts, |texts| texts.candidate == candidate, new);
    if let Some(tokens) = response.logprobs.map(logprobs).filter(|tokens| !tokens.is_empty()) {
        out.push(Event::Logprobs { candidate, tokens });
    }
    for (at, part) in response.content.and_then(|content| content.parts).unwrap_or_default().into_iter().enumerate() {
        let begin = out.len();
        let code = part.code.is_some() || part.code_result.is_some();
        self::part(texts, part, calls, out)?;
        sources.part(candidate, at == 0, code, &out[begin..]);
    }
    let own_searches = response.grounding.and_then(searches_of);
    if let Some(raw) = response.grounding {
        sources.read(candidate, raw);
    }
    let finish = LenientText::filled(response.finish);
    *searches = reply_scan::add_searches(*searches, own_searches, finish.is_some());
    if let Some(native) = finish {
        let finish = super::finish::read(&native);
        out.push(Event::Finish { candidate, finish, native: Some(native), message: LenientText::filled(response.message) });
    }
    Ok(())
}

fn searches_of(grounding: &RawValue) -> Option<u32> {
    reply_scan::grounding(&mut Scanner::answer(grounding.get().as_bytes()).ok()?).ok()?
}

/// The index of a candidate. Google omits 0; other servers omit every index.
pub(super) fn index(position: usize, candidate: &ResponseCandidate<'_>) -> Result<u32, StreamError> {
    let index = candidate.index.given().unwrap_or(position as u64);
    u32::try_from(index).map_err(|_| StreamError::Malformed("a candidate index out of bounds"))
}

fn part(
    texts: &mut CandidateTexts,
    part: ResponsePart<'_>,
    calls: &mut CallState,
    out: &mut Vec<Event>,
) -> Result<(), StreamError> {
    let candidate = texts.candidate;
    if part.is_text() {
        text(texts, part, out);
        return Ok(());
    }
    texts.finish(out);
    let signature = signature(part.signature);
    if let Some(call) = part.call {
        let whole = if calls.partial.is_part_of_call(candidate, &call) {
            calls.partial.take(candidate, call, signature)?
        } else {
            Some(whole_call(call, signature)?)
        };
        calls.push(candidate, whole, out);
    } else if let Some(blob) = part.inline {
        let data = standard_base64(&blob.data.0).ok_or(StreamError::Malformed("inline data that is not base64"))?;
        out.push(Event::Media { candidate, media: self::media(blob.mime, MediaSource::Inline(data)) });
    } else if let Some(file) = part.file {
        let uri = file.uri.0;
        let source = media::classify_url(&uri).unwrap_or(MediaSource::Uri(uri));
        out.push(Event::Media { candidate, media: self::media(file.mime, source) });
    } else if let Some(code) = part.code {
        let language = code.language.map(|language| language.0.to_lowercase()).unwrap_or_default();
        let text = fenced(&language, &code.code.unwrap_or_default().0);
        out.push(Event::Text { candidate, text, signature });
    } else if let Some(result) = part.code_result {
        out.push(Event::Text { candidate, text: fenced("", &result.output.unwrap_or_default().0), signature });
    } else {
        out.push(Event::Unknown { candidate });
    }
    Ok(())
}

/// A text or a thought. A signature may come with an empty one.
fn text(texts: &mut CandidateTexts, part: ResponsePart<'_>, out: &mut Vec<Event>) {
    let candidate = texts.candidate;
    let signature = signature(part.signature);
    let text = part.text.unwrap_or_default();
    if part.thought == Some(true) {
        texts.finish_text(out);
        out.push(Event::Think { candidate, text: texts.thought.join(text), redacted: None, signature });
    } else {
        texts.finish_thought(out);
        out.push(Event::Text { candidate, text: texts.text.join(text), signature });
    }
}

fn signature(value: Option<LenientText>) -> Option<Signature> {
    LenientText::filled(value).map(|value| Signature { owner: Protocol::Gemini, value })
}

impl CallState {
    fn push(&mut self, candidate: u32, call: Option<CompleteCall>, out: &mut Vec<Event>) {
        let Some(CompleteCall { id, name, args, signature }) = call else { return };
        let call = self.next;
        self.next = call.wrapping_add(1);
        out.push(Event::CallOpen { candidate, call, id, name, custom: false, signature });
        out.push(Event::CallArgs { candidate, call, fragment: args });
        out.push(Event::CallDone { candidate, call });
    }
}

fn whole_call(call: FunctionCall<'_>, signature: Option<Signature>) -> Result<CompleteCall, StreamError> {
    let name = LenientText::filled(call.name).ok_or(StreamError::Malformed("a call without a name"))?;
    Ok(CompleteCall { id: call.id.map(|id| id.0).unwrap_or_default(), name, args: arguments(call.args)?, signature })
}

/// Arguments as compact JSON text; absent arguments are `{}`.
fn arguments(raw: Option<&RawValue>) -> Result<String, StreamError> {
    match raw {
        Some(raw) if raw.get() != "null" => compact(raw).ok_or(StreamError::Malformed("arguments nested too deep")),
        _ => Ok("{}".to_owned()),
    }
}

fn media(mime: Option<LenientText>, source: MediaSource) -> Media {
    let mime = mime.map(|mime| media::mime_type(&mime.0)).unwrap_or_default();
    Media { mime, source, name: None, detail: None, path: String::new() }
}

fn logprobs(raw: &RawValue) -> Vec<TokenLogprob> {
    let Ok(result) = serde_json::from_str::<LogprobsResult>(raw.get()) else { return Vec::new() };
    let mut top = result.top.unwrap_or_default().into_iter();
    let entry = |entry: Logprob| (entry.token.unwrap_or_default().0, entry.logprob.unwrap_or_else(|| 0.into()));
    result
        .chosen
        .unwrap_or_default()
        .into_iter()
        .map(|chosen| {
            let (token, logprob) = entry(chosen);
            let top = top.next().and_then(|top| top.candidates).unwrap_or_default().into_iter().map(entry).collect();
            TokenLogprob { token, logprob, top }
        })
        .collect()
}
