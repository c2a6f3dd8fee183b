//! The journal: append-only segments that survive a kill of the process and an outage of the database.
//!
//! Each core appends its entries: `begin` for each attempt, `progress` periodically while an answer streams, `end` with the answer's
//! last bytes. Entries are collected, and the connections write all collected entries, with one write(2), before they send: so a `begin`
//! is in the journal before the first byte of its attempt goes upstream, and an `end` before its last bytes go to the caller. The page
//! cache alone survives a kill; a thread flushes to disk against power loss. The usage writer books ends into the database and reports
//! them with [`Journal::mark_booked`]; a segment is removed once all its requests are booked. At start [`Journal::open`]
//! ends every unfinished request (`gateway_stopped`) and returns the records that are not known to be booked.

mod append;
mod error;
mod flusher;
mod folder;
mod frame;
mod records;
mod recover;
mod segment;
mod shard;
mod writer;

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use tollgate_core::{RequestId, Timestamp, UsageRecord};
use uuid::Uuid;

use flusher::FlushQueue;
use frame::encode_end;
use shard::{JournalShard, JournalState, OVERFLOW_SHARD, QUARANTINE_SHARD};
use writer::{SizeLimit, WriterGuard};

pub use error::JournalError;
pub use flusher::{JournalSync, SyncWaiter};
pub use folder::JournalFolder;
pub(crate) use folder::{MergedNames, all as folders};
pub use records::{JournalEntries, JournalEntry, UnbookedRecords, WrittenEntries, WrittenEntry};
pub use recover::TruncatedTail;
pub use recover::{DamagedRange, RepairReport, repair};
pub use writer::JournalWriter;

/// Buffered entries written per acquisition of a shard's writer lock.
const PENDING_BATCH: usize = 64;

/// Folder, limits and flushing of a journal.
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
    pub const fn new(dir: PathBuf, node: Uuid) -> Self {
        Self { dir, node, segment_bytes: 64 << 20, max_bytes: 4 << 30, memory_bytes: 64 << 20, sync: JournalSync::Background }
    }
}

/// The result of opening a journal: what the last process left.
#[derive(Debug)]
pub struct RecoveryReport {
    /// The records to book: complete ones, and those that recovery has just ended.
    pub records: UnbookedRecords,
    pub complete: usize,
    /// Requests the last process left unfinished; recovery ended them (`gateway_stopped`).
    pub stopped: Vec<RequestId>,
    pub truncated: Vec<TruncatedTail>,
}

/// The journal of one process, with one writer per core. Dropping it flushes a last time.
#[derive(Debug)]
pub struct Journal {
    state: Arc<JournalState>,
    flushers: Vec<JoinHandle<()>>,
}

impl Journal {
    /// Recovers the segments of the last process, truncates torn tails, ends unfinished requests, and starts the flusher.
    /// The records of the [`RecoveryReport`] stay in the journal until [`Journal::mark_booked`] names them.
    pub fn open(options: JournalOptions) -> Result<(Self, RecoveryReport), JournalError> {
        let JournalOptions { dir, node, segment_bytes, max_bytes, memory_bytes, sync } = options;
        fs::create_dir_all(&dir).map_err(|source| JournalError::file("create", &dir, source))?;
        let recovered = recover::recover(&dir, node)?;
        let mut shards: BTreeMap<u16, Arc<JournalShard>> = BTreeMap::new();
        let names = recovered.segments.keys().copied().collect();
        for (name, ids) in recovered.segments {
            shards.entry(name.core).or_insert_with(|| Arc::new(JournalShard::new(name.core))).add_recovered(name.seq, ids);
        }
        let flush = Arc::new(FlushQueue::new(dir.clone(), sync));
        let flushers = FlushQueue::start(&flush).map_err(|source| JournalError::file("start the flusher of", &dir, source))?;
        let state = Arc::new(JournalState {
            dir,
            node,
            segment_bytes,
            max_bytes: AtomicU64::new(max_bytes),
            memory_bytes,
            sync,
            bytes: AtomicU64::new(recovered.bytes),
            is_paused: AtomicBool::new(false),
            pending_bytes: AtomicU64::new(0),
            shards: Mutex::new(shards),
            quarantined: Mutex::default(),
            flush,
        });
        // Segments without entries can be removed at once.
        state.shards().values().for_each(|shard| state.prune(shard));
        let report = RecoveryReport {
            records: UnbookedRecords::new(VecDeque::new(), names, Arc::clone(&state)),
            complete: recovered.complete,
            stopped: recovered.stopped,
            truncated: recovered.truncated,
        };
        Ok((Self { state, flushers }, report))
    }

