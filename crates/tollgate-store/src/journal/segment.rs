//! The segment format: files `<core>-<seq>.tgj` with a header, then frames. The header is `TGJ2`, the node id (16 bytes), and the
//! closing mark: zeros while the segment is written, and length (u64), number of entries (u32) and their crc32 once it is closed.
//! The mark distinguishes a closed segment that lost its tail from one that a killed process left with an incomplete entry.
//! Segments of version 0.1 begin with `TGJ1` and the node id, and have no closing mark.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use uuid::Uuid;

use super::{
    error::JournalError,
    frame::{self, EntryKind, ParsedFrame, Payload},
};

const MAGIC: &[u8; 4] = b"TGJ2";
const MAGIC_0_1: &[u8; 4] = b"TGJ1";
/// Offset of the closing mark.
const MARK: usize = 20;
const HEADER_LENGTH_0_1: usize = 20;
/// Length of magic, node id and closing mark in bytes.
pub(super) const HEADER_LENGTH: usize = 36;
const EXTENSION: &str = "tgj";

/// Identifies a segment. Sorting by name puts the entries of a core in the order of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SegmentName {
    pub(super) core: u16,
    pub(super) seq: u32,
}

impl SegmentName {
    pub(super) fn path(self, dir: &Path) -> PathBuf {
        dir.join(format!("{}-{:08}.{EXTENSION}", self.core, self.seq))
    }

    pub(super) fn parse(path: &Path) -> Option<Self> {
        if path.extension()? != EXTENSION {
            return None;
        }
        let (core, seq) = path.file_stem()?.to_str()?.split_once('-')?;
        Some(Self { core: core.parse().ok()?, seq: seq.parse().ok()? })
    }
}

/// The header of the segments that `node` writes.
pub(super) fn header(node: Uuid) -> [u8; HEADER_LENGTH] {
    let mut bytes = [0; HEADER_LENGTH];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[MAGIC.len()..MARK].copy_from_slice(node.as_bytes());
    bytes
}

/// Length and checksum of a closed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClosingMark {
    pub(super) length: u64,
    pub(super) entries: u32,
}

impl ClosingMark {
    pub(super) fn encode(self) -> [u8; HEADER_LENGTH - MARK] {
        let mut bytes = [0; HEADER_LENGTH - MARK];
        bytes[..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.entries.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..12]);
        bytes[12..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The mark in a whole header; `None` while the segment is open.
    fn read(path: &Path, bytes: &[u8]) -> Result<Option<Self>, JournalError> {
        let mark = &bytes[MARK..HEADER_LENGTH];
        if mark.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let number = |at: usize| u32::from_le_bytes([mark[at], mark[at + 1], mark[at + 2], mark[at + 3]]);
        if crc32fast::hash(&mark[..12]) != number(12) {
            return Err(JournalError::damaged(path, MARK, "the checksum of its closing mark does not match"));
        }
        Ok(Some(Self { length: u64::from(number(4)) << 32 | u64::from(number(0)), entries: number(8) }))
    }

    /// Writes the mark into a segment that was written to its end.
    pub(super) fn write(self, path: &Path) -> io::Result<()> {
        use std::os::unix::fs::FileExt as _;
        fs::OpenOptions::new().write(true).open(path)?.write_all_at(&self.encode(), MARK as u64)
    }

    /// Puts the mark into the header of a segment in memory.
    pub(super) fn put(self, segment: &mut [u8]) {
        segment[MARK..HEADER_LENGTH].copy_from_slice(&self.encode());
    }
}

/// Loss of a closed segment whose valid frames end at `at` after `entries` entries.
pub(super) fn missing_tail(mark: Option<ClosingMark>, at: usize, entries: u32) -> Option<String> {
    let mark = mark.filter(|mark| mark.length > at as u64)?;
    let (bytes, lost) = (mark.length - at as u64, mark.entries.saturating_sub(entries));
    Some(format!("its last {bytes} bytes with {lost} of {} entries are missing", mark.entries))
}

/// The segments in a folder, sorted; empty if the folder does not exist.
pub(super) fn list(dir: &Path) -> Result<Vec<SegmentName>, JournalError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|source| JournalError::file("read", dir, source))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.map_err(|source| JournalError::file("read", dir, source))?.path();
        names.extend(SegmentName::parse(&path));
    }
    names.sort_unstable();
    Ok(names)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RawEntry<'a> {
    pub(super) kind: EntryKind,
    pub(super) payload: Payload<'a>,
    /// Offset of the frame in its segment.
    pub(super) offset: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentEnd {
    Whole,
    /// With a partly written frame; everything before this offset is valid.
    Torn(usize),
}

