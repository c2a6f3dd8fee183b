//! Serde types of chat completions replies and chunks, lenient towards compatible upstreams: unknown members are ignored, and
//! extensions are read only if they have the expected type.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    Protocol,
    json_text::compact,
    lenient::{LenientCount, LenientText, TextJoiner, part_of},
    neutral::Signature,
};

#[derive(Deserialize)]
pub(super) struct ChatCompletion<'a> {
    #[serde(borrow)]
    pub choices: Option<Vec<CompletionChoice<'a>>>,
    pub usage: Option<&'a RawValue>,
    pub error: Option<&'a RawValue>,
    pub object: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct CompletionChoice<'a> {
    #[serde(default)]
    pub index: LenientCount,
    #[serde(borrow)]
    pub message: Option<ChoiceMessage<'a>>,
    pub delta: Option<ChoiceMessage<'a>>,
    pub finish_reason: Option<LenientText>,
    pub logprobs: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct ChoiceMessage<'a> {
    pub content: Option<MessageContent>,
    #[serde(borrow)]
    pub refusal: Option<&'a RawValue>,
    pub reasoning_content: Option<&'a RawValue>,
    pub reasoning: Option<&'a RawValue>,
    pub tool_calls: Option<Vec<ToolCall<'a>>>,
    pub function_call: Option<Function<'a>>,
    pub images: Option<&'a RawValue>,
    pub annotations: Option<&'a RawValue>,
    pub audio: Option<&'a RawValue>,
}

/// A string, or the list of parts some upstreams send instead, with the texts joined.
pub(super) struct MessageContent {
    pub text: LenientText,
    /// Number of parts without text.
    pub unknown: usize,
}

impl<'de> Deserialize<'de> for MessageContent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct ContentPart<'a> {
            #[serde(borrow)]
            text: Option<&'a RawValue>,
        }

        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = MessageContent;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a string or a list of parts")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<MessageContent, E> {
                Ok(MessageContent { text: LenientText::from_bytes(bytes), unknown: 0 })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<MessageContent, A::Error> {
                let (mut joined, mut joiner, mut unknown) = (String::new(), TextJoiner::default(), 0);
                while let Some(part) = parts.next_element::<ContentPart<'de>>()? {
                    match part.text.and_then(part_of) {
                        Some(text) => joined.push_str(&joiner.join(text)),
                        None => unknown += 1,
                    }
                }
                joined.extend(joiner.finish());
                Ok(MessageContent { text: joined.into(), unknown })
            }
        }
        from.deserialize_bytes(Reader)
    }
}

#[derive(Deserialize)]
pub(super) struct ToolCall<'a> {
    #[serde(default)]
    pub index: LenientCount,
    pub id: Option<LenientText>,
    #[serde(borrow)]
    pub function: Option<Function<'a>>,
    pub custom: Option<Custom<'a>>,
    pub extra_content: Option<&'a RawValue>,
}

impl ToolCall<'_> {
    /// The signature that Google's chat endpoint gives a call (Gemini API docs, "OpenAI compatibility").
    pub(super) fn signature(&self) -> Option<Signature> {
        #[derive(Deserialize)]
        struct ExtraContent {
            google: Google,
        }
        #[derive(Deserialize)]
        struct Google {
            thought_signature: String,
        }
        let extra = serde_json::from_str::<ExtraContent>(self.extra_content?.get()).ok()?;
        let value = Some(extra.google.thought_signature).filter(|value| !value.is_empty())?;
        Some(Signature { owner: Protocol::Gemini, value })
    }
}

#[derive(Deserialize)]
pub(super) struct Function<'a> {
    pub name: Option<LenientText>,
    #[serde(borrow)]
    pub arguments: Option<&'a RawValue>,
}

impl Function<'_> {
    /// The arguments as text; some upstreams send an object instead of a string.
    pub(super) fn arguments(&self) -> LenientText {
        let given = self.arguments.filter(|raw| raw.get() != "null");
        given.and_then(|raw| part_of(raw).or_else(|| Some(compact(raw)?.into()))).unwrap_or_default()
    }
}

#[derive(Deserialize)]
pub(super) struct Custom<'a> {
    pub name: Option<LenientText>,
    #[serde(borrow)]
    pub input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Image {
    pub image_url: Option<ImageUrl>,
}

#[derive(Deserialize)]
pub(super) struct ImageUrl {
    pub url: LenientText,
}

#[derive(Deserialize)]
pub(super) struct Audio {
    pub data: Option<LenientText>,
    pub transcript: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct Annotation {
    pub url_citation: Option<UrlCitation>,
}

#[derive(Deserialize)]
pub(super) struct UrlCitation {
    #[serde(default)]
    pub start_index: LenientCount,
    #[serde(default)]
    pub end_index: LenientCount,
    pub url: LenientText,
    pub title: Option<LenientText>,
}

#[derive(Deserialize)]
pub(super) struct Logprobs {
    pub content: Option<Vec<LogprobEntry>>,
}

#[derive(Deserialize)]
pub(super) struct LogprobEntry {
    pub token: LenientText,
    pub logprob: serde_json::Number,
    pub top_logprobs: Option<Vec<TopLogprob>>,
}

#[derive(Deserialize)]
pub(super) struct TopLogprob {
    pub token: LenientText,
    pub logprob: serde_json::Number,
}
