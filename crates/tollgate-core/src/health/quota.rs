//! When an exhausted quota is available again.

use tollgate_protocol::QuotaWindow;

use crate::{
    Timestamp,
    time::{civil, first_day_of},
};

/// Longest rest before the account is tried again, even if the upstream states a longer one.
pub(super) const MAX_REST_MS: i64 = 86_400_000;
/// Rest when the quota window is unknown.
pub(super) const DEFAULT_REST_MS: i64 = 3_600_000;
/// Shorter waits are ordinary 429 retry hints, not the end of a quota window.
const MIN_QUOTA_WAIT_MS: i64 = 60_000;

/// When an account with an exhausted quota may be used again: at the end of the window named by the response, else at `retry_at`
/// (from a header or the body) if that is a minute or more away. Never later than 24 hours from now; `None`: unknown.
pub fn quota_end(window: Option<QuotaWindow>, retry_at: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let end = match window {
        Some(QuotaWindow::Day) => Some(next_midnight(now).0),
        Some(QuotaWindow::Month) => {
            let (midnight, day) = next_midnight(now);
            Some(if civil(day).2 == 1 { midnight } else { now.plus_ms(MAX_REST_MS) })
        }
        Some(QuotaWindow::Until(seconds)) => Some(Timestamp(seconds.saturating_mul(1_000_000))).filter(|end| *end > now),
        None => retry_at.filter(|retry_at| retry_at.ms_since(now) >= MIN_QUOTA_WAIT_MS),
    };
    end.map(|end| end.min(now.plus_ms(MAX_REST_MS)))
}

/// The next midnight in Pacific time, where Google's daily quotas reset (Gemini API documentation, "Rate limits"), and the day it
/// starts, counted from 1970-01-01.
fn next_midnight(now: Timestamp) -> (Timestamp, i64) {
    let today = now.day();
    // Pacific time is 7 or 8 hours behind UTC, so one of these midnights is the next.
    [today, today + 1, today + 2]
        .into_iter()
        .map(|day| (Timestamp(Timestamp::of_day(day).0 + utc_offset_hours(day) * 3_600_000_000), day))
        .find(|(midnight, _)| *midnight > now)
        .unwrap_or((now.plus_ms(MAX_REST_MS), today + 1))
}

/// Hours from midnight UTC to midnight Pacific time of the same date. Daylight saving time lasts from the second Sunday of March
/// to the first Sunday of November, 2:00 each (15 U.S.C. 260a).
fn utc_offset_hours(day: i64) -> i64 {
    let (year, _, _) = civil(day);
    let sunday = |first: i64| first + (3 - first).rem_euclid(7);
    let (begins, ends) = (sunday(first_day_of(year, 3)) + 7, sunday(first_day_of(year, 11)));
    if begins < day && day <= ends { 7 } else { 8 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Saturday, 21 November 2026, 12:00:00 UTC: 4:00 in Pacific time.
    const NOW: Timestamp = Timestamp(1_795_262_400_000_000);

    fn end(window: Option<QuotaWindow>, retry_in_ms: Option<i64>, now: Timestamp) -> String {
        quota_end(window, retry_in_ms.map(|ms| now.plus_ms(ms)), now).map_or_else(|| "unknown".to_owned(), |end| end.to_string())
    }

    #[test]
    fn daily_quota_ends_at_pacific_midnight_despite_retry_hint() {
        for retry_at in [None, Some(34_000), Some(80_000_000)] {
            assert_eq!(end(Some(QuotaWindow::Day), retry_at, NOW), "2026-11-22T08:00:00Z");
        }
        let hour = 3_600_000;
        // 23:00 and 00:00 Pacific time.
        assert_eq!(end(Some(QuotaWindow::Day), None, NOW.plus_ms(19 * hour)), "2026-11-22T08:00:00Z");
        assert_eq!(end(Some(QuotaWindow::Day), None, NOW.plus_ms(20 * hour)), "2026-11-23T08:00:00Z");
    }

    #[test]
    fn daylight_saving_moves_midnight_and_caps_a_day_of_25_hours() {
        // Midnights of 2026 in UTC: 8:00 until 8 March, 7:00 until 1 November.
        for (at, midnight) in [
            (1_772_884_800, "2026-03-08T08:00:00Z"), // 7 March, 12:00
            (1_772_971_200, "2026-03-09T07:00:00Z"), // 8 March, 12:00
            (1_793_448_000, "2026-11-01T07:00:00Z"), // 31 October, 12:00
            (1_793_534_400, "2026-11-02T08:00:00Z"), // 1 November, 12:00
            (1_793_516_400, "2026-11-02T07:00:00Z"), // 1 November, 7:00: 25 hours before
        ] {
            assert_eq!(end(Some(QuotaWindow::Day), None, Timestamp(at * 1_000_000)), midnight, "{at}");
        }
    }

    #[test]
    fn monthly_quota_is_retried_daily_until_the_first() {
        assert_eq!(end(Some(QuotaWindow::Month), None, NOW), "2026-11-22T12:00:00Z");
        let last = NOW.plus_ms(9 * 86_400_000);
        assert_eq!(end(Some(QuotaWindow::Month), Some(1_000), last), "2026-12-01T08:00:00Z");
    }

    #[test]
    fn stated_reset_time_is_capped_at_a_day_and_ignored_when_past() {
        let soon = NOW.seconds() + 7_200;
        assert_eq!(end(Some(QuotaWindow::Until(soon)), Some(5_000), NOW), "2026-11-21T14:00:00Z");
        assert_eq!(end(Some(QuotaWindow::Until(soon + 864_000)), None, NOW), "2026-11-22T12:00:00Z");
        assert_eq!(end(Some(QuotaWindow::Until(soon - 7_200)), None, NOW), "unknown");
        assert_eq!(end(Some(QuotaWindow::Until(i64::MAX)), None, NOW), "2026-11-22T12:00:00Z");
    }

    #[test]
    fn without_window_only_retry_hints_of_a_minute_or_more_count() {
        for (retry_at, expected) in [
            (None, "unknown"),
            (Some(5_000), "unknown"),
            (Some(60_000), "2026-11-21T12:01:00Z"),
            (Some(10 * 3_600_000), "2026-11-21T22:00:00Z"),
            (Some(i64::MAX / 2_000_000), "2026-11-22T12:00:00Z"),
        ] {
            assert_eq!(end(None, retry_at, NOW), expected, "{retry_at:?}");
        }
    }

    proptest! {
        #[test]
        fn rest_is_positive_and_at_most_a_day(at in 0i64..4_102_444_800, retry_at in -90_000_000i64..900_000_000) {
            let now = Timestamp(at * 1_000_000);
            for window in [None, Some(QuotaWindow::Day), Some(QuotaWindow::Month), Some(QuotaWindow::Until(at + retry_at / 1_000))] {
                let wait = quota_end(window, Some(now.plus_ms(retry_at)), now).map(|end| end.ms_since(now));
                prop_assert!(wait.is_none_or(|wait| (1..=MAX_REST_MS).contains(&wait)), "{window:?} {wait:?}");
            }
        }
    }
}
