//! Serde types of responses and stream events. Unknown members are ignored.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    lenient::{LenientCount, LenientText, part_of},
    neutral::{Citation, Media, MediaSource, Signature, TextMap, media, signature::SealedItem},
};

#[derive(Deserialize)]
pub(super) struct Response<'a> {
    pub status: Option<LenientText>,
    pub incomplete_details: Option<IncompleteDetails>,
    #[serde(borrow)]
    pub output: Option<Vec<&'a RawValue>>,
    pub usage: Option<&'a RawValue>,
    pub error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct IncompleteDetails {
    pub reason: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct OutputItem<'a> {
    #[serde(rename = "type")]
    pub kind: Option<LenientText>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    encrypted_content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub content: Option<Vec<ContentPart<'a>>>,
    pub summary: Option<Vec<SummaryPart>>,
    pub call_id: Option<LenientText>,
    pub name: Option<LenientText>,
    pub arguments: Option<LenientText>,
    #[serde(borrow)]
    pub input: Option<&'a RawValue>,
    pub result: Option<LenientText>,
    pub output_format: Option<LenientText>,
}

impl OutputItem<'_> {
    pub(super) fn is_reasoning(&self) -> bool {
        self.kind.as_ref().is_some_and(|kind| kind.0 == "reasoning")
    }

    /// The encrypted content of a reasoning item, as a signature.
    pub(super) fn sealed(&self) -> Option<Signature> {
        let content = LenientText::filled(self.encrypted_content.and_then(part_of)).filter(|_| self.is_reasoning())?;
        let id = LenientText::filled(self.id.and_then(part_of));
        Some(SealedItem { id: id.as_deref(), content: &content }.signature())
    }
}

#[derive(Deserialize)]
pub(super) struct ContentPart<'a> {
    pub text: Option<LenientText>,
    pub refusal: Option<LenientText>,
    #[serde(borrow)]
    pub annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    pub logprobs: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct SummaryPart {
    pub text: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct ResponseEvent<'a> {
    #[serde(rename = "type")]
    pub kind: Option<LenientText>,
    #[serde(default)]
    pub output_index: LenientCount,
    #[serde(borrow)]
    pub item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub delta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    pub annotation: Option<&'a RawValue>,
    #[serde(borrow)]
    pub response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Annotation {
    url: LenientText,
    title: Option<LenientText>,
    #[serde(default)]
    start_index: LenientCount,
    #[serde(default)]
    end_index: LenientCount,
}

/// Citations of the text in `map`, which begins at byte `start` of the answer's texts. Citations of anything but pages are left
/// out.
pub(super) fn citations(raw: Option<&RawValue>, map: &TextMap, start: usize) -> Vec<Citation> {
    let list = raw.and_then(|raw| serde_json::from_str::<Option<Vec<&RawValue>>>(raw.get()).ok().flatten()).unwrap_or_default();
    list.into_iter().filter_map(|raw| citation(raw, map, start)).collect()
}

pub(super) fn citation(raw: &RawValue, map: &TextMap, start: usize) -> Option<Citation> {
    let annotation: Annotation = serde_json::from_str(raw.get()).ok()?;
    let place = |count: LenientCount| map.byte_at(usize::try_from(count.or_zero()).ok()?);
    let (from, to) = (place(annotation.start_index)?, place(annotation.end_index)?);
    let url = annotation.url.0;
    let title = annotation.title.map_or_else(|| url.clone(), |title| title.0);
    Some(Citation { start: start + from, end: start + to, url, title })
}

/// The image of an `image_generation_call`.
pub(super) fn image(result: Option<LenientText>, format: Option<LenientText>) -> Option<Media> {
    let data = LenientText::filled(result)?;
    let format = LenientText::filled(format).unwrap_or_else(|| "png".to_owned());
    let media = media::inline(&format!("image/{format}"), &data, String::new()).ok()?;
    matches!(media.source, MediaSource::Inline(_)).then_some(media)
}
