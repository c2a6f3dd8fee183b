//! Checks a backup: restores it into a temporary folder and verifies the result. The check finds the same faults as a restoration.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tollgate_store::{BackupFolder, BackupNote, MasterKeySource, RestoredBackup, StoreUrl, WorkControl, restore_to_check};

use super::verify::{VerifyOutcome, verify};
use crate::{compose, config::Config, failure::Failure};

/// Maximum number of characters of a stored fault.
const MAX_FAULT: usize = 2_000;

/// Output of `restore --check`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BackupCheckOutcome {
    /// Path of the backup; over the admin API its name on the gateway's disk.
    pub(crate) file: String,
    pub(crate) made_at: String,
    pub(crate) journal_segments: usize,
    /// Usage records in the database; none if it is not in the backup.
    pub(crate) records: Option<u64>,
    /// Version of the schema of the database in it.
    pub(crate) schema: Option<i64>,
    /// Version of the schema of this program.
    pub(crate) known_schema: i64,
    /// What `verify` finds in the restored folder; none without a database.
    pub(crate) verified: Option<VerifyOutcome>,
}

impl BackupCheckOutcome {
    /// The error of the command when the sums do not agree.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.verified.as_ref()?.failure()
    }
}

/// Checks the backup at this path in the folder `scratch`.
pub(crate) fn check(
    config: &Config,
    backup: &Path,
    scratch: PathBuf,
    control: &WorkControl,
) -> Result<BackupCheckOutcome, Failure> {
    let has_database = matches!(compose::store_url(config)?, StoreUrl::Sqlite(_));
    let master = match compose::master_key(config)? {
        MasterKeySource::DataFolder => MasterKeySource::File(config.data.join("master.key")),
        master @ (MasterKeySource::File(_) | MasterKeySource::Text(_)) => master,
    };
    let restored = restore_to_check(backup, scratch, has_database, master, control)?;
    let verified = if has_database { Some(verify(&settings_of(config, &restored), control)?) } else { None };
    Ok(BackupCheckOutcome {
        file: backup.display().to_string(),
        made_at: restored.report.made_at.to_string(),
        journal_segments: restored.report.segments,
        records: restored.report.records,
        schema: restored.schema,
        known_schema: restored.known_schema,
        verified,
    })
}

/// These settings with the folder into which a backup was restored.
fn settings_of(config: &Config, restored: &RestoredBackup) -> Config {
    let key = config.master_key.clone().unwrap_or_else(|| format!("file:{}", config.data.join("master.key").display()));
    Config { data: restored.data().to_owned(), database_url: None, master_key: Some(key), ..config.clone() }
}

/// Checks a backup of the gateway's folder, and stores the result beside it.
pub(crate) fn check_kept(config: &Config, name: &str, control: &WorkControl) -> Result<BackupCheckOutcome, Failure> {
    let folder = compose::backup_folder(config);
    let Some(path) = folder.find(name) else {
        return Err(Failure::Machine(format!("there is no backup {name} on the gateway's disk")));
    };
    let checked = check(config, &path, folder.scratch(), control);
    let checked = checked.map(|outcome| BackupCheckOutcome { file: name.to_owned(), ..outcome });
    if !control.is_cancelled() {
        let fault = match &checked {
            Ok(outcome) => outcome.failure().map(|failure| failure.to_string()),
            Err(failure) => Some(failure.to_string()),
        };
        note(&folder, name, fault);
    }
    checked
}

fn note(folder: &BackupFolder, name: &str, fault: Option<String>) {
    let fault = fault.map(|fault| fault.chars().take(MAX_FAULT).collect());
    let note = BackupNote { at: compose::now().0, fault };
    if let Err(fault) = folder.set_note(name, &note) {
        tracing::warn!(%fault, "the result of a backup's check was not stored");
    }
}
