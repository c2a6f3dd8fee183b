//! Token counts of each key in the last minute. They are free and do not count as requests, so they have a separate window, on this
//! node alone.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use moka::sync::Cache;
use tokio::time::Instant;
use tollgate_core::{KeyId, RateExceeded, RateKind, RateStatuses, SlidingWindow, Subject};

use crate::clock::Clock;

/// Maximum number of tracked keys. The least used ones are evicted.
const KEYS: u64 = 100_000;
/// After which time a window is empty.
const IDLE: Duration = Duration::from_mins(2);

/// Windows of token counts by key.
pub(crate) struct TokenCountRate {
    clock: Arc<dyn Clock>,
    started: Instant,
    windows: Cache<KeyId, Arc<Mutex<SlidingWindow>>>,
}

impl fmt::Debug for TokenCountRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenCountRate").finish_non_exhaustive()
    }
}

impl TokenCountRate {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let started = clock.instant();
        Self { clock, started, windows: Cache::builder().max_capacity(KEYS).time_to_idle(IDLE).build() }
    }

    /// Counts a token count of a key that may make `limit` per minute.
    ///
    /// # Errors
    /// The state of the window when it is full. Nothing is counted then.
    pub(crate) fn count(&self, key: KeyId, limit: u64) -> Result<(), RateExceeded> {
        let elapsed = self.clock.instant().saturating_duration_since(self.started);
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let window = self.windows.get_with(key, Arc::default);
        let mut window = window.lock().unwrap_or_else(PoisonError::into_inner);
        let used = window.used(micros);
        if used < limit {
            window.add(1, micros);
            return Ok(());
        }
        let wait_ms = window.wait_ms(1, limit, micros);
        let rate_statuses = RateStatuses::default();
        Err(RateExceeded { subject: Subject::Key(key), kind: RateKind::Requests, limit, used, wait_ms, rate_statuses })
    }
}
