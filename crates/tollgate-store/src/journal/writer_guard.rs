//! Exclusive access to the write state of a shard: appending, rotating segments, and buffering entries in memory.

use std::{
    fs::OpenOptions,
    io,
    sync::{Arc, MutexGuard, atomic::Ordering},
};

use tollgate_core::RequestId;

use super::{
    append::{AppendError, TailState, append},
    error::JournalError,
    flusher::{FlushPriority, SegmentFile},
    frame::EntryKind,
    segment::{HEADER_LENGTH, header},
    segment_writer::{OpenSegment, PendingFrame, SegmentWriter},
    shard::JournalShard,
    state::JournalState,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteTarget {
    Disk,
    Memory,
}

/// Whether [`JournalState::max_bytes`] applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SizeLimit {
    Enforced,
    /// For entries that would be lost otherwise.
    Ignored,
}

#[derive(Debug)]
enum WriteFailure {
    SizeLimit,
    Disk(io::Error),
}

#[derive(Debug)]
pub(super) struct WriterGuard<'a> {
    state: &'a JournalState,
    shard: &'a JournalShard,
    writer: MutexGuard<'a, SegmentWriter>,
    limit: SizeLimit,
}

impl<'a> WriterGuard<'a> {
    pub(super) fn lock(state: &'a JournalState, shard: &'a JournalShard, limit: SizeLimit) -> Self {
        Self { state, shard, writer: shard.segment_writer(), limit }
    }

    /// The buffer to encode a frame into before it is appended.
    pub(super) fn frame(&mut self) -> &mut Vec<u8> {
        &mut self.writer.frame
    }

    pub(super) fn segment(&self) -> Option<&Arc<SegmentFile>> {
        self.writer.segment.as_ref().map(|open| &open.file)
    }

    pub(super) fn pending_bytes(&self) -> u64 {
        self.writer.pending.iter().map(|pending| pending.frame.len() as u64).sum()
    }

    /// Appends the encoded frame to the segment, or to the memory buffer when earlier entries are still there or the
    /// segment cannot be written.
    pub(super) fn append(&mut self, id: RequestId, kind: EntryKind) -> Result<WriteTarget, JournalError> {
        let frame = std::mem::take(&mut self.writer.frame);
        let result = match self.write_all_pending().and_then(|()| self.write(id, &frame)) {
            Ok(()) => Ok(WriteTarget::Disk),
            Err(failure) => self.enqueue(id, kind, &frame, failure).map(|()| WriteTarget::Memory),
        };
        self.writer.frame = frame;
        result
    }

    /// Appends the encoded frame to the segment and flushes it to disk.
    pub(super) fn append_durably(&mut self, id: RequestId) -> Result<(), JournalError> {
        let frame = std::mem::take(&mut self.writer.frame);
        let written = self.write(id, &frame);
        self.writer.frame = frame;
        written.map_err(|failure| self.write_error(failure))?;
        let Some(open) = &self.writer.segment else { return Ok(()) };
        open.file.file.sync_data().map_err(|source| JournalError::file("flush", &open.file.path, source))
    }

    pub(super) fn close(&mut self) {
        self.writer.segment = None;
    }

    /// Writes up to `limit` buffered entries, oldest first. Returns false when there is nothing more to do: the buffer is
    /// empty, or the next entry cannot be written.
    pub(super) fn write_pending(&mut self, limit: usize) -> bool {
        for _ in 0..limit {
            if !self.writer.has_pending() || self.write_oldest_pending().is_err() {
                return false;
            }
        }
        self.writer.has_pending()
    }

    fn write_all_pending(&mut self) -> Result<(), WriteFailure> {
        while self.writer.has_pending() {
            self.write_oldest_pending()?;
        }
        Ok(())
    }

