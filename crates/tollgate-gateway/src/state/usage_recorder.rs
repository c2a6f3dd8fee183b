//! Appends usage records to the journal and queues them for the database. One recorder per core.
//!
//! Bound: 16,384 queued records. A record that finds no space and is in the journal is read back from there later.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{
    sync::{
        Notify,
        mpsc::{self, OwnedPermit},
    },
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tollgate_core::UsageRecord;
use tollgate_store::{Journal, JournalError, JournalWriter, SyncWaiter};

use super::{health_registry::HealthRegistry, metrics::MetricHandles, shared::Shared};

/// Records that may wait in memory.
pub(crate) const QUEUE_CAPACITY: usize = 16_384;

/// The sending end of the queue.
#[derive(Clone, Debug)]
pub struct UsageQueue {
    records: mpsc::Sender<QueuedRecord>,
    spilled: Arc<AtomicBool>,
}

/// The receiving end of the queue.
#[derive(Debug)]
pub(crate) struct UsageReceiver {
    pub(crate) records: mpsc::Receiver<QueuedRecord>,
    /// Whether a record is in the journal but found no space in the queue.
    pub(crate) spilled: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(crate) struct QueuedRecord {
    pub(crate) record: UsageRecord,
    pub(crate) in_journal: bool,
}

#[derive(Debug)]
pub(crate) struct QueuePermit(OwnedPermit<QueuedRecord>);

impl UsageQueue {
    pub(crate) fn new() -> (Self, UsageReceiver) {
        let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
        let spilled = Arc::new(AtomicBool::new(false));
        (Self { records: sender, spilled: Arc::clone(&spilled) }, UsageReceiver { records: receiver, spilled })
    }

    /// Reserves space for one record; `None` when the queue is full. The record then reaches the database through the
    /// journal.
    pub(crate) fn reserve(&self) -> Option<QueuePermit> {
        self.records.clone().try_reserve_owned().ok().map(QueuePermit)
    }

    /// Queues a record. `in_journal`: the journal has it, so it may be dropped when the queue is full. Returns whether
    /// it was queued.
    pub(crate) fn send(&self, record: UsageRecord, permit: Option<QueuePermit>, in_journal: bool) -> bool {
        let record = QueuedRecord { record, in_journal };
        let queued = match permit {
            Some(QueuePermit(permit)) => {
                permit.send(record);
                true
            }
            None => self.records.try_send(record).is_ok(),
        };
        if !queued && in_journal {
            self.spilled.store(true, Ordering::Release);
        }
        queued
    }
}

/// Recording state of one core.
#[derive(Debug)]
pub struct UsageRecorder {
    pub shared: Arc<Shared>,
    pub journal: Arc<JournalWriter>,
    pub queue: UsageQueue,
    pub health: Arc<HealthRegistry>,
    /// Cancelled when the drain time is over. Requests that still run then end with E61.
    pub cut_off: CancellationToken,
    /// Wakes this core's streams, so that they check whether they must end.
    pub interrupts: Arc<Notify>,
    /// This core's metrics.
    metrics: MetricHandles,
}

impl UsageRecorder {
    /// The recorder of core number `core`.
    pub fn open(
        shared: Arc<Shared>,
        journal: &Journal,
        core: u16,
        queue: UsageQueue,
        health: Arc<HealthRegistry>,
    ) -> Result<Self, JournalError> {
        let (cut_off, interrupts) = (shared.serving.cut_off_token(), shared.serving.interrupts.core());
        let journal = Arc::new(journal.writer(core)?);
        Ok(Self { shared, journal, queue, health, cut_off, interrupts, metrics: MetricHandles::default() })
    }

    /// Counts the usage of a request, and releases its reservation.
    pub(crate) fn settle(&self, record: &UsageRecord, now: Instant) {
        for alert in self.shared.counters.settle(record, now) {
            self.shared.alert(record.id, &record.key_name, &alert);
        }
        self.shared.serving.hand_over.settled(record);
    }

    /// Counts a record in the metrics.
    pub(crate) fn observe(&self, record: &UsageRecord) {
        self.shared.metrics.observe(record, &self.shared.catalog.load(), &self.metrics);
    }

    /// Appends a record to the journal and queues it for the database. Returns the flush that the answer's last bytes wait for; `None`
    /// when the journal cannot be written.
    pub(crate) fn record(&self, record: UsageRecord, permit: Option<QueuePermit>) -> Option<SyncWaiter> {
        let id = record.id;
        let written = self.journal.end(&record);
        let queued = self.queue.send(record, permit, written.is_ok());
        if self.journal.has_pending() {
            self.shared.serving.note_in_memory_only();
        }
        match written {
            Ok(flush) => Some(flush),
            Err(fault) => {
                if !queued {
                    self.shared.metrics.unrecorded();
                    self.journal.abandon(id);
                }
                tracing::error!(request.id = %id, queued, %fault, "a usage record could not be appended to the journal");
                None
            }
        }
    }
}
