//! Counting: money by UTC day, by month and in total; requests and tokens by the minute.

use serde::{Deserialize, Serialize};

use crate::{NanoUsd, Timestamp, Window};

/// Settled money of one subject. A request counts for the day and month of its arrival. A few earlier periods are kept for
/// requests that arrived just before midnight, and because a clock may step forward and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendTotals {
    day: PeriodTotals,
    month: PeriodTotals,
    total: i64,
}

/// Number of periods kept. Each jump of the clock into the future leaves one period.
const KEPT_PERIODS: usize = 4;

/// Money spent in the most recent periods, by period number, highest first. Adding another one evicts the lowest.
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
        // The last entry is the lowest period or empty; replace it.
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

/// [`SpendTotals`] of a single day and month, in less memory: a start may load a million subjects, most of which stay idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedSpendTotals {
    day: i32,
    month: i32,
    day_amount: i64,
    month_amount: i64,
    total: i64,
}

impl PackedSpendTotals {
    /// The full form, which can hold further periods.
    pub fn unpacked(&self) -> SpendTotals {
        let one = |number: i32, amount: i64| PeriodTotals::one(i64::from(number), amount);
        SpendTotals { day: one(self.day, self.day_amount), month: one(self.month, self.month_amount), total: self.total }
    }
}

impl SpendTotals {
    /// The compact form; `None` when more than one day or month is known.
    pub fn packed(&self) -> Option<PackedSpendTotals> {
        let (PeriodTotals([Some((day, day_amount)), None, ..]), PeriodTotals([Some((month, month_amount)), None, ..])) =
            (self.day, self.month)
        else {
            return None;
        };
        let (day, month) = (i32::try_from(day).ok()?, i32::try_from(month).ok()?);
        Some(PackedSpendTotals { day, month, day_amount, month_amount, total: self.total })
    }

    /// Totals loaded from the database: of the day and month that `at` is in, and overall.
    pub const fn loaded(at: Timestamp, day: NanoUsd, month: NanoUsd, total: NanoUsd) -> Self {
        Self { day: PeriodTotals::one(at.day(), day.0), month: PeriodTotals::one(at.month(), month.0), total: total.0 }
    }

    /// Adds money spent by a request that arrived at `at`.
    pub fn add(&mut self, amount: NanoUsd, at: Timestamp) {
        self.day.add(at.day(), amount.0);
        self.month.add(at.month(), amount.0);
        self.total = self.total.saturating_add(amount.0);
    }

    /// Money spent in the period that `at` is in.
    pub const fn within(&self, window: Window, at: Timestamp) -> NanoUsd {
        NanoUsd(match window {
            Window::Day => self.day.of(at.day()),
            Window::Month => self.month.of(at.month()),
            Window::Total => self.total,
        })
    }
}

/// Length of a bucket in microseconds.
const BUCKET_US: u64 = 60_000_000;

/// Usage of the last minute: two 60 s buckets, the older one weighted by the part of it that is still within the minute. Times
/// are monotonic microseconds with any origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlidingWindow {
    bucket: u64,
    current: u64,
    previous: u64,
}

impl SlidingWindow {
    /// A window from stored values: the number of the newer bucket, its usage, and that of the bucket before it.
    pub const fn from_buckets(bucket: u64, current: u64, previous: u64) -> Self {
        Self { bucket, current, previous }
    }

    /// The number of the newer bucket, its usage, and that of the bucket before it.
    pub const fn buckets(&self) -> (u64, u64, u64) {
        (self.bucket, self.current, self.previous)
    }

    fn roll(&mut self, now: u64) {
        let bucket = now / BUCKET_US;
        if bucket > self.bucket {
            self.previous = if bucket == self.bucket + 1 { self.current } else { 0 };
            (self.bucket, self.current) = (bucket, 0);
        }
    }

    /// Usage of the minute that ends now, rounded up.
    pub fn used(&self, now: u64) -> u64 {
        let mut at = *self;
        at.roll(now);
        at.weighted(now)
    }

    fn weighted(&self, now: u64) -> u64 {
        let rest = BUCKET_US - now % BUCKET_US;
        weigh(self.previous, rest).saturating_add(self.current)
    }

    /// Adds usage and returns the bucket it went into, for a later [`SlidingWindow::adjust`].
    pub fn add(&mut self, amount: u64, now: u64) -> u64 {
        self.roll(now);
        self.current = self.current.saturating_add(amount);
        self.bucket
    }

    /// Replaces the estimate `reserved`, added to `bucket`, by the `actual` usage. An excess is subtracted from that bucket if it
    /// still counts; a shortfall is added now.
    pub fn adjust(&mut self, bucket: u64, reserved: u64, actual: u64, now: u64) {
        self.roll(now);
        self.current = self.current.saturating_add(actual.saturating_sub(reserved));
        let excess = reserved.saturating_sub(actual);
        if bucket == self.bucket {
            self.current = self.current.saturating_sub(excess);
        } else if bucket + 1 == self.bucket {
            self.previous = self.previous.saturating_sub(excess);
        }
    }

    /// Milliseconds, rounded up, until `wanted` more fit within `limit` if nothing else arrives; 0 when it fits now.
    pub fn wait_ms(&self, wanted: u64, limit: u64, now: u64) -> u64 {
        let mut at = *self;
        at.roll(now);
        let Some(spare) = limit.checked_sub(wanted) else { return 2 * BUCKET_US / 1_000 };
        let into = now % BUCKET_US;
        let micros = if at.current <= spare {
            // The older bucket must fade until the current one leaves enough.
            fade_us(at.previous, spare - at.current).saturating_sub(into)
        } else {
            // The current bucket must become the older one, then fade.
            BUCKET_US - into + fade_us(at.current, spare)
        };
        micros.div_ceil(1_000)
    }

    /// Milliseconds, rounded up, until all usage has left the window.
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

/// Part of a bucket that still counts, rounded up, when `rest` microseconds of it are within the minute.
fn weigh(bucket: u64, rest: u64) -> u64 {
    let weighed = (u128::from(bucket) * u128::from(rest)).div_ceil(u128::from(BUCKET_US));
    u64::try_from(weighed).unwrap_or(u64::MAX)
}

/// Microseconds into the next bucket after which this one counts for at most `spare`.
fn fade_us(bucket: u64, spare: u64) -> u64 {
    if bucket <= spare {
        return 0;
    }
    // weigh(bucket, BUCKET_US − t) ≤ spare  ⇔  bucket · (BUCKET_US − t) ≤ spare · BUCKET_US
    let rest = u128::from(spare) * u128::from(BUCKET_US) / u128::from(bucket);
    BUCKET_US - u64::try_from(rest).unwrap_or(BUCKET_US)
}
