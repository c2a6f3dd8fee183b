//! Exponential backoff between attempts to reach the database.

use std::time::Duration;

use tokio::time::Instant;

/// Wait after the first failure.
const FIRST: Duration = Duration::from_millis(250);
/// Longest wait between two attempts.
const LAST: Duration = Duration::from_secs(10);

/// The time of the next attempt.
#[derive(Debug, Default)]
pub(super) struct RetryBackoff {
    wait: Duration,
    at: Option<Instant>,
}

impl RetryBackoff {
    /// Whether the next attempt may be made.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| now >= at)
    }

    /// Time until the next attempt.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    /// Schedules the next attempt after a failure.
    pub(super) fn record_failure(&mut self, now: Instant) {
        self.wait = (self.wait * 2).clamp(FIRST, LAST);
        self.at = Some(now + self.wait);
    }
}
