//! That a key and a member keep to their shares, and that everything is released.

use std::{sync::Arc, time::Duration};

use tollgate_core::{Key, KeyId, Member, MemberId, Timestamp};

use super::*;
use crate::{
    serving_state::ServingState,
    state::authenticator::{LOOKUPS, WAITING_LOOKUPS},
    testing,
    upstream::media::{MAX_AT_ONCE, MAX_WAITING},
};

/// Key `number` of member `member`.
fn key(number: u8, member: u8) -> Key {
    let key = testing::key();
    let member = Member { id: MemberId::from_parts(Timestamp(0), [member; 10]), ..key.member.clone() };
    Key { id: KeyId::from_parts(Timestamp(0), [number; 10]), member, ..key }
}

fn share(registry: &ShareRegistry, number: u8, member: u8) -> Arc<KeyShare> {
    registry.of(&key(number, member))
}

/// Requests of a key until it is refused.
fn requests(serving: &Arc<ServingState>, share: &Arc<KeyShare>, total: usize) -> Vec<Arc<InFlightRequest>> {
    std::iter::from_fn(|| Some(serving.enter(total, 0)).filter(|request| request.claim(share).is_ok())).collect()
}

#[test]
fn one_key_cannot_hold_all_requests_in_progress() {
    let (serving, registry) = (Arc::new(ServingState::default()), ShareRegistry::default());
    let hostile = requests(&serving, &share(&registry, 1, 1), 1_000);
    assert_eq!(hostile.len(), 750, "three times what is free");
    assert_eq!(requests(&serving, &share(&registry, 2, 1), 1_000).len(), 0, "the member has its share with all its keys");
    let other = requests(&serving, &share(&registry, 3, 2), 1_000);
    assert_eq!(other.len(), 187, "three times of what is free now");
    drop(hostile);
    let more = requests(&serving, &share(&registry, 3, 2), 1_000);
    assert_eq!(other.len() + more.len(), 750);
    drop((other, more));
    assert_eq!((serving.in_flight(), serving.requests.used()), (0, 0));
    assert_eq!(requests(&serving, &share(&registry, 1, 1), 1_000).len(), 750);
}

#[test]
fn reloaded_key_keeps_its_share() {
    let registry = ShareRegistry::default();
    let first = share(&registry, 1, 1);
    assert!(Arc::ptr_eq(&first, &share(&registry, 1, 1)));
    drop(first);
    for number in 0..=u8::MAX {
        for member in 0..8 {
            drop(share(&registry, number, member));
        }
    }
    let state = registry.0.lock().unwrap();
    assert!(state.keys.len() <= MIN_SWEEP, "{} gone keys are remembered", state.keys.len());
}

#[test]
fn one_key_cannot_hold_all_body_memory() {
    const TOTAL: usize = 1 << 30;
    const BODY: usize = 32 << 20;
    let (serving, registry) = (Arc::new(ServingState::default()), ShareRegistry::default());
    let bodies = |share: &Arc<KeyShare>| {
        std::iter::from_fn(|| {
            let request = serving.enter(1_000, TOTAL);
            request.claim(share).unwrap();
            request.reserve_bytes(BODY).is_ok().then_some(request)
        })
        .collect::<Vec<_>>()
    };
    let hostile = bodies(&share(&registry, 1, 1));
    assert_eq!(hostile.len(), 24);
    let other = bodies(&share(&registry, 2, 2));
    assert_eq!(other.len(), 6, "three quarters of the quarter that is left");
    drop(hostile);
    drop(other);
    assert_eq!((serving.memory.used(), serving.in_flight()), (0, 0));
}

#[test]
fn only_body_of_a_key_may_exceed_its_share() {
    let (serving, registry) = (Arc::new(ServingState::default()), ShareRegistry::default());
    let request = serving.enter(10, 1_000_000);
    request.claim(&share(&registry, 1, 1)).unwrap();
    assert!(request.reserve_bytes(1_000_000).is_ok());
    assert!(request.reserve_bytes(100_000).is_err(), "but not than all memory");
    let small = serving.enter(10, 1_000_000);
    small.claim(&share(&registry, 1, 1)).unwrap();
    assert!(small.reserve_bytes(10).is_ok(), "the first bytes are not counted");
}

