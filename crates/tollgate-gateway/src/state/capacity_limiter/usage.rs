//! Current usage of one account or channel, and the check against its limits.

use serde::{Deserialize, Serialize};
use tollgate_core::{CapacityLimits as Bounds, CapacityLoad, SlidingWindow, Timestamp};

/// Running requests and per-minute windows of one account or channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityUsage {
    pub running: u32,
    pub requests: SlidingWindow,
    pub tokens: SlidingWindow,
}

impl CapacityUsage {
    /// Whether anything is in use at `now`, in monotonic microseconds.
    pub(crate) fn any(&self, now: u64) -> bool {
        self.running > 0 || self.requests.used(now) > 0 || self.tokens.used(now) > 0
    }

    /// Whether a request estimated at `tokens` fits. `now` is in monotonic microseconds, `at` is the same moment as wall-clock
    /// time.
    pub(crate) fn load(&self, bounds: Bounds, tokens: u64, now: u64, at: Timestamp) -> CapacityLoad {
        self.full(bounds, tokens, now).map_or(CapacityLoad::Free, |full| full.load(|| at))
    }

    /// Why the request does not fit; `None` when it fits.
    pub(super) fn full(&self, bounds: Bounds, tokens: u64, now: u64) -> Option<AtCapacity> {
        if bounds.concurrency != 0 && self.running >= bounds.concurrency {
            return Some(AtCapacity::AtConcurrency);
        }
        let mut wait_ms = 0;
        if bounds.rpm != 0 {
            wait_ms = self.requests.wait_ms(1, u64::from(bounds.rpm), now);
        }
        if bounds.tpm != 0 {
            // A request estimated above the whole limit is admitted when the window is empty.
            wait_ms = wait_ms.max(self.tokens.wait_ms(tokens.min(bounds.tpm), bounds.tpm, now));
        }
        (wait_ms > 0).then_some(AtCapacity::AtRate { wait_ms })
    }
}

/// The limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtCapacity {
    AtConcurrency,
    /// Requests or tokens per minute. The request fits after `wait_ms` if no other request comes first.
    AtRate {
        wait_ms: u64,
    },
}

impl AtCapacity {
    pub(super) fn load(self, now: impl FnOnce() -> Timestamp) -> CapacityLoad {
        match self {
            Self::AtConcurrency => CapacityLoad::AtConcurrency,
            Self::AtRate { wait_ms } => CapacityLoad::AtRate { until: now().plus_ms(i64::try_from(wait_ms).unwrap_or(i64::MAX)) },
        }
    }
}
