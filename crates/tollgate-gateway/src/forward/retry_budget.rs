//! How many further attempts a core may make: a fifth of its requests of the last 10 s, and ten. In a total outage
//! this is what keeps the gateway from multiplying its callers' load.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// The window, in seconds; one bucket each.
const WINDOW: usize = 10;
/// Requests that pay for one further attempt.
const REQUESTS_PER_RETRY: u64 = 5;
/// Further attempts that nobody pays for.
const ALLOWANCE: u64 = 10;

/// Requests and further attempts of the last seconds.
#[derive(Debug)]
pub struct RetryBudget {
    begin: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    second: u64,
    requests: [u64; WINDOW],
    retries: [u64; WINDOW],
}

impl RetryBudget {
    /// An empty window that begins now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { begin: now, state: Mutex::default() }
    }

    /// A request makes its first attempt.
    pub fn request(&self, now: Instant) {
        self.with(now, |state, bucket| state.requests[bucket] += 1);
    }

    /// Whether a further attempt is left. Somebody else may take it all the same.
    pub fn has(&self, now: Instant) -> bool {
        self.with(now, |state, _| state.has())
    }

    /// Takes a further attempt, if one is left.
    pub fn take(&self, now: Instant) -> bool {
        self.with(now, |state, bucket| {
            let left = state.has();
            state.retries[bucket] += u64::from(left);
            left
        })
    }

    /// An attempt that was just taken was not made.
    pub fn give_back(&self, now: Instant) {
        self.with(now, |state, bucket| state.retries[bucket] = state.retries[bucket].saturating_sub(1));
    }

    fn with<T>(&self, now: Instant, act: impl FnOnce(&mut State, usize) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let second = now.saturating_duration_since(self.begin).as_secs();
        for passed in state.second.max(second.saturating_sub(WINDOW as u64)) + 1..=second {
            let bucket = index(passed);
            state.requests[bucket] = 0;
            state.retries[bucket] = 0;
        }
        state.second = state.second.max(second);
        let bucket = index(state.second);
        act(&mut state, bucket)
    }
}

impl State {
    fn has(&self) -> bool {
        let requests: u64 = self.requests.iter().sum();
        let retries: u64 = self.retries.iter().sum();
        retries < requests / REQUESTS_PER_RETRY + ALLOWANCE
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a remainder of 10")]
const fn index(second: u64) -> usize {
    (second % WINDOW as u64) as usize
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
    async fn what_is_given_back_can_be_taken_again_and_looking_takes_nothing() {
        let now = Instant::now();
        let budget = RetryBudget::new(now);
        assert!((0..100).all(|_| budget.has(now)));
        assert_eq!(granted(&budget, now, 100), 10);
        assert!(!budget.has(now));
        budget.give_back(now);
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
    async fn what_was_taken_comes_back_after_ten_seconds() {
        let begin = Instant::now();
        let budget = RetryBudget::new(begin);
        assert_eq!(granted(&budget, begin, 100), 10);
        assert_eq!(granted(&budget, begin + Duration::from_secs(9), 100), 0);
        assert_eq!(granted(&budget, begin + Duration::from_secs(10), 100), 10);
        assert_eq!(granted(&budget, begin + Duration::from_hours(1), 100), 10);
    }
}
