//! Points in time as the admin API writes and reads them: RFC 3339 in UTC, to the microsecond.

use serde_json::Value;
use tollgate_core::Timestamp;

/// Milliseconds of a day.
pub(crate) const DAY_MS: i64 = 86_400_000;

/// RFC 3339 in UTC, to the microsecond.
pub fn rfc3339(at: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(at.0).map_or_else(|_| at.0.to_string(), |time| time.to_string())
}

/// The five minutes of the clock in which a time lies. Sums that begin there are read from roll-ups alone, and not also from records, of
/// which a busy gateway has millions in a minute.
pub(crate) const fn begin_of_sums(at: Timestamp) -> Timestamp {
    const FIVE_MINUTES_US: i64 = 300_000_000;
    Timestamp(at.0 - at.0.rem_euclid(FIVE_MINUTES_US))
}

pub(crate) fn time_value(at: Timestamp) -> Value {
    rfc3339(at).into()
}

/// Parses RFC 3339 with any offset; `None` when the text is not a point in time.
pub(crate) fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(|time| Timestamp(time.as_microsecond()))
}

/// A UTC day, counted from 1970-01-01, as `2026-11-30`.
pub fn day_text(day: i64) -> String {
    let time = jiff::Timestamp::from_microsecond(Timestamp::of_day(day).0);
    time.map_or_else(|_| day.to_string(), |time| time.to_zoned(jiff::tz::TimeZone::UTC).date().to_string())
}

/// Parses `2026-11-30`.
pub fn parse_day(text: &str) -> Option<i64> {
    if text.len() != "2026-11-30".len() {
        return None;
    }
    let midnight = text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(Timestamp(midnight.timestamp().as_microsecond()).day())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_round_trip_and_malformed_days_are_rejected() {
        for day in [0, 1, 20_786, -1, 59] {
            assert_eq!(parse_day(&day_text(day)), Some(day));
        }
        assert_eq!(day_text(20_786), "2026-11-29");
        for text in ["", "2026-11-31", "2026-11-3", "2026-11-30T00:00", "20261130xx"] {
            assert_eq!(parse_day(text), None, "{text}");
        }
    }
}
