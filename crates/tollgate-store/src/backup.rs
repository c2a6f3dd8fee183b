//! Backup of a gateway into one file, also while it serves, and its restoration into an empty data folder.
//!
//! The file is a tar archive: journal, database, optionally the master key under a passphrase, and last a manifest with the SHA-256
//! of each, so that an incomplete file is recognised. The journal is copied before the database: a record that is booked in
//! between is in both, and no record is missing from both.

mod archive;
mod check;
mod failures;
mod folder;
mod restore;
mod sealed_key;

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::statvfs;
use tollgate_core::{Secret, Timestamp};

use crate::{
    MasterKeySource, RandomSource, StoreError, StoreUrl, WorkControl, data_folder, journal, journal_folder, pairing::PairingState,
    seal::MasterKeys,
};
use archive::{ArchiveWriter, DATABASE, MASTER_KEY};

pub use check::{RestoredBackup, restore_to_check};
pub use failures::{FailedBackup, MAX_FAILED_BACKUPS};
pub use folder::{BackupFile, BackupFolder, BackupNote, BackupOrigin, FolderProbe};
pub use restore::{RestoreReport, RestoreTarget, restore};

/// Endings of the names of temporary files, before the id of the process.
const DRAFT: &str = "new";
const COPY: &str = "database";
/// Bytes that a backup leaves free on its disk.
const MARGIN: u64 = 64 << 20;
/// Steps of SQLite's virtual machine between two checks for cancellation: a few milliseconds.
const STEPS_PER_CHECK: i32 = 50_000;

/// Options of a backup.
#[derive(Clone, Debug)]
pub struct BackupSource {
    /// Address of the database; only SQLite is copied.
    pub url: StoreUrl,
    /// The data folder.
    pub data: PathBuf,
    /// Source of the master key.
    pub master: MasterKeySource,
    /// Passphrase for the master key; without one the key is left out.
    pub passphrase: Option<Secret>,
    /// Source of salts and nonces.
    pub random: RandomSource,
    /// The current time.
    pub now: Timestamp,
}

/// Contents of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// Usage records in the copy of the database; `None` if it is not in the backup (PostgreSQL).
    pub records: Option<u64>,
    /// Segments of the journal.
    pub segments: usize,
    /// Whether the backup contains the master key.
    pub has_master_key: bool,
    /// Size of the file in bytes.
    pub bytes: u64,
}

/// Writes a backup. Blocking; a gateway may be serving from the data folder.
///
/// # Errors
/// When `target` exists, its disk lacks space, the database cannot be read or is damaged, the file cannot be written, or the work is
/// cancelled. No partial file remains.
pub fn back_up(source: &BackupSource, target: &Path, control: &WorkControl) -> Result<BackupReport, StoreError> {
    let refused = |detail: &str| StoreError::Backup { path: target.to_owned(), detail: detail.to_owned() };
    if target.exists() {
        return Err(refused("the file exists already and is not replaced; give another name"));
    }
    let database = match &source.url {
        StoreUrl::Sqlite(path) if path.exists() => Some(path),
        StoreUrl::Sqlite(path) => return Err(refused(&format!("there is no database at {} to back up", path.display()))),
        StoreUrl::Postgres(_) => None,
        StoreUrl::Memory => return Err(refused("a database in memory cannot be backed up")),
    };
    check_space(source, database.map(PathBuf::as_path), target)?;
    let (draft, copy) = (beside(target, DRAFT), beside(target, COPY));
    let written = write(source, database.map(PathBuf::as_path), (&draft, &copy), control);
    let _ = fs::remove_file(&copy);
    let report = match written {
        Err(_) if control.is_cancelled() => Err(StoreError::Cancelled),
        Ok(report) => data_folder::publish_new(&draft, target).map(|()| report).map_err(|source| StoreError::File {
            action: "write",
            path: target.to_owned(),
            source,
        }),
        Err(error) => Err(error),
    };
    let _ = fs::remove_file(&draft);
    report
}

