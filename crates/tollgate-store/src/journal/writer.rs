//! One core's writer: every entry is one write(2). When the disk is full or the journal at its bound, entries wait
//! in memory, within a bound of their own.

use std::sync::Arc;

use tollgate_core::{AttemptStart, RequestId, StreamProgress, UsageRecord};

use super::{
    JournalError, JournalInner, JournalSync,
    entry::{encode_begin, encode_end},
    flusher::{FlushPriority, SyncWaiter},
    frame::{self, EntryKind},
    segment_writer::{SizeLimit, WriteTarget, WriterGuard},
    shard::JournalShard,
};

/// Appends the entries of one core. Dropping it closes its segment; what still waits in memory stays with the journal.
#[derive(Debug)]
pub struct JournalWriter {
    shared: Arc<JournalInner>,
    shard: Arc<JournalShard>,
}

impl JournalWriter {
    pub(super) const fn new(shared: Arc<JournalInner>, shard: Arc<JournalShard>) -> Self {
        Self { shared, shard }
    }

    fn hand(&self) -> WriterGuard<'_> {
        WriterGuard::of(&self.shared, &self.shard, SizeLimit::Enforced)
    }

    /// Writes that an attempt begins; before its first byte goes upstream.
    ///
    /// # Errors
    /// When neither disk nor memory has room.
    pub fn begin(&self, begin: &AttemptStart) -> Result<(), JournalError> {
        let mut hand = self.hand();
        encode_begin(begin, hand.frame())?;
        hand.put(begin.id, EntryKind::Begin).map(|_| ())
    }

    /// Writes what reached the caller so far.
    ///
    /// # Errors
    /// When neither disk nor memory has room.
    pub fn progress(&self, progress: &StreamProgress) -> Result<(), JournalError> {
        let mut hand = self.hand();
        frame::encode(EntryKind::Progress, progress, hand.frame())?;
        hand.put(progress.id, EntryKind::Progress).map(|_| ())
    }

    /// Writes a request's end; before its last bytes go to the caller. In group mode the ticket ends with the flush.
    ///
    /// # Errors
    /// When neither disk nor memory has room.
    pub fn end(&self, record: &UsageRecord) -> Result<SyncWaiter, JournalError> {
        let mut hand = self.hand();
        encode_end(record, hand.frame())?;
        match (hand.put(record.id, EntryKind::End)?, self.shared.sync, hand.segment()) {
            (WriteTarget::OnDisk, JournalSync::Group, Some(file)) => {
                let ticket = file.ticket();
                self.shared.flush.wrote(file, FlushPriority::Now);
                Ok(ticket)
            }
            (WriteTarget::OnDisk | WriteTarget::InMemory, JournalSync::Background | JournalSync::Group, _) => {
                Ok(SyncWaiter::ready())
            }
        }
    }

    /// The end of this request was refused and nobody else has it: its other entries are not waited for any more, or
    /// their segment would never go.
    pub fn abandon(&self, id: RequestId) {
        self.shard.booked(&[id]);
        self.shared.prune(&self.shard);
    }

    /// Bytes that wait in this writer's memory.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.hand().held_bytes()
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        let mut hand = self.hand();
        hand.write_held(usize::MAX);
        hand.close();
        drop(hand);
        self.shard.release();
        self.shared.prune(&self.shard);
    }
}
