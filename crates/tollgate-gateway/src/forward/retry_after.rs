//! When an upstream may be asked again, as its answer says it: read leniently, never believed beyond a day. What is done
//! with it depends on what the answer is: health believes a rate limit for an hour at most.
//!
//! Sources, best first: `retry-after-ms`, `retry-after` (seconds or a date), the body's own figure (native
//! `RetryInfo`), the reset of a limit that stands at zero (`x-ratelimit-*` of chat completions as durations,
//! `anthropic-ratelimit-*` as points in time).

use http::HeaderMap;
use jiff::fmt::rfc2822;
use tollgate_core::Timestamp;

/// Longest wait believed.
const LONGEST_MS: i64 = 86_400_000;
/// Shortest wait: a time in the past means soon, not now.
const SHORTEST_MS: i64 = 1_000;

/// When the upstream says it may be asked again; between 1 s and 24 h from now.
pub(crate) fn asked_wait(headers: &HeaderMap, body_secs: Option<u32>, now: Timestamp) -> Option<Timestamp> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let wait_ms = text("retry-after-ms")
        .and_then(|ms| millis(ms, 1.0))
        .or_else(|| text("retry-after").and_then(|value| millis(value, 1_000.0).or_else(|| until_http_date(value, now))))
        .or_else(|| body_secs.map(|secs| i64::from(secs) * 1_000))
        .or_else(|| spent_limit_reset(&text, now))?;
    Some(now.plus_ms(wait_ms.clamp(SHORTEST_MS, LONGEST_MS)))
}

/// Whole seconds from now, rounded up, for the caller's `Retry-After`.
pub(crate) fn seconds_until(until: Timestamp, now: Timestamp) -> u32 {
    u32::try_from(until.ms_since(now).max(0).unsigned_abs().div_ceil(1_000)).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "the figure is clamped to a range that fits first")]
fn millis(text: &str, factor: f64) -> Option<i64> {
    let figure: f64 = text.parse().ok()?;
    // Far outside the believed range either way; NaN is no figure.
    (!figure.is_nan()).then(|| (figure * factor).clamp(-1e15, 1e15) as i64)
}

fn until_http_date(text: &str, now: Timestamp) -> Option<i64> {
    let at = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Timestamp(at.as_microsecond()).ms_since(now))
}

/// The latest reset among the limits of which nothing is left.
fn spent_limit_reset<'a>(text: &impl Fn(&str) -> Option<&'a str>, now: Timestamp) -> Option<i64> {
    let spent = |remaining: &str| text(remaining).is_some_and(|left| left.parse() == Ok(0));
    let openai = ["requests", "tokens"].into_iter().filter_map(|kind| {
        spent(&format!("x-ratelimit-remaining-{kind}")).then(|| duration_ms(text(&format!("x-ratelimit-reset-{kind}"))?)).flatten()
    });
    let anthropic = ["requests", "tokens", "input-tokens", "output-tokens"].into_iter().filter_map(|kind| {
        if !spent(&format!("anthropic-ratelimit-{kind}-remaining")) {
            return None;
        }
        let at: jiff::Timestamp = text(&format!("anthropic-ratelimit-{kind}-reset"))?.parse().ok()?;
        Some(Timestamp(at.as_microsecond()).ms_since(now))
    });
    openai.chain(anthropic).max()
}

/// `1s`, `6m0s`, `120ms`, `1h2m3.5s`: the form of `x-ratelimit-reset-*` (chat wire reference, section 9).
fn duration_ms(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut total = 0_i64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (figure, behind) = rest.split_at(digits);
        let letters = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(letters);
        let factor = match unit {
            "ms" => 1.0,
            "s" => 1_000.0,
            "m" => 60_000.0,
            "h" => 3_600_000.0,
            "d" => 86_400_000.0,
            _ => return None,
        };
        total = total.saturating_add(millis(figure, factor)?);
        rest = next;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Saturday, 21 November 2026, 12:00:00 UTC.
    const NOW: Timestamp = Timestamp(1_795_262_400_000_000);

    fn check(headers: &[(&'static str, &str)], body: Option<u32>, expected_ms: Option<i64>) {
        let map = headers.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect();
        assert_eq!(asked_wait(&map, body, NOW).map(|until| until.ms_since(NOW)), expected_ms, "{headers:?} {body:?}");
    }

    #[test]
    fn seconds_milliseconds_and_dates_are_read() {
        check(&[("retry-after", "7")], None, Some(7_000));
        check(&[("retry-after", " 1.5 ")], None, Some(1_500));
        check(&[("retry-after-ms", "2500.5"), ("retry-after", "9")], None, Some(2_500));
        check(&[("retry-after", "Sat, 21 Nov 2026 12:00:30 GMT")], None, Some(30_000));
        check(&[], Some(17), Some(17_000));
        check(&[], None, None);
    }

    #[test]
    fn absurd_figures_are_bounded() {
        check(&[("retry-after", "1000000000")], None, Some(86_400_000));
        check(&[("retry-after", "1e300")], None, Some(86_400_000));
        check(&[("retry-after", "inf")], None, Some(86_400_000));
        check(&[("retry-after", "-5")], None, Some(1_000));
        check(&[("retry-after", "0")], None, Some(1_000));
        check(&[("retry-after", "Mon, 06 Nov 1994 08:49:37 GMT")], None, None);
        check(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], None, Some(1_000));
        check(&[("retry-after", "NaN")], None, None);
        check(&[("retry-after", "soon")], None, None);
        check(&[("retry-after", "soon")], Some(3), Some(3_000));
    }

    #[test]
    fn the_reset_of_a_spent_limit_counts_and_that_of_another_does_not() {
        let spent = [
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "6m0s"),
            ("x-ratelimit-remaining-tokens", "100"),
            ("x-ratelimit-reset-tokens", "20m"),
        ];
        check(&spent, None, Some(360_000));
        check(&spent[2..], None, None);
        let anthropic =
            [("anthropic-ratelimit-tokens-remaining", "0"), ("anthropic-ratelimit-tokens-reset", "2026-11-21T12:00:20Z")];
        check(&anthropic, None, Some(20_000));
    }

    #[test]
    fn durations_have_units() {
        for (text, ms) in [("1s", Some(1_000)), ("120ms", Some(120)), ("1m30.5s", Some(90_500)), ("2h", Some(7_200_000))] {
            assert_eq!(duration_ms(text), ms, "{text}");
        }
        for text in ["", "5", "s", "1x", "-1s", "1s2"] {
            assert_eq!(duration_ms(text), None, "{text}");
        }
    }

    #[test]
    fn seconds_for_the_caller_are_rounded_up() {
        assert_eq!(seconds_until(NOW.plus_ms(1_001), NOW), 2);
        assert_eq!(seconds_until(NOW.plus_ms(-5), NOW), 0);
    }
}
