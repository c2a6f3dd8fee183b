//! Recovery at start reads all segments, truncates torn tails, and ends the requests that the last process left unfinished.
//! Repair, which an operator runs, moves damaged segments to `damaged/` and keeps their valid entries.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use tollgate_core::{AttemptStart, RequestId, StreamProgress, UsageRecord, settle_stopped};
use uuid::Uuid;

use super::{
    error::JournalError,
    folder,
    frame::{self, DecodedEntry, ParsedFrame, PayloadError, encode_end, request_ids},
    records::{JournalEntries, JournalEntry},
    segment::{self, ClosingMark, RawEntry, SegmentEnd, SegmentHeader, SegmentName, header, header_length, scan, sync_folder},
};
use crate::DataFolderLock;

/// An unfinished entry at the end of a segment that recovery has cut off.
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
    begins: Vec<AttemptStart<'static>>,
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
        let mut entries = 0;
        let tail = scan(&path, &bytes, &mut |entry| {
            entries += 1;
            replay.apply(name, &path, entry)
        })?;
        let mut length = bytes.len() as u64;
        if let SegmentEnd::Torn(at) = tail {
            recovered.truncated.push(TruncatedTail { path: path.clone(), bytes: length - at as u64 });
            length = at as u64;
            truncate(&path, length)?;
        }
        if length > 0 {
            if SegmentHeader::read(&path, &bytes)?.is_some_and(SegmentHeader::is_open)
                // No further entries are written to the segment, so mark its end.
                && let Err(error) = (ClosingMark { length, entries }).write(&path)
            {
                tracing::warn!(path = %path.display(), %error, "the end of a journal segment was not marked");
            }
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
    for record in records {
        encode_end(record, &mut bytes)?;
    }
    let entries = u32::try_from(records.len()).unwrap_or(u32::MAX);
    ClosingMark { length: bytes.len() as u64, entries }.put(&mut bytes);
    let file = fs::OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()))
        .map_err(|source| JournalError::file("write", path, source))?;
    Ok(bytes.len() as u64)
}

/// The result of repairing a damaged segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairReport {
    /// New path of the damaged segment.
    pub moved_to: PathBuf,
    /// Requests with valid entries; the entries stay in the journal.
    pub kept: Vec<RequestId>,
    pub damaged: Vec<DamagedRange>,
    /// Requests named in the damaged ranges that have no valid entry anywhere in the journal.
    pub lost: Vec<RequestId>,
    /// Requests named there that lost their end but have a valid begin: the next start records them as stopped.
    pub without_end: Vec<RequestId>,
}

/// A range of a segment that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// Offset in the segment.
    pub offset: u64,
    pub bytes: u64,
    /// The request ids that can still be read in it.
    pub ids: Vec<RequestId>,
}

/// Moves the damaged segments of a journal to its `damaged/` folder and writes their valid entries to new segments in their
/// place. Valid segments are not touched.
/// Refused while a server has locked the data folder.
pub fn repair(dir: &Path) -> Result<Vec<RepairReport>, JournalError> {
    if dir.parent().is_some_and(DataFolderLock::is_taken) {
        return Err(JournalError::InUse(dir.to_owned()));
    }
    let mut reports = Vec::new();
    for folder in folder::all(dir)? {
        repair_folder(&folder, &mut reports)?;
    }
    classify_damaged_requests(dir, &mut reports)?;
    Ok(reports)
}

