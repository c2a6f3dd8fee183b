//! Authentication of callers that request information about themselves, and the bounds on such requests in progress.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{HeaderMap, header};
use tollgate_core::{Key, KeyId, KeyStatus, MemberId};
use tollgate_store::{ObjectScope, RowFilter, RowKind};

use crate::{
    api_error::ApiError,
    auth::{bearer_token, reader},
    gateway_handle::KeyRefusal,
    state::{ConsoleState, RequestMeta},
};

/// Requests of one key, of one member and of all callers at the same time.
const MAX_OF_KEY: usize = 2;
const MAX_OF_MEMBER: usize = 4;
const MAX_IN_ALL: usize = 32;

/// The requests of callers that are in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallerShares(Arc<Mutex<InProgress>>);

#[derive(Debug, Default)]
struct InProgress {
    total: usize,
    keys: HashMap<KeyId, usize>,
    members: HashMap<MemberId, usize>,
}

/// A request in progress.
pub(super) struct CallerShare {
    shares: CallerShares,
    key: KeyId,
    member: MemberId,
}

impl CallerShares {
    fn lock(&self) -> MutexGuard<'_, InProgress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// 429 if the key or its member has as many requests in progress as it may, 503 if all callers together have.
    pub(super) fn claim(&self, key: KeyId, member: MemberId) -> Result<CallerShare, ApiError> {
        let mut now = self.lock();
        let count = |counts: Option<&usize>| counts.copied().unwrap_or_default();
        if count(now.keys.get(&key)) >= MAX_OF_KEY || count(now.members.get(&member)) >= MAX_OF_MEMBER {
            return Err(ApiError::too_many_of_caller());
        }
        if now.total >= MAX_IN_ALL {
            return Err(ApiError::overloaded("Too many callers ask about their keys already."));
        }
        now.total += 1;
        *now.keys.entry(key).or_default() += 1;
        *now.members.entry(member).or_default() += 1;
        Ok(CallerShare { shares: self.clone(), key, member })
    }
}

impl Drop for CallerShare {
    fn drop(&mut self) {
        let mut now = self.shares.lock();
        now.total -= 1;
        release(&mut now.keys, &self.key);
        release(&mut now.members, &self.member);
    }
}

/// Decrements a count, and removes holders without a request.
fn release<H: Eq + std::hash::Hash>(counts: &mut HashMap<H, usize>, holder: &H) {
    if let Some(count) = counts.get_mut(holder) {
        *count -= 1;
        if *count == 0 {
            counts.remove(holder);
        }
    }
}

/// Headers that hold a key alone; `Authorization` comes before them.
const KEY_HEADERS: [&str; 3] = ["x-api-key", "x-native-api-key", "x-goog-api-key"];

/// The key that a request is about: the service key that it presents, checked as for a model request, or else a key of the
/// signed-in member, `chosen` by its id if the member has several.
pub(super) async fn authenticate(
    state: &ConsoleState,
    meta: &RequestMeta,
    headers: &HeaderMap,
    chosen: Option<&str>,
) -> Result<Arc<Key>, ApiError> {
    if let Some(presented) = presented_key(headers)? {
        let key = state.gateway.service_key(presented, meta.address).await.map_err(ApiError::service_key)?;
        let is_other = chosen.is_some_and(|chosen| chosen != key.id.to_string());
        return if is_other { Err(ApiError::not_found(RowKind::Key)) } else { Ok(key) };
    }
    let signed_in = reader(state, meta, headers).await?.ok_or_else(ApiError::no_service_key)?;
    own_key(state, signed_in.member.id, chosen).await
}

