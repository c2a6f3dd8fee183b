//! The data folder: its lock, and files that appear whole or not at all.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::Path,
};

use crate::StoreError;

/// `<data>/lock`, held while a server runs. The system lets it go with the process, however that ends.
#[derive(Debug)]
pub struct FolderLock(#[expect(dead_code, reason = "the lock lives as long as the open file")] File);

impl FolderLock {
    /// Takes the lock of a data folder.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process has it.
    pub fn take(data: &Path) -> Result<Self, StoreError> {
        let path = data.join("lock");
        let failed = |source| StoreError::File { action: "lock", path: path.clone(), source };
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                return Err(StoreError::InUse { place: data.display().to_string(), holder: holder.trim().parse().ok() });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let pid = std::process::id();
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{pid}")).map_err(failed)?;
        Ok(Self(file))
    }

    /// Whether a server has the lock of a data folder now.
    #[must_use]
    pub fn is_taken(data: &Path) -> bool {
        File::open(data.join("lock")).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }
}

/// Makes the data folder, for its owner only.
pub(crate) fn make(data: &Path) -> Result<(), StoreError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(data).map_err(|source| StoreError::File { action: "create the data folder", path: data.to_owned(), source })
}

/// Gives a finished draft its name, never in place of another file. The draft is gone afterwards.
pub(crate) fn put_new(draft: &Path, path: &Path) -> io::Result<()> {
    // A link, unlike a rename, refuses to replace what another process put there meanwhile. Where a file system has
    // no links, the moment between looking and renaming remains.
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
