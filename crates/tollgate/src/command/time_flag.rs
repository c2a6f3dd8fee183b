//! Flags that take a point in time.

use tollgate_core::Timestamp;

use crate::failure::Failure;

const SECOND_US: i64 = 1_000_000;

/// Parses a time, or a duration from now: `30m`, `12h`, `30d`, `4w`.
pub(crate) fn parse_expiry(flag: &str, text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    match seconds(text) {
        Some(seconds) => Ok(Timestamp(now.0.saturating_add(seconds.saturating_mul(SECOND_US)))),
        None => parse(flag, text).map_err(|_| {
            Failure::Usage(format!(
                "{flag} takes how long, such as 30d or 12h, or a date or time such as 2026-11-30 or 2026-11-30T12:00:00Z, not '{text}'"
            ))
        }),
    }
}

/// Parses a duration, in seconds: `30m`, `12h`, `30d`, `4w`.
pub(crate) fn parse_duration(flag: &str, text: &str) -> Result<i64, Failure> {
    seconds(text).ok_or_else(|| Failure::Usage(format!("{flag} takes how long, such as 30m, 12h or 7d, not '{text}'")))
}

/// Parses a time, or a duration before now: `30m`, `12h`, `30d`, `4w`.
pub(crate) fn parse_past(flag: &str, text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    match seconds(text) {
        Some(seconds) => Ok(Timestamp(now.0.saturating_sub(seconds.saturating_mul(SECOND_US)))),
        None => parse(flag, text).map_err(|_| {
            Failure::Usage(format!(
                "{flag} takes how long ago, such as 7d or 12h, or a date or time such as 2026-11-30 or 2026-11-30T12:00:00Z, not \
                 '{text}'"
            ))
        }),
    }
}

fn seconds(text: &str) -> Option<i64> {
    let unit = match text.chars().last()? {
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return None,
    };
    let count = text.get(..text.len() - 1)?.parse::<u32>().ok()?;
    Some(i64::from(count) * unit)
}

/// Parses RFC 3339, or a date, which is its midnight in UTC; the failure names the flag.
pub(crate) fn parse(flag: &str, text: &str) -> Result<Timestamp, Failure> {
    let midnight = || text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|day| day.timestamp());
    // Jiff also parses a date from the beginning of a full time, ignoring the offset.
    let date = midnight().filter(|_| text.len() == "2026-11-30".len());
    let time = date.or_else(|| text.parse::<jiff::Timestamp>().ok());
    time.map(|time| Timestamp(time.as_microsecond())).ok_or_else(|| {
        Failure::Usage(format!("{flag} takes a date or time such as 2026-11-30 or 2026-11-30T12:00:00Z, not '{text}'"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_is_a_time_or_a_duration_before_now() {
        let now = Timestamp(1_000_000 * SECOND_US);
        let of = |text: &str| parse_past("--since", text, now).ok().map(|at| at.0 / SECOND_US);
        assert_eq!((of("1d"), of("30m"), of("1970-01-02")), (Some(913_600), Some(998_200), Some(86_400)));
        assert!(parse_past("--since", "yesterday", now).unwrap_err().to_string().contains("how long ago"));
    }

    #[test]
    fn expiry_is_a_time_or_a_duration_from_now() {
        let of = |text: &str| parse_expiry("--expires", text, Timestamp(0)).ok().map(|at| at.0 / 1_000_000);
        assert_eq!((of("30d"), of("12h"), of("4w"), of("90m")), (Some(2_592_000), Some(43_200), Some(2_419_200), Some(5_400)));
        assert_eq!(of("1970-01-01T00:01:00Z"), Some(60));
        assert_eq!((of("1970-01-02"), of("1970-01-01")), (Some(86_400), Some(0)), "midnight in UTC");
        for bad in ["", "d", "30", "-1d", "30y", "tomorrow", "2026-13-01", "1970-01-02T00:00:00", "1970-1-2"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
