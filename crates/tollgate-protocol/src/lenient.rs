//! Lenient deserialization of upstream replies: strings with invalid characters, counts in any JSON type.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// Largest plausible count; larger ones would overflow sums.
const MAX_COUNT: u64 = u32::MAX as u64;

/// A JSON string; lone surrogates and invalid UTF-8 become U+FFFD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LenientText(pub(crate) String, Edges);

/// Lone surrogates at the edges of a text. They may be the halves of a character that is divided between two parts of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Edges {
    /// A low surrogate at the beginning.
    low: Option<u16>,
    /// A high surrogate at the end.
    high: Option<u16>,
}

impl Edges {
    /// The edges of a text as [`text_without_surrogates`] takes it.
    fn of(bytes: &[u8]) -> Self {
        let surrogate = |bytes: Option<&[u8; 3]>| match bytes {
            Some([0xed, second @ 0xa0..=0xbf, third @ 0x80..=0xbf]) => {
                Some(0xd000 | u16::from(second & 0x3f) << 6 | u16::from(third & 0x3f))
            }
            _ => None,
        };
        Self {
            low: surrogate(bytes.first_chunk()).filter(|unit| *unit >= 0xdc00),
            high: surrogate(bytes.last_chunk()).filter(|unit| *unit < 0xdc00),
        }
    }
}

impl LenientText {
    /// The text of a string that `serde_json` gave as bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(text_without_surrogates(bytes), Edges::of(bytes))
    }

    /// The text; `None` if absent or empty.
    pub(crate) fn filled(text: Option<Self>) -> Option<String> {
        text.map(|text| text.0).filter(|text| !text.is_empty())
    }
}

impl<'de> Deserialize<'de> for LenientText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = LenientText;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a string")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<LenientText, E> {
                Ok(LenientText::from_bytes(bytes))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<LenientText, E> {
                Ok(text.to_owned().into())
            }
        }
        // As bytes, serde_json passes strings on without validating their characters.
        from.deserialize_bytes(Reader)
    }
}

impl From<String> for LenientText {
    fn from(text: String) -> Self {
        Self(text, Edges::default())
    }
}

/// Joins the parts of one text of a stream. A character beyond U+FFFF that two parts divide, each with one surrogate, becomes whole.
#[derive(Debug, Default)]
pub(crate) struct TextJoiner {
    /// A high surrogate at the end of the last part.
    high: Option<u16>,
}

impl TextJoiner {
    /// The text of the next part. A high surrogate at its end waits for the part after it.
    pub(crate) fn join(&mut self, part: LenientText) -> String {
        let LenientText(mut text, edges) = part;
        if text.is_empty() {
            return text;
        }
        if let Some(high) = self.high.take() {
            match edges.low.and_then(|low| char::decode_utf16([high, low]).next()?.ok()) {
                Some(whole) => text.replace_range(..REPLACEMENT.len(), whole.encode_utf8(&mut [0; 4])),
                None => text.insert_str(0, REPLACEMENT),
            }
        }
        if edges.high.is_some() {
            text.truncate(text.len() - REPLACEMENT.len());
            self.high = edges.high;
        }
        text
    }

    /// Ends the text; returns the replacement for a waiting surrogate, if there is one.
    pub(crate) fn finish(&mut self) -> Option<String> {
        self.high.take().map(|_| REPLACEMENT.to_owned())
    }
}

const REPLACEMENT: &str = "\u{fffd}";

/// The text of bytes in which `serde_json` has written lone surrogates as three bytes each (ED A0..BF 80..BF). Each becomes one
/// U+FFFD, and so does any other invalid sequence.
fn text_without_surrogates(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    // Bytes that may still belong to the surrogate before them.
    let mut rest = 0_u8;
    for chunk in bytes.utf8_chunks() {
        if !chunk.valid().is_empty() {
            rest = 0;
        }
        out.push_str(chunk.valid());
        match chunk.invalid() {
            [] => {}
            [0x80..=0xbf] if rest > 0 => rest -= 1,
            invalid => {
                rest = if invalid == [0xed] { 2 } else { 0 };
                out.push('\u{fffd}');
            }
        }
    }
    out
}

/// The content of a raw string; `None` for another type.
pub(crate) fn text_of(raw: &RawValue) -> Option<String> {
    part_of(raw).map(|text| text.0)
}

/// The content of a raw string that may be a part of a text; `None` for another type.
pub(crate) fn part_of(raw: &RawValue) -> Option<LenientText> {
    serde_json::from_str(raw.get()).ok()
}

/// Whether a raw value is present and not `null`, `false`, `0`, `""`, `{}` or `[]`.
pub(crate) fn is_truthy(raw: Option<&RawValue>) -> bool {
    raw.is_some_and(|raw| !matches!(raw.get(), "null" | "false" | "0" | "\"\"" | "{}" | "[]"))
}

