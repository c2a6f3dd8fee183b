//! The segment format: files `<core>-<seq>.tgj` with the header `TGJ1` and the node id (16 bytes), then frames.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use uuid::Uuid;

use super::{
    error::JournalError,
    frame::{self, EntryKind, ParsedFrame},
};

const MAGIC: &[u8; 4] = b"TGJ1";
/// Bytes of magic and node id.
pub(super) const HEADER_LENGTH: usize = 20;
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

    fn parse(path: &Path) -> Option<Self> {
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
    bytes[MAGIC.len()..].copy_from_slice(node.as_bytes());
    bytes
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
    /// JSON.
    pub(super) payload: &'a [u8],
    /// Offset of the frame in its segment.
    pub(super) offset: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentEnd {
    Whole,
    /// With a partly written frame; everything before this offset is valid.
    Torn(usize),
}

/// Checks the header of a segment; `Torn(0)` when it was never written.
pub(super) fn check_header(path: &Path, bytes: &[u8]) -> Result<SegmentEnd, JournalError> {
    // A power loss can leave allocated but unwritten bytes: zeros.
    if bytes.len() < HEADER_LENGTH || (&bytes[..MAGIC.len()] != MAGIC && bytes.iter().all(|byte| *byte == 0)) {
        return Ok(SegmentEnd::Torn(0));
    }
    if &bytes[..MAGIC.len()] != MAGIC {
        return Err(JournalError::damaged(path, 0, "it does not begin with TGJ1"));
    }
    Ok(SegmentEnd::Whole)
}

/// Visits the frames of a segment. A broken frame with no valid frame after it is a torn tail; any other broken frame is an
/// error with file and offset.
pub(super) fn scan<'a>(
    path: &Path,
    bytes: &'a [u8],
    visit: &mut dyn FnMut(RawEntry<'a>) -> Result<(), JournalError>,
) -> Result<SegmentEnd, JournalError> {
    if check_header(path, bytes)? == SegmentEnd::Torn(0) {
        return Ok(SegmentEnd::Torn(0));
    }
    let mut at = HEADER_LENGTH;
    loop {
        match frame::parse(bytes, at) {
            ParsedFrame::Frame { kind, payload, next } => {
                visit(RawEntry { kind, payload, offset: at })?;
                at = next;
            }
            ParsedFrame::Newer { version } => return Err(JournalError::Newer { path: path.to_owned(), version }),
            ParsedFrame::End => return Ok(SegmentEnd::Whole),
            ParsedFrame::Broken if frame::resync(bytes, at).is_some() => {
                return Err(JournalError::damaged(path, at, "the checksum of a frame does not fit"));
            }
            ParsedFrame::Broken => return Ok(SegmentEnd::Torn(at)),
        }
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
    fn foreign_file_is_damage_and_unwritten_file_is_a_torn_tail() {
        let path = Path::new("0-00000001.tgj");
        let nothing = &mut |_: RawEntry<'_>| Ok(());
        assert!(matches!(scan(path, b"not a segment at all", nothing), Err(JournalError::Damaged { offset: 0, .. })));
        assert_eq!(scan(path, &[0; 4096], nothing).unwrap(), SegmentEnd::Torn(0));
        assert_eq!(scan(path, b"TG", nothing).unwrap(), SegmentEnd::Torn(0));
        assert_eq!(scan(path, &header(Uuid::nil()), nothing).unwrap(), SegmentEnd::Whole);
    }
}
