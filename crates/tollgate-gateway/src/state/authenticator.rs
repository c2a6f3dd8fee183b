//! Looks up presented keys: a bounded cache in front of the store, and a count of failed keys per address.

mod cache;
mod failed_keys;

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use tokio::{runtime::Handle, sync::Semaphore, time::timeout};
use tokio_util::task::TaskTracker;
use tollgate_core::{Caller, Catalog, Key, KeyId, KeyStatus, MemberStatus, Timestamp};
use tollgate_store::{KeyHash, KeyHasher, KeyStore, looks_like_key};

use self::{
    cache::{CachedLookup, KeyCache},
    failed_keys::FailedKeys,
};
use crate::{clock::Clock, refusal::Refusal, request::Head, settings::Settings};

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
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            runtime,
            tracker,
            clock,
        }
    }

    pub fn drop_key(&self, key: KeyId) {
        self.cache.evict(key);
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
    pub fn wrong_key(&self, from: Option<IpAddr>) -> Result<(), u32> {
        self.failed.count(from.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), self.clock.instant())
    }

    /// The caller of a request by its presented key, as of `now`.
    pub(crate) async fn caller_of(&self, catalog: &Catalog, head: &Head, now: Timestamp) -> Result<Caller, AuthError> {
        let Some(presented) = &head.presented_key else { return Err(Refusal::KeyMissing.into()) };
        let Some(key) = self.find(presented.expose()).await? else {
            self.wrong_key(head.peer).map_err(|retry_after| Refusal::WrongKeys { retry_after })?;
            return Err(Refusal::KeyInvalid.into());
        };
        let is_allowed_address = head.peer.map_or(key.ip_allow.is_empty(), |peer| key.allows_address(peer));
        match check(&key, is_allowed_address, now) {
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
        match self.cache.get(&hash) {
            Some(CachedLookup::Key(key)) => Ok(Some(key)),
            Some(CachedLookup::Wrong) => Ok(None),
            None => self.look_up(hash).await,
        }
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
                Err(Refusal::KeyCheckUnavailable)
            }
            Ok(Err(_)) | Err(_) => {
                tracing::warn!("key look-up timed out");
                Err(Refusal::KeyCheckUnavailable)
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

/// Checks expiry, status, address and member of a key, in this order (E3 to E6).
pub(crate) fn check(key: &Key, is_allowed_address: bool, now: Timestamp) -> Result<(), Refusal> {
    if let Some(end) = key.expires_at.filter(|end| *end <= now) {
        return Err(Refusal::KeyExpired(end));
    }
    match key.status {
        KeyStatus::Active => {}
        KeyStatus::Disabled | KeyStatus::Revoked => return Err(Refusal::KeyDisabled),
    }
    if !is_allowed_address {
        return Err(Refusal::AddressBlocked);
    }
    match key.member.status {
        MemberStatus::Active => Ok(()),
        MemberStatus::Suspended => Err(Refusal::Suspended),
    }
}

#[cfg(test)]
mod tests;
