//! Text that is usually short.

use std::{borrow::Borrow, fmt, ops::Deref};

use compact_str::CompactString;
use minicbor::{
    Decode, Decoder, Encode, Encoder,
    decode::Error as DecodeError,
    encode::{Error as EncodeError, Write},
};
use serde::{Deserialize, Serialize};

/// Text of a record, such as a name. Up to 24 bytes are stored inline: a record is made on one thread and freed on another, and each
/// heap-allocated name would be a block of memory that moves between their allocators. Encoded as a string everywhere.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShortText(CompactString);

impl ShortText {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for ShortText {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for ShortText {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for ShortText {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for ShortText {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<&String> for ShortText {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<String> for ShortText {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<ShortText> for String {
    fn from(text: ShortText) -> Self {
        text.0.into()
    }
}

impl PartialEq<str> for ShortText {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for ShortText {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for ShortText {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<ShortText> for String {
    fn eq(&self, other: &ShortText) -> bool {
        other == self
    }
}

impl fmt::Display for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<C> Encode<C> for ShortText {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, context: &mut C) -> Result<(), EncodeError<W::Error>> {
        self.as_str().encode(encoder, context)
    }
}

impl<'b, C> Decode<'b, C> for ShortText {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, DecodeError> {
        decoder.str().map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_encoded_as_a_string_whatever_its_length() {
        for text in ["", "gpt", "模型", &"m".repeat(24), &"m".repeat(25), &"m".repeat(256)] {
            let short = ShortText::from(text);
            assert_eq!(short, text);
            let (cbor, json) = (minicbor::to_vec(&short).unwrap(), serde_json::to_string(&short).unwrap());
            assert_eq!((&cbor, &json), (&minicbor::to_vec(text).unwrap(), &serde_json::to_string(text).unwrap()));
            assert_eq!(minicbor::decode::<ShortText>(&cbor).unwrap(), text);
            assert_eq!(serde_json::from_str::<ShortText>(&json).unwrap(), text);
            assert_eq!(String::from(short), text);
        }
        assert!(minicbor::decode::<ShortText>(&[0x01]).is_err());
        assert_eq!(format!("{:>5}|{:?}", ShortText::from("ab"), ShortText::from("a\"b")), "   ab|\"a\\\"b\"");
    }

    #[test]
    fn short_text_takes_as_much_space_as_a_string() {
        assert_eq!(size_of::<ShortText>(), size_of::<String>());
        assert_eq!(size_of::<Option<ShortText>>(), size_of::<String>());
    }
}
