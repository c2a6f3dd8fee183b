//! Reading the journal back, one segment in memory at a time: what is not booked for the till, and everything that stands
//! there for whoever looks at the journal beside a running server.

use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tollgate_core::{RequestId, UsageRecord};

use super::{
    JournalError, JournalInner, REFUSED,
    entry::DecodedEntry,
    frame::{self, EntryKind, ParsedFrame},
    segment::{self, HEADER, SegmentName},
};

/// The records that have an end in the journal and are not booked: those that only memory has first, since a kill would
/// lose them, then those on disk, oldest segments first. A record may come twice after a crash during recovery; booking
/// it twice has no effect. What cannot be read comes as an error, and the walk goes on behind it.
#[derive(Debug)]
pub struct UnbookedRecords {
    held: VecDeque<(RequestId, Arc<[u8]>)>,
    walk: FrameWalker,
    /// Leaves out what is booked.
    shared: Arc<JournalInner>,
}

impl UnbookedRecords {
    pub(super) fn new(held: VecDeque<(RequestId, Arc<[u8]>)>, segments: Vec<SegmentName>, shared: Arc<JournalInner>) -> Self {
        Self { held, walk: FrameWalker::new(shared.dir.clone(), segments), shared }
    }

    fn next_held(&mut self) -> Option<Result<UsageRecord, JournalError>> {
        while let Some((id, bytes)) = self.held.pop_front() {
            if let ParsedFrame::Frame { payload, .. } = frame::read(&bytes, 0)
                && self.shared.is_unbooked(id)
            {
                return Some(serde_json::from_slice(payload).map_err(|error| {
                    JournalError::damaged(Path::new("what waits in memory"), 0, &format!("an entry cannot be read: {error}"))
                }));
            }
        }
        None
    }
}

impl Iterator for UnbookedRecords {
    type Item = Result<UsageRecord, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(record) = self.next_held() {
            return Some(record);
        }
        loop {
            let frame = match self.walk.next_frame()? {
                Ok(frame) if frame.kind == EntryKind::End => frame,
                Ok(_) => continue,
                Err(fault) => return Some(Err(fault)),
            };
            match self.walk.entry(&frame) {
                Ok(DecodedEntry::End(record)) if self.shared.is_unbooked(record.id) => return Some(Ok(*record)),
                Ok(_) => {}
                Err(fault) => return Some(Err(fault)),
            }
        }
    }
}

/// What stands in a journal.
#[derive(Clone, Debug)]
pub enum JournalEntry {
    /// An attempt of this request began.
    Begun(RequestId),
    /// A request ended.
    Ended {
        /// Its record.
        record: Box<UsageRecord>,
        /// Whether it was set aside because the database refused it.
        refused: bool,
    },
}

/// Everything that stands in a journal, booked or not, core by core in the order of writing. What cannot be read comes as
/// an error, and the walk goes on behind it.
#[derive(Debug)]
pub struct JournalEntries(FrameWalker);

impl JournalEntries {
    pub(super) fn new(dir: &Path) -> Result<Self, JournalError> {
        Ok(Self(FrameWalker::new(dir.to_owned(), segment::list(dir)?)))
    }
}

impl Iterator for JournalEntries {
    type Item = Result<JournalEntry, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let frame = match self.0.next_frame()? {
                Ok(frame) => frame,
                Err(fault) => return Some(Err(fault)),
            };
            match self.0.entry(&frame) {
                Ok(DecodedEntry::Begin(begin)) => return Some(Ok(JournalEntry::Begun(begin.id))),
                Ok(DecodedEntry::Progress(_)) => {}
                Ok(DecodedEntry::End(record)) => {
                    return Some(Ok(JournalEntry::Ended { record, refused: self.0.core() == REFUSED }));
                }
                Err(fault) => return Some(Err(fault)),
            }
        }
    }
}

/// A whole frame of the segment in memory.
#[derive(Clone, Copy, Debug)]
struct Frame {
    kind: EntryKind,
    /// Where it begins.
    at: usize,
}

