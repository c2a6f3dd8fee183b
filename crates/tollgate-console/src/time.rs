//! Points in time as the admin API writes and reads them: RFC 3339 in UTC, to the microsecond.

use serde_json::Value;
use tollgate_core::Timestamp;

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