    pub fn writer(&self, core: u16) -> Result<JournalWriter, JournalError> {
        let shard = self.state.shard(core);
        if !shard.acquire_writer() {
            return Err(JournalError::WriterExists(core));
        }
        Ok(JournalWriter::new(Arc::clone(&self.state), shard))
    }

    /// Records that these records are in the database, and removes the segments that hold nothing else.
    pub fn mark_booked(&self, ids: &[RequestId]) {
        for shard in self.state.all_shards() {
            shard.mark_booked(ids);
            self.state.prune(&shard);
        }
    }

    /// The complete records that are not booked, from memory and from the segments that exist now. The usage writer
    /// catches up with them after a database outage.
    pub fn backlog(&self) -> Result<UnbookedRecords, JournalError> {
        // Memory first: an entry written to disk in between is then already in the list.
        let mut pending = VecDeque::new();
        for shard in self.state.all_shards() {
            WriterGuard::lock(&self.state, &shard, SizeLimit::Enforced).write_collected();
            pending.extend(shard.segment_writer().pending_ends());
        }
        let names = segment::list(&self.state.dir)?;
        Ok(UnbookedRecords::new(pending, names, Arc::clone(&self.state)))
    }

    /// Changes the limit for entries that are not booked. Beyond it entries are buffered in memory; nothing is removed.
    pub fn set_max_bytes(&self, max_bytes: u64) {
        self.state.max_bytes.store(max_bytes, Ordering::Relaxed);
    }

    /// Keeps entries in memory (`true`), so that the database can use the remaining space on the disk, or writes them
    /// again.
    pub fn pause_writing(&self, is_paused: bool) {
        self.state.is_paused.store(is_paused, Ordering::Release);
    }

    /// Writes entries that were collected or buffered in memory, up to the size limit. Each core does so before it sends; this covers cores
    /// that send nothing.
    pub fn write_pending(&self) {
        self.write_pending_within(SizeLimit::Enforced);
    }

    fn write_pending_within(&self, limit: SizeLimit) {
        for shard in self.state.all_shards() {
            if shard.has_collected() {
                WriterGuard::lock(&self.state, &shard, limit).write_collected();
            }
            if !shard.segment_writer().has_pending() {
                continue;
            }
            // One batch per lock, so that the core that owns the shard does not wait for all of them.
            while WriterGuard::lock(&self.state, &shard, limit).write_pending(PENDING_BATCH) {}
            let mut guard = WriterGuard::lock(&self.state, &shard, limit);
            if shard.close_if_unowned() {
                guard.close();
            }
        }
    }

    /// Moves a record that the database refuses to a separate shard, so that it does not keep its segment alive. Ignores
    /// the size limit. The next start tries to book the record again. Fails if it cannot be written. The record then stays
    /// in its segment, and this process does not try to book it again either.
    pub fn quarantine(&self, record: &UsageRecord) -> Result<(), JournalError> {
        self.state.quarantined().insert(record.id);
        let shard = self.state.shard(QUARANTINE_SHARD);
        if !shard.is_unbooked(record.id) {
            self.append_durably(&shard, record)?;
        }
        for other in self.state.all_shards().into_iter().filter(|shard| shard.core() != QUARANTINE_SHARD) {
            other.mark_booked(&[record.id]);
            self.state.prune(&other);
        }
        Ok(())
    }

