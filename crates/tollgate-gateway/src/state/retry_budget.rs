//! How many further attempts the gateway may make: a fifth of its requests of the last 10 s, and ten. In a total outage
//! this is what keeps it from multiplying its callers' load.
//!
//! All cores share it, without a lock: a word for each second of the window holds what happened in it.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// The window, in seconds; one word each.
const WINDOW: u8 = 10;
/// Requests that pay for one further attempt.
const REQUESTS_PER_RETRY: u64 = 5;
/// Further attempts without earlier requests.
const ALLOWANCE: u64 = 10;
/// Bits of a word for each of its two counts; the rest names the second.
const COUNT_BITS: u32 = 20;
/// Most that is counted in one second.
const MOST: u64 = (1 << COUNT_BITS) - 1;
/// Seconds begin anew after so many: half a year, of which a window of ten has to be told apart.
const SECONDS: u64 = 1 << (64 - 2 * COUNT_BITS);
/// Seconds that a `now` may be behind.
const LATEST: u64 = 100;

/// Requests and further attempts of the last seconds.
#[derive(Debug)]
pub struct RetryBudget {
    begin: Instant,
    words: [AtomicU64; WINDOW as usize],
}

/// What a word holds.
#[derive(Clone, Copy, Debug)]
struct Second {
    /// Since the beginning, of [`SECONDS`].
    number: u64,
    requests: u64,
    retries: u64,
}

impl Second {
    const fn of(word: u64) -> Self {
        Self { number: word >> (2 * COUNT_BITS), requests: (word >> COUNT_BITS) & MOST, retries: word & MOST }
    }

    const fn word(self) -> u64 {
        (self.number << (2 * COUNT_BITS)) | (self.requests << COUNT_BITS) | self.retries
    }
}

impl RetryBudget {
    /// An empty window that begins now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { begin: now, words: Default::default() }
    }

    /// A request makes its first attempt.
    pub fn request(&self, now: Instant) {
        self.change(now, |second| Some(Second { requests: (second.requests + 1).min(MOST), ..second }));
    }

    /// Whether a further attempt is left. Another request may take it first.
    pub fn has(&self, now: Instant) -> bool {
        self.left(self.second(now)) > 0
    }

    /// Takes a further attempt, if one is left.
    pub fn take(&self, now: Instant) -> bool {
        // What is left is looked up anew whenever another request changed this second meanwhile, so that two do not take the
        // same one.
        self.change(now, |second| {
            (self.left(second.number) > 0).then(|| Second { retries: (second.retries + 1).min(MOST), ..second })
        })
    }

    /// An attempt that was just taken was not made.
    pub fn release(&self, now: Instant) {
        self.change(now, |second| Some(Second { retries: second.retries.saturating_sub(1), ..second }));
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begin).as_secs() % SECONDS
    }

    /// What is left in a second and the nine before it.
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

    /// Changes this second's counts, unless there is nothing to change.
    fn change(&self, now: Instant, change: impl Fn(Second) -> Option<Second>) -> bool {
        let number = self.second(now);
        #[expect(clippy::cast_possible_truncation, reason = "a remainder of 10")]
        let word = &self.words[(number % u64::from(WINDOW)) as usize];
        let next = |word| {
            let known = Second::of(word);
            // Another core may be ahead of a `now` that was read before it was its turn: what it counted stays.
            let is_this_or_later = (known.number + SECONDS - number) % SECONDS < LATEST;
            let second = if is_this_or_later { known } else { Second { number, requests: 0, retries: 0 } };
            change(second).map(Second::word)
        };
        word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn granted(budget: &RetryBudget, now: Instant, asked: usize) -> usize {
        (0..asked).filter(|_| budget.take(now)).count()
    }

    #[tokio::test]
    async fn without_requests_there_are_ten() {
        let now = Instant::now();
        assert_eq!(granted(&RetryBudget::new(now), now, 100), 10);
    }

    #[tokio::test]
    async fn released_retry_can_be_taken_again_and_looking_takes_nothing() {
        let now = Instant::now();
        let budget = RetryBudget::new(now);
        assert!((0..100).all(|_| budget.has(now)));
        assert_eq!(granted(&budget, now, 100), 10);
        assert!(!budget.has(now));
        budget.release(now);
        assert!(budget.has(now));
        assert_eq!(granted(&budget, now, 100), 1);
    }

    #[tokio::test]
    async fn a_total_outage_costs_at_most_a_fifth_more() {
        let begin = Instant::now();
        let budget = RetryBudget::new(begin);
        let mut retries = 0;
        for request in 0..10_000_u64 {
            let now = begin + Duration::from_millis(request * 10);
            budget.request(now);
            retries += granted(&budget, now, 2);
        }
        assert!((1_900..=2_110).contains(&retries), "{retries} further attempts for 10,000 requests in 100 s");
    }

    #[tokio::test]
    async fn many_at_once_take_no_more_than_there_are() {
        let now = Instant::now();
        let budget = RetryBudget::new(now);
        let taken: usize = std::thread::scope(|scope| {
            let cores: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        (0..1_000).for_each(|_| budget.request(now));
                        granted(&budget, now, 1_000)
                    })
                })
                .collect();
            cores.into_iter().map(|core| core.join().unwrap()).sum()
        });
        assert_eq!(taken, 8 * 1_000 / 5 + 10);
    }

    #[tokio::test]
    async fn what_was_taken_comes_back_after_ten_seconds() {
        let begin = Instant::now();
        let budget = RetryBudget::new(begin);
        assert_eq!(granted(&budget, begin, 100), 10);
        assert_eq!(granted(&budget, begin + Duration::from_secs(9), 100), 0);
        assert_eq!(granted(&budget, begin + Duration::from_secs(10), 100), 10);
        assert_eq!(granted(&budget, begin + Duration::from_hours(1), 100), 10);
    }
}
