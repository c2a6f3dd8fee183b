//! The folder of the backups that a running gateway makes, `<data>/backups` unless the settings name another one. Names are generated
//! here. A name from a request is accepted only if it has the form of a generated one. The result of the last check of a backup is a
//! small file beside it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tollgate_core::Timestamp;

use super::{COPY, DRAFT, free_bytes};
use crate::{StoreError, data_folder};

const PREFIX: &str = "tollgate-";
/// Follows the prefix in the names of scheduled backups.
const SCHEDULED: &str = "scheduled-";
const SUFFIX: &str = ".backup";
/// Ending of the file with the result of a backup's last check.
const NOTE: &str = ".checked";
/// Prefix of the names of files that test whether backups can be written, followed by process id and a number.
const PROBE: &str = ".tollgate-probe-";
/// Number of names that are tried, in case files with some names exist and cannot be removed.
const MAX_PROBES: u32 = 100;
/// Folder into which backups are restored for a check.
const SCRATCH: &str = ".tollgate-check";

/// The folder of a running gateway's backups. Names are checked before they become paths.
#[derive(Clone, Debug)]
pub struct BackupFolder {
    path: PathBuf,
}

/// A backup in the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    pub name: String,
    pub bytes: u64,
    pub made_at: Timestamp,
    pub origin: BackupOrigin,
    /// Result of its last check.
    pub note: Option<BackupNote>,
}

/// A folder that backups can be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolderProbe {
    /// True if the folder exists; otherwise it can be created.
    pub exists: bool,
    /// Bytes free on its disk; `None`: unknown.
    pub free: Option<u64>,
}

/// Why a backup was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupOrigin {
    Request,
    Schedule,
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupNote {
    /// Microseconds since 1970 (UTC).
    pub at: i64,
    /// Why the backup failed the check; `None` if it passed.
    pub fault: Option<String>,
}

/// The name of a backup made in this second, such as `tollgate-2026-11-22T18-23-29Z.backup`.
fn name_of(origin: BackupOrigin, made_at: Timestamp) -> String {
    let scheduled = if origin == BackupOrigin::Schedule { SCHEDULED } else { "" };
    format!("{PREFIX}{scheduled}{}{SUFFIX}", made_at.to_string().replace(':', "-"))
}

/// Why and when the backup of this name was made; `None` for every text that [`name_of`] does not make.
fn parse(name: &str) -> Option<(BackupOrigin, Timestamp)> {
    let text = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let (origin, text) = match text.strip_prefix(SCHEDULED) {
        Some(text) => (BackupOrigin::Schedule, text),
        None => (BackupOrigin::Request, text),
    };
    let (day, time) = text.split_once('T')?;
    let at: jiff::Timestamp = format!("{day}T{}", time.replace('-', ":")).parse().ok()?;
    let at = Timestamp(at.as_microsecond());
    (name_of(origin, at) == name).then_some((origin, at))
}

impl BackupFolder {
    pub fn of(data: &Path) -> Self {
        Self::at(data.join("backups"))
    }

    /// The folder at this path, which no other gateway uses.
    pub const fn at(path: PathBuf) -> Self {
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder into which a backup is restored for a check; one is checked at a time.
    pub fn scratch(&self) -> PathBuf {
        self.path.join(SCRATCH)
    }

    pub(super) fn failed(&self, action: &'static str, name: &str) -> impl FnOnce(io::Error) -> StoreError {
        let path = self.path.join(name);
        move |source| StoreError::File { action, path, source }
    }

    /// Path for a backup made at this time. Creates the folder and removes the temporary files of backups that were killed, so no
    /// other backup may be in progress.
    pub fn target(&self, origin: BackupOrigin, now: Timestamp) -> Result<PathBuf, StoreError> {
        data_folder::create(&self.path)?;
        for entry in fs::read_dir(&self.path).map_err(self.failed("read", ""))?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let temporary = name.rsplit_once('.').is_some_and(|(backup, what)| {
                let is_temporary = [DRAFT, COPY].iter().any(|kind| what.strip_prefix(kind).is_some_and(|id| id.starts_with('-')));
                is_temporary && parse(backup).is_some()
            });
            if temporary {
                fs::remove_file(entry.path()).map_err(self.failed("remove", &name))?;
            }
        }
        let mut at = now;
        while self.path.join(name_of(origin, at)).exists() {
            at = at.plus_ms(1_000);
        }
        Ok(self.path.join(name_of(origin, at)))
    }

    /// Tests whether backups can be written: creates a file in the folder, or in the nearest existing folder above it, and removes
    /// it again, together with files that killed processes left.
    ///
    /// # Errors
    /// When no file can be made there.
    pub fn probe(&self) -> Result<FolderProbe, StoreError> {
        // The last parent of a relative path is the empty path: the current folder.
        let mut above = self.path.ancestors().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
        let nearest = above.find(|folder| folder.exists()).unwrap_or(Path::new("."));
        try_file_in(nearest).map_err(|source| StoreError::File { action: "make a file in", path: nearest.to_owned(), source })?;
        Ok(FolderProbe { exists: nearest == self.path, free: free_bytes(nearest) })
    }

