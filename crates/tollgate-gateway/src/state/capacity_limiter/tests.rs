//! Accounts stay within their limits, and keys that wait for a busy account take turns.

use std::time::Duration;

use proptest::prelude::*;
use tokio::{task::JoinHandle, time::timeout};
use tollgate_core::{AccountSpec, BusyAccount, ChannelSpec, KeyId, MemberId, Requester, Timestamp};

use super::*;
use crate::testing::{self, PausedClock};

const SECOND: Duration = Duration::from_secs(1);

impl CapacityLimiters {
    /// Requests that hold a permit on an account.
    pub(crate) fn running(&self, account: AccountId) -> u32 {
        self.entries.get_or_insert(LimitedId::Account(account)).with(0, |state| state.in_use.running)
    }

    /// Requests that wait for a permit on an account.
    pub(crate) fn waiting(&self, account: AccountId) -> usize {
        self.entries.get_or_insert(LimitedId::Account(account)).with(0, |state| state.queue.len())
    }

    /// Acquires a permit on an account of a channel without limits.
    fn acquire(self: &Arc<Self>, account: &Account, tokens: u64) -> Option<Permit> {
        self.try_acquire(rows(account), tokens)
    }
}

fn limiters() -> Arc<CapacityLimiters> {
    CapacityLimiters::new(Arc::new(PausedClock::start()))
}

/// The rows of an account of a channel without limits.
fn rows(account: &Account) -> [LimitedRow; 2] {
    LimitedRow::of_attempt(&channel(0, 0), account)
}

/// A channel with limits of its own.
fn channel(concurrency: u32, rpm: u32) -> Channel {
    let channel = testing::channel("http://127.0.0.1:1/v1");
    Channel { spec: ChannelSpec { concurrency, rpm, ..channel.spec.clone() }, ..channel }
}

/// The account `number` with bounds.
fn account(number: u8, concurrency: u32, rpm: u32, tpm: u64) -> Arc<Account> {
    Arc::new(Account { spec: AccountSpec { concurrency, rpm, tpm, ..testing::account(number).spec }, ..testing::account(number) })
}

/// The key `number` of a separate member, or of the member 0 above 200.
fn key(number: u8) -> Requester {
    let member = if number > 200 { 0 } else { number };
    Requester { key: KeyId::from_parts(Timestamp(1), [number; 10]), member: MemberId::from_parts(Timestamp(1), [member; 10]) }
}

/// Spawns a request that waits up to two seconds.
fn spawn_waiter(limiters: &Arc<CapacityLimiters>, accounts: &[&Arc<Account>], by: u8) -> JoinHandle<Waited> {
    spawn_waiter_of(limiters, (channel(0, 0), false), accounts, by)
}

/// Spawns a request that waits up to two seconds for an account of this channel, which may be full.
fn spawn_waiter_of(
    limiters: &Arc<CapacityLimiters>,
    (of, is_channel_full): (Channel, bool),
    accounts: &[&Arc<Account>],
    by: u8,
) -> JoinHandle<Waited> {
    let (limiters, accounts) = (Arc::clone(limiters), accounts.iter().map(|it| Arc::clone(it)).collect::<Vec<_>>());
    #[expect(clippy::disallowed_methods, reason = "a test spawn_waiter for its own tasks")]
    tokio::spawn(async move {
        let busy: Vec<_> = accounts.iter().map(|account| BusyAccount { channel: &of, account, is_channel_full }).collect();
        match limiters.enqueue(&busy, key(by), 0) {
            AcquireOutcome::Permit(permit) => Waited::Permit(permit),
            AcquireOutcome::QueueFull => Waited::TimedOutOrFull,
            AcquireOutcome::Queued(mut queued) => match timeout(2 * SECOND, queued.acquired()).await {
                Ok(Some(permit)) => Waited::Permit(permit),
                Ok(None) => Waited::WokenEmpty,
                Err(_) => Waited::TimedOutOrFull,
            },
        }
    })
}

