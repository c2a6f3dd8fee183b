//! Reads the journal back, one segment in memory at a time: the unbooked records for the usage writer, and all entries for
//! commands that read the journal beside a running server.

use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;
use tollgate_core::{RequestId, UsageRecord};

use super::{
    error::JournalError,
    folder,
    frame::{self, DecodedEntry, EntryKind, ParsedFrame},
    segment::{self, ClosingMark, SegmentHeader, SegmentName},
    shard::{JournalState, QUARANTINE_SHARD},
};

/// Iterates over the complete, unbooked records: first those buffered in memory, which a kill would lose, then those on
/// disk, oldest segments first. After a crash during recovery a record may appear twice; booking it twice has no effect. An
/// unreadable entry yields an error, and the iteration continues after it.
#[derive(Debug)]
pub struct UnbookedRecords {
    pending: VecDeque<(RequestId, Arc<[u8]>)>,
    frames: FrameWalker,
    /// Knows which requests are booked.
    state: Arc<JournalState>,
}

impl UnbookedRecords {
    pub(super) fn new(pending: VecDeque<(RequestId, Arc<[u8]>)>, segments: Vec<SegmentName>, state: Arc<JournalState>) -> Self {
        Self { pending, frames: FrameWalker::new(state.dir.clone(), segments), state }
    }

    fn next_pending(&mut self) -> Option<Result<UsageRecord, JournalError>> {
        while let Some((id, bytes)) = self.pending.pop_front() {
            if let ParsedFrame::Frame { payload, .. } = frame::parse(&bytes, 0)
                && self.state.is_unbooked(id)
            {
                return Some(payload.decode().map_err(|error| {
                    JournalError::damaged(Path::new("the memory buffer"), 0, &format!("an entry cannot be read: {error}"))
                }));
            }
        }
        None
    }
}

impl Iterator for UnbookedRecords {
    type Item = Result<UsageRecord, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(record) = self.next_pending() {
            return Some(record);
        }
        loop {
            let frame = match self.frames.next_frame()? {
                Ok(frame) if frame.kind == EntryKind::End => frame,
                Ok(_) => continue,
                Err(fault) => return Some(Err(fault)),
            };
            match self.frames.entry(&frame) {
                Ok(DecodedEntry::End(record)) if self.state.is_unbooked(record.id) => return Some(Ok(*record)),
                Ok(_) => {}
                Err(fault) => return Some(Err(fault)),
            }
        }
    }
}

/// An entry of the journal, as commands read it.
#[derive(Clone, Debug)]
pub enum JournalEntry {
    Begun(RequestId),
    Ended {
        /// The record in the form in which it is booked.
        record: Box<UsageRecord>,
        /// The database refused the record, and it was quarantined.
        refused: bool,
    },
}

/// An entry of a journal with its position, for people to read.
#[derive(Debug, Serialize)]
pub struct WrittenEntry {
    pub segment: PathBuf,
    /// Offset of the entry's frame in the segment, in bytes.
    pub offset: usize,
    /// `begin`, `progress` or `end`.
    pub kind: &'static str,
    entry: DecodedEntry,
}

impl WrittenEntry {
    pub const fn id(&self) -> RequestId {
        self.entry.id()
    }
}

/// Iterates over the entries of a journal, booked or not, core by core in the order of writing. An unreadable entry yields an
/// error, and the iteration continues after it.
#[derive(Debug)]
pub struct WrittenEntries {
    current: FrameWalker,
    /// The folders of other processes.
    further: VecDeque<FrameWalker>,
}

impl WrittenEntries {
    pub(super) fn new(dir: &Path) -> Result<Self, JournalError> {
        let mut further = VecDeque::new();
        for folder in folder::all(dir)? {
            let segments = segment::list(&folder)?;
            further.push_back(FrameWalker::new(folder, segments));
        }
        let current = further.pop_front().unwrap_or_else(|| FrameWalker::new(dir.to_owned(), Vec::new()));
        Ok(Self { current, further })
    }

    fn read(&self, frame: &Frame) -> Result<WrittenEntry, JournalError> {
        let entry = self.current.entry(frame)?;
        Ok(WrittenEntry { segment: self.current.path(), offset: frame.at, kind: frame.kind.as_str(), entry })
    }
}

impl Iterator for WrittenEntries {
    type Item = Result<WrittenEntry, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(frame) = self.current.next_frame() {
                return Some(frame.and_then(|frame| self.read(&frame)));
            }
            self.current = self.further.pop_front()?;
        }
    }
}

/// Iterates over the begins and ends in a journal, as [`WrittenEntries`] does.
#[derive(Debug)]
pub struct JournalEntries(WrittenEntries);

impl JournalEntries {
    pub(super) fn new(dir: &Path) -> Result<Self, JournalError> {
        WrittenEntries::new(dir).map(Self)
    }
}

