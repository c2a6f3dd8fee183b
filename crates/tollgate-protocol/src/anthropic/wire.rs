//! Serde types of Messages answers and stream events. Unknown members are ignored.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    StreamError,
    json_text::compact,
    lenient::{LenientCount, LenientText},
    neutral::Citation,
};

/// A complete answer.
#[derive(Deserialize)]
pub(super) struct MessagesResponse<'a> {
    #[serde(default, rename = "type")]
    pub kind: Option<LenientText>,
    #[serde(default, borrow)]
    pub content: Option<Vec<ContentBlock<'a>>>,
    #[serde(default)]
    pub stop_reason: Option<LenientText>,
    #[serde(default)]
    pub stop_details: Option<StopDetails>,
    #[serde(default, borrow)]
    pub usage: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct StopDetails {
    #[serde(default)]
    pub explanation: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct ContentBlock<'a> {
    #[serde(rename = "type")]
    pub kind: LenientText,
    #[serde(default)]
    pub text: Option<LenientText>,
    #[serde(default)]
    pub thinking: Option<LenientText>,
    #[serde(default)]
    pub signature: Option<LenientText>,
    #[serde(default, borrow)]
    pub data: Option<&'a RawValue>,
    #[serde(default)]
    pub id: Option<LenientText>,
    #[serde(default)]
    pub name: Option<LenientText>,
    #[serde(default, borrow)]
    pub input: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub citations: Option<&'a RawValue>,
}

/// A stream event.
#[derive(Deserialize)]
pub(super) struct StreamEvent<'a> {
    #[serde(default, rename = "type")]
    pub kind: Option<LenientText>,
    #[serde(default, borrow)]
    pub message: Option<Message<'a>>,
    #[serde(default)]
    pub index: LenientCount,
    #[serde(default, borrow)]
    pub content_block: Option<ContentBlock<'a>>,
    #[serde(default, borrow)]
    pub delta: Option<Delta<'a>>,
    #[serde(default, borrow)]
    pub usage: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub error: Option<&'a RawValue>,
}

/// The message of `message_start`.
#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(default, borrow)]
    pub usage: Option<&'a RawValue>,
}

/// Delta of a block or of the message.
#[derive(Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(default, rename = "type")]
    pub kind: Option<LenientText>,
    #[serde(default)]
    pub text: Option<LenientText>,
    #[serde(default)]
    pub thinking: Option<LenientText>,
    #[serde(default)]
    pub signature: Option<LenientText>,
    #[serde(default)]
    pub partial_json: Option<LenientText>,
    #[serde(default, borrow)]
    pub citation: Option<&'a RawValue>,
    #[serde(default)]
    pub stop_reason: Option<LenientText>,
    #[serde(default)]
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
        #[serde(default)]
        title: Option<LenientText>,
    }
    let location: Location = serde_json::from_str(raw.get()).ok()?;
    let url = location.url.0;
    let title = location.title.map_or_else(|| url.clone(), |title| title.0);
    Some(Citation { start, end, url, title })
}