fn repair_folder(dir: &Path, reports: &mut Vec<RepairReport>) -> Result<(), JournalError> {
    for name in segment::list(dir)? {
        let path = name.path(dir);
        let bytes = fs::read(&path).map_err(|source| JournalError::file("read", &path, source))?;
        let mut check_entry = |raw: RawEntry<'_>| {
            let unreadable = |error: PayloadError| JournalError::damaged(&path, raw.offset, &error.to_string());
            DecodedEntry::parse(raw.kind, raw.payload).map(|_| ()).map_err(unreadable)
        };
        match scan(&path, &bytes, &mut check_entry) {
            Ok(_) => {}
            Err(JournalError::Damaged { .. }) => reports.push(replace_segment(dir, &path, &bytes)?),
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

fn replace_segment(dir: &Path, path: &Path, bytes: &[u8]) -> Result<RepairReport, JournalError> {
    let (valid, kept, damaged) = salvage(bytes);
    let folder = dir.join("damaged");
    fs::create_dir_all(&folder).map_err(|source| JournalError::file("create", &folder, source))?;
    let moved_to = unused_path(&folder, path);
    let fresh = path.with_extension("repaired");
    let written = fs::File::create(&fresh).and_then(|mut file| file.write_all(&valid).and_then(|()| file.sync_all()));
    written.map_err(|source| JournalError::file("write", &fresh, source))?;
    // Link before renaming, so that the damaged bytes always have a name.
    fs::hard_link(path, &moved_to)
        .or_else(|_| fs::copy(path, &moved_to).map(|_| ()))
        .map_err(|source| JournalError::file("move", path, source))?;
    fs::rename(&fresh, path).map_err(|source| JournalError::file("replace", path, source))?;
    for folder in [folder.as_path(), dir] {
        sync_folder(folder).map_err(|source| JournalError::file("flush", folder, source))?;
    }
    Ok(RepairReport { moved_to, kept: kept.into_iter().collect(), damaged, lost: Vec::new(), without_end: Vec::new() })
}

/// Classifies the requests named in damaged ranges by their valid entries in the whole journal.
fn classify_damaged_requests(dir: &Path, reports: &mut [RepairReport]) -> Result<(), JournalError> {
    let mut named: HashMap<RequestId, Survivor> =
        reports.iter().flat_map(|report| &report.damaged).flat_map(|range| &range.ids).map(|id| (*id, Survivor::None)).collect();
    if named.is_empty() {
        return Ok(());
    }
    for entry in JournalEntries::new(dir)? {
        let (id, left) = match entry? {
            JournalEntry::Begun(id) => (id, Survivor::Begin),
            JournalEntry::Ended { record, .. } => (record.id, Survivor::End),
        };
        if let Some(known) = named.get_mut(&id) {
            *known = left.max(*known);
        }
    }
    for report in reports {
        let ids: BTreeMap<RequestId, Survivor> =
            report.damaged.iter().flat_map(|range| &range.ids).map(|id| (*id, named[id])).collect();
        for (id, left) in ids {
            match left {
                Survivor::None => report.lost.push(id),
                Survivor::Begin => report.without_end.push(id),
                Survivor::End => {}
            }
        }
    }
    Ok(())
}

/// The most conclusive valid entry of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Survivor {
    None,
    Begin,
    End,
}

fn unused_path(folder: &Path, path: &Path) -> PathBuf {
    let name = path.file_name().expect("a segment has a name").to_string_lossy();
    let mut unused = folder.join(name.as_ref());
    for number in 1.. {
        if !unused.exists() {
            break;
        }
        unused = folder.join(format!("{name}.{number}"));
    }
    unused
}

/// The valid frames after a new header, the requests in them, and the damaged ranges between.
fn salvage(bytes: &[u8]) -> (Vec<u8>, BTreeSet<RequestId>, Vec<DamagedRange>) {
    let node = bytes.get(4..20).and_then(|node| uuid::Uuid::from_slice(node).ok()).unwrap_or_default();
    let mut valid = header(node).to_vec();
    let (mut kept, mut damaged, mut entries) = (BTreeSet::new(), Vec::new(), 0);
    let mut at = header_length(bytes).unwrap_or(0);
    loop {
        let next = match frame::parse(bytes, at) {
            ParsedFrame::Frame { kind, payload, next } => {
                if let Ok(entry) = DecodedEntry::parse(kind, payload) {
                    kept.insert(entry.id());
                    valid.extend_from_slice(&bytes[at..next]);
                    (at, entries) = (next, entries + 1);
                    continue;
                }
                next
            }
            ParsedFrame::End => {
                damaged.extend(cut_tail(bytes));
                ClosingMark { length: valid.len() as u64, entries }.put(&mut valid);
                return (valid, kept, damaged);
            }
            ParsedFrame::Newer { .. } | ParsedFrame::Broken => frame::resync(bytes, at).unwrap_or(bytes.len()),
        };
        damaged.push(DamagedRange { offset: at as u64, bytes: (next - at) as u64, ids: request_ids(&bytes[at..next]) });
        at = next;
    }
}

/// The end of a closed segment that is missing.
fn cut_tail(bytes: &[u8]) -> Option<DamagedRange> {
    let mark = SegmentHeader::read(Path::new(""), bytes).ok()??.mark?;
    let missing = mark.length.checked_sub(bytes.len() as u64).filter(|missing| *missing > 0)?;
    Some(DamagedRange { offset: bytes.len() as u64, bytes: missing, ids: Vec::new() })
}
