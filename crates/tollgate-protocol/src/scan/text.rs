//! JSON strings: finding the end, validating escapes, decoding on demand.

use std::{borrow::Cow, ops::Range};

use super::SyntaxError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JsonStr<'a> {
    raw: &'a str,
    start: usize,
    decoded: usize,
}

impl<'a> JsonStr<'a> {
    pub(super) const fn new(raw: &'a str, start: usize, decoded: usize) -> Self {
        Self { raw, start, decoded }
    }

    /// The text between the quotes, escapes as written.
    pub(crate) const fn raw(&self) -> &'a str {
        self.raw
    }

    /// Length in bytes of UTF-8 with escapes decoded.
    pub(crate) const fn decoded_bytes(&self) -> u64 {
        self.decoded as u64
    }

    /// Range in the document, without the quotes.
    pub(crate) const fn content_range(&self) -> Range<usize> {
        self.start..self.start + self.raw.len()
    }

    /// The decoded text; borrowed unless it has escapes. A lone surrogate becomes U+FFFD.
    #[inline]
    pub(crate) fn decode(&self) -> Cow<'a, str> {
        // Every escape is longer than the character it encodes.
        if self.decoded == self.raw.len() { Cow::Borrowed(self.raw) } else { Cow::Owned(decode(self.raw, self.decoded)) }
    }

    pub(crate) fn is_blank(&self) -> bool {
        self.decode().trim().is_empty()
    }
}

/// Offset of the closing quote of the string whose content begins at `start`, and the decoded length.
pub(super) fn scan(bytes: &[u8], start: usize) -> Result<(usize, usize), SyntaxError> {
    let mut at = start;
    let mut saved = 0;
    loop {
        at = next_special(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return Ok((at, at - start - saved)),
            Some(b'\\') => {
                let (written, decoded) = escape(bytes, at)?;
                saved += written - decoded;
                at += written;
            }
            Some(_) => return Err(SyntaxError::new(at, "control character in a string")),
            None => return Err(SyntaxError::new(at, "expected '\"'")),
        }
    }
}

/// Validates the escape at `at`; returns its encoded and decoded length.
fn escape(bytes: &[u8], at: usize) -> Result<(usize, usize), SyntaxError> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok((2, 1)),
        Some(b'u') => match unit(bytes, at) {
            None => Err(SyntaxError::new(at, "expected four hexadecimal digits after '\\u'")),
            Some(0..=0x7F) => Ok((6, 1)),
            Some(0x80..=0x7FF) => Ok((6, 2)),
            Some(0xD800..=0xDBFF) if matches!(unit(bytes, at + 6), Some(0xDC00..=0xDFFF)) => Ok((12, 4)),
            Some(_) => Ok((6, 3)),
        },
        _ => Err(SyntaxError::new(at, "unknown escape in a string")),
    }
}

/// The UTF-16 unit of a whole `\uXXXX` at `at`.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let written = bytes.get(at..at + 6)?;
    if written[0] != b'\\' || written[1] != b'u' {
        return None;
    }
    written[2..].iter().try_fold(0_u16, |unit, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some((unit << 4) | u16::try_from(digit).ok()?)
    })
}

/// Offset of the next quote, backslash or control character; the length of `bytes` if there is none.
fn next_special(bytes: &[u8], mut at: usize) -> usize {
    loop {
        // Most strings are short: try a few words, then blocks that the compiler vectorises.
        for _ in 0..4 {
            let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) else {
                return at + bytes[at..].iter().take_while(|byte| !is_special(**byte)).count();
            };
            let hits = special_bytes(u64::from_le_bytes(*word));
            if hits != 0 {
                return at + hits.trailing_zeros() as usize / 8;
            }
            at += 8;
        }
        while let Some(block) = bytes[at..].first_chunk::<64>() {
            if has_special(block) {
                break;
            }
            at += 64;
        }
    }
}

const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Whether a block contains a special byte, without branches.
fn has_special(block: &[u8; 64]) -> bool {
    let found =
        block.iter().fold(0, |found, byte| found | u8::from(*byte < 0x20) | u8::from(*byte == b'"') | u8::from(*byte == b'\\'));
    found != 0
}

/// Sets the high bit of every special byte. Bits above the lowest one set may be false positives, from a borrow.
const fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = quote.wrapping_sub(ONES) & !quote;
    let backslash = backslash.wrapping_sub(ONES) & !backslash;
    (control | quote | backslash) & HIGH
}

fn decode(raw: &str, decoded: usize) -> String {
    let bytes = raw.as_bytes();
    let mut text = String::with_capacity(decoded);
    let mut rest = 0;
    while let Some(offset) = memchr::memchr(b'\\', &bytes[rest..]) {
        let at = rest + offset;
        text.push_str(&raw[rest..at]);
        rest = at + 2;
        match bytes.get(at + 1) {
            Some(b'b') => text.push('\u{8}'),
            Some(b'f') => text.push('\u{c}'),
            Some(b'n') => text.push('\n'),
            Some(b'r') => text.push('\r'),
            Some(b't') => text.push('\t'),
            Some(b'u') => {
                let (character, written) = code_point(bytes, at);
                text.push(character);
                rest = at + written;
            }
            Some(plain) => text.push(char::from(*plain)),
            None => break,
        }
    }
    text.push_str(raw.get(rest..).unwrap_or_default());
    text
}

/// The character of the `\u` escape at `at` and the bytes it is written with.
fn code_point(bytes: &[u8], at: usize) -> (char, usize) {
    let first = u32::from(unit(bytes, at).unwrap_or(0xFFFD));
    if (0xD800..0xDC00).contains(&first)
        && let Some(second @ 0xDC00..=0xDFFF) = unit(bytes, at + 6)
    {
        let scalar = 0x1_0000 + ((first - 0xD800) << 10) + (u32::from(second) - 0xDC00);
        return (char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER), 12);
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 6)
}
