//! Keys known to be revoked, from the database or from other nodes. Revocation is permanent, so an entry is valid regardless of the
//! database and of caches.
//!
//! Bound: 100,000 keys; beyond it the least used ones are left to the database.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use moka::sync::Cache;
use tollgate_core::KeyId;

const MAX_KEYS: u64 = 100_000;

/// The revoked keys.
pub(super) struct RevokedKeys {
    keys: Cache<KeyId, ()>,
    /// False while there is none, which spares the look-up.
    any: AtomicBool,
}

impl Default for RevokedKeys {
    fn default() -> Self {
        Self { keys: Cache::new(MAX_KEYS), any: AtomicBool::new(false) }
    }
}

impl fmt::Debug for RevokedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevokedKeys").field("keys", &self.keys.entry_count()).finish_non_exhaustive()
    }
}

impl RevokedKeys {
    /// Adds a key; false if it was known.
    pub(super) fn add(&self, key: KeyId) -> bool {
        let is_new = !self.contains(key);
        self.keys.insert(key, ());
        self.any.store(true, Ordering::Release);
        is_new
    }

    pub(super) fn contains(&self, key: KeyId) -> bool {
        self.any.load(Ordering::Acquire) && self.keys.contains_key(&key)
    }
}
