//! One core's writer: every entry is one write(2). When the disk is full or the journal at its bound, entries wait
//! in memory, within a bound of their own.

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, Write},
    sync::{Arc, atomic::Ordering},
};

use tollgate_core::{Begin, Progress, RequestId, UsageRecord};

use super::{
    JournalError, JournalSync, Shared,
    entry::{encode_begin, encode_end},
    flusher::{SegmentFile, SyncTicket, Urgency},
    frame::{self, EntryKind},
    lane::Lane,
    segment::{HEADER, header},
};

/// Appends the entries of one core. Dropping it closes its segment.
#[derive(Debug)]
pub struct JournalWriter {
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    segment: Option<OpenSegment>,
    frame: Vec<u8>,
    /// Entries that found no room on disk, oldest first.
    held: VecDeque<Held>,
}

#[derive(Debug)]
struct OpenSegment {
    file: Arc<SegmentFile>,
    seq: u32,
    bytes: u64,
}

#[derive(Debug)]
struct Held {
    id: RequestId,
    frame: Box<[u8]>,
}

/// Where an entry is.
enum Placed {
    OnDisk,
    InMemory,
}

/// Why a frame is not on disk.
enum NoRoom {
    /// The journal is at its bound.
    Bound,
    /// The system's answer.
    Disk(io::Error),
}

impl JournalWriter {
    pub(super) const fn new(shared: Arc<Shared>, lane: Arc<Lane>) -> Self {
        Self { shared, lane, segment: None, frame: Vec::new(), held: VecDeque::new() }
    }

    /// Writes that an attempt begins; before its first byte goes upstream.
    ///
    /// # Errors
    /// When neither disk nor memory has room.
    pub fn begin(&mut self, begin: &Begin) -> Result<(), JournalError> {
        encode_begin(begin, &mut self.frame)?;
        self.put(begin.id).map(|_| ())
    }

    /// Writes what reached the caller so far.
    ///
    /// # Errors
    /// When neither disk nor memory has room.
    pub fn progress(&mut self, progress: &Progress) -> Result<(), JournalError> {
        frame::encode(EntryKind::Progress, progress, &mut self.frame)?;
        self.put(progress.id).map(|_| ())
    }

    /// Writes a request's end; before its last bytes go to the caller. In group mode the ticket ends with the flush.
    ///
    /// # Errors
    /// When neither disk nor memory has room.
    pub fn end(&mut self, record: &UsageRecord) -> Result<SyncTicket, JournalError> {
        encode_end(record, &mut self.frame)?;
        match (self.put(record.id)?, self.shared.sync, &self.segment) {
            (Placed::OnDisk, JournalSync::Group, Some(segment)) => {
                let ticket = segment.file.ticket();
                self.shared.flush.wrote(&segment.file, Urgency::Now);
                Ok(ticket)
            }
            (Placed::OnDisk | Placed::InMemory, JournalSync::Background | JournalSync::Group, _) => Ok(SyncTicket::ready()),
        }
    }

    /// Bytes that wait in this writer's memory.
    pub fn held_bytes(&self) -> u64 {
        self.held.iter().map(|held| held.frame.len() as u64).sum()
    }

    /// Puts the encoded frame on disk, or into memory behind those that wait already.
    fn put(&mut self, id: RequestId) -> Result<Placed, JournalError> {
        let frame = std::mem::take(&mut self.frame);
        let result = match self.write_held().and_then(|()| self.write(id, &frame)) {
            Ok(()) => Ok(Placed::OnDisk),
            Err(no_room) => self.hold(id, &frame, no_room).map(|()| Placed::InMemory),
        };
        self.frame = frame;
        result
    }

    /// Writes what waits in memory, oldest first, passing over what was booked meanwhile.
    fn write_held(&mut self) -> Result<(), NoRoom> {
        while let Some(held) = self.held.pop_front() {
            if self.lane.still_needed(held.id)
                && let Err(error) = self.write(held.id, &held.frame)
            {
                self.held.push_front(held);
                return Err(error);
            }
            self.shared.held.fetch_sub(held.frame.len() as u64, Ordering::AcqRel);
            if self.held.is_empty() {
                self.lane.none_held();
            }
        }
        Ok(())
    }

    fn hold(&mut self, id: RequestId, frame: &[u8], why: NoRoom) -> Result<(), JournalError> {
        let size = frame.len() as u64;
        if self.shared.held.fetch_add(size, Ordering::AcqRel) + size > self.shared.memory_bytes {
            self.shared.held.fetch_sub(size, Ordering::AcqRel);
            return Err(match why {
                NoRoom::Bound => JournalError::Full { bytes: self.shared.bytes.load(Ordering::Acquire) },
                NoRoom::Disk(source) => JournalError::file("write to the journal in", &self.shared.dir, source),
            });
        }
        if self.held.is_empty() {
            let why = match why {
                NoRoom::Bound => format!("the journal is at its bound of {} bytes", self.shared.max_bytes),
                NoRoom::Disk(error) => error.to_string(),
            };
            tracing::error!(%why, "the journal cannot be written; entries wait in memory");
        }
        self.lane.hold(id);
        self.held.push_back(Held { id, frame: frame.into() });
        Ok(())
    }

