//! Exact conversion between decimal text and scaled integers.

use super::ParseMoneyError;

/// Parses digits with at most `decimals` of them after the point, as an integer of that scale. No sign, exponent or grouping. The
/// integer part may be omitted, the fraction after a point may not.
pub(super) fn parse(text: &str, decimals: u32) -> Result<i64, ParseMoneyError> {
    parse_or_none(text, decimals).ok_or_else(|| {
        let is_amount = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && text.parse::<f64>().is_ok();
        // Digits beyond the scale are a different error than a large amount.
        let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction).trim_end_matches('0');
        let is_too_large = is_amount && fraction.len() <= decimals as usize && !text.ends_with('.');
        ParseMoneyError { text: text.to_owned(), max_decimals: decimals, is_too_large }
    })
}

fn parse_or_none(text: &str, decimals: u32) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
    let fraction_digits = fraction.unwrap_or("0");
    if fraction_digits.is_empty() || (whole.is_empty() && fraction.is_none()) {
        return None;
    }
    let mut value: i64 = 0;
    for byte in whole.bytes() {
        value = push(value, byte)?;
    }
    // Zeros beyond the scale are harmless; other digits would have to be rounded.
    let (digits_kept, excess) = fraction_digits.split_at_checked(decimals as usize).unwrap_or((fraction_digits, ""));
    if excess.bytes().any(|byte| byte != b'0') {
        return None;
    }
    for position in 0..decimals as usize {
        value = push(value, digits_kept.as_bytes().get(position).copied().unwrap_or(b'0'))?;
    }
    Some(value)
}

fn push(value: i64, digit: u8) -> Option<i64> {
    if !digit.is_ascii_digit() {
        return None;
    }
    value.checked_mul(10)?.checked_add(i64::from(digit - b'0'))
}

/// Formats an integer of this scale with at least `min_decimals` decimals and no trailing zeros beyond them.
pub(super) fn print(value: i64, decimals: u32, min_decimals: usize) -> String {
    let scale = 10u64.pow(decimals);
    let size = value.unsigned_abs();
    let (whole, fraction) = (size / scale, size % scale);
    let mut text = format!("{}{whole}", if value < 0 { "-" } else { "" });
    let digits = format!("{fraction:0width$}", width = decimals as usize);
    let digits_kept = digits.trim_end_matches('0').len().max(min_decimals);
    if digits_kept > 0 {
        text.push('.');
        text.push_str(&digits[..digits_kept]);
    }
    text
}
