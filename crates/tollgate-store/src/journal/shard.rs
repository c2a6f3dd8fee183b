//! The unbooked requests of one core and the segments they are in. A segment is removed once all its requests have their
//! end in the database.
//!
//! The segments of a core are removed in order: as long as the `begin` of a request is kept, its later entries are kept
//! too, so recovery never sees a begin without the end that was written.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque, hash_map::Entry},
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tollgate_core::{IdHash, RequestId, Timestamp};
use uuid::Uuid;

use super::{
    flusher::{FlushQueue, JournalSync, SegmentFile},
    frame::EntryKind,
    segment::{HEADER_LENGTH, SegmentName},
};

#[derive(Debug)]
pub(super) struct JournalShard {
    core: u16,
    /// Lock order: before `state`.
    segment_writer: Mutex<SegmentWriter>,
    state: Mutex<ShardState>,
    /// Whether frames are collected that are not written yet. Set with `segment_writer` locked.
    has_collected: AtomicBool,
}

#[derive(Debug, Default)]
struct ShardState {
    /// Unbooked requests, each with the segment of its first entry.
    ids: HashMap<RequestId, u32, IdHash>,
    /// Number of unbooked requests that begin in each segment.
    segments: BTreeMap<u32, u64>,
    /// Requests with entries buffered in memory.
    pending: HashMap<RequestId, PendingEntries, IdHash>,
    /// The segment being written.
    current: Option<u32>,
    /// The highest sequence number ever used; numbers are not reused.
    last: u32,
    has_writer: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct PendingEntries {
    count: u32,
    /// The request is booked; its entries need not be written.
    booked: bool,
}

impl JournalShard {
    pub(super) fn new(core: u16) -> Self {
        Self { core, segment_writer: Mutex::default(), state: Mutex::default(), has_collected: AtomicBool::new(false) }
    }

    /// Whether frames are collected that are not written yet.
    pub(super) fn has_collected(&self) -> bool {
        self.has_collected.load(Ordering::Acquire)
    }

    pub(super) fn set_collected(&self, has_collected: bool) {
        self.has_collected.store(has_collected, Ordering::Release);
    }

    pub(super) const fn core(&self) -> u16 {
        self.core
    }

    /// The write state. Poisoning is ignored, because entries are written whole and a panic leaves only whole entries.
    pub(super) fn segment_writer(&self) -> MutexGuard<'_, SegmentWriter> {
        self.segment_writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, ShardState> {
        self.state.lock().expect("no code panics while holding this lock")
    }

    /// Acquires the shard for a writer; false when it already has one.
    pub(super) fn acquire_writer(&self) -> bool {
        !std::mem::replace(&mut self.state().has_writer, true)
    }

    /// Releases the shard from its writer and closes its segment.
    pub(super) fn release_writer(&self) {
        let mut state = self.state();
        state.has_writer = false;
        state.current = None;
    }

    /// Closes the segment of a shard without a writer; false when it has one.
    pub(super) fn close_if_unowned(&self) -> bool {
        let mut state = self.state();
        if !state.has_writer {
            state.current = None;
        }
        !state.has_writer
    }

    /// Adds a segment found at start, with the requests in it.
    pub(super) fn add_recovered(&self, seq: u32, ids: impl IntoIterator<Item = RequestId>) {
        let mut guard = self.state();
        let state = &mut *guard;
        state.segments.insert(seq, 0);
        state.last = state.last.max(seq);
        for id in ids {
            state.record_entry(id, seq);
        }
    }

    /// Allocates the next segment and makes it the current one.
    pub(super) fn open_next(&self) -> SegmentName {
        let mut state = self.state();
        let seq = state.last + 1;
        state.last = seq;
        state.segments.insert(seq, 0);
        state.current = Some(seq);
        SegmentName { core: self.core, seq }
    }