/// Refuses a backup that would fill its disk, which may be the one of the data folder.
fn check_space(source: &BackupSource, database: Option<&Path>, target: &Path) -> Result<(), StoreError> {
    require_space(target, content_bytes(&source.data, database), "write to another disk")
}

/// Bytes that are written for a backup of this data folder and database file.
fn content_bytes(data: &Path, database: Option<&Path>) -> u64 {
    let size = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    let segments = journal::segment_files(&journal_folder(data)).unwrap_or_default();
    // The database is copied and then written into the file.
    2 * database.map_or(0, size) + segments.iter().map(|path| size(path)).sum::<u64>()
}

/// Bytes that a backup of this data folder, and of this database file, needs on its disk.
pub fn backup_bytes(data: &Path, database: Option<&Path>) -> u64 {
    content_bytes(data, database).saturating_add(MARGIN)
}

/// Refuses to write `needed` bytes beside a backup where they would fill the disk. `otherwise` is the alternative to suggest.
fn require_space(backup: &Path, needed: u64, otherwise: &str) -> Result<(), StoreError> {
    let needed = needed.saturating_add(MARGIN);
    let folder = backup.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // If the free space is unknown, creating the file reports the fault of the folder.
    let free = free_bytes(folder).unwrap_or(u64::MAX);
    if free >= needed {
        return Ok(());
    }
    let detail = format!("its disk has {free} free bytes, and {needed} are needed; free some, or {otherwise}");
    Err(StoreError::Backup { path: backup.to_owned(), detail })
}

/// Bytes free for writing on the disk of a folder; `None`: unknown.
fn free_bytes(folder: &Path) -> Option<u64> {
    statvfs(folder).ok().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// A name for a temporary file beside another one.
fn beside(target: &Path, what: &str) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(format!(".{what}-{}", std::process::id()));
    PathBuf::from(name)
}

fn write(
    source: &BackupSource,
    database: Option<&Path>,
    (draft, copy): (&Path, &Path),
    control: &WorkControl,
) -> Result<BackupReport, StoreError> {
    let mut archive = ArchiveWriter::create(draft, source.now, control)?;
    let segments = add_journal(&mut archive, &source.data, control)?;
    let records = match database {
        Some(path) => {
            let records = copy_database(path, copy, control)?;
            archive.add_file(DATABASE, copy)?;
            Some(records)
        }
        None => None,
    };
    if let Some(passphrase) = &source.passphrase {
        let missing = || StoreError::Backup { path: draft.to_owned(), detail: "there is no master key to put into it".to_owned() };
        let keys = MasterKeys::load(&source.master, &source.data)?.ok_or_else(missing)?;
        archive.add(MASTER_KEY, &sealed_key::seal(&keys, passphrase, &source.random))?;
    }
    let kind = if database.is_some() { "sqlite" } else { "postgres" };
    let bytes = archive.finish(kind)?;
    Ok(BackupReport { records, segments, has_master_key: source.passphrase.is_some(), bytes })
}

/// Adds the journal: first how much of it is booked, then its segments up to the last complete frame. Those of the numbered
/// folders get names beside those of the journal itself.
fn add_journal(archive: &mut ArchiveWriter<'_>, data: &Path, control: &WorkControl) -> Result<usize, StoreError> {
    let folder = journal_folder(data);
    if let Some(state) = PairingState::read(data) {
        archive.add(archive::BOOKED, &state.encode())?;
    }
    let (mut added, mut names) = (HashSet::new(), journal::MergedNames::default());
    loop {
        let mut has_changed = false;
        let files = journal::segment_files(&folder).map_err(|error| StoreError::Journal { detail: error.to_string() })?;
        for path in &files {
            if added.contains(path) {
                continue;
            }
            control.check()?;
            control.report("journal", added.len() as u64, u64::try_from(files.len()).ok());
            match fs::read(path) {
                Ok(mut bytes) => {
                    bytes.truncate(journal::whole_length(path, &bytes));
                    let name = names.add_file(path).expect("a segment has a name");
                    archive.add(&format!("journal/{}", name.display()), &bytes)?;
                    added.insert(path.clone());
                    has_changed = true;
                }
                // The segment is gone: its records were booked meanwhile and are in the database, which is copied later; or a
                // starting gateway moved it into another folder.
                Err(error) if error.kind() == io::ErrorKind::NotFound => has_changed = true,
                Err(source) => return Err(StoreError::File { action: "read", path: path.clone(), source }),
            }
        }
        if !has_changed {
            return Ok(added.len());
        }
    }
}

