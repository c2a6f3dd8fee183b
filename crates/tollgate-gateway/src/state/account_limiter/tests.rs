//! Accounts stay within their bounds, and keys that wait for a busy one take turns.

use std::time::Duration;

use proptest::prelude::*;
use tokio::{task::JoinHandle, time::timeout};
use tollgate_core::{KeyId, Timestamp};

use super::*;
use crate::{clock::PausedClock, upstream::testing};

const SECOND: Duration = Duration::from_secs(1);

fn limiters() -> Arc<AccountLimiters> {
    AccountLimiters::new(Arc::new(PausedClock::start()))
}

/// The account `number` with bounds.
fn account(number: u8, concurrency: u32, rpm: u32, tpm: u64) -> Arc<Account> {
    Arc::new(Account { concurrency, rpm, tpm, ..testing::account(number) })
}

fn key(number: u8) -> KeyId {
    KeyId::from_parts(Timestamp(1), [number; 10])
}

/// A request that waits for two seconds in a task of its own.
fn waits(limiters: &Arc<AccountLimiters>, accounts: &[&Arc<Account>], by: u8) -> JoinHandle<Waited> {
    let (limiters, accounts) = (Arc::clone(limiters), accounts.iter().map(|it| Arc::clone(it)).collect::<Vec<_>>());
    #[expect(clippy::disallowed_methods, reason = "a test waits for its own tasks")]
    tokio::spawn(async move {
        match limiters.enqueue(&accounts, key(by), 0) {
            AcquireOutcome::Permit(permit) => Waited::Permit(permit),
            AcquireOutcome::QueueFull => Waited::InVain,
            AcquireOutcome::WaitQueue(mut line) => match timeout(2 * SECOND, line.acquired()).await {
                Ok(Some(permit)) => Waited::Permit(permit),
                Ok(None) => Waited::LookAgain,
                Err(_) => Waited::InVain,
            },
        }
    })
}

