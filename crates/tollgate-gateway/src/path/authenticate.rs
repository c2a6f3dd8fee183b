//! Stage 1 of 11: authenticate. In: the request's head; out: the caller, or why the key is refused. The body is not read yet.
//!
//! A cached key does not wait. A cache miss asks the store; a store that does not answer gives 503 (E68), never 401. What is
//! known to be refused whatever the body says is refused here: a key above its share of the requests in progress, or whose
//! limits or money are used up.

use std::net::IpAddr;

use tollgate_core::{
    Caller, Catalog, EarlyRequest, Key, KeyStatus, LimitExceeded, MemberStatus, RateExceeded, RateKind, RateStatuses, Subject,
    Timestamp, exhausted_limit, has_limits,
};
use tollgate_protocol::{Method, Target};

use super::{Worker, types::usage_guard::UsageGuard};
use crate::{
    refusal::Refusal,
    request::{BodyMemory, Head},
    state::{
        authenticator::{Authenticator, KnownKey},
        shared::Shared,
        shares::{Receiving, ShareExceeded},
    },
};

/// Authenticates the caller. From here on the request leaves a usage record, also when a known key is refused. The caller's
/// request counts as being received until the second result is dropped.
///
/// # Errors
/// E1 to E6, E68; E31 for wrong keys from an address that sent too many of them, and for a key above its share; E31 and E32 for
/// a key with nothing left.
pub(super) async fn authenticate(
    worker: &Worker,
    catalog: &Catalog,
    head: &Head,
    target: &Target,
    memory: Option<&BodyMemory>,
    guard: &mut UsageGuard,
) -> Result<(Caller, Receiving), Refusal> {
    let known = match known_key(&worker.shared.keys, head, head.arrived).await {
        Ok(known) => known,
        Err(error) => {
            if let Some(known) = &error.key {
                guard.authenticated(known, head, target.method);
            }
            return Err(error.refusal);
        }
    };
    guard.authenticated(&known, head, target.method);
    let KnownKey { key, share } = known;
    if let Some(memory) = memory {
        memory.request().claim(&share).map_err(|exceeded| above_share(&exceeded, head.arrived))?;
    }
    if !share.may_record(&worker.shared.condition) {
        return Err(Refusal::Overloaded);
    }
    let receiving = share.begin_receiving();
    match nothing_left(&worker.shared, catalog, &key, head.arrived, target.method, &receiving) {
        None => Ok((Caller::of(catalog, key), receiving)),
        Some(exceeded) => Err(Refusal::limit_exceeded(&exceeded, head.arrived)),
    }
}

/// E31: the key or its member has as many requests in progress as others leave it.
fn above_share(exceeded: &ShareExceeded, at: Timestamp) -> Refusal {
    let ShareExceeded { subject, held, most } = *exceeded;
    let (limit, used, kind) = (most as u64, held as u64, RateKind::Concurrency);
    let rate = RateExceeded { subject, kind, limit, used, wait_ms: 1_000, rate_statuses: RateStatuses::default() };
    Refusal::limit_exceeded(&LimitExceeded::Rate(rate), at)
}

/// The limit that refuses any further request of the key. Counters that are shared with other nodes lag behind and are asked
/// when the request is admitted; here only the requests that this node is receiving count then.
fn nothing_left(
    shared: &Shared,
    catalog: &Catalog,
    key: &Key,
    at: Timestamp,
    method: Method,
    receiving: &Receiving,
) -> Option<LimitExceeded> {
    if !has_limits(key) {
        return None;
    }
    let lags = shared.counters.is_shared();
    let subjects = [Subject::Key(key.id), Subject::Member(key.member.id)];
    let known = if lags { &[][..] } else { &subjects };
    let meters = shared.counters.snapshot(known, shared.clock.instant());
    let costs_money = !lags && catalog.sells_nothing_free && method != Method::CountTokens;
    let request = EarlyRequest { key, at, costs_money, micros: meters.micros };
    let meter = |subject| meters.meters.iter().find(|(of, _)| *of == subject).map(|(_, meter)| *meter).unwrap_or_default();
    exhausted_limit(&request, |subject| receiving.before(subject), meter)
}

/// Why a caller is refused.
#[derive(Clone, Debug)]
pub(crate) struct AuthError {
    pub(crate) refusal: Refusal,
    /// The key, when it is known (E3 to E6). The refusal is recorded under it.
    pub(crate) key: Option<KnownKey>,
}

impl AuthError {
    fn unknown_key(refusal: Refusal) -> Self {
        Self { refusal, key: None }
    }

    fn known_key(refusal: Refusal, known: KnownKey) -> Self {
        Self { refusal, key: Some(known) }
    }
}

/// The caller behind the key that a request presents, as of `now`.
///
/// # Errors
/// As [`known_key`].
pub(crate) async fn caller_of(
    authenticator: &Authenticator,
    catalog: &Catalog,
    head: &Head,
    now: Timestamp,
) -> Result<Caller, AuthError> {
    known_key(authenticator, head, now).await.map(|known| Caller::of(catalog, known.key))
}

/// The key that a request presents, as of `now`.
///
/// # Errors
/// E1 to E6, E68, and E31 for wrong keys from an address that sent too many of them.
async fn known_key(authenticator: &Authenticator, head: &Head, now: Timestamp) -> Result<KnownKey, AuthError> {
    let Some(presented) = &head.presented_key else { return Err(AuthError::unknown_key(Refusal::KeyMissing)) };
    let Some(known) = authenticator.find(presented.expose(), head.peer).await.map_err(AuthError::unknown_key)? else {
        let refusal = match authenticator.wrong_key(head.peer) {
            Ok(()) => Refusal::KeyInvalid,
            Err(retry_after) => Refusal::WrongKeys { retry_after },
        };
        return Err(AuthError::unknown_key(refusal));
    };
    let Err(refusal) = check(&known.key, Some(head.peer), now) else { return Ok(known) };
    // A key that is refused whatever it asks for counts as a wrong one: requests with it are not recorded for ever.
    Err(match authenticator.wrong_key(head.peer) {
        Ok(()) => AuthError::known_key(refusal, known),
        Err(retry_after) => AuthError::unknown_key(Refusal::WrongKeys { retry_after }),
    })
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
