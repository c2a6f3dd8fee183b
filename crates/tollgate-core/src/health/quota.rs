//! When a spent quota comes back.

use tollgate_protocol::QuotaWindow;

use crate::{
    Timestamp,
    time::{civil, first_day_of},
};

/// Nobody rests longer than this without another look, whatever an upstream says.
pub(super) const LONGEST_MS: i64 = 86_400_000;
/// Rest where nothing is known of the window.
pub(super) const UNKNOWN_MS: i64 = 3_600_000;
/// A wait below this is what stands beside every 429; no window of money ends so soon.
const SHORTEST_SAID_MS: i64 = 60_000;

/// When an account whose quota is spent may be asked again: at the end of the window that the answer names, else when the
/// answer said (`said`: a header, or a wait in the body), if that is a minute or more away. Never later than in 24 hours;
/// `None`: nothing is known.
#[must_use]
pub fn quota_end(window: Option<QuotaWindow>, said: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let end = match window {
        Some(QuotaWindow::Day) => Some(next_midnight(now).0),
        Some(QuotaWindow::Month) => {
            let (midnight, day) = next_midnight(now);
            Some(if civil(day).2 == 1 { midnight } else { now.plus_ms(LONGEST_MS) })
        }
        Some(QuotaWindow::Until(seconds)) => Some(Timestamp(seconds.saturating_mul(1_000_000))).filter(|end| *end > now),
        None => said.filter(|said| said.ms_since(now) >= SHORTEST_SAID_MS),
    };
    end.map(|end| end.min(now.plus_ms(LONGEST_MS)))
}

/// The next midnight in Pacific time, where Google's days end, and the day that begins there, counted from 1970-01-01.
fn next_midnight(now: Timestamp) -> (Timestamp, i64) {
    let today = now.day();
    // Behind UTC by less than half a day: one of these two is the next.
    [today, today + 1, today + 2]
        .into_iter()
        .map(|day| (Timestamp(Timestamp::of_day(day).0 + hours_behind(day) * 3_600_000_000), day))
        .find(|(midnight, _)| *midnight > now)
        .unwrap_or((now.plus_ms(LONGEST_MS), today + 1))
}

/// Hours from midnight in UTC to midnight of the same date in Pacific time. Summer time begins at 2:00 on the second
/// Sunday of March and ends at 2:00 on the first Sunday of November (15 U.S.C. 260a).
fn hours_behind(day: i64) -> i64 {
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

    fn end(window: Option<QuotaWindow>, said_ms: Option<i64>, now: Timestamp) -> String {
        quota_end(window, said_ms.map(|ms| now.plus_ms(ms)), now).map_or_else(|| "unknown".to_owned(), |end| end.to_string())
    }

    #[test]
    fn a_quota_by_the_day_ends_at_midnight_in_pacific_time_whatever_else_is_said() {
        for said in [None, Some(34_000), Some(80_000_000)] {
            assert_eq!(end(Some(QuotaWindow::Day), said, NOW), "2026-11-22T08:00:00Z");
        }
        let hour = 3_600_000;
        // 23:00 and 00:00 there.
        assert_eq!(end(Some(QuotaWindow::Day), None, NOW.plus_ms(19 * hour)), "2026-11-22T08:00:00Z");
        assert_eq!(end(Some(QuotaWindow::Day), None, NOW.plus_ms(20 * hour)), "2026-11-23T08:00:00Z");
    }

    #[test]
    fn summer_time_moves_midnight_and_a_day_of_25_hours_is_cut() {
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
    fn a_quota_by_the_month_is_looked_at_once_a_day_until_the_first() {
        assert_eq!(end(Some(QuotaWindow::Month), None, NOW), "2026-11-22T12:00:00Z");
        let last = NOW.plus_ms(9 * 86_400_000);
        assert_eq!(end(Some(QuotaWindow::Month), Some(1_000), last), "2026-12-01T08:00:00Z");
    }

    #[test]
    fn a_point_in_time_is_believed_for_a_day_and_one_that_has_passed_is_not() {
        let soon = NOW.seconds() + 7_200;
        assert_eq!(end(Some(QuotaWindow::Until(soon)), Some(5_000), NOW), "2026-11-21T14:00:00Z");
        assert_eq!(end(Some(QuotaWindow::Until(soon + 864_000)), None, NOW), "2026-11-22T12:00:00Z");
        assert_eq!(end(Some(QuotaWindow::Until(soon - 7_200)), None, NOW), "unknown");
        assert_eq!(end(Some(QuotaWindow::Until(i64::MAX)), None, NOW), "2026-11-22T12:00:00Z");
    }

    #[test]
    fn without_a_window_what_is_said_counts_unless_it_is_a_few_seconds() {
        for (said, expected) in [
            (None, "unknown"),
            (Some(5_000), "unknown"),
            (Some(60_000), "2026-11-21T12:01:00Z"),
            (Some(10 * 3_600_000), "2026-11-21T22:00:00Z"),
            (Some(i64::MAX / 2_000_000), "2026-11-22T12:00:00Z"),
        ] {
            assert_eq!(end(None, said, NOW), expected, "{said:?}");
        }
    }

    proptest! {
        #[test]
        fn a_rest_ends_within_a_day_and_not_at_once(at in 0i64..4_102_444_800, said in -90_000_000i64..900_000_000) {
            let now = Timestamp(at * 1_000_000);
            for window in [None, Some(QuotaWindow::Day), Some(QuotaWindow::Month), Some(QuotaWindow::Until(at + said / 1_000))] {
                let wait = quota_end(window, Some(now.plus_ms(said)), now).map(|end| end.ms_since(now));
                prop_assert!(wait.is_none_or(|wait| (1..=LONGEST_MS).contains(&wait)), "{window:?} {wait:?}");
            }
        }
    }
}
