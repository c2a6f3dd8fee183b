//! The writer of one core. Entries are collected and written together with one write(2), before any bytes are sent that must
//! follow them. When the disk is full or the journal is at its size limit, entries are buffered in memory, up to a separate limit.

use std::{
    fs::OpenOptions,
    io,
    sync::{Arc, MutexGuard, atomic::Ordering},
};

use tollgate_core::{AttemptStart, RequestId, StreamProgress, UsageRecord};

use super::{
    append::{AppendError, TailState, append},
    error::JournalError,
    flusher::{FlushPriority, JournalSync, SegmentFile, SyncWaiter},
    frame::{self, EntryKind, encode_begin, encode_end},
    segment::{ClosingMark, HEADER_LENGTH, header},
    shard::{CollectedFrames, JournalShard, JournalState, OpenSegment, PendingFrame, SegmentWriter},
};

/// Collected frames are written once they have this size, even if no byte waits for them.
const MAX_COLLECTED: usize = 64 * 1024;

/// Appends the entries of one core. An entry is in the journal once [`JournalWriter::write_collected`] was called after it. Dropping the
/// writer closes its segment; entries still buffered in memory stay with the journal.
#[derive(Debug)]
pub struct JournalWriter {
    state: Arc<JournalState>,
    pub(super) shard: Arc<JournalShard>,
}

impl JournalWriter {
    pub(super) const fn new(state: Arc<JournalState>, shard: Arc<JournalShard>) -> Self {
        Self { state, shard }
    }

