//! JSON numbers: the grammar and exact conversion.

use super::SyntaxError;

/// Validates the number at `start` and returns the offset of its end.
pub(super) fn end(bytes: &[u8], start: usize) -> Result<usize, SyntaxError> {
    let mut at = start;
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    match bytes.get(at) {
        Some(b'0') => at += 1,
        Some(b'1'..=b'9') => at = digits(bytes, at),
        _ => return Err(SyntaxError::new(at, "expected a digit")),
    }
    if let Some(b'0'..=b'9') = bytes.get(at) {
        return Err(SyntaxError::new(at, "expected no digit after a leading zero"));
    }
    if bytes.get(at) == Some(&b'.') {
        at = some_digits(bytes, at + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = bytes.get(at) {
            at += 1;
        }
        at = some_digits(bytes, at)?;
    }
    Ok(at)
}

fn some_digits(bytes: &[u8], at: usize) -> Result<usize, SyntaxError> {
    let end = digits(bytes, at);
    if end == at { Err(SyntaxError::new(at, "expected a digit")) } else { Ok(end) }
}

fn digits(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// A JSON number as an exact whole number of at least 0: `5`, `5.0`, `1e2`, `-0`. `None` for other numbers, for text that is
/// not a JSON number, and on overflow.
pub(crate) fn whole(number: &str) -> Option<u64> {
    plain_whole(number.as_bytes()).or_else(|| any_whole(number))
}

/// A number that is written as up to 18 digits, as nearly all are.
fn plain_whole(digits: &[u8]) -> Option<u64> {
    if !matches!(digits, [b'0'] | [b'1'..=b'9', ..]) || digits.len() > 18 {
        return None;
    }
    digits.iter().try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + u64::from(digit - b'0')))
}

fn any_whole(number: &str) -> Option<u64> {
    if number.is_empty() || end(number.as_bytes(), 0) != Ok(number.len()) {
        return None;
    }
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent_of(exponent)),
        None => (number, 0),
    };
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut value: u64 = 0;
    let mut zeros: u32 = 0; // after the last non-zero digit
    for digit in integer.bytes().chain(fraction.bytes()) {
        if digit == b'0' {
            zeros = zeros.saturating_add(u32::from(value > 0));
            continue;
        }
        value = value.checked_mul(10_u64.checked_pow(zeros.checked_add(1)?)?)?.checked_add(u64::from(digit - b'0'))?;
        zeros = 0;
    }
    if value == 0 {
        return Some(0);
    }
    let scale = i64::from(zeros) + exponent - i64::try_from(fraction.len()).ok()?;
    if negative {
        return None;
    }
    value.checked_mul(10_u64.checked_pow(u32::try_from(scale).ok()?)?)
}

/// The exponent, clamped far outside of the representable range.
fn exponent_of(text: &str) -> i64 {
    const FAR: i64 = 1_000_000_000_000;
    let far = if text.starts_with('-') { -FAR } else { FAR };
    text.parse::<i64>().map_or(far, |exponent| exponent.clamp(-FAR, FAR))
}

pub(crate) fn is_finite(number: &str) -> bool {
    // Without an exponent only a number of more than 300 digits can be too large.
    let is_small = || number.len() < 300 && !number.bytes().any(|byte| matches!(byte, b'e' | b'E'));
    !number.is_empty()
        && end(number.as_bytes(), 0) == Ok(number.len())
        && (is_small() || number.parse::<f64>().is_ok_and(f64::is_finite))
}
