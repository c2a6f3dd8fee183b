//! State shared by the journal, its writers and its readers.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use tollgate_core::RequestId;
use uuid::Uuid;

use super::{flusher::FlushQueue, options::JournalSync, shard::JournalShard};

/// Shard of records that the database refused; no core has this number.
pub(super) const QUARANTINE_SHARD: u16 = u16::MAX;
/// Shard of records that no core's shard accepted; no core has this number.
pub(super) const OVERFLOW_SHARD: u16 = u16::MAX - 1;

#[derive(Debug)]
pub(super) struct JournalState {
    pub(super) dir: PathBuf,
    pub(super) node: Uuid,
    pub(super) segment_bytes: u64,
    pub(super) max_bytes: u64,
    pub(super) memory_bytes: u64,
    pub(super) sync: JournalSync,
    pub(super) bytes: AtomicU64,
    /// Bytes of entries buffered in memory, over all shards.
    pub(super) pending_bytes: AtomicU64,
    pub(super) shards: Mutex<BTreeMap<u16, Arc<JournalShard>>>,
    /// Records that the database refused since the start; the next start offers them again.
    pub(super) quarantined: Mutex<HashSet<RequestId>>,
    pub(super) flush: Arc<FlushQueue>,
}

impl JournalState {
    pub(super) fn shards(&self) -> MutexGuard<'_, BTreeMap<u16, Arc<JournalShard>>> {
        self.shards.lock().expect("no code panics while holding this lock")
    }

    /// The shard of a core, created on first use.
    pub(super) fn shard(&self, core: u16) -> Arc<JournalShard> {
        Arc::clone(self.shards().entry(core).or_insert_with(|| Arc::new(JournalShard::new(core))))
    }

    pub(super) fn all_shards(&self) -> Vec<Arc<JournalShard>> {
        self.shards().values().cloned().collect()
    }

    pub(super) fn quarantined(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.quarantined.lock().expect("no code panics while holding this lock")
    }

    pub(super) fn prune(&self, shard: &JournalShard) {
        let removed = shard.prune(&self.dir);
        self.bytes.fetch_sub(removed, Ordering::AcqRel);
    }

    pub(super) fn is_unbooked(&self, id: RequestId) -> bool {
        self.shards().values().any(|shard| shard.is_unbooked(id)) && !self.quarantined().contains(&id)
    }
}
