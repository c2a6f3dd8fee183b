//! A backup that is restored into a temporary folder to be checked. The folder is removed when the value is dropped.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags};

use super::{
    require_space,
    restore::{RestoreReport, RestoreTarget, restore},
};
use crate::{MasterKeySource, RandomSource, StoreError, StoreUrl, WorkControl, sql};

/// Name of the database in the folder.
const DATABASE: &str = "tollgate.db";
/// Disk space needed for a check, in sizes of the backup: it is unpacked, and a database with an older schema is copied before its
/// migration.
const COPIES: u64 = 2;

/// A restored backup.
#[derive(Debug)]
pub struct RestoredBackup {
    pub report: RestoreReport,
    /// Version of the schema of the database in it; `None` without a database.
    pub schema: Option<i64>,
    /// Version of this program's schema.
    pub known_schema: i64,
    folder: Scratch,
}

impl RestoredBackup {
    /// The data folder that it was restored into.
    pub fn data(&self) -> &Path {
        &self.folder.0
    }
}

/// A folder that is removed when it is dropped.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Restores a backup into the folder `scratch`, which is replaced if an earlier check left it behind. The backup is only read.
///
/// # Errors
/// When the backup is damaged, its disk lacks space, or the work is cancelled.
pub fn restore_to_check(
    backup: &Path,
    scratch: PathBuf,
    has_database: bool,
    master: MasterKeySource,
    control: &WorkControl,
) -> Result<RestoredBackup, StoreError> {
    let reading = |source| StoreError::File { action: "read", path: backup.to_owned(), source };
    let bytes = fs::metadata(backup).map_err(reading)?.len();
    let _ = fs::remove_dir_all(&scratch);
    require_space(backup, bytes.saturating_mul(COPIES), "check it on another machine")?;
    let folder = Scratch(scratch);
    let path = folder.0.join(DATABASE);
    let url = if has_database { StoreUrl::Sqlite(path.clone()) } else { StoreUrl::Postgres(String::new()) };
    let target = RestoreTarget { url, data: folder.0.clone(), master, passphrase: None, random: RandomSource::system() };
    let report = restore(backup, &target, control)?;
    let schema = if has_database { Some(schema_of(&path)?) } else { None };
    Ok(RestoredBackup { report, schema, known_schema: sql::newest_schema(), folder })
}

fn schema_of(path: &Path) -> Result<i64, StoreError> {
    let failed = |error: rusqlite::Error| StoreError::Corrupt { database: path.display().to_string(), detail: error.to_string() };
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    let newest = connection.query_row("SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations", [], |row| row.get(0));
    newest.map_err(failed)
}
