//! One core's writer: every entry is one write(2). When the disk is full or the journal at its bound, entries wait
//! in memory, within a bound of their own.

use std::sync::Arc;

use tollgate_core::{Begin, Progress, RequestId, UsageRecord};

use super::{
    JournalError, JournalSync, Shared,
    entry::{encode_begin, encode_end},
    flusher::{SyncTicket, Urgency},
    frame::{self, EntryKind},
    lane::Lane,
    pen::{Bound, Hand, Placed},
};

/// Appends the entries of one core. Dropping it closes its segment; what still waits in memory stays with the journal.
#[derive(Debug)]
pub struct JournalWriter {
    shared: Arc<Shared>,
    lane: Arc<Lane>,
}

impl JournalWriter {
    pub(super) const fn new(shared: Arc<Shared>, lane: Arc<Lane>) -> Self {
        Self { shared, lane }
    }

    fn hand(&self) -> Hand<'_> {
        Hand::of(&self.shared, &self.lane, Bound::Kept)
    }

    /// Writes that an attempt begins; before its first byte goes upstream.
    ///
    /// # Errors
    /// When neither disk nor memory has room.
    pub fn begin(&self, begin: &Begin) -> Result<(), JournalError> {
        let mut hand = self.hand();
        encode_begin(begin, hand.frame())?;
        hand.put(begin.id, EntryKind::Begin).map(|_| ())
    }

    /// Writes what reached the caller so far.
    ///
    /// # Errors
    /// When neither disk nor memory has room.
    pub fn progress(&self, progress: &Progress) -> Result<(), JournalError> {
        let mut hand = self.hand();
        frame::encode(EntryKind::Progress, progress, hand.frame())?;
        hand.put(progress.id, EntryKind::Progress).map(|_| ())
    }

    /// Writes a request's end; before its last bytes go to the caller. In group mode the ticket ends with the flush.
    ///
    /// # Errors
    /// When neither disk nor memory has room.
    pub fn end(&self, record: &UsageRecord) -> Result<SyncTicket, JournalError> {
        let mut hand = self.hand();
        encode_end(record, hand.frame())?;
        match (hand.put(record.id, EntryKind::End)?, self.shared.sync, hand.segment()) {
            (Placed::OnDisk, JournalSync::Group, Some(file)) => {
                let ticket = file.ticket();
                self.shared.flush.wrote(file, Urgency::Now);
                Ok(ticket)
            }
            (Placed::OnDisk | Placed::InMemory, JournalSync::Background | JournalSync::Group, _) => Ok(SyncTicket::ready()),
        }
    }

    /// The end of this request was refused and nobody else has it: its other entries are not waited for any more, or
    /// their segment would never go.
    pub fn abandon(&self, id: RequestId) {
        self.lane.booked(&[id]);
        self.shared.prune(&self.lane);
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
        self.lane.release();
        self.shared.prune(&self.lane);
    }
}
