//! The arithmetic of counting: money by UTC day, month and in all; requests and tokens by the minute.

use serde::{Deserialize, Serialize};

use crate::{NanoUsd, Timestamp, Window};

/// Settled money of one subject. Days and months are those of a request's arrival; some are kept beside the current one, for
/// requests that arrived just before midnight, and because a clock may step forward and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendTotals {
    day: PeriodTotals,
    month: PeriodTotals,
    total: i64,
}

/// How many numbered periods are kept. A clock that jumped ahead leaves one behind for each jump.
const KEPT_PERIODS: usize = 4;

/// What was spent in the last periods that something was spent in, by their numbers, highest first. Where there is no room for
/// another one, the lowest goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct PeriodTotals([Option<(i64, i64)>; KEPT_PERIODS]);

impl PeriodTotals {
    const fn one(number: i64, amount: i64) -> Self {
        let mut periods = [None; KEPT_PERIODS];
        periods[0] = Some((number, amount));
        Self(periods)
    }

    fn add(&mut self, number: i64, amount: i64) {
        if let Some((_, spent)) = self.0.iter_mut().flatten().find(|(known, _)| *known == number) {
            *spent = spent.saturating_add(amount);
            return;
        }
        // The last one is the lowest, or free; the new one takes its place, whatever its own number is.
        self.0[KEPT_PERIODS - 1] = Some((number, amount));
        self.0.sort_unstable_by_key(|period| std::cmp::Reverse(*period));
    }

    const fn of(&self, number: i64) -> i64 {
        let mut at = 0;
        while at < KEPT_PERIODS {
            match self.0[at] {
                Some((known, spent)) if known == number => return spent,
                Some(_) | None => at += 1,
            }
        }
        0
    }
}

/// What was spent in one day, in one month and in all, in little room: a start may know a million subjects, most of which ask
/// for nothing for a long time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedSpendTotals {
    day: i32,
    month: i32,
    of_day: i64,
    of_month: i64,
    total: i64,
}

impl PackedSpendTotals {
    /// With room for more.
    #[must_use]
    pub fn unpacked(&self) -> SpendTotals {
        let one = |number: i32, amount: i64| PeriodTotals::one(i64::from(number), amount);
        SpendTotals { day: one(self.day, self.of_day), month: one(self.month, self.of_month), total: self.total }
    }
}

impl SpendTotals {
    /// In little room; `None` where more than one day or month is known.
    #[must_use]
    pub fn packed(&self) -> Option<PackedSpendTotals> {
        let (PeriodTotals([Some((day, of_day)), None, ..]), PeriodTotals([Some((month, of_month)), None, ..])) =
            (self.day, self.month)
        else {
            return None;
        };
        let (day, month) = (i32::try_from(day).ok()?, i32::try_from(month).ok()?);
        Some(PackedSpendTotals { day, month, of_day, of_month, total: self.total })
    }

    /// What the database says: of the day and the month that `at` lies in, and in all.
    #[must_use]
    pub const fn loaded(at: Timestamp, day: NanoUsd, month: NanoUsd, total: NanoUsd) -> Self {
        Self { day: PeriodTotals::one(at.day(), day.0), month: PeriodTotals::one(at.month(), month.0), total: total.0 }
    }

    /// Money spent by a request that arrived at `at`.
    pub fn add(&mut self, amount: NanoUsd, at: Timestamp) {
        self.day.add(at.day(), amount.0);
        self.month.add(at.month(), amount.0);
        self.total = self.total.saturating_add(amount.0);
    }

    /// Spent in the period that `at` lies in.
    #[must_use]
    pub const fn within(&self, window: Window, at: Timestamp) -> NanoUsd {
        NanoUsd(match window {
            Window::Day => self.day.of(at.day()),
            Window::Month => self.month.of(at.month()),
            Window::Total => self.total,
        })
    }
}

/// Microseconds of a bucket.
const BUCKET_US: u64 = 60_000_000;

