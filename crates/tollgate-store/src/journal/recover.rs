//! What is done at start, before serving: segments are read, torn tails cut, and requests that the last process left
//! in the middle get their end.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use tollgate_core::{AttemptStart, RequestId, StreamProgress, UsageRecord, settle_stopped};
use uuid::Uuid;

use super::{
    JournalError,
    entry::{DecodedEntry, encode_end},
    segment::{self, RawEntry, SegmentEnd, SegmentName, header, scan, sync_folder},
};

/// A torn tail that was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruncatedTail {
    /// Which segment.
    pub path: PathBuf,
    /// How many bytes of an unfinished entry went.
    pub bytes: u64,
}

/// What the segments of a folder hold.
#[derive(Debug, Default)]
pub(super) struct RecoveredSegments {
    /// Each segment with the ids that stand in it.
    pub(super) segments: BTreeMap<SegmentName, HashSet<RequestId>>,
    /// Good bytes of all segments.
    pub(super) bytes: u64,
    /// Requests that got an end now.
    pub(super) stopped: Vec<RequestId>,
    /// Complete records.
    pub(super) complete: usize,
    /// Torn tails.
    pub(super) cut: Vec<TruncatedTail>,
}

/// A request without an end so far.
#[derive(Default)]
struct Unfinished {
    begins: Vec<AttemptStart>,
    progress: Option<StreamProgress>,
}

#[derive(Default)]
struct Reader {
    ended: HashSet<RequestId>,
    /// In order of id, which is order of arrival.
    unfinished: BTreeMap<RequestId, Unfinished>,
    ids: HashMap<SegmentName, HashSet<RequestId>>,
}

/// Reads every segment and ends what has no end.
pub(super) fn recover(dir: &Path, node: Uuid) -> Result<RecoveredSegments, JournalError> {
    let mut found = RecoveredSegments::default();
    let mut reader = Reader::default();
    let mut highest = 0;
    for name in segment::list(dir)? {
        highest = highest.max(name.seq);
        let path = name.path(dir);
        let bytes = fs::read(&path).map_err(|source| JournalError::file("read", &path, source))?;
        let tail = scan(&path, &bytes, &mut |entry| reader.take(name, &path, entry))?;
        let mut length = bytes.len() as u64;
        if let SegmentEnd::Torn(at) = tail {
            found.cut.push(TruncatedTail { path: path.clone(), bytes: length - at as u64 });
            length = at as u64;
            cut(&path, length)?;
        }
        if length > 0 {
            found.bytes += length;
            found.segments.insert(name, reader.ids.remove(&name).unwrap_or_default());
        }
    }
    found.complete = reader.ended.len();
    let records: Vec<UsageRecord> = reader
        .unfinished
        .into_values()
        // Progress without a beginning tells nothing that could be billed; its `begin` was never written.
        .filter_map(|request| settle_stopped(&request.begins, request.progress.as_ref()))
        .collect();
    if !records.is_empty() {
        let name = SegmentName { core: 0, seq: highest + 1 };
        found.bytes += write_ends(&name.path(dir), node, &records)?;
        sync_folder(dir).map_err(|source| JournalError::file("flush", dir, source))?;
        found.stopped = records.iter().map(|record| record.id).collect();
        found.segments.insert(name, found.stopped.iter().copied().collect());
    }
    Ok(found)
}

impl Reader {
    fn take(&mut self, name: SegmentName, path: &Path, raw: RawEntry<'_>) -> Result<(), JournalError> {
        let entry = DecodedEntry::parse(raw.kind, raw.payload)
            .map_err(|error| JournalError::damaged(path, raw.offset, &format!("an entry cannot be read: {error}")))?;
        let id = entry.id();
        self.ids.entry(name).or_default().insert(id);
        match entry {
            DecodedEntry::End(_) => {
                self.unfinished.remove(&id);
                self.ended.insert(id);
            }
            DecodedEntry::Begin(_) | DecodedEntry::Progress(_) if self.ended.contains(&id) => {}
            DecodedEntry::Begin(begin) => self.unfinished.entry(id).or_default().begins.push(*begin),
            DecodedEntry::Progress(progress) => self.unfinished.entry(id).or_default().progress = Some(progress),
        }
        Ok(())
    }
}

/// Cuts a torn tail; a segment without a whole header goes.
fn cut(path: &Path, length: u64) -> Result<(), JournalError> {
    tracing::warn!(path = %path.display(), length, "an entry was being written when the last process ended; it is cut off");
    if length == 0 {
        return fs::remove_file(path).map_err(|source| JournalError::file("remove", path, source));
    }
    let file = fs::OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.set_len(length).and_then(|()| file.sync_all()))
        .map_err(|source| JournalError::file("cut", path, source))
}

/// Writes a segment of ends and flushes it. A crash in the middle leaves a torn tail, and the next start the same
/// records again.
fn write_ends(path: &Path, node: Uuid, records: &[UsageRecord]) -> Result<u64, JournalError> {
    let mut bytes = header(node).to_vec();
    let mut frame = Vec::new();
    for record in records {
        encode_end(record, &mut frame)?;
        bytes.extend_from_slice(&frame);
    }
    let file = fs::OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()))
        .map_err(|source| JournalError::file("write", path, source))?;
    Ok(bytes.len() as u64)
}
