//! The key of a connection's last request, which its next request most likely uses too.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{KnownKey, fingerprint::KeyFingerprint};

/// Remembers the last key that was found for a connection. Each request still checks whether the key may be used. The key's data is
/// reused until any key changes.
#[derive(Default)]
pub(crate) struct RecentKey(Mutex<Option<FoundKey>>);

struct FoundKey {
    fingerprint: KeyFingerprint,
    /// The cache's generation before it was found.
    generation: u64,
    known: KnownKey,
}

impl RecentKey {
    /// The key with this fingerprint, if it was the last one found and nothing changed since.
    pub(super) fn get(&self, fingerprint: KeyFingerprint, generation: u64) -> Option<KnownKey> {
        let found = self.lock();
        let found = found.as_ref().filter(|found| found.generation == generation && found.fingerprint == fingerprint)?;
        Some(found.known.clone())
    }

    pub(super) fn set(&self, fingerprint: KeyFingerprint, generation: u64, known: KnownKey) {
        *self.lock() = Some(FoundKey { fingerprint, generation, known });
    }

    fn lock(&self) -> MutexGuard<'_, Option<FoundKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RecentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentKey").finish_non_exhaustive()
    }
}
