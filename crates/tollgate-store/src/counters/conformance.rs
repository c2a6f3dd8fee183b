//! What all counters must do: run on memory always, and on Redis when `TOLLGATE_TEST_REDIS` holds an address.

use std::sync::{Arc, Mutex, atomic::AtomicU32};

use async_trait::async_trait;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_core::{
    Billing, Budget, BudgetAction, LimitExceeded, Limits, MemberId, NanoUsd, RateKind, RateStatuses, Reservation, SpendTotals,
    Subject, Timestamp, UsageRecord, Window,
};

use super::{
    Counters, RedisAddress, RedisOptions, Spender, Spending, counters_in_memory, counters_in_redis,
    test_callers::{LIFE, TestCaller, budget, money, rate},
};
use crate::{
    Balance, LedgerEntry, LedgerFilter, LedgerPosition, LedgerStore, Posting, PostingReceipt, RandomSource, SpendingChanges,
    StoreError, VerifyReport,
    samples::{NOON, record},
};

/// A database that knows only what was spent.
#[derive(Debug, Default)]
pub(super) struct StaticLedger(pub(super) Mutex<Spending>);

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
    async fn posted_since(&self, _: LedgerPosition) -> Result<(Vec<LedgerEntry>, LedgerPosition), StoreError> {
        unreachable!("counters are told")
    }
    async fn spending(&self, _: Timestamp) -> Result<Spending, StoreError> {
        Ok(self.0.lock().unwrap().clone())
    }
    async fn hedged(&self, _: Timestamp) -> Result<Vec<(tollgate_core::GroupId, NanoUsd)>, StoreError> {
        unreachable!("counters do not hedge")
    }

    async fn spending_since(&self, _: LedgerPosition, now: Timestamp) -> Result<SpendingChanges, StoreError> {
        let Spending { spent, balances, ledger } = self.spending(now).await?;
        Ok(SpendingChanges { spent, balances, added: Vec::new(), until: ledger, ledger })
    }
    async fn verify(&self, _: Timestamp) -> Result<VerifyReport, StoreError> {
        unreachable!("counters do not verify")
    }
}

/// Counters under test.
pub(super) struct CounterFixture {
    pub(super) counters: Arc<dyn Counters>,
    told: Arc<StaticLedger>,
    stop: CancellationToken,
    work: Option<tokio::task::JoinHandle<()>>,
}

impl CounterFixture {
    fn memory(spending: &Spending) -> Self {
        let told = Arc::new(StaticLedger(Mutex::new(spending.clone())));
        Self { counters: counters_in_memory(spending, LIFE), told, stop: CancellationToken::new(), work: None }
    }

    async fn redis(url: &str, namespace: &str, spending: &Spending) -> Self {
        let told = Arc::new(StaticLedger(Mutex::new(spending.clone())));
        let (counters, work) = counters_in_redis(options(url, namespace), spending, Arc::clone(&told) as _).await.unwrap();
        let stop = CancellationToken::new();
        let work = TaskTracker::new().spawn(work.run(stop.clone()));
        Self { counters, told, stop, work: Some(work) }
    }

    async fn reserve(&self, hold: &Reservation, now: Instant) -> Result<RateStatuses, LimitExceeded> {
        self.counters.reserve(hold, &[], now).await.unwrap().map(|taken| taken.rate_statuses)
    }

