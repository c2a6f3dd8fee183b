//! The journal: append-only segments that survive a kill and a database outage.
//!
//! Each core appends its entries with one write(2): `begin` before an attempt's first byte goes upstream, `progress`
//! now and then while an answer streams, `end` before the last bytes go to the caller. That alone survives a kill; a
//! thread flushes to disk for power cuts. The till books ends into the database and reports them here
//! ([`Journal::booked`]); a segment goes when each of its requests is booked. At start [`Journal::open`] gives every
//! request without an end one (`gateway_stopped`) and hands back what is not known to be booked.

mod append;
mod entry;
mod flusher;
mod frame;
mod records;
mod recover;
mod repair;
mod segment;
mod segment_writer;
mod shard;
mod writer;

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use tollgate_core::{RequestId, Timestamp, UsageRecord};
use uuid::Uuid;

use crate::ErrorClass;
use entry::encode_end;
use flusher::FlushQueue;
use segment_writer::{SizeLimit, WriterGuard};
use shard::JournalShard;

pub use flusher::SyncWaiter;
pub use records::{JournalEntries, JournalEntry, UnbookedRecords};
pub use recover::TruncatedTail;
pub use repair::{DamagedRange, RepairReport, repair};
pub use writer::JournalWriter;

/// The shard of records that the database refused; no core has this number.
const REFUSED: u16 = u16::MAX;
/// The shard of records that no core's journal took; no core has this number.
const SPARE: u16 = u16::MAX - 1;
/// Entries that are written from memory at once while others wait for the core's writer.
const WRITTEN_AT_ONCE: usize = 64;

/// How and where a journal is kept.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// Its folder; made when it is not there.
    pub dir: PathBuf,
    /// Written into every segment.
    pub node: Uuid,
    /// A new segment begins at this size.
    pub segment_bytes: u64,
    /// Limit of all segments together; above it entries wait in memory.
    pub max_bytes: u64,
    /// Limit of what waits in memory.
    pub memory_bytes: u64,
    /// When entries are flushed to disk.
    pub sync: JournalSync,
}

impl JournalOptions {
    /// The usual bounds: segments of 64 MiB, 4 GiB in all, 64 MiB in memory, flushed in the background.
    #[must_use]
    pub const fn new(dir: PathBuf, node: Uuid) -> Self {
        Self { dir, node, segment_bytes: 64 << 20, max_bytes: 4 << 30, memory_bytes: 64 << 20, sync: JournalSync::Background }
    }
}

/// When entries are flushed to disk. Either way they survive the end of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum JournalSync {
    /// Every 5 ms; nobody waits.
    #[default]
    Background,
    /// The end of an answer waits for the flush that covers it.
    Group,
}

/// A failure of the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}: {source}; check the disk, the owner and the mode", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The journal and its memory are at their bounds: the database has been away for too long.
    #[error("the journal is full ({bytes} bytes) and so is the memory for what waits; bring the database back")]
    Full {
        /// Bytes on disk.
        bytes: u64,
    },
    /// An entry larger than a frame may be.
    #[error("an entry is larger than 1 MiB")]
    FrameTooLarge,
    /// A frame in the middle of a segment does not fit its checksum.
    #[error(
        "the journal is damaged: {} at offset {offset}: {detail}; `tollgate doctor --repair` moves it aside and keeps what is whole",
        .path.display()
    )]
    Damaged {
        /// Which segment.
        path: PathBuf,
        /// Where its frame begins.
        offset: u64,
        /// What is wrong.
        detail: String,
    },
    /// A newer tollgate wrote it.
    #[error("{} was written by a newer tollgate (entry version {version}); start that version to book what it holds", .path.display())]
    Newer {
        /// Which segment.
        path: PathBuf,
        /// Version of the entry.
        version: u8,
    },
    /// A server writes it.
    #[error("a tollgate writes the journal in {}; stop it first", .0.display())]
    InUse(PathBuf),
    /// A core's journal has a writer already.
    #[error("core {0} writes its journal already")]
    Taken(u16),
}

impl JournalError {
    pub(crate) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { action, path: path.to_owned(), source }
    }

    fn damaged(path: &Path, offset: usize, detail: &str) -> Self {
        Self::Damaged { path: path.to_owned(), offset: offset as u64, detail: detail.to_owned() }
    }

    /// Who can mend it.
    #[must_use]
    pub const fn fault(&self) -> ErrorClass {
        ErrorClass::Data
    }
}

/// What a start found.
#[derive(Debug)]
pub struct RecoveryReport {
    /// The records to be booked: those that were complete, and those that got their end now.
    pub records: UnbookedRecords,
    /// How many were complete.
    pub complete: usize,
    /// Requests that the last process left in the middle; they have an end now (`gateway_stopped`).
    pub stopped: Vec<RequestId>,
    /// Torn tails that were cut.
    pub cut: Vec<TruncatedTail>,
}

