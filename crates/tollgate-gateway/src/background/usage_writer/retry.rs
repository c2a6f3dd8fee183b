//! When a database that did not answer is asked again.

use std::time::Duration;

use tokio::time::Instant;

/// First wait after a failure.
const FIRST: Duration = Duration::from_millis(250);
/// Longest wait between two tries.
const LAST: Duration = Duration::from_secs(10);

/// When to try again.
#[derive(Debug, Default)]
pub(super) struct RetryBackoff {
    wait: Duration,
    at: Option<Instant>,
}

impl RetryBackoff {
    /// Whether it is time.
    pub(super) fn is_due(&self) -> bool {
        self.at.is_none_or(|at| Instant::now() >= at)
    }

    /// How long it is until then.
    pub(super) fn left(&self) -> Duration {
        self.at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
    }

    /// It failed again.
    pub(super) fn again(&mut self) {
        self.wait = (self.wait * 2).clamp(FIRST, LAST);
        self.at = Some(Instant::now() + self.wait);
    }
}
