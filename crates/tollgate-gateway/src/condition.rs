//! Whether requests are accepted, how many are running, and the memory that their bodies take.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Whether requests are accepted, and how many are running.
#[derive(Debug, Default)]
pub struct Condition {
    listening: AtomicBool,
    degraded: AtomicBool,
    in_memory_only: AtomicUsize,
    without_catalog: AtomicBool,
    draining: AtomicBool,
    cutting_off: AtomicBool,
    /// Cancelled when the operator does not want to wait for running requests.
    ending_now: CancellationToken,
    in_flight: AtomicUsize,
    /// Bytes of request bodies in memory.
    body_bytes: AtomicUsize,
    quiet: Notify,
}

/// The state reported by `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Not listening yet, or no catalog.
    Starting,
    Ready,
    /// Serving without a database.
    Degraded,
    Draining,
}

impl Readiness {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Draining => "draining",
        }
    }

    /// Whether requests are accepted.
    #[must_use]
    pub const fn serves(self) -> bool {
        matches!(self, Self::Ready | Self::Degraded)
    }
}

impl Condition {
    /// The state reported by `/readyz`.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        if self.is_draining() {
            Readiness::Draining
        } else if !self.listening.load(Ordering::Acquire) || self.without_catalog.load(Ordering::Acquire) {
            Readiness::Starting
        } else if self.degraded.load(Ordering::Acquire) || self.in_memory_only() > 0 {
            Readiness::Degraded
        } else {
            Readiness::Ready
        }
    }

    pub(crate) fn listening(&self) {
        self.listening.store(true, Ordering::Release);
    }

    pub fn set_degraded(&self, degraded: bool) {
        self.degraded.store(degraded, Ordering::Release);
    }

    /// Sets the number of requests recorded only in memory because the journal is full.
    pub fn set_in_memory_only(&self, requests: usize) {
        self.in_memory_only.store(requests, Ordering::Release);
    }

    /// Requests recorded only in memory because the journal is full.
    #[must_use]
    pub fn in_memory_only(&self) -> usize {
        self.in_memory_only.load(Ordering::Acquire)
    }

    /// Sets whether the catalog is missing in both the database and the local copy.
    pub fn set_without_catalog(&self, without: bool) {
        self.without_catalog.store(without, Ordering::Release);
    }

    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.quiet.notify_waiters();
    }

    /// The drain time is over: running requests end because of the gateway and not because their callers left.
    pub(crate) fn cut_off(&self) {
        self.cutting_off.store(true, Ordering::Release);
    }

    /// Ends a drain, or the next one, at once.
    pub fn end_now(&self) {
        self.ending_now.cancel();
    }

    /// Whether a drain was ended by [`Self::end_now`].
    #[must_use]
    pub fn is_ending_now(&self) -> bool {
        self.ending_now.is_cancelled()
    }

    /// Waits until running requests are done, at most this long; whether they are.
    pub(crate) async fn quiet_within(&self, limit: Duration) -> bool {
        tokio::select! {
            quiet = tokio::time::timeout(limit, self.quiet()) => quiet.is_ok(),
            () = self.ending_now.cancelled() => self.in_flight() == 0,
        }
    }

    pub(crate) fn is_cutting_off(&self) -> bool {
        self.cutting_off.load(Ordering::Acquire)
    }

    /// Whether new requests are refused (E61).
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Admits a request if fewer than `max_requests` are running. The bodies of all requests together take at most
    /// `max_body_bytes`.
    pub(crate) fn enter(self: &Arc<Self>, max_requests: usize, max_body_bytes: usize) -> Option<Arc<InFlightRequest>> {
        let before = self.in_flight.fetch_add(1, Ordering::AcqRel);
        // Counted back by its drop if it is not admitted.
        let request = InFlightRequest { condition: Arc::clone(self), body_bytes: AtomicUsize::new(0), max_body_bytes };
        (before < max_requests).then(|| Arc::new(request))
    }

    /// Waits until no request is running.
    pub(crate) async fn quiet(&self) {
        loop {
            let notified = self.quiet.notified();
            if self.in_flight() == 0 {
                return;
            }
            notified.await;
        }
    }
}

/// A running request; dropped with the last byte of its answer.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    condition: Arc<Condition>,
    body_bytes: AtomicUsize,
    max_body_bytes: usize,
}

/// The memory limit for all request bodies is reached.
#[derive(Debug)]
pub(crate) struct MemoryExhausted;

impl InFlightRequest {
    /// Reserves memory for `bytes` of the request body. Released when the request ends, because the body may be sent more than
    /// once until then.
    pub(crate) fn reserve_body(&self, bytes: usize) -> Result<(), MemoryExhausted> {
        let before = self.condition.body_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.body_bytes.fetch_add(bytes, Ordering::AcqRel);
        if before.saturating_add(bytes) <= self.max_body_bytes { Ok(()) } else { Err(MemoryExhausted) }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.condition.body_bytes.fetch_sub(self.body_bytes.load(Ordering::Acquire), Ordering::AcqRel);
        if self.condition.in_flight.fetch_sub(1, Ordering::AcqRel) == 1 && self.condition.is_draining() {
            self.condition.quiet.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_their_memory_and_release_it() {
        let condition = Arc::new(Condition::default());
        let one = condition.enter(2, 100).unwrap();
        let other = condition.enter(2, 100).unwrap();
        assert!(condition.enter(2, 100).is_none());
        assert_eq!(condition.in_flight(), 2, "a request that was not admitted is not counted");
        assert!(one.reserve_body(60).is_ok() && other.reserve_body(40).is_ok());
        assert!(other.reserve_body(1).is_err());
        drop(one);
        assert!(other.reserve_body(59).is_ok());
        drop(other);
        assert_eq!((condition.in_flight(), condition.body_bytes.load(Ordering::Acquire)), (0, 0));
    }

    #[test]
    fn readiness_in_order() {
        let condition = Condition::default();
        assert_eq!(condition.readiness(), Readiness::Starting);
        condition.listening();
        assert_eq!(condition.readiness(), Readiness::Ready);
        condition.set_in_memory_only(1);
        assert_eq!(condition.readiness(), Readiness::Degraded);
        condition.set_in_memory_only(0);
        assert_eq!(condition.readiness(), Readiness::Ready);
        condition.set_degraded(true);
        assert_eq!(condition.readiness(), Readiness::Degraded);
        condition.set_without_catalog(true);
        assert_eq!(condition.readiness(), Readiness::Starting);
        condition.drain();
        assert_eq!(condition.readiness(), Readiness::Draining);
        assert!(!condition.readiness().serves());
    }
}
