//! Segments: files `<core>-<seq>.tgj` with the header `TGJ1` + node id (16 bytes), then frames.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use uuid::Uuid;

use super::{
    JournalError,
    frame::{self, EntryKind, ParsedFrame},
};

/// What a segment begins with.
const MAGIC: &[u8; 4] = b"TGJ1";
/// Magic and node id.
pub(super) const HEADER: usize = 20;
/// How a segment's name ends.
const EXTENSION: &str = "tgj";

/// Which segment: the core that wrote it and its number. In this order a core's entries are in order of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SegmentName {
    /// Core.
    pub(super) core: u16,
    /// Number.
    pub(super) seq: u32,
}

impl SegmentName {
    /// Its file.
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

/// The header of a segment that this node writes.
pub(super) fn header(node: Uuid) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(node.as_bytes());
    bytes
}

/// The segments in a folder, in order; none when there is no folder.
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

/// One entry of a segment, not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawEntry<'a> {
    /// What it tells.
    pub(super) kind: EntryKind,
    /// JSON.
    pub(super) payload: &'a [u8],
    /// Where its frame begins.
    pub(super) offset: usize,
}

/// How the walk over a segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentEnd {
    /// With the last frame.
    Whole,
    /// With a frame that was being written; everything before this place is good.
    Torn(usize),
}

/// Whether a segment begins as one; `Torn(0)` when its header was never written.
pub(super) fn check_header(path: &Path, bytes: &[u8]) -> Result<SegmentEnd, JournalError> {
    // A power cut can leave room that was never written: zeros, and nothing that reads as a frame.
    if bytes.len() < HEADER || (&bytes[..MAGIC.len()] != MAGIC && bytes.iter().all(|byte| *byte == 0)) {
        return Ok(SegmentEnd::Torn(0));
    }
    if &bytes[..MAGIC.len()] != MAGIC {
        return Err(JournalError::damaged(path, 0, "it does not begin with TGJ1"));
    }
    Ok(SegmentEnd::Whole)
}

/// Walks over a segment's frames. A broken frame with nothing whole behind it is a torn tail; one in the middle is an
/// error that names file and offset.
pub(super) fn scan<'a>(
    path: &Path,
    bytes: &'a [u8],
    each: &mut dyn FnMut(RawEntry<'a>) -> Result<(), JournalError>,
) -> Result<SegmentEnd, JournalError> {
    if check_header(path, bytes)? == SegmentEnd::Torn(0) {
        return Ok(SegmentEnd::Torn(0));
    }
    let mut at = HEADER;
    loop {
        match frame::read(bytes, at) {
            ParsedFrame::Frame { kind, payload, next } => {
                each(RawEntry { kind, payload, offset: at })?;
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

/// Makes what was created or renamed in a folder survive a power cut.
pub(super) fn sync_folder(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_sort_by_core_and_number() {
        let dir = Path::new("/journal");
        let name = SegmentName { core: 3, seq: 41 };
        assert_eq!(name.path(dir), Path::new("/journal/3-00000041.tgj"));
        assert_eq!(SegmentName::parse(&name.path(dir)), Some(name));
        assert_eq!(SegmentName::parse(Path::new("/journal/notes.txt")), None);
        assert_eq!(SegmentName::parse(Path::new("/journal/x-1.tgj")), None);
        assert!(name < SegmentName { core: 3, seq: 100 });
    }

    #[test]
    fn a_foreign_file_is_damage_and_an_unwritten_one_is_a_torn_tail() {
        let path = Path::new("0-00000001.tgj");
        let nothing = &mut |_: RawEntry<'_>| Ok(());
        assert!(matches!(scan(path, b"not a segment at all", nothing), Err(JournalError::Damaged { offset: 0, .. })));
        assert_eq!(scan(path, &[0; 4096], nothing).unwrap(), SegmentEnd::Torn(0));
        assert_eq!(scan(path, b"TG", nothing).unwrap(), SegmentEnd::Torn(0));
        assert_eq!(scan(path, &header(Uuid::nil()), nothing).unwrap(), SegmentEnd::Whole);
    }
}
