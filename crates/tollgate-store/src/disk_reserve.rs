//! Space reserved on the disk of the data folder for the time when the disk is full. `<data>/reserve` is freed so that the
//! database can store the waiting records, and `<data>/reserve.start` so that a gateway can start.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// Part of the reserve that only a start uses.
const START_BYTES: u64 = 4 << 20;
/// With less space than this the disk counts as full.
const MIN_FREE: u64 = 2 << 20;
/// Space that must remain free when the reserve is made.
const MARGIN: u64 = 8 << 20;
/// With less space than this a start may fail: most of it is needed for the database's shared memory and log.
const MIN_FOR_START: u64 = 4 << 20;

/// The reserve of one data folder.
#[derive(Clone, Debug)]
pub struct DiskReserve {
    data: PathBuf,
    bytes: u64,
}

/// The disk, as the reserve sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskSpace {
    /// There is space, and the reserve is whole.
    Enough,
    /// The disk is full, or (a part of) the reserve was freed and there is not enough space to reserve it again.
    Scarce,
}

impl DiskReserve {
    /// A reserve of `bytes`; 0: none.
    #[must_use]
    pub fn new(data: &Path, bytes: u64) -> Self {
        Self { data: data.to_owned(), bytes }
    }

    /// Changes the size. [`Self::update`] reserves the space again.
    pub fn resize(&mut self, bytes: u64) {
        if bytes != self.bytes {
            for (path, _) in self.parts() {
                let _ = fs::remove_file(path);
            }
            self.bytes = bytes;
        }
    }

    /// The parts, with their sizes. The one for booking comes first: a part that does not fit is left out.
    fn parts(&self) -> [(PathBuf, u64); 2] {
        let start = START_BYTES.min(self.bytes / 4);
        [(self.data.join("reserve.start"), start), (self.data.join("reserve"), self.bytes - start)]
    }

    /// Bytes that can be written; unlimited if the disk cannot be queried.
    #[must_use]
    pub fn free(&self) -> u64 {
        // Before the first start there is no folder.
        let queried = self.data.ancestors().find_map(|folder| statvfs(folder).ok());
        queried.map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Whether the disk counts as full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.free() < MIN_FREE
    }

    /// Whether a start may have failed for lack of space.
    #[must_use]
    pub fn may_prevent_start(&self) -> bool {
        self.free() < MIN_FOR_START
    }

    /// Before a start: frees the space that the start needs if the disk is full. Returns whether it is.
    pub fn free_for_start(&self) -> bool {
        let is_full = self.is_full();
        for (path, _) in self.parts() {
            if self.is_full() {
                let _ = fs::remove_file(path);
            }
        }
        is_full
    }

    /// Frees the space for the database when the disk is full, and reserves it again when there is enough. Call it once a second.
    pub fn update(&self) -> DiskSpace {
        if self.bytes == 0 {
            return if self.is_full() { DiskSpace::Scarce } else { DiskSpace::Enough };
        }
        let parts = self.parts();
        if self.is_full() {
            let (path, _) = &parts[1];
            if fs::remove_file(path).is_ok() {
                tracing::error!(
                    path = %path.display(),
                    "the disk of the data folder is full; the space reserved for the database is freed, and records wait in memory"
                );
            }
            return DiskSpace::Scarce;
        }
        for (path, bytes) in parts {
            if fs::metadata(&path).is_ok_and(|file| file.len() == bytes) {
                continue;
            }
            if self.free() < bytes + MARGIN {
                return DiskSpace::Scarce;
            }
            if let Err(error) = allocate(&path, bytes) {
                tracing::debug!(path = %path.display(), %error, "no disk space was reserved");
                let _ = fs::remove_file(&path);
                // File systems that cannot allocate have no reserve.
                return if error.kind() == io::ErrorKind::StorageFull { DiskSpace::Scarce } else { DiskSpace::Enough };
            }
        }
        DiskSpace::Enough
    }
}

fn allocate(path: &Path, bytes: u64) -> io::Result<()> {
    let file = File::create(path)?;
    Ok(fallocate(&file, FallocateFlags::empty(), 0, bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_occupies_its_space_and_is_recreated() {
        let folder = tempfile::TempDir::new().unwrap();
        let reserve = DiskReserve::new(folder.path(), 1 << 20);
        assert_eq!(reserve.update(), DiskSpace::Enough);
        let size = |name: &str| fs::metadata(folder.path().join(name)).map_or(0, |file| file.len());
        assert_eq!((size("reserve.start"), size("reserve")), (1 << 18, 3 << 18));
        fs::remove_file(folder.path().join("reserve")).unwrap();
        assert_eq!(reserve.update(), DiskSpace::Enough);
        assert_eq!(size("reserve"), 3 << 18);
        assert!(!reserve.free_for_start() && size("reserve.start") > 0, "the disk is not full");
        let mut reserve = reserve;
        reserve.resize(1 << 19);
        assert_eq!((reserve.update(), size("reserve.start"), size("reserve")), (DiskSpace::Enough, 1 << 17, 3 << 17));
        reserve.resize(0);
        assert_eq!((reserve.update(), size("reserve.start"), size("reserve")), (DiskSpace::Enough, 0, 0));
    }
}
