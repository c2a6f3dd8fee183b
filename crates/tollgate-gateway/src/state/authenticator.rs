//! Looks up presented keys: a bounded cache in front of the store, and a count of failed keys per address.

mod cache;
mod failed_keys;
mod revoked_keys;

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::Semaphore, time::timeout};
use tokio_util::task::TaskTracker;
use tollgate_core::{Caller, Catalog, Key, KeyId, KeyStatus, MemberStatus, Timestamp};
use tollgate_store::{KeyHash, KeyHasher, KeyStore, looks_like_key};

use self::{
    cache::{CachedLookup, KeyCache},
    failed_keys::FailedKeys,
    revoked_keys::RevokedKeys,
};
use crate::{clock::Clock, own_limit::no_descriptors_left, refusal::Refusal, request::Head, settings::Settings};

/// Concurrent key look-ups over all cores; further ones wait.
const LOOKUPS: usize = 64;
/// Longest wait for a key look-up, including the wait for a permit.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Looks up keys through the cache and counts failed ones by address.
pub struct Authenticator {
    hasher: KeyHasher,
    store: Arc<dyn KeyStore>,
    cache: KeyCache,
    failed: FailedKeys,
    revoked: RevokedKeys,
    lookups: Arc<Semaphore>,
    runtime: Handle,
    tracker: TaskTracker,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

impl Authenticator {
    /// An authenticator in front of `store`. Look-ups run on `runtime`, where the store's connections live.
    #[must_use]
    pub fn new(
        store: Arc<dyn KeyStore>,
        hasher: KeyHasher,
        settings: &Settings,
        clock: Arc<dyn Clock>,
        runtime: Handle,
        tracker: TaskTracker,
    ) -> Self {
        Self {
            hasher,
            store,
            cache: KeyCache::new(settings.key_cache_entries, settings.wrong_key_memory),
            failed: FailedKeys::new(settings.wrong_keys_per_minute, clock.instant()),
            revoked: RevokedKeys::default(),
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            runtime,
            tracker,
            clock,
        }
    }

    pub fn drop_key(&self, key: KeyId) {
        self.cache.evict(key);
    }

    /// Notes that keys are revoked, whatever the store says of them. Returns those that were not known to be.
    pub fn revoke(&self, keys: impl IntoIterator<Item = KeyId>) -> Vec<KeyId> {
        keys.into_iter().filter(|key| self.revoked.add(*key)).collect()
    }

    /// Whether a key is known to be revoked.
    pub(crate) fn is_revoked(&self, key: KeyId) -> bool {
        self.revoked.contains(key)
    }

    /// Evicts all negative entries: one of those keys may just have been created.
    pub fn clear_negatives(&self) {
        self.cache.evict_wrong();
    }

    /// Evicts everything: a member, a group or a grant changed.
    pub fn clear(&self) {
        self.cache.evict_all();
    }

    /// Counts a wrong key that was presented elsewhere, such as on the admin API.
    ///
    /// # Errors
    /// The seconds to wait when the address exceeded its wrong keys per minute.
    pub fn wrong_key(&self, from: IpAddr) -> Result<(), u32> {
        self.failed.count(from, self.clock.instant())
    }

    /// The caller of a request by its presented key, as of `now`.
    pub(crate) async fn caller_of(&self, catalog: &Catalog, head: &Head, now: Timestamp) -> Result<Caller, AuthError> {
        let Some(presented) = &head.presented_key else { return Err(Refusal::KeyMissing.into()) };
        let Some(key) = self.find(presented.expose()).await? else {
            self.wrong_key(head.peer).map_err(|retry_after| Refusal::WrongKeys { retry_after })?;
            return Err(Refusal::KeyInvalid.into());
        };
        match check(&key, Some(head.peer), now) {
            Ok(()) => Ok(Caller::of(catalog, key)),
            Err(refusal) => Err(AuthError { refusal, key: Some(key) }),
        }
    }

    /// The key with a presented secret; `None` when there is none.
    ///
    /// # Errors
    /// E68 when the store does not answer in time.
    pub(crate) async fn find(&self, presented: &str) -> Result<Option<Arc<Key>>, Refusal> {
        if !looks_like_key(presented) {
            return Ok(None);
        }
        let hash = self.hasher.hash(presented);
        let found = match self.cache.get(&hash) {
            Some(CachedLookup::Key(key)) => Some(key),
            Some(CachedLookup::Wrong) => None,
            None => self.look_up(hash).await?,
        };
        Ok(found.map(
            |key| {
                if self.is_revoked(key.id) { Arc::new(Key { status: KeyStatus::Revoked, ..(*key).clone() }) } else { key }
            },
        ))
    }

    async fn look_up(&self, hash: KeyHash) -> Result<Option<Arc<Key>>, Refusal> {
        let generation = self.cache.generation();
        let (store, lookups) = (Arc::clone(&self.store), Arc::clone(&self.lookups));
        let lookup = self.tracker.spawn_on(
            timeout(LOOKUP_TIMEOUT, async move {
                // The semaphore is never closed; if it were, look-ups would only be unbounded.
                let _permit = lookups.acquire_owned().await;
                (store.find(&hash).await, hash)
            }),
            &self.runtime,
        );
        match lookup.await {
            Ok(Ok((Ok(found), hash))) => {
                let found = found.map(Arc::new);
                self.cache.insert(hash, found.clone(), generation);
                Ok(found)
            }
            Ok(Ok((Err(error), _))) => {
                tracing::warn!(error = %error, "key look-up failed");
                Err(if no_descriptors_left() { Refusal::Overloaded } else { Refusal::KeyCheckUnavailable })
            }
            Ok(Err(_)) | Err(_) => {
                tracing::warn!("key look-up timed out");
                Err(if no_descriptors_left() { Refusal::Overloaded } else { Refusal::KeyCheckUnavailable })
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct AuthError {
    pub(crate) refusal: Refusal,
    /// The key, when it is known (E3 to E6). The refusal is recorded under it.
    pub(crate) key: Option<Arc<Key>>,
}

impl From<Refusal> for AuthError {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, key: None }
    }
}

/// Checks expiry, status, address and member of a key, in this order (E3 to E6). Without a request there is no address.
pub(crate) fn check(key: &Key, from: Option<IpAddr>, now: Timestamp) -> Result<(), Refusal> {
    if let Some(end) = key.expires_at.filter(|end| *end <= now) {
        return Err(Refusal::KeyExpired(end));
    }
    match key.status {
        KeyStatus::Active => {}
        KeyStatus::Disabled | KeyStatus::Revoked => return Err(Refusal::KeyDisabled),
    }
    if from.is_some_and(|from| !key.allows_address(from)) {
        return Err(Refusal::AddressBlocked);
    }
    match key.member.status {
        MemberStatus::Active => Ok(()),
        MemberStatus::Suspended => Err(Refusal::Suspended),
    }
}

#[cfg(test)]
mod tests;