    fn lock(&self) -> WriterGuard<'_> {
        WriterGuard::lock(&self.state, &self.shard, SizeLimit::Enforced)
    }

    /// Appends the begin of an attempt. It must be written before the first byte goes upstream.
    pub fn begin(&self, begin: &AttemptStart<'_>) -> Result<(), JournalError> {
        let mut guard = self.lock();
        let (frames, start) = guard.collected();
        encode_begin(begin, frames)?;
        guard.collect(begin.id, EntryKind::Begin, start).map(|_| ())
    }

    /// Appends how much of the answer has reached the caller.
    pub fn progress(&self, progress: &StreamProgress) -> Result<(), JournalError> {
        let mut guard = self.lock();
        let (frames, start) = guard.collected();
        frame::encode(EntryKind::Progress, progress, frames)?;
        guard.collect(progress.id, EntryKind::Progress, start).map(|_| ())
    }

    /// Appends the end of a request. It must be written before the last bytes go to the caller. With [`JournalSync::Group`] it is
    /// written now, and the returned waiter completes with the flush that covers it; otherwise the waiter is ready.
    pub fn end(&self, record: &UsageRecord) -> Result<SyncWaiter, JournalError> {
        let mut guard = self.lock();
        let (frames, start) = guard.collected();
        encode_end(record, frames)?;
        let mut target = guard.collect(record.id, EntryKind::End, start)?;
        if self.state.sync == JournalSync::Background {
            return Ok(SyncWaiter::ready());
        }
        if !guard.write_collected() {
            target = WriteTarget::Memory;
        }
        match (target, guard.segment()) {
            (WriteTarget::Disk, Some(file)) => {
                let waiter = file.waiter();
                self.state.flush.mark_dirty(file, FlushPriority::Urgent);
                Ok(waiter)
            }
            (WriteTarget::Disk | WriteTarget::Memory, _) => Ok(SyncWaiter::ready()),
        }
    }

    /// Whether entries were appended that are not written yet.
    #[must_use]
    pub fn has_collected(&self) -> bool {
        self.shard.has_collected()
    }

    /// Writes the entries that were appended since the last call. `false` if they cannot be written and are buffered in memory.
    pub fn write_collected(&self) -> bool {
        !self.has_collected() || self.lock().write_collected()
    }

    /// Gives up on a request whose end could not be written and is not buffered either, so that its earlier entries do
    /// not keep their segment alive forever.
    pub fn abandon(&self, id: RequestId) {
        self.shard.mark_booked(&[id]);
        self.state.prune(&self.shard);
    }

    /// True while entries of any core are in memory because they could not be written.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.state.pending_bytes.load(Ordering::Acquire) > 0
    }

    pub fn pending_bytes(&self) -> u64 {
        self.lock().pending_bytes()
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        let mut guard = self.lock();
        guard.write_collected();
        guard.write_pending(usize::MAX);
        guard.close();
        drop(guard);
        self.shard.release_writer();
        self.state.prune(&self.shard);
    }
}

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

    /// The buffer that frames are collected in, and its length. To add a frame, encode it at the end and call
    /// [`Self::collect`].
    fn collected(&mut self) -> (&mut Vec<u8>, usize) {
        let CollectedFrames { bytes, frames } = &mut self.writer.collected;
        let end = frames.last().map_or(0, |(_, _, end)| *end);
        // Drops the part of a frame that a panic left behind.
        bytes.truncate(end);
        (bytes, end)
    }

    pub(super) fn segment(&self) -> Option<&Arc<SegmentFile>> {
        self.writer.segment.as_ref().map(|open| &open.file)
    }

    pub(super) fn pending_bytes(&self) -> u64 {
        self.writer.pending.iter().map(|pending| pending.frame.len() as u64).sum()
    }

    /// Takes the frame that begins at `start` of the collected bytes. If the segment is full or cannot be written, or earlier entries
    /// are still in memory, the frame cannot wait and is appended now.
    fn collect(&mut self, id: RequestId, kind: EntryKind, start: usize) -> Result<WriteTarget, JournalError> {
        let end = self.writer.collected.bytes.len();
        let size = (end - start) as u64;
        if self.may_collect(size)
            && let Some(open) = &mut self.writer.segment
        {
            self.shard.record_entry(id, open.seq);
            open.bytes += size;
            open.entries += 1;
            self.state.bytes.fetch_add(size, Ordering::AcqRel);
            self.writer.collected.frames.push((id, kind, end));
            self.shard.set_collected(true);
            if end >= MAX_COLLECTED {
                self.write_collected();
            }
            return Ok(WriteTarget::Disk);
        }
        let frame = self.writer.collected.bytes.split_off(start);
        self.write_collected();
        self.append(id, kind, &frame)
    }

    /// Whether a frame of this size may wait to be written with others.
    fn may_collect(&self, size: u64) -> bool {
        !self.writer.has_pending()
            && !self.is_paused()
            && !self.exceeds_limit(size)
            && self.writer.segment.as_ref().is_some_and(|open| !open.is_full(size, self.state.segment_bytes))
    }

    /// Writes the collected frames. `false` if that failed: they are then buffered in memory, which may exceed its limit by
    /// [`MAX_COLLECTED`] and an entry for each core.
    pub(super) fn write_collected(&mut self) -> bool {
        if self.writer.collected.frames.is_empty() {
            return true;
        }
        let mut collected = std::mem::take(&mut self.writer.collected);
        let is_written = match self.write_frames(&collected) {
            Ok(()) => true,
            Err(error) => {
                self.report_buffering(&WriteFailure::Disk(error));
                let mut start = 0;
                for (id, kind, end) in &collected.frames {
                    let frame = &collected.bytes[start..*end];
                    start = *end;
                    if self.shard.add_pending_if_unbooked(*id) {
                        self.state.pending_bytes.fetch_add(frame.len() as u64, Ordering::AcqRel);
                        self.writer.pending.push_back(PendingFrame { id: *id, kind: *kind, frame: frame.into() });
                    }
                }
                false
            }
        };
        collected.clear();
        self.writer.collected = collected;
        // Only after the write, because a connection that reads `false` without the lock sends immediately.
        self.shard.set_collected(false);
        is_written
    }

    fn write_frames(&mut self, collected: &CollectedFrames) -> io::Result<()> {
        let open = self.writer.segment.as_mut().expect("frames are collected for the open segment");
        let size = collected.bytes.len() as u64;
        let Err(AppendError { error, tail }) = append(&mut &open.file.file, &collected.bytes, open.bytes - size) else {
            self.state.flush.mark_dirty(&open.file, FlushPriority::Background);
            return Ok(());
        };
        open.bytes -= size;
        open.entries -= u32::try_from(collected.frames.len()).expect("the bytes of frames are few");
        self.state.bytes.fetch_sub(size, Ordering::AcqRel);
        if tail == TailState::Dirty {
            self.close();
        }
        Err(error)
    }

    /// Appends a frame to the segment, or to the memory buffer when earlier entries are still there or the segment cannot be written.
    fn append(&mut self, id: RequestId, kind: EntryKind, frame: &[u8]) -> Result<WriteTarget, JournalError> {
        match self.write_all_pending().and_then(|()| self.write(id, frame)) {
            Ok(()) => Ok(WriteTarget::Disk),
            Err(failure) => self.enqueue(id, kind, frame, failure).map(|()| WriteTarget::Memory),
        }
    }

    /// Appends a frame to the segment and flushes it to disk.
    pub(super) fn append_durably(&mut self, id: RequestId, frame: &[u8]) -> Result<(), JournalError> {
        self.write(id, frame).map_err(|failure| self.write_error(failure))?;
        let Some(open) = &self.writer.segment else { return Ok(()) };
        open.file.file.sync_data().map_err(|source| JournalError::file("flush", &open.file.path, source))
    }

    /// Closes the segment and marks its end. What was collected for it must be written.
    pub(super) fn close(&mut self) {
        debug_assert!(self.writer.collected.frames.is_empty(), "frames without a segment");
        let Some(OpenSegment { file, bytes, entries, .. }) = self.writer.segment.take() else { return };
        match (ClosingMark { length: bytes, entries }).write(&file.path) {
            Ok(()) => self.state.flush.mark_dirty(&file, FlushPriority::Background),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %file.path.display(), %error, "the end of a journal segment was not marked");
            }
        }
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
        self.report_buffering(&failure);
        self.shard.add_pending(id);
        self.writer.pending.push_back(PendingFrame { id, kind, frame: frame.into() });
        Ok(())
    }

    /// Reports the first of the entries that are buffered because they cannot be written.
    fn report_buffering(&self, failure: &WriteFailure) {
        if !self.writer.has_pending() {
            let why = match failure {
                WriteFailure::SizeLimit => format!("the journal is at its limit of {} bytes", self.state.max_bytes()),
                WriteFailure::Disk(error) => error.to_string(),
            };
            tracing::error!(%why, "the journal cannot be written; entries are buffered in memory");
        }
    }

    fn write_error(&self, failure: WriteFailure) -> JournalError {
        match failure {
            WriteFailure::SizeLimit => JournalError::Full { bytes: self.state.bytes.load(Ordering::Acquire) },
            WriteFailure::Disk(source) => JournalError::file("write to the journal in", &self.state.dir, source),
        }
    }

    fn exceeds_limit(&self, size: u64) -> bool {
        self.limit == SizeLimit::Enforced && self.state.bytes.load(Ordering::Acquire) + size > self.state.max_bytes()
    }

    /// Whether entries are to be kept in memory.
    fn is_paused(&self) -> bool {
        self.limit == SizeLimit::Enforced && self.state.is_paused.load(Ordering::Acquire)
    }

    fn write(&mut self, id: RequestId, frame: &[u8]) -> Result<(), WriteFailure> {
        let size = frame.len() as u64;
        if self.is_paused() {
            return Err(WriteFailure::Disk(io::ErrorKind::StorageFull.into()));
        }
        if self.exceeds_limit(size) {
            if self.shard.close_if_booked() {
                self.writer.segment = None;
                self.state.prune(self.shard);
            }
            if self.exceeds_limit(size) {
                return Err(WriteFailure::SizeLimit);
            }
        }
        if self.writer.segment.as_ref().is_none_or(|open| open.is_full(size, self.state.segment_bytes)) {
            self.rotate().map_err(WriteFailure::Disk)?;
        }
        let open = self.writer.segment.as_mut().expect("rotate() opened a segment");
        self.shard.record_entry(id, open.seq);
        match append(&mut &open.file.file, frame, open.bytes) {
            Ok(()) => {
                open.bytes += size;
                open.entries += 1;
                self.state.flush.mark_dirty(&open.file, FlushPriority::Background);
                self.state.bytes.fetch_add(size, Ordering::AcqRel);
                Ok(())
            }
            Err(AppendError { error, tail }) => {
                if tail == TailState::Dirty {
                    // The partial frame reads as a torn tail only as long as nothing follows it.
                    self.close();
                }
                Err(WriteFailure::Disk(error))
            }
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.close();
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
                self.writer.segment = Some(OpenSegment { file, seq: name.seq, bytes: HEADER_LENGTH as u64, entries: 0 });
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