impl Iterator for JournalEntries {
    type Item = Result<JournalEntry, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.0.next()?.map(|written| written.entry) {
                Ok(DecodedEntry::Begin(begin)) => return Some(Ok(JournalEntry::Begun(begin.id))),
                Ok(DecodedEntry::Progress(_)) => {}
                Ok(DecodedEntry::End(record)) => {
                    return Some(Ok(JournalEntry::Ended { record, refused: self.0.current.core() == QUARANTINE_SHARD }));
                }
                Err(fault) => return Some(Err(fault)),
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    kind: EntryKind,
    /// Offset in the segment.
    at: usize,
}

/// Iterates over the frames of a list of segments.
#[derive(Debug)]
struct FrameWalker {
    dir: PathBuf,
    segments: VecDeque<SegmentName>,
    name: Option<SegmentName>,
    bytes: Vec<u8>,
    at: usize,
    /// The loaded segment's closing mark, and the number of its entries read so far.
    mark: Option<ClosingMark>,
    entries: u32,
}

impl FrameWalker {
    fn new(dir: PathBuf, segments: Vec<SegmentName>) -> Self {
        Self { dir, segments: segments.into(), name: None, bytes: Vec::new(), at: 0, mark: None, entries: 0 }
    }

    /// The core that wrote the loaded segment.
    fn core(&self) -> u16 {
        self.name.map_or(0, |name| name.core)
    }

    fn entry(&self, frame: &Frame) -> Result<DecodedEntry, JournalError> {
        let ParsedFrame::Frame { kind, payload, .. } = frame::parse(&self.bytes, frame.at) else {
            return Err(self.damaged(frame.at, "it changed while it was read"));
        };
        DecodedEntry::parse(kind, payload).map_err(|error| self.damaged(frame.at, &format!("an entry cannot be read: {error}")))
    }

    /// The next valid frame. A broken frame followed by a valid one is an error, and the iteration continues with the latter.
    fn next_frame(&mut self) -> Option<Result<Frame, JournalError>> {
        loop {
            if self.name.is_none() {
                match self.next_segment()? {
                    Ok(()) => {}
                    Err(fault) => return Some(Err(fault)),
                }
            }
            let at = self.at;
            match frame::parse(&self.bytes, at) {
                ParsedFrame::Frame { kind, next, .. } => {
                    (self.at, self.entries) = (next, self.entries + 1);
                    return Some(Ok(Frame { kind, at }));
                }
                ParsedFrame::End => {
                    if let Some(fault) = self.end_segment(at) {
                        return Some(Err(fault));
                    }
                }
                ParsedFrame::Newer { version } => {
                    let path = self.path();
                    self.skip_past(at);
                    return Some(Err(JournalError::Newer { path, version }));
                }
                // No valid frame follows: the frame is being written, or was when the process was killed.
                ParsedFrame::Broken if frame::resync(&self.bytes, at).is_none() => {
                    if let Some(fault) = self.end_segment(at) {
                        return Some(Err(fault));
                    }
                }
                ParsedFrame::Broken => {
                    if self.reload(at) {
                        continue;
                    }
                    let fault = self.damaged(at, "the checksum of a frame does not match");
                    self.skip_past(at);
                    return Some(Err(fault));
                }
            }
        }
    }

    /// Loads the next segment; `None` after the last one.
    fn next_segment(&mut self) -> Option<Result<(), JournalError>> {
        loop {
            let name = self.segments.pop_front()?;
            let path = name.path(&self.dir);
            match fs::read(&path) {
                Ok(bytes) => {
                    let header = SegmentHeader::read(&path, &bytes);
                    (self.name, self.bytes, self.mark, self.entries) = (Some(name), bytes, None, 0);
                    return Some(match header {
                        Ok(Some(header)) => {
                            (self.at, self.mark) = (header.length, header.mark);
                            Ok(())
                        }
                        Ok(None) => {
                            self.at = self.bytes.len();
                            Ok(())
                        }
                        Err(fault) => {
                            self.skip_past(0);
                            Err(fault)
                        }
                    });
                }
                // Booked and removed since the segments were listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Some(Err(JournalError::file("read", &path, source))),
            }
        }
    }

    /// Reads the segment again: a frame that was truncated and rewritten during the first read looks damaged. True if the
    /// frame is valid now.
    fn reload(&mut self, at: usize) -> bool {
        let Ok(bytes) = fs::read(self.path()) else { return false };
        let valid = !matches!(frame::parse(&bytes, at), ParsedFrame::Broken | ParsedFrame::End);
        if valid {
            self.bytes = bytes;
        }
        valid
    }

    /// Ends with the loaded segment; an error if it was closed and misses its tail.
    fn end_segment(&mut self, at: usize) -> Option<JournalError> {
        let fault = segment::missing_tail(self.mark, at, self.entries).map(|detail| self.damaged(at, &detail));
        self.unload();
        fault
    }

    /// Continues at the next valid frame after an offset.
    fn skip_past(&mut self, at: usize) {
        match frame::resync(&self.bytes, at) {
            Some(next) => self.at = next,
            None => self.unload(),
        }
    }

    fn unload(&mut self) {
        (self.name, self.bytes, self.at) = (None, Vec::new(), 0);
    }

    fn path(&self) -> PathBuf {
        self.name.map_or_else(|| self.dir.clone(), |name| name.path(&self.dir))
    }

    fn damaged(&self, at: usize, detail: &str) -> JournalError {
        JournalError::damaged(&self.path(), at, detail)
    }
}
