//! Restoration of a backup into a data folder without a gateway's data.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tollgate_core::{Secret, Timestamp};

use super::{
    archive::{self, BOOKED, DATABASE, MASTER_KEY},
    check_database, sealed_key,
};
use crate::{
    DataFolderLock, MasterKeySource, RandomSource, StoreError, StoreUrl, WorkControl,
    data_folder::{self, publish_new},
    journal, journal_folder,
    pairing::PairingState,
    seal::{MasterKeys, write_secret},
};

/// Destination of a restore.
#[derive(Clone, Debug)]
pub struct RestoreTarget {
    /// Address of the database; an SQLite file is put there.
    pub url: StoreUrl,
    /// The data folder; created if it does not exist.
    pub data: PathBuf,
    /// Source of the master key; only the data folder's is restored.
    pub master: MasterKeySource,
    /// Passphrase of the master key.
    pub passphrase: Option<Secret>,
    /// Source of nonces.
    pub random: RandomSource,
}

/// Result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// When the backup was made.
    pub made_at: Timestamp,
    /// Usage records in the database; `None` if the backup contains none (PostgreSQL).
    pub records: Option<u64>,
    /// Segments of the journal.
    pub segments: usize,
    /// A master key exists: from the backup, or from before.
    pub has_master_key: bool,
    /// The backup holds a master key that was not requested.
    pub left_master_key: bool,
}

/// Restores a backup. Files are moved to their final paths only after everything was unpacked and checked; the database is last.
///
/// # Errors
/// When the folder is in use or holds a gateway's data, the backup is damaged, the passphrase is wrong, or the work is cancelled.
pub fn restore(backup: &Path, target: &RestoreTarget, control: &WorkControl) -> Result<RestoreReport, StoreError> {
    data_folder::create(&target.data)?;
    let _lock = DataFolderLock::take(&target.data)?;
    let database = match &target.url {
        StoreUrl::Sqlite(path) => Some(path.as_path()),
        StoreUrl::Postgres(_) | StoreUrl::Memory => None,
    };
    check_empty(target, database)?;
    let draft = target.data.join("restore.new");
    // Left behind by a restoration that was killed.
    let _ = fs::remove_dir_all(&draft);
    data_folder::create(&draft.join("journal"))?;
    let restored = unpack_and_publish(backup, target, database, (&draft, control));
    let removed = fs::remove_dir_all(&draft);
    let report = match restored {
        Err(_) if control.is_cancelled() => return Err(StoreError::Cancelled),
        restored => restored?,
    };
    removed.map_err(|source| StoreError::File { action: "remove", path: draft, source })?;
    Ok(report)
}

fn refused(target: &RestoreTarget, detail: String) -> StoreError {
    StoreError::RestoreRefused { location: target.data.display().to_string(), detail }
}

fn check_empty(target: &RestoreTarget, database: Option<&Path>) -> Result<(), StoreError> {
    let occupied = |what: &Path| {
        let what = what.display();
        refused(target, format!("{what} exists already and is not replaced; give another folder with --data, or move it away"))
    };
    if let Some(path) = database.filter(|path| path.exists()) {
        return Err(occupied(path));
    }
    let folder = journal_folder(&target.data);
    let segments = journal::segment_files(&folder).map_err(|error| StoreError::Journal { detail: error.to_string() })?;
    if !segments.is_empty() || PairingState::read(&target.data).is_some() {
        return Err(occupied(&folder));
    }
    Ok(())
}

fn unpack_and_publish(
    backup: &Path,
    target: &RestoreTarget,
    database: Option<&Path>,
    (draft, control): (&Path, &WorkControl),
) -> Result<RestoreReport, StoreError> {
    let manifest = archive::unpack(backup, draft, control)?;
    match (manifest.database.as_str(), database) {
        ("sqlite", None) => {
            return Err(refused(target, "the backup holds an SQLite database; unset database.url (DATABASE_URL)".to_owned()));
        }
        ("postgres", Some(_)) => {
            let next = "the backup is of a gateway on PostgreSQL: restore its database there and set database.url (DATABASE_URL)";
            return Err(refused(target, next.to_owned()));
        }
        _ => {}
    }
    let records = if database.is_some() { Some(check_database(&draft.join(DATABASE), control)?) } else { None };
    let (has_master_key, left_master_key) = restore_master_key(target, draft)?;
    let folder = journal_folder(&target.data);
    data_folder::create(&folder)?;
    let segments =
        journal::segment_files(&draft.join("journal")).map_err(|error| StoreError::Journal { detail: error.to_string() })?;
    for from in &segments {
        publish(from, &folder.join(from.file_name().expect("a segment has a name")))?;
    }
    if draft.join(BOOKED).exists() {
        publish(&draft.join(BOOKED), &target.data.join(BOOKED))?;
    }
    if let Some(path) = database {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            data_folder::create(folder)?;
        }
        publish(&draft.join(DATABASE), path)?;
    }
    Ok(RestoreReport { made_at: Timestamp(manifest.made_at), records, segments: segments.len(), has_master_key, left_master_key })
}

fn publish(from: &Path, to: &Path) -> Result<(), StoreError> {
    publish_new(from, to).map_err(|source: io::Error| StoreError::File { action: "write", path: to.to_owned(), source })
}

/// Restores the backup's master key. Returns whether a master key exists afterwards, and whether the backup's key was left out because no
/// passphrase was given.
fn restore_master_key(target: &RestoreTarget, draft: &Path) -> Result<(bool, bool), StoreError> {
    let existing = MasterKeys::load(&target.master, &target.data)?;
    let sealed = match fs::read(draft.join(MASTER_KEY)) {
        Ok(sealed) => sealed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if target.passphrase.is_some() {
                return Err(refused(target, "the backup holds no master key; leave the passphrase out".to_owned()));
            }
            return Ok((existing.is_some(), false));
        }
        Err(source) => return Err(StoreError::File { action: "read", path: draft.join(MASTER_KEY), source }),
    };
    let Some(passphrase) = &target.passphrase else { return Ok((existing.is_some(), true)) };
    let opened = sealed_key::open(&sealed, passphrase, &target.random);
    let text = opened.ok_or_else(|| refused(target, "the passphrase does not open the backup's master key".to_owned()))?;
    let keys = MasterKeys::parse(&text, "the backup".to_owned())?;
    match existing {
        Some(existing) if existing.opens_all_of(&keys) => Ok((true, false)),
        Some(existing) => {
            let location = &existing.location;
            Err(refused(target, format!("the master key at {location} differs from the backup's; move it away")))
        }
        None => {
            let path = target.data.join("master.key");
            write_secret(&path, keys.to_text().as_bytes()).map_err(|source| StoreError::File {
                action: "write the master key",
                path,
                source,
            })?;
            Ok((true, false))
        }
    }
}
