//! Serde types of Messages answers and stream events. Unknown members are ignored.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    StreamError,
    json_text::compact,
    lenient::{LenientCount, LenientText},
    neutral::Citation,
};

#[derive(Deserialize)]
pub(super) struct MessagesResponse<'a> {
    #[serde(rename = "type")]
    pub kind: Option<LenientText>,
    #[serde(borrow)]
    pub content: Option<Vec<ContentBlock<'a>>>,
    pub stop_reason: Option<LenientText>,
    pub stop_details: Option<StopDetails>,
    pub usage: Option<&'a RawValue>,
    pub error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct StopDetails {
    pub explanation: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct ContentBlock<'a> {
    #[serde(rename = "type")]
    pub kind: LenientText,
    pub text: Option<LenientText>,
    pub thinking: Option<LenientText>,
    pub signature: Option<LenientText>,
    #[serde(borrow)]
    pub data: Option<&'a RawValue>,
    pub id: Option<LenientText>,
    pub name: Option<LenientText>,
    pub input: Option<&'a RawValue>,
    pub citations: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct StreamEvent<'a> {
    #[serde(rename = "type")]
    pub kind: Option<LenientText>,
    #[serde(borrow)]
    pub message: Option<Message<'a>>,
    #[serde(default)]
    pub index: LenientCount,
    pub content_block: Option<ContentBlock<'a>>,
    pub delta: Option<Delta<'a>>,
    pub usage: Option<&'a RawValue>,
    pub error: Option<&'a RawValue>,
}

/// The message of `message_start`.
#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    pub usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(rename = "type")]
    pub kind: Option<LenientText>,
    pub text: Option<LenientText>,
    pub thinking: Option<LenientText>,
    pub signature: Option<LenientText>,
    pub partial_json: Option<LenientText>,
    #[serde(borrow)]
    pub citation: Option<&'a RawValue>,
    pub stop_reason: Option<LenientText>,
    pub stop_details: Option<StopDetails>,
}

/// The input of a call as compact JSON; `None` where it is missing or an empty object, as at the start of a streamed call.
pub(super) fn input(raw: Option<&RawValue>) -> Result<Option<String>, StreamError> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(None) };
    let text = compact(raw).ok_or(StreamError::Malformed("arguments nested too deep"))?;
    Ok(Some(text).filter(|text| text != "{}"))
}

/// A citation with a URL for the text from `start` to `end`, in bytes of the joined text. Citations of documents in the
/// request have no URL and give `None`.
pub(super) fn citation(raw: &RawValue, start: usize, end: usize) -> Option<Citation> {
    #[derive(Deserialize)]
    struct Location {
        url: LenientText,
        title: Option<LenientText>,
    }
    let location: Location = serde_json::from_str(raw.get()).ok()?;
    let url = location.url.0;
    let title = location.title.map_or_else(|| url.clone(), |title| title.0);
    Some(Citation { start, end, url, title })
}