/// How waiting ended.
#[derive(Debug)]
enum Waited {
    Permit(Permit),
    WokenEmpty,
    TimedOutOrFull,
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn permit(waited: Waited) -> Permit {
    match waited {
        Waited::Permit(permit) => permit,
        Waited::WokenEmpty | Waited::TimedOutOrFull => panic!("no permit but {waited:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn accounts_without_a_bound_are_not_counted() {
    let (limiters, free) = (limiters(), account(1, 0, 0, 0));
    let permits: Vec<_> = (0..1_000).map(|_| limiters.acquire(&free, 1_000_000).unwrap()).collect();
    assert_eq!((limiters.load(rows(&free), 1), limiters.running(free.id)), (CapacityLoad::Free, 0));
    assert!(permits.iter().all(|permit| !permit.counts()));
}

#[tokio::test(start_paused = true)]
async fn concurrency_limit_is_kept_and_each_permit_releases_once() {
    let (limiters, account) = (limiters(), account(1, 2, 0, 0));
    let first = limiters.acquire(&account, 0).unwrap();
    let second = limiters.acquire(&account, 0).unwrap();
    assert_eq!(limiters.load(rows(&account), 0), CapacityLoad::AtConcurrency);
    assert!(limiters.acquire(&account, 0).is_none());
    drop(first);
    assert_eq!((limiters.load(rows(&account), 0), limiters.running(account.id)), (CapacityLoad::Free, 1));
    drop(second);
    assert_eq!(limiters.running(account.id), 0);
}

#[tokio::test(start_paused = true)]
async fn lowered_limit_applies_at_once_and_ends_no_running_request() {
    let (limiters, wide, narrow) = (limiters(), account(1, 5, 0, 0), account(1, 1, 0, 0));
    let mut permits: Vec<_> = (0..5).map(|_| limiters.acquire(&wide, 0).unwrap()).collect();
    permits.truncate(1);
    assert_eq!(limiters.load(rows(&narrow), 0), CapacityLoad::AtConcurrency);
    permits.clear();
    assert!(limiters.acquire(&narrow, 0).is_some());
}

#[tokio::test(start_paused = true)]
async fn request_rate_is_a_sliding_window() {
    let (limiters, account) = (limiters(), account(1, 0, 60, 0));
    for _ in 0..60 {
        limiters.acquire(&account, 0).unwrap().begin();
    }
    let CapacityLoad::AtRate { until } = limiters.load(rows(&account), 0) else { panic!("sixty requests reach the limit") };
    let wait = until.ms_since(limiters.clock.now());
    assert!((60_000..=62_000).contains(&wait), "{wait} ms");
    tokio::time::advance(Duration::from_millis(u64::try_from(wait).unwrap())).await;
    assert_eq!(limiters.load(rows(&account), 0), CapacityLoad::Free);
    tokio::time::advance(120 * SECOND).await;
    assert_eq!((0..100).map_while(|_| limiters.acquire(&account, 0).map(|mut permit| permit.begin())).count(), 60);
}

#[tokio::test(start_paused = true)]
async fn token_rate_counts_the_estimate_until_settled() {
    let (limiters, account) = (limiters(), account(1, 0, 0, 1_000));
    let mut permit = limiters.acquire(&account, 900).unwrap();
    permit.begin();
    assert!(matches!(limiters.load(rows(&account), 200), CapacityLoad::AtRate { .. }));
    assert_eq!(limiters.load(rows(&account), 100), CapacityLoad::Free);
    permit.used_tokens(300);
    drop(permit);
    assert_eq!(limiters.load(rows(&account), 700), CapacityLoad::Free);
    assert!(matches!(limiters.load(rows(&account), 701), CapacityLoad::AtRate { .. }));
}

#[tokio::test(start_paused = true)]
async fn unsent_attempt_is_free_and_a_broken_one_counts_its_estimate() {
    let (limiters, account) = (limiters(), account(1, 0, 1, 1_000));
    drop(limiters.acquire(&account, 1_000).unwrap());
    let mut refused = limiters.acquire(&account, 1_000).unwrap();
    refused.begin();
    refused.mark_unsent();
    drop(refused);
    let mut broke = limiters.acquire(&account, 1_000).unwrap();
    broke.begin();
    drop(broke);
    assert!(matches!(limiters.load(rows(&account), 1), CapacityLoad::AtRate { .. }));
}

#[tokio::test(start_paused = true)]
async fn request_above_the_token_limit_is_admitted_when_the_window_is_empty() {
    let (limiters, account) = (limiters(), account(1, 0, 0, 1_000));
    let mut large = limiters.acquire(&account, 50_000).unwrap();
    large.begin();
    assert!(matches!(limiters.load(rows(&account), 50_000), CapacityLoad::AtRate { .. }));
    large.used_tokens(40_000);
    drop(large);
    tokio::time::advance(121 * SECOND).await;
    assert_eq!(limiters.load(rows(&account), 50_000), CapacityLoad::Free);
}

#[tokio::test(start_paused = true)]
async fn released_permit_goes_to_the_waiter() {
    let (limiters, account) = (limiters(), account(1, 1, 0, 0));
    let running = limiters.acquire(&account, 0).unwrap();
    let waiting = spawn_waiter(&limiters, &[&account], 1);
    settle().await;
    assert_eq!(limiters.waiting(account.id), 1);
    drop(running);
    assert!(limiters.acquire(&account, 0).is_none(), "the permit is handed over before another request can acquire it");
    let permit = permit(waiting.await.unwrap());
    assert_eq!((limiters.running(account.id), limiters.waiting(account.id)), (1, 0));
    drop(permit);
    assert_eq!(limiters.running(account.id), 0);
}

/// The order in which keys are served that began to wait in the given order.
async fn served(order: &[u8]) -> Vec<u8> {
    let (limiters, account) = (limiters(), account(1, 1, 0, 0));
    let mut running = Some(limiters.acquire(&account, 0).unwrap());
    let mut waiting: Vec<(u8, JoinHandle<Waited>)> = Vec::new();
    for by in order.iter().copied() {
        waiting.push((by, spawn_waiter(&limiters, &[&account], by)));
        settle().await;
    }
    let mut served = Vec::new();
    while !waiting.is_empty() {
        drop(running.take());
        settle().await;
        let at = waiting.iter().position(|(_, task)| task.is_finished()).expect("one waiter is served");
        let (by, task) = waiting.remove(at);
        served.push(by);
        running = Some(permit(task.await.unwrap()));
    }
    served
}

#[tokio::test(start_paused = true)]
async fn waiting_keys_take_turns() {
    assert_eq!(served(&[1, 1, 1, 1, 2, 3, 2]).await, [1, 2, 3, 1, 2, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn many_keys_of_one_member_are_not_preferred_over_another_member() {
    assert_eq!(served(&[201, 201, 202, 203, 1, 1]).await, [201, 1, 202, 1, 203, 201]);
}

#[tokio::test(start_paused = true)]
async fn timed_out_waiter_leaves_the_queue() {
    let (limiters, account) = (limiters(), account(1, 1, 0, 0));
    let running = limiters.acquire(&account, 0).unwrap();
    let began = Instant::now();
    assert!(matches!(spawn_waiter(&limiters, &[&account], 1).await.unwrap(), Waited::TimedOutOrFull));
    assert_eq!((began.elapsed(), limiters.waiting(account.id)), (2 * SECOND, 0));
    drop(running);
    assert_eq!(limiters.running(account.id), 0);
}

#[tokio::test(start_paused = true)]
async fn cancelled_waiter_is_not_served() {
    let (limiters, account) = (limiters(), account(1, 1, 0, 0));
    let running = limiters.acquire(&account, 0).unwrap();
    let (left, stays) = (spawn_waiter(&limiters, &[&account], 1), spawn_waiter(&limiters, &[&account], 1));
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
async fn permit_of_a_cancelled_waiter_is_handed_on() {
    let (limiters, account) = (limiters(), account(1, 1, 0, 0));
    let running = limiters.acquire(&account, 0).unwrap();
    let (left, stays) = (spawn_waiter(&limiters, &[&account], 1), spawn_waiter(&limiters, &[&account], 1));
    settle().await;
    drop(running);
    // The permit was delivered to the first waiter, which never receives it.
    left.abort();
    let permit = permit(stays.await.unwrap());
    drop(permit);
    assert_eq!((limiters.running(account.id), limiters.waiting(account.id)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_request_waits_for_several_accounts_and_acquires_one() {
    let (limiters, one, two) = (limiters(), account(1, 1, 0, 0), account(2, 1, 0, 0));
    let (first, second) = (limiters.acquire(&one, 0).unwrap(), limiters.acquire(&two, 0).unwrap());
    let waiting = spawn_waiter(&limiters, &[&one, &two], 1);
    settle().await;
    drop(second);
    drop(first);
    let permit = permit(waiting.await.unwrap());
    assert!(permit.is_on(LimitedId::Account(two.id)) && !permit.is_on(LimitedId::Account(one.id)));
    assert_eq!((limiters.running(one.id), limiters.waiting(one.id)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn queue_is_bounded_to_a_hundred() {
    let (limiters, account) = (limiters(), account(1, 1, 0, 0));
    let running = limiters.acquire(&account, 0).unwrap();
    let waiting: Vec<_> = (0..100).map(|n| spawn_waiter(&limiters, &[&account], n)).collect();
    settle().await;
    assert_eq!(limiters.waiting(account.id), 100);
    let began = Instant::now();
    assert!(matches!(spawn_waiter(&limiters, &[&account], 9).await.unwrap(), Waited::TimedOutOrFull));
    assert_eq!(began.elapsed(), Duration::ZERO);
    waiting.iter().for_each(JoinHandle::abort);
    settle().await;
    assert_eq!(limiters.waiting(account.id), 0);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn waiter_at_the_rate_limit_is_woken_without_a_permit() {
    let (limiters, account) = (limiters(), account(1, 1, 1, 0));
    let mut running = limiters.acquire(&account, 0).unwrap();
    running.begin();
    let waiting = spawn_waiter(&limiters, &[&account], 1);
    settle().await;
    drop(running);
    assert!(matches!(waiting.await.unwrap(), Waited::WokenEmpty));
}

#[tokio::test(start_paused = true)]
async fn removed_account_is_dropped_once_it_is_unused() {
    let (limiters, account) = (limiters(), account(1, 1, 1, 0));
    let mut running = limiters.acquire(&account, 0).unwrap();
    running.begin();
    limiters.configure([]);
    assert_eq!(limiters.running(account.id), 1);
    drop(running);
    assert_eq!(limiters.running(account.id), 0);
    limiters.configure([]);
    assert_eq!(limiters.load(rows(&account), 0), CapacityLoad::Free);
}

#[tokio::test(start_paused = true)]
async fn limit_of_a_channel_holds_for_all_its_accounts_together() {
    let (limiters, of, one, two) = (limiters(), channel(2, 0), account(1, 0, 0, 0), account(2, 1, 0, 0));
    let acquire = |account: &Account| limiters.try_acquire(LimitedRow::of_attempt(&of, account), 0);
    let (first, second) = (acquire(&one).unwrap(), acquire(&two).unwrap());
    assert!(first.counts() && first.is_on(LimitedId::Channel(of.id)) && !first.is_on(LimitedId::Account(one.id)));
    assert!(acquire(&one).is_none(), "the account has no limit, but the channel has");
    assert_eq!(limiters.load(LimitedRow::of_attempt(&of, &one), 0), CapacityLoad::AtConcurrency);
    drop(second);
    assert_eq!(limiters.running(two.id), 0, "both parts are released");
    assert!(acquire(&two).is_some());
    drop(first);
    assert_eq!(limiters.in_use(LimitedId::Channel(of.id)).running, 0);
}

#[tokio::test(start_paused = true)]
async fn full_account_leaves_nothing_taken_from_its_channel() {
    let (limiters, of, account) = (limiters(), channel(5, 0), account(1, 1, 0, 0));
    let rows = LimitedRow::of_attempt(&of, &account);
    let held = limiters.try_acquire(rows, 0).unwrap();
    assert!(limiters.try_acquire(rows, 0).is_none());
    assert_eq!(limiters.in_use(LimitedId::Channel(of.id)).running, 1);
    drop(held);
    assert_eq!(limiters.in_use(LimitedId::Channel(of.id)).running, 0);
}

#[tokio::test(start_paused = true)]
async fn requests_a_minute_of_a_channel_are_those_of_all_its_accounts() {
    let (limiters, of, one, two) = (limiters(), channel(0, 3), account(1, 0, 0, 0), account(2, 0, 2, 0));
    for account in [&one, &two, &two] {
        limiters.try_acquire(LimitedRow::of_attempt(&of, account), 0).unwrap().begin();
    }
    for account in [&one, &two] {
        let rows = LimitedRow::of_attempt(&of, account);
        assert!(matches!(limiters.load(rows, 0), CapacityLoad::AtRate { .. }) && limiters.try_acquire(rows, 0).is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn waiter_of_a_full_channel_is_handed_its_capacity_and_adds_that_of_an_account() {
    let (limiters, of, one, two) = (limiters(), channel(1, 0), account(1, 1, 0, 0), account(2, 1, 0, 0));
    let running = limiters.try_acquire(LimitedRow::of_attempt(&of, &one), 0).unwrap();
    let waiting = spawn_waiter_of(&limiters, (of.clone(), true), &[&one, &two], 1);
    settle().await;
    assert_eq!((limiters.waiting(one.id), limiters.waiting(two.id)), (0, 0), "it waits for the channel, once");
    drop(running);
    let rows = LimitedRow::of_attempt(&of, &two);
    assert!(limiters.try_acquire(rows, 0).is_none(), "the capacity is handed over before another request can acquire it");
    let mut permit = permit(waiting.await.unwrap());
    assert!(permit.is_on(LimitedId::Channel(of.id)) && !permit.is_on(LimitedId::Account(two.id)));
    assert!(limiters.extend(&mut permit, rows, 0));
    assert_eq!(limiters.running(two.id), 1);
    drop(permit);
    assert_eq!((limiters.running(two.id), limiters.in_use(LimitedId::Channel(of.id)).running), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn account_of_a_full_channel_that_stands_for_all_leads_to_the_channel_alone() {
    let (limiters, of, one) = (limiters(), channel(1, 0), account(1, 1, 0, 0));
    let other = Channel { id: ChannelId::from_parts(Timestamp(2), [2; 10]), ..channel(0, 0) };
    let two = account(2, 1, 0, 0);
    let _running = limiters.try_acquire(LimitedRow::of_attempt(&of, &one), 0).unwrap();
    let second = limiters.try_acquire(LimitedRow::of_attempt(&other, &two), 0).unwrap();
    let busy = [
        BusyAccount { channel: &of, account: &one, is_channel_full: true },
        BusyAccount { channel: &other, account: &two, is_channel_full: false },
    ];
    let AcquireOutcome::Queued(mut queued) = limiters.enqueue(&busy, key(1), 0) else { panic!("both are busy") };
    assert_eq!((limiters.waiting(one.id), limiters.waiting(two.id)), (0, 1));
    drop(second);
    assert!(queued.acquired().await.unwrap().is_on(LimitedId::Account(two.id)));
}

#[tokio::test(start_paused = true)]
async fn part_of_a_permit_serves_another_account_of_its_channel() {
    let (limiters, of, one, two) = (limiters(), channel(1, 0), account(1, 1, 0, 0), account(2, 1, 0, 0));
    let both = limiters.try_acquire(LimitedRow::of_attempt(&of, &one), 0).unwrap();
    let rows = LimitedRow::of_attempt(&of, &two);
    let mut part = both.only(rows);
    assert_eq!((limiters.running(one.id), limiters.in_use(LimitedId::Channel(of.id)).running), (0, 1));
    assert!(limiters.extend(&mut part, rows, 0) && part.is_on(LimitedId::Account(two.id)));
    drop(part);
    assert_eq!((limiters.running(two.id), limiters.in_use(LimitedId::Channel(of.id)).running), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn load_of_an_attempt_is_the_one_that_lasts_longest() {
    let (limiters, of, one) = (limiters(), channel(1, 0), account(1, 0, 1, 0));
    let rows = LimitedRow::of_attempt(&of, &one);
    let mut held = limiters.try_acquire(rows, 0).unwrap();
    held.begin();
    assert!(matches!(limiters.load(rows, 0), CapacityLoad::AtRate { .. }), "not the channel's concurrency");
}

#[tokio::test(start_paused = true)]
async fn request_that_waits_for_an_account_takes_nothing_of_its_channel() {
    let (limiters, of, account) = (limiters(), channel(2, 0), account(1, 1, 0, 0));
    let rows = LimitedRow::of_attempt(&of, &account);
    let running = limiters.try_acquire(rows, 0).unwrap();
    let waiting = spawn_waiter_of(&limiters, (of.clone(), false), &[&account], 1);
    settle().await;
    assert_eq!((limiters.waiting(account.id), limiters.in_use(LimitedId::Channel(of.id)).running), (1, 1));
    drop(running);
    let mut permit = permit(waiting.await.unwrap());
    assert!(limiters.extend(&mut permit, rows, 0));
    assert_eq!((limiters.running(account.id), limiters.in_use(LimitedId::Channel(of.id)).running), (1, 1));
}

proptest! {
    /// Acquires and drops in any order: the limit is never exceeded, and nothing is left at the end.
    #[test]
    fn permits_are_neither_lost_nor_duplicated_in_any_order_of_events(bound in 1u32..5, steps in proptest::collection::vec((0u8..4, 0usize..6), 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (limiters, account) = (limiters(), account(1, bound, 0, 0));
            let (mut held, mut waiting) = (Vec::new(), Vec::new());
            for (step, which) in steps {
                match step {
                    0 => held.extend(limiters.acquire(&account, 0)),
                    1 if !held.is_empty() => drop(held.remove(which % held.len())),
                    2 => waiting.push(spawn_waiter(&limiters, &[&account], u8::try_from(which).unwrap())),
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