/// The journal of one process. Writers are taken from it, one a core; dropping it flushes once more.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<JournalInner>,
    flushers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct JournalInner {
    dir: PathBuf,
    node: Uuid,
    segment_bytes: u64,
    max_bytes: u64,
    memory_bytes: u64,
    sync: JournalSync,
    /// Bytes on disk.
    bytes: AtomicU64,
    /// Bytes that wait in the writers' memory.
    held: AtomicU64,
    shards: Mutex<BTreeMap<u16, Arc<JournalShard>>>,
    /// What the database refused since the start; it is offered again at the next one.
    refused: Mutex<HashSet<RequestId>>,
    flush: Arc<FlushQueue>,
}

impl Journal {
    /// Reads what the last process left, cuts torn tails, ends what has no end, and starts the flusher. The records of
    /// the [`RecoveryReport`] have to be booked; they stay in the journal until [`Journal::booked`] names them.
    ///
    /// # Errors
    /// When the folder cannot be used, or a segment is damaged other than at its end.
    pub fn open(options: JournalOptions) -> Result<(Self, RecoveryReport), JournalError> {
        let JournalOptions { dir, node, segment_bytes, max_bytes, memory_bytes, sync } = options;
        fs::create_dir_all(&dir).map_err(|source| JournalError::file("create", &dir, source))?;
        let found = recover::recover(&dir, node)?;
        let mut shards: BTreeMap<u16, Arc<JournalShard>> = BTreeMap::new();
        let names = found.segments.keys().copied().collect();
        for (name, ids) in found.segments {
            shards.entry(name.core).or_insert_with(|| Arc::new(JournalShard::new(name.core))).recovered(name.seq, ids);
        }
        let flush = Arc::new(FlushQueue::new(dir.clone(), sync));
        let flushers = FlushQueue::start(&flush).map_err(|source| JournalError::file("start the flusher of", &dir, source))?;
        let shared = Arc::new(JournalInner {
            dir,
            node,
            segment_bytes,
            max_bytes,
            memory_bytes,
            sync,
            bytes: AtomicU64::new(found.bytes),
            held: AtomicU64::new(0),
            shards: Mutex::new(shards),
            refused: Mutex::default(),
            flush,
        });
        // Segments without an entry have nothing to wait for.
        shared.shards().values().for_each(|shard| shared.prune(shard));
        let records = UnbookedRecords::new(VecDeque::new(), names, Arc::clone(&shared));
        let recovery = RecoveryReport { records, complete: found.complete, stopped: found.stopped, cut: found.cut };
        Ok((Self { shared, flushers }, recovery))
    }

    /// The writer of a core.
    ///
    /// # Errors
    /// When the core has one already.
    pub fn writer(&self, core: u16) -> Result<JournalWriter, JournalError> {
        let shard = self.shared.shard(core);
        if !shard.take() {
            return Err(JournalError::Taken(core));
        }
        Ok(JournalWriter::new(Arc::clone(&self.shared), shard))
    }

    /// These records are in the database. Segments that hold nothing else are removed.
    pub fn booked(&self, ids: &[RequestId]) {
        for shard in self.shared.all_lanes() {
            shard.booked(ids);
            self.shared.prune(&shard);
        }
    }

