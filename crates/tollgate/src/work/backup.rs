//! Writes a backup of a data folder.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tollgate_core::Secret;
use tollgate_store::{BackupReport, BackupSource, RandomSource, StoreUrl, WorkControl, back_up};

use crate::{compose, config::Config, failure::Failure, traffic_snapshot};

/// Output of `backup`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BackupOutcome {
    /// Path of the file; over the admin API its name on the gateway's disk.
    pub(crate) file: String,
    pub(crate) bytes: u64,
    /// Usage records in the copy of the database; none if it is not in the backup.
    pub(crate) records: Option<u64>,
    pub(crate) journal_segments: usize,
    pub(crate) master_key: bool,
    /// Whether the database is in it.
    pub(crate) database: bool,
    /// Address of a database that is not in it, without its password.
    pub(crate) database_address: Option<String>,
    /// Requests that are in no file yet.
    pub(crate) in_memory_only: usize,
}

/// Backs up journal, database and, under a passphrase, the master key.
pub(crate) fn backup(
    config: &Config,
    passphrase: Option<Secret>,
    file: &Path,
    control: &WorkControl,
) -> Result<BackupOutcome, Failure> {
    let source = BackupSource {
        url: compose::store_url(config)?,
        data: config.data.clone(),
        master: compose::master_key(config)?,
        passphrase,
        random: RandomSource::system(),
        now: compose::now(),
    };
    if let StoreUrl::Sqlite(path) = &source.url
        && !path.exists()
    {
        return Err(Failure::Machine(format!("there is no database at {}; check --data", path.display())));
    }
    let in_memory_only = traffic_snapshot::read(&config.data, compose::now()).in_memory_only;
    let BackupReport { records, segments, has_master_key, bytes } = back_up(&source, file, control)?;
    Ok(BackupOutcome {
        file: file.display().to_string(),
        bytes,
        records,
        journal_segments: segments,
        master_key: has_master_key,
        database: records.is_some(),
        database_address: records.is_none().then(|| source.url.shown()),
        in_memory_only,
    })
}
