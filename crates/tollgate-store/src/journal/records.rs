//! Reading complete records back, one segment in memory at a time.

use std::{collections::VecDeque, fs, io, path::PathBuf, sync::Arc};

use tollgate_core::UsageRecord;

use super::{
    Shared,
    frame::{self, EntryKind, Found},
    segment::{HEADER, SegmentName},
};

/// The records that have an end in the journal and are not booked, oldest segments first. A record may come twice
/// after a crash during recovery; booking it twice has no effect.
#[derive(Debug)]
pub struct Records {
    dir: PathBuf,
    segments: VecDeque<SegmentName>,
    bytes: Vec<u8>,
    at: usize,
    /// Leaves out what is booked; `None`: everything that stands there.
    shared: Option<Arc<Shared>>,
}

impl Records {
    pub(super) fn new(dir: PathBuf, segments: Vec<SegmentName>, shared: Option<Arc<Shared>>) -> Self {
        Self { dir, segments: segments.into(), bytes: Vec::new(), at: 0, shared }
    }

    /// Loads the next segment; `false` at the end.
    fn next_segment(&mut self) -> bool {
        while let Some(name) = self.segments.pop_front() {
            let path = name.path(&self.dir);
            match fs::read(&path) {
                Ok(bytes) => {
                    self.bytes = bytes;
                    self.at = HEADER;
                    return true;
                }
                // Booked and removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::error!(path = %path.display(), %error, "a journal segment cannot be read"),
            }
        }
        self.bytes = Vec::new();
        false
    }

    fn next_end(&mut self) -> Option<UsageRecord> {
        // A frame that is being written ends the walk; the next one begins there again.
        while let Found::Frame { kind, payload, next } = frame::read(&self.bytes, self.at) {
            self.at = next;
            if kind == EntryKind::End
                && let Ok(record) = serde_json::from_slice::<UsageRecord>(payload)
                && self.shared.as_ref().is_none_or(|shared| shared.is_unbooked(record.id))
            {
                return Some(record);
            }
        }
        None
    }
}

impl Iterator for Records {
    type Item = UsageRecord;

    fn next(&mut self) -> Option<UsageRecord> {
        loop {
            if let Some(record) = self.next_end() {
                return Some(record);
            }
            if !self.next_segment() {
                return None;
            }
        }
    }
}
