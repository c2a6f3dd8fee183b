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
pub(crate) struct LenientText(pub(crate) String);

impl LenientText {
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
                Ok(LenientText(text_without_surrogates(bytes)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<LenientText, E> {
                Ok(LenientText(text.to_owned()))
            }
        }
        // As bytes, serde_json passes strings on without validating their characters.
        from.deserialize_bytes(Reader)
    }
}

/// The text of bytes in which serde_json has written lone surrogates as three bytes each (ED A0..BF 80..BF). Each becomes one
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
    serde_json::from_str::<LenientText>(raw.get()).ok().map(|text| text.0)
}

/// The content of a raw string that is present and not empty.
pub(crate) fn filled_text_of(raw: Option<&RawValue>) -> Option<String> {
    raw.and_then(text_of).filter(|text| !text.is_empty())
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
