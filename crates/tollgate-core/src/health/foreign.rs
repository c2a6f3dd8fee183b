//! Health with times of another clock: that of another node, or this machine's before it stepped.

use super::{
    AccountHealth, CoolingReason, HealthState,
    quota::MAX_REST_MS,
    rules::{MAX_BACKOFF_MS, MAX_RETRY_AFTER_MS},
};
use crate::Timestamp;

impl HealthState {
    /// The state as seen by a clock that shows `now`: it began at the latest now, and keeps its remaining duration, at most the longest
    /// of its kind.
    #[must_use]
    pub fn as_of(self, now: Timestamp) -> Self {
        match self {
            Self::Usable => self,
            Self::Probing { since, why } => Self::Probing { since: since.min(now), why },
            Self::Cooling { until, why, since } => {
                let longest_ms = if why == CoolingReason::ConnectFailure { MAX_BACKOFF_MS } else { MAX_RETRY_AFTER_MS };
                Self::Cooling { until: end(since, until, longest_ms, now), why, since: since.min(now) }
            }
            Self::Resting { why, since, until } => {
                let until = until.map(|until| end(since, until, MAX_REST_MS, now));
                Self::Resting { why, since: since.min(now), until }
            }
        }
    }

    /// When a cooling or rest began; `None` while the account is usable or probed.
    #[must_use]
    pub const fn unavailable_since(&self) -> Option<Timestamp> {
        match *self {
            Self::Resting { since, .. } | Self::Cooling { since, .. } => Some(since),
            Self::Usable | Self::Probing { .. } => None,
        }
    }
}

impl AccountHealth {
    /// This health with its state [as of](HealthState::as_of) `now`.
    #[must_use]
    pub fn as_of(self, now: Timestamp) -> Self {
        Self { state: self.state.as_of(now), ..self }
    }
}

fn end(since: Timestamp, until: Timestamp, longest_ms: i64, now: Timestamp) -> Timestamp {
    let length = until.0.saturating_sub(since.0).clamp(0, longest_ms.saturating_mul(1_000));
    until.min(Timestamp(now.0.saturating_add(length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RestingReason;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);
    const DAY_MS: i64 = 86_400_000;

    fn cooling(since_ms: i64, until_ms: i64) -> HealthState {
        let (since, until) = (NOW.plus_ms(since_ms), NOW.plus_ms(until_ms));
        HealthState::Cooling { until, why: CoolingReason::RateLimited, since }
    }

    #[test]
    fn state_with_plausible_times_is_unchanged() {
        for state in [cooling(-5_000, 5_000), cooling(0, 3_600_000), cooling(-9_000, -1), HealthState::Usable] {
            assert_eq!(state.as_of(NOW), state);
        }
    }

    #[test]
    fn state_from_a_clock_ahead_keeps_its_duration() {
        assert_eq!(cooling(30 * DAY_MS, 30 * DAY_MS + 5_000).as_of(NOW), cooling(0, 5_000));
        assert_eq!(cooling(-1_000, DAY_MS).as_of(NOW), cooling(-1_000, 3_600_000), "no cooling is longer");
        assert_eq!(cooling(1_000, -1_000).as_of(NOW), cooling(0, -1_000), "an end before its beginning is over");
    }

    #[test]
    fn resting_states_from_a_clock_ahead_are_limited_to_a_day() {
        let resting = |since_ms: i64, until_ms: Option<i64>| HealthState::Resting {
            why: RestingReason::QuotaSpent,
            since: NOW.plus_ms(since_ms),
            until: until_ms.map(|ms| NOW.plus_ms(ms)),
        };
        assert_eq!(resting(DAY_MS, Some(9 * DAY_MS)).as_of(NOW), resting(0, Some(DAY_MS)));
        assert_eq!(resting(DAY_MS, None).as_of(NOW), resting(0, None), "a test made now comes after it");
        let probing = |since: Timestamp| HealthState::Probing { since, why: None };
        assert_eq!(probing(NOW.plus_ms(DAY_MS)).as_of(NOW), probing(NOW));
    }
}
