//! Appends usage records to the journal and queues them for the database. One recorder per core.

use std::sync::Arc;

use tollgate_core::UsageRecord;
use tollgate_store::{Journal, JournalError, JournalWriter, SyncWaiter};

use super::{
    health_registry::HealthRegistry,
    shared::Shared,
    usage_queue::{QueuePermit, UsageQueue},
};

/// What one core records with.
#[derive(Debug)]
pub struct UsageRecorder {
    /// State of the process.
    pub shared: Arc<Shared>,
    /// The core's segment of the journal.
    pub journal: JournalWriter,
    /// The queue to the database.
    pub queue: UsageQueue,
    /// Health of accounts.
    pub health: Arc<HealthRegistry>,
}

impl UsageRecorder {
    /// The recorder of core number `core`.
    ///
    /// # Errors
    /// When the journal already has a writer for this core.
    pub fn open(
        shared: Arc<Shared>,
        journal: &Journal,
        core: u16,
        queue: UsageQueue,
        health: Arc<HealthRegistry>,
    ) -> Result<Self, JournalError> {
        Ok(Self { shared, journal: journal.writer(core)?, queue, health })
    }

    /// Counts what a request used, and releases what it had reserved.
    pub(crate) fn settle(&self, record: &UsageRecord) {
        for alert in self.shared.counters.settle(record, self.shared.clock.instant()) {
            self.shared.alert(record.id, &record.key_name, &alert);
        }
    }

    /// Appends a record to the journal and queues it for the database. Returns what the answer's last bytes wait for;
    /// `None` when the journal cannot be written.
    pub(crate) fn record(&self, record: UsageRecord, permit: Option<QueuePermit>) -> Option<SyncWaiter> {
        let id = record.id;
        let written = self.journal.end(&record);
        let queued = self.queue.send(record, permit, written.is_ok());
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
