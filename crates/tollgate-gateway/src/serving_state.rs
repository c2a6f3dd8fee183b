//! Whether requests are accepted, and totals of what running requests hold.

use std::{
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    hand_over::HandOver,
    state::{
        interrupts::Interrupts,
        shares::{Bound, Capacity, Pool},
    },
};

/// Whether requests are accepted, and how many are running.
#[derive(Debug)]
pub struct ServingState {
    listening: AtomicBool,
    degraded: AtomicBool,
    booking_stuck: AtomicBool,
    in_memory_only: AtomicUsize,
    /// How often the journal became full.
    journal_full_times: AtomicU64,
    without_catalog: AtomicBool,
    disk_full: AtomicBool,
    draining: AtomicBool,
    /// Cancelled when the drain time is over.
    cut_off: CancellationToken,
    /// Cancelled when the operator ends the wait for running requests.
    ending_now: CancellationToken,
    pub(crate) interrupts: Interrupts,
    /// The state of an upgrade.
    pub hand_over: HandOver,
    /// Deviation of the clock in microseconds; 0 within the tolerance.
    clock_skew: AtomicI64,
    /// Requests in progress.
    pub(crate) requests: Pool,
    /// Requests in progress and those not admitted yet, whose key is unknown or that wait for a busy core.
    pub(crate) entered: AtomicUsize,
    /// Bytes of bodies and answers in memory.
    pub(crate) memory: Pool,
    /// Refusals that are delayed.
    pub(crate) delayed: Capacity,
    /// Refused connections that are still read because their callers keep sending.
    pub(crate) lingering: Capacity,
    quiet: Notify,
}

/// The state reported by `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Not listening yet, or no catalog.
    Starting,
    Ready,
    /// Serving without a database, or without disk space.
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

impl Default for ServingState {
    fn default() -> Self {
        Self {
            requests: Pool::new(Bound::RequestsInProgress),
            entered: AtomicUsize::default(),
            memory: Pool::new(Bound::BodyMemory),
            listening: AtomicBool::default(),
            degraded: AtomicBool::default(),
            booking_stuck: AtomicBool::default(),
            in_memory_only: AtomicUsize::default(),
            journal_full_times: AtomicU64::default(),
            without_catalog: AtomicBool::default(),
            disk_full: AtomicBool::default(),
            draining: AtomicBool::default(),
            cut_off: CancellationToken::default(),
            ending_now: CancellationToken::default(),
            interrupts: Interrupts::default(),
            hand_over: HandOver::default(),
            clock_skew: AtomicI64::default(),
            delayed: Capacity::default(),
            lingering: Capacity::default(),
            quiet: Notify::default(),
        }
    }
}

impl ServingState {
    /// The state reported by `/readyz`.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        if self.is_draining() {
            Readiness::Draining
        } else if !self.listening.load(Ordering::Acquire) || self.without_catalog.load(Ordering::Acquire) {
            Readiness::Starting
        } else if self.is_degraded() {
            Readiness::Degraded
        } else {
            Readiness::Ready
        }
    }

    fn is_degraded(&self) -> bool {
        let flags = [&self.degraded, &self.booking_stuck, &self.disk_full];
        flags.iter().any(|flag| flag.load(Ordering::Acquire)) || self.in_memory_only() > 0
    }

    pub(crate) fn listening(&self) {
        self.listening.store(true, Ordering::Release);
    }

    pub fn set_degraded(&self, degraded: bool) {
        self.degraded.store(degraded, Ordering::Release);
    }

    /// Sets whether the database takes longer to accept records than it should.
    pub(crate) fn set_booking_stuck(&self, stuck: bool) {
        self.booking_stuck.store(stuck, Ordering::Release);
    }

    /// Sets whether the disk of the data folder has too little space.
    pub fn set_disk_full(&self, full: bool) {
        self.disk_full.store(full, Ordering::Release);
    }

    /// Whether the disk of the data folder has too little space.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Acquire)
    }

    /// Sets the number of requests recorded only in memory because the journal is full.
    pub fn set_in_memory_only(&self, requests: usize) {
        if self.in_memory_only.swap(requests, Ordering::AcqRel) == 0 && requests > 0 {
            self.journal_full_times.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How often the journal became full.
    pub(crate) fn journal_full_times(&self) -> u64 {
        self.journal_full_times.load(Ordering::Acquire)
    }

    /// Records that at least one request is recorded only in memory; the usage writer counts them.
    pub(crate) fn note_in_memory_only(&self) {
        self.in_memory_only.fetch_max(1, Ordering::AcqRel);
    }

    /// Requests recorded only in memory because the journal is full.
    #[must_use]
    pub fn in_memory_only(&self) -> usize {
        self.in_memory_only.load(Ordering::Acquire)
    }

    /// Sets how far the clock of this node is ahead of those of the others, in microseconds; 0 within the tolerance.
    pub fn set_clock_skew(&self, micros: i64) {
        self.clock_skew.store(micros, Ordering::Release);
    }

    /// How far the clock is ahead, in seconds, if that exceeds the tolerance.
    #[must_use]
    pub fn clock_skew_s(&self) -> Option<i64> {
        let micros = self.clock_skew.load(Ordering::Acquire);
        (micros != 0).then_some(micros / 1_000_000)
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
        self.cut_off.cancel();
        self.interrupts.notify();
    }

    /// A token of one core that is cancelled when the drain time is over.
    pub(crate) fn cut_off_token(&self) -> CancellationToken {
        self.cut_off.child_token()
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

    /// Waits until no request is running, at most this long. Returns whether none is.
    pub(crate) async fn quiet_within(&self, limit: Duration) -> bool {
        tokio::select! {
            quiet = tokio::time::timeout(limit, self.quiet()) => quiet.is_ok(),
            () = self.ending_now.cancelled() => self.in_flight() == 0,
        }
    }

    pub(crate) fn is_cutting_off(&self) -> bool {
        self.cut_off.is_cancelled()
    }

    /// Whether new requests are refused (E61).
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// True while the process ends, so that a task may wait for the last request.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_draining() || self.hand_over.has_left()
    }

    /// Requests that a drain waits for.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.entered.load(Ordering::Acquire)
    }

    /// Wakes the tasks that wait for the last request.
    pub(crate) fn notify_quiet(&self) {
        self.quiet.notify_waiters();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_changes_with_the_condition() {
        let serving = ServingState::default();
        assert_eq!(serving.readiness(), Readiness::Starting);
        serving.listening();
        assert_eq!(serving.readiness(), Readiness::Ready);
        serving.set_in_memory_only(1);
        assert_eq!(serving.readiness(), Readiness::Degraded);
        serving.set_in_memory_only(0);
        serving.set_disk_full(true);
        assert_eq!(serving.readiness(), Readiness::Degraded);
        serving.set_disk_full(false);
        assert_eq!(serving.readiness(), Readiness::Ready);
        serving.set_degraded(true);
        assert_eq!(serving.readiness(), Readiness::Degraded);
        serving.set_without_catalog(true);
        assert_eq!(serving.readiness(), Readiness::Starting);
        serving.drain();
        assert_eq!(serving.readiness(), Readiness::Draining);
        assert!(!serving.readiness().serves());
    }
}