    fn write(&mut self, id: RequestId, frame: &[u8]) -> Result<(), NoRoom> {
        let size = frame.len() as u64;
        let no_room = || self.shared.bytes.load(Ordering::Acquire) + size > self.shared.max_bytes;
        if no_room() {
            if self.lane.close_if_booked() {
                self.segment = None;
                self.shared.prune(&self.lane);
            }
            if no_room() {
                return Err(NoRoom::Bound);
            }
        }
        let full = |open: &OpenSegment| open.bytes + size > self.shared.segment_bytes && open.bytes > HEADER as u64;
        if self.segment.as_ref().is_none_or(full) {
            self.roll().map_err(NoRoom::Disk)?;
        }
        let open = self.segment.as_mut().expect("it was opened above");
        self.lane.note(id, open.seq);
        match append(&mut &open.file.file, frame, open.bytes) {
            Ok(()) => {
                open.bytes += size;
                self.shared.flush.wrote(&open.file, Urgency::Soon);
                self.shared.bytes.fetch_add(size, Ordering::AcqRel);
                Ok(())
            }
            Err(Unwritten { error, tail }) => {
                if tail == TailState::Dirty {
                    // What stands there reads as a torn tail; nothing may be written behind it.
                    self.segment = None;
                }
                Err(NoRoom::Disk(error))
            }
        }
    }

    /// Closes the segment and opens the next one.
    fn roll(&mut self) -> io::Result<()> {
        self.segment = None;
        let name = self.lane.open_next();
        let path = name.path(&self.shared.dir);
        let opened = OpenOptions::new().append(true).create_new(true).open(&path).and_then(|file| {
            append(&mut &file, &header(self.shared.node), 0).map_err(|unwritten| unwritten.error)?;
            Ok(file)
        });
        match opened {
            Ok(file) => {
                self.shared.bytes.fetch_add(HEADER as u64, Ordering::AcqRel);
                let file = Arc::new(SegmentFile::new(file, path));
                self.segment = Some(OpenSegment { file, seq: name.seq, bytes: HEADER as u64 });
                Ok(())
            }
            Err(error) => {
                self.lane.forget(name.seq);
                // A segment without a whole header reads as a torn tail at the next start; usually it can go now.
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        if self.write_held().is_err() {
            tracing::error!(entries = self.held.len(), "journal entries that waited in memory are lost");
        }
        self.segment = None;
        self.lane.release();
        self.shared.prune(&self.lane);
    }
}

/// What a failed append leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TailState {
    /// The file ends with its last whole frame.
    Clean,
    /// Part of a frame stands at the end.
    Dirty,
}

#[derive(Debug)]
struct Unwritten {
    error: io::Error,
    tail: TailState,
}

/// What [`append`] needs of a file.
trait Tail {
    fn write_once(&mut self, bytes: &[u8]) -> io::Result<usize>;
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Tail for &File {
    fn write_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// Appends one frame with one write(2). Where the system takes only a part, the rest is tried; what cannot be
/// completed is cut off again.
fn append(file: &mut impl Tail, frame: &[u8], length: u64) -> Result<(), Unwritten> {
    let mut done = 0;
    let error = loop {
        match file.write_once(&frame[done..]) {
            Ok(0) => break io::Error::from(io::ErrorKind::WriteZero),
            Ok(taken) if done + taken == frame.len() => return Ok(()),
            Ok(taken) => done += taken,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break error,
        }
    };
    let tail = if done == 0 || file.cut(length).is_ok() { TailState::Clean } else { TailState::Dirty };
    Err(Unwritten { error, tail })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that takes `room` bytes and may refuse to be cut.
    struct SmallDisk {
        bytes: Vec<u8>,
        room: usize,
        can_cut: bool,
    }

    impl Tail for SmallDisk {
        fn write_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room - self.bytes.len());
            if taken == 0 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            self.bytes.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn cut(&mut self, length: u64) -> io::Result<()> {
            if !self.can_cut {
                return Err(io::Error::from(io::ErrorKind::PermissionDenied));
            }
            self.bytes.truncate(usize::try_from(length).unwrap());
            Ok(())
        }
    }

    #[test]
    fn a_frame_that_does_not_fit_on_disk_leaves_nothing_behind() {
        let mut disk = SmallDisk { bytes: Vec::new(), room: 10, can_cut: true };
        append(&mut disk, b"whole", 0).unwrap();
        let refused = append(&mut disk, b"too long", 5).unwrap_err();
        assert_eq!((refused.tail, refused.error.kind()), (TailState::Clean, io::ErrorKind::StorageFull));
        assert_eq!(disk.bytes, b"whole");
        append(&mut disk, b"again", 5).unwrap();
        assert_eq!(disk.bytes, b"wholeagain");
    }

    #[test]
    fn a_tail_that_cannot_be_cut_is_reported() {
        let mut disk = SmallDisk { bytes: Vec::new(), room: 3, can_cut: false };
        assert_eq!(append(&mut disk, b"whole", 0).unwrap_err().tail, TailState::Dirty);
        assert_eq!(append(&mut disk, b"x", 3).unwrap_err().tail, TailState::Clean);
    }
}
