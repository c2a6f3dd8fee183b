//! Cache of key look-ups by full hash: valid keys until they change, wrong ones for a short time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moka::sync::Cache;
use tollgate_core::{Key, KeyId};
use tollgate_store::KeyHash;

/// A cached look-up result: the key, or that no such key exists.
pub(super) enum CachedLookup {
    Key(Arc<Key>),
    Wrong,
}

/// Two bounded caches and a generation number. A result read from the store before a change must not be inserted after
/// it, so the reader passes the generation it started with.
pub(super) struct KeyCache {
    keys: Cache<[u8; 32], Arc<Key>>,
    wrong: Cache<[u8; 32], ()>,
    generation: AtomicU64,
}

impl KeyCache {
    pub(super) fn new(entries: u64, wrong_for: Duration) -> Self {
        Self {
            keys: Cache::builder().max_capacity(entries).support_invalidation_closures().build(),
            wrong: Cache::builder().max_capacity(entries).time_to_live(wrong_for).build(),
            generation: AtomicU64::new(0),
        }
    }

    pub(super) fn get(&self, hash: &KeyHash) -> Option<CachedLookup> {
        if let Some(key) = self.keys.get(&hash.0) {
            return Some(CachedLookup::Key(key));
        }
        self.wrong.contains_key(&hash.0).then_some(CachedLookup::Wrong)
    }

    /// The number of invalidations so far.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Inserts a look-up result, unless the generation changed since `generation`.
    pub(super) fn insert(&self, hash: KeyHash, found: Option<Arc<Key>>, generation: u64) {
        if self.generation() != generation {
            return;
        }
        match found {
            Some(key) => self.keys.insert(hash.0, key),
            None => self.wrong.insert(hash.0, ()),
        }
        // An invalidation may have come between the check and the insert: remove the entry.
        if self.generation() != generation {
            self.keys.invalidate(&hash.0);
            self.wrong.invalidate(&hash.0);
        }
    }

    pub(super) fn evict(&self, id: KeyId) {
        self.changed();
        if self.keys.invalidate_entries_if(move |_, key| key.id == id).is_err() {
            // Fails only without closure support, which the builder enables.
            self.keys.invalidate_all();
        }
    }

    pub(super) fn evict_wrong(&self) {
        self.changed();
        self.wrong.invalidate_all();
    }

    pub(super) fn evict_all(&self) {
        self.changed();
        self.keys.invalidate_all();
        self.wrong.invalidate_all();
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::{Clock as _, SystemClock},
        testing,
    };

    /// Resident memory of the process in KiB.
    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
    }

    fn hash(number: u64) -> KeyHash {
        // Spread evenly, as real hashes are.
        let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&mixed.to_be_bytes());
        bytes[8..16].copy_from_slice(&number.to_be_bytes());
        KeyHash(bytes)
    }

    #[test]
    fn a_million_keys_stay_within_the_cache_bound() {
        const KEYS: u64 = 1_000_000;
        const BOUND: u64 = 100_000;
        let cache = KeyCache::new(BOUND, Duration::from_secs(10));
        let (before, begin) = (resident(), SystemClock.instant());
        for number in 0..KEYS {
            let key = Key { name: format!("key-{number}"), ..testing::key() };
            cache.insert(hash(number), Some(Arc::new(key)), cache.generation());
        }
        cache.keys.run_pending_tasks();
        let inserted = SystemClock.instant().saturating_duration_since(begin);
        let begin = SystemClock.instant();
        let found = (0..KEYS).filter(|number| matches!(cache.get(&hash(*number)), Some(CachedLookup::Key(_)))).count() as u64;
        let looked_up = SystemClock.instant().saturating_duration_since(begin);
        println!(
            "{KEYS} keys through a cache of {BOUND}: {found} kept, {} MiB more, {:.2} µs per insert, {:.2} µs per look-up",
            resident().saturating_sub(before) / 1_024,
            inserted.as_secs_f64(),
            looked_up.as_secs_f64(),
        );
        assert!(found <= BOUND, "{found}");
        assert!(found > BOUND / 2, "{found}");
    }
}
