//! Stage 2 of 9. In: a head; out: the caller, or a refusal of the key.
//!
//! A key that is remembered does not wait for anything. Only a miss asks the store, on the store's own runtime; a
//! store that does not answer is never held against the key (E68, not 401).

mod cache;
mod wrong_keys;

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::Semaphore, time::timeout};
use tokio_util::task::TaskTracker;
use tollgate_core::{Caller, Catalog, Key, KeyId, KeyStatus, MemberStatus, Timestamp};
use tollgate_store::{KeyHash, KeyHasher, KeyStore, looks_like_key};

use self::{
    cache::{KeyCache, Remembered},
    wrong_keys::WrongKeys,
};
use crate::{Clock, Head, Refusal, Settings};

/// Look-ups at once over all cores; more wait.
const LOOKUPS: usize = 64;
/// Longest wait for a look-up, its turn included.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a caller is not let in. E3 to E6 are past the authenticator: they name the key, so that a usage record can be written.
#[derive(Clone, Debug)]
pub struct AuthError {
    /// What the caller is told.
    pub refusal: Refusal,
    /// The key, where it is known.
    pub key: Option<Arc<Key>>,
}

impl AuthError {
    fn unauthenticated(refusal: Refusal) -> Self {
        Self { refusal, key: None }
    }

    fn known(refusal: Refusal, key: Arc<Key>) -> Self {
        Self { refusal, key: Some(key) }
    }
}

/// Where keys are checked: a bounded memory in front of the store, and the count of wrong keys by address.
pub struct Authenticator {
    hasher: KeyHasher,
    store: Arc<dyn KeyStore>,
    cache: KeyCache,
    wrong: WrongKeys,
    lookups: Arc<Semaphore>,
    runtime: Handle,
    tracker: TaskTracker,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("cache", &self.cache).finish_non_exhaustive()
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
            wrong: WrongKeys::new(settings.wrong_keys_per_minute, clock.instant()),
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            runtime,
            tracker,
            clock,
        }
    }

    /// Forgets a key that changed, whatever changed about it.
    pub fn drop_key(&self, key: KeyId) {
        self.cache.forget(key);
    }

    /// Forgets which keys are wrong: one of them may just have been created.
    pub fn clear_negatives(&self) {
        self.cache.forget_wrong();
    }

    /// Forgets everything: a member, a group or a grant changed.
    pub fn clear(&self) {
        self.cache.forget_all();
    }

    /// Counts a wrong key that was presented elsewhere, such as on the admin API.
    ///
    /// # Errors
    /// The seconds to wait, when too many came from this address within a minute.
    pub fn wrong_key(&self, from: IpAddr) -> Result<(), u32> {
        self.wrong.count(from, self.clock.instant())
    }

    /// The key behind a presented secret.
    async fn find(&self, presented: &str) -> Result<Option<Arc<Key>>, Refusal> {
        if !looks_like_key(presented) {
            return Ok(None);
        }
        let hash = self.hasher.hash(presented);
        match self.cache.get(&hash) {
            Some(Remembered::Key(key)) => Ok(Some(key)),
            Some(Remembered::Wrong) => Ok(None),
            None => self.look_up(hash).await,
        }
    }

    async fn look_up(&self, hash: KeyHash) -> Result<Option<Arc<Key>>, Refusal> {
        let seen = self.cache.generation();
        let (store, lookups) = (Arc::clone(&self.store), Arc::clone(&self.lookups));
        let asked = self.tracker.spawn_on(
            timeout(LOOKUP_TIMEOUT, async move {
                // Never closed; a closed one would only mean that nobody waits.
                let _turn = lookups.acquire_owned().await;
                (store.find(&hash).await, hash)
            }),
            &self.runtime,
        );
        match asked.await {
            Ok(Ok((Ok(found), hash))) => {
                let found = found.map(Arc::new);
                self.cache.remember(hash, found.clone(), seen);
                Ok(found)
            }
            Ok(Ok((Err(error), _))) => {
                tracing::warn!(error = %error, "a key could not be looked up");
                Err(Refusal::KeyCheckUnavailable)
            }
            Ok(Err(_)) | Err(_) => {
                tracing::warn!("a key could not be looked up in time");
                Err(Refusal::KeyCheckUnavailable)
            }
        }
    }
}

/// Who sends a request.
///
/// # Errors
/// E1 to E6, E68, and E31 for wrong keys from an address that sent too many of them.
pub async fn authenticate(
    authenticator: &Authenticator,
    catalog: &Catalog,
    head: &Head,
    now: Timestamp,
) -> Result<Caller, AuthError> {
    let Some(presented) = &head.presented_key else { return Err(AuthError::unauthenticated(Refusal::KeyMissing)) };
    let Some(key) = authenticator.find(presented.expose()).await.map_err(AuthError::unauthenticated)? else {
        let refusal = match authenticator.wrong.count(head.peer, authenticator.clock.instant()) {
            Ok(()) => Refusal::KeyInvalid,
            Err(retry_after) => Refusal::WrongKeys { retry_after },
        };
        return Err(AuthError::unauthenticated(refusal));
    };
    match check(&key, Some(head.peer), now) {
        Ok(()) => Ok(Caller::of(catalog, key)),
        Err(refusal) => Err(AuthError::known(refusal, key)),
    }
}

/// E3 to E6, in this order. Where nobody sends the request there is no address either.
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