    /// Closes the current segment if all requests in it are booked, so that it can be removed.
    pub(super) fn close_if_booked(&self) -> bool {
        let mut state = self.state();
        let booked = state.current.is_some_and(|seq| state.segments.get(&seq) == Some(&0));
        if booked {
            state.current = None;
        }
        booked
    }

    pub(super) fn remove_segment(&self, seq: u32) {
        let mut state = self.state();
        state.segments.remove(&seq);
        state.current = None;
    }

    /// Records that an entry of `id` is about to be written to segment `seq`. A request that was booked from memory is
    /// skipped, because no later call would mark it as booked.
    pub(super) fn record_entry(&self, id: RequestId, seq: u32) {
        let mut state = self.state();
        if !state.is_booked_in_memory(id) {
            state.record_entry(id, seq);
        }
    }

    /// Records that an entry of `id` is buffered in memory.
    pub(super) fn add_pending(&self, id: RequestId) {
        self.state().pending.entry(id).or_default().count += 1;
    }

    /// Like [`Self::add_pending`], for an entry that was collected for a segment. Returns `false` if its request was booked
    /// meanwhile, so that the entry is not needed.
    pub(super) fn add_pending_if_unbooked(&self, id: RequestId) -> bool {
        let mut state = self.state();
        let is_unbooked = state.ids.contains_key(&id);
        if is_unbooked {
            state.pending.entry(id).or_default().count += 1;
        }
        is_unbooked
    }

    /// Records that a buffered entry of `id` was written or dropped.
    pub(super) fn remove_pending(&self, id: RequestId) {
        if let Entry::Occupied(mut pending) = self.state().pending.entry(id) {
            pending.get_mut().count -= 1;
            if pending.get().count == 0 {
                pending.remove();
            }
        }
    }

    /// True if the buffered entries of `id` still have to be written.
    pub(super) fn is_needed(&self, id: RequestId) -> bool {
        !self.state().is_booked_in_memory(id)
    }

    /// Records that these requests have their end in the database.
    pub(super) fn mark_booked(&self, ids: &[RequestId]) {
        let mut guard = self.state();
        let state = &mut *guard;
        for id in ids {
            if let Some(seq) = state.ids.remove(id)
                && let Some(unbooked) = state.segments.get_mut(&seq)
            {
                *unbooked -= 1;
            }
            if let Some(pending) = state.pending.get_mut(id) {
                pending.booked = true;
            }
        }
    }

    /// Removes the closed segments at the front that hold no unbooked request. Returns the bytes freed.
    pub(super) fn prune(&self, dir: &Path) -> u64 {
        let mut removed = Vec::new();
        {
            let mut state = self.state();
            while let Some((&seq, 0)) = state.segments.first_key_value()
                && state.current != Some(seq)
            {
                state.segments.remove(&seq);
                removed.push(SegmentName { core: self.core, seq }.path(dir));
            }
        }
        let mut bytes = 0;
        for path in removed {
            let size = fs::metadata(&path).map_or(0, |file| file.len());
            match fs::remove_file(&path) {
                Ok(()) => bytes += size,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // The next start reads it again; booking its records twice has no effect.
                Err(error) => tracing::warn!(path = %path.display(), %error, "a booked journal segment cannot be removed"),
            }
        }
        bytes
    }

    pub(super) fn is_unbooked(&self, id: RequestId) -> bool {
        let state = self.state();
        state.ids.contains_key(&id) || state.pending.get(&id).is_some_and(|pending| !pending.booked)
    }

    pub(super) fn unbooked(&self) -> usize {
        let state = self.state();
        state.ids.len() + state.pending_unbooked().filter(|id| !state.ids.contains_key(id)).count()
    }

    /// Number of unbooked requests with entries buffered in memory.
    pub(super) fn pending_requests(&self) -> usize {
        self.state().pending_unbooked().count()
    }