    /// Waits until what is spent and held is as it should be: Redis is told after a request has ended.
    async fn spent(&self, subject: Subject, window: Window, expected: i64) {
        let begin = Instant::now();
        loop {
            let spent = self.counters.spent(subject, window, NOON);
            if spent == NanoUsd(expected) {
                return;
            }
            assert!(begin.elapsed().as_secs() < 5, "{subject:?}: {spent:?}, not {expected}");
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }

    fn post(&self, member: MemberId, amount: i64) {
        let mut told = self.told.0.lock().unwrap();
        told.ledger.0 += 1;
        match told.balances.iter_mut().find(|(of, _)| *of == member) {
            Some((_, balance)) => balance.0 += amount,
            None => told.balances.push((member, NanoUsd(amount))),
        }
        drop(told);
        self.counters.posted(member, NanoUsd(amount));
    }

    async fn end(self) {
        self.stop.cancel();
        if let Some(work) = self.work {
            work.await.unwrap();
        }
    }
}

pub(super) fn options(url: &str, namespace: &str) -> RedisOptions {
    RedisOptions {
        place: RedisAddress { url: url.to_owned(), ca: None },
        namespace: namespace.to_owned(),
        life: LIFE,
        nodes: 3,
        random: RandomSource::system(),
        clock: || NOON,
    }
}

/// The address of a Redis; `None`, said aloud, when there is none to test on.
pub(super) fn redis(check: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the address of a test server comes from whoever runs the tests")]
    let url = std::env::var("TOLLGATE_TEST_REDIS").ok();
    if url.is_none() {
        tollgate_testkit::skipped(&format!("{check} on Redis (TOLLGATE_TEST_REDIS is not set)"));
    }
    url
}

/// A namespace of its own for a check.
pub(super) fn namespace() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let drawn: [u8; 4] = RandomSource::system().bytes();
    format!("test-{}-{number}-{}", std::process::id(), hex::encode(drawn))
}

