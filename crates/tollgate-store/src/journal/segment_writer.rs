//! What writes a core's segments, and what waits in memory where neither disk nor bound has room. It stays with the core
//! when its writer goes, so that whoever books can take from memory what never reached the disk.

use std::{
    collections::VecDeque,
    fs::OpenOptions,
    io,
    sync::{Arc, MutexGuard, atomic::Ordering},
};

use tollgate_core::RequestId;

use super::{
    JournalError, JournalInner,
    append::{AppendError, TailState, append},
    flusher::{FlushPriority, SegmentFile},
    frame::EntryKind,
    segment::{HEADER, header},
    shard::JournalShard,
};

/// The open segment of a core and what waits to be written.
#[derive(Debug, Default)]
pub(super) struct SegmentWriter {
    segment: Option<OpenSegment>,
    frame: Vec<u8>,
    /// Entries that found no room on disk, oldest first.
    held: VecDeque<PendingFrame>,
}

#[derive(Debug)]
struct OpenSegment {
    file: Arc<SegmentFile>,
    seq: u32,
    bytes: u64,
}

#[derive(Debug)]
struct PendingFrame {
    id: RequestId,
    kind: EntryKind,
    frame: Arc<[u8]>,
}

impl SegmentWriter {
    /// The ends that wait in memory, as frames.
    pub(super) fn held_ends(&self) -> impl Iterator<Item = (RequestId, Arc<[u8]>)> {
        let ends = self.held.iter().filter(|held| held.kind == EntryKind::End);
        ends.map(|held| (held.id, Arc::clone(&held.frame)))
    }

    /// Whether anything waits in memory.
    pub(super) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteTarget {
    OnDisk,
    InMemory,
}

/// Whether the bound of the journal counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SizeLimit {
    /// As always.
    Enforced,
    /// What would be lost otherwise is written above it.
    Ignored,
}

/// Why a frame is not on disk.
#[derive(Debug)]
enum WriteFailure {
    /// The journal is at its bound.
    SizeLimit,
    /// The system's answer.
    Disk(io::Error),
}

/// A core's writer while somebody has it.
#[derive(Debug)]
pub(super) struct WriterGuard<'a> {
    shared: &'a JournalInner,
    shard: &'a JournalShard,
    segment_writer: MutexGuard<'a, SegmentWriter>,
    bound: SizeLimit,
}

impl<'a> WriterGuard<'a> {
    pub(super) fn of(shared: &'a JournalInner, shard: &'a JournalShard, bound: SizeLimit) -> Self {
        Self { shared, shard, segment_writer: shard.segment_writer(), bound }
    }

    /// Where a frame is encoded before it is put.
    pub(super) fn frame(&mut self) -> &mut Vec<u8> {
        &mut self.segment_writer.frame
    }

    /// The file being written.
    pub(super) fn segment(&self) -> Option<&Arc<SegmentFile>> {
        self.segment_writer.segment.as_ref().map(|open| &open.file)
    }

    /// Bytes that wait in memory.
    pub(super) fn held_bytes(&self) -> u64 {
        self.segment_writer.held.iter().map(|held| held.frame.len() as u64).sum()
    }

    /// Puts the encoded frame on disk, or into memory behind those that wait already.
    pub(super) fn put(&mut self, id: RequestId, kind: EntryKind) -> Result<WriteTarget, JournalError> {
        let frame = std::mem::take(&mut self.segment_writer.frame);
        let result = match self.write_all_held().and_then(|()| self.write(id, &frame)) {
            Ok(()) => Ok(WriteTarget::OnDisk),
            Err(no_room) => self.hold(id, kind, &frame, no_room).map(|()| WriteTarget::InMemory),
        };
        self.segment_writer.frame = frame;
        result
    }

    /// Puts the encoded frame on disk, and makes it survive a power cut.
    pub(super) fn put_for_good(&mut self, id: RequestId) -> Result<(), JournalError> {
        let frame = std::mem::take(&mut self.segment_writer.frame);
        let written = self.write(id, &frame);
        self.segment_writer.frame = frame;
        written.map_err(|no_room| self.refused(no_room))?;
        let Some(open) = &self.segment_writer.segment else { return Ok(()) };
        open.file.file.sync_data().map_err(|source| JournalError::file("flush", &open.file.path, source))
    }

    /// Closes the segment.
    pub(super) fn close(&mut self) {
        self.segment_writer.segment = None;
    }

    /// Writes up to so many of the entries that wait in memory, oldest first; `false` when there is no more to do, for want
    /// of room or of entries.
    pub(super) fn write_held(&mut self, most: usize) -> bool {
        for _ in 0..most {
            if !self.segment_writer.holds_any() || self.write_one_held().is_err() {
                return false;
            }
        }
        self.segment_writer.holds_any()
    }