/// A walk over the frames of segments.
#[derive(Debug)]
struct FrameWalker {
    dir: PathBuf,
    segments: VecDeque<SegmentName>,
    name: Option<SegmentName>,
    bytes: Vec<u8>,
    at: usize,
}

impl FrameWalker {
    fn new(dir: PathBuf, segments: Vec<SegmentName>) -> Self {
        Self { dir, segments: segments.into(), name: None, bytes: Vec::new(), at: 0 }
    }

    /// The core whose segment is in memory.
    fn core(&self) -> u16 {
        self.name.map_or(0, |name| name.core)
    }

    /// The entry of a frame.
    fn entry(&self, frame: &Frame) -> Result<DecodedEntry, JournalError> {
        let ParsedFrame::Frame { kind, payload, .. } = frame::read(&self.bytes, frame.at) else {
            return Err(self.damaged(frame.at, "it changed while it was read"));
        };
        DecodedEntry::parse(kind, payload).map_err(|error| self.damaged(frame.at, &format!("an entry cannot be read: {error}")))
    }

    /// The next whole frame. What is broken with something whole behind it is an error; the walk goes on there.
    fn next_frame(&mut self) -> Option<Result<Frame, JournalError>> {
        loop {
            if self.name.is_none() {
                match self.next_segment()? {
                    Ok(()) => {}
                    Err(fault) => return Some(Err(fault)),
                }
            }
            let at = self.at;
            match frame::read(&self.bytes, at) {
                ParsedFrame::Frame { kind, next, .. } => {
                    self.at = next;
                    return Some(Ok(Frame { kind, at }));
                }
                ParsedFrame::End => self.leave(),
                ParsedFrame::Newer { version } => {
                    let path = self.path();
                    self.behind(at);
                    return Some(Err(JournalError::Newer { path, version }));
                }
                // Nothing whole behind it: a frame that is being written, or was when the process was killed.
                ParsedFrame::Broken if frame::resync(&self.bytes, at).is_none() => self.leave(),
                ParsedFrame::Broken => {
                    if self.reads_better(at) {
                        continue;
                    }
                    let fault = self.damaged(at, "the checksum of a frame does not fit");
                    self.behind(at);
                    return Some(Err(fault));
                }
            }
        }
    }

    /// Loads the next segment; `None` at the end.
    fn next_segment(&mut self) -> Option<Result<(), JournalError>> {
        loop {
            let name = self.segments.pop_front()?;
            let path = name.path(&self.dir);
            match fs::read(&path) {
                Ok(bytes) => {
                    (self.name, self.bytes, self.at) = (Some(name), bytes, HEADER);
                    if let Err(fault) = segment::check_header(&path, &self.bytes) {
                        self.behind(0);
                        return Some(Err(fault));
                    }
                    return Some(Ok(()));
                }
                // Booked and removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Some(Err(JournalError::file("read", &path, source))),
            }
        }
    }

    /// Reads the segment once more: bytes that were taken back and written anew while they were read look like damage.
    fn reads_better(&mut self, at: usize) -> bool {
        let Ok(bytes) = fs::read(self.path()) else { return false };
        let better = !matches!(frame::read(&bytes, at), ParsedFrame::Broken | ParsedFrame::End);
        if better {
            self.bytes = bytes;
        }
        better
    }

    /// Goes on at the next whole frame behind a place.
    fn behind(&mut self, at: usize) {
        match frame::resync(&self.bytes, at) {
            Some(next) => self.at = next,
            None => self.leave(),
        }
    }

    fn leave(&mut self) {
        (self.name, self.bytes, self.at) = (None, Vec::new(), 0);
    }

    fn path(&self) -> PathBuf {
        self.name.map_or_else(|| self.dir.clone(), |name| name.path(&self.dir))
    }

    fn damaged(&self, at: usize, detail: &str) -> JournalError {
        JournalError::damaged(&self.path(), at, detail)
    }
}
