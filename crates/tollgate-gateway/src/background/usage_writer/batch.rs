//! The records of the next transaction: from the queue, and from the journal where something is read back.

use std::collections::HashSet;

use tollgate_core::{RequestId, UsageRecord};
use tollgate_store::{Journal, UnbookedRecords};

use super::BATCH;
use crate::state::usage_queue::QueuedRecord;

/// A batch and what is read back for it.
#[derive(Debug)]
pub(super) struct Batch {
    records: Vec<UsageRecord>,
    /// Those that the journal does not have.
    unkept: HashSet<RequestId>,
    /// What is read back.
    backlog: Option<UnbookedRecords>,
    /// What is in the batch, while the same may come from journal and queue.
    present: Option<HashSet<RequestId>>,
    /// Whether it no longer may once this batch is booked.
    apart: bool,
}

impl Batch {
    /// An empty one, with what the last process left behind it.
    pub(super) fn after(recovered: UnbookedRecords) -> Self {
        Self { records: Vec::new(), unkept: HashSet::new(), backlog: Some(recovered), present: Some(HashSet::new()), apart: false }
    }

    /// Its records.
    pub(super) fn records(&self) -> &[UsageRecord] {
        &self.records
    }

    /// Whether there are none.
    pub(super) const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How many more it takes.
    pub(super) fn room(&self) -> usize {
        BATCH.saturating_sub(self.records.len())
    }

    /// Whether something is being read back.
    pub(super) const fn has_backlog(&self) -> bool {
        self.backlog.is_some()
    }

    /// From now on these are read back.
    pub(super) fn read_back(&mut self, records: UnbookedRecords) {
        self.backlog = Some(records);
        self.present = Some(self.records.iter().map(|record| record.id).collect());
        self.apart = false;
    }

    /// Takes a record of the queue, unless it came from the journal meanwhile.
    pub(super) fn take(&mut self, queued: QueuedRecord, journal: &Journal) {
        let QueuedRecord { record, in_journal } = queued;
        if let Some(present) = &mut self.present
            && in_journal
            && (!journal.is_unbooked(record.id) || !present.insert(record.id))
        {
            return;
        }
        if !in_journal {
            self.unkept.insert(record.id);
        }
        self.records.push(record);
    }

    /// Nothing in the queue is older than this: without a backlog the next batch has nothing that came before.
    pub(super) const fn queue_is_empty(&mut self) {
        self.apart = self.backlog.is_none();
    }

    /// Takes what is read back until the batch is full, or nothing more comes. How many parts of the journal could not be
    /// read.
    pub(super) fn take_backlog(&mut self) -> usize {
        let mut unread = 0;
        while self.room() > 0
            && let Some(records) = &mut self.backlog
        {
            match records.next() {
                Some(Ok(record)) => {
                    if self.present.get_or_insert_default().insert(record.id) {
                        self.records.push(record);
                    }
                }
                Some(Err(fault)) => {
                    tracing::error!(%fault, "a part of the journal cannot be read back");
                    unread += 1;
                }
                None => self.backlog = None,
            }
        }
        unread
    }

    /// It is booked.
    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.unkept.clear();
        match &mut self.present {
            Some(present) if !self.apart => present.clear(),
            present => *present = None,
        }
    }

    /// Only these are not booked.
    pub(super) fn keep(&mut self, left: &[RequestId]) {
        let left: HashSet<RequestId> = left.iter().copied().collect();
        self.records.retain(|record| left.contains(&record.id));
        self.unkept.retain(|id| left.contains(id));
        if let Some(present) = &mut self.present {
            present.retain(|id| left.contains(id));
        }
    }

    /// Those that the journal does not have.
    pub(super) fn unkept(&self) -> Vec<UsageRecord> {
        self.records.iter().filter(|record| self.unkept.contains(&record.id)).cloned().collect()
    }
}
