//! Bounds on requests in progress, and the shares of them that unauthenticated clients and members may have. Operators have no
//! share: they run the gateway.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tollgate_core::MemberId;
use tollgate_store::AdminScope;

use crate::{api_error::ApiError, identity::limiter::network, principal::Principal};

/// Unauthenticated requests, such as a sign-in, at the same time.
const MAX_UNAUTHENTICATED: usize = 16;
/// Of these, from one address (IPv6: one /64).
const MAX_OF_ADDRESS: usize = 4;
/// Requests of one member at the same time.
const MAX_OF_MEMBER: usize = 4;
/// Requests that read many rows at the same time (usage pages, sums, exports). They share the store's read connections with key
/// look-ups on the model path and must not occupy all of them.
const MAX_HEAVY: usize = 2;
/// Of these, those of all members.
const MAX_HEAVY_OF_MEMBERS: usize = 1;
/// Parquet files that are exported at the same time. Each keeps the records of a row group.
const MAX_FILES: usize = 3;
/// Of these, those of all members.
const MAX_FILES_OF_MEMBERS: usize = 2;
/// Of these, those of one member.
const MAX_FILES_OF_MEMBER: usize = 1;

/// Counts of requests in progress by holder, each up to the same maximum.
#[derive(Debug)]
pub(crate) struct Shares<K> {
    max: usize,
    held: Arc<Mutex<HashMap<K, usize>>>,
}

/// One place of a holder's share, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share<K: Eq + Hash> {
    held: Arc<Mutex<HashMap<K, usize>>>,
    holder: K,
}

fn lock<K>(held: &Mutex<HashMap<K, usize>>) -> MutexGuard<'_, HashMap<K, usize>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Eq + Hash + Clone> Shares<K> {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, held: Arc::default() }
    }

    /// `None` if the holder has its whole share in progress.
    pub(crate) fn claim(&self, holder: K) -> Option<Share<K>> {
        let mut held = lock(&self.held);
        let count = held.entry(holder.clone()).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Share { held: Arc::clone(&self.held), holder })
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        if let Some(count) = held.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.holder);
            }
        }
    }
}

/// Shares of the requests to the admin API.
#[derive(Debug)]
pub(crate) struct RequestShares {
    unauthenticated: Arc<Semaphore>,
    addresses: Shares<IpAddr>,
    members: Shares<MemberId>,
}

/// A request in progress.
#[expect(dead_code, reason = "they are held until the request is answered")]
#[derive(Debug)]
pub(crate) enum RequestShare {
    Unauthenticated(OwnedSemaphorePermit, Option<Share<IpAddr>>),
    Member(Share<MemberId>),
    Unbounded,
}

impl Default for RequestShares {
    fn default() -> Self {
        Self {
            unauthenticated: Arc::new(Semaphore::new(MAX_UNAUTHENTICATED)),
            addresses: Shares::new(MAX_OF_ADDRESS),
            members: Shares::new(MAX_OF_MEMBER),
        }
    }
}

impl RequestShares {
    /// 429 if the address or the member has as many requests in progress as it may, 503 if all unauthenticated clients together have.
    pub(crate) fn claim(&self, principal: &Principal, address: Option<IpAddr>) -> Result<RequestShare, ApiError> {
        if matches!(principal, Principal::Anonymous) {
            let share = address.map(|address| self.addresses.claim(network(address)).ok_or_else(ApiError::too_many_at_once));
            let share = share.transpose()?;
            let permit = Arc::clone(&self.unauthenticated).try_acquire_owned();
            let permit = permit.map_err(|_| ApiError::overloaded("Too many people are signing in at the moment."))?;
            return Ok(RequestShare::Unauthenticated(permit, share));
        }
        match principal.member() {
            Some((member, _)) if principal.scope() == AdminScope::Member => {
                self.members.claim(member).map(RequestShare::Member).ok_or_else(ApiError::too_many_at_once)
            }
            Some(_) | None => Ok(RequestShare::Unbounded),
        }
    }
}

/// The kind of principal that reads many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Operator,
    /// A member below the role `operator`.
    Member,
}

/// Permits for requests that read many rows. Members never take all of them: one is left for operators.
#[derive(Debug)]
pub(crate) struct HeavyPermits {
    all: Arc<Semaphore>,
    of_members: Arc<Semaphore>,
}

#[expect(dead_code, reason = "they are held while rows are read")]
#[derive(Debug)]
pub(crate) struct HeavyPermit {
    of_members: Option<OwnedSemaphorePermit>,
    of_all: Option<OwnedSemaphorePermit>,
}

impl Default for HeavyPermits {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_HEAVY)), of_members: Arc::new(Semaphore::new(MAX_HEAVY_OF_MEMBERS)) }
    }
}

