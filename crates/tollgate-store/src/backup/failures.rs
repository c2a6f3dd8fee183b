//! Scheduled backups that failed, as small files in the folder of backups. Consecutive failures share one file, named after the
//! first of them, so that a fault that lasts for days does not hide the backups made before it.

use std::{fs, io};

use serde::{Deserialize, Serialize};
use tollgate_core::Timestamp;

use super::folder::{BackupFolder, BackupOrigin};
use crate::{StoreError, data_folder};

/// Failures that are kept.
pub const MAX_FAILED_BACKUPS: usize = 10;
const PREFIX: &str = "tollgate-scheduled-";
const SUFFIX: &str = ".failed";
/// Name of a note that is being written.
const DRAFT: &str = ".tollgate-failed";
/// Largest file that is read.
const MAX_BYTES: u64 = 64 << 10;
/// Characters of a reason that are kept.
const MAX_REASON: usize = 2_000;

/// A scheduled backup that failed, or several consecutive ones.
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

/// The time in the name of a note; `None` for every text that [`name_of`] does not make.
fn parse(name: &str) -> Option<Timestamp> {
    let (day, time) = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split_once('T')?;
    let since: jiff::Timestamp = format!("{day}T{}", time.replace('-', ":")).parse().ok()?;
    let since = Timestamp(since.as_microsecond());
    (name_of(since) == name).then_some(since)
}

/// A file with the name of a note.
struct NotedFailure {
    name: String,
    /// The time in its name.
    since: Timestamp,
    /// `None` if the file is not a note, or damaged.
    failure: Option<FailedBackup>,
}

impl BackupFolder {
    /// Writes the note of a failure, which replaces the note with the same `since`, and removes the oldest notes and unreadable
    /// ones. Creates the folder.
    pub fn note_failure(&self, failure: &FailedBackup) -> Result<(), StoreError> {
        data_folder::create(self.path())?;
        let message = failure.message.chars().take(MAX_REASON).collect();
        let note = FailureNote { since: failure.since.0, at: failure.at.0, message };
        let (name, draft) = (name_of(failure.since), self.path().join(DRAFT));
        let written = serde_json::to_vec(&note).map_err(io::Error::from).and_then(|text| fs::write(&draft, text));
        // If the disk is full, the previous note is kept.
        written.and_then(|()| fs::rename(&draft, self.path().join(&name))).map_err(|error| {
            let _ = fs::remove_file(&draft);
            self.failed("write", &name)(error)
        })?;
        let (readable, damaged): (Vec<_>, Vec<_>) = self.noted()?.into_iter().partition(|noted| noted.failure.is_some());
        for old in readable.iter().skip(MAX_FAILED_BACKUPS).chain(&damaged) {
            self.forget(old);
        }
        Ok(())
    }

    /// The noted failures, newest first. Files that are not notes are skipped.
    pub fn failures(&self) -> Result<Vec<FailedBackup>, StoreError> {
        Ok(self.noted()?.into_iter().filter_map(|noted| noted.failure).collect())
    }

    /// When scheduled backups began to fail, according to the newest note; `None` if none has failed since the newest backup
    /// was made.
    pub fn failing_since(&self) -> Result<Option<Timestamp>, StoreError> {
        let newest = self.list()?.into_iter().find(|file| file.origin == BackupOrigin::Schedule).map(|file| file.made_at);
        let noted = self.failures()?.first().map(|failure| failure.since);
        Ok(noted.filter(|since| newest.is_none_or(|newest| *since > newest)))
    }

    /// The files with names of notes, newest first.
    fn noted(&self) -> Result<Vec<NotedFailure>, StoreError> {
        let entries = match fs::read_dir(self.path()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed("read", "")(error)),
        };
        let noted = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let since = parse(&name)?;
            Some(NotedFailure { failure: read(&entry).filter(|failure| name_of(failure.since) == name), name, since })
        };
        let mut noted: Vec<NotedFailure> = entries.flatten().filter_map(noted).collect();
        noted.sort_by_key(|noted| std::cmp::Reverse(noted.since));
        Ok(noted)
    }

    /// Removes the notes of failures that ended before this time. A note that cannot be removed is left, because no backup depends
    /// on it.
    pub(super) fn forget_failures_before(&self, time: Timestamp) {
        match self.noted() {
            Ok(noted) => {
                let ended = |noted: &&NotedFailure| noted.failure.as_ref().map_or(noted.since, |failure| failure.at) < time;
                noted.iter().filter(ended).for_each(|old| self.forget(old));
            }
            Err(fault) => tracing::warn!(%fault, "notes of failed backups are kept"),
        }
    }

    fn forget(&self, noted: &NotedFailure) {
        match fs::remove_file(self.path().join(&noted.name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(name = noted.name, %error, "the note of a failed backup cannot be removed");
            }
            _ => {}
        }
    }
}

