//! Recent use of a key: retries of its requests, and records while the journal is full.

use std::sync::atomic::{AtomicU64, Ordering};

use super::is_within_share;

/// Requests whose records may be in memory while the journal is full: 64 MiB at 2 KiB each.
pub(crate) const HELD_REQUESTS: usize = 32 * 1024;
/// A key may always make one retry for this many of its own requests, plus [`ALLOWANCE`].
const REQUESTS_PER_RETRY: u64 = 5;
const ALLOWANCE: u64 = 10;
/// Bits of a word for each of its two counts; the others hold the number of the period.
const COUNT_BITS: u32 = 20;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;

/// Two counts of one period. They restart at zero with each period.
#[derive(Debug, Default)]
struct PeriodCounts(AtomicU64);

impl PeriodCounts {
    /// Adds to the counts of a period; returns them.
    fn add(&self, period: u64, first: u64, second: u64) -> (u64, u64) {
        let period = period & (u64::MAX >> (2 * COUNT_BITS));
        let added = |word: u64| {
            let (old_first, old_second) = Self::of(word, period);
            let (first, second) = ((old_first + first).min(MAX_COUNT), (old_second + second).min(MAX_COUNT));
            Some(period << (2 * COUNT_BITS) | first << COUNT_BITS | second)
        };
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, added).unwrap_or_default();
        let (old_first, old_second) = Self::of(before, period);
        (old_first + first, old_second + second)
    }

    fn of(word: u64, period: u64) -> (u64, u64) {
        if word >> (2 * COUNT_BITS) == period { ((word >> COUNT_BITS) & MAX_COUNT, word & MAX_COUNT) } else { (0, 0) }
    }
}

/// Recent use of one key.
#[derive(Debug, Default)]
pub(super) struct RecentUse {
    /// Requests and retries of ten seconds.
    retries: PeriodCounts,
    /// Requests since the journal became full.
    records: PeriodCounts,
}

impl RecentUse {
    /// Counts a request that makes its first attempt.
    pub(super) fn count_request(&self, period: u64) {
        self.retries.add(period, 1, 0);
    }

    /// Counts a retry if the key may make one: within a fifth of its own requests, or within its share of the `left` ones.
    pub(super) fn try_retry(&self, period: u64, left: u64) -> bool {
        let (requests, retries) = self.retries.add(period, 0, 1);
        let own = retries <= requests / REQUESTS_PER_RETRY + ALLOWANCE;
        own || retries <= left.saturating_mul(super::TIMES_FREE as u64)
    }

    /// Whether a request may be recorded in memory, of which `held` are; `period` is the time since the journal is full.
    pub(super) fn may_record(&self, period: u64, held: usize) -> bool {
        let (own, _) = self.records.add(period, 1, 0);
        own == 1 || is_within_share(HELD_REQUESTS, held, usize::try_from(own).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_used_up_the_retries_of_all() {
        let hostile = RecentUse::default();
        let mut left = 100_u64;
        while left > 0 && hostile.try_retry(7, left - 1) {
            left -= 1;
        }
        assert_eq!(left, 25, "three times what is left");
        let lone = RecentUse::default();
        (0..500).for_each(|_| lone.count_request(7));
        assert_eq!((0..200).filter(|_| lone.try_retry(7, 0)).count(), 110, "a fifth of its own requests, and ten");
        assert!(lone.try_retry(8, 0), "the next ten seconds");
    }

    #[test]
    fn one_key_held_all_memory_of_a_full_journal() {
        let (hostile, other) = (RecentUse::default(), RecentUse::default());
        let held = (1..=HELD_REQUESTS).take_while(|held| hostile.may_record(1, *held)).count();
        assert_eq!(held, HELD_REQUESTS / 4 * 3);
        assert!(other.may_record(1, held));
        assert!(hostile.may_record(2, 0), "the journal was written in between");
    }
}
