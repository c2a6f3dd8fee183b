//! Scheduled backups that failed, as small files in the folder of backups. Failures in a row are one, named by the first of them, so
//! that a fault that stays for days does not hide the backups before it.

use std::{fs, io};

use serde::{Deserialize, Serialize};
use tollgate_core::Timestamp;

use super::folder::BackupFolder;
use crate::{StoreError, data_folder};

/// Failures that are kept.
pub const MAX_FAILED_BACKUPS: usize = 10;
const PREFIX: &str = "tollgate-scheduled-";
const SUFFIX: &str = ".failed";
/// Largest file that is read.
const MAX_BYTES: u64 = 64 << 10;
/// Characters of a reason that are kept.
const MAX_REASON: usize = 2_000;

/// A scheduled backup that failed, or several in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedBackup {
    /// The first failure since a backup was made.
    pub since: Timestamp,
    /// The last failure.
    pub at: Timestamp,
    pub message: String,
}

/// The contents of a file; times are microseconds since 1970 (UTC).
#[derive(Serialize, Deserialize)]
struct FailureNote {
    since: i64,
    at: i64,
    message: String,
}

fn name_of(since: Timestamp) -> String {
    format!("{PREFIX}{}{SUFFIX}", since.to_string().replace(':', "-"))
}

impl BackupFolder {
    /// Notes a failure, in place of the note with the same `since`, and removes the oldest notes. Creates the folder.
    pub fn note_failure(&self, failure: &FailedBackup) -> Result<(), StoreError> {
        data_folder::create(self.path())?;
        let message = failure.message.chars().take(MAX_REASON).collect();
        let note = FailureNote { since: failure.since.0, at: failure.at.0, message };
        let name = name_of(failure.since);
        let written = serde_json::to_vec(&note).map_err(io::Error::from);
        let written = written.and_then(|text| fs::write(self.path().join(&name), text));
        written.map_err(self.failed("write", &name))?;
        for old in self.failures()?.iter().skip(MAX_FAILED_BACKUPS) {
            self.forget(old)?;
        }
        Ok(())
    }

    /// The failures that are noted, newest first. Files that are no notes are left out.
    pub fn failures(&self) -> Result<Vec<FailedBackup>, StoreError> {
        let entries = match fs::read_dir(self.path()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed("read", "")(error)),
        };
        let noted = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            // The metadata are those of a link itself.
            let is_small_file = entry.metadata().is_ok_and(|file| file.is_file() && file.len() <= MAX_BYTES);
            if !is_small_file || !name.starts_with(PREFIX) || !name.ends_with(SUFFIX) {
                return None;
            }
            let note: FailureNote = serde_json::from_slice(&fs::read(entry.path()).ok()?).ok()?;
            let failure = FailedBackup { since: Timestamp(note.since), at: Timestamp(note.at), message: note.message };
            (name_of(failure.since) == name).then_some(failure)
        };
        let mut failures: Vec<FailedBackup> = entries.flatten().filter_map(noted).collect();
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.since));
        Ok(failures)
    }

    /// Removes the notes of failures that ended before this time.
    pub(super) fn forget_failures_before(&self, time: Timestamp) -> Result<(), StoreError> {
        for failure in self.failures()?.iter().filter(|failure| failure.at < time) {
            self.forget(failure)?;
        }
        Ok(())
    }

    fn forget(&self, failure: &FailedBackup) -> Result<(), StoreError> {
        let name = name_of(failure.since);
        fs::remove_file(self.path().join(&name)).map_err(self.failed("remove", &name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::BackupOrigin;

    const NOW: Timestamp = Timestamp(1_795_000_000_123_456);
    const HOUR_MS: i64 = 3_600_000;

    fn failed(hour: i64, message: &str) -> FailedBackup {
        FailedBackup { since: NOW.plus_ms(hour * HOUR_MS), at: NOW.plus_ms(hour * HOUR_MS + 5), message: message.to_owned() }
    }

    #[test]
    fn failures_in_a_row_are_one_and_old_ones_are_removed() {
        let data = tempfile::TempDir::new().unwrap();
        let folder = BackupFolder::of(data.path());
        assert_eq!(folder.failures().unwrap(), []);
        folder.note_failure(&failed(0, "no space")).unwrap();
        let again = FailedBackup { at: NOW.plus_ms(600_000), ..failed(0, "still no space") };
        folder.note_failure(&again).unwrap();
        assert_eq!(folder.failures().unwrap(), [again]);
        assert_eq!(folder.list().unwrap(), [], "they are no backups");
        for hour in 1..15 {
            folder.note_failure(&failed(hour, &"x".repeat(5_000))).unwrap();
        }
        let kept = folder.failures().unwrap();
        assert_eq!((kept.len(), kept[0].since), (MAX_FAILED_BACKUPS, failed(14, "").since));
        assert_eq!(kept[0].message.len(), MAX_REASON);
    }

    #[test]
    fn failures_are_removed_with_the_backups_after_them() {
        let data = tempfile::TempDir::new().unwrap();
        let folder = BackupFolder::of(data.path());
        for hour in [1, 3, 5] {
            folder.note_failure(&failed(hour, "no space")).unwrap();
            fs::write(folder.target(BackupOrigin::Schedule, NOW.plus_ms((hour + 1) * HOUR_MS)).unwrap(), "x").unwrap();
        }
        let hours =
            || -> Vec<i64> { folder.failures().unwrap().iter().map(|failure| failure.since.ms_since(NOW) / HOUR_MS).collect() };
        folder.remove_old(4).unwrap();
        assert_eq!(hours(), [5, 3, 1], "there are fewer backups than are kept");
        assert_eq!(folder.remove_old(2).unwrap().len(), 1);
        assert_eq!(hours(), [5], "the failure before the oldest backup is of no interest");
    }

    #[test]
    fn files_that_are_no_notes_are_not_shown() {
        let data = tempfile::TempDir::new().unwrap();
        let folder = BackupFolder::of(data.path());
        folder.note_failure(&failed(0, "no space")).unwrap();
        let note = fs::read(folder.path().join(name_of(failed(0, "").since))).unwrap();
        fs::write(folder.path().join("tollgate-scheduled-2026-11-22T18-23-29Z.failed"), &note).unwrap();
        fs::write(folder.path().join("tollgate-scheduled-x.failed"), "{}").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join(name_of(NOW.plus_ms(HOUR_MS)))).unwrap();
        assert_eq!(folder.failures().unwrap(), [failed(0, "no space")]);
    }
}
