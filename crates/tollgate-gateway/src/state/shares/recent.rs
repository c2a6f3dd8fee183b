//! Recent use of a key or member: retries of its requests, and records while the journal is full.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bounds::{Bound, Part};
use crate::state::retry_budget::RetriesLeft;

/// Requests whose records may be in memory while the journal is full: 64 MiB at 2 KiB each.
pub(crate) const HELD_REQUESTS: usize = 32 * 1024;
/// A holder may always make one retry for this many of its own requests.
const REQUESTS_PER_RETRY: u64 = 5;
/// Bits of a word for each of its two counts; the others hold the number of the period.
const COUNT_BITS: u32 = 20;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;

/// Two counts of one period. They restart at zero with each period.
#[derive(Debug, Default)]
struct PeriodCounts(AtomicU64);

impl PeriodCounts {
    /// Adds to the counts of a period if `may_be` accepts the result.
    fn add(&self, period: u64, first: u64, second: u64, may_be: impl Fn(u64, u64) -> bool) -> bool {
        let added = |word: u64| {
            let (old_first, old_second) = Self::of(word, Self::number(period));
            let (first, second) = (old_first + first, old_second + second);
            may_be(first, second).then(|| Self::word(period, first, second))
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, added).is_ok()
    }

    /// Subtracts from the counts if they are still of this period.
    fn take_back(&self, period: u64, first: u64, second: u64) {
        let reduced = |word: u64| {
            let (old_first, old_second) = Self::of(word, Self::number(period));
            Some(Self::word(period, old_first.saturating_sub(first), old_second.saturating_sub(second)))
                .filter(|_| word >> (2 * COUNT_BITS) == Self::number(period))
        };
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, reduced);
    }

    const fn number(period: u64) -> u64 {
        period & (u64::MAX >> (2 * COUNT_BITS))
    }

    fn word(period: u64, first: u64, second: u64) -> u64 {
        Self::number(period) << (2 * COUNT_BITS) | first.min(MAX_COUNT) << COUNT_BITS | second.min(MAX_COUNT)
    }

    fn of(word: u64, period: u64) -> (u64, u64) {
        if word >> (2 * COUNT_BITS) == period { ((word >> COUNT_BITS) & MAX_COUNT, word & MAX_COUNT) } else { (0, 0) }
    }
}

/// Recent use of one key, or of one member with all its keys.
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
        self.retries.add(period, 1, 0, |_, _| true);
    }

    /// Counts a retry if it is within a fifth of the holder's own requests, or within its part of those that are left.
    fn try_retry(&self, part: Part, retries: RetriesLeft) -> bool {
        let left = usize::try_from(retries.left).unwrap_or(usize::MAX);
        self.retries.add(retries.period, 0, 1, |requests, retries| {
            let beyond = retries.saturating_sub(requests / REQUESTS_PER_RETRY);
            beyond == 0 || part.permits(left, 0, usize::try_from(beyond).unwrap_or(usize::MAX))
        })
    }

    /// Counts a request that is recorded in memory, beside `held` others, if that is within the holder's part. `period` is the number of
    /// times that the journal became full.
    fn may_record(&self, part: Part, period: u64, held: usize) -> bool {
        let may_be = |own: u64, _| own == 1 || part.permits(HELD_REQUESTS, held, usize::try_from(own).unwrap_or(usize::MAX));
        self.records.add(period, 1, 0, may_be)
    }
}

/// Counts a retry of a key and its member if both may make one.
pub(super) fn try_retry([key, member]: [&RecentUse; 2], retries: RetriesLeft) -> bool {
    let [of_key, of_member] = Bound::Retries.share().of_callers();
    if !key.try_retry(of_key, retries) {
        return false;
    }
    let permitted = member.try_retry(of_member, retries);
    if !permitted {
        key.retries.take_back(retries.period, 0, 1);
    }
    permitted
}

/// Counts a request of a key and its member that is recorded in memory, if both may have one more.
pub(super) fn may_record([key, member]: [&RecentUse; 2], period: u64, held: usize) -> bool {
    let [of_key, of_member] = Bound::Journal.share().of_callers();
    if !key.may_record(of_key, period, held) {
        return false;
    }
    let permitted = member.may_record(of_member, period, held);
    if !permitted {
        key.records.take_back(period, 1, 0);
    }
    permitted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_cannot_use_all_retries() {
        let (hostile, member) = (RecentUse::default(), RecentUse::default());
        let mut left = 100_u64;
        while left > 0 && try_retry([&hostile, &member], RetriesLeft { period: 7, left }) {
            left -= 1;
        }
        assert_eq!(left, 25, "three times what is left");
        let (lone, member) = (RecentUse::default(), RecentUse::default());
        (0..500).for_each(|_| [&lone, &member].iter().for_each(|held| held.count_request(7)));
        let none_left = RetriesLeft { period: 7, left: 0 };
        assert_eq!((0..200).filter(|_| try_retry([&lone, &member], none_left)).count(), 100, "a fifth of its own requests");
        assert!(!try_retry([&lone, &member], none_left));
        assert!(try_retry([&lone, &member], RetriesLeft { period: 8, left: 10 }), "the next ten seconds");
    }

    #[test]
    fn one_member_cannot_use_all_retries() {
        let (keys, member) = ((0..100).map(|_| RecentUse::default()).collect::<Vec<_>>(), RecentUse::default());
        let mut left = 100_u64;
        for key in &keys {
            while left > 0 && try_retry([key, &member], RetriesLeft { period: 7, left }) {
                left -= 1;
            }
        }
        assert_eq!(left, 25, "three times what is left");
    }

    #[test]
    fn one_key_or_member_cannot_fill_the_memory_of_a_full_journal() {
        let (hostile, sibling, member) = (RecentUse::default(), RecentUse::default(), RecentUse::default());
        let held = (1..=HELD_REQUESTS).take_while(|held| may_record([&hostile, &member], 1, *held)).count();
        assert_eq!(held, HELD_REQUESTS / 4 * 3);
        assert!(!may_record([&sibling, &member], 1, held), "another key of the member");
        assert!(may_record([&RecentUse::default(), &RecentUse::default()], 1, held));
        assert!(may_record([&hostile, &member], 2, 0), "the journal was written in between");
    }
}