impl HeavyPermits {
    /// Waits for a permit, in turns.
    pub(crate) async fn acquire(&self, reader: Reader) -> HeavyPermit {
        let of_members = match reader {
            // The semaphores are never closed.
            Reader::Member => Arc::clone(&self.of_members).acquire_owned().await.ok(),
            Reader::Operator => None,
        };
        HeavyPermit { of_members, of_all: Arc::clone(&self.all).acquire_owned().await.ok() }
    }
}

/// Permits for exports of Parquet files. Members never take all of them: one is left for operators.
#[derive(Debug)]
pub(crate) struct FilePermits {
    all: Arc<Semaphore>,
    of_members: Arc<Semaphore>,
    members: Shares<MemberId>,
}

/// A file in progress.
#[expect(dead_code, reason = "they are held until the file is written")]
#[derive(Debug)]
pub(crate) struct FilePermit {
    of_all: OwnedSemaphorePermit,
    of_members: Option<(OwnedSemaphorePermit, Share<MemberId>)>,
}

impl Default for FilePermits {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_FILES)),
            of_members: Arc::new(Semaphore::new(MAX_FILES_OF_MEMBERS)),
            members: Shares::new(MAX_FILES_OF_MEMBER),
        }
    }
}

impl FilePermits {
    /// `member`: a member below the role `operator`. 429 if a file of the member is in progress, 503 if all permits are taken.
    pub(crate) fn claim(&self, member: Option<MemberId>) -> Result<FilePermit, ApiError> {
        let permit = |of: &Arc<Semaphore>| {
            let permit = Arc::clone(of).try_acquire_owned();
            permit.map_err(|_| ApiError::overloaded("Too many Parquet files are exported already."))
        };
        let share = member.map(|member| self.members.claim(member).ok_or_else(ApiError::too_many_at_once)).transpose()?;
        let of_members = share.map(|share| Ok::<_, ApiError>((permit(&self.of_members)?, share))).transpose()?;
        Ok(FilePermit { of_all: permit(&self.all)?, of_members })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, timeout};
    use tollgate_core::Timestamp;

    use super::*;

    #[test]
    fn holder_is_limited_to_its_share_until_a_claim_ends() {
        let shares = Shares::new(2);
        let first = shares.claim("a").unwrap();
        let _second = shares.claim("a").unwrap();
        assert!(shares.claim("a").is_none() && shares.claim("b").is_some());
        drop(first);
        assert!(shares.claim("a").is_some());
        assert_eq!(lock(&shares.held).len(), 1, "holders without anything in progress are forgotten");
    }

    #[test]
    fn unauthenticated_clients_are_limited_by_address_and_in_total() {
        let shares = RequestShares::default();
        let address = |n: usize| Some(IpAddr::from([192, 0, 2, u8::try_from(n).unwrap()]));
        let claim = |n| shares.claim(&Principal::Anonymous, address(n));
        let held: Vec<RequestShare> = (0..MAX_OF_ADDRESS).map(|_| claim(0).unwrap()).collect();
        assert!(claim(0).is_err() && claim(1).is_ok());
        let more: Vec<RequestShare> = (MAX_OF_ADDRESS..MAX_UNAUTHENTICATED).map(|n| claim(n).unwrap()).collect();
        assert!(claim(100).is_err(), "all of them are in progress");
        drop((held, more));
        assert!(claim(0).is_ok() && claim(100).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn one_heavy_permit_is_reserved_for_operators() {
        let permits = HeavyPermits::default();
        let _member = permits.acquire(Reader::Member).await;
        assert!(timeout(Duration::from_mins(1), permits.acquire(Reader::Member)).await.is_err());
        let operator = timeout(Duration::from_secs(1), permits.acquire(Reader::Operator)).await;
        assert!(operator.is_ok());
        assert!(timeout(Duration::from_mins(1), permits.acquire(Reader::Operator)).await.is_err());
    }
    #[test]
    fn member_may_export_one_file_and_one_permit_is_reserved_for_operators() {
        let permits = FilePermits::default();
        let member = |n| Some(MemberId::from_parts(Timestamp(0), [n; 10]));
        let first = permits.claim(member(1)).unwrap();
        assert!(permits.claim(member(1)).is_err(), "it is in progress");
        let _second = permits.claim(member(2)).unwrap();
        assert!(permits.claim(member(3)).is_err(), "two of members are in progress");
        let _of_operator = permits.claim(None).unwrap();
        assert!(permits.claim(None).is_err(), "three are in progress");
        drop(first);
        assert!(permits.claim(member(1)).is_ok() && permits.claim(None).is_ok());
    }
}
