//! Two nodes on one Redis, and a Redis that goes away, comes back, or loses what it had.

use tokio_util::sync::CancellationToken;
use tollgate_core::{BudgetAction, LimitExceeded, SpendTotals};
use tollgate_testkit::Redis;

use super::*;
use crate::{
    counters::{
        conformance::{StaticLedger, namespace, options, redis},
        test_callers::{TestCaller, budget, money},
    },
    samples::NOON,
};

struct Node {
    counters: RedisCounters,
    stop: CancellationToken,
    work: tokio::task::JoinHandle<()>,
}

impl Node {
    async fn start(url: &str, namespace: &str, told: &Arc<StaticLedger>) -> Self {
        let spending = told.0.lock().unwrap().clone();
        let shared = Arc::new(Inner::new(options(url, namespace), &spending));
        let work = RedisWorker::begin(Arc::clone(&shared), Arc::clone(told) as _, spending).await.unwrap();
        let stop = CancellationToken::new();
        let work = TaskTracker::new().spawn(work.run(stop.clone()));
        Self { counters: RedisCounters(shared), stop, work }
    }

    async fn reserve(&self, hold: &Reservation) -> Result<RateStatuses, LimitExceeded> {
        self.counters.reserve(hold, &[], Instant::now()).await.unwrap().map(|taken| taken.rate_statuses)
    }

    fn end_of(&self, record: &UsageRecord) {
        let _ = self.counters.settle(record, Instant::now());
    }

    /// Waits until Redis knows all that this node has to tell.
    async fn told(&self) {
        until("everything is told", || {
            self.is_up() && self.counters.0.pending().is_empty() && !self.counters.0.telling.load(Ordering::Acquire)
        })
        .await;
    }

    fn epoch_is_after(&self, number: u64) -> bool {
        self.counters.0.epoch().number > number
    }

    fn is_up(&self) -> bool {
        matches!(self.counters.0.epoch().state, State::Up { .. })
    }

    async fn end(self) {
        self.stop.cancel();
        self.work.await.unwrap();
    }
}

