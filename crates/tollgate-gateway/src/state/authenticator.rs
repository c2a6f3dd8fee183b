//! Looks up presented keys: a bounded cache in front of the store, and a count of failed keys per address.

mod blocked;
mod cache;
mod fingerprint;
mod recent_key;
mod revoked_keys;

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::watch, time::timeout};
use tokio_util::task::TaskTracker;
use tollgate_core::{Caller, Catalog, Key, KeyId, KeyStatus, MemberStatus, Requester, Revision, Secret, Subject, Timestamp};
use tollgate_store::{KeyHasher, KeyStore, looks_like_key};

use self::{
    blocked::Blocked,
    cache::{CachedLookup, KeyCache},
    fingerprint::{KeyFingerprint, KeyFingerprints},
    revoked_keys::RevokedKeys,
};
pub(crate) use self::{cache::KnownKey, recent_key::RecentKey};
use crate::{
    address_block::AddressBlock,
    clock::Clock,
    own_limit::no_descriptors_left,
    refusal::Refusal,
    request::Head,
    settings::Settings,
    state::{
        address_rate::AddressRate,
        shares::{Bound, FairSemaphore, Holder, TooManyWaiting},
    },
};

/// Concurrent key look-ups over all cores; further ones wait.
pub(crate) const LOOKUPS: usize = 64;
/// Requests that wait for a key look-up; further ones are refused.
pub(crate) const WAITING_LOOKUPS: usize = 4_096;
/// Longer texts are not keys.
const MAX_KEY_BYTES: usize = 200;
/// Longest wait for a key look-up, including the wait for a permit.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Looks up keys through the cache and counts failed ones by address.
pub struct Authenticator {
    hasher: KeyHasher,
    fingerprints: KeyFingerprints,
    store: Arc<dyn KeyStore>,
    cache: KeyCache,
    failed: AddressRate,
    revoked: RevokedKeys,
    blocked: Blocked,
    /// Disabled keys and suspended members whose running streams end.
    stopped: Blocked,
    /// Key look-ups by address: keys that are not known yet.
    lookups: Arc<FairSemaphore>,
    /// The revision of the catalog that this node has read last, with the changed keys evicted.
    read: watch::Sender<Revision>,
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
            fingerprints: KeyFingerprints::new(&hasher),
            hasher,
            store,
            cache: KeyCache::new(settings.key_cache_entries, settings.wrong_key_memory),
            failed: AddressRate::new(Bound::WrongKeys, settings.wrong_keys_per_minute, clock.instant()),
            revoked: RevokedKeys::default(),
            blocked: Blocked::default(),
            stopped: Blocked::default(),
            lookups: FairSemaphore::new(Bound::KeyLookups, LOOKUPS, WAITING_LOOKUPS),
            read: watch::Sender::new(Revision(0)),
            runtime,
            tracker,
            clock,
        }
    }

    /// Limits wrong keys per address and minute from now on.
    pub(crate) fn limit_wrong_keys(&self, per_minute: u32) {
        self.failed.set_limit(per_minute);
    }

    pub fn drop_key(&self, key: KeyId) {
        self.cache.evict(key);
    }

    /// Marks keys as revoked, independent of the store. Returns those that were not marked before.
    pub fn revoke(&self, keys: impl IntoIterator<Item = KeyId>) -> Vec<KeyId> {
        let new: Vec<KeyId> = keys.into_iter().filter(|key| self.revoked.add(*key)).collect();
        if !new.is_empty() {
            self.cache.begin_generation();
        }
        new
    }

    /// Refuses a disabled key or a suspended member that another node has read from the database at `revision`, until
    /// [`Self::allow`] or until this node has a catalog of that revision. False if that was known.
    pub fn block(&self, subject: Subject, revision: Revision) -> bool {
        let is_new = self.blocked.add(subject, revision);
        if is_new {
            self.cache.begin_generation();
        }
        is_new
    }

    /// Ends the running streams of a key that was disabled or a member that was suspended at `revision`, until
    /// [`Self::resume`]. False if that was known.
    pub(crate) fn stop(&self, subject: Subject, revision: Revision) -> bool {
        self.stopped.add(subject, revision)
    }

    /// Ends a stop ([`Self::stop`]): the key or member may be used again.
    pub(crate) fn resume(&self, subject: Subject) {
        self.stopped.remove(|stopped, _| stopped == subject);
    }

    /// Why running streams of a key end; `None` while it may be used.
    pub(crate) fn lost_access(&self, by: Requester) -> Option<Refusal> {
        if self.is_revoked(by.key) || self.stopped.contains(Subject::Key(by.key)) {
            return Some(Refusal::KeyDisabled);
        }
        self.stopped.contains(Subject::Member(by.member)).then_some(Refusal::Suspended)
    }

    /// Ends a block of an older revision. Returns false if there is none.
    pub fn allow(&self, subject: Subject, revision: Revision) -> bool {
        self.end_blocks(|blocked, since| blocked == subject && since < revision)
    }

    /// Ends the blocks up to a revision whose catalog this node has read from the database, with the changed keys evicted.
    pub fn has_read(&self, revision: Revision) {
        self.end_blocks(|_, since| since <= revision);
        self.read.send_replace(revision);
    }

    /// Returns once this node has read a revision, so that new requests see its changes.
    pub async fn until_read(&self, revision: Revision) {
        // The sender is part of `self`, so the channel is open.
        let _ = self.read.subscribe().wait_for(|read| *read >= revision).await;
    }

    /// Ends the blocks after the database's current revision: they were reported from a database that was replaced since.
    pub fn forget_blocks_after(&self, revision: Revision) {
        self.end_blocks(|_, since| since > revision);
    }

    fn end_blocks(&self, ends: impl Fn(Subject, Revision) -> bool) -> bool {
        let has_ended = self.blocked.remove(ends);
        if has_ended {
            self.cache.begin_generation();
        }
        has_ended
    }

    /// Whether a key is known to be revoked.
    fn is_revoked(&self, key: KeyId) -> bool {
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

    /// Counts a wrong key presented on another interface, such as the admin API.
    ///
    /// # Errors
    /// The seconds to wait when the address exceeded its wrong keys per minute.
    pub fn wrong_key(&self, from: Option<IpAddr>) -> Result<(), u32> {
        self.failed.count(from, self.clock.instant())
    }

    /// The caller of a request by its presented key, as of `now`.
    pub(crate) async fn caller_of(&self, catalog: &Catalog, head: &Head, now: Timestamp) -> Result<Caller, AuthError> {
        self.known_key(head, now).await.map(|known| Caller::of(catalog, known.key))
    }

    /// The key that a request presents, as of `now`.
    ///
    /// # Errors
    /// E1 to E6, E63, E68, and E31 for wrong keys from an address that sent too many of them.
    pub(crate) async fn known_key(&self, head: &Head, now: Timestamp) -> Result<KnownKey, AuthError> {
        let Some(presented) = &head.presented_key else { return Err(Refusal::KeyMissing.into()) };
        let other = head.other_key.as_ref().map(Secret::expose);
        self.usable_key((presented.expose(), other), head.peer, head.recent_key.as_deref(), now).await
    }

    /// The key that a request outside the model path presents from this address, as of `now`. Looked up, checked and counted as for
    /// model requests.
    ///
    /// # Errors
    /// E2 to E6, E63, E68, and E31 for wrong keys from an address that sent too many of them.
    pub async fn service_key(&self, presented: &str, from: Option<IpAddr>, now: Timestamp) -> Result<Arc<Key>, Refusal> {
        let known = self.usable_key((presented, None), from, None, now).await;
        known.map(|known| known.key).map_err(|error| error.refusal)
    }

    /// The first of two keys, or the other if that one is usable and the first is not. A failure is about the first, and counts once.
    async fn usable_key(
        &self,
        (presented, other): (&str, Option<&str>),
        from: Option<IpAddr>,
        recent: Option<&RecentKey>,
        now: Timestamp,
    ) -> Result<KnownKey, AuthError> {
        let error = match self.checked_key(presented, from, recent, now).await {
            Ok(known) => return Ok(known),
            Err(error) if !error.is_of_the_key() => return Err(error),
            Err(error) => error,
        };
        if let Some(other) = other.filter(|other| *other != presented) {
            match self.checked_key(other, from, recent, now).await {
                Ok(known) => return Ok(known),
                Err(error) if !error.is_of_the_key() => return Err(error),
                Err(_) => {}
            }
        }
        // A key of which every request is refused counts as a wrong key, so that its requests do not fill the usage log.
        self.wrong_key(from).map_err(|retry_after| Refusal::WrongKeys { retry_after })?;
        Err(error)
    }

    async fn checked_key(
        &self,
        presented: &str,
        from: Option<IpAddr>,
        recent: Option<&RecentKey>,
        now: Timestamp,
    ) -> Result<KnownKey, AuthError> {
        let Some(known) = self.find(presented, from, recent).await? else { return Err(Refusal::KeyInvalid.into()) };
        let is_allowed_address = from.map_or(known.key.ip_allow.is_empty(), |peer| known.key.allows_address(peer));
        match check(&known.key, is_allowed_address, now) {
            Ok(()) => Ok(known),
            Err(refusal) => Err(AuthError { refusal, key: Some(known) }),
        }
    }

    /// The key with this secret, presented from this address; `None` if there is none. `recent` is the connection's last key, which costs
    /// only a fingerprint and a comparison.
    ///
    /// # Errors
    /// E68 when the store does not answer in time; E63 when too many look-ups of this address wait.
    pub(crate) async fn find(
        &self,
        presented: &str,
        from: Option<IpAddr>,
        recent: Option<&RecentKey>,
    ) -> Result<Option<KnownKey>, Refusal> {
        if presented.len() > MAX_KEY_BYTES {
            return Ok(None);
        }
        let fingerprint = self.fingerprints.of(presented);
        // Read before anything about the key, so that the next request notices a change in between.
        let generation = self.cache.generation();
        if let Some(known) = recent.and_then(|recent| recent.get(fingerprint, generation)) {
            return Ok(Some(known));
        }
        let found = match self.cache.get(fingerprint) {
            Some(CachedLookup::Key(known)) => Some(known),
            Some(CachedLookup::Wrong) => None,
            None if !looks_like_key(presented) => None,
            None => self.look_up(presented, fingerprint, AddressBlock::of_caller(from)).await?,
        };
        let found = found.map(|known| self.as_reported(known));
        if let (Some(recent), Some(known)) = (recent, &found) {
            recent.set(fingerprint, generation, known.clone());
        }
        Ok(found)
    }

    /// A key with the state that other nodes have reported.
    fn as_reported(&self, known: KnownKey) -> KnownKey {
        let KnownKey { key, .. } = &known;
        if self.is_revoked(key.id) {
            return known.with(|key| key.status = KeyStatus::Revoked);
        }
        if self.blocked.contains(Subject::Key(key.id)) {
            return known.with(|key| key.status = KeyStatus::Disabled);
        }
        if self.blocked.contains(Subject::Member(key.member.id)) {
            return known.with(|key| key.member.status = MemberStatus::Suspended);
        }
        known
    }

    async fn look_up(&self, presented: &str, fingerprint: KeyFingerprint, from: AddressBlock) -> Result<Option<KnownKey>, Refusal> {
        let hash = self.hasher.hash(presented);
        let generation = self.cache.generation();
        let (store, lookups) = (Arc::clone(&self.store), Arc::clone(&self.lookups));
        let lookup = self.tracker.spawn_on(
            timeout(LOOKUP_TIMEOUT, async move {
                let _permit = lookups.acquire(&[Holder::Address(from)]).await?;
                Ok(store.find(&hash).await)
            }),
            &self.runtime,
        );
        match lookup.await {
            Ok(Ok(Ok(Ok(found)))) => Ok(self.cache.insert(fingerprint, found.map(Arc::new), generation)),
            Ok(Ok(Err(TooManyWaiting))) => Err(Refusal::Overloaded),
            Ok(Ok(Ok(Err(error)))) => {
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
    pub(crate) key: Option<KnownKey>,
}

impl AuthError {
    /// True if the key itself is at fault (unknown or not usable), so that the request may succeed with another key.
    fn is_of_the_key(&self) -> bool {
        self.key.is_some() || matches!(self.refusal, Refusal::KeyInvalid)
    }
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