    /// The existing backups, newest first.
    pub fn list(&self) -> Result<Vec<BackupFile>, StoreError> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed("read", "")(error)),
        };
        let named = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let ((origin, made_at), file) = (parse(&name)?, entry.metadata().ok()?);
            // These are the metadata of a link itself, not of its target.
            file.is_file().then(|| BackupFile { note: self.note(&name), name, bytes: file.len(), made_at, origin })
        };
        let mut files: Vec<BackupFile> = entries.flatten().filter_map(named).collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.made_at));
        Ok(files)
    }

    /// Opens a backup and returns its size; `None` if there is none of this name.
    pub fn open(&self, name: &str) -> Result<Option<(fs::File, u64)>, StoreError> {
        if !self.has(name) {
            return Ok(None);
        }
        let opened = fs::File::open(self.path.join(name)).and_then(|file| Ok((file.metadata()?.len(), file)));
        opened.map(|(bytes, file)| Some((file, bytes))).map_err(self.failed("read", name))
    }

    /// Removes a backup. Returns whether there was one of this name.
    pub fn remove(&self, name: &str) -> Result<bool, StoreError> {
        if !self.has(name) {
            return Ok(false);
        }
        let _ = fs::remove_file(self.note_path(name));
        remove_file(&self.path.join(name)).map_err(self.failed("remove", name))
    }

    /// Removes the scheduled backups beyond the newest `kept` ones and the notes of failures before those, and returns their names.
    pub fn remove_old(&self, kept: usize) -> Result<Vec<String>, StoreError> {
        let scheduled: Vec<BackupFile> = self.list()?.into_iter().filter(|file| file.origin == BackupOrigin::Schedule).collect();
        let names: Vec<String> = scheduled.iter().skip(kept).map(|file| file.name.clone()).collect();
        for name in &names {
            self.remove(name)?;
        }
        if let Some(oldest) = kept.checked_sub(1).and_then(|last| scheduled.get(last)) {
            self.forget_failures_before(oldest.made_at);
        }
        Ok(names)
    }

    /// The path of a backup; `None` if there is none of this name.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        self.has(name).then(|| self.path.join(name))
    }

    /// Stores the result of a check of a backup.
    pub fn set_note(&self, name: &str, note: &BackupNote) -> Result<(), StoreError> {
        if !self.has(name) {
            return Ok(());
        }
        let text = serde_json::to_vec(note).map_err(io::Error::from);
        text.and_then(|text| fs::write(self.note_path(name), text)).map_err(self.failed("write", name))
    }

    fn note(&self, name: &str) -> Option<BackupNote> {
        serde_json::from_slice(&fs::read(self.note_path(name)).ok()?).ok()
    }

    fn note_path(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{NOTE}"))
    }

    /// Whether there is a backup of this name: a regular file, not a symbolic link.
    fn has(&self, name: &str) -> bool {
        parse(name).is_some() && fs::symlink_metadata(self.path.join(name)).is_ok_and(|file| file.is_file())
    }
}

/// Creates a file in a folder and removes it, together with files that killed processes left.
fn try_file_in(folder: &Path) -> io::Result<()> {
    // This may remove the file of another process that tests at the same time, which is harmless: only creating it
    // matters.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PROBE) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let made = (0..MAX_PROBES).find_map(|number| {
        let file = folder.join(format!("{PROBE}{}-{number}", std::process::id()));
        match fs::File::create_new(&file) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            made => Some(made.map(|_| file)),
        }
    });
    remove_file(&made.unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))?).map(drop)
}

