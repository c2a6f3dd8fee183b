//! The folder of the backups that a running gateway makes, `<data>/backups`. Names are generated here. A name from a request is
//! accepted only if it has the form of a generated one.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tollgate_core::Timestamp;

use super::{COPY, DRAFT};
use crate::{StoreError, data_folder};

const PREFIX: &str = "tollgate-";
const SUFFIX: &str = ".backup";

#[derive(Clone, Debug)]
pub struct BackupFolder {
    path: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    pub name: String,
    pub bytes: u64,
    pub made_at: Timestamp,
}

/// The name of a backup made in this second, such as `tollgate-2026-11-22T18-23-29Z.backup`.
fn name_of(made_at: Timestamp) -> String {
    format!("{PREFIX}{}{SUFFIX}", made_at.to_string().replace(':', "-"))
}

/// When the backup of this name was made; `None` for every text that [`name_of`] does not make.
fn made_at(name: &str) -> Option<Timestamp> {
    let (day, time) = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split_once('T')?;
    let at: jiff::Timestamp = format!("{day}T{}", time.replace('-', ":")).parse().ok()?;
    let at = Timestamp(at.as_microsecond());
    (name_of(at) == name).then_some(at)
}

impl BackupFolder {
    pub fn of(data: &Path) -> Self {
        Self { path: data.join("backups") }
    }

    fn failed(&self, action: &'static str, name: &str) -> impl FnOnce(io::Error) -> StoreError {
        let path = self.path.join(name);
        move |source| StoreError::File { action, path, source }
    }

    /// Path for a backup made at this time. Creates the folder and removes the temporary files of backups that were killed, so no
    /// other backup may be in progress.
    pub fn target(&self, now: Timestamp) -> Result<PathBuf, StoreError> {
        data_folder::create(&self.path)?;
        for entry in fs::read_dir(&self.path).map_err(self.failed("read", ""))?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let temporary = name.rsplit_once('.').is_some_and(|(backup, what)| {
                let is_temporary = [DRAFT, COPY].iter().any(|kind| what.strip_prefix(kind).is_some_and(|id| id.starts_with('-')));
                is_temporary && made_at(backup).is_some()
            });
            if temporary {
                fs::remove_file(entry.path()).map_err(self.failed("remove", &name))?;
            }
        }
        let mut at = now;
        while self.path.join(name_of(at)).exists() {
            at = at.plus_ms(1_000);
        }
        Ok(self.path.join(name_of(at)))
    }

    /// The backups that are there, newest first.
    pub fn list(&self) -> Result<Vec<BackupFile>, StoreError> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed("read", "")(error)),
        };
        let named = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let (made_at, file) = (made_at(&name)?, entry.metadata().ok()?);
            // The metadata are those of a link itself.
            file.is_file().then_some(BackupFile { name, bytes: file.len(), made_at })
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
        fs::remove_file(self.path.join(name)).map(|()| true).map_err(self.failed("remove", name))
    }

    /// Whether there is a backup of this name: a regular file, not a symbolic link.
    fn has(&self, name: &str) -> bool {
        made_at(name).is_some() && fs::symlink_metadata(self.path.join(name)).is_ok_and(|file| file.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    #[test]
    fn only_generated_backup_names_are_accepted() {
        assert_eq!(made_at(&name_of(NOW)), Some(NOW));
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
        ] {
            assert_eq!(made_at(name), None, "{name:?}");
        }
    }

    #[test]
    fn files_outside_the_folder_are_neither_opened_nor_removed() {
        let data = tempfile::TempDir::new().unwrap();
        let folder = BackupFolder::of(data.path());
        assert_eq!(folder.list().unwrap(), []);
        fs::write(data.path().join("master.key"), "secret").unwrap();
        let target = folder.target(NOW).unwrap();
        fs::write(&target, "backup").unwrap();
        let linked = name_of(NOW.plus_ms(1_000));
        std::os::unix::fs::symlink(data.path().join("master.key"), data.path().join("backups").join(&linked)).unwrap();
        for name in ["../master.key", "..", "", "master.key", &linked] {
            assert!(folder.open(name).unwrap().is_none() && !folder.remove(name).unwrap(), "{name}");
        }
        assert!(data.path().join("master.key").exists());
        let name = name_of(NOW);
        assert_eq!(folder.list().unwrap(), [BackupFile { name: name.clone(), bytes: 6, made_at: NOW }]);
        assert_eq!(folder.target(NOW).unwrap().file_name().unwrap(), &*name_of(NOW.plus_ms(2_000)), "nothing is replaced");
        assert_eq!(folder.open(&name).unwrap().unwrap().1, 6);
        assert!(folder.remove(&name).unwrap() && !target.exists() && !folder.remove(&name).unwrap());
    }

    #[test]
    fn files_of_a_killed_backup_are_removed_before_the_next_one() {
        let data = tempfile::TempDir::new().unwrap();
        let folder = BackupFolder::of(data.path());
        let target = folder.target(NOW).unwrap();
        for path in [super::super::beside(&target, DRAFT), super::super::beside(&target, COPY), target.with_extension("note")] {
            fs::write(path, "x").unwrap();
        }
        folder.target(NOW).unwrap();
        let left: Vec<_> = fs::read_dir(data.path().join("backups")).unwrap().flatten().map(|it| it.file_name()).collect();
        assert_eq!(left, [target.with_extension("note").file_name().unwrap()]);
    }
}