    /// Before shutdown: writes all buffered entries, and `unwritten`, the records that no core's shard accepted, both
    /// ignoring the size limit. Returns the number of requests that are lost all the same.
    pub fn finish(&self, unwritten: &[UsageRecord]) -> usize {
        self.write_pending_within(SizeLimit::Ignored);
        let mut lost = HashSet::new();
        for shard in self.state.all_shards() {
            let pending = shard.segment_writer().pending_ends().map(|(id, _)| id).collect::<Vec<_>>();
            lost.extend(pending.into_iter().filter(|id| shard.is_unbooked(*id)));
        }
        let shard = self.state.shard(OVERFLOW_SHARD);
        for record in unwritten {
            if let Err(fault) = self.append_durably(&shard, record) {
                tracing::error!(request.id = %record.id, %fault, "a usage record is lost: the journal cannot be written");
                lost.insert(record.id);
            }
        }
        lost.len()
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::Acquire)
    }

    /// Bytes of entries buffered in memory because they could not be written.
    pub fn pending_bytes(&self) -> u64 {
        self.state.pending_bytes.load(Ordering::Acquire)
    }

    /// Unbooked requests with entries buffered in memory; a kill would lose them.
    pub fn pending_requests(&self) -> usize {
        self.state.all_shards().iter().map(|shard| shard.pending_requests()).sum()
    }

    /// True if a request is in the journal, ended or not, and is neither booked nor quarantined.
    pub fn is_unbooked(&self, id: RequestId) -> bool {
        self.state.is_unbooked(id)
    }

    /// Number of records that the database refused since the start.
    pub fn quarantined(&self) -> usize {
        self.state.quarantined().len()
    }

    /// Number of requests whose end is not booked, including unfinished and quarantined ones.
    pub fn unbooked(&self) -> usize {
        self.state.all_shards().iter().map(|shard| shard.unbooked()).sum()
    }

    /// Arrival of the oldest unbooked request, quarantined ones excluded. Linear in their number; meant for metrics.
    pub fn oldest_unbooked(&self) -> Option<Timestamp> {
        let shards = self.state.all_shards();
        shards.iter().filter(|shard| shard.core() != QUARANTINE_SHARD).filter_map(|shard| shard.oldest_unbooked()).min()
    }

    pub fn flush_failures(&self) -> u64 {
        self.state.flush.failures()
    }

    /// Writes the end of a request to disk, ignoring the size limit, and flushes it.
    fn append_durably(&self, shard: &JournalShard, record: &UsageRecord) -> Result<(), JournalError> {
        let dir = &self.state.dir;
        let mut frame = Vec::new();
        encode_end(record, &mut frame)?;
        WriterGuard::lock(&self.state, shard, SizeLimit::Ignored).append_durably(record.id, &frame)?;
        segment::sync_folder(dir).map_err(|source| JournalError::file("flush", dir, source))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.state.flush.stop();
        for flusher in self.flushers.drain(..) {
            if flusher.join().is_err() {
                tracing::error!("a flusher of the journal panicked");
            }
        }
    }
}

/// Reads all entries of a journal's folder and of the numbered folders in it, booked or not; safe beside a running server. `usage
/// export` adds them to the records of the database, and `verify` compares the two. Holds one segment in memory at a time.
/// A missing folder has no entries.
pub fn read_journal(dir: &Path) -> Result<JournalEntries, JournalError> {
    JournalEntries::new(dir)
}

/// Reads all entries of a journal with their positions, as [`read_journal`] does.
pub fn written_entries(dir: &Path) -> Result<WrittenEntries, JournalError> {
    WrittenEntries::new(dir)
}

/// The segments in a journal's folder and in the numbered folders in it, those of each folder in the order of writing. Highest number
/// first: a start moves them downwards, so each is listed at least once.
pub(crate) fn segment_files(dir: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let mut files = Vec::new();
    for folder in folders(dir)?.into_iter().rev() {
        files.extend(segment::list(&folder)?.into_iter().map(|name| name.path(&folder)));
    }
    Ok(files)
}

/// Whether a file's name is that of a segment.
pub(crate) fn is_segment(path: &Path) -> bool {
    segment::SegmentName::parse(path).is_some()
}

/// The length of a segment without a partly written entry at its end. A damaged segment is returned in full, including the damage.
pub(crate) fn whole_length(path: &Path, bytes: &[u8]) -> usize {
    match segment::scan(path, bytes, &mut |_| Ok(())) {
        Ok(segment::SegmentEnd::Torn(at)) => at,
        Ok(segment::SegmentEnd::Whole) | Err(_) => bytes.len(),
    }
}

#[cfg(test)]
mod tests;
