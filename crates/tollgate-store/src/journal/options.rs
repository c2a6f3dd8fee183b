//! Options of a journal.

use std::path::PathBuf;

use uuid::Uuid;

#[derive(Clone, Debug)]
pub struct JournalOptions {
    pub dir: PathBuf,
    /// Node id, written into the header of every segment.
    pub node: Uuid,
    /// Size in bytes at which a segment is closed and the next one opened.
    pub segment_bytes: u64,
    /// Limit in bytes of all segments together; beyond it entries are buffered in memory.
    pub max_bytes: u64,
    /// Limit in bytes of the entries buffered in memory.
    pub memory_bytes: u64,
    /// When entries are flushed to disk.
    pub sync: JournalSync,
}

impl JournalOptions {
    /// The default limits: segments of 64 MiB, 4 GiB in all, 64 MiB in memory, flushed in the background.
    #[must_use]
    pub const fn new(dir: PathBuf, node: Uuid) -> Self {
        Self { dir, node, segment_bytes: 64 << 20, max_bytes: 4 << 30, memory_bytes: 64 << 20, sync: JournalSync::Background }
    }
}

/// When entries are flushed to disk. In both modes they survive the end of the process; flushing protects against
/// power loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum JournalSync {
    /// Every 5 ms in the background.
    #[default]
    Background,
    /// Group commit: the end of an answer waits for the flush that covers it.
    Group,
}