/// Copies one snapshot of an SQLite file, checks the copy, and returns the number of its usage records.
fn copy_database(path: &Path, copy: &Path, control: &WorkControl) -> Result<u64, StoreError> {
    let failed = |error: rusqlite::Error| StoreError::Corrupt { database: path.display().to_string(), detail: error.to_string() };
    let file = |source| StoreError::File { action: "write", path: copy.to_owned(), source };
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(copy).map_err(file)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let from = Connection::open_with_flags(path, flags).map_err(failed)?;
    from.execute_batch("PRAGMA busy_timeout = 30000").map_err(failed)?;
    let (watched, written, total) = (control.clone(), copy.to_owned(), fs::metadata(path).map_or(0, |metadata| metadata.len()));
    let watch = move || {
        let done = fs::metadata(&written).map_or(0, |metadata| metadata.len());
        watched.report("database", done, Some(total.max(done)));
        watched.is_cancelled()
    };
    from.progress_handler(STEPS_PER_CHECK, Some(watch)).map_err(failed)?;
    from.execute("VACUUM INTO ?1", [copy.as_os_str().to_string_lossy()]).map_err(|error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull | rusqlite::ErrorCode::SystemIoFailure) => file(io::Error::other(error.to_string())),
        _ => failed(error),
    })?;
    drop(from);
    fs::File::open(copy).and_then(|copy| copy.sync_all()).map_err(file)?;
    check_database(copy, control)
}

/// Reads every page of a database and returns the number of its usage records.
fn check_database(path: &Path, control: &WorkControl) -> Result<u64, StoreError> {
    let corrupt = |detail: String| StoreError::Corrupt { database: path.display().to_string(), detail };
    let failed = |error: rusqlite::Error| corrupt(error.to_string());
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    control.report("check", 0, None);
    let watched = control.clone();
    connection.progress_handler(STEPS_PER_CHECK, Some(move || watched.is_cancelled())).map_err(failed)?;
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(failed)?;
    if found != "ok" {
        return Err(corrupt(found));
    }
    let records: i64 = connection.query_row("SELECT COUNT(*) FROM usage", [], |row| row.get(0)).map_err(failed)?;
    Ok(u64::try_from(records).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        conformance::{options, sqlite},
        open,
        samples::{MIDNIGHT, record},
    };

    /// A data folder with a database of a few records.
    async fn source(dir: &TempDir) -> BackupSource {
        let store = open(options(sqlite(dir), dir)).await.unwrap();
        store.usage.append(&(1..50).map(record).collect::<Vec<_>>()).await.unwrap();
        store.close().await;
        let (master, random) = (MasterKeySource::DataFolder, RandomSource::system());
        BackupSource { url: sqlite(dir), data: dir.path().to_owned(), master, passphrase: None, random, now: MIDNIGHT }
    }

    #[tokio::test]
    async fn cancelled_backup_leaves_nothing_behind() {
        let (dir, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let source = source(&dir).await;
        let target = folder.path().join("one.backup");
        for at in ["check", "archive"] {
            let token = CancellationToken::new();
            let cancel = token.clone();
            let control = WorkControl::new(token, move |progress| {
                if progress.step == at {
                    cancel.cancel();
                }
            });
            assert!(matches!(back_up(&source, &target, &control), Err(StoreError::Cancelled)), "{at}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{at}");
        }
        assert_eq!(back_up(&source, &target, &WorkControl::unattended()).unwrap().records, Some(49));
    }
}
