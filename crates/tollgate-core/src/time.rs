//! Timestamps, as databases and records store them.

use std::fmt;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// Microseconds per day.
const DAY_US: i64 = 86_400_000_000;

/// Microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Encode, Decode)]
#[serde(transparent)]
#[cbor(transparent)]
pub struct Timestamp(#[n(0)] pub i64);

impl Timestamp {
    /// Whole seconds since the epoch.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Adds milliseconds; saturates.
    #[must_use]
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000)))
    }

    /// Number of its UTC day, counted from 1970-01-01.
    pub const fn day(self) -> i64 {
        self.0.div_euclid(DAY_US)
    }

    /// Start of a UTC day.
    pub const fn of_day(day: i64) -> Self {
        Self(day.saturating_mul(DAY_US))
    }

    /// Number of its UTC month, counted from January of the year 0.
    pub const fn month(self) -> i64 {
        let (year, month, _) = civil(self.day());
        year * 12 + month - 1
    }

    /// RFC 3339 in UTC with microseconds, such as `2026-11-01T00:00:00.000000Z`. Years outside 0 to 9999 are clamped.
    pub fn rfc3339_micros(self) -> [u8; 27] {
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        let (seconds, micros) = (self.seconds(), self.0.rem_euclid(1_000_000));
        let (year, month, day) = civil(self.day());
        let of_day = seconds.rem_euclid(86_400);
        let parts = [
            (0..4, year.clamp(0, 9_999)),
            (5..7, month),
            (8..10, day),
            (11..13, of_day / 3_600),
            (14..16, of_day / 60 % 60),
            (17..19, of_day % 60),
            (20..26, micros),
        ];
        for (range, mut number) in parts {
            for digit in text[range].iter_mut().rev() {
                *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
                number /= 10;
            }
        }
        text
    }

    /// Start of a UTC month.
    pub const fn of_month(month: i64) -> Self {
        Self::of_day(first_day_of(month.div_euclid(12), month.rem_euclid(12) + 1))
    }

    /// Milliseconds from `earlier` to this timestamp; negative when `earlier` is later.
    pub const fn ms_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0) / 1_000
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC, whole seconds: `2026-11-01T00:00:00Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds();
        let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Year, month and day of a day counted from 1970-01-01 in the proleptic Gregorian calendar. Years start in March, so that leap
/// days come last, and are counted in eras of 400 years from 0000-03-01.
pub(crate) const fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// First day of a month, counted from 1970-01-01: the inverse of [`civil`].
pub(crate) const fn first_day_of(year: i64, month: i64) -> i64 {
    let (year, month_from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month_from_march + 2) / 5;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    era * 146_097 + of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_is_rfc_3339_in_utc() {
        let check = |seconds: i64, expected: &str| assert_eq!(Timestamp(seconds * 1_000_000 + 999_999).to_string(), expected);
        check(0, "1970-01-01T00:00:00Z");
        check(951_782_400, "2000-02-29T00:00:00Z");
        check(1_700_000_000, "2023-11-14T22:13:20Z");
        check(1_793_491_200, "2026-11-01T00:00:00Z");
        check(4_107_542_400, "2100-03-01T00:00:00Z");
        check(-1, "1969-12-31T23:59:59Z");
    }

    #[test]
    fn microseconds_are_shown_in_six_digits() {
        let check = |micros: i64, expected: &[u8]| assert_eq!(&Timestamp(micros).rfc3339_micros(), expected);
        check(0, b"1970-01-01T00:00:00.000000Z");
        check(951_782_400_000_042, b"2000-02-29T00:00:00.000042Z");
        check(1_700_000_000_999_999, b"2023-11-14T22:13:20.999999Z");
        check(-1, b"1969-12-31T23:59:59.999999Z");
    }

    #[test]
    fn days_and_months_begin_at_midnight_utc() {
        let at = Timestamp(1_793_491_200_000_000);
        assert_eq!(Timestamp::of_month(at.month()).to_string(), "2026-11-01T00:00:00Z");
        assert_eq!(Timestamp::of_month(at.month() + 1).to_string(), "2026-12-01T00:00:00Z");
        assert_eq!(Timestamp::of_month(at.month() + 2).to_string(), "2027-01-01T00:00:00Z");
        assert_eq!(Timestamp::of_day(at.day() + 1).to_string(), "2026-11-02T00:00:00Z");
        assert_eq!(Timestamp(at.0 - 1).month(), at.month() - 1);
        for day in (-200_000..200_000).step_by(13) {
            let at = Timestamp::of_day(day);
            assert_eq!(at.day(), day);
            let (first, next) = (Timestamp::of_month(at.month()), Timestamp::of_month(at.month() + 1));
            assert!(first <= at && at < next && (28..=31).contains(&(next.day() - first.day())), "{at}");
        }
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp(i64::MAX).plus_ms(1), Timestamp(i64::MAX));
        assert_eq!(Timestamp(5_000_000).ms_since(Timestamp(2_000_000)), 3_000);
    }
}
