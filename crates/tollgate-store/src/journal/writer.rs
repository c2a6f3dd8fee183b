//! The writer of one core. Every entry is one write(2); when the disk is full or the journal at its size limit, entries are
//! buffered in memory, within a limit of their own.

use std::sync::Arc;

use tollgate_core::{AttemptStart, RequestId, StreamProgress, UsageRecord};

use super::{
    entry::{encode_begin, encode_end},
    error::JournalError,
    flusher::{FlushPriority, SyncWaiter},
    frame::{self, EntryKind},
    options::JournalSync,
    shard::JournalShard,
    state::JournalState,
    writer_guard::{SizeLimit, WriteTarget, WriterGuard},
};

/// Appends the entries of one core. Dropping it closes its segment; entries still buffered in memory stay with the journal.
#[derive(Debug)]
pub struct JournalWriter {
    state: Arc<JournalState>,
    shard: Arc<JournalShard>,
}

impl JournalWriter {
    pub(super) const fn new(state: Arc<JournalState>, shard: Arc<JournalShard>) -> Self {
        Self { state, shard }
    }

    fn lock(&self) -> WriterGuard<'_> {
        WriterGuard::lock(&self.state, &self.shard, SizeLimit::Enforced)
    }

    /// Appends the begin of an attempt; call it before the first byte goes upstream.
    pub fn begin(&self, begin: &AttemptStart) -> Result<(), JournalError> {
        let mut guard = self.lock();
        encode_begin(begin, guard.frame())?;
        guard.append(begin.id, EntryKind::Begin).map(|_| ())
    }

    /// Appends how much of the answer has reached the caller.
    pub fn progress(&self, progress: &StreamProgress) -> Result<(), JournalError> {
        let mut guard = self.lock();
        frame::encode(EntryKind::Progress, progress, guard.frame())?;
        guard.append(progress.id, EntryKind::Progress).map(|_| ())
    }

    /// Appends the end of a request; call it before the last bytes go to the caller. With [`JournalSync::Group`] the
    /// returned waiter completes with the flush that covers the entry, otherwise at once.
    pub fn end(&self, record: &UsageRecord) -> Result<SyncWaiter, JournalError> {
        let mut guard = self.lock();
        encode_end(record, guard.frame())?;
        match (guard.append(record.id, EntryKind::End)?, self.state.sync, guard.segment()) {
            (WriteTarget::Disk, JournalSync::Group, Some(file)) => {
                let waiter = file.waiter();
                self.state.flush.mark_dirty(file, FlushPriority::Urgent);
                Ok(waiter)
            }
            (WriteTarget::Disk | WriteTarget::Memory, JournalSync::Background | JournalSync::Group, _) => Ok(SyncWaiter::ready()),
        }
    }

    /// Gives up on a request whose end could not be written and is held nowhere else, so that its earlier entries do not
    /// keep their segment forever.
    pub fn abandon(&self, id: RequestId) {
        self.shard.mark_booked(&[id]);
        self.state.prune(&self.shard);
    }

    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.lock().pending_bytes()
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        let mut guard = self.lock();
        guard.write_pending(usize::MAX);
        guard.close();
        drop(guard);
        self.shard.release_writer();
        self.state.prune(&self.shard);
    }
}
