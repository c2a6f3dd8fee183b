//! The value of `x-tollgate-trace`: how many candidates were excluded for which reason, and how each attempt ended. It names no
//! channel and no account.

use std::{collections::BTreeMap, fmt::Write as _};

use http::{HeaderName, HeaderValue};
use tollgate_core::{AttemptFacts, AttemptResult, TraceEntry};

use crate::header_fields::HeaderFields;

/// A request asks for the trace with the value `1`; the response carries it.
pub(crate) const TRACE: HeaderName = HeaderName::from_static("x-tollgate-trace");

/// Whether a request asks for the trace.
pub(crate) fn is_asked(headers: &HeaderFields) -> bool {
    headers.get(&TRACE).is_some_and(|value| value.as_bytes() == b"1")
}

/// Error id of a failed attempt, or `cancelled`; `None` for success.
pub(crate) fn ended(attempt: &AttemptFacts) -> Option<&str> {
    if attempt.result == AttemptResult::Cancelled { Some("cancelled") } else { attempt.error.as_deref() }
}

/// The header value, such as `planned=2, cooling=1; attempts: E55, ok`. The loser of a hedged pair is `cancelled`.
pub(crate) fn summary<'a>(candidates: &[TraceEntry], attempts: impl Iterator<Item = Option<&'a str>>) -> HeaderValue {
    let mut counts = BTreeMap::<&str, usize>::new();
    let (mut planned, mut more) = (0, 0);
    for entry in candidates {
        match &*entry.code {
            "planned" => planned += 1,
            // The last entry of a long list: the number of those left out.
            "more" => more += entry.detail.as_deref().and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0),
            code => *counts.entry(code).or_default() += 1,
        }
    }
    if more > 0 {
        counts.insert("others", more);
    }
    let mut text = format!("planned={planned}");
    for (code, count) in counts {
        let _ = write!(text, ", {code}={count}");
    }
    let mut lead = "; attempts: ";
    for attempt in attempts {
        text.push_str(lead);
        text.push_str(attempt.unwrap_or("ok"));
        lead = ", ";
    }
    // Codes are ASCII words, so the value is always valid.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("planned=0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(code: &'static str, detail: Option<&str>) -> TraceEntry {
        let account = Some("secret-account".into());
        TraceEntry { channel: "secret-channel".into(), account, code: code.into(), detail: detail.map(str::to_owned) }
    }

    fn check(candidates: &[TraceEntry], attempts: &[Option<&str>], expected: &str) {
        assert_eq!(summary(candidates, attempts.iter().copied()), expected);
    }

    #[test]
    fn trace_header_has_codes_and_counts_and_no_names() {
        let cooling = entry("cooling", Some("connect_failure until 2026-11-21T00:00:00Z"));
        let candidates = [entry("planned", None), cooling.clone(), entry("planned", None), entry("rate", None), cooling];
        check(&candidates, &[Some("E55"), None], "planned=2, cooling=2, rate=1; attempts: E55, ok");
        check(&[entry("disabled", None)], &[], "planned=0, disabled=1");
        check(&[], &[], "planned=0");
    }

    #[test]
    fn the_rest_of_a_long_list_is_counted() {
        let more = entry("more", Some("936 more candidates are excluded"));
        check(&[entry("cooling", None), more], &[], "planned=0, cooling=1, others=936");
    }
}
