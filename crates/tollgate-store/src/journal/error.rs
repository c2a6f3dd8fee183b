//! Errors of the journal.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::ErrorClass;

/// A failure of the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot {action} {}: {source}; check the disk, the owner and the mode", .path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    /// Both the segments and the memory buffer are at their limits, usually because the database has been unreachable
    /// for too long.
    #[error("the journal is full ({bytes} bytes) and so is its memory buffer; bring the database back")]
    Full { bytes: u64 },
    #[error("an entry is larger than 1 MiB")]
    FrameTooLarge,
    /// A frame in the middle of a segment does not match its checksum.
    #[error(
        "the journal is damaged: {} at offset {offset}: {detail}; `tollgate doctor --repair` moves it aside and keeps what is whole",
        .path.display()
    )]
    Damaged { path: PathBuf, offset: u64, detail: String },
    #[error("{} was written by a newer tollgate (entry version {version}); start that version to book what it holds", .path.display())]
    Newer { path: PathBuf, version: u8 },
    #[error("a tollgate writes the journal in {}; stop it first", .0.display())]
    InUse(PathBuf),
    #[error("core {0} writes its journal already")]
    WriterExists(u16),
}

impl JournalError {
    pub(crate) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { action, path: path.to_owned(), source }
    }

    pub(super) fn damaged(path: &Path, offset: usize, detail: &str) -> Self {
        Self::Damaged { path: path.to_owned(), offset: offset as u64, detail: detail.to_owned() }
    }

    /// The class of the error; it decides the exit code of the process.
    pub const fn class(&self) -> ErrorClass {
        ErrorClass::Data
    }
}