    /// Writes the oldest buffered entry, or drops it if its request has been booked from memory.
    fn write_oldest_pending(&mut self) -> Result<(), WriteFailure> {
        let Some(pending) = self.writer.pending.pop_front() else { return Ok(()) };
        if self.shard.is_needed(pending.id)
            && let Err(failure) = self.write(pending.id, &pending.frame)
        {
            self.writer.pending.push_front(pending);
            return Err(failure);
        }
        self.state.pending_bytes.fetch_sub(pending.frame.len() as u64, Ordering::AcqRel);
        self.shard.remove_pending(pending.id);
        Ok(())
    }

    fn enqueue(&mut self, id: RequestId, kind: EntryKind, frame: &[u8], failure: WriteFailure) -> Result<(), JournalError> {
        let size = frame.len() as u64;
        if self.state.pending_bytes.fetch_add(size, Ordering::AcqRel) + size > self.state.memory_bytes {
            self.state.pending_bytes.fetch_sub(size, Ordering::AcqRel);
            return Err(self.write_error(failure));
        }
        if !self.writer.has_pending() {
            let why = match failure {
                WriteFailure::SizeLimit => format!("the journal is at its limit of {} bytes", self.state.max_bytes),
                WriteFailure::Disk(error) => error.to_string(),
            };
            tracing::error!(%why, "the journal cannot be written; entries are buffered in memory");
        }
        self.shard.add_pending(id);
        self.writer.pending.push_back(PendingFrame { id, kind, frame: frame.into() });
        Ok(())
    }

    fn write_error(&self, failure: WriteFailure) -> JournalError {
        match failure {
            WriteFailure::SizeLimit => JournalError::Full { bytes: self.state.bytes.load(Ordering::Acquire) },
            WriteFailure::Disk(source) => JournalError::file("write to the journal in", &self.state.dir, source),
        }
    }

    fn exceeds_limit(&self, size: u64) -> bool {
        self.limit == SizeLimit::Enforced && self.state.bytes.load(Ordering::Acquire) + size > self.state.max_bytes
    }

    fn write(&mut self, id: RequestId, frame: &[u8]) -> Result<(), WriteFailure> {
        let size = frame.len() as u64;
        if self.exceeds_limit(size) {
            if self.shard.close_if_booked() {
                self.writer.segment = None;
                self.state.prune(self.shard);
            }
            if self.exceeds_limit(size) {
                return Err(WriteFailure::SizeLimit);
            }
        }
        let full = |open: &OpenSegment| open.bytes + size > self.state.segment_bytes && open.bytes > HEADER_LENGTH as u64;
        if self.writer.segment.as_ref().is_none_or(full) {
            self.rotate().map_err(WriteFailure::Disk)?;
        }
        let open = self.writer.segment.as_mut().expect("rotate() opened a segment");
        self.shard.record_entry(id, open.seq);
        match append(&mut &open.file.file, frame, open.bytes) {
            Ok(()) => {
                open.bytes += size;
                self.state.flush.mark_dirty(&open.file, FlushPriority::Background);
                self.state.bytes.fetch_add(size, Ordering::AcqRel);
                Ok(())
            }
            Err(AppendError { error, tail }) => {
                if tail == TailState::Dirty {
                    // The partial frame reads as a torn tail only as long as nothing follows it.
                    self.writer.segment = None;
                }
                Err(WriteFailure::Disk(error))
            }
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.writer.segment = None;
        let name = self.shard.open_next();
        let path = name.path(&self.state.dir);
        let opened = OpenOptions::new().append(true).create_new(true).open(&path).and_then(|file| {
            append(&mut &file, &header(self.state.node), 0).map_err(|failed| failed.error)?;
            Ok(file)
        });
        match opened {
            Ok(file) => {
                self.state.bytes.fetch_add(HEADER_LENGTH as u64, Ordering::AcqRel);
                let file = Arc::new(SegmentFile::new(file, path));
                self.writer.segment = Some(OpenSegment { file, seq: name.seq, bytes: HEADER_LENGTH as u64 });
                Ok(())
            }
            Err(error) => {
                self.shard.remove_segment(name.seq);
                // Best effort: the next start treats a segment without a whole header as a torn tail.
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }
}
