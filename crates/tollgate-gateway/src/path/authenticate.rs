//! Stage 2 of 9. In: a head; out: the caller, or a refusal of the key.
//!
//! A key that is remembered does not wait for anything. Only a miss asks the store, on the store's own runtime; a
//! store that does not answer is never held against the key (E68, not 401).

use std::{net::IpAddr, sync::Arc};

use tollgate_core::{Caller, Catalog, Key, KeyStatus, MemberStatus, Timestamp};

use crate::{refusal::Refusal, request::Head, state::authenticator::Authenticator};

/// Why a caller is not let in. E3 to E6 are past the authenticator: they name the key, so that a usage record can be written.
#[derive(Clone, Debug)]
pub(crate) struct AuthError {
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

/// Who sends a request.
///
/// # Errors
/// E1 to E6, E68, and E31 for wrong keys from an address that sent too many of them.
pub(crate) async fn authenticate(
    authenticator: &Authenticator,
    catalog: &Catalog,
    head: &Head,
    now: Timestamp,
) -> Result<Caller, AuthError> {
    let Some(presented) = &head.presented_key else { return Err(AuthError::unauthenticated(Refusal::KeyMissing)) };
    let Some(key) = authenticator.find(presented.expose()).await.map_err(AuthError::unauthenticated)? else {
        let refusal = match authenticator.wrong_key(head.peer) {
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