async fn until(what: &str, met: impl Fn() -> bool) {
    let begin = Instant::now();
    while !met() {
        assert!(begin.elapsed() < Duration::from_secs(10), "not within 10 s: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn of_a_thousand() -> TestCaller {
    TestCaller::new(|it| it.key.budgets = budget(1_000, BudgetAction::Block))
}

#[tokio::test]
async fn two_nodes_share_a_budget_and_a_dead_ones_holds_lapse() {
    let Some(url) = redis("two_nodes_share_a_budget") else { return };
    let (name, told) = (namespace(), Arc::new(StaticLedger::default()));
    let (one, other) = (Node::start(&url, &name, &told).await, Node::start(&url, &name, &told).await);
    let asker = of_a_thousand();
    one.reserve(&asker.hold(1, 600)).await.unwrap();
    assert_eq!(money(other.reserve(&asker.hold(2, 500)).await).left, NanoUsd(400));
    other.reserve(&asker.hold(2, 400)).await.unwrap();
    one.end_of(&asker.spent(1, 100));
    one.told().await;
    assert_eq!(money(other.reserve(&asker.hold(3, 501)).await).left, NanoUsd(500));
    one.reserve(&asker.hold(3, 500)).await.unwrap();

    // The first node dies without a word; its seat runs out.
    one.work.abort();
    let mut link = ::redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let names = one.counters.0.scripts.name("nodes");
    let seat = match &one.counters.0.epoch().state {
        State::Up { seat, .. } => seat.node.clone(),
        State::Joining { .. } | State::Down { .. } => panic!("it was up"),
    };
    let () = ::redis::cmd("ZADD").arg(&names).arg(1).arg(&seat).query_async(&mut link).await.unwrap();
    other.reserve(&asker.hold(4, 500)).await.unwrap();
    assert_eq!(money(other.reserve(&asker.hold(5, 1)).await).left, NanoUsd(0));
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_stops_leaves_each_node_its_share_and_hears_of_it_afterwards() {
    let Some(mut server) = Redis::start("a_redis_that_stops") else { return };
    let (name, told) = (namespace(), Arc::new(StaticLedger::default()));
    let (one, other) = (Node::start(&server.url(), &name, &told).await, Node::start(&server.url(), &name, &told).await);
    let asker = of_a_thousand();
    let key = Subject::Key(asker.key.id);
    one.reserve(&asker.hold(1, 100)).await.unwrap();
    other.reserve(&asker.hold(2, 100)).await.unwrap();
    one.end_of(&asker.spent(1, 100));
    one.told().await;
    // Both have looked at what the other did.
    until("both know", || [&one, &other].iter().all(|node| node.counters.spent(key, Window::Month, NOON) == NanoUsd(200))).await;

    server.freeze();
    let mut sold = Vec::new();
    for (node, first) in [(&one, 100), (&other, 200)] {
        let mut taken = 0;
        for number in first..first + 20 {
            match node.reserve(&asker.hold(number, 50)).await {
                Ok(_) => {
                    taken += 50;
                    node.end_of(&asker.spent(number, 50));
                }
                Err(LimitExceeded::Money(short)) => assert!(short.budget.is_some_and(|budget| budget.amount == NanoUsd(1_000))),
                Err(other) => panic!("{other:?}"),
            }
        }
        sold.push(taken);
    }
    assert_eq!(sold, [400, 400], "each half of the 800 that were left");
    server.thaw();
    for node in [&one, &other] {
        node.told().await;
    }
    other.end_of(&asker.spent(2, 0));
    other.told().await;
    let short = money(one.reserve(&asker.hold(300, 101)).await);
    assert_eq!((short.left, short.spent), (NanoUsd(100), NanoUsd(900)), "what was sold meanwhile is counted, once");

    // Killed: it comes back empty, and the database says what was spent.
    let spent = SpendTotals::loaded(NOON, NanoUsd(900), NanoUsd(900), NanoUsd(900));
    told.0.lock().unwrap().spent = vec![(key, spent)];
    one.reserve(&asker.hold(301, 60)).await.unwrap();
    let before = [&one, &other].map(|node| node.counters.0.epoch().number);
    server.stop();
    server.restart();
    // Both notice by themselves: they look every second.
    until("both have joined anew", || one.epoch_is_after(before[0]) && other.epoch_is_after(before[1])).await;
    for node in [&one, &other] {
        node.told().await;
    }
    assert_eq!(money(other.reserve(&asker.hold(302, 41)).await).left, NanoUsd(40), "an open hold is there again");
    other.reserve(&asker.hold(302, 40)).await.unwrap();
    one.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_starts_without_redis_takes_a_share_and_joins_later() {
    let Some(mut server) = Redis::start("a_node_that_starts_without_redis") else { return };
    let asker = of_a_thousand();
    let key = Subject::Key(asker.key.id);
    let spent = SpendTotals::loaded(NOON, NanoUsd(0), NanoUsd(400), NanoUsd(400));
    let told = Arc::new(StaticLedger::default());
    told.0.lock().unwrap().spent = vec![(key, spent)];
    let url = server.url();
    server.stop();
    let node = Node::start(&url, &namespace(), &told).await;
    assert!(!node.is_up());
    node.reserve(&asker.hold(1, 200)).await.unwrap();
    assert!(node.reserve(&asker.hold(2, 1)).await.is_err(), "a third of the 600 that the database leaves");
    server.restart();
    node.told().await;
    assert_eq!(money(node.reserve(&asker.hold(2, 401)).await).left, NanoUsd(400));
    node.end_of(&asker.spent(1, 150));
    node.told().await;
    assert_eq!(node.counters.spent(key, Window::Month, NOON), NanoUsd(550));
    node.end().await;
}

#[tokio::test]
async fn an_address_that_cannot_be_read_is_refused_without_its_password() {
    let check = async |url: &str| check_redis(&RedisAddress { url: url.to_owned(), ca: None }).await;
    let refused = check("redis://user:hidden@:x/").await.unwrap_err();
    assert!(!refused.to_string().contains("hidden"), "{refused}");
    assert_eq!(refused.fault(), crate::ErrorClass::Operator);
    assert!(check("redis://127.0.0.1:1").await.unwrap_err().is_away());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_bound_is_far_nobody_is_asked_and_nothing_is_overspent_when_it_is_near() {
    const EACH: u64 = 100;
    let Some(url) = redis("where_the_bound_is_far") else { return };
    let (name, told) = (namespace(), Arc::new(StaticLedger::default()));
    let nodes = [Node::start(&url, &name, &told).await, Node::start(&url, &name, &told).await];
    // Enough for 3,000 requests; a rate and a bound on those at once that are far.
    let asker = TestCaller::new(|it| {
        it.key.budgets = budget(300_000, BudgetAction::Block);
        it.group.limits = tollgate_core::Limits { rpm: 1_000_000, tpm: 1_000_000_000, concurrency: 100_000 };
    });
    let key = Subject::Key(asker.key.id);
    let mut sold = [0_i64; 2];
    let mut refused_in_turn = 0;
    for number in 0.. {
        let node = usize::try_from(number % 2).unwrap();
        match nodes[node].reserve(&asker.hold(number, EACH)).await {
            Ok(rate_statuses) => {
                refused_in_turn = 0;
                let spent = if number % 3 == 0 { EACH } else { EACH - 30 };
                nodes[node].end_of(&asker.spent(number, spent));
                sold[node] += i64::try_from(spent).unwrap();
                if number == 0 {
                    assert_eq!(rate_statuses.requests.unwrap().used, 1, "what is on lease is not used");
                }
            }
            Err(LimitExceeded::Money(short)) => {
                assert!(short.left < NanoUsd(100), "{short:?}");
                refused_in_turn += 1;
                if refused_in_turn == 2 {
                    // What others have on lease or have not told yet is back in a moment; then nothing is left in truth.
                    for node in &nodes {
                        node.told().await;
                    }
                    until("nothing is on lease any more", || nodes.iter().all(|node| node.counters.0.leases.drained())).await;
                    for node in &nodes {
                        node.told().await;
                    }
                } else if refused_in_turn > 2 {
                    break;
                }
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    let all: i64 = sold.iter().sum();
    let asked: u64 = nodes.iter().map(|node| node.counters.0.asked.load(Ordering::Relaxed)).sum();
    println!("two nodes sold {sold:?} of 300000 with {asked} questions to Redis");
    assert!((299_900..=300_000).contains(&all), "{sold:?}");
    assert!(asked < 1_200, "{asked}");
    for node in nodes {
        assert_eq!(node.counters.open(), 0);
        node.told().await;
        until("all is counted", || node.counters.spent(key, Window::Total, NOON) == NanoUsd(all)).await;
        node.end().await;
    }
}

#[tokio::test]
async fn a_nearly_spent_budget_is_decided_in_one_question() {
    let Some(url) = redis("a_nearly_spent_budget") else { return };
    let (name, told) = (namespace(), Arc::new(StaticLedger::default()));
    let node = Node::start(&url, &name, &told).await;
    let asker = of_a_thousand();
    node.reserve(&asker.hold(1, 400)).await.unwrap();
    let before = node.counters.0.asked.load(Ordering::Relaxed);
    // Nothing was asked for: 16,384 tokens would be too much, 600 are left.
    let taken = node.counters.reserve(&asker.open_hold(2), &[], Instant::now()).await.unwrap().unwrap();
    assert_eq!(taken.output, Some(600));
    assert_eq!(node.counters.0.asked.load(Ordering::Relaxed), before + 1);
    assert_eq!(money(node.reserve(&asker.open_hold(3)).await).left, NanoUsd(0));
    node.end_of(&asker.spent(2, 345));
    node.told().await;
    assert_eq!(money(node.reserve(&asker.open_hold(3)).await).left, NanoUsd(255), "less than is worth it");
    node.end_of(&asker.spent(1, 0));
    node.told().await;
    assert_eq!(node.counters.reserve(&asker.open_hold(3), &[], Instant::now()).await.unwrap().unwrap().output, Some(655));
    node.end().await;
}

#[tokio::test]
async fn attempts_are_asked_for_along_with_their_request() {
    let Some(url) = redis("attempts_are_asked_for") else { return };
    let (name, told) = (namespace(), Arc::new(StaticLedger::default()));
    let node = Node::start(&url, &name, &told).await;
    let asker = of_a_thousand();
    let on = |number: u8, amount: i64, bound: i64| {
        let subject = Subject::Channel(tollgate_core::ChannelId::from_parts(NOON, [number; 10]));
        let limit = tollgate_core::Limit { subject, rule: LimitRule::Budget(budget(bound, BudgetAction::Block)[0]) };
        let mut hold = asker.hold(1, u64::try_from(amount).unwrap());
        hold.limits = vec![limit];
        hold
    };
    let (wide, narrow, spent) = (on(1, 50, 1_000_000), on(2, 50, 60), on(3, 50, 40));
    let ahead = [wide.clone(), narrow.clone(), spent.clone(), wide.clone(), narrow.clone()];
    node.counters.reserve(&asker.hold(1, 100), &ahead, Instant::now()).await.unwrap().unwrap();
    let asked = || node.counters.0.asked.load(Ordering::Relaxed);
    let before = asked();
    assert_eq!(node.counters.spent(narrow.limits[0].subject, Window::Month, NOON), NanoUsd(0), "nothing has begun there");
    node.reserve(&wide).await.unwrap();
    node.reserve(&narrow).await.unwrap();
    money(node.reserve(&spent).await);
    node.reserve(&wide).await.unwrap();
    assert_eq!(asked(), before, "all of it was known");
    money(node.reserve(&narrow).await);
    assert_eq!(asked(), before + 1, "where little is left a further attempt asks again");
    // Another request sets ahead what it then does not need.
    let mut other = narrow.clone();
    other.id = asker.hold(2, 1).id;
    node.end_of(&asker.spent(1, 100));
    node.told().await;
    node.counters.reserve(&asker.hold(2, 100), &[other], Instant::now()).await.unwrap().unwrap();
    money(node.reserve(&on(2, 50, 60)).await);
    node.counters.answering(asker.hold(2, 1).id);
    node.told().await;
    node.reserve(&on(2, 50, 60)).await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn a_node_that_is_not_sure_of_its_seat_serves_nothing_from_its_leases() {
    let Some(url) = redis("a_node_that_is_not_sure") else { return };
    let (name, told) = (namespace(), Arc::new(StaticLedger::default()));
    let node = Node::start(&url, &name, &told).await;
    let asker = TestCaller::new(|it| it.key.budgets = budget(1_000_000, BudgetAction::Block));
    let asked = || node.counters.0.asked.load(Ordering::Relaxed);
    node.reserve(&asker.hold(1, 10)).await.unwrap();
    node.reserve(&asker.hold(2, 10)).await.unwrap();
    assert_eq!(asked(), 1);
    let late = Instant::now() + Duration::from_secs(41);
    node.counters.reserve(&asker.hold(3, 10), &[], late).await.unwrap().unwrap();
    assert_eq!(asked(), 2);
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counting_over_tls_needs_a_certificate_that_is_trusted_and_a_password() {
    let fixture =
        |name: &str| std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tollgate-gateway/fixtures/tls").join(name);
    let Some(mut server) = Redis::start_tls("counting_over_tls", &fixture("server.pem"), &fixture("server.key")) else { return };
    let ca = std::fs::read(fixture("ca.pem")).unwrap();
    let place = |url: String, ca: Option<Vec<u8>>| RedisAddress { url, ca };
    check_redis(&place(server.url(), Some(ca.clone()))).await.unwrap();
    let refused = check_redis(&place(server.url(), None)).await.unwrap_err();
    assert!(refused.to_string().contains("certificate") && refused.is_away(), "{refused}");
    let stranger = server.url().replace("opens%3Asesame", "guessed");
    let refused = check_redis(&place(stranger, Some(ca.clone()))).await.unwrap_err();
    assert!(!refused.to_string().contains("guessed"), "{refused}");
    let refused = check_redis(&place(server.url(), Some(b"no certificate".to_vec()))).await.unwrap_err();
    assert_eq!(refused.fault(), crate::ErrorClass::Operator, "{refused}");
    let refused = check_redis(&place(server.url().replace("rediss", "redis"), Some(ca.clone()))).await.unwrap_err();
    assert_eq!(refused.fault(), crate::ErrorClass::Operator, "{refused}");

    let options = RedisOptions { place: place(server.url(), Some(ca)), ..options("", &namespace()) };
    let shared = Arc::new(Inner::new(options, &Spending::default()));
    let told = Arc::new(StaticLedger::default());
    let work = RedisWorker::begin(Arc::clone(&shared), Arc::clone(&told) as _, Spending::default()).await.unwrap();
    let stop = CancellationToken::new();
    let work = TaskTracker::new().spawn(work.run(stop.clone()));
    let node = Node { counters: RedisCounters(shared), stop, work };
    let asker = of_a_thousand();
    node.reserve(&asker.hold(1, 600)).await.unwrap();
    assert_eq!(money(node.reserve(&asker.hold(2, 500)).await).left, NanoUsd(400));
    let before = node.counters.0.epoch().number;
    server.stop();
    server.restart();
    until("it joins over TLS again", || node.epoch_is_after(before)).await;
    node.told().await;
    assert_eq!(money(node.reserve(&asker.hold(2, 500)).await).left, NanoUsd(400));
    node.end().await;
}