/// Takes a hold as soon as what ended before has gone back.
async fn take_soon(bench: &CounterFixture, hold: &Reservation, now: Instant) -> RateStatuses {
    let begin = Instant::now();
    loop {
        match bench.reserve(hold, now).await {
            Ok(rate_statuses) => return rate_statuses,
            Err(exhausted) => assert!(begin.elapsed().as_secs() < 5, "{exhausted:?}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

async fn a_budget_counts_what_is_held_and_what_is_spent(bench: &CounterFixture) {
    let now = Instant::now();
    let asker = TestCaller::new(|it| it.key.budgets = budget(1_000, BudgetAction::Block));
    bench.reserve(&asker.hold(1, 600), now).await.unwrap();
    assert_eq!(money(bench.reserve(&asker.hold(2, 401), now).await).left, NanoUsd(400));
    bench.reserve(&asker.hold(2, 400), now).await.unwrap();
    assert_eq!(bench.counters.open(), 2);
    bench.counters.settle(&asker.spent(1, 100), now);
    let subject = Subject::Key(asker.key.id);
    bench.spent(subject, Window::Month, 500).await;
    let short = money(bench.reserve(&asker.hold(3, 501), now).await);
    assert_eq!((short.left, short.spent, short.subject), (NanoUsd(500), NanoUsd(500), subject));
    bench.reserve(&asker.hold(3, 500), now).await.unwrap();
    bench.counters.settle(&asker.spent(1, 100), now);
    bench.counters.settle(&asker.spent(2, 0), now);
    bench.counters.settle(&asker.spent(3, 7), now);
    assert_eq!(bench.counters.open(), 0);
}

async fn nothing_of_a_hold_is_taken_when_one_rule_says_no(bench: &CounterFixture) {
    let now = Instant::now();
    let asker = TestCaller::new(|it| {
        it.key.budgets = budget(1_000, BudgetAction::Block);
        it.key.limits = Limits { rpm: 5, tpm: 10_000, concurrency: 5 };
        it.group.limits.concurrency = 1;
    });
    bench.reserve(&asker.hold(1, 10), now).await.unwrap();
    for _ in 0..20 {
        let busy = rate(bench.reserve(&asker.hold(2, 10), now).await);
        assert_eq!((busy.subject, busy.kind, busy.used), (Subject::Group(asker.group.id), RateKind::Concurrency, 1));
        assert_eq!(busy.rate_statuses.requests.unwrap().used, 1);
    }
    bench.counters.settle(&asker.spent(1, 10), now);
    take_soon(bench, &asker.hold(2, 990), now).await;
}

async fn of_several_budgets_the_one_with_least_left_is_told(bench: &CounterFixture) {
    let asker = TestCaller::new(|it| {
        it.key.budgets = budget(900, BudgetAction::Block);
        it.key.member.budgets = budget(500, BudgetAction::Block);
        it.group.budgets = budget(700, BudgetAction::Block);
    });
    let short = money(bench.reserve(&asker.hold(1, 1_000), Instant::now()).await);
    assert_eq!((short.subject, short.left), (Subject::Member(asker.key.member.id), NanoUsd(500)));
}

/// A machine whose clock is put forward and right again spends nothing twice, and hides from no node what was spent.
async fn a_clock_that_steps_forward_and_back_frees_no_budget(bench: &CounterFixture) {
    let now = Instant::now();
    let asker =
        TestCaller::new(|it| it.key.budgets = vec![Budget { window: Window::Day, ..budget(1_000, BudgetAction::Block)[0] }]);
    let subject = Subject::Key(asker.key.id);
    bench.reserve(&asker.hold(1, 990), now).await.unwrap();
    bench.counters.settle(&asker.spent(1, 990), now);
    bench.spent(subject, Window::Day, 990).await;
    let ahead = Timestamp(NOON.0 + 40 * 86_400_000_000);
    bench.reserve(&asker.hold_at(ahead, 2, 700), now).await.unwrap();
    bench.counters.settle(&UsageRecord { at: ahead, ..asker.spent(2, 700) }, now);
    bench.spent(subject, Window::Total, 1_690).await;
    let short = money(bench.reserve(&asker.hold(3, 11), now).await);
    assert_eq!((short.left, short.spent), (NanoUsd(10), NanoUsd(990)));
    assert_eq!(money(bench.reserve(&asker.hold_at(ahead, 4, 301), now).await).left, NanoUsd(300));
}

async fn two_budgets_of_one_subject_hold_once(bench: &CounterFixture) {
    let now = Instant::now();
    let asker = TestCaller::new(|it| {
        it.key.budgets = budget(1_000, BudgetAction::Block);
        it.key.budgets.push(tollgate_core::Budget { window: Window::Day, ..it.key.budgets[0] });
    });
    bench.reserve(&asker.hold(1, 500), now).await.unwrap();
    bench.reserve(&asker.hold(2, 500), now).await.unwrap();
    bench.counters.settle(&asker.spent(1, 0), now);
    bench.counters.settle(&asker.spent(2, 0), now);
    bench.spent(Subject::Key(asker.key.id), Window::Total, 0).await;
}

async fn a_prepaid_balance_bounds_and_postings_raise_it(bench: &CounterFixture) {
    let now = Instant::now();
    let asker = TestCaller::new(|it| it.key.member.billing = Billing::Prepaid);
    assert_eq!(money(bench.reserve(&asker.hold(1, 300), now).await).left, NanoUsd(0));
    bench.post(asker.key.member.id, 1_000);
    take_soon(bench, &asker.hold(1, 300), now).await;
    let short = money(bench.reserve(&asker.hold(2, 800), now).await);
    assert_eq!((short.budget, short.left), (None, NanoUsd(700)));
    bench.counters.settle(&asker.spent(1, 250), now);
    take_soon(bench, &asker.hold(2, 750), now).await;
    money(bench.reserve(&asker.hold(3, 1), now).await);
}

async fn what_costs_nothing_is_served_with_nothing_left(bench: &CounterFixture) {
    let now = Instant::now();
    let asker = TestCaller::new(|it| it.key.budgets = budget(100, BudgetAction::Block));
    bench.counters.settle(&asker.spent(1, 150), now);
    bench.spent(Subject::Key(asker.key.id), Window::Month, 150).await;
    bench.reserve(&asker.hold(3, 0), now).await.unwrap();
}

async fn an_alerting_budget_is_told_once_when_it_is_crossed(bench: &CounterFixture) {
    let now = Instant::now();
    let asker = TestCaller::new(|it| it.key.budgets = budget(100, BudgetAction::Alert));
    let subject = Subject::Key(asker.key.id);
    let mut crossed = Vec::new();
    for (number, output, sum) in [(1, 99, 99), (2, 5, 104), (3, 500, 604)] {
        bench.reserve(&asker.hold(number, output), now).await.unwrap();
        let record = asker.spent(number, output);
        let spender = Spender { request: record.id, key: record.key_name.clone() };
        crossed.extend(bench.counters.settle(&record, now).into_iter().map(|it| (it, spender.clone())));
        bench.spent(subject, Window::Month, sum).await;
    }
    let begin = Instant::now();
    while crossed.is_empty() && begin.elapsed().as_secs() < 5 {
        crossed.extend(bench.counters.crossed());
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    crossed.extend(bench.counters.crossed());
    assert_eq!(crossed.len(), 1);
    let (it, by) = &crossed[0];
    assert_eq!((it.subject, it.spent), (subject, NanoUsd(104)), "as it was when it was crossed");
    let second = asker.spent(2, 5);
    assert_eq!((by.request, &by.key), (second.id, &second.key_name), "who crossed it is told, and not who came after");
}

async fn requests_and_tokens_of_a_minute_are_bounded_and_put_right(bench: &CounterFixture) {
    let now = Instant::now();
    let asker = TestCaller::new(|it| it.key.limits = Limits { rpm: 3, tpm: 1_000, concurrency: 0 });
    let rate_statuses = bench.reserve(&asker.hold(1, 900), now).await.unwrap();
    assert_eq!((rate_statuses.requests.unwrap().used, rate_statuses.tokens.unwrap().used), (1, 900));
    let busy = rate(bench.reserve(&asker.hold(2, 200), now).await);
    assert_eq!((busy.kind, busy.limit), (RateKind::Tokens, 1_000));
    bench.counters.settle(&asker.spent(1, 50), now);
    take_soon(bench, &asker.hold(2, 200), now).await;
    bench.reserve(&asker.hold(3, 10), now).await.unwrap();
    let busy = rate(bench.reserve(&asker.hold(4, 10), now).await);
    assert_eq!((busy.kind, busy.used), (RateKind::Requests, 3));
    assert!((1..=120_000).contains(&busy.wait_ms), "{}", busy.wait_ms);
}

async fn a_slot_is_free_again_when_its_request_ends(bench: &CounterFixture) {
    let now = Instant::now();
    let asker = TestCaller::new(|it| it.key.limits.concurrency = 2);
    bench.reserve(&asker.hold(1, 1), now).await.unwrap();
    bench.reserve(&asker.hold(2, 1), now).await.unwrap();
    assert_eq!(rate(bench.reserve(&asker.hold(3, 1), now).await).kind, RateKind::Concurrency);
    bench.counters.settle(&asker.spent(1, 1), now);
    take_soon(bench, &asker.hold(3, 1), now).await;
    bench.counters.settle(&asker.spent(1, 1), now);
    assert_eq!(bench.counters.open(), 2, "a hold goes back once, however often its request is said to have ended");
    rate(bench.reserve(&asker.hold(4, 1), now).await);
}

async fn who_is_in_use_is_told_and_who_only_spent_is_not(bench: &CounterFixture) {
    let now = Instant::now();
    let asker = TestCaller::new(|it| {
        it.key.budgets = budget(1_000, BudgetAction::Block);
        it.key.limits = Limits { rpm: 9, tpm: 0, concurrency: 3 };
        it.key.member.budgets = budget(1_000, BudgetAction::Block);
    });
    let (of_key, of_member) = (Subject::Key(asker.key.id), Subject::Member(asker.key.member.id));
    assert_eq!(bench.counters.in_use(10, now).meters, []);
    bench.reserve(&asker.hold(1, 600), now).await.unwrap();
    let look = bench.counters.in_use(10, now);
    let of = |subject| look.meters.iter().find(|(of, _)| *of == subject).map(|(_, meter)| *meter).unwrap();
    assert_eq!((of(of_key).reserved, of(of_key).running, of(of_key).requests.used(look.micros), look.is_all), (600, 1, 1, true));
    assert_eq!((look.meters.len(), of(of_member).reserved), (2, 600));
    let one = bench.counters.in_use(1, now);
    assert_eq!((one.meters.len(), one.is_all), (1, false));
    bench.counters.settle(&asker.spent(1, 100), now);
    // The minute's request is still counted, the member has only spent something.
    bench.spent(of_member, Window::Month, 100).await;
    let in_use: Vec<_> = bench.counters.in_use(10, now).meters.iter().map(|(of, _)| *of).collect();
    assert_eq!(in_use, [of_key]);
    let look = bench.counters.look(&[of_member], now);
    assert_eq!((look.meters[0].1.reserved, look.meters[0].1.spent.within(Window::Month, NOON)), (0, NanoUsd(100)));
    bench.reserve(&asker.hold(2, 10), now).await.unwrap();
    assert_eq!(bench.counters.in_use(10, now).meters.len(), 2, "whoever asks again is told again");
}

async fn what_was_spent_before_the_start_counts(bench: &CounterFixture) {
    // The bench begins with this; see `spent_before`.
    let asker = TestCaller::new(|it| it.key.budgets = budget(1_000_000, BudgetAction::Block));
    let subject = Subject::Key(before());
    let mut early = asker.clone();
    early.key.id = before();
    early.key.budgets = budget(1_000, BudgetAction::Block);
    assert_eq!(money(bench.reserve(&early.hold(1, 201), Instant::now()).await).left, NanoUsd(200));
    bench.reserve(&early.hold(1, 200), Instant::now()).await.unwrap();
    assert_eq!(bench.counters.spent(subject, Window::Day, NOON), NanoUsd(300));
}

async fn a_request_that_ended_before_its_hold_was_granted_holds_nothing(bench: &CounterFixture) {
    let asker = TestCaller::new(|it| it.key.budgets = budget(1_000, BudgetAction::Block));
    let now = Instant::now();
    for number in 1..=20_u64 {
        let hold = asker.hold(number, 1_000);
        let (counters, asked) = (Arc::clone(&bench.counters), hold.clone());
        // Its caller leaves in the middle.
        let asking = TaskTracker::new().spawn(async move { counters.reserve(&asked, &[], now).await });
        tokio::task::yield_now().await;
        asking.abort();
        let _ = asking.await;
        bench.counters.settle(&asker.spent(number, 0), now);
    }
    bench.spent(Subject::Key(asker.key.id), Window::Month, 0).await;
    take_soon(bench, &asker.hold(99, 1_000), now).await;
    assert_eq!(bench.counters.open(), 1);
}

async fn many_at_once_do_not_pass_a_bound(bench: &CounterFixture) {
    let asker = TestCaller::new(|it| {
        it.key.budgets = budget(1_000, BudgetAction::Block);
        it.group.limits.concurrency = 7;
    });
    let now = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=200_u64 {
        let (counters, asker) = (Arc::clone(&bench.counters), asker.clone());
        tasks.spawn(async move {
            let mut sold = 0;
            if counters.reserve(&asker.hold(number, 100), &[], now).await.unwrap().is_ok() {
                assert!(counters.open() <= 7, "{}", counters.open());
                counters.settle(&asker.spent(number, 100), now);
                sold = 100;
            }
            sold
        });
    }
    let sold: i64 = tasks.join_all().await.into_iter().sum();
    assert!(sold <= 1_000, "{sold}");
    bench.spent(Subject::Key(asker.key.id), Window::Total, sold).await;
    assert_eq!(bench.counters.open(), 0);
}

fn before() -> tollgate_core::KeyId {
    tollgate_core::KeyId::from_uuid(record(77).id.uuid())
}

fn spent_before() -> Spending {
    let loaded = SpendTotals::loaded(NOON, NanoUsd(100), NanoUsd(800), NanoUsd(5_000));
    Spending { spent: vec![(Subject::Key(before()), loaded)], ..Spending::default() }
}

/// Runs every check on memory and on Redis.
macro_rules! conformance {
    ($($check:ident),+ $(,)?) => {$(
        mod $check {
            use super::*;

            #[tokio::test]
            async fn on_memory() {
                let bench = CounterFixture::memory(&spent_before());
                super::$check(&bench).await;
            }

            #[tokio::test]
            async fn on_redis() {
                let Some(url) = redis(stringify!($check)) else { return };
                let bench = CounterFixture::redis(&url, &namespace(), &spent_before()).await;
                super::$check(&bench).await;
                bench.end().await;
            }
        }
    )+};
}

conformance! {
    a_budget_counts_what_is_held_and_what_is_spent,
    nothing_of_a_hold_is_taken_when_one_rule_says_no,
    of_several_budgets_the_one_with_least_left_is_told,
    two_budgets_of_one_subject_hold_once,
    a_clock_that_steps_forward_and_back_frees_no_budget,
    a_prepaid_balance_bounds_and_postings_raise_it,
    what_costs_nothing_is_served_with_nothing_left,
    an_alerting_budget_is_told_once_when_it_is_crossed,
    requests_and_tokens_of_a_minute_are_bounded_and_put_right,
    a_slot_is_free_again_when_its_request_ends,
    who_is_in_use_is_told_and_who_only_spent_is_not,
    what_was_spent_before_the_start_counts,
    a_request_that_ended_before_its_hold_was_granted_holds_nothing,
    many_at_once_do_not_pass_a_bound,
}
