//! The data folder: its lock, and the atomic creation of files.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use crate::{RandomSource, StoreError, journal};

/// Exclusive lock on `<data>/lock`, held while a server runs. The operating system releases it when the process ends.
#[derive(Debug)]
pub struct DataFolderLock(File);

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
        let lock = Self(file);
        lock.note_holder().map_err(failed)?;
        Ok(lock)
    }

    /// The lock that another process of this folder has handed over. It belongs to the open file, so it was never free.
    pub fn from_handed_over(file: OwnedFd) -> Self {
        Self(file.into())
    }

    /// Writes the id of this process into the file, for the messages of other processes.
    pub fn note_holder(&self) -> io::Result<()> {
        let (mut file, pid) = (&self.0, std::process::id());
        let noted = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{pid}"));
        // The lock does not depend on it, so a full disk does not prevent a start.
        noted.or_else(unless_full)
    }

    /// The process id in the lock's file.
    pub fn holder(data: &Path) -> Option<u32> {
        fs::read_to_string(data.join("lock")).ok()?.trim().parse().ok()
    }

    /// Whether a server holds the lock of a data folder now.
    pub fn is_taken(data: &Path) -> bool {
        File::open(data.join("lock")).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }
}

impl AsFd for DataFolderLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The name of the node that uses this data folder, from `<data>/node`; made on the first call.
///
/// # Errors
/// When the file can be neither read nor written.
pub fn node_identity(data: &Path) -> Result<String, StoreError> {
    let path = data.join("node");
    let failed = |source| StoreError::File { action: "write the name of the node to", path: path.clone(), source };
    let known = fs::read_to_string(&path).unwrap_or_default();
    if is_identity(known.trim()) {
        return Ok(known.trim().to_owned());
    }
    let name = hex::encode(RandomSource::system().bytes::<8>());
    fs::write(&path, format!("{name}\n")).or_else(unless_full).map_err(failed)?;
    Ok(name)
}

/// Ignores a full disk.
fn unless_full(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::StorageFull { Ok(()) } else { Err(error) }
}

fn is_identity(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Creates the data folder, accessible to its owner only. An existing empty folder, such as a fresh volume, is restricted too if
/// this process may change its mode.
pub(crate) fn create(data: &Path) -> Result<(), StoreError> {
    create_private(data).map_err(|source| StoreError::File { action: "create the data folder", path: data.to_owned(), source })?;
    if fs::read_dir(data).is_ok_and(|mut entries| entries.next().is_none()) {
        restrict(data, 0o700);
    }
    Ok(())
}

/// Creates a folder and its parents, accessible to their owner only. Existing folders stay unchanged.
pub(crate) fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Removes the access of other users to files in the data folder that an earlier version, or a command under another umask,
/// created: the database with its write-ahead log, and the journals of all processes.
pub(crate) fn protect(data: &Path, database: Option<&Path>) {
    for name in database.into_iter().flat_map(|path| ["", "-wal", "-shm"].map(|suffix| with_suffix(path, suffix))) {
        restrict(&name, 0o600);
    }
    for folder in journal::folders(&crate::journal_folder(data)).unwrap_or_default() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let mode = if entry.file_type().is_ok_and(|kind| kind.is_dir()) { 0o700 } else { 0o600 };
            restrict(&entry.path(), mode);
        }
        restrict(&folder, 0o700);
    }
    for name in ["cache.sealed", "lock", "traffic.json"] {
        restrict(&data.join(name), 0o600);
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Best effort: the mode of a file of another user stays unchanged.
fn restrict(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    let Ok(metadata) = fs::metadata(path) else { return };
    if metadata.permissions().mode() & 0o077 != 0
        && let Err(error) = fs::set_permissions(path, fs::Permissions::from_mode(mode))
    {
        tracing::warn!(path = %path.display(), %error, "others may read this file, and its mode cannot be changed");
    }
}

/// Renames a finished draft to `path` without replacing an existing file. The draft is removed either way.
/// Fails with [`io::ErrorKind::AlreadyExists`] when `path` exists.
pub(crate) fn publish_new(draft: &Path, path: &Path) -> io::Result<()> {
    // Unlike a rename, a hard link fails if another process has created the file. File systems without hard links get a
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
