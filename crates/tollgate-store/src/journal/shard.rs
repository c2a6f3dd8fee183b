//! What is not booked yet, by core: which ids stand in which segments, so that a segment can go when each of its ids
//! has an end in the database.
//!
//! Segments of a core go in order: while a request's `begin` is kept its later entries are kept too, so recovery
//! never sees a beginning without the end that was written.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fs, io,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tollgate_core::{IdHash, RequestId, Timestamp};

use super::{segment::SegmentName, segment_writer::SegmentWriter};

/// The ids and segments of one core.
#[derive(Debug)]
pub(super) struct JournalShard {
    core: u16,
    /// Taken before the state, never behind it.
    segment_writer: Mutex<SegmentWriter>,
    state: Mutex<ShardState>,
}

#[derive(Debug, Default)]
struct ShardState {
    /// Unbooked ids and the segment in which each began.
    ids: HashMap<RequestId, u32, IdHash>,
    /// How many unbooked ids began in each segment.
    segments: BTreeMap<u32, u64>,
    /// Ids with entries that wait in memory.
    held: HashMap<RequestId, PendingEntries, IdHash>,
    /// The segment being written.
    current: Option<u32>,
    /// The highest number ever used; numbers are not used twice.
    last: u32,
    taken: bool,
}

/// What waits in memory of one request.
#[derive(Clone, Copy, Debug, Default)]
struct PendingEntries {
    entries: u32,
    /// They need not be written any more.
    booked: bool,
}

impl JournalShard {
    pub(super) fn new(core: u16) -> Self {
        Self { core, segment_writer: Mutex::default(), state: Mutex::default() }
    }

    /// Which core's it is.
    pub(super) const fn core(&self) -> u16 {
        self.core
    }

    /// What writes it. Whoever panicked with it left whole entries behind, since each is one write.
    pub(super) fn segment_writer(&self) -> MutexGuard<'_, SegmentWriter> {
        self.segment_writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, ShardState> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }

    /// Takes the shard for a writer; `false` when another one has it.
    pub(super) fn take(&self) -> bool {
        !std::mem::replace(&mut self.state().taken, true)
    }

    /// The writer is gone: its segment is closed.
    pub(super) fn release(&self) {
        let mut state = self.state();
        state.taken = false;
        state.current = None;
    }

    /// Closes the segment of a shard without a writer; `false` when there is one.
    pub(super) fn close_if_free(&self) -> bool {
        let mut state = self.state();
        if !state.taken {
            state.current = None;
        }
        !state.taken
    }

    /// A segment found at start, with the ids that stand in it.
    pub(super) fn recovered(&self, seq: u32, ids: impl IntoIterator<Item = RequestId>) {
        let mut guard = self.state();
        let state = &mut *guard;
        state.segments.insert(seq, 0);
        state.last = state.last.max(seq);
        for id in ids {
            state.note(id, seq);
        }
    }

    /// The number of the next segment, which becomes the current one.
    pub(super) fn open_next(&self) -> SegmentName {
        let mut state = self.state();
        let seq = state.last + 1;
        state.last = seq;
        state.segments.insert(seq, 0);
        state.current = Some(seq);
        SegmentName { core: self.core, seq }
    }

    /// Closes the current segment if everything in it is booked, so that it can go.
    pub(super) fn close_if_booked(&self) -> bool {
        let mut state = self.state();
        let booked = state.current.is_some_and(|seq| state.segments.get(&seq) == Some(&0));
        if booked {
            state.current = None;
        }
        booked
    }

    /// A segment could not be made after all.
    pub(super) fn forget(&self, seq: u32) {
        let mut state = self.state();
        state.segments.remove(&seq);
        state.current = None;
    }

    /// An entry of `id` is about to stand in segment `seq`. One that waited in memory may have been booked meanwhile:
    /// nobody would name it again.
    pub(super) fn note(&self, id: RequestId, seq: u32) {
        let mut state = self.state();
        if !state.is_held_and_booked(id) {
            state.note(id, seq);
        }
    }

    /// An entry of `id` waits in memory.
    pub(super) fn hold(&self, id: RequestId) {
        self.state().held.entry(id).or_default().entries += 1;
    }

    /// Whether what waits of `id` still has to be written.
    pub(super) fn still_needed(&self, id: RequestId) -> bool {
        !self.state().is_held_and_booked(id)
    }

    /// An entry of `id` is on disk now, or is not needed: it waits in memory no more.
    pub(super) fn let_go(&self, id: RequestId) {
        if let Entry::Occupied(mut held) = self.state().held.entry(id) {
            held.get_mut().entries -= 1;
            if held.get().entries == 0 {
                held.remove();
            }
        }
    }

    /// These ids have their end in the database.
    pub(super) fn booked(&self, ids: &[RequestId]) {
        let mut guard = self.state();
        let state = &mut *guard;
        for id in ids {
            if let Some(seq) = state.ids.remove(id)
                && let Some(unbooked) = state.segments.get_mut(&seq)
            {
                *unbooked -= 1;
            }
            if let Some(held) = state.held.get_mut(id) {
                held.booked = true;
            }
        }
    }

    /// Removes the closed segments at the front in which nothing is unbooked. How many bytes are gone.
    pub(super) fn prune(&self, dir: &Path) -> u64 {
        let mut gone = Vec::new();
        {
            let mut state = self.state();
            while let Some((&seq, 0)) = state.segments.first_key_value()
                && state.current != Some(seq)
            {
                state.segments.remove(&seq);
                gone.push(SegmentName { core: self.core, seq }.path(dir));
            }
        }
        let mut bytes = 0;
        for path in gone {
            let size = fs::metadata(&path).map_or(0, |file| file.len());
            match fs::remove_file(&path) {
                Ok(()) => bytes += size,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // It is read once more at the next start, and booked again without effect.
                Err(error) => tracing::warn!(path = %path.display(), %error, "a booked journal segment cannot be removed"),
            }
        }
        bytes
    }

    /// Whether an id waits to be booked.
    pub(super) fn is_unbooked(&self, id: RequestId) -> bool {
        let state = self.state();
        state.ids.contains_key(&id) || state.held.get(&id).is_some_and(|held| !held.booked)
    }

    /// How many ids wait to be booked, those in memory included.
    pub(super) fn unbooked(&self) -> usize {
        let state = self.state();
        state.ids.len() + state.held_unbooked().filter(|id| !state.ids.contains_key(id)).count()
    }

    /// How many of them have entries that wait in memory.
    pub(super) fn held(&self) -> usize {
        self.state().held_unbooked().count()
    }

    /// When the oldest unbooked request arrived, as its id tells.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        let state = self.state();
        state.ids.keys().copied().chain(state.held_unbooked()).map(arrival).min()
    }
}

impl ShardState {
    fn is_held_and_booked(&self, id: RequestId) -> bool {
        self.held.get(&id).is_some_and(|held| held.booked)
    }

    fn held_unbooked(&self) -> impl Iterator<Item = RequestId> {
        self.held.iter().filter(|(_, held)| !held.booked).map(|(id, _)| *id)
    }

    fn note(&mut self, id: RequestId, seq: u32) {
        if let Entry::Vacant(place) = self.ids.entry(id) {
            place.insert(seq);
            *self.segments.entry(seq).or_insert(0) += 1;
        }
    }
}

/// The milliseconds of a uuid v7, as a timestamp.
fn arrival(id: RequestId) -> Timestamp {
    let millis = i64::try_from(id.uuid().as_u128() >> 80).expect("48 bits are left");
    Timestamp(millis * 1_000)
}