/// Header before the frames of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) length: usize,
    pub(super) mark: Option<ClosingMark>,
}

impl SegmentHeader {
    /// `None` if it was never written whole.
    pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<Option<Self>, JournalError> {
        // A power loss can leave allocated but unwritten bytes: zeros.
        if bytes.iter().all(|byte| *byte == 0) || MAGIC.starts_with(bytes) || MAGIC_0_1.starts_with(bytes) {
            return Ok(None);
        }
        let Some(length) = header_length(bytes) else {
            return Err(JournalError::damaged(path, 0, "it does not begin with TGJ2"));
        };
        if bytes.len() < length {
            return Ok(None);
        }
        let mark = if length == HEADER_LENGTH { ClosingMark::read(path, bytes)? } else { None };
        Ok(Some(Self { length, mark }))
    }

    /// Whether the segment is one of this version that was not closed.
    pub(super) const fn is_open(self) -> bool {
        self.length == HEADER_LENGTH && self.mark.is_none()
    }
}

/// The length of a segment's header, from its first bytes; `None` if it is not a segment.
pub(super) fn header_length(bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(MAGIC) {
        return Some(HEADER_LENGTH);
    }
    bytes.starts_with(MAGIC_0_1).then_some(HEADER_LENGTH_0_1)
}

/// Visits the frames of a segment. A broken frame with no valid frame after it is a torn tail; any other broken frame is an
/// error with file and offset.
pub(super) fn scan<'a>(
    path: &Path,
    bytes: &'a [u8],
    visit: &mut dyn FnMut(RawEntry<'a>) -> Result<(), JournalError>,
) -> Result<SegmentEnd, JournalError> {
    let Some(header) = SegmentHeader::read(path, bytes)? else { return Ok(SegmentEnd::Torn(0)) };
    let (mut at, mut entries) = (header.length, 0);
    loop {
        let end = match frame::parse(bytes, at) {
            ParsedFrame::Frame { kind, payload, next } => {
                visit(RawEntry { kind, payload, offset: at })?;
                (at, entries) = (next, entries + 1);
                continue;
            }
            ParsedFrame::Newer { version } => return Err(JournalError::Newer { path: path.to_owned(), version }),
            ParsedFrame::End => SegmentEnd::Whole,
            ParsedFrame::Broken if frame::resync(bytes, at).is_some() => {
                return Err(JournalError::damaged(path, at, "the checksum of a frame does not match"));
            }
            ParsedFrame::Broken => SegmentEnd::Torn(at),
        };
        return match missing_tail(header.mark, at, entries) {
            Some(detail) => Err(JournalError::damaged(path, at, &detail)),
            None => Ok(end),
        };
    }
}

/// Flushes a folder, so that files created or renamed in it survive a power loss.
pub(super) fn sync_folder(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_sort_by_core_and_sequence() {
        let dir = Path::new("/journal");
        let name = SegmentName { core: 3, seq: 41 };
        assert_eq!(name.path(dir), Path::new("/journal/3-00000041.tgj"));
        assert_eq!(SegmentName::parse(&name.path(dir)), Some(name));
        assert_eq!(SegmentName::parse(Path::new("/journal/notes.txt")), None);
        assert_eq!(SegmentName::parse(Path::new("/journal/x-1.tgj")), None);
        assert!(name < SegmentName { core: 3, seq: 100 });
    }

    #[test]
    fn foreign_file_is_damage_and_blank_file_is_a_torn_tail() {
        let path = Path::new("0-00000001.tgj");
        let nothing = &mut |_: RawEntry<'_>| Ok(());
        assert!(matches!(scan(path, b"not a segment at all", nothing), Err(JournalError::Damaged { offset: 0, .. })));
        assert_eq!(scan(path, &[0; 4096], nothing).unwrap(), SegmentEnd::Torn(0));
        assert_eq!(scan(path, b"TG", nothing).unwrap(), SegmentEnd::Torn(0));
        assert_eq!(scan(path, &header(Uuid::nil()), nothing).unwrap(), SegmentEnd::Whole);
    }
}
