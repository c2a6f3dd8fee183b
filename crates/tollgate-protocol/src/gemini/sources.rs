//! Converts the sources of Gemini replies (`groundingMetadata`), complete or streamed, to citations.
//!
//! Gemini states a part and byte offsets in it; citations count bytes of the concatenated text. In a stream, the metadata counts
//! as if the reply were complete, with texts of consecutive events joined to one part.

use serde_json::value::RawValue;

use super::wire::Grounding;
use crate::neutral::{CITATION_BYTES_LIMIT, Citation, Event, find_or_insert};

/// Maximum number of parts per candidate whose offsets are recorded.
const PART_LIMIT: usize = 4096;

/// Part offsets of all candidates, and the citations last received for them.
#[derive(Debug, Default)]
pub(super) struct GroundingSources {
    candidates: Vec<CandidateSources>,
}

#[derive(Debug, Default)]
struct CandidateSources {
    candidate: u32,
    bytes: usize,
    starts: Vec<usize>,
    last: Kind,
    found: Vec<Citation>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    Text,
    Thought,
    #[default]
    Other,
}

impl GroundingSources {
    /// Bytes of memory kept between two events.
    pub(super) fn held_bytes(&self) -> usize {
        let of = |sources: &CandidateSources| {
            let found = sources.found.iter().map(Citation::held_bytes).sum::<usize>();
            found + sources.starts.capacity() * size_of::<usize>()
        };
        self.candidates.iter().map(of).sum()
    }

    fn sources(&mut self, candidate: u32) -> &mut CandidateSources {
        let new = || CandidateSources { candidate, ..CandidateSources::default() };
        find_or_insert(&mut self.candidates, |sources| sources.candidate == candidate, new)
    }

    /// Records a part that was converted to `events`. A part that is the `first` of its event may continue the previous part,
    /// unless it is `code`.
    pub(super) fn part(&mut self, candidate: u32, first: bool, code: bool, events: &[Event]) {
        let sources = self.sources(candidate);
        let kind = match events {
            [Event::Text { .. }] if !code => Kind::Text,
            [Event::Think { .. }] => Kind::Thought,
            _ => Kind::Other,
        };
        let continues = first && kind != Kind::Other && sources.last == kind;
        if !continues && sources.starts.len() < PART_LIMIT {
            sources.starts.push(sources.bytes);
        }
        sources.last = kind;
        if let [Event::Text { text, .. }] = events {
            sources.bytes += text.len();
        }
    }

    /// Records grounding metadata, which replaces earlier metadata unless it is empty.
    pub(super) fn read(&mut self, candidate: u32, raw: &RawValue) {
        let sources = self.sources(candidate);
        let found = citations(raw, if sources.starts.is_empty() { &[0] } else { &sources.starts });
        if !found.is_empty() {
            sources.found = found;
        }
    }

    /// Takes the citations of all candidates that have some.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (u32, Vec<Citation>)> {
        let found = self.candidates.iter_mut().map(|sources| (sources.candidate, std::mem::take(&mut sources.found)));
        found.filter(|(_, citations)| !citations.is_empty())
    }
}

/// Parses the citations of a candidate. `starts` holds the offset of each of its parts in the concatenated text.
fn citations(raw: &RawValue, starts: &[usize]) -> Vec<Citation> {
    let Ok(grounding) = serde_json::from_str::<Grounding>(raw.get()) else { return Vec::new() };
    let chunks = grounding.chunks.unwrap_or_default();
    let (mut found, mut bytes) = (Vec::new(), 0);
    for support in grounding.supports.unwrap_or_default() {
        let Some(segment) = support.segment else { continue };
        let at = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let Some(base) = starts.get(at(segment.part.or_zero())) else { continue };
        let (start, end) = (base.saturating_add(at(segment.start.or_zero())), base.saturating_add(at(segment.end.or_zero())));
        for index in support.chunks.unwrap_or_default() {
            let Some(chunk) = index.given().and_then(|index| chunks.get(at(index))) else { continue };
            let Some(source) = chunk.web.as_ref().or(chunk.retrieved.as_ref()).or(chunk.maps.as_ref()) else { continue };
            let Some(url) = source.uri.as_ref().filter(|url| !url.0.is_empty()) else { continue };
            let title = source.title.as_ref().map_or(&url.0, |title| &title.0);
            // A source may be cited any number of times.
            bytes += size_of::<Citation>() + url.0.len() + title.len();
            if bytes > CITATION_BYTES_LIMIT {
                return found;
            }
            found.push(Citation { start, end, url: url.0.clone(), title: title.clone() });
        }
    }
    found
}
