//! Tests that all counters must pass. They run on memory always, and on Redis if `TOLLGATE_TEST_REDIS` holds an address.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, atomic::AtomicU32},
};

use async_trait::async_trait;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_core::{
    Billing, Budget, BudgetAction, KeyId, LimitExceeded, Limits, MemberId, NanoUsd, RateKind, RateStatuses, RequestId, Reservation,
    SpendTotals, Subject, Timestamp, UsageRecord, Window,
};

use super::{
    Counters, RedisAddress, RedisOptions, Spender, counters_in_memory, counters_in_redis,
    test_callers::{RESERVATION_TTL, TestCaller, budget, exceeded_funds, exceeded_rate, now},
};
use crate::{
    Balance, LedgerEntry, LedgerFilter, LedgerPosition, LedgerStore, Posting, PostingReceipt, RandomSource, Spending,
    SpendingChanges, StoreError, VerifyReport, WorkControl,
    samples::{MIDNIGHT, record},
};

/// A database that contains only spending, and the requests that are not booked.
#[derive(Debug, Default)]
pub(super) struct StaticLedger(pub(super) Mutex<Spending>, pub(super) Mutex<Vec<RequestId>>);

#[async_trait]
impl LedgerStore for StaticLedger {
    async fn post(&self, _: &Posting, _: Timestamp) -> Result<PostingReceipt, StoreError> {
        unreachable!("counters do not post")
    }
    async fn entries(&self, _: &LedgerFilter) -> Result<Vec<LedgerEntry>, StoreError> {
        unreachable!("counters do not list")
    }
    async fn balances(&self) -> Result<Vec<Balance>, StoreError> {
        unreachable!("counters do not list")
    }
    async fn balances_of(&self, _: Vec<MemberId>) -> Result<Vec<Balance>, StoreError> {
        unreachable!("counters do not list")
    }
    async fn posted_since(&self, _: LedgerPosition) -> Result<(Vec<LedgerEntry>, LedgerPosition), StoreError> {
        unreachable!("counters do not read postings")
    }
    async fn spending(&self, _: Timestamp) -> Result<Spending, StoreError> {
        Ok(self.0.lock().unwrap().clone())
    }
    async fn hedge_costs(&self, _: Timestamp) -> Result<Vec<(tollgate_core::GroupId, NanoUsd)>, StoreError> {
        unreachable!("counters do not hedge")
    }

    async fn spending_since(&self, _: LedgerPosition, now: Timestamp) -> Result<SpendingChanges, StoreError> {
        let Spending { spent, balances, ledger } = self.spending(now).await?;
        Ok(SpendingChanges { spent, balances, added: Vec::new(), until: ledger, ledger })
    }
    async fn keys_spent_since(&self, _: LedgerPosition) -> Result<(BTreeSet<KeyId>, LedgerPosition), StoreError> {
        unreachable!("counters do not read keys")
    }
    async fn positions(&self, requests: &[RequestId]) -> Result<Vec<(RequestId, LedgerPosition)>, StoreError> {
        let unbooked = self.1.lock().unwrap();
        let booked = requests.iter().filter(|request| !unbooked.contains(request));
        Ok(booked.map(|request| (*request, LedgerPosition(0))).collect())
    }
    async fn verify(&self, _: Timestamp, _: &WorkControl) -> Result<VerifyReport, StoreError> {
        unreachable!("counters do not verify")
    }
}

/// Counters under test, with their worker if they have one.
pub(super) struct CounterFixture {
    pub(super) counters: Arc<dyn Counters>,
    ledger: Arc<StaticLedger>,
    stop: CancellationToken,
    worker: Option<tokio::task::JoinHandle<()>>,
}

impl CounterFixture {
    fn memory(spending: &Spending) -> Self {
        let ledger = Arc::new(StaticLedger(Mutex::new(spending.clone()), Mutex::default()));
        Self { counters: counters_in_memory(spending, RESERVATION_TTL), ledger, stop: CancellationToken::new(), worker: None }
    }

