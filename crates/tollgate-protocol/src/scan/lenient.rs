//! Reading upstream replies: a value of an unexpected type is skipped, and only invalid syntax is an error.

use std::ops::Range;

use super::{JsonStr, Name, Scanner, SyntaxError, Value, ValueKind};

/// A count of at most this many digits cannot exceed the largest one.
const PLAIN_DIGITS: usize = 9;
/// Largest plausible token count.
const MAX_TOKEN_COUNT: u64 = u32::MAX as u64;

impl<'a> Scanner<'a> {
    /// A scanner without the bound on the number of values: embeddings have millions.
    pub(crate) fn answer(body: &'a [u8]) -> Result<Self, SyntaxError> {
        let mut scanner = Self::new(body)?;
        scanner.max_nodes = u32::MAX;
        Ok(scanner)
    }

    /// Reads a whole reply that must be an object.
    pub(crate) fn answer_object(
        body: &'a [u8],
        each: impl FnMut(&mut Self, &Name<'a>) -> Result<(), SyntaxError>,
    ) -> Result<(), SyntaxError> {
        let mut scanner = Self::answer(body)?;
        if scanner.peek() != ValueKind::Object {
            return Err(SyntaxError::new(scanner.position(), "expected an object"));
        }
        scanner.members(each)?;
        scanner.end()
    }

    /// Reads an object; a value that `each` leaves unread is skipped. A value of another type is skipped and gives `None`.
    pub(crate) fn members(
        &mut self,
        mut each: impl FnMut(&mut Self, &Name<'a>) -> Result<(), SyntaxError>,
    ) -> Result<Option<Range<usize>>, SyntaxError> {
        if self.peek() != ValueKind::Object {
            self.skip()?;
            return Ok(None);
        }
        let range = self.object(|scanner, name| {
            scanner.peek();
            let value = scanner.position();
            each(scanner, &name)?;
            if scanner.position() == value {
                scanner.skip()?;
            }
            Ok(())
        })?;
        Ok(Some(range))
    }

    /// Reads an array like [`Scanner::members`]; returns the number of elements.
    pub(crate) fn elements(
        &mut self,
        mut each: impl FnMut(&mut Self, usize) -> Result<(), SyntaxError>,
    ) -> Result<Option<usize>, SyntaxError> {
        if self.peek() != ValueKind::Array {
            self.skip()?;
            return Ok(None);
        }
        let mut length = 0;
        self.array(|scanner, index| {
            length = index + 1;
            scanner.peek();
            let value = scanner.position();
            each(scanner, index)?;
            if scanner.position() == value {
                scanner.skip()?;
            }
            Ok(())
        })?;
        Ok(Some(length))
    }

    #[inline]
    pub(crate) fn optional_string(&mut self) -> Result<Option<JsonStr<'a>>, SyntaxError> {
        if self.peek() != ValueKind::Text {
            self.skip_value()?;
            return Ok(None);
        }
        self.node()?;
        self.text().map(Some)
    }

    /// Reads a token count: a number or a string that contains one, rounded. The inner `Err` stands for a negative or
    /// implausibly large number or another type; `null` is `Ok(None)`.
    pub(crate) fn token_count(&mut self) -> Result<Result<Option<u64>, InvalidCount>, SyntaxError> {
        if let Some(count) = self.plain_count() {
            return Ok(Ok(Some(count)));
        }
        let figure = match self.value()?.0 {
            Value::Null => return Ok(Ok(None)),
            Value::Number(number) => figure(number),
            Value::Text(text) => figure(text.decode().trim()),
            Value::Bool(_) | Value::Array | Value::Object => None,
        };
        Ok(figure.map(Some).ok_or(InvalidCount))
    }
}

impl Scanner<'_> {
    /// Reads a count of up to nine digits, as nearly all are; nothing is read of any other value.
    #[inline]
    fn plain_count(&mut self) -> Option<u64> {
        self.space();
        let rest = self.rest();
        let mut count = 0;
        let mut digits = 0;
        while let Some(digit @ b'0'..=b'9') = rest.get(digits) {
            if digits == PLAIN_DIGITS || (digits > 0 && count == 0) {
                return None;
            }
            count = count * 10 + u64::from(digit - b'0');
            digits += 1;
        }
        if digits == 0 || !matches!(rest.get(digits), Some(b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t')) {
            return None;
        }
        self.node().ok()?;
        self.at += digits;
        Some(count)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidCount;

fn figure(text: &str) -> Option<u64> {
    if let Ok(whole) = text.parse::<u64>() {
        return (whole <= MAX_TOKEN_COUNT).then_some(whole);
    }
    let figure: f64 = text.parse().ok()?;
    if !(0.0..=4_294_967_295.0).contains(&figure) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was just checked")]
    let whole = figure.round() as u64;
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_counts_accept_floats_and_strings_within_bounds() {
        for (text, expected) in [
            ("7", Ok(Some(7))),
            ("7 ", Ok(Some(7))),
            ("0 ", Ok(Some(0))),
            ("123456789 ", Ok(Some(123_456_789))),
            ("1234567890 ", Ok(Some(1_234_567_890))),
            ("4294967296 ", Err(InvalidCount)),
            ("0", Ok(Some(0))),
            ("null", Ok(None)),
            ("12.0", Ok(Some(12))),
            ("12.6", Ok(Some(13))),
            ("1e3", Ok(Some(1000))),
            ("\"42\"", Ok(Some(42))),
            ("\" 4\\u0032 \"", Ok(Some(42))),
            ("-1", Err(InvalidCount)),
            ("\"-1\"", Err(InvalidCount)),
            ("9223372036854775808", Err(InvalidCount)),
            ("1e400", Err(InvalidCount)),
            ("\"many\"", Err(InvalidCount)),
            ("\"nan\"", Err(InvalidCount)),
            ("true", Err(InvalidCount)),
            ("[1]", Err(InvalidCount)),
        ] {
            assert_eq!(Scanner::answer(text.as_bytes()).unwrap().token_count(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn malformed_numbers_are_errors_in_token_counts() {
        for text in ["00 ", "01 ", "-", "1.}", " ,", ""] {
            assert!(Scanner::answer(text.as_bytes()).unwrap().token_count().is_err(), "{text}");
        }
    }

    #[test]
    fn values_of_other_types_and_unread_members_are_skipped() {
        let mut scanner = Scanner::answer(br#"[ null , {"a":[1, {}] ,"b": 7 }, "x"]"#).unwrap();
        let mut seen = Vec::new();
        let length = scanner.elements(|scanner, index| {
            let object = scanner.members(|scanner, name| {
                if name.word() == "b" {
                    seen.push(scanner.token_count()?);
                }
                Ok(())
            })?;
            assert_eq!(object.is_some(), index == 1);
            Ok(())
        });
        assert_eq!((length, seen), (Ok(Some(3)), vec![Ok(Some(7))]));
        assert_eq!(scanner.end(), Ok(()));
        assert_eq!(Scanner::answer(b"{}").unwrap().elements(|_, _| Ok(())), Ok(None));
        assert_eq!(Scanner::answer(b"[]").unwrap().elements(|_, _| Ok(())), Ok(Some(0)));
    }

    #[test]
    fn replies_have_no_bound_on_values() {
        let long = format!("[{}0]", "0,".repeat(300_000));
        assert!(Scanner::answer(long.as_bytes()).unwrap().skip().is_ok());
        assert!(Scanner::new(long.as_bytes()).unwrap().skip().is_err());
    }
}
