//! Repairing a damaged journal: the damaged segment moves to `damaged/`, what is whole in it stays.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use tollgate_core::RequestId;

use crate::FolderLock;

use super::{
    JournalError,
    entry::Entry,
    frame::{self, Found},
    segment::{self, HEADER, RawEntry, header, scan, sync_folder},
};

/// What a repair did with one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// Where the damaged segment is now.
    pub moved_to: PathBuf,
    /// The requests of which whole entries were found; they stay in the journal.
    pub kept: Vec<RequestId>,
    /// The damaged places: offset and length in bytes. Requests that had entries only there cannot be named.
    pub lost: Vec<(u64, u64)>,
}

/// Moves damaged segments of a journal to its `damaged/` folder and puts what is whole in their place. Nothing is done
/// to sound segments.
///
/// # Errors
/// When a server holds the data folder around it, when a file cannot be read, moved or written, or was written by a
/// newer version.
pub fn repair(dir: &Path) -> Result<Vec<Repaired>, JournalError> {
    if dir.parent().is_some_and(FolderLock::is_taken) {
        return Err(JournalError::InUse(dir.to_owned()));
    }
    let mut done = Vec::new();
    for name in segment::list(dir)? {
        let path = name.path(dir);
        let bytes = fs::read(&path).map_err(|source| JournalError::file("read", &path, source))?;
        let mut readable = |raw: RawEntry<'_>| {
            let unreadable = |error: serde_json::Error| JournalError::damaged(&path, raw.offset, &error.to_string());
            Entry::parse(raw.kind, raw.payload).map(|_| ()).map_err(unreadable)
        };
        match scan(&path, &bytes, &mut readable) {
            Ok(_) => {}
            Err(JournalError::Damaged { .. }) => done.push(replace(dir, &path, &bytes)?),
            Err(other) => return Err(other),
        }
    }
    Ok(done)
}

fn replace(dir: &Path, path: &Path, bytes: &[u8]) -> Result<Repaired, JournalError> {
    let (sound, kept, lost) = salvage(bytes);
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
    Ok(Repaired { moved_to, kept: kept.into_iter().collect(), lost })
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
fn salvage(bytes: &[u8]) -> (Vec<u8>, BTreeSet<RequestId>, Vec<(u64, u64)>) {
    let node = bytes.get(4..HEADER).and_then(|node| uuid::Uuid::from_slice(node).ok()).unwrap_or_default();
    let mut sound = header(node).to_vec();
    let (mut kept, mut lost) = (BTreeSet::new(), Vec::new());
    let mut at = if bytes.starts_with(b"TGJ1") { HEADER } else { 0 };
    loop {
        match frame::read(bytes, at) {
            Found::Frame { kind, payload, next } => {
                if let Ok(entry) = Entry::parse(kind, payload) {
                    kept.insert(entry.id());
                    sound.extend_from_slice(&bytes[at..next]);
                } else {
                    lost.push((at as u64, (next - at) as u64));
                }
                at = next;
            }
            Found::End => return (sound, kept, lost),
            Found::Newer { .. } | Found::Broken => {
                let next = frame::resync(bytes, at).unwrap_or(bytes.len());
                lost.push((at as u64, (next - at) as u64));
                at = next;
            }
        }
    }
}