/// The service key that headers present. A repeated header is ambiguous and is ignored.
fn presented_key(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let invalid = || ApiError::service_key(KeyRefusal::Invalid);
    if headers.contains_key(header::AUTHORIZATION) {
        return bearer_token(headers).map_err(|_| invalid());
    }
    let Some(name) = KEY_HEADERS.into_iter().find(|name| headers.contains_key(*name)) else { return Ok(None) };
    let mut values = headers.get_all(name).iter();
    match (values.next().and_then(|value| value.to_str().ok()).map(str::trim), values.next()) {
        (Some(""), None) => Ok(None),
        (Some(key), None) => Ok(Some(key)),
        (None, _) | (_, Some(_)) => Err(invalid()),
    }
}

/// A key of a member that is not revoked: the one with this id, or the only one.
async fn own_key(state: &ConsoleState, member: MemberId, chosen: Option<&str>) -> Result<Arc<Key>, ApiError> {
    let missing = || ApiError::not_found(RowKind::Key);
    let id = if let Some(chosen) = chosen {
        chosen.to_owned()
    } else {
        let filter = RowFilter { scope: ObjectScope::Member(member), ..RowFilter::of(RowKind::Key, 2) };
        match state.store.listing.page(&filter).await?.as_slice() {
            [] => return Err(ApiError::value("key_id", "you have no key; make one first")),
            [only] => only.id.clone(),
            _ => return Err(ApiError::value("key_id", "you have several keys; name one of them by its id")),
        }
    };
    let key = state.store.listing.key(KeyId::parse(&id).ok_or_else(missing)?).await?;
    let own = key.filter(|key| key.member.id == member && key.status != KeyStatus::Revoked);
    own.map(Arc::new).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use tollgate_core::Timestamp;

    use super::*;

    fn key(number: u8) -> KeyId {
        KeyId::from_parts(Timestamp(0), [number; 10])
    }

    fn member(number: u8) -> MemberId {
        MemberId::from_parts(Timestamp(0), [number; 10])
    }

    #[test]
    fn key_may_be_in_any_header_of_model_requests() {
        let presented = |fields: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(*name, http::HeaderValue::from_static(value));
            }
            presented_key(&headers).map(|key| key.map(str::to_owned)).map_err(|_| "refused")
        };
        for name in KEY_HEADERS {
            assert_eq!(presented(&[(name, " sk-a ")]), Ok(Some("sk-a".to_owned())), "{name}");
            assert_eq!(presented(&[(name, "sk-a"), (name, "sk-a")]), Err("refused"), "{name}");
        }
        assert_eq!(presented(&[("authorization", "Bearer sk-b"), ("x-api-key", "sk-a")]), Ok(Some("sk-b".to_owned())));
        assert_eq!(presented(&[("authorization", "Basic c2s="), ("x-api-key", "sk-a")]), Err("refused"));
        assert_eq!(presented(&[("x-api-key", "")]), Ok(None));
        assert_eq!(presented(&[]), Ok(None));
    }

    #[test]
    fn third_request_of_a_key_is_refused_until_one_ends() {
        let shares = CallerShares::default();
        let first = shares.claim(key(1), member(1)).unwrap();
        let _second = shares.claim(key(1), member(1)).unwrap();
        assert!(shares.claim(key(1), member(1)).is_err());
        assert!(shares.claim(key(2), member(1)).is_ok());
        drop(first);
        assert!(shares.claim(key(1), member(1)).is_ok());
        let now = shares.lock();
        assert_eq!((now.total, now.keys.len()), (1, 1), "keys without a request are forgotten");
    }

    #[test]
    fn one_member_cannot_claim_all_requests_with_many_keys() {
        let shares = CallerShares::default();
        let of_one: Vec<_> = (0..200).filter_map(|number| shares.claim(key(number), member(1)).ok()).collect();
        assert_eq!(of_one.len(), MAX_OF_MEMBER);
        let of_others: Vec<_> = (2..100).filter_map(|number| shares.claim(key(number), member(number)).ok()).collect();
        assert_eq!(of_one.len() + of_others.len(), MAX_IN_ALL);
        drop((of_one, of_others));
        let now = shares.lock();
        assert!(now.members.is_empty() && now.total == 0);
    }
}
