//! What is remembered of keys: right ones until they change, wrong ones for a moment. Looked up by the full hash.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moka::sync::Cache;
use tollgate_core::{Key, KeyId};
use tollgate_store::KeyHash;

/// A key or the knowledge that there is none.
pub(super) enum Remembered {
    Key(Arc<Key>),
    Wrong,
}

/// Two bounded memories and a count of changes. What was read from the store before a change must not be remembered
/// after it, so a reader states the count it saw.
pub(super) struct KeyCache {
    keys: Cache<[u8; 32], Arc<Key>>,
    wrong: Cache<[u8; 32], ()>,
    generation: AtomicU64,
}

impl fmt::Debug for KeyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCache")
            .field("keys", &self.keys.entry_count())
            .field("wrong", &self.wrong.entry_count())
            .finish_non_exhaustive()
    }
}

impl KeyCache {
    pub(super) fn new(entries: u64, wrong_for: Duration) -> Self {
        Self {
            keys: Cache::builder().max_capacity(entries).support_invalidation_closures().build(),
            wrong: Cache::builder().max_capacity(entries).time_to_live(wrong_for).build(),
            generation: AtomicU64::new(0),
        }
    }

    pub(super) fn get(&self, hash: &KeyHash) -> Option<Remembered> {
        if let Some(key) = self.keys.get(&hash.0) {
            return Some(Remembered::Key(key));
        }
        self.wrong.contains_key(&hash.0).then_some(Remembered::Wrong)
    }

    /// How many changes there were.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Remembers what the store said, unless something changed since `seen`.
    pub(super) fn remember(&self, hash: KeyHash, found: Option<Arc<Key>>, seen: u64) {
        if self.generation() != seen {
            return;
        }
        match found {
            Some(key) => self.keys.insert(hash.0, key),
            None => self.wrong.insert(hash.0, ()),
        }
        // A change between the check and the insert: take it out again.
        if self.generation() != seen {
            self.keys.invalidate(&hash.0);
            self.wrong.invalidate(&hash.0);
        }
    }

    pub(super) fn forget(&self, id: KeyId) {
        self.changed();
        if self.keys.invalidate_entries_if(move |_, key| key.id == id).is_err() {
            // Only without closure support, which the builder asked for.
            self.keys.invalidate_all();
        }
    }

    pub(super) fn forget_wrong(&self) {
        self.changed();
        self.wrong.invalidate_all();
    }

    pub(super) fn forget_all(&self) {
        self.changed();
        self.keys.invalidate_all();
        self.wrong.invalidate_all();
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}