#[tokio::test(start_paused = true)]
async fn answer_waits_for_memory_and_releases_it_when_its_attempt_fails() {
    let serving = Arc::new(ServingState::default());
    let charge = || MemoryCharge::new(serving.enter(10, 1_000_000));
    let mut first = charge();
    assert!(first.grow_to(900_000, Duration::ZERO).await.is_ok());
    let mut second = charge();
    assert!(second.grow_to(500_000, Duration::from_secs(1)).await.is_err());
    let waits = second.grow_to(500_000, Duration::from_mins(1));
    let releases = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        drop(first);
    };
    assert!(tokio::join!(waits, releases).0.is_ok());
    second.keep();
    assert_eq!(serving.memory.used(), 0, "the request ended");
}

#[test]
fn a_request_that_is_received_counts_until_it_is_admitted() {
    let registry = ShareRegistry::default();
    let (one, other) = (share(&registry, 1, 1), share(&registry, 2, 1));
    let first = one.begin_receiving();
    let second = other.begin_receiving();
    let [of_key, of_member] = other.holdings().map(|held| held.subject);
    assert_eq!((first.before(of_member), second.before(of_key), second.before(of_member)), (0, 0, 1));
    drop(first);
    assert_eq!(other.begin_receiving().before(of_member), 1);
}

fn holders(key: u8) -> [Holder; 2] {
    [Holder::Key(KeyId::from_parts(Timestamp(0), [key; 10])), Holder::Member(MemberId::from_parts(Timestamp(0), [key; 10]))]
}

/// Permits of a holder until it would have to wait.
async fn take_all(semaphore: &Arc<FairSemaphore>, holders: &[Holder]) -> Vec<FairPermit> {
    let mut taken = Vec::new();
    while let Ok(Ok(permit)) = tokio::time::timeout(Duration::from_millis(1), semaphore.acquire(holders)).await {
        taken.push(permit);
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn one_key_cannot_hold_all_media_downloads() {
    let semaphore = FairSemaphore::new(Bound::Media, MAX_AT_ONCE, MAX_WAITING);
    let hostile = take_all(&semaphore, &holders(1)).await;
    assert_eq!(hostile.len(), 48);
    // Other keys do not wait behind the waiting requests of this one.
    let holders_of_hostile = holders(1);
    let waiting: Vec<_> = (0..40).map(|_| Box::pin(semaphore.acquire(&holders_of_hostile))).collect();
    let mut waiting = futures_util::future::join_all(waiting);
    assert!(futures_util::poll!(&mut waiting).is_pending());
    let other = take_all(&semaphore, &holders(2)).await;
    assert_eq!(other.len(), 12);
    drop((hostile, other));
    assert!(waiting.await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn waiters_take_turns_and_leave_the_semaphore_idle() {
    let semaphore = FairSemaphore::new(Bound::Media, 1, 4);
    let first = semaphore.acquire(&holders(1)).await.unwrap();
    let (one, other) = (holders(1), holders(2));
    let mut waits: Vec<_> = [&one, &one, &one, &other].into_iter().map(|of| Box::pin(semaphore.acquire(of))).collect();
    for wait in &mut waits {
        assert!(futures_util::poll!(wait.as_mut()).is_pending());
    }
    assert!(semaphore.acquire(&other).await.is_err(), "no more may wait");
    drop(first);
    let next = futures_util::poll!(waits[0].as_mut());
    assert!(next.is_ready());
    drop(next);
    assert!(futures_util::poll!(waits[3].as_mut()).is_ready(), "the second permit is the other holder's");
    drop(waits);
    assert!(semaphore.is_idle());
}

#[tokio::test(start_paused = true)]
async fn wrong_keys_of_one_address_cannot_hold_all_key_lookups() {
    let semaphore = FairSemaphore::new(Bound::KeyLookups, LOOKUPS, WAITING_LOOKUPS);
    let address = |text: &str| [Holder::Address(crate::address_block::AddressBlock::of(text.parse().unwrap()))];
    let hostile = take_all(&semaphore, &address("203.0.113.7")).await;
    assert_eq!(hostile.len(), 48);
    assert!(!take_all(&semaphore, &address("203.0.113.8")).await.is_empty());
}