    async fn redis(url: &str, namespace: &str, spending: &Spending) -> Self {
        let ledger = Arc::new(StaticLedger(Mutex::new(spending.clone()), Mutex::default()));
        let (counters, worker) = counters_in_redis(options(url, namespace), spending, Arc::clone(&ledger) as _).await.unwrap();
        let stop = CancellationToken::new();
        let worker = TaskTracker::new().spawn(worker.run(stop.clone()));
        Self { counters, ledger, stop, worker: Some(worker) }
    }

    async fn reserve(&self, reservation: &Reservation, now: Instant) -> Result<RateStatuses, LimitExceeded> {
        self.counters.reserve(reservation, &[], now).await.unwrap().map(|receipt| receipt.rate_statuses)
    }

    /// Waits until spending and reservations add up to `expected`; Redis receives the usage after a request has ended.
    async fn expect_spent(&self, subject: Subject, window: Window, expected: i64) {
        let begin = Instant::now();
        loop {
            let spent = self.counters.spent(subject, window, MIDNIGHT);
            if spent == NanoUsd(expected) {
                return;
            }
            assert!(begin.elapsed().as_secs() < 5, "{subject:?}: {spent:?}, not {expected}");
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }

    fn post(&self, member: MemberId, amount: i64) {
        let mut spending = self.ledger.0.lock().unwrap();
        spending.ledger.0 += 1;
        match spending.balances.iter_mut().find(|(known, _)| *known == member) {
            Some((_, balance)) => balance.0 += amount,
            None => spending.balances.push((member, NanoUsd(amount))),
        }
        drop(spending);
        self.counters.record_posting(member, NanoUsd(amount));
    }

    async fn end(self) {
        self.stop.cancel();
        if let Some(worker) = self.worker {
            worker.await.unwrap();
        }
    }
}

pub(super) fn options(url: &str, namespace: &str) -> RedisOptions {
    RedisOptions {
        address: RedisAddress { url: url.to_owned(), ca: None },
        namespace: namespace.to_owned(),
        identity: hex::encode(RandomSource::system().bytes::<8>()),
        beside: None,
        reservation_ttl: RESERVATION_TTL,
        nodes: 3,
        random: RandomSource::system(),
        clock: || MIDNIGHT,
        instant: now,
    }
}

/// The address of the Redis to test on; `None`, with a message, if there is none.
pub(super) fn redis(check: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the environment of a test run has the address of the test server")]
    let url = std::env::var("TOLLGATE_TEST_REDIS").ok();
    if url.is_none() {
        tollgate_testkit::skipped(&format!("{check} on Redis (TOLLGATE_TEST_REDIS is not set)"));
    }
    url
}

pub(super) fn namespace() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let drawn: [u8; 4] = RandomSource::system().bytes();
    format!("test-{}-{number}-{}", std::process::id(), hex::encode(drawn))
}