    /// Arrival of the oldest unbooked request, taken from its id.
    pub(super) fn oldest_unbooked(&self) -> Option<Timestamp> {
        let state = self.state();
        state.ids.keys().copied().chain(state.pending_unbooked()).map(arrival).min()
    }
}

impl ShardState {
    fn is_booked_in_memory(&self, id: RequestId) -> bool {
        self.pending.get(&id).is_some_and(|pending| pending.booked)
    }

    fn pending_unbooked(&self) -> impl Iterator<Item = RequestId> {
        self.pending.iter().filter(|(_, pending)| !pending.booked).map(|(id, _)| *id)
    }

    fn record_entry(&mut self, id: RequestId, seq: u32) {
        if let Entry::Vacant(entry) = self.ids.entry(id) {
            entry.insert(seq);
            *self.segments.entry(seq).or_insert(0) += 1;
        }
    }
}

/// The milliseconds of a version 7 UUID, as a timestamp.
fn arrival(id: RequestId) -> Timestamp {
    let millis = i64::try_from(id.uuid().as_u128() >> 80).expect("48 bits fit");
    Timestamp(millis * 1_000)
}

/// The open segment of a shard and the entries still to be written.
#[derive(Debug, Default)]
pub(super) struct SegmentWriter {
    pub(super) segment: Option<OpenSegment>,
    pub(super) collected: CollectedFrames,
    /// Frames that could not be written.
    pub(super) pending: VecDeque<PendingFrame>,
}

/// Frames that belong to the open segment and are written to it together. The segment's length and number of entries include them.
#[derive(Debug, Default)]
pub(super) struct CollectedFrames {
    pub(super) bytes: Vec<u8>,
    /// The request and kind of each frame, and where it ends in `bytes`.
    pub(super) frames: Vec<(RequestId, EntryKind, usize)>,
}

impl CollectedFrames {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
    }
}

#[derive(Debug)]
pub(super) struct OpenSegment {
    pub(super) file: Arc<SegmentFile>,
    pub(super) seq: u32,
    pub(super) bytes: u64,
    pub(super) entries: u32,
}

impl OpenSegment {
    /// Whether a frame of this size must go to the next segment.
    pub(super) fn is_full(&self, size: u64, segment_bytes: u64) -> bool {
        self.bytes + size > segment_bytes && self.bytes > HEADER_LENGTH as u64
    }
}

#[derive(Debug)]
pub(super) struct PendingFrame {
    pub(super) id: RequestId,
    pub(super) kind: EntryKind,
    pub(super) frame: Arc<[u8]>,
}

impl SegmentWriter {
    pub(super) fn pending_ends(&self) -> impl Iterator<Item = (RequestId, Arc<[u8]>)> {
        let ends = self.pending.iter().filter(|pending| pending.kind == EntryKind::End);
        ends.map(|pending| (pending.id, Arc::clone(&pending.frame)))
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// Shard of records that the database refused; no core has this number.
pub(super) const QUARANTINE_SHARD: u16 = u16::MAX;
/// Shard of records that no core's shard accepted; no core has this number.
pub(super) const OVERFLOW_SHARD: u16 = u16::MAX - 1;

#[derive(Debug)]
pub(super) struct JournalState {
    pub(super) dir: PathBuf,
    pub(super) node: Uuid,
    pub(super) segment_bytes: u64,
    pub(super) max_bytes: AtomicU64,
    pub(super) memory_bytes: u64,
    pub(super) sync: JournalSync,
    pub(super) bytes: AtomicU64,
    /// Entries are kept in memory, so that the database can use the remaining space on the disk.
    pub(super) is_paused: AtomicBool,
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

    pub(super) fn max_bytes(&self) -> u64 {
        self.max_bytes.load(Ordering::Relaxed)
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
        // A segment can be longer than its counted bytes, if a partial write could not be undone.
        let less = |bytes: u64| Some(bytes.saturating_sub(removed));
        let _ = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    pub(super) fn is_unbooked(&self, id: RequestId) -> bool {
        self.shards().values().any(|shard| shard.is_unbooked(id)) && !self.quarantined().contains(&id)
    }
}
