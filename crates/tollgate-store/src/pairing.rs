//! Pairing of journals and databases. A journal has an id, which its database stores, and both count the records that
//! were booked from the journal into the database. The database counts first: if the journal counts more than the
//! database, the database is an older copy; if a database was not closed cleanly, the journal it names must exist.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use uuid::Uuid;

use crate::{RandomSource, StoreError};

/// Name of the file in the journal's folder.
const NAME: &str = "booked";
const MAGIC: &[u8; 4] = b"TGB1";
/// Magic, id, count and checksum.
const LENGTH: usize = 32;

/// The journal's folder of a data folder.
#[must_use]
pub fn journal_folder(data: &Path) -> PathBuf {
    data.join("journal")
}

/// The file `journal/booked`: the journal's id, and how many of its records are in the database.
#[derive(Debug)]
pub(crate) struct JournalPairing {
    pub(crate) id: Uuid,
    path: PathBuf,
    file: File,
    booked: AtomicU64,
}

/// The contents of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairingState {
    pub(crate) id: Uuid,
    pub(crate) booked: u64,
}

impl PairingState {
    pub(crate) fn encode(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4..20].copy_from_slice(self.id.as_bytes());
        bytes[20..28].copy_from_slice(&self.booked.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
        let sum = crc32fast::hash(&bytes[..28]).to_le_bytes();
        if &bytes[..4] != MAGIC || bytes[28..] != sum {
            return None;
        }
        let booked = u64::from_le_bytes(bytes[20..28].try_into().ok()?);
        Some(Self { id: Uuid::from_slice(&bytes[4..20]).ok()?, booked })
    }

    /// Content of the file in a data folder; `None` if there is none, or the file cannot be read.
    pub(crate) fn read(data: &Path) -> Option<Self> {
        Self::decode(&fs::read(journal_folder(data).join(NAME)).ok()?)
    }
}

impl JournalPairing {
    /// Opens the file of a data folder. A folder without one, or with an unreadable one, gets a new id.
    pub(crate) fn open(data: &Path, random: &RandomSource) -> Result<Self, StoreError> {
        let folder = journal_folder(data);
        crate::data_folder::create(&folder)?;
        let path = folder.join(NAME);
        let failed = |source: io::Error| StoreError::File { action: "open", path: path.clone(), source };
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let known = PairingState::decode(&bytes);
        if known.is_none() && !bytes.is_empty() {
            tracing::error!(path = %path.display(), "the file cannot be read; the journal is treated as a new one");
        }
        let state =
            known.unwrap_or_else(|| PairingState { id: uuid::Builder::from_random_bytes(random.bytes()).into_uuid(), booked: 0 });
        let pairing = Self { id: state.id, booked: AtomicU64::new(state.booked), file, path: path.clone() };
        if known.is_none() {
            pairing.write(state.booked).and_then(|()| pairing.file.sync_all()).map_err(failed)?;
        }
        Ok(pairing)
    }

    /// Number of records marked as booked.
    pub(crate) fn booked(&self) -> u64 {
        self.booked.load(Ordering::Acquire)
    }

    /// Records how many records the database has booked. Not flushed: after a power loss the file may have an older, smaller
    /// count, which is harmless.
    pub(crate) fn note(&self, booked: u64) {
        if booked <= self.booked.fetch_max(booked, Ordering::AcqRel) {
            return;
        }
        if let Err(error) = self.write(booked) {
            tracing::warn!(path = %self.path.display(), %error, "the number of booked records was not written");
        }
    }

    /// One write within a sector.
    fn write(&self, booked: u64) -> io::Result<()> {
        use std::os::unix::fs::FileExt as _;
        self.file.write_all_at(&PairingState { id: self.id, booked }.encode(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_kept_and_the_count_only_grows() {
        let data = tempfile::TempDir::new().unwrap();
        assert_eq!(PairingState::read(data.path()), None);
        let first = JournalPairing::open(data.path(), &RandomSource::system()).unwrap();
        first.note(7);
        first.note(5);
        let again = JournalPairing::open(data.path(), &RandomSource::system()).unwrap();
        assert_eq!((again.id, again.booked()), (first.id, 7));
        assert_eq!(PairingState::read(data.path()), Some(PairingState { id: first.id, booked: 7 }));
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let bytes = PairingState { id: Uuid::from_u128(7), booked: 9 }.encode();
        for bit in 0..LENGTH * 8 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(PairingState::decode(&wrong), None, "bit {bit}");
        }
        assert_eq!(PairingState::decode(&bytes[..31]), None);
    }
}
