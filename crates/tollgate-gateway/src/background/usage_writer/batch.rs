//! The records of the next transaction, taken from the queue and from the journal's backlog.

use std::collections::HashSet;

use tollgate_core::{RequestId, UsageRecord};
use tollgate_store::{BATCH_SIZE, Journal, UnbookedRecords};

use crate::state::usage_recorder::QueuedRecord;

/// A batch, and the backlog it is filled from.
#[derive(Debug)]
pub(super) struct Batch {
    records: Vec<UsageRecord>,
    /// The most records that the database should get at once.
    size: usize,
    not_in_journal: HashSet<RequestId>,
    /// Records being read back from the journal.
    backlog: Option<UnbookedRecords>,
    /// Ids in the batch, kept while the same record may come from both journal and queue.
    present: Option<HashSet<RequestId>>,
    /// True when duplicates are impossible once this batch is written.
    duplicates_end: bool,
}

impl Batch {
    /// An empty batch. Its backlog is the records that the last process left in the journal.
    pub(super) fn after(recovered: UnbookedRecords) -> Self {
        Self {
            records: Vec::new(),
            size: 0,
            not_in_journal: HashSet::new(),
            backlog: Some(recovered),
            present: Some(HashSet::new()),
            duplicates_end: false,
        }
    }

    pub(super) fn records(&self) -> &[UsageRecord] {
        &self.records
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) const fn set_size(&mut self, size: usize) {
        self.size = size;
    }

    /// Space for further records.
    pub(super) fn remaining(&self) -> usize {
        self.size.saturating_sub(self.records.len())
    }

    pub(super) const fn has_backlog(&self) -> bool {
        self.backlog.is_some()
    }

    pub(super) fn read_back(&mut self, records: UnbookedRecords) {
        self.backlog = Some(records);
        self.present = Some(self.records.iter().map(|record| record.id).collect());
        self.duplicates_end = false;
    }

    /// Adds a record from the queue, unless it was already read back from the journal.
    pub(super) fn push(&mut self, queued: QueuedRecord, journal: &Journal) {
        let QueuedRecord { record, in_journal } = queued;
        if let Some(present) = &mut self.present
            && in_journal
            && (!journal.is_unbooked(record.id) || !present.insert(record.id))
        {
            return;
        }
        if !in_journal {
            self.not_in_journal.insert(record.id);
        }
        self.records.push(record);
    }

    /// Called when the queue is empty. Without a backlog, later records cannot be duplicates of earlier ones.
    pub(super) const fn queue_is_empty(&mut self) {
        self.duplicates_end = self.backlog.is_none();
    }

    /// Adds records from the backlog until the batch is full or the backlog ends. Returns how many parts of the journal could
    /// not be read.
    pub(super) fn take_backlog(&mut self) -> usize {
        let mut unread = 0;
        while self.remaining() > 0
            && let Some(records) = &mut self.backlog
        {
            match records.next() {
                Some(Ok(record)) => {
                    if self.present.get_or_insert_default().insert(record.id) {
                        self.records.push(record);
                    }
                }
                Some(Err(fault)) => {
                    tracing::error!(%fault, "a part of the journal cannot be read");
                    unread += 1;
                }
                None => self.backlog = None,
            }
        }
        unread
    }

    /// Removes the first records, which are written.
    pub(super) fn remove_first(&mut self, count: usize) {
        if count < self.records.len() {
            let left: Vec<RequestId> = self.records[count..].iter().map(|record| record.id).collect();
            self.keep(&left);
            return;
        }
        self.records.clear();
        // A large batch follows an outage or a time of more requests than the database can book, and is rare.
        self.records.shrink_to(BATCH_SIZE);
        self.not_in_journal.clear();
        match &mut self.present {
            Some(present) if !self.duplicates_end => present.clear(),
            present => *present = None,
        }
    }

    /// Keeps only these records, which are not written yet.
    pub(super) fn keep(&mut self, left: &[RequestId]) {
        let left: HashSet<RequestId> = left.iter().copied().collect();
        self.records.retain(|record| left.contains(&record.id));
        self.not_in_journal.retain(|id| left.contains(id));
        if let Some(present) = &mut self.present {
            present.retain(|id| left.contains(id));
        }
    }

    pub(super) fn not_in_journal(&self) -> Vec<UsageRecord> {
        self.records.iter().filter(|record| self.not_in_journal.contains(&record.id)).cloned().collect()
    }
}
