//! The retry time reported by an upstream, parsed leniently and capped at 24 h. The health registry caps rate limits
//! further, at one hour.
//!
//! Sources, in order of preference: `retry-after-ms`, `retry-after` (seconds or a date), the delay in the body (Gemini
//! `google.rpc.RetryInfo`), and for rate limit errors the reset headers ([`reset`]).

use http::HeaderMap;
use jiff::{
    fmt::{rfc2822, strtime},
    tz::TimeZone,
};
use tollgate_core::Timestamp;
use tollgate_protocol::UpstreamProblem;

/// Longest accepted wait.
const MAX_WAIT_MS: i64 = 86_400_000;
/// Shortest wait; also used for times in the past.
const MIN_WAIT_MS: i64 = 1_000;
/// Bare numbers above these are points in time: seconds, and milliseconds, since the epoch.
const EPOCH: (f64, f64) = (1e9, 1e12);

/// The time after which the upstream accepts requests again, between 1 s and 24 h from now.
pub(crate) fn retry_at(headers: &HeaderMap, problem: &UpstreamProblem, now: Timestamp) -> Option<Timestamp> {
    let text = |name: &str| text(headers, name);
    let wait_ms = stated_wait_ms(headers, now)
        .or_else(|| problem.retry_after.map(|secs| i64::from(secs) * 1_000))
        // Reset headers are sent with every response; they are meaningful only for rate limit errors.
        .or_else(|| if problem.status == 429 || problem.quota_exhausted { reset(&text, problem, now) } else { None })?;
    Some(now.plus_ms(wait_ms.clamp(MIN_WAIT_MS, MAX_WAIT_MS)))
}

/// The wait in the headers that have no other purpose, in milliseconds. It may be negative.
pub(crate) fn stated_wait_ms(headers: &HeaderMap, now: Timestamp) -> Option<i64> {
    let in_ms = text(headers, "retry-after-ms").and_then(|ms| millis(ms, 1.0));
    in_ms.or_else(|| text(headers, "retry-after").and_then(|value| millis(value, 1_000.0).or_else(|| until_http_date(value, now))))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

#[expect(clippy::cast_possible_truncation, reason = "the value is clamped to the range of i64 first")]
fn millis(text: &str, factor: f64) -> Option<i64> {
    let figure: f64 = text.parse().ok()?;
    // Clamped far outside the accepted range. NaN is not a number.
    (!figure.is_nan()).then(|| (figure * factor).clamp(-1e15, 1e15) as i64)
}

/// Milliseconds until an HTTP date in one of its three forms (RFC 9110, section 5.6.7): IMF-fixdate, RFC 850, `asctime`.
fn until_http_date(text: &str, now: Timestamp) -> Option<i64> {
    let old = |format: &str| {
        let at = strtime::parse(format, text).ok()?.to_datetime().ok()?;
        at.to_zoned(TimeZone::UTC).ok().map(|at| at.timestamp())
    };
    let at = rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .ok()
        .or_else(|| old("%A, %d-%b-%y %H:%M:%S GMT"))
        .or_else(|| old("%a %b %e %H:%M:%S %Y"))?;
    Some(Timestamp(at.as_microsecond()).ms_since(now))
}

/// Milliseconds until the reset reported by rate limit headers: `x-ratelimit-*` (OpenAI), `anthropic-ratelimit-*`, and those
/// without a kind (`x-ratelimit-reset`, `ratelimit-reset`, and `ratelimit` with `t` or `reset`).
///
/// The latest reset among the limits with nothing remaining; else the reset of the limit the error names; else the one
/// without a kind.
fn reset<'a>(text: &impl Fn(&str) -> Option<&'a str>, problem: &UpstreamProblem, now: Timestamp) -> Option<i64> {
    let kinds = ["requests", "tokens", "input-tokens", "output-tokens"];
    let limits = || {
        kinds.into_iter().flat_map(|kind| {
            [
                (kind, format!("x-ratelimit-remaining-{kind}"), format!("x-ratelimit-reset-{kind}")),
                (kind, format!("anthropic-ratelimit-{kind}-remaining"), format!("anthropic-ratelimit-{kind}-reset")),
            ]
        })
    };
    let spent = limits().filter(|(_, left, _)| text(left).is_some_and(|left| left.parse() == Ok(0.0)));
    let spent = spent.filter_map(|(_, _, reset)| reset_ms(text(&reset)?, now)).max();
    let about = |kind: &str| named_kind(problem).is_some_and(|named| kind.ends_with(named));
    let named = || limits().filter(|(kind, _, _)| about(kind)).filter_map(|(_, _, reset)| reset_ms(text(&reset)?, now)).max();
    let plain = || ["x-ratelimit-reset", "ratelimit-reset"].into_iter().find_map(|name| reset_ms(text(name)?, now));
    let listed = || {
        let parts = text("ratelimit")?.split([';', ',']).map(str::trim);
        parts
            .filter_map(|part| part.strip_prefix("t=").or_else(|| part.strip_prefix("reset=")))
            .filter_map(|it| reset_ms(it, now))
            .max()
    };
    spent.or_else(named).or_else(plain).or_else(listed)
}

