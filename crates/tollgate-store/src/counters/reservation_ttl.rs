//! How long reservations are kept without a renewal. It follows a setting that can change while requests run.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// Milliseconds until a reservation that is not renewed expires. Those made before a change keep their time until they are renewed.
#[derive(Debug)]
pub(super) struct ReservationTtl(AtomicU64);

impl ReservationTtl {
    pub(super) fn new(ttl: Duration) -> Self {
        let kept = Self(AtomicU64::default());
        kept.set(ttl);
        kept
    }

    pub(super) fn set(&self, ttl: Duration) {
        self.0.store(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Expiry of a reservation made or renewed now.
    pub(super) fn expiry(&self, now: Instant) -> Instant {
        now + Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}
