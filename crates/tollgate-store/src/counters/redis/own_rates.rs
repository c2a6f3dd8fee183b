//! This node's counts against limits per minute: requests and tokens of this minute and the one before. Redis has the sum
//! over the nodes. If it has lost its data, the sum is restored from each node's report.

use std::{collections::HashMap, sync::Mutex};

use tollgate_core::{Limit, LimitRule, SlidingWindow, Subject};

use super::{
    super::subjects::{SHARDS, lock, shard_of},
    deltas::CounterDelta,
    lease::LeaseGrant,
};

/// Limit of the subjects per shard: about 300,000 in all.
const MAX_PER_SHARD: usize = 5_000;

/// Requests and tokens by minute of Redis' clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RateWindows {
    pub(super) requests: SlidingWindow,
    pub(super) tokens: SlidingWindow,
}

impl RateWindows {
    pub(super) fn add(&mut self, (requests, tokens): (u64, u64), micros: u64) {
        self.requests.add(requests, micros);
        self.tokens.add(tokens, micros);
    }

    fn is_used(&self, micros: u64) -> bool {
        self.requests.used(micros) > 0 || self.tokens.used(micros) > 0
    }
}

/// The counts of one subject.
#[derive(Debug, Default)]
struct OwnCounts {
    all: RateWindows,
    /// Those that Redis has not received, because it was unreachable.
    unreported: RateWindows,
}

/// The counts of all subjects with a limit a minute. Times are those of Redis, in microseconds.
#[derive(Debug)]
pub(super) struct OwnRates {
    shards: [Mutex<HashMap<Subject, OwnCounts>>; SHARDS],
}

impl OwnRates {
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Counts requests and tokens. `is_reported`: Redis has them.
    pub(super) fn count(&self, subject: Subject, counted: (u64, u64), micros: u64, is_reported: bool) {
        if counted == (0, 0) {
            return;
        }
        let mut shard = lock(&self.shards[shard_of(subject)]);
        if shard.len() >= MAX_PER_SHARD && !shard.contains_key(&subject) {
            shard.retain(|_, counts| counts.all.is_used(micros));
            if shard.len() >= MAX_PER_SHARD {
                return;
            }
        }
        let counts = shard.entry(subject).or_default();
        counts.all.add(counted, micros);
        if !is_reported {
            counts.unreported.add(counted, micros);
        }
    }

    /// Replaces estimates, as `delta` does in Redis.
    pub(super) fn correct(&self, subject: Subject, delta: &CounterDelta, micros: u64) {
        if delta.tokens.is_empty() && delta.requests.is_empty() {
            return;
        }
        let mut shard = lock(&self.shards[shard_of(subject)]);
        let Some(counts) = shard.get_mut(&subject) else { return };
        for (minute, estimated, actual) in &delta.tokens {
            counts.all.tokens.adjust(*minute, *estimated, *actual, micros);
        }
        for (minute, unused) in &delta.requests {
            counts.all.requests.adjust(*minute, *unused, 0, micros);
        }
    }

    /// Counts to send to Redis: those it has not received, or `everything` if it has lost its data.
    pub(super) fn take(&self, everything: bool, micros: u64) -> Vec<(Subject, RateWindows)> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.retain(|_, counts| counts.all.is_used(micros));
            for (subject, counts) in shard.iter_mut() {
                let unreported = std::mem::take(&mut counts.unreported);
                let windows = if everything { counts.all } else { unreported };
                if windows.is_used(micros) {
                    taken.push((*subject, windows));
                }
            }
        }
        taken
    }
}

/// Requests and tokens that a reservation of this many tokens counts for `subject`.
pub(super) fn counted_for(limits: &[Limit], tokens: u64, subject: Subject) -> (u64, u64) {
    let rules = limits.iter().filter(|limit| limit.subject == subject).map(|limit| limit.rule);
    rules.fold((0, 0), |(requests, counted), rule| match rule {
        LimitRule::Requests(_) => (requests + 1, counted),
        LimitRule::Tokens(limit) => (requests, counted + tokens.min(limit)),
        LimitRule::Budget(_) | LimitRule::Balance | LimitRule::Concurrency(_) => (requests, counted),
    })
}

/// Counts that a lease takes in advance.
pub(super) const fn counted_by_lease(grant: &LeaseGrant) -> (u64, u64) {
    (grant.requests, grant.tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000;

    #[test]
    fn counts_of_two_minutes_are_kept_and_reported_once() {
        let rates = OwnRates::new();
        rates.count(Subject::Gateway, (3, 300), 10 * MINUTE, true);
        rates.count(Subject::Gateway, (2, 200), 11 * MINUTE, false);
        let correction = CounterDelta { tokens: vec![(11, 100, 40)], requests: vec![(10, 1)], ..CounterDelta::default() };
        rates.correct(Subject::Gateway, &correction, 11 * MINUTE);
        let buckets = |everything| {
            let taken = rates.take(everything, 11 * MINUTE);
            taken.first().map(|(_, windows)| (windows.requests.buckets(), windows.tokens.buckets()))
        };
        assert_eq!(buckets(false), Some(((11, 2, 0), (11, 200, 0))), "what was counted without Redis");
        assert_eq!(buckets(false), None);
        assert_eq!(buckets(true), Some(((11, 2, 2), (11, 140, 300))), "all of it, with its corrections");
        assert_eq!(rates.take(true, 13 * MINUTE), []);
    }
}
