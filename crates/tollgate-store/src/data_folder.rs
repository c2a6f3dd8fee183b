//! The data folder: its lock, and files that are created completely or not at all.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::Path,
};

use crate::StoreError;

/// Exclusive lock on `<data>/lock`, held while a server runs. The operating system releases it when the process ends.
#[derive(Debug)]
pub struct DataFolderLock(#[expect(dead_code, reason = "the lock lives as long as the open file")] File);

impl DataFolderLock {
    /// Acquires the lock of a data folder and writes the process id into it.
    pub fn take(data: &Path) -> Result<Self, StoreError> {
        let path = data.join("lock");
        let failed = |source| StoreError::File { action: "lock", path: path.clone(), source };
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                return Err(StoreError::InUse { location: data.display().to_string(), holder: holder.trim().parse().ok() });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let pid = std::process::id();
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{pid}")).map_err(failed)?;
        Ok(Self(file))
    }

    /// Whether a server holds the lock of a data folder now.
    pub fn is_taken(data: &Path) -> bool {
        File::open(data.join("lock")).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }
}

/// Creates the data folder, accessible to its owner only.
pub(crate) fn create(data: &Path) -> Result<(), StoreError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(data).map_err(|source| StoreError::File { action: "create the data folder", path: data.to_owned(), source })
}

/// Renames a finished draft to `path` without replacing an existing file. The draft is removed either way.
/// Fails with [`io::ErrorKind::AlreadyExists`] when `path` exists.
pub(crate) fn publish_new(draft: &Path, path: &Path) -> io::Result<()> {
    // Unlike a rename, a hard link fails if another process created the file meanwhile. File systems without hard links get a
    // check and a copy, with a race between the two.
    let linked = fs::hard_link(draft, path).or_else(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists || path.exists() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::copy(draft, path).and_then(|_| File::open(path)?.sync_all())
    });
    let removed = fs::remove_file(draft);
    linked.and(removed)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
