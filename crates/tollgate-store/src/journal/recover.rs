//! Recovery at start, before serving: reads all segments, truncates torn tails, and ends the requests that the last process
//! left unfinished.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use tollgate_core::{AttemptStart, RequestId, StreamProgress, UsageRecord, settle_stopped};
use uuid::Uuid;

use super::{
    entry::{DecodedEntry, encode_end},
    error::JournalError,
    segment::{self, RawEntry, SegmentEnd, SegmentName, header, scan, sync_folder},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruncatedTail {
    pub path: PathBuf,
    /// Bytes of the unfinished entry.
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct RecoveredSegments {
    /// Each segment with the requests that have entries in it.
    pub(super) segments: BTreeMap<SegmentName, HashSet<RequestId>>,
    /// Valid bytes of all segments.
    pub(super) bytes: u64,
    pub(super) stopped: Vec<RequestId>,
    pub(super) complete: usize,
    pub(super) truncated: Vec<TruncatedTail>,
}

#[derive(Default)]
struct Unfinished {
    begins: Vec<AttemptStart>,
    progress: Option<StreamProgress>,
}

#[derive(Default)]
struct Replay {
    ended: HashSet<RequestId>,
    /// Sorted by id, which is the order of arrival.
    unfinished: BTreeMap<RequestId, Unfinished>,
    ids: HashMap<SegmentName, HashSet<RequestId>>,
}

pub(super) fn recover(dir: &Path, node: Uuid) -> Result<RecoveredSegments, JournalError> {
    let mut recovered = RecoveredSegments::default();
    let mut replay = Replay::default();
    let mut highest = 0;
    for name in segment::list(dir)? {
        highest = highest.max(name.seq);
        let path = name.path(dir);
        let bytes = fs::read(&path).map_err(|source| JournalError::file("read", &path, source))?;
        let tail = scan(&path, &bytes, &mut |entry| replay.apply(name, &path, entry))?;
        let mut length = bytes.len() as u64;
        if let SegmentEnd::Torn(at) = tail {
            recovered.truncated.push(TruncatedTail { path: path.clone(), bytes: length - at as u64 });
            length = at as u64;
            truncate(&path, length)?;
        }
        if length > 0 {
            recovered.bytes += length;
            recovered.segments.insert(name, replay.ids.remove(&name).unwrap_or_default());
        }
    }
    recovered.complete = replay.ended.len();
    let records: Vec<UsageRecord> = replay
        .unfinished
        .into_values()
        // Progress without a begin cannot be billed: the begin was never written.
        .filter_map(|request| settle_stopped(&request.begins, request.progress.as_ref()))
        .collect();
    if !records.is_empty() {
        let name = SegmentName { core: 0, seq: highest + 1 };
        recovered.bytes += write_ends(&name.path(dir), node, &records)?;
        sync_folder(dir).map_err(|source| JournalError::file("flush", dir, source))?;
        recovered.stopped = records.iter().map(|record| record.id).collect();
        recovered.segments.insert(name, recovered.stopped.iter().copied().collect());
    }
    Ok(recovered)
}

impl Replay {
    fn apply(&mut self, name: SegmentName, path: &Path, raw: RawEntry<'_>) -> Result<(), JournalError> {
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

/// Truncates a torn tail; a segment without a whole header is removed.
fn truncate(path: &Path, length: u64) -> Result<(), JournalError> {
    tracing::warn!(path = %path.display(), length, "truncated a journal entry that the last process left incomplete");
    if length == 0 {
        return fs::remove_file(path).map_err(|source| JournalError::file("remove", path, source));
    }
    let file = fs::OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.set_len(length).and_then(|()| file.sync_all()))
        .map_err(|source| JournalError::file("truncate", path, source))
}

/// Writes a segment of ends and flushes it. After a crash in the middle the next start finds a torn tail, and ends the same
/// requests again.
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
