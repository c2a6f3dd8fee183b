//! JSON strings: finding the end, validating escapes, decoding on demand.

use std::{borrow::Cow, ops::Range};

use wide::u8x16;

use super::SyntaxError;

/// Bytes that are looked at together.
const BLOCK: usize = 16;

/// A string of a document. Its text is sliced only on use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JsonStr<'a> {
    body: &'a str,
    start: usize,
    end: usize,
    decoded: usize,
}

impl<'a> JsonStr<'a> {
    #[inline]
    pub(super) const fn new(body: &'a str, content: Range<usize>, decoded: usize) -> Self {
        Self { body, start: content.start, end: content.end, decoded }
    }

    /// The text between the quotes, escapes as written.
    #[inline]
    pub(crate) fn raw(&self) -> &'a str {
        self.body.get(self.start..self.end).unwrap_or_default()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Length in bytes of UTF-8 with escapes decoded.
    pub(crate) const fn decoded_bytes(&self) -> u64 {
        self.decoded as u64
    }

    /// Range in the document, without the quotes.
    pub(crate) const fn content_range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// The decoded text; borrowed unless it has escapes. A lone surrogate becomes U+FFFD.
    #[inline]
    pub(crate) fn decode(&self) -> Cow<'a, str> {
        // Every escape is longer than the character it encodes.
        if self.decoded == self.end - self.start { Cow::Borrowed(self.raw()) } else { Cow::Owned(decode(self.raw(), self.decoded)) }
    }

    pub(crate) fn is_blank(&self) -> bool {
        // Most texts begin with a letter.
        let first = self.body.as_bytes().get(self.start);
        !first.is_some_and(u8::is_ascii_alphanumeric) && self.decode().trim().is_empty()
    }
}

/// Offset of the closing quote of the string whose content begins at `start`, and the decoded length. `at` is the offset of
/// its first special byte.
#[inline(never)]
pub(super) fn scan(bytes: &[u8], start: usize, mut at: usize) -> Result<(usize, usize), SyntaxError> {
    let mut saved = 0;
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok((at, at - start - saved)),
            Some(b'\\') => {
                let (written, decoded) = escape(bytes, at)?;
                saved += written - decoded;
                at = next_special(bytes, at + written);
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
#[inline]
pub(super) fn next_special(bytes: &[u8], at: usize) -> usize {
    // Most names and many values are this short.
    let Some(block) = bytes.get(at..).and_then(<[u8]>::first_chunk::<BLOCK>) else { return next_special_of_few(bytes, at) };
    let marks = special_bytes(*block);
    if marks == 0 { next_special_of_many(bytes, at + BLOCK) } else { at + marks.trailing_zeros() as usize }
}

/// [`next_special`] if it is one of the next 32 bytes and not near the end of `bytes`. Inlined: nearly all names are this short, and
/// without a call they need half the steps.
#[inline]
pub(super) fn next_special_of_short(bytes: &[u8], at: usize) -> Option<usize> {
    let (blocks, _) = bytes.get(at..)?.as_chunks::<BLOCK>();
    let first = special_bytes(*blocks.first()?);
    if first != 0 {
        return Some(at + first.trailing_zeros() as usize);
    }
    let second = special_bytes(*blocks.get(1)?);
    (second != 0).then(|| at + BLOCK + second.trailing_zeros() as usize)
}

/// [`next_special`] of a string that is longer.
#[inline(never)]
fn next_special_of_many(bytes: &[u8], mut at: usize) -> usize {
    loop {
        for _ in 0..2 {
            let Some(block) = bytes.get(at..).and_then(<[u8]>::first_chunk::<BLOCK>) else { return next_special_of_few(bytes, at) };
            let marks = special_bytes(*block);
            if marks != 0 {
                return at + marks.trailing_zeros() as usize;
            }
            at += BLOCK;
        }
        while let Some(block) = bytes[at..].first_chunk::<64>() {
            if block.iter().fold(false, |found, byte| found | is_special(*byte)) {
                break;
            }
            at += 64;
        }
    }
}

/// [`next_special`] of the last bytes.
#[inline(never)]
fn next_special_of_few(bytes: &[u8], at: usize) -> usize {
    at + bytes.get(at..).unwrap_or_default().iter().take_while(|byte| !is_special(**byte)).count()
}

/// Whether a byte is a quote, a backslash or a control character. With the bit 2 flipped, quote and control characters are the
/// bytes up to 0x20.
const fn is_special(byte: u8) -> bool {
    (byte ^ 2) <= 0x20 || byte == b'\\'
}

/// One bit for every special byte, the first byte lowest.
#[inline]
fn special_bytes(block: [u8; BLOCK]) -> u32 {
    let block = u8x16::new(block);
    let flipped = block ^ u8x16::splat(2);
    let low = flipped.min(u8x16::splat(0x20)).simd_eq(flipped);
    (low | block.simd_eq(u8x16::splat(b'\\'))).to_bitmask()
}

#[cold]
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
