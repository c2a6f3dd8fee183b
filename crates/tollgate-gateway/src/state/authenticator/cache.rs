//! Cache of key look-ups by fingerprint: valid keys until they change, wrong ones for a short time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moka::sync::Cache;
use tollgate_core::{IdHash, Key, KeyId};

use super::fingerprint::KeyFingerprint;
use crate::state::shares::{KeyShare, ShareRegistry};

/// A key and its cached data.
#[derive(Clone, Debug)]
pub(crate) struct KnownKey {
    pub(crate) key: Arc<Key>,
    pub(crate) share: Arc<KeyShare>,
}

impl KnownKey {
    /// This key after a change.
    pub(super) fn with(self, change: impl FnOnce(&mut Key)) -> Self {
        let mut key = (*self.key).clone();
        change(&mut key);
        Self { key: Arc::new(key), share: self.share }
    }
}

/// A cached look-up result: the key, or that no such key exists.
pub(super) enum CachedLookup {
    Key(KnownKey),
    Wrong,
}

/// Two bounded caches and a generation number. A result read before a change must not be used after it, so readers note the generation
/// they started with. It changes twice: before entries are removed, which voids results read from the store meanwhile, and afterwards,
/// which voids results read from the cache.
pub(super) struct KeyCache {
    keys: Cache<KeyFingerprint, KnownKey, IdHash>,
    wrong: Cache<KeyFingerprint, (), IdHash>,
    shares: ShareRegistry,
    generation: AtomicU64,
}

impl KeyCache {
    pub(super) fn new(entries: u64, wrong_for: Duration) -> Self {
        Self {
            keys: Cache::builder().max_capacity(entries).support_invalidation_closures().build_with_hasher(IdHash::default()),
            wrong: Cache::builder().max_capacity(entries).time_to_live(wrong_for).build_with_hasher(IdHash::default()),
            shares: ShareRegistry::default(),
            generation: AtomicU64::new(0),
        }
    }

    pub(super) fn get(&self, fingerprint: KeyFingerprint) -> Option<CachedLookup> {
        if let Some(key) = self.keys.get(&fingerprint) {
            return Some(CachedLookup::Key(key));
        }
        self.wrong.contains_key(&fingerprint).then_some(CachedLookup::Wrong)
    }

    /// The number of invalidations so far.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Inserts a look-up result, unless the generation changed since `generation`. Returns it with the key's share.
    pub(super) fn insert(&self, fingerprint: KeyFingerprint, found: Option<Arc<Key>>, generation: u64) -> Option<KnownKey> {
        let found = found.map(|key| KnownKey { share: self.shares.of(&key), key });
        if self.generation() != generation {
            return found;
        }
        match found.clone() {
            Some(known) => self.keys.insert(fingerprint, known),
            None => self.wrong.insert(fingerprint, ()),
        }
        // An invalidation may have come between the check and the insert: remove the entry.
        if self.generation() != generation {
            self.keys.invalidate(&fingerprint);
            self.wrong.invalidate(&fingerprint);
        }
        found
    }

    pub(super) fn evict(&self, id: KeyId) {
        self.change(|| {
            if self.keys.invalidate_entries_if(move |_, known| known.key.id == id).is_err() {
                // Fails only without closure support, which the builder enables.
                self.keys.invalidate_all();
            }
        });
    }

    pub(super) fn evict_wrong(&self) {
        self.change(|| self.wrong.invalidate_all());
    }

    pub(super) fn evict_all(&self) {
        self.change(|| {
            self.keys.invalidate_all();
            self.wrong.invalidate_all();
        });
    }

    /// Begins a new generation, after which no earlier look-up is used, that of a connection's recent key included.
    pub(super) fn begin_generation(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn change(&self, remove: impl FnOnce()) {
        self.begin_generation();
        remove();
        self.begin_generation();
    }
}

#[cfg(test)]
impl KeyCache {
    /// Evicts all entries without a new generation, as if for lack of space.
    pub(super) fn forget_entries(&self) {
        self.keys.invalidate_all();
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

    fn fingerprint(number: u64) -> KeyFingerprint {
        // Spread evenly, as real fingerprints are.
        let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        KeyFingerprint::from_number((u128::from(mixed) << 64) | u128::from(number))
    }

    #[test]
    fn cache_of_a_million_keys_stays_within_its_bound() {
        const KEYS: u64 = 1_000_000;
        const BOUND: u64 = 100_000;
        let cache = KeyCache::new(BOUND, Duration::from_secs(10));
        let (before, begin) = (resident(), SystemClock.instant());
        for number in 0..KEYS {
            let key = Key { name: format!("key-{number}"), ..testing::key() };
            cache.insert(fingerprint(number), Some(Arc::new(key)), cache.generation());
        }
        cache.keys.run_pending_tasks();
        let inserted = SystemClock.instant().saturating_duration_since(begin);
        let begin = SystemClock.instant();
        let found = (0..KEYS).filter(|number| matches!(cache.get(fingerprint(*number)), Some(CachedLookup::Key(_)))).count() as u64;
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
