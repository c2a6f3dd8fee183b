//! Formats values for messages: masked keys, amounts, times, quoted text.

use tollgate_core::{NanoUsd, Secret, Timestamp};
use tollgate_protocol::Protocol;

/// Path of the model list, which messages refer to.
pub(super) fn list_path(from: Protocol) -> &'static str {
    from.spec().caller.map_or("/v1/models", |caller| caller.model_list_path)
}

/// A protocol's name for callers: the paths of its requests.
pub(super) const fn protocol_text(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::OpenAi => "chat completions and embeddings (/v1/chat/completions, /v1/embeddings)",
        Protocol::Gemini => "the native protocol (/v1beta)",
        Protocol::Anthropic => "Messages (/v1/messages)",
        Protocol::Responses => "Responses (/v1/responses)",
    }
}

/// First three and last four characters of a key; `***` for a key too short to hide the rest.
pub(super) fn masked(key: Option<&Secret>) -> String {
    let Some(key) = key else { return "***".to_owned() };
    let shown = key.expose().chars().map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect::<Vec<_>>();
    if shown.len() < 12 {
        return "***".to_owned();
    }
    let (first, last) = (&shown[..3], &shown[shown.len() - 4..]);
    first.iter().chain(&['*'; 3]).chain(last).collect()
}

/// Whole seconds from now, rounded up, for the caller's `Retry-After`.
pub(crate) fn seconds_until(until: Timestamp, now: Timestamp) -> u32 {
    u32::try_from(until.ms_since(now).max(0).unsigned_abs().div_ceil(1_000)).unwrap_or(u32::MAX)
}

/// RFC 3339 in UTC, whole seconds.
pub(super) fn time(at: Timestamp) -> String {
    jiff::Timestamp::from_second(at.seconds()).map_or_else(|_| "an unknown time".to_owned(), |at| at.to_string())
}

/// USD with at least two decimals and no trailing zeros after them.
pub(super) fn usd(amount: NanoUsd) -> String {
    let sign = if amount.0 < 0 { "-" } else { "" };
    let nanos = amount.0.unsigned_abs();
    let mut decimals = format!("{:09}", nanos % 1_000_000_000);
    while decimals.len() > 2 && decimals.ends_with('0') {
        decimals.pop();
    }
    format!("{sign}{}.{decimals}", nanos / 1_000_000_000)
}

/// Caller-supplied text for an error message: bounded in length, without control characters.
pub(super) fn quoted(text: &str) -> String {
    const MAX: usize = 256;
    let mut out = text.chars().take(MAX).map(|c| if c.is_control() { '?' } else { c }).collect::<String>();
    if text.chars().nth(MAX).is_some() {
        out.push('…');
    }
    out
}

/// A path as [`quoted`], without keys that were put into it by mistake: long segments with digits are cut.
pub(super) fn quoted_path(path: &str) -> String {
    const LONG: usize = 20;
    let segment = |text: &str| {
        let is_long = text.chars().nth(LONG).is_some() && text.bytes().any(|byte| byte.is_ascii_digit());
        if is_long { text.chars().take(3).chain(['…']).collect() } else { text.to_owned() }
    };
    quoted(&path.split('/').map(segment).collect::<Vec<_>>().join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_in_a_path_is_masked() {
        assert_eq!(quoted_path("/v1/sk-proj-AbCdEf0123456789AbCdEf/chat"), "/v1/sk-…/chat");
        assert_eq!(quoted_path("/v1beta/models:generateContents"), "/v1beta/models:generateContents");
    }

    #[test]
    fn masked_key_shows_its_first_three_and_last_four_characters() {
        assert_eq!(masked(Some(&Secret::new("abcdefghijklmnopwxyz".to_owned()))), "abc***wxyz");
        assert_eq!(masked(Some(&Secret::new("short".to_owned()))), "***");
        assert_eq!(masked(Some(&Secret::new("äöü\r\n-secret-wxyz".to_owned()))), "???***wxyz");
        assert_eq!(masked(None), "***");
    }

    #[test]
    fn amounts_keep_two_decimals() {
        assert_eq!(usd(NanoUsd(50_000_000_000)), "50.00");
        assert_eq!(usd(NanoUsd(1_500_000_000)), "1.50");
        assert_eq!(usd(NanoUsd(37_500)), "0.0000375");
        assert_eq!(usd(NanoUsd(-250_000_000)), "-0.25");
    }

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(time(Timestamp(1_793_491_200_000_000)), "2026-11-01T00:00:00Z");
    }

    #[test]
    fn quoted_text_is_bounded_and_visible() {
        assert_eq!(quoted("a\u{0}b\n"), "a?b?");
        assert_eq!(quoted(&"x".repeat(300)).chars().count(), 257);
    }

    #[test]
    fn seconds_for_the_caller_are_rounded_up() {
        assert_eq!(seconds_until(Timestamp(0).plus_ms(1_001), Timestamp(0)), 2);
        assert_eq!(seconds_until(Timestamp(0).plus_ms(-5), Timestamp(0)), 0);
    }
}
