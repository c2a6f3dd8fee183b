//! What of an account's bounds is in use, and whether that leaves room.

use serde::{Deserialize, Serialize};
use tollgate_core::{AccountLimits as Bounds, AccountLoad, SlidingWindow, Timestamp};

/// What of an account's bounds is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountUsage {
    /// Requests at once.
    pub running: u32,
    /// Requests of a minute.
    pub requests: SlidingWindow,
    /// Tokens of a minute.
    pub tokens: SlidingWindow,
}

impl AccountUsage {
    /// Whether anything is, at a time in monotonic microseconds.
    pub(crate) fn any(&self, now: u64) -> bool {
        self.running > 0 || self.requests.used(now) > 0 || self.tokens.used(now) > 0
    }

    /// Whether a request that is estimated at `tokens` finds room. `now` is a time in monotonic microseconds, `at` the same
    /// by the clock.
    pub(crate) fn load(&self, bounds: Bounds, tokens: u64, now: u64, at: Timestamp) -> AccountLoad {
        match self.full(bounds, tokens, now) {
            None => AccountLoad::Free,
            Some(AtCapacity::AtConcurrency) => AccountLoad::AtConcurrency,
            Some(AtCapacity::AtRate { wait_ms }) => {
                AccountLoad::AtRate { until: at.plus_ms(i64::try_from(wait_ms).unwrap_or(i64::MAX)) }
            }
        }
    }

    /// Why there is no room for it.
    pub(super) fn full(&self, bounds: Bounds, tokens: u64, now: u64) -> Option<AtCapacity> {
        if bounds.concurrency != 0 && self.running >= bounds.concurrency {
            return Some(AtCapacity::AtConcurrency);
        }
        let mut wait_ms = 0;
        if bounds.rpm != 0 {
            wait_ms = self.requests.wait_ms(1, u64::from(bounds.rpm), now);
        }
        if bounds.tpm != 0 {
            // What is estimated at more than a whole minute's tokens goes when nothing else does.
            wait_ms = wait_ms.max(self.tokens.wait_ms(tokens.min(bounds.tpm), bounds.tpm, now));
        }
        (wait_ms > 0).then_some(AtCapacity::AtRate { wait_ms })
    }
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtCapacity {
    /// As many requests at once as it takes.
    AtConcurrency,
    /// As much in a minute; there is room after the wait, if nothing else comes.
    AtRate { wait_ms: u64 },
}
