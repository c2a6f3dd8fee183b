//! The queue of usage records on their way to the database.
//!
//! Bound: 16,384 records. A record that finds no space and is in the journal is read back from there later.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::mpsc::{self, OwnedPermit};
use tollgate_core::UsageRecord;

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

/// A record in the queue.
#[derive(Debug)]
pub(crate) struct QueuedRecord {
    pub(crate) record: UsageRecord,
    /// Whether the journal has the record too.
    pub(crate) in_journal: bool,
}

/// Space for one record.
#[derive(Debug)]
pub(crate) struct QueuePermit(OwnedPermit<QueuedRecord>);

impl UsageQueue {
    /// A queue and its receiving end.
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

    /// Queues a record. `in_journal`: the journal has it, so it may be left out when the queue is full. Returns whether
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
