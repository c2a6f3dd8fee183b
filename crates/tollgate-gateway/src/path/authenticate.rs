//! Stage 1 of 11: authenticate. In: the request's head; out: the caller, or why the key is refused. The body is not read yet.
//!
//! A cached key does not wait. A cache miss asks the store; a store that does not answer gives 503 (E68), never 401.

use std::sync::Arc;

use tollgate_core::{Caller, Catalog, Key, KeyStatus, MemberStatus, Timestamp};
use tollgate_protocol::Target;

use super::{Worker, types::usage_guard::UsageGuard};
use crate::{refusal::Refusal, request::Head, state::authenticator::Authenticator};

/// Authenticates the caller. From here on the request leaves a usage record, also when a known key is refused.
///
/// # Errors
/// E1 to E6, E68, and E31 for wrong keys from an address that sent too many of them.
pub(super) async fn authenticate(
    worker: &Worker,
    catalog: &Catalog,
    head: &Head,
    target: &Target,
    guard: &mut UsageGuard,
) -> Result<Caller, Refusal> {
    match caller_of(&worker.shared.keys, catalog, head, head.arrived).await {
        Ok(caller) => {
            guard.authenticated(&caller.key, head, target.method);
            Ok(caller)
        }
        Err(error) => {
            if let Some(key) = &error.key {
                guard.authenticated(key, head, target.method);
            }
            Err(error.refusal)
        }
    }
}

/// Why a caller is refused.
#[derive(Clone, Debug)]
pub(crate) struct AuthError {
    pub(crate) refusal: Refusal,
    /// The key, when it is known (E3 to E6). The refusal is recorded under it.
    pub(crate) key: Option<Arc<Key>>,
}

impl AuthError {
    fn unknown_key(refusal: Refusal) -> Self {
        Self { refusal, key: None }
    }

    fn known_key(refusal: Refusal, key: Arc<Key>) -> Self {
        Self { refusal, key: Some(key) }
    }
}

/// The caller behind the key that a request presents, as of `now`.
///
/// # Errors
/// As [`authenticate`].
pub(crate) async fn caller_of(
    authenticator: &Authenticator,
    catalog: &Catalog,
    head: &Head,
    now: Timestamp,
) -> Result<Caller, AuthError> {
    let Some(presented) = &head.presented_key else { return Err(AuthError::unknown_key(Refusal::KeyMissing)) };
    let Some(key) = authenticator.find(presented.expose()).await.map_err(AuthError::unknown_key)? else {
        let refusal = match authenticator.wrong_key(head.peer) {
            Ok(()) => Refusal::KeyInvalid,
            Err(retry_after) => Refusal::WrongKeys { retry_after },
        };
        return Err(AuthError::unknown_key(refusal));
    };
    let is_allowed_address = head.peer.map_or(key.ip_allow.is_empty(), |peer| key.allows_address(peer));
    match check(&key, is_allowed_address, now) {
        Ok(()) => Ok(Caller::of(catalog, key)),
        Err(refusal) => Err(AuthError::known_key(refusal, key)),
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
