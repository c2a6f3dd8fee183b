//! Watches the journal beside the writer, whose transactions may take long: writes entries that wait in memory when there is
//! space, and shows unbooked records in metrics and readiness.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval};
use tollgate_core::{Availability, Timestamp};
use tollgate_store::Journal;

use crate::state::{health_registry::HealthRegistry, shared::Shared};

const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// A transaction that takes longer counts as an unavailable database.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// When the transaction in progress began.
#[derive(Clone, Debug, Default)]
pub(super) struct BookingClock(Arc<Mutex<Option<Instant>>>);

impl BookingClock {
    pub(super) fn set(&self, began: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = began;
    }

    fn is_stuck(&self, now: Instant) -> bool {
        let began = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        began.is_some_and(|began| now >= began + STUCK_AFTER)
    }
}

/// The journal, and the metrics and readiness that show its state.
#[derive(Debug)]
pub(super) struct JournalWatch {
    pub(super) journal: Arc<Journal>,
    pub(super) registry: Arc<HealthRegistry>,
    pub(super) shared: Arc<Shared>,
    pub(super) booking: BookingClock,
    /// Catalog revision whose accounts are in the metrics.
    pub(super) shown: AtomicI64,
}

impl JournalWatch {
    /// Never returns; dropped with the writer.
    pub(super) async fn run(&self) -> Infallible {
        let mut ticks = interval(WATCH_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.journal.write_pending();
            self.update_gauges();
        }
    }

    fn update_gauges(&self) {
        let now = self.shared.clock.now();
        let age = self.journal.oldest_unbooked().map_or(0, |oldest| u64::try_from(now.ms_since(oldest)).unwrap_or(0));
        self.shared.metrics.journal(self.journal.bytes(), Duration::from_millis(age));
        let (pending, quarantined) = (self.journal.pending_requests(), self.journal.quarantined());
        self.shared.metrics.journal_trouble(pending, quarantined);
        self.shared.serving.set_in_memory_only(pending);
        self.shared.serving.set_booking_stuck(self.booking.is_stuck(self.shared.clock.instant()));
        self.update_account_gauges(now);
    }

    /// Sets the gauge of every configured account. All of them are set each time, because a cooling ends without an event.
    fn update_account_gauges(&self, now: Timestamp) {
        let catalog = self.shared.catalog.load();
        if self.shown.swap(catalog.revision.0, Ordering::Relaxed) != catalog.revision.0 {
            self.shared.metrics.clear_account_gauges();
        }
        for channel in catalog.channels.values() {
            for account in &channel.accounts {
                let rests =
                    !matches!(self.registry.of_all(account.id).availability(now), Availability::Usable | Availability::ProbeDue);
                self.shared.metrics.account_usable(
                    &channel.spec.name,
                    &account.spec.name,
                    channel.spec.on && account.spec.on && !rests,
                );
            }
        }
    }
}
