//! The write state of a shard: its open segment, and the entries buffered in memory while the disk is full or the journal
//! at its size limit. It belongs to the shard and outlives the [`JournalWriter`](super::JournalWriter), so that buffered
//! records can still be booked.

use std::{collections::VecDeque, sync::Arc};

use tollgate_core::RequestId;

use super::{flusher::SegmentFile, frame::EntryKind};

/// The open segment of a shard and the entries still to be written.
#[derive(Debug, Default)]
pub(super) struct SegmentWriter {
    pub(super) segment: Option<OpenSegment>,
    /// Buffer in which frames are encoded.
    pub(super) frame: Vec<u8>,
    pub(super) pending: VecDeque<PendingFrame>,
}

#[derive(Debug)]
pub(super) struct OpenSegment {
    pub(super) file: Arc<SegmentFile>,
    pub(super) seq: u32,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct PendingFrame {
    pub(super) id: RequestId,
    pub(super) kind: EntryKind,
    pub(super) frame: Arc<[u8]>,
}

impl SegmentWriter {
    pub(super) fn pending_ends(&self) -> impl Iterator<Item = (RequestId, Arc<[u8]>)> {
        let ends = self.pending.iter().filter(|pending| pending.kind == EntryKind::End);
        ends.map(|pending| (pending.id, Arc::clone(&pending.frame)))
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}