/// Makes a reservation as soon as those of ended requests are released.
async fn reserve_eventually(fixture: &CounterFixture, reservation: &Reservation, now: Instant) -> RateStatuses {
    let begin = Instant::now();
    loop {
        match fixture.reserve(reservation, now).await {
            Ok(rate_statuses) => return rate_statuses,
            Err(exceeded) => assert!(begin.elapsed().as_secs() < 5, "{exceeded:?}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

async fn budget_counts_reservations_and_spending(fixture: &CounterFixture) {
    let now = now();
    let caller = TestCaller::new(|it| it.key.budgets = budget(1_000, BudgetAction::Block));
    fixture.reserve(&caller.reservation(1, 600), now).await.unwrap();
    assert_eq!(exceeded_funds(fixture.reserve(&caller.reservation(2, 401), now).await).left, NanoUsd(400));
    fixture.reserve(&caller.reservation(2, 400), now).await.unwrap();
    assert_eq!(fixture.counters.open_reservations(), 2);
    fixture.counters.settle(&caller.usage(1, 100), now);
    let subject = Subject::Key(caller.key.id);
    fixture.expect_spent(subject, Window::Month, 500).await;
    let funds = exceeded_funds(fixture.reserve(&caller.reservation(3, 501), now).await);
    assert_eq!((funds.left, funds.spent, funds.subject), (NanoUsd(500), NanoUsd(500), subject));
    fixture.reserve(&caller.reservation(3, 500), now).await.unwrap();
    fixture.counters.settle(&caller.usage(1, 100), now);
    fixture.counters.settle(&caller.usage(2, 0), now);
    fixture.counters.settle(&caller.usage(3, 7), now);
    assert_eq!(fixture.counters.open_reservations(), 0);
}

async fn refused_reservation_changes_no_meter(fixture: &CounterFixture) {
    let now = now();
    let caller = TestCaller::new(|it| {
        it.key.budgets = budget(1_000, BudgetAction::Block);
        it.key.limits = Limits { rpm: 5, tpm: 10_000, concurrency: 5 };
        it.group.limits.concurrency = 1;
    });
    fixture.reserve(&caller.reservation(1, 10), now).await.unwrap();
    for _ in 0..20 {
        let rate = exceeded_rate(fixture.reserve(&caller.reservation(2, 10), now).await);
        assert_eq!((rate.subject, rate.kind, rate.used), (Subject::Group(caller.group.id), RateKind::Concurrency, 1));
        assert_eq!(rate.rate_statuses.requests.unwrap().used, 1);
    }
    fixture.counters.settle(&caller.usage(1, 10), now);
    reserve_eventually(fixture, &caller.reservation(2, 990), now).await;
}

async fn exceeded_budget_with_least_left_is_reported(fixture: &CounterFixture) {
    let caller = TestCaller::new(|it| {
        it.key.budgets = budget(900, BudgetAction::Block);
        it.key.member.budgets = budget(500, BudgetAction::Block);
        it.group.budgets = budget(700, BudgetAction::Block);
    });
    let funds = exceeded_funds(fixture.reserve(&caller.reservation(1, 1_000), now()).await);
    assert_eq!((funds.subject, funds.left), (Subject::Member(caller.key.member.id), NanoUsd(500)));
}

/// Setting the clock forward and back neither renews a budget nor hides spending from other nodes.
async fn clock_jumps_do_not_renew_a_budget(fixture: &CounterFixture) {
    let now = now();
    let caller =
        TestCaller::new(|it| it.key.budgets = vec![Budget { window: Window::Day, ..budget(1_000, BudgetAction::Block)[0] }]);
    let subject = Subject::Key(caller.key.id);
    fixture.reserve(&caller.reservation(1, 990), now).await.unwrap();
    fixture.counters.settle(&caller.usage(1, 990), now);
    fixture.expect_spent(subject, Window::Day, 990).await;
    let ahead = Timestamp(MIDNIGHT.0 + 40 * 86_400_000_000);
    fixture.reserve(&caller.reservation_at(ahead, 2, 700), now).await.unwrap();
    fixture.counters.settle(&UsageRecord { at: ahead, ..caller.usage(2, 700) }, now);
    fixture.expect_spent(subject, Window::Total, 1_690).await;
    let funds = exceeded_funds(fixture.reserve(&caller.reservation(3, 11), now).await);
    assert_eq!((funds.left, funds.spent), (NanoUsd(10), NanoUsd(990)));
    assert_eq!(exceeded_funds(fixture.reserve(&caller.reservation_at(ahead, 4, 301), now).await).left, NanoUsd(300));
}

async fn two_budgets_of_one_subject_reserve_once(fixture: &CounterFixture) {
    let now = now();
    let caller = TestCaller::new(|it| {
        it.key.budgets = budget(1_000, BudgetAction::Block);
        it.key.budgets.push(tollgate_core::Budget { window: Window::Day, ..it.key.budgets[0] });
    });
    fixture.reserve(&caller.reservation(1, 500), now).await.unwrap();
    fixture.reserve(&caller.reservation(2, 500), now).await.unwrap();
    fixture.counters.settle(&caller.usage(1, 0), now);
    fixture.counters.settle(&caller.usage(2, 0), now);
    fixture.expect_spent(Subject::Key(caller.key.id), Window::Total, 0).await;
}

async fn prepaid_balance_limits_and_postings_raise_it(fixture: &CounterFixture) {
    let now = now();
    let caller = TestCaller::new(|it| it.key.member.billing = Billing::Prepaid);
    assert_eq!(exceeded_funds(fixture.reserve(&caller.reservation(1, 300), now).await).left, NanoUsd(0));
    fixture.post(caller.key.member.id, 1_000);
    reserve_eventually(fixture, &caller.reservation(1, 300), now).await;
    let funds = exceeded_funds(fixture.reserve(&caller.reservation(2, 800), now).await);
    assert_eq!((funds.budget, funds.left), (None, NanoUsd(700)));
    fixture.counters.settle(&caller.usage(1, 250), now);
    reserve_eventually(fixture, &caller.reservation(2, 750), now).await;
    exceeded_funds(fixture.reserve(&caller.reservation(3, 1), now).await);
}

async fn free_request_is_served_with_an_exhausted_budget(fixture: &CounterFixture) {
    let now = now();
    let caller = TestCaller::new(|it| it.key.budgets = budget(100, BudgetAction::Block));
    fixture.counters.settle(&caller.usage(1, 150), now);
    fixture.expect_spent(Subject::Key(caller.key.id), Window::Month, 150).await;
    fixture.reserve(&caller.reservation(3, 0), now).await.unwrap();
}

async fn crossed_alert_budget_is_reported_once(fixture: &CounterFixture) {
    let now = now();
    let caller = TestCaller::new(|it| it.key.budgets = budget(100, BudgetAction::Alert));
    let subject = Subject::Key(caller.key.id);
    let mut crossed = Vec::new();
    for (number, output, sum) in [(1, 99, 99), (2, 5, 104), (3, 500, 604)] {
        fixture.reserve(&caller.reservation(number, output), now).await.unwrap();
        let record = caller.usage(number, output);
        let spender = Spender { request: record.id, key: record.key_name.to_string() };
        crossed.extend(fixture.counters.settle(&record, now).into_iter().map(|it| (it, spender.clone())));
        fixture.expect_spent(subject, Window::Month, sum).await;
    }
    let begin = Instant::now();
    while crossed.is_empty() && begin.elapsed().as_secs() < 5 {
        crossed.extend(fixture.counters.take_budget_alerts());
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    crossed.extend(fixture.counters.take_budget_alerts());
    assert_eq!(crossed.len(), 1);
    let (it, by) = &crossed[0];
    assert_eq!((it.subject, it.spent), (subject, NanoUsd(104)), "as of the crossing");
    let second = caller.usage(2, 5);
    assert_eq!((by.request, by.key.as_str()), (second.id, second.key_name.as_str()), "the request that crossed it");
}

async fn requests_and_tokens_per_minute_are_limited_and_corrected(fixture: &CounterFixture) {
    let now = now();
    let caller = TestCaller::new(|it| it.key.limits = Limits { rpm: 3, tpm: 1_000, concurrency: 0 });
    let rate_statuses = fixture.reserve(&caller.reservation(1, 900), now).await.unwrap();
    assert_eq!((rate_statuses.requests.unwrap().used, rate_statuses.tokens.unwrap().used), (1, 900));
    let rate = exceeded_rate(fixture.reserve(&caller.reservation(2, 200), now).await);
    assert_eq!((rate.kind, rate.limit), (RateKind::Tokens, 1_000));
    fixture.counters.settle(&caller.usage(1, 50), now);
    reserve_eventually(fixture, &caller.reservation(2, 200), now).await;
    fixture.reserve(&caller.reservation(3, 10), now).await.unwrap();
    let rate = exceeded_rate(fixture.reserve(&caller.reservation(4, 10), now).await);
    assert_eq!((rate.kind, rate.used), (RateKind::Requests, 3));
    assert!((1..=120_000).contains(&rate.wait_ms), "{}", rate.wait_ms);
}

async fn permit_is_released_when_its_request_ends(fixture: &CounterFixture) {
    let now = now();
    let caller = TestCaller::new(|it| it.key.limits.concurrency = 2);
    fixture.reserve(&caller.reservation(1, 1), now).await.unwrap();
    fixture.reserve(&caller.reservation(2, 1), now).await.unwrap();
    assert_eq!(exceeded_rate(fixture.reserve(&caller.reservation(3, 1), now).await).kind, RateKind::Concurrency);
    fixture.counters.settle(&caller.usage(1, 1), now);
    reserve_eventually(fixture, &caller.reservation(3, 1), now).await;
    fixture.counters.settle(&caller.usage(1, 1), now);
    assert_eq!(fixture.counters.open_reservations(), 2, "a second settlement releases nothing");
    exceeded_rate(fixture.reserve(&caller.reservation(4, 1), now).await);
}

async fn active_subjects_exclude_those_that_only_spent(fixture: &CounterFixture) {
    let now = now();
    let caller = TestCaller::new(|it| {
        it.key.budgets = budget(1_000, BudgetAction::Block);
        it.key.limits = Limits { rpm: 9, tpm: 0, concurrency: 3 };
        it.key.member.budgets = budget(1_000, BudgetAction::Block);
    });
    let (key, member) = (Subject::Key(caller.key.id), Subject::Member(caller.key.member.id));
    assert_eq!(fixture.counters.active_subjects(10, now).meters, []);
    fixture.reserve(&caller.reservation(1, 600), now).await.unwrap();
    let snapshot = fixture.counters.active_subjects(10, now);
    let of = |subject| snapshot.meters.iter().find(|(known, _)| *known == subject).map(|(_, meter)| *meter).unwrap();
    assert_eq!(
        (of(key).reserved, of(key).running, of(key).requests.used(snapshot.micros), snapshot.is_complete),
        (600, 1, 1, true)
    );
    assert_eq!((snapshot.meters.len(), of(member).reserved), (2, 600));
    let one = fixture.counters.active_subjects(1, now);
    assert_eq!((one.meters.len(), one.is_complete), (1, false));
    fixture.counters.settle(&caller.usage(1, 100), now);
    // The request still counts in the key's minute; the member has only spending.
    fixture.expect_spent(member, Window::Month, 100).await;
    let active: Vec<_> = fixture.counters.active_subjects(10, now).meters.iter().map(|(of, _)| *of).collect();
    assert_eq!(active, [key]);
    let snapshot = fixture.counters.snapshot(&[member], now);
    assert_eq!((snapshot.meters[0].1.reserved, snapshot.meters[0].1.spent.within(Window::Month, MIDNIGHT)), (0, NanoUsd(100)));
    fixture.reserve(&caller.reservation(2, 10), now).await.unwrap();
    assert_eq!(fixture.counters.active_subjects(10, now).meters.len(), 2, "a new reservation makes the member active again");
}

async fn spending_before_the_start_counts(fixture: &CounterFixture) {
    let caller = TestCaller::new(|it| it.key.budgets = budget(1_000_000, BudgetAction::Block));
    let subject = Subject::Key(before());
    let mut early = caller.clone();
    early.key.id = before();
    early.key.budgets = budget(1_000, BudgetAction::Block);
    assert_eq!(exceeded_funds(fixture.reserve(&early.reservation(1, 201), now()).await).left, NanoUsd(200));
    fixture.reserve(&early.reservation(1, 200), now()).await.unwrap();
    assert_eq!(fixture.counters.spent(subject, Window::Day, MIDNIGHT), NanoUsd(300));
}

async fn request_that_ends_before_its_reservation_is_granted_reserves_nothing(fixture: &CounterFixture) {
    let caller = TestCaller::new(|it| it.key.budgets = budget(1_000, BudgetAction::Block));
    let now = now();
    for number in 1..=20_u64 {
        let reservation = caller.reservation(number, 1_000);
        let counters = Arc::clone(&fixture.counters);
        // The caller disconnects while the reservation is in flight.
        let task = TaskTracker::new().spawn(async move { counters.reserve(&reservation, &[], now).await });
        tokio::task::yield_now().await;
        task.abort();
        let _ = task.await;
        fixture.counters.settle(&caller.usage(number, 0), now);
    }
    fixture.expect_spent(Subject::Key(caller.key.id), Window::Month, 0).await;
    reserve_eventually(fixture, &caller.reservation(99, 1_000), now).await;
    assert_eq!(fixture.counters.open_reservations(), 1);
}

async fn concurrent_requests_do_not_exceed_a_limit(fixture: &CounterFixture) {
    let caller = TestCaller::new(|it| {
        it.key.budgets = budget(1_000, BudgetAction::Block);
        it.group.limits.concurrency = 7;
    });
    let now = now();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=200_u64 {
        let (counters, caller) = (Arc::clone(&fixture.counters), caller.clone());
        tasks.spawn(async move {
            let mut sold = 0;
            if counters.reserve(&caller.reservation(number, 100), &[], now).await.unwrap().is_ok() {
                assert!(counters.open_reservations() <= 7, "{}", counters.open_reservations());
                counters.settle(&caller.usage(number, 100), now);
                sold = 100;
            }
            sold
        });
    }
    let sold: i64 = tasks.join_all().await.into_iter().sum();
    assert!(sold <= 1_000, "{sold}");
    fixture.expect_spent(Subject::Key(caller.key.id), Window::Total, sold).await;
    assert_eq!(fixture.counters.open_reservations(), 0);
}

fn before() -> tollgate_core::KeyId {
    tollgate_core::KeyId::from_uuid(record(77).id.uuid())
}

fn spent_before() -> Spending {
    let loaded = SpendTotals::loaded(MIDNIGHT, NanoUsd(100), NanoUsd(800), NanoUsd(5_000));
    Spending { spent: vec![(Subject::Key(before()), loaded)], ..Spending::default() }
}

/// Runs every test on memory and on Redis.
macro_rules! conformance {
    ($($check:ident),+ $(,)?) => {$(
        mod $check {
            use super::*;

            #[tokio::test]
            async fn on_memory() {
                let fixture = CounterFixture::memory(&spent_before());
                super::$check(&fixture).await;
            }

            #[tokio::test]
            async fn on_redis() {
                let Some(url) = redis(stringify!($check)) else { return };
                let fixture = CounterFixture::redis(&url, &namespace(), &spent_before()).await;
                super::$check(&fixture).await;
                fixture.end().await;
            }
        }
    )+};
}

conformance! {
    budget_counts_reservations_and_spending,
    refused_reservation_changes_no_meter,
    exceeded_budget_with_least_left_is_reported,
    two_budgets_of_one_subject_reserve_once,
    clock_jumps_do_not_renew_a_budget,
    prepaid_balance_limits_and_postings_raise_it,
    free_request_is_served_with_an_exhausted_budget,
    crossed_alert_budget_is_reported_once,
    requests_and_tokens_per_minute_are_limited_and_corrected,
    permit_is_released_when_its_request_ends,
    active_subjects_exclude_those_that_only_spent,
    spending_before_the_start_counts,
    request_that_ends_before_its_reservation_is_granted_reserves_nothing,
    concurrent_requests_do_not_exceed_a_limit,
}
