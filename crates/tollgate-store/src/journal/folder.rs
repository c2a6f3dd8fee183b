//! The folder of a process's journal. Usually that is `journal` itself. During an upgrade two processes write for a while, so
//! the new one uses a numbered folder in it. The folder is locked as long as its process runs; a later start merges the
//! remaining entries of the others.

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
use crate::data_folder;

/// Maximum number of processes that write at the same time.
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
        create(root)?;
        let mut claimed = lock(root)?;
        for number in 1..=MAX_FOLDERS {
            if claimed.is_some() {
                break;
            }
            let path = root.join(number.to_string());
            create(&path)?;
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

    /// Removes the folder, unless it is `root` or not empty.
    pub fn remove_if_empty(self, root: &Path) {
        if self.path != root {
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Moves the segments into another folder. If the process is killed meanwhile, each segment is in one of the two.
    fn merge_into(self, other: &Self, root: &Path) -> Result<(), JournalError> {
        let mut names = MergedNames::default();
        for name in segment::list(&other.path)? {
            names.add(name);
        }
        for name in segment::list(&self.path)? {
            let (from, to) = (name.path(&self.path), names.add(name).path(&other.path));
            fs::rename(&from, &to).map_err(|source| JournalError::file("move", &from, source))?;
        }
        sync_folder(&other.path).map_err(|source| JournalError::file("flush", &other.path, source))?;
        self.remove_if_empty(root);
        Ok(())
    }
}

/// Names the segments of several folders for one folder. The segments of each keep their order.
#[derive(Debug, Default)]
pub(crate) struct MergedNames {
    /// The highest number of each core.
    highest: BTreeMap<u16, u32>,
}

impl MergedNames {
    /// The name of the next segment: its own if it comes after all segments of its core.
    fn add(&mut self, name: SegmentName) -> SegmentName {
        let highest = self.highest.entry(name.core).or_default();
        *highest = name.seq.max(*highest + 1);
        SegmentName { core: name.core, seq: *highest }
    }

    /// The file name of the next segment; `None` if the file is not a segment.
    pub(crate) fn add_file(&mut self, path: &Path) -> Option<PathBuf> {
        let name = SegmentName::parse(path)?;
        Some(self.add(name).path(Path::new("")))
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

fn create(path: &Path) -> Result<(), JournalError> {
    data_folder::create_private(path).map_err(|source| JournalError::file("create", path, source))
}

/// `root` and the numbered folders in it.
pub(crate) fn all(root: &Path) -> Result<Vec<PathBuf>, JournalError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<(u16, u32, Vec<u8>)> {
        let names = segment::list(dir).unwrap();
        names.into_iter().map(|name| (name.core, name.seq, fs::read(name.path(dir)).unwrap())).collect()
    }

    #[test]
    fn segments_of_an_ended_process_are_numbered_after_those_of_its_successor() {
        let data = tempfile::TempDir::new().unwrap();
        let root = data.path().join("journal");
        let first = JournalFolder::claim(&root).unwrap();
        let second = JournalFolder::claim(&root).unwrap();
        assert_eq!((first.path(), second.path()), (root.as_path(), root.join("1").as_path()));
        let mode = |path: &Path| std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions()) & 0o777;
        assert_eq!((mode(&root), mode(&root.join("1"))), (0o700, 0o700));
        for (folder, core, seq, text) in
            [(&first, 0, 3, "a"), (&second, 0, 1, "b"), (&second, 0, 2, "c"), (&second, 0, 9, "d"), (&second, 1, 4, "e")]
        {
            fs::write(SegmentName { core, seq }.path(folder.path()), text).unwrap();
        }
        assert_eq!(second.others(&root).unwrap().1, 1);
        drop((first, second));
        let third = JournalFolder::claim(&root).unwrap();
        let expected = [(0, 3, "a"), (0, 4, "b"), (0, 5, "c"), (0, 9, "d"), (1, 4, "e")];
        assert_eq!(names(third.path()), expected.map(|(core, seq, text)| (core, seq, text.as_bytes().to_vec())));
        assert!(!root.join("1").exists());
    }
}