/// The contents of a note.
fn read(entry: &fs::DirEntry) -> Option<FailedBackup> {
    // These are the metadata of a link itself, not of its target.
    entry.metadata().ok().filter(|file| file.is_file() && file.len() <= MAX_BYTES)?;
    let note: FailureNote = serde_json::from_slice(&fs::read(entry.path()).ok()?).ok()?;
    Some(FailedBackup { since: Timestamp(note.since), at: Timestamp(note.at), message: note.message })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(folder.list().unwrap(), [], "they are not backups");
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
    fn files_that_are_not_notes_are_not_shown() {
        let data = tempfile::TempDir::new().unwrap();
        let folder = BackupFolder::of(data.path());
        folder.note_failure(&failed(0, "no space")).unwrap();
        let note = fs::read(folder.path().join(name_of(failed(0, "").since))).unwrap();
        fs::write(folder.path().join("tollgate-scheduled-2026-11-22T18-23-29Z.failed"), &note).unwrap();
        fs::write(folder.path().join("tollgate-scheduled-x.failed"), "{}").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join(name_of(NOW.plus_ms(HOUR_MS)))).unwrap();
        assert_eq!(folder.failures().unwrap(), [failed(0, "no space")]);
    }

    fn names(folder: &BackupFolder) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn damaged_notes_are_removed_with_the_next_note() {
        let data = tempfile::TempDir::new().unwrap();
        let folder = BackupFolder::of(data.path());
        folder.note_failure(&failed(0, "no space")).unwrap();
        for hour in 1..20 {
            fs::write(folder.path().join(name_of(failed(hour, "").since)), "").unwrap();
        }
        fs::write(folder.path().join("tollgate-scheduled-mine.failed"), "").unwrap();
        folder.note_failure(&failed(20, "no space")).unwrap();
        let noted = [0, 20].map(|hour| name_of(failed(hour, "").since));
        assert_eq!(names(&folder), [&noted[..], &["tollgate-scheduled-mine.failed".to_owned()]].concat());
    }

    #[test]
    fn note_that_cannot_be_written_leaves_the_one_before() {
        let data = tempfile::TempDir::new().unwrap();
        let folder = BackupFolder::of(data.path());
        // A file cannot be renamed to the name of an existing folder.
        fs::create_dir_all(folder.path().join(name_of(failed(1, "").since)).join("below")).unwrap();
        folder.note_failure(&failed(0, "no space")).unwrap();
        assert!(folder.note_failure(&failed(1, "no space")).is_err());
        assert_eq!(folder.failures().unwrap(), [failed(0, "no space")]);
        assert_eq!(names(&folder), [0, 1].map(|hour| name_of(failed(hour, "").since)), "without the draft");
    }

    #[test]
    fn note_that_cannot_be_removed_does_not_fail_a_finished_backup() {
        let data = tempfile::TempDir::new().unwrap();
        let folder = BackupFolder::of(data.path());
        fs::create_dir_all(folder.path().join(name_of(NOW)).join("below")).unwrap();
        fs::write(folder.target(BackupOrigin::Schedule, NOW.plus_ms(HOUR_MS)).unwrap(), "x").unwrap();
        assert_eq!(folder.remove_old(1).unwrap(), Vec::<String>::new());
        folder.note_failure(&failed(2, "no space")).unwrap();
    }

    #[test]
    fn backups_fail_since_the_newest_note_unless_one_was_made_after_it() {
        let data = tempfile::TempDir::new().unwrap();
        let folder = BackupFolder::of(data.path());
        assert_eq!(folder.failing_since().unwrap(), None);
        folder.note_failure(&failed(1, "no space")).unwrap();
        assert_eq!(folder.failing_since().unwrap(), Some(failed(1, "").since), "no backup was ever made");
        fs::write(folder.target(BackupOrigin::Schedule, NOW.plus_ms(2 * HOUR_MS)).unwrap(), "x").unwrap();
        assert_eq!(folder.failing_since().unwrap(), None);
        folder.note_failure(&failed(3, "no space")).unwrap();
        fs::write(folder.target(BackupOrigin::Request, NOW.plus_ms(4 * HOUR_MS)).unwrap(), "x").unwrap();
        assert_eq!(folder.failing_since().unwrap(), Some(failed(3, "").since), "a backup on request is not a scheduled one");
    }
}