/// Removes a file. Returns whether it existed.
fn remove_file(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        removed => removed.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BackupOrigin::{Request, Schedule},
        *,
    };

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    #[test]
    fn only_generated_backup_names_are_accepted() {
        for origin in [Request, Schedule] {
            assert_eq!(parse(&name_of(origin, NOW)), Some((origin, NOW)));
        }
        for name in [
            "",
            ".",
            "..",
            "tollgate.db",
            "tollgate-.backup",
            "tollgate-2026-11-22T18-23-29Z.backup/..",
            "../tollgate-2026-11-22T18-23-29Z.backup",
            "/etc/tollgate-2026-11-22T18-23-29Z.backup",
            "tollgate-../2026-11-22T18-23-29Z.backup",
            "tollgate-2026-11-22T18-23-29.5Z.backup",
            "tollgate-2026-11-22T18-23-29+00-00.backup",
            "tollgate-2026-11-31T18-23-29Z.backup",
            "tollgate-2026-11-22T18:23:29Z.backup",
            "tollgate-2026-11-22T18-23-29Z.backup.new-7",
            "tollgate-2026-11-22T18-23-29Z.backup\0",
            "tollgate-scheduled-scheduled-2026-11-22T18-23-29Z.backup",
            "tollgate-scheduled-2026-11-22T18-23-29Z.backup.checked",
        ] {
            assert_eq!(parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn files_outside_the_folder_are_neither_opened_nor_removed() {
        let data = tempfile::TempDir::new().unwrap();
        let folder = BackupFolder::of(data.path());
        assert_eq!(folder.list().unwrap(), []);
        fs::write(data.path().join("master.key"), "secret").unwrap();
        let target = folder.target(Request, NOW).unwrap();
        fs::write(&target, "backup").unwrap();
        let linked = name_of(Request, NOW.plus_ms(1_000));
        std::os::unix::fs::symlink(data.path().join("master.key"), data.path().join("backups").join(&linked)).unwrap();
        for name in ["../master.key", "..", "", "master.key", &linked] {
            assert!(folder.open(name).unwrap().is_none() && !folder.remove(name).unwrap(), "{name}");
        }
        assert!(data.path().join("master.key").exists());
        let name = name_of(Request, NOW);
        assert_eq!(
            folder.list().unwrap(),
            [BackupFile { name: name.clone(), bytes: 6, made_at: NOW, origin: Request, note: None }]
        );
        assert_eq!(
            folder.target(Request, NOW).unwrap().file_name().unwrap(),
            &*name_of(Request, NOW.plus_ms(2_000)),
            "nothing is replaced"
        );
        assert_eq!(folder.open(&name).unwrap().unwrap().1, 6);
        assert!(folder.remove(&name).unwrap() && !target.exists() && !folder.remove(&name).unwrap());
    }

    #[test]
    fn probe_finds_whether_backups_can_be_written() {
        let data = tempfile::TempDir::new().unwrap();
        let folder = BackupFolder::of(data.path());
        let probed = folder.probe().unwrap();
        assert!(!probed.exists && probed.free.is_some(), "it can be made");
        fs::create_dir(folder.path()).unwrap();
        assert!(folder.probe().unwrap().exists);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the file is removed again");
        let file = data.path().join("a-file");
        fs::write(&file, "x").unwrap();
        for path in [file.clone(), file.join("below").join("it")] {
            let fault = BackupFolder::at(path).probe().unwrap_err().to_string();
            assert!(fault.contains("cannot make a file in") && fault.contains("a-file"), "{fault}");
        }
        assert!(BackupFolder::at(PathBuf::from("no-such-folder/below")).probe().is_ok(), "below the current folder");
    }

    #[test]
    fn probe_is_not_stopped_by_files_that_others_left() {
        let data = tempfile::TempDir::new().unwrap();
        let process = std::process::id();
        for name in [format!("{PROBE}{process}"), format!("{PROBE}{process}-0"), format!("{PROBE}1-7")] {
            fs::write(data.path().join(name), "").unwrap();
        }
        let folder = BackupFolder::at(data.path().to_owned());
        folder.probe().unwrap();
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0, "they are removed");
        fs::create_dir(data.path().join(format!("{PROBE}{process}-0"))).unwrap();
        folder.probe().unwrap();
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1, "one that cannot be removed");
        let together = || (0..50).all(|_| folder.probe().is_ok());
        std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(together));
            assert!(threads.into_iter().all(|thread| thread.join().unwrap()), "several at once");
        });
    }

    #[test]
    fn files_of_a_killed_backup_are_removed_before_the_next_one() {
        let data = tempfile::TempDir::new().unwrap();
        let folder = BackupFolder::of(data.path());
        let target = folder.target(Request, NOW).unwrap();
        for path in [super::super::beside(&target, DRAFT), super::super::beside(&target, COPY), target.with_extension("note")] {
            fs::write(path, "x").unwrap();
        }
        folder.target(Request, NOW).unwrap();
        let left: Vec<_> = fs::read_dir(data.path().join("backups")).unwrap().flatten().map(|it| it.file_name()).collect();
        assert_eq!(left, [target.with_extension("note").file_name().unwrap()]);
    }

    #[test]
    fn old_scheduled_backups_are_removed_with_the_results_of_their_checks() {
        let data = tempfile::TempDir::new().unwrap();
        let folder = BackupFolder::of(data.path());
        let by_hand = folder.target(Request, NOW).unwrap();
        fs::write(&by_hand, "x").unwrap();
        for hour in 1..=4 {
            fs::write(folder.target(Schedule, NOW.plus_ms(hour * 3_600_000)).unwrap(), "x").unwrap();
        }
        let oldest = name_of(Schedule, NOW.plus_ms(3_600_000));
        let note = BackupNote { at: NOW.0, fault: Some("the sums differ".to_owned()) };
        folder.set_note(&oldest, &note).unwrap();
        let listed = folder.list().unwrap();
        assert_eq!(listed.iter().map(|file| file.note.clone()).collect::<Vec<_>>(), [None, None, None, Some(note), None]);
        assert_eq!(folder.remove_old(3).unwrap(), std::slice::from_ref(&oldest));
        assert!(folder.find(&oldest).is_none() && !folder.note_path(&oldest).exists() && by_hand.exists());
        assert_eq!(folder.list().unwrap().len(), 4, "those that were made by hand are not counted");
        assert_eq!(folder.remove_old(3).unwrap(), Vec::<String>::new());
    }
}
