//! The file of a backup: entries that are hashed as they are written and read, and a manifest at the end.

use std::{
    fs::{self, File},
    io::{self, Read, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tollgate_core::Timestamp;

use crate::{StoreError, WorkControl, journal};

pub(super) const DATABASE: &str = "tollgate.db";
pub(super) const BOOKED: &str = "journal/booked";
pub(super) const MASTER_KEY: &str = "master.key.sealed";
const MANIFEST: &str = "manifest.json";
/// Version of the format.
const FORMAT: u32 = 1;
/// Limit of the manifest in bytes.
const MAX_MANIFEST: u64 = 16 << 20;

/// The last entry.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    program: String,
    /// Microseconds since 1970 (UTC).
    pub(super) made_at: i64,
    /// `sqlite`, or `postgres` for a backup without a database.
    pub(super) database: String,
    files: Vec<ManifestFile>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ManifestFile {
    name: String,
    bytes: u64,
    sha256: String,
}

/// Writes the file.
pub(super) struct ArchiveWriter<'a> {
    tar: tar::Builder<File>,
    path: PathBuf,
    made_at: Timestamp,
    files: Vec<ManifestFile>,
    control: &'a WorkControl,
}

impl<'a> ArchiveWriter<'a> {
    pub(super) fn create(path: &Path, made_at: Timestamp, control: &'a WorkControl) -> Result<Self, StoreError> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|source| StoreError::File { action: "write", path: path.to_owned(), source })?;
        Ok(Self { tar: tar::Builder::new(file), path: path.to_owned(), made_at, files: Vec::new(), control })
    }

    fn failed(&self, source: io::Error) -> StoreError {
        StoreError::File { action: "write", path: self.path.clone(), source }
    }

    pub(super) fn add(&mut self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.append(name, bytes.len() as u64, bytes)
    }

    pub(super) fn add_file(&mut self, name: &str, path: &Path) -> Result<(), StoreError> {
        let failed = |source| StoreError::File { action: "read", path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let from = ReportedRead { inner: file, done: 0, total: bytes, control: self.control };
        self.append(name, bytes, from)
    }

    fn append(&mut self, name: &str, bytes: u64, from: impl Read) -> Result<(), StoreError> {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(self.made_at.0 / 1_000_000).unwrap_or(0));
        let mut from = Hashed { inner: from, sha256: Sha256::new(), bytes: 0 };
        let added = self.tar.append_data(&mut header, name, &mut from);
        added.map_err(|source| self.failed(source))?;
        let Hashed { sha256, bytes: read, .. } = from;
        if read != bytes {
            return Err(self.failed(io::Error::other(format!("{name} changed while it was read"))));
        }
        if name != MANIFEST {
            self.files.push(ManifestFile { name: name.to_owned(), bytes, sha256: hex::encode(sha256.finalize()) });
        }
        Ok(())
    }

    /// Writes the manifest and flushes; returns the size of the file.
    pub(super) fn finish(mut self, database: &str) -> Result<u64, StoreError> {
        let manifest = Manifest {
            format: FORMAT,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            made_at: self.made_at.0,
            database: database.to_owned(),
            files: std::mem::take(&mut self.files),
        };
        let text = serde_json::to_vec_pretty(&manifest).expect("strings and numbers are valid JSON");
        self.add(MANIFEST, &text)?;
        let Self { tar, path, .. } = self;
        let finished = tar.into_inner().and_then(|mut file| {
            file.flush()?;
            file.sync_all()?;
            file.metadata()
        });
        finished.map(|metadata| metadata.len()).map_err(|source| StoreError::File { action: "write", path, source })
    }
}

/// A reader that reports the bytes read and fails when the work is cancelled.
struct ReportedRead<'a, R> {
    inner: R,
    done: u64,
    total: u64,
    control: &'a WorkControl,
}

impl<R: Read> Read for ReportedRead<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.control.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        let read = self.inner.read(buffer)?;
        self.done += read as u64;
        self.control.report("archive", self.done, Some(self.total));
        Ok(read)
    }
}

/// A reader that hashes what passes.
struct Hashed<R> {
    inner: R,
    sha256: Sha256,
    bytes: u64,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.sha256.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

/// Unpacks a backup into a folder and checks it against its manifest. Entries with unknown names are refused.
pub(super) fn unpack(backup: &Path, into: &Path, control: &WorkControl) -> Result<Manifest, StoreError> {
    let damaged = |detail: String| StoreError::Backup { path: backup.to_owned(), detail };
    let reading = |source| StoreError::File { action: "read", path: backup.to_owned(), source };
    let not_whole = |error: io::Error| damaged(format!("it is not a whole backup: {error}"));
    let mut archive = tar::Archive::new(File::open(backup).map_err(reading)?);
    let (mut files, mut manifest) = (Vec::new(), None);
    for entry in archive.entries().map_err(not_whole)? {
        let entry = entry.map_err(not_whole)?;
        let name = entry.path().map_err(not_whole)?.to_string_lossy().into_owned();
        if name == MANIFEST {
            let mut text = Vec::new();
            entry.take(MAX_MANIFEST).read_to_end(&mut text).map_err(not_whole)?;
            let read: Manifest = serde_json::from_slice(&text).map_err(|error| damaged(format!("its manifest: {error}")))?;
            manifest = Some(read);
            continue;
        }
        if !is_known(&name) || entry.header().entry_type() != tar::EntryType::Regular {
            return Err(damaged(format!("it holds '{name}', which no backup does; it is not one, or of a newer tollgate")));
        }
        let path = into.join(&name);
        let writing = |source| StoreError::File { action: "write", path: path.clone(), source };
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path).map_err(writing)?;
        let total = entry.size();
        let inner = ReportedRead { inner: entry, done: 0, total, control };
        let mut from = Hashed { inner, sha256: Sha256::new(), bytes: 0 };
        io::copy(&mut from, &mut file).map_err(not_whole)?;
        file.sync_all().map_err(writing)?;
        files.push(ManifestFile { name, bytes: from.bytes, sha256: hex::encode(from.sha256.finalize()) });
    }
    let Some(manifest) = manifest else {
        return Err(damaged("it is not a whole backup: the manifest at its end is missing".to_owned()));
    };
    if manifest.format != FORMAT {
        return Err(damaged(format!(
            "its format is {}, this tollgate reads {FORMAT}; restore it with the version that made it",
            manifest.format
        )));
    }
    if manifest.files != files {
        return Err(damaged("its contents differ from its manifest; it was changed or damaged".to_owned()));
    }
    Ok(manifest)
}

fn is_known(name: &str) -> bool {
    [DATABASE, BOOKED, MASTER_KEY].contains(&name)
        || name.strip_prefix("journal/").is_some_and(|file| !file.contains('/') && journal::is_segment(Path::new(file)))
}