/// The limit an error names, by its type or its message.
fn named_kind(problem: &UpstreamProblem) -> Option<&'static str> {
    let text = problem.message.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match problem.kind.as_deref() {
        Some("tokens") => Some("tokens"),
        Some("requests") => Some("requests"),
        _ if says(&["tokens per", "(tpm)", "(tpd)", "token limit", "token rate"]) => Some("tokens"),
        _ if says(&["requests per", "(rpm)", "(rpd)", "request limit", "request rate"]) => Some("requests"),
        _ => None,
    }
}

/// Milliseconds until a reset given as a number (seconds, or a point in time if larger than [`EPOCH`]), a duration, or a
/// date.
fn reset_ms(text: &str, now: Timestamp) -> Option<i64> {
    if let Ok(figure) = text.parse::<f64>() {
        return match figure {
            _ if figure.is_nan() => None,
            _ if figure > EPOCH.1 => millis(text, 1.0).map(|ms| ms.saturating_sub(now.0 / 1_000)),
            _ if figure > EPOCH.0 => millis(text, 1_000.0).map(|ms| ms.saturating_sub(now.0 / 1_000)),
            _ => millis(text, 1_000.0),
        };
    }
    let at = || text.parse::<jiff::Timestamp>().ok().map(|at| Timestamp(at.as_microsecond()).ms_since(now));
    duration_ms(text).or_else(at).or_else(|| until_http_date(text, now))
}