    fn write_all_held(&mut self) -> Result<(), WriteFailure> {
        while self.segment_writer.holds_any() {
            self.write_one_held()?;
        }
        Ok(())
    }

    /// Writes the oldest entry in memory, or passes it over when it was booked meanwhile.
    fn write_one_held(&mut self) -> Result<(), WriteFailure> {
        let Some(held) = self.segment_writer.held.pop_front() else { return Ok(()) };
        if self.shard.still_needed(held.id)
            && let Err(error) = self.write(held.id, &held.frame)
        {
            self.segment_writer.held.push_front(held);
            return Err(error);
        }
        self.shared.held.fetch_sub(held.frame.len() as u64, Ordering::AcqRel);
        self.shard.let_go(held.id);
        Ok(())
    }

    fn hold(&mut self, id: RequestId, kind: EntryKind, frame: &[u8], why: WriteFailure) -> Result<(), JournalError> {
        let size = frame.len() as u64;
        if self.shared.held.fetch_add(size, Ordering::AcqRel) + size > self.shared.memory_bytes {
            self.shared.held.fetch_sub(size, Ordering::AcqRel);
            return Err(self.refused(why));
        }
        if self.segment_writer.held.is_empty() {
            let why = match why {
                WriteFailure::SizeLimit => format!("the journal is at its bound of {} bytes", self.shared.max_bytes),
                WriteFailure::Disk(error) => error.to_string(),
            };
            tracing::error!(%why, "the journal cannot be written; entries wait in memory");
        }
        self.shard.hold(id);
        self.segment_writer.held.push_back(PendingFrame { id, kind, frame: frame.into() });
        Ok(())
    }

    fn refused(&self, why: WriteFailure) -> JournalError {
        match why {
            WriteFailure::SizeLimit => JournalError::Full { bytes: self.shared.bytes.load(Ordering::Acquire) },
            WriteFailure::Disk(source) => JournalError::file("write to the journal in", &self.shared.dir, source),
        }
    }

    fn is_at_bound(&self, size: u64) -> bool {
        self.bound == SizeLimit::Enforced && self.shared.bytes.load(Ordering::Acquire) + size > self.shared.max_bytes
    }

    fn write(&mut self, id: RequestId, frame: &[u8]) -> Result<(), WriteFailure> {
        let size = frame.len() as u64;
        if self.is_at_bound(size) {
            if self.shard.close_if_booked() {
                self.segment_writer.segment = None;
                self.shared.prune(self.shard);
            }
            if self.is_at_bound(size) {
                return Err(WriteFailure::SizeLimit);
            }
        }
        let full = |open: &OpenSegment| open.bytes + size > self.shared.segment_bytes && open.bytes > HEADER as u64;
        if self.segment_writer.segment.as_ref().is_none_or(full) {
            self.roll().map_err(WriteFailure::Disk)?;
        }
        let open = self.segment_writer.segment.as_mut().expect("it was opened above");
        self.shard.note(id, open.seq);
        match append(&mut &open.file.file, frame, open.bytes) {
            Ok(()) => {
                open.bytes += size;
                self.shared.flush.wrote(&open.file, FlushPriority::Soon);
                self.shared.bytes.fetch_add(size, Ordering::AcqRel);
                Ok(())
            }
            Err(AppendError { error, tail }) => {
                if tail == TailState::Dirty {
                    // What stands there reads as a torn tail; nothing may be written behind it.
                    self.segment_writer.segment = None;
                }
                Err(WriteFailure::Disk(error))
            }
        }
    }

    /// Closes the segment and opens the next one.
    fn roll(&mut self) -> io::Result<()> {
        self.segment_writer.segment = None;
        let name = self.shard.open_next();
        let path = name.path(&self.shared.dir);
        let opened = OpenOptions::new().append(true).create_new(true).open(&path).and_then(|file| {
            append(&mut &file, &header(self.shared.node), 0).map_err(|unwritten| unwritten.error)?;
            Ok(file)
        });
        match opened {
            Ok(file) => {
                self.shared.bytes.fetch_add(HEADER as u64, Ordering::AcqRel);
                let file = Arc::new(SegmentFile::new(file, path));
                self.segment_writer.segment = Some(OpenSegment { file, seq: name.seq, bytes: HEADER as u64 });
                Ok(())
            }
            Err(error) => {
                self.shard.forget(name.seq);
                // A segment without a whole header reads as a torn tail at the next start; usually it can go now.
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }
}
