//! Repairing a damaged journal: the damaged segment moves to `damaged/`, what is whole in it stays.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use tollgate_core::RequestId;

use crate::FolderLock;

use super::{
    JournalError,
    entry::DecodedEntry,
    frame::{self, ParsedFrame},
    records::{JournalEntries, JournalEntry},
    segment::{self, HEADER, RawEntry, header, scan, sync_folder},
};

/// What a repair did with one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairReport {
    /// Where the damaged segment is now.
    pub moved_to: PathBuf,
    /// The requests of which whole entries were found; they stay in the journal.
    pub kept: Vec<RequestId>,
    /// The damaged places.
    pub places: Vec<DamagedRange>,
    /// Requests named in the damaged places of which nothing whole is left anywhere in the journal.
    pub lost: Vec<RequestId>,
    /// Requests named there whose end is gone and whose beginning is whole: the next start records them as stopped.
    pub without_end: Vec<RequestId>,
}

/// A place of a segment that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// Where it begins.
    pub offset: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// The request ids that can be read there. None: what stood there cannot be named.
    pub ids: Vec<RequestId>,
}

/// Moves damaged segments of a journal to its `damaged/` folder and puts what is whole in their place. Nothing is done
/// to sound segments.
///
/// # Errors
/// When a server holds the data folder around it, when a file cannot be read, moved or written, or was written by a
/// newer version.
pub fn repair(dir: &Path) -> Result<Vec<RepairReport>, JournalError> {
    if dir.parent().is_some_and(FolderLock::is_taken) {
        return Err(JournalError::InUse(dir.to_owned()));
    }
    let mut done = Vec::new();
    for name in segment::list(dir)? {
        let path = name.path(dir);
        let bytes = fs::read(&path).map_err(|source| JournalError::file("read", &path, source))?;
        let mut readable = |raw: RawEntry<'_>| {
            let unreadable = |error: serde_json::Error| JournalError::damaged(&path, raw.offset, &error.to_string());
            DecodedEntry::parse(raw.kind, raw.payload).map(|_| ()).map_err(unreadable)
        };
        match scan(&path, &bytes, &mut readable) {
            Ok(_) => {}
            Err(JournalError::Damaged { .. }) => done.push(replace(dir, &path, &bytes)?),
            Err(other) => return Err(other),
        }
    }
    name_what_is_gone(dir, &mut done)?;
    Ok(done)
}

fn replace(dir: &Path, path: &Path, bytes: &[u8]) -> Result<RepairReport, JournalError> {
    let (sound, kept, places) = salvage(bytes);
    let damaged = dir.join("damaged");
    fs::create_dir_all(&damaged).map_err(|source| JournalError::file("create", &damaged, source))?;
    let moved_to = free_name(&damaged, path);
    let fresh = path.with_extension("repaired");
    let written = fs::File::create(&fresh).and_then(|mut file| file.write_all(&sound).and_then(|()| file.sync_all()));
    written.map_err(|source| JournalError::file("write", &fresh, source))?;
    // A second name first, so that at no moment the damaged bytes are without one.
    fs::hard_link(path, &moved_to)
        .or_else(|_| fs::copy(path, &moved_to).map(|_| ()))
        .map_err(|source| JournalError::file("move", path, source))?;
    fs::rename(&fresh, path).map_err(|source| JournalError::file("replace", path, source))?;
    for folder in [damaged.as_path(), dir] {
        sync_folder(folder).map_err(|source| JournalError::file("flush", folder, source))?;
    }
    Ok(RepairReport { moved_to, kept: kept.into_iter().collect(), places, lost: Vec::new(), without_end: Vec::new() })
}

/// What became of the requests that damaged places name, told by what is whole in all of the journal.
fn name_what_is_gone(dir: &Path, done: &mut [RepairReport]) -> Result<(), JournalError> {
    let mut named: HashMap<RequestId, Survivor> =
        done.iter().flat_map(|it| &it.places).flat_map(|place| &place.ids).map(|id| (*id, Survivor::Nothing)).collect();
    if named.is_empty() {
        return Ok(());
    }
    for entry in JournalEntries::new(dir)? {
        let (id, left) = match entry? {
            JournalEntry::Begun(id) => (id, Survivor::Beginning),
            JournalEntry::Ended { record, .. } => (record.id, Survivor::End),
        };
        if let Some(known) = named.get_mut(&id) {
            *known = left.max(*known);
        }
    }
    for repaired in done {
        let ids: BTreeMap<RequestId, Survivor> =
            repaired.places.iter().flat_map(|place| &place.ids).map(|id| (*id, named[id])).collect();
        for (id, left) in ids {
            match left {
                Survivor::Nothing => repaired.lost.push(id),
                Survivor::Beginning => repaired.without_end.push(id),
                Survivor::End => {}
            }
        }
    }
    Ok(())
}

/// What is whole of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Survivor {
    Nothing,
    Beginning,
    End,
}

fn free_name(damaged: &Path, path: &Path) -> PathBuf {
    let name = path.file_name().expect("a segment has a name").to_string_lossy();
    let mut free = damaged.join(name.as_ref());
    for number in 1.. {
        if !free.exists() {
            break;
        }
        free = damaged.join(format!("{name}.{number}"));
    }
    free
}

/// The whole frames behind a good header, the ids in them, and the places between.
fn salvage(bytes: &[u8]) -> (Vec<u8>, BTreeSet<RequestId>, Vec<DamagedRange>) {
    let node = bytes.get(4..HEADER).and_then(|node| uuid::Uuid::from_slice(node).ok()).unwrap_or_default();
    let mut sound = header(node).to_vec();
    let (mut kept, mut places) = (BTreeSet::new(), Vec::new());
    let mut at = if bytes.starts_with(b"TGJ1") { HEADER } else { 0 };
    loop {
        let next = match frame::read(bytes, at) {
            ParsedFrame::Frame { kind, payload, next } => {
                if let Ok(entry) = DecodedEntry::parse(kind, payload) {
                    kept.insert(entry.id());
                    sound.extend_from_slice(&bytes[at..next]);
                    at = next;
                    continue;
                }
                next
            }
            ParsedFrame::End => return (sound, kept, places),
            ParsedFrame::Newer { .. } | ParsedFrame::Broken => frame::resync(bytes, at).unwrap_or(bytes.len()),
        };
        places.push(DamagedRange { offset: at as u64, bytes: (next - at) as u64, ids: ids_in(&bytes[at..next]) });
        at = next;
    }
}

/// The request ids that a damaged place names: entries are JSON, and rarely all of one is gone.
fn ids_in(bytes: &[u8]) -> Vec<RequestId> {
    const MARK: &[u8] = b"\"id\":\"";
    const LENGTH: usize = 30;
    let places = bytes.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    let ids = places.filter_map(|(place, _)| {
        let text = bytes.get(place + MARK.len()..place + MARK.len() + LENGTH)?;
        RequestId::parse(std::str::from_utf8(text).ok()?)
    });
    ids.collect::<BTreeSet<_>>().into_iter().collect()
}