/// Parses `1s`, `6m0s`, `120ms`, `1h2m3.5s`, the format of `x-ratelimit-reset-*` (OpenAI API reference, Rate limits).
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

    fn check(headers: &[(&'static str, &str)], retry_after: Option<u32>, expected_ms: Option<i64>) {
        let problem = UpstreamProblem { status: 429, retry_after, ..UpstreamProblem::default() };
        check_problem(headers, &problem, expected_ms);
    }

    fn check_problem(headers: &[(&'static str, &str)], problem: &UpstreamProblem, expected_ms: Option<i64>) {
        let map = headers.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect();
        assert_eq!(retry_at(&map, problem, NOW).map(|until| until.ms_since(NOW)), expected_ms, "{headers:?} {problem:?}");
    }

    #[test]
    fn seconds_milliseconds_and_dates_are_parsed() {
        check(&[("retry-after", "7")], None, Some(7_000));
        check(&[("retry-after", " 1.5 ")], None, Some(1_500));
        check(&[("retry-after-ms", "2500.5"), ("retry-after", "9")], None, Some(2_500));
        for date in ["Sat, 21 Nov 2026 12:00:30 GMT", "Saturday, 21-Nov-26 12:00:30 GMT", "Sat Nov 21 12:00:30 2026"] {
            check(&[("retry-after", date)], None, Some(30_000));
        }
        check(&[("retry-after", "Tue Dec  1 12:00:00 2026")], None, Some(86_400_000));
        check(&[("retry-after", "Sunday, 06-Nov-94 08:49:37 GMT")], None, Some(1_000));
        check(&[], Some(17), Some(17_000));
        check(&[], None, None);
    }

    #[test]
    fn extreme_values_are_clamped() {
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
    fn only_resets_of_exhausted_limits_count() {
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
    fn reset_is_a_number_a_duration_or_a_date() {
        for (text, ms) in [
            ("45", Some(45_000)),
            ("45.5", Some(45_500)),
            ("0", Some(1_000)),
            ("6m0s", Some(360_000)),
            ("1795262445", Some(45_000)),
            ("1795262445000", Some(45_000)),
            ("1795262000", Some(1_000)),
            ("2026-11-21T12:00:45Z", Some(45_000)),
            ("Sat, 21 Nov 2026 12:00:45 GMT", Some(45_000)),
            ("1e300", Some(86_400_000)),
            ("NaN", None),
            ("soon", None),
        ] {
            for name in ["x-ratelimit-reset", "ratelimit-reset"] {
                check(&[(name, text)], None, ms);
            }
            check(&[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", text)], None, ms);
        }
        check(&[("ratelimit", "\"default\";r=0;t=45")], None, Some(45_000));
        check(&[("ratelimit", "limit=100, remaining=0, reset=45")], None, Some(45_000));
    }

    #[test]
    fn limit_named_by_the_error_counts_when_none_is_exhausted() {
        let left = [
            ("x-ratelimit-remaining-requests", "9"),
            ("x-ratelimit-reset-requests", "120ms"),
            ("x-ratelimit-remaining-tokens", "500"),
            ("x-ratelimit-reset-tokens", "20"),
        ];
        let says = |kind: &str, message: &str| UpstreamProblem {
            status: 429,
            kind: Some(kind.to_owned()),
            message: message.to_owned(),
            ..UpstreamProblem::default()
        };
        check_problem(&left, &says("tokens", ""), Some(20_000));
        check_problem(&left, &says("requests", ""), Some(1_000));
        check_problem(&left, &says("rate_limit_error", "Rate limit reached for m on tokens per min (TPM): Limit 9"), Some(20_000));
        check_problem(&left, &says("rate_limit_error", "Rate limit reached for m on requests per day (RPD)"), Some(1_000));
        check_problem(&left, &says("rate_limit_error", "slow down"), None);
        // An exhausted limit takes precedence over the named one.
        let mut spent = left;
        spent[0].1 = "0";
        check_problem(&spent, &says("tokens", ""), Some(1_000));
        let anthropic = [
            ("anthropic-ratelimit-input-tokens-remaining", "5"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-11-21T12:00:20Z"),
        ];
        check_problem(
            &anthropic,
            &says("rate_limit_error", "This request would exceed your limit of 5 input tokens per minute"),
            Some(20_000),
        );
    }

    #[test]
    fn rate_limit_resets_are_ignored_for_other_failures() {
        let reset = [("x-ratelimit-reset", "45"), ("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "45")];
        for status in [400, 500, 503] {
            check_problem(&reset, &UpstreamProblem { status, ..UpstreamProblem::default() }, None);
        }
        check_problem(&reset, &UpstreamProblem { status: 403, quota_exhausted: true, ..UpstreamProblem::default() }, Some(45_000));
        check_problem(&[("retry-after", "7")], &UpstreamProblem { status: 503, ..UpstreamProblem::default() }, Some(7_000));
    }

    #[test]
    fn durations_need_units() {
        for (text, ms) in [("1s", Some(1_000)), ("120ms", Some(120)), ("1m30.5s", Some(90_500)), ("2h", Some(7_200_000))] {
            assert_eq!(duration_ms(text), ms, "{text}");
        }
        for text in ["", "5", "s", "1x", "-1s", "1s2"] {
            assert_eq!(duration_ms(text), None, "{text}");
        }
    }
}
