//! Who asks: the service key of a caller, and how many requests of callers are answered at the same time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::HeaderMap;
use tollgate_core::{Key, KeyId, MemberId};

use crate::{
    api_error::ApiError,
    auth::bearer_token,
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

/// Counts one less; holders without a request are forgotten.
fn release<H: Eq + std::hash::Hash>(counts: &mut HashMap<H, usize>, holder: &H) {
    if let Some(count) = counts.get_mut(holder) {
        *count -= 1;
        if *count == 0 {
            counts.remove(holder);
        }
    }
}

/// The key of a request, checked as that of a model request.
pub(super) async fn authenticate(state: &ConsoleState, meta: &RequestMeta, headers: &HeaderMap) -> Result<Arc<Key>, ApiError> {
    let invalid = |_| ApiError::service_key(KeyRefusal::Invalid);
    let token = bearer_token(headers).map_err(invalid)?.ok_or_else(ApiError::no_service_key)?;
    state.gateway.service_key(token, meta.address).await.map_err(ApiError::service_key)
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
    fn member_with_many_keys_leaves_room_for_others() {
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