/// A count: a number, a whole float or a string with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LenientCount {
    /// Absent or `null`.
    #[default]
    Absent,
    /// Negative, fractional, implausibly large, or not a number.
    Unreadable,
    Given(u64),
}

impl LenientCount {
    pub(crate) const fn given(self) -> Option<u64> {
        match self {
            Self::Given(count) => Some(count),
            Self::Absent | Self::Unreadable => None,
        }
    }

    /// The count; 0 if absent or invalid.
    pub(crate) fn or_zero(self) -> u64 {
        self.given().unwrap_or(0)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "bounds are checked")]
    fn of(count: f64) -> Self {
        if count.fract() == 0.0 && (0.0..=MAX_COUNT as f64).contains(&count) { Self::Given(count as u64) } else { Self::Unreadable }
    }
}

impl<'de> Deserialize<'de> for LenientCount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        #[expect(clippy::cast_precision_loss, reason = "larger integers are not plausible counts")]
        impl<'de> Visitor<'de> for Reader {
            type Value = LenientCount;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("anything")
            }

            fn visit_unit<E: Error>(self) -> Result<LenientCount, E> {
                Ok(LenientCount::Absent)
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<LenientCount, E> {
                Ok(LenientCount::Unreadable)
            }

            fn visit_u64<E: Error>(self, count: u64) -> Result<LenientCount, E> {
                Ok(LenientCount::of(count as f64))
            }

            fn visit_i64<E: Error>(self, count: i64) -> Result<LenientCount, E> {
                Ok(LenientCount::of(count as f64))
            }

            fn visit_f64<E: Error>(self, count: f64) -> Result<LenientCount, E> {
                Ok(LenientCount::of(count))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<LenientCount, E> {
                Ok(text.trim().parse().map_or(LenientCount::Unreadable, LenientCount::of))
            }

            // Elements are skipped, not read: a reply with deeply nested junk in a count stays readable.
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LenientCount, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(LenientCount::Unreadable)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LenientCount, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(LenientCount::Unreadable)
            }
        }
        from.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_characters_are_replaced() {
        let read = |json: &[u8]| serde_json::from_slice::<LenientText>(json).map(|text| text.0);
        assert_eq!(read(br#""a\u00e9\n""#).unwrap(), "aé\n");
        assert_eq!(read(br#""a\ud83d""#).unwrap(), "a\u{fffd}");
        assert_eq!(read(br#""\ude00\ud83d!""#).unwrap(), "\u{fffd}\u{fffd}!");
        assert_eq!(read(b"\"a\xff\"").unwrap(), "a\u{fffd}");
        assert!(read(b"5").is_err());
    }

    #[test]
    fn halves_of_a_character_in_two_parts_are_joined() {
        let joined = |parts: &[&str]| {
            let mut joiner = TextJoiner::default();
            let mut out: Vec<String> =
                parts.iter().map(|part| joiner.join(serde_json::from_str(&format!("\"{part}\"")).unwrap())).collect();
            out.extend(joiner.finish());
            out.join("|")
        };
        assert_eq!(joined(&["a\\ud83d", "\\ude00b"]), "a|\u{1f600}b");
        assert_eq!(joined(&["\\ud83d", "", "\\ude00\\ud83d", "\\ude00"]), "||\u{1f600}|\u{1f600}");
        assert_eq!(joined(&["a\\ud83d", "b"]), "a|\u{fffd}b");
        assert_eq!(joined(&["\\ud83d", "\\ud83d"]), "|\u{fffd}|\u{fffd}");
        assert_eq!(joined(&["\\ude00", "\\udbff\\udfff"]), "\u{fffd}|\u{10ffff}");
    }

    #[test]
    fn nested_junk_in_a_count_is_skipped_at_any_depth() {
        let junk = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        for json in [junk.clone(), format!("{{\"a\":{junk}}}")] {
            assert_eq!(serde_json::from_str::<LenientCount>(&json).unwrap(), LenientCount::Unreadable);
        }
    }

    #[test]
    fn counts_are_read_from_numbers_and_strings() {
        let read = |json: &str| serde_json::from_str::<LenientCount>(json).unwrap();
        assert_eq!(read("7"), LenientCount::Given(7));
        assert_eq!(read("7.0"), LenientCount::Given(7));
        assert_eq!(read("\"7\""), LenientCount::Given(7));
        assert_eq!(read("null"), LenientCount::Absent);
        for bad in ["-1", "1.5", "9223372036854775808", "\"x\"", "true", "[1]", "{\"a\":1}", "1e300"] {
            assert_eq!(read(bad), LenientCount::Unreadable, "{bad}");
        }
    }

    #[test]
    fn deeply_nested_junk_in_place_of_a_count_is_skipped() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let junk = format!("[{}1{},7]", open.repeat(100_000), close.repeat(100_000));
            let counts: [LenientCount; 2] = serde_json::from_str(&junk).unwrap();
            assert_eq!(counts, [LenientCount::Unreadable, LenientCount::Given(7)]);
        }
    }
}