/// How waiting ended.
#[derive(Debug)]
enum Waited {
    Permit(Permit),
    LookAgain,
    InVain,
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn permit(waited: Waited) -> Permit {
    match waited {
        Waited::Permit(permit) => permit,
        Waited::LookAgain | Waited::InVain => panic!("no permit but {waited:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn accounts_without_a_bound_are_not_counted() {
    let (limiters, free) = (limiters(), account(1, 0, 0, 0));
    let slots: Vec<_> = (0..1_000).map(|_| limiters.try_acquire(&free, 1_000_000).unwrap()).collect();
    assert_eq!((limiters.load(&free, 1), limiters.running(free.id)), (AccountLoad::Free, 0));
    assert!(slots.iter().all(|permit| !permit.counts()));
}

#[tokio::test(start_paused = true)]
async fn concurrency_is_limited_and_permits_are_released_once() {
    let (limiters, account) = (limiters(), account(1, 2, 0, 0));
    let first = limiters.try_acquire(&account, 0).unwrap();
    let second = limiters.try_acquire(&account, 0).unwrap();
    assert_eq!(limiters.load(&account, 0), AccountLoad::AtConcurrency);
    assert!(limiters.try_acquire(&account, 0).is_none());
    drop(first);
    assert_eq!((limiters.load(&account, 0), limiters.running(account.id)), (AccountLoad::Free, 1));
    drop(second);
    assert_eq!(limiters.running(account.id), 0);
}

#[tokio::test(start_paused = true)]
async fn lowered_limit_applies_at_once_and_aborts_no_request() {
    let (limiters, wide, narrow) = (limiters(), account(1, 5, 0, 0), account(1, 1, 0, 0));
    let mut slots: Vec<_> = (0..5).map(|_| limiters.try_acquire(&wide, 0).unwrap()).collect();
    slots.truncate(1);
    assert_eq!(limiters.load(&narrow, 0), AccountLoad::AtConcurrency);
    slots.clear();
    assert!(limiters.try_acquire(&narrow, 0).is_some());
}

#[tokio::test(start_paused = true)]
async fn requests_a_minute_slide() {
    let (limiters, account) = (limiters(), account(1, 0, 60, 0));
    for _ in 0..60 {
        limiters.try_acquire(&account, 0).unwrap().begin();
    }
    let AccountLoad::AtRate { until } = limiters.load(&account, 0) else { panic!("sixty were the most") };
    let wait = until.ms_since(limiters.clock.now());
    assert!((60_000..=62_000).contains(&wait), "{wait} ms");
    tokio::time::advance(Duration::from_millis(u64::try_from(wait).unwrap())).await;
    assert_eq!(limiters.load(&account, 0), AccountLoad::Free);
    tokio::time::advance(120 * SECOND).await;
    assert_eq!((0..100).map_while(|_| limiters.try_acquire(&account, 0).map(|mut permit| permit.begin())).count(), 60);
}

#[tokio::test(start_paused = true)]
async fn tokens_a_minute_count_by_estimate_and_are_put_right() {
    let (limiters, account) = (limiters(), account(1, 0, 0, 1_000));
    let mut permit = limiters.try_acquire(&account, 900).unwrap();
    permit.begin();
    assert!(matches!(limiters.load(&account, 200), AccountLoad::AtRate { .. }));
    assert_eq!(limiters.load(&account, 100), AccountLoad::Free);
    permit.used_tokens(300);
    drop(permit);
    assert_eq!(limiters.load(&account, 700), AccountLoad::Free);
    assert!(matches!(limiters.load(&account, 701), AccountLoad::AtRate { .. }));
}

#[tokio::test(start_paused = true)]
async fn what_was_never_sent_counts_for_nothing_and_what_broke_counts_by_estimate() {
    let (limiters, account) = (limiters(), account(1, 0, 1, 1_000));
    drop(limiters.try_acquire(&account, 1_000).unwrap());
    let mut refused = limiters.try_acquire(&account, 1_000).unwrap();
    refused.begin();
    refused.not_sent();
    drop(refused);
    let mut broke = limiters.try_acquire(&account, 1_000).unwrap();
    broke.begin();
    drop(broke);
    assert!(matches!(limiters.load(&account, 1), AccountLoad::AtRate { .. }));
}

#[tokio::test(start_paused = true)]
async fn more_than_a_minutes_tokens_go_when_nothing_else_does() {
    let (limiters, account) = (limiters(), account(1, 0, 0, 1_000));
    let mut large = limiters.try_acquire(&account, 50_000).unwrap();
    large.begin();
    assert!(matches!(limiters.load(&account, 50_000), AccountLoad::AtRate { .. }));
    large.used_tokens(40_000);
    drop(large);
    tokio::time::advance(121 * SECOND).await;
    assert_eq!(limiters.load(&account, 50_000), AccountLoad::Free);
}

#[tokio::test(start_paused = true)]
async fn released_permit_goes_to_the_waiter() {
    let (limiters, account) = (limiters(), account(1, 1, 0, 0));
    let running = limiters.try_acquire(&account, 0).unwrap();
    let waiting = waits(&limiters, &[&account], 1);
    settle().await;
    assert_eq!(limiters.waiting(account.id), 1);
    drop(running);
    assert!(limiters.try_acquire(&account, 0).is_none(), "it is taken before anybody else can ask");
    let permit = permit(waiting.await.unwrap());
    assert_eq!((limiters.running(account.id), limiters.waiting(account.id)), (1, 0));
    drop(permit);
    assert_eq!(limiters.running(account.id), 0);
}

#[tokio::test(start_paused = true)]
async fn keys_take_turns_however_many_wait_for_one_of_them() {
    let (limiters, account) = (limiters(), account(1, 1, 0, 0));
    let mut running = Some(limiters.try_acquire(&account, 0).unwrap());
    let mut waiting: Vec<(u8, JoinHandle<Waited>)> = Vec::new();
    for by in [1, 1, 1, 1, 2, 3, 2] {
        waiting.push((by, waits(&limiters, &[&account], by)));
        settle().await;
    }
    let mut served = Vec::new();
    while !waiting.is_empty() {
        drop(running.take());
        settle().await;
        let at = waiting.iter().position(|(_, task)| task.is_finished()).expect("a waiter is served");
        let (by, task) = waiting.remove(at);
        served.push(by);
        running = Some(permit(task.await.unwrap()));
    }
    assert_eq!(served, [1, 2, 3, 1, 2, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_in_time_and_leaves_nothing_behind() {
    let (limiters, account) = (limiters(), account(1, 1, 0, 0));
    let running = limiters.try_acquire(&account, 0).unwrap();
    let began = Instant::now();
    assert!(matches!(waits(&limiters, &[&account], 1).await.unwrap(), Waited::InVain));
    assert_eq!((began.elapsed(), limiters.waiting(account.id)), (2 * SECOND, 0));
    drop(running);
    assert_eq!(limiters.running(account.id), 0);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_while_waiting_is_not_served() {
    let (limiters, account) = (limiters(), account(1, 1, 0, 0));
    let running = limiters.try_acquire(&account, 0).unwrap();
    let (left, stays) = (waits(&limiters, &[&account], 1), waits(&limiters, &[&account], 1));
    settle().await;
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    assert_eq!(limiters.waiting(account.id), 1);
    drop(running);
    let permit = permit(stays.await.unwrap());
    drop(permit);
    assert_eq!(limiters.running(account.id), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slot_handed_to_who_has_just_left_is_handed_on() {
    let (limiters, account) = (limiters(), account(1, 1, 0, 0));
    let running = limiters.try_acquire(&account, 0).unwrap();
    let (left, stays) = (waits(&limiters, &[&account], 1), waits(&limiters, &[&account], 1));
    settle().await;
    drop(running);
    // The permit lies in the first one's hand, who never takes it.
    left.abort();
    let permit = permit(stays.await.unwrap());
    drop(permit);
    assert_eq!((limiters.running(account.id), limiters.waiting(account.id)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_request_waits_for_several_accounts_and_takes_one() {
    let (limiters, one, two) = (limiters(), account(1, 1, 0, 0), account(2, 1, 0, 0));
    let (first, second) = (limiters.try_acquire(&one, 0).unwrap(), limiters.try_acquire(&two, 0).unwrap());
    let waiting = waits(&limiters, &[&one, &two], 1);
    settle().await;
    drop(second);
    drop(first);
    let permit = permit(waiting.await.unwrap());
    assert!(permit.is_on(two.id) && !permit.is_on(one.id));
    assert_eq!((limiters.running(one.id), limiters.waiting(one.id)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_hundred_wait_and_no_more() {
    let (limiters, account) = (limiters(), account(1, 1, 0, 0));
    let running = limiters.try_acquire(&account, 0).unwrap();
    let waiting: Vec<_> = (0..100).map(|n| waits(&limiters, &[&account], n % 7)).collect();
    settle().await;
    assert_eq!(limiters.waiting(account.id), 100);
    let began = Instant::now();
    assert!(matches!(waits(&limiters, &[&account], 9).await.unwrap(), Waited::InVain));
    assert_eq!(began.elapsed(), Duration::ZERO);
    waiting.iter().for_each(JoinHandle::abort);
    settle().await;
    assert_eq!(limiters.waiting(account.id), 0);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn who_could_start_but_for_the_rate_looks_again_instead_of_waiting_on() {
    let (limiters, account) = (limiters(), account(1, 1, 1, 0));
    let mut running = limiters.try_acquire(&account, 0).unwrap();
    running.begin();
    let waiting = waits(&limiters, &[&account], 1);
    settle().await;
    drop(running);
    assert!(matches!(waiting.await.unwrap(), Waited::LookAgain));
}

#[tokio::test(start_paused = true)]
async fn removed_accounts_are_forgotten_once_unused() {
    let (limiters, account) = (limiters(), account(1, 1, 1, 0));
    let mut running = limiters.try_acquire(&account, 0).unwrap();
    running.begin();
    limiters.configure([]);
    assert_eq!(limiters.running(account.id), 1);
    drop(running);
    assert_eq!(limiters.running(account.id), 0);
    limiters.configure([]);
    assert_eq!(limiters.load(&account, 0), AccountLoad::Free);
}

proptest! {
    /// Takes and drops in any order: never more at once than allowed, and nothing left at the end.
    #[test]
    fn no_order_of_events_loses_or_doubles_a_slot(bound in 1u32..5, steps in proptest::collection::vec((0u8..4, 0usize..6), 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (limiters, account) = (limiters(), account(1, bound, 0, 0));
            let (mut held, mut waiting) = (Vec::new(), Vec::new());
            for (step, which) in steps {
                match step {
                    0 => held.extend(limiters.try_acquire(&account, 0)),
                    1 if !held.is_empty() => drop(held.remove(which % held.len())),
                    2 => waiting.push(waits(&limiters, &[&account], u8::try_from(which).unwrap())),
                    3 if !waiting.is_empty() => waiting.remove(which % waiting.len()).abort(),
                    _ => {}
                }
                if which % 2 == 0 {
                    settle().await;
                }
                assert!(limiters.running(account.id) <= bound);
            }
            while held.pop().is_some() {}
            for task in waiting {
                if let Ok(Waited::Permit(permit)) = task.await {
                    held.push(permit);
                }
                held.clear();
            }
            settle().await;
            assert_eq!((limiters.running(account.id), limiters.waiting(account.id)), (0, 0));
        });
    }
}
