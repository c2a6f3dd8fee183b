//! Limits retries to a fifth of the requests of the last 10 s, plus ten. In a total outage this keeps the gateway from
//! multiplying its callers' load.
//!
//! The budget is shared by all cores without a lock: one atomic word holds the counts of each second of the window.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// The window, in seconds; one word each.
const WINDOW: u8 = 10;
/// Requests per allowed retry.
const REQUESTS_PER_RETRY: u64 = 5;
/// Retries allowed in each window regardless of the number of requests.
const ALLOWANCE: u64 = 10;
/// Bits of a word for each of its two counts; the remaining bits hold the number of the second.
const COUNT_BITS: u32 = 20;
/// Largest count of one second; further events are not counted.
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;
/// Second numbers wrap around after this many seconds, half a year.
const SECONDS: u64 = 1 << (64 - 2 * COUNT_BITS);
/// Seconds by which a caller's `now` may lag behind the newest count.
const MAX_LAG: u64 = 100;

/// Counts of requests and retries over a sliding window.
#[derive(Debug)]
pub struct RetryBudget {
    begin: Instant,
    words: [AtomicU64; WINDOW as usize],
}

/// The remaining retries, and the ten seconds to which they belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetriesLeft {
    pub(crate) period: u64,
    pub(crate) left: u64,
}

#[derive(Clone, Copy, Debug)]
struct Second {
    /// Seconds since `begin`, modulo [`SECONDS`].
    number: u64,
    requests: u64,
    retries: u64,
}

impl Second {
    const fn of(word: u64) -> Self {
        Self { number: word >> (2 * COUNT_BITS), requests: (word >> COUNT_BITS) & MAX_COUNT, retries: word & MAX_COUNT }
    }

    const fn word(self) -> u64 {
        (self.number << (2 * COUNT_BITS)) | (self.requests << COUNT_BITS) | self.retries
    }
}

impl RetryBudget {
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { begin: now, words: Default::default() }
    }

    /// Counts a request that makes its first attempt. Returns the ten seconds in which it was counted, as in [`RetriesLeft`].
    pub fn request(&self, now: Instant) -> u64 {
        let number = self.second(now);
        self.change(number, |second| Some(Second { requests: (second.requests + 1).min(MAX_COUNT), ..second }));
        number / u64::from(WINDOW)
    }

    /// Whether a retry is available. A concurrent request may acquire it first.
    pub fn has_capacity(&self, now: Instant) -> bool {
        self.left(self.second(now)) > 0
    }

    /// The retries that are left now.
    pub(crate) fn retries_left(&self, now: Instant) -> RetriesLeft {
        let second = self.second(now);
        RetriesLeft { period: second / u64::from(WINDOW), left: self.left(second) }
    }

    pub fn try_acquire(&self, now: Instant) -> bool {
        // The remainder is computed again whenever another core changed this second's word, so that two requests cannot
        // acquire the same retry.
        self.change(self.second(now), |second| {
            (self.left(second.number) > 0).then(|| Second { retries: (second.retries + 1).min(MAX_COUNT), ..second })
        })
    }

    pub fn release(&self, now: Instant) {
        self.change(self.second(now), |second| Some(Second { retries: second.retries.saturating_sub(1), ..second }));
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begin).as_secs() % SECONDS
    }

    /// Retries left in the window that ends with second `number`.
    fn left(&self, number: u64) -> u64 {
        let (mut requests, mut retries) = (0, 0);
        for word in &self.words {
            let second = Second::of(word.load(Ordering::Relaxed));
            if (number + SECONDS - second.number) % SECONDS < u64::from(WINDOW) {
                requests += second.requests;
                retries += second.retries;
            }
        }
        (requests / REQUESTS_PER_RETRY + ALLOWANCE).saturating_sub(retries)
    }

    /// Updates the counts of second `number`; false when `change` returns `None`.
    fn change(&self, number: u64, change: impl Fn(Second) -> Option<Second>) -> bool {
        #[expect(clippy::cast_possible_truncation, reason = "a remainder of 10")]
        let word = &self.words[(number % u64::from(WINDOW)) as usize];
        let next = |word| {
            let current = Second::of(word);
            // Another core may have advanced this word past this second: keep its counts.
            let is_this_or_later = (current.number + SECONDS - number) % SECONDS < MAX_LAG;
            let second = if is_this_or_later { current } else { Second { number, requests: 0, retries: 0 } };
            change(second).map(Second::word)
        };
        word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn granted(budget: &RetryBudget, now: Instant, requested: usize) -> usize {
        (0..requested).filter(|_| budget.try_acquire(now)).count()
    }

    #[tokio::test]
    async fn allowance_is_ten_without_requests() {
        let now = Instant::now();
        assert_eq!(granted(&RetryBudget::new(now), now, 100), 10);
    }

    #[tokio::test]
    async fn released_retry_can_be_acquired_again() {
        let now = Instant::now();
        let budget = RetryBudget::new(now);
        assert!((0..100).all(|_| budget.has_capacity(now)));
        assert_eq!(granted(&budget, now, 100), 10);
        assert!(!budget.has_capacity(now));
        budget.release(now);
        assert!(budget.has_capacity(now));
        assert_eq!(granted(&budget, now, 100), 1);
    }

    #[tokio::test]
    async fn total_outage_adds_at_most_a_fifth() {
        let begin = Instant::now();
        let budget = RetryBudget::new(begin);
        let mut retries = 0;
        for request in 0..10_000_u64 {
            let now = begin + Duration::from_millis(request * 10);
            budget.request(now);
            retries += granted(&budget, now, 2);
        }
        assert!((1_900..=2_110).contains(&retries), "{retries} retries for 10,000 requests in 100 s");
    }

    #[tokio::test]
    async fn concurrent_cores_do_not_exceed_the_budget() {
        let now = Instant::now();
        let budget = RetryBudget::new(now);
        let taken: usize = std::thread::scope(|scope| {
            let cores: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        (0..1_000).for_each(|_| _ = budget.request(now));
                        granted(&budget, now, 1_000)
                    })
                })
                .collect();
            cores.into_iter().map(|core| core.join().unwrap()).sum()
        });
        assert_eq!(taken, 8 * 1_000 / 5 + 10);
    }

    #[tokio::test]
    async fn retries_expire_after_ten_seconds() {
        let begin = Instant::now();
        let budget = RetryBudget::new(begin);
        assert_eq!(granted(&budget, begin, 100), 10);
        assert_eq!(granted(&budget, begin + Duration::from_secs(9), 100), 0);
        assert_eq!(granted(&budget, begin + Duration::from_secs(10), 100), 10);
        assert_eq!(granted(&budget, begin + Duration::from_hours(1), 100), 10);
    }
}
