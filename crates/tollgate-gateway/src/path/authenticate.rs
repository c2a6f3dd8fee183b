//! Stage 1 of 11: authenticate. In: the request's head; out: the caller, or why the key is refused. The body is not read yet.
//!
//! A cached key does not wait. A cache miss asks the store; a store that does not answer gives 503 (E68), never 401.

use std::{net::IpAddr, sync::Arc};

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

/// The caller of a request by its presented key, as of `now`.
pub(crate) async fn caller_of(
    authenticator: &Authenticator,
    catalog: &Catalog,
    head: &Head,
    now: Timestamp,
) -> Result<Caller, AuthError> {
    let Some(presented) = &head.presented_key else { return Err(Refusal::KeyMissing.into()) };
    let Some(key) = authenticator.find(presented.expose()).await? else {
        authenticator.wrong_key(head.peer).map_err(|retry_after| Refusal::WrongKeys { retry_after })?;
        return Err(Refusal::KeyInvalid.into());
    };
    match check(&key, Some(head.peer), now) {
        Ok(()) => Ok(Caller::of(catalog, key)),
        Err(refusal) => Err(AuthError { refusal, key: Some(key) }),
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
