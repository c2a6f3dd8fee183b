//! The folder of a process's journal. Usually that is `journal` itself. After an upgrade two processes write for a while, so the
//! new one takes a folder with a number in it. The folder is locked as long as its process runs; a later start merges what the
//! others left behind.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use super::{
    error::JournalError,
    segment::{self, SegmentName, sync_folder},
};

/// Most processes that write at the same time.
const MAX_FOLDERS: u32 = 64;

/// A folder that no other process writes. Dropping it unlocks it.
#[derive(Debug)]
pub struct JournalFolder {
    path: PathBuf,
    /// The operating system releases the lock when the process ends.
    _lock: File,
}

impl JournalFolder {
    /// Locks a folder for this process: `root`, unless another process still writes there. The segments of processes that
    /// ended are moved into it.
    pub fn claim(root: &Path) -> Result<Self, JournalError> {
        fs::create_dir_all(root).map_err(|source| JournalError::file("create", root, source))?;
        let mut claimed = lock(root)?;
        for number in 1..=MAX_FOLDERS {
            if claimed.is_some() {
                break;
            }
            let path = root.join(number.to_string());
            fs::create_dir_all(&path).map_err(|source| JournalError::file("create", &path, source))?;
            claimed = lock(&path)?;
        }
        let claimed = claimed.ok_or_else(|| JournalError::InUse(root.to_owned()))?;
        for left in claimed.others(root)?.0 {
            left.merge_into(&claimed, root)?;
        }
        Ok(claimed)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The other folders in `root` whose processes have ended, locked, and the number of those that are still written.
    pub fn others(&self, root: &Path) -> Result<(Vec<Self>, usize), JournalError> {
        let (mut left, mut written) = (Vec::new(), 0);
        for path in all(root)?.into_iter().filter(|path| *path != self.path) {
            match lock(&path)? {
                Some(folder) => left.push(folder),
                None => written += 1,
            }
        }
        Ok((left, written))
    }

    /// True if it holds no segments.
    pub fn is_empty(&self) -> Result<bool, JournalError> {
        Ok(segment::list(&self.path)?.is_empty())
    }

    /// Removes the folder, unless it is `root` or holds something.
    pub fn remove_if_empty(self, root: &Path) {
        if self.path != root {
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Moves the segments into another folder. A kill in the middle leaves each of them in one of the two.
    fn merge_into(self, other: &Self, root: &Path) -> Result<(), JournalError> {
        let mut highest: BTreeMap<u16, u32> = BTreeMap::new();
        for name in segment::list(&other.path)? {
            highest.entry(name.core).and_modify(|seq| *seq = name.seq.max(*seq)).or_insert(name.seq);
        }
        for name in segment::list(&self.path)? {
            let seq = highest.entry(name.core).or_default();
            *seq += 1;
            let (from, to) = (name.path(&self.path), SegmentName { core: name.core, seq: *seq }.path(&other.path));
            fs::rename(&from, &to).map_err(|source| JournalError::file("move", &from, source))?;
        }
        sync_folder(&other.path).map_err(|source| JournalError::file("flush", &other.path, source))?;
        self.remove_if_empty(root);
        Ok(())
    }
}

/// Locks a folder; `None` if another process has it.
fn lock(path: &Path) -> Result<Option<JournalFolder>, JournalError> {
    let failed = |source| JournalError::file("lock", path, source);
    let folder = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed)?,
    };
    match folder.try_lock() {
        Ok(()) => Ok(Some(JournalFolder { path: path.to_owned(), _lock: folder })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// `root` and the numbered folders in it.
pub(super) fn all(root: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|source| JournalError::file("read", root, source))?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry.map_err(|source| JournalError::file("read", root, source))?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    let numbered = numbers.into_iter().map(|number| root.join(number.to_string()));
    Ok(std::iter::once(root.to_owned()).chain(numbered).collect())
}