    /// The complete records that are not booked, from memory and from all segments there are now: what the till catches
    /// up with after a database outage.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn backlog(&self) -> Result<UnbookedRecords, JournalError> {
        // Memory first: what is written to disk meanwhile is known already.
        let mut held = VecDeque::new();
        for shard in self.shared.all_lanes() {
            held.extend(shard.segment_writer().held_ends());
        }
        let names = segment::list(&self.shared.dir)?;
        Ok(UnbookedRecords::new(held, names, Arc::clone(&self.shared)))
    }

    /// Writes what waits in memory, as far as there is room. Cores do the same with their next entry; this is for those
    /// that have none.
    pub fn write_held(&self) {
        self.write_held_within(SizeLimit::Enforced);
    }

    fn write_held_within(&self, bound: SizeLimit) {
        for shard in self.shared.all_lanes().into_iter().filter(|shard| shard.segment_writer().holds_any()) {
            // Let go of the writer lock now and then: a core waits for it.
            while WriterGuard::of(&self.shared, &shard, bound).write_held(WRITTEN_AT_ONCE) {}
            let mut hand = WriterGuard::of(&self.shared, &shard, bound);
            if shard.close_if_free() {
                hand.close();
            }
        }
    }

    /// Sets a record aside that the database refuses, on a disk that need not have room within the bound: it stays in the
    /// journal, and what else stands in its segment does not stay because of it. It is offered again at the next start.
    ///
    /// # Errors
    /// When it cannot be written; it stays where it is, and is not offered again either.
    pub fn set_aside(&self, record: &UsageRecord) -> Result<(), JournalError> {
        self.shared.refused().insert(record.id);
        let shard = self.shared.shard(REFUSED);
        if !shard.is_unbooked(record.id) {
            self.shared.keep(&shard, record)?;
        }
        for other in self.shared.all_lanes().into_iter().filter(|shard| shard.core() != REFUSED) {
            other.booked(&[record.id]);
            self.shared.prune(&other);
        }
        Ok(())
    }

    /// Before the end: what waits in memory is written whatever the bound, and so are these records, which no core's
    /// journal took. How many requests are lost all the same.
    pub fn finish(&self, unkept: &[UsageRecord]) -> usize {
        self.write_held_within(SizeLimit::Ignored);
        let mut lost = HashSet::new();
        for shard in self.shared.all_lanes() {
            let held = shard.segment_writer().held_ends().map(|(id, _)| id).collect::<Vec<_>>();
            lost.extend(held.into_iter().filter(|id| shard.is_unbooked(*id)));
        }
        let shard = self.shared.shard(SPARE);
        for record in unkept {
            if let Err(fault) = self.shared.keep(&shard, record) {
                tracing::error!(request.id = %record.id, %fault, "a record cannot be written any more");
                lost.insert(record.id);
            }
        }
        lost.len()
    }

    /// Bytes on disk.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Acquire)
    }

    /// Bytes that found no room on disk and wait in memory.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.shared.held.load(Ordering::Acquire)
    }

    /// Requests with entries that wait in memory and are not booked: a kill would lose them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.all_lanes().iter().map(|shard| shard.held()).sum()
    }

    /// Whether a request waits to be booked, in the middle or ended.
    #[must_use]
    pub fn is_unbooked(&self, id: RequestId) -> bool {
        self.shared.is_unbooked(id)
    }

    /// Records that the database refused since the start.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.shared.refused().len()
    }

    /// Requests whose end is not booked, those in the middle and those that were refused included.
    #[must_use]
    pub fn unbooked(&self) -> usize {
        self.shared.all_lanes().iter().map(|shard| shard.unbooked()).sum()
    }

    /// When the oldest of them arrived, but for those that were refused. Walks over all of them: for metrics.
    #[must_use]
    pub fn oldest(&self) -> Option<Timestamp> {
        let shards = self.shared.all_lanes();
        shards.iter().filter(|shard| shard.core() != REFUSED).filter_map(|shard| shard.oldest()).min()
    }

    /// How many flushes to disk failed.
    #[must_use]
    pub fn flush_failures(&self) -> u64 {
        self.shared.flush.failures()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.flush.stop();
        for flusher in self.flushers.drain(..) {
            if flusher.join().is_err() {
                tracing::error!("a flusher of the journal panicked");
            }
        }
    }
}

impl JournalInner {
    fn shards(&self) -> MutexGuard<'_, BTreeMap<u16, Arc<JournalShard>>> {
        self.shards.lock().expect("nothing panics while it holds this lock")
    }

    fn shard(&self, core: u16) -> Arc<JournalShard> {
        Arc::clone(self.shards().entry(core).or_insert_with(|| Arc::new(JournalShard::new(core))))
    }

    fn all_lanes(&self) -> Vec<Arc<JournalShard>> {
        self.shards().values().cloned().collect()
    }

    fn refused(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.refused.lock().expect("nothing panics while it holds this lock")
    }

    /// Writes a record's end to disk, whatever the bound, so that it survives a power cut.
    fn keep(&self, shard: &JournalShard, record: &UsageRecord) -> Result<(), JournalError> {
        let mut hand = WriterGuard::of(self, shard, SizeLimit::Ignored);
        encode_end(record, hand.frame())?;
        hand.put_for_good(record.id)?;
        segment::sync_folder(&self.dir).map_err(|source| JournalError::file("flush", &self.dir, source))
    }

    fn prune(&self, shard: &JournalShard) {
        let gone = shard.prune(&self.dir);
        self.bytes.fetch_sub(gone, Ordering::AcqRel);
    }

    fn is_unbooked(&self, id: RequestId) -> bool {
        self.shards().values().any(|shard| shard.is_unbooked(id)) && !self.refused().contains(&id)
    }
}

/// What stands in a journal's folder, booked or not, read beside a running server: what `usage export` adds to the
/// database's, and what `verify` holds to it. One segment is in memory at a time.
///
/// # Errors
/// When the folder cannot be read; there may be none.
pub fn read_journal(dir: &Path) -> Result<JournalEntries, JournalError> {
    JournalEntries::new(dir)
}

#[cfg(test)]
mod tests;