/// What was used in the last minute: two buckets of 60 seconds, the older one weighted by how much of it still lies in
/// the minute. Times are monotonic microseconds; what they count from does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlidingWindow {
    bucket: u64,
    current: u64,
    previous: u64,
}

impl SlidingWindow {
    /// A window as it is kept elsewhere: the number of its newer bucket, used in that one and in the one before.
    #[must_use]
    pub const fn from_buckets(bucket: u64, current: u64, previous: u64) -> Self {
        Self { bucket, current, previous }
    }

    fn roll(&mut self, now: u64) {
        let bucket = now / BUCKET_US;
        if bucket > self.bucket {
            self.previous = if bucket == self.bucket + 1 { self.current } else { 0 };
            (self.bucket, self.current) = (bucket, 0);
        }
    }

    /// Used in the minute that ends now, rounded up.
    #[must_use]
    pub fn used(&self, now: u64) -> u64 {
        let mut at = *self;
        at.roll(now);
        at.weighted(now)
    }

    fn weighted(&self, now: u64) -> u64 {
        let rest = BUCKET_US - now % BUCKET_US;
        weigh(self.previous, rest).saturating_add(self.current)
    }

    /// Uses some. The bucket it went into is what [`SlidingWindow::adjust`] wants to know.
    pub fn add(&mut self, amount: u64, now: u64) -> u64 {
        self.roll(now);
        self.current = self.current.saturating_add(amount);
        self.bucket
    }

    /// Puts right what was taken into a bucket: `taken` was an estimate, `actual` is what it came to. What is too much is
    /// given back where it was taken, as far as that still counts; what is too little counts now.
    pub fn adjust(&mut self, bucket: u64, taken: u64, actual: u64, now: u64) {
        self.roll(now);
        self.current = self.current.saturating_add(actual.saturating_sub(taken));
        let over = taken.saturating_sub(actual);
        if bucket == self.bucket {
            self.current = self.current.saturating_sub(over);
        } else if bucket + 1 == self.bucket {
            self.previous = self.previous.saturating_sub(over);
        }
    }

    /// Milliseconds, rounded up, until `wanted` more stay within `limit`, if nothing else comes; 0: now.
    #[must_use]
    pub fn wait_ms(&self, wanted: u64, limit: u64, now: u64) -> u64 {
        let mut at = *self;
        at.roll(now);
        let Some(spare) = limit.checked_sub(wanted) else { return 2 * BUCKET_US / 1_000 };
        let into = now % BUCKET_US;
        let micros = if at.current <= spare {
            // The older bucket has to fade to what is spare beside the current one.
            fades(at.previous, spare - at.current).saturating_sub(into)
        } else {
            // The current bucket has to become the older one, and fade.
            BUCKET_US - into + fades(at.current, spare)
        };
        micros.div_ceil(1_000)
    }

    /// Milliseconds, rounded up, until nothing of it counts any more.
    #[must_use]
    pub fn reset_ms(&self, now: u64) -> u64 {
        let mut at = *self;
        at.roll(now);
        let rest = BUCKET_US - now % BUCKET_US;
        let micros = match (at.current, at.previous) {
            (0, 0) => 0,
            (0, _) => rest,
            (_, _) => rest + BUCKET_US,
        };
        micros.div_ceil(1_000)
    }
}

/// A bucket's part that still counts, rounded up, when `rest` microseconds of it lie in the minute.
fn weigh(bucket: u64, rest: u64) -> u64 {
    let weighed = (u128::from(bucket) * u128::from(rest)).div_ceil(u128::from(BUCKET_US));
    u64::try_from(weighed).unwrap_or(u64::MAX)
}

/// Microseconds into the next bucket at which this one counts for at most `spare`.
fn fades(bucket: u64, spare: u64) -> u64 {
    if bucket <= spare {
        return 0;
    }
    // weigh(bucket, BUCKET_US − t) ≤ spare  ⇔  bucket · (BUCKET_US − t) ≤ spare · BUCKET_US
    let rest = u128::from(spare) * u128::from(BUCKET_US) / u128::from(bucket);
    BUCKET_US - u64::try_from(rest).unwrap_or(BUCKET_US)
}
