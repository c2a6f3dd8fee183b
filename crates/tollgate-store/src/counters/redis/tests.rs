//! Two nodes on one Redis, and a Redis that becomes unreachable, returns, or loses its data.

mod leases;

use std::{sync::atomic::Ordering, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_core::{BudgetAction, LimitExceeded, LimitRule, RateStatuses, SpendTotals};
use tollgate_testkit::Redis;

use super::*;
use crate::{
    counters::{
        conformance::{StaticLedger, namespace, options, redis},
        test_callers::{TestCaller, budget, exceeded_funds, now},
    },
    samples::MIDNIGHT,
};

struct Node {
    counters: RedisCounters,
    stop: CancellationToken,
    worker: tokio::task::JoinHandle<()>,
}

impl Node {
    async fn start(url: &str, namespace: &str, ledger: &Arc<StaticLedger>) -> Self {
        let spending = ledger.0.lock().unwrap().clone();
        Self::with_options(options(url, namespace), ledger, spending).await
    }

    async fn with_options(options: RedisOptions, ledger: &Arc<StaticLedger>, spending: Spending) -> Self {
        let state = Arc::new(RedisState::new(options, &spending));
        let worker = RedisWorker::start(Arc::clone(&state), Arc::clone(ledger) as _, spending).await.unwrap();
        let stop = CancellationToken::new();
        let worker = TaskTracker::new().spawn(worker.run(stop.clone()));
        Self { counters: RedisCounters(state), stop, worker }
    }

    async fn reserve(&self, reservation: &Reservation) -> Result<RateStatuses, LimitExceeded> {
        self.counters.reserve(reservation, &[], now()).await.unwrap().map(|receipt| receipt.rate_statuses)
    }

    fn settle(&self, record: &UsageRecord) {
        let _ = self.counters.settle(record, now());
    }

    /// Waits until Redis has received all changes of this node.
    async fn flushed(&self) {
        until("all changes are sent", || {
            self.is_up() && self.counters.0.pending().is_empty() && !self.counters.0.is_sending.load(Ordering::Acquire)
        })
        .await;
    }

    fn epoch_is_after(&self, number: u64) -> bool {
        self.counters.0.epoch().number > number
    }

    fn is_up(&self) -> bool {
        self.counters.0.epoch().up().is_some()
    }

    async fn end(self) {
        self.stop.cancel();
        self.worker.await.unwrap();
    }
}

async fn until(what: &str, met: impl Fn() -> bool) {
    let begin = Instant::now();
    while !met() {
        assert!(begin.elapsed() < Duration::from_secs(10), "not within 10 s: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn caller_with_a_thousand() -> TestCaller {
    TestCaller::new(|it| it.key.budgets = budget(1_000, BudgetAction::Block))
}

#[tokio::test]
async fn two_nodes_share_a_budget_and_reservations_of_a_dead_node_expire() {
    let Some(url) = redis("two_nodes_share_a_budget") else { return };
    let (name, ledger) = (namespace(), Arc::new(StaticLedger::default()));
    let (one, other) = (Node::start(&url, &name, &ledger).await, Node::start(&url, &name, &ledger).await);
    let caller = caller_with_a_thousand();
    one.reserve(&caller.reservation(1, 600)).await.unwrap();
    assert_eq!(exceeded_funds(other.reserve(&caller.reservation(2, 500)).await).left, NanoUsd(400));
    other.reserve(&caller.reservation(2, 400)).await.unwrap();
    one.settle(&caller.usage(1, 100));
    one.flushed().await;
    assert_eq!(exceeded_funds(other.reserve(&caller.reservation(3, 501)).await).left, NanoUsd(500));
    one.reserve(&caller.reservation(3, 500)).await.unwrap();

    // The first node crashes; its registration expires.
    one.worker.abort();
    let mut connection = ::redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let nodes = one.counters.0.scripts.key("nodes");
    let (_, _, node) = one.counters.0.epoch().up().expect("the node is connected");
    let () = ::redis::cmd("ZADD").arg(&nodes).arg(1).arg(&node.node).query_async(&mut connection).await.unwrap();
    other.reserve(&caller.reservation(4, 500)).await.unwrap();
    assert_eq!(exceeded_funds(other.reserve(&caller.reservation(5, 1)).await).left, NanoUsd(0));
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_node_removes_recorded_changes_after_a_minute() {
    let Some(url) = redis("node_alone_removes_noted_changes") else { return };
    let (name, ledger) = (namespace(), Arc::new(StaticLedger::default()));
    let node = Node::start(&url, &name, &ledger).await;
    let mut connection = ::redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let changes = node.counters.0.scripts.key("changes");
    let () = ::redis::cmd("ZADD").arg(&changes).arg(1).arg("old").query_async(&mut connection).await.unwrap();
    node.reserve(&caller_with_a_thousand().reservation(1, 600)).await.unwrap();
    let begin = Instant::now();
    loop {
        let noted: Vec<String> = ::redis::cmd("ZRANGE").arg(&changes).arg(0).arg(-1).query_async(&mut connection).await.unwrap();
        if !noted.iter().any(|it| it == "old") {
            assert_eq!(noted.len(), 1, "the change of this minute is kept");
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "a change of long ago is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_enforces_its_share_during_an_outage_and_reports_it_afterwards() {
    let Some(mut server) = Redis::start("a_redis_that_stops") else { return };
    let (name, ledger) = (namespace(), Arc::new(StaticLedger::default()));
    let (one, other) = (Node::start(&server.url(), &name, &ledger).await, Node::start(&server.url(), &name, &ledger).await);
    let caller = caller_with_a_thousand();
    let key = Subject::Key(caller.key.id);
    one.reserve(&caller.reservation(1, 100)).await.unwrap();
    other.reserve(&caller.reservation(2, 100)).await.unwrap();
    one.settle(&caller.usage(1, 100));
    one.flushed().await;
    until("both nodes have refreshed", || {
        [&one, &other].iter().all(|node| node.counters.spent(key, Window::Month, MIDNIGHT) == NanoUsd(200))
    })
    .await;

    server.freeze();
    let mut sold = Vec::new();
    for (node, first) in [(&one, 100), (&other, 200)] {
        let mut reserved = 0;
        for number in first..first + 20 {
            match node.reserve(&caller.reservation(number, 50)).await {
                Ok(_) => {
                    reserved += 50;
                    node.settle(&caller.usage(number, 50));
                }
                Err(LimitExceeded::Money(funds)) => assert!(funds.budget.is_some_and(|budget| budget.amount == NanoUsd(1_000))),
                Err(other) => panic!("{other:?}"),
            }
        }
        sold.push(reserved);
    }
    assert_eq!(sold, [400, 400], "each half of the 800 left");
    server.thaw();
    for node in [&one, &other] {
        node.flushed().await;
    }
    other.settle(&caller.usage(2, 0));
    other.flushed().await;
    let funds = exceeded_funds(one.reserve(&caller.reservation(300, 101)).await);
    assert_eq!((funds.left, funds.spent), (NanoUsd(100), NanoUsd(900)), "spending of the outage counts once");

    // Redis restarts without data; spending is restored from the database.
    let spent = SpendTotals::loaded(MIDNIGHT, NanoUsd(900), NanoUsd(900), NanoUsd(900));
    ledger.0.lock().unwrap().spent = vec![(key, spent)];
    one.reserve(&caller.reservation(301, 60)).await.unwrap();
    let before = [&one, &other].map(|node| node.counters.0.epoch().number);
    server.stop();
    server.restart();
    // Both nodes notice with their next refresh.
    until("both have rejoined", || one.epoch_is_after(before[0]) && other.epoch_is_after(before[1])).await;
    for node in [&one, &other] {
        node.flushed().await;
    }
    assert_eq!(
        exceeded_funds(other.reserve(&caller.reservation(302, 41)).await).left,
        NanoUsd(40),
        "the open reservation is restored"
    );
    other.reserve(&caller.reservation(302, 40)).await.unwrap();
    one.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_starts_without_redis_enforces_a_share_and_joins_later() {
    let Some(mut server) = Redis::start("a_node_that_starts_without_redis") else { return };
    let caller = caller_with_a_thousand();
    let key = Subject::Key(caller.key.id);
    let spent = SpendTotals::loaded(MIDNIGHT, NanoUsd(0), NanoUsd(400), NanoUsd(400));
    let ledger = Arc::new(StaticLedger::default());
    ledger.0.lock().unwrap().spent = vec![(key, spent)];
    let url = server.url();
    server.stop();
    let node = Node::start(&url, &namespace(), &ledger).await;
    assert!(!node.is_up());
    node.reserve(&caller.reservation(1, 200)).await.unwrap();
    assert!(node.reserve(&caller.reservation(2, 1)).await.is_err(), "a third of the 600 left");
    server.restart();
    node.flushed().await;
    assert_eq!(exceeded_funds(node.reserve(&caller.reservation(2, 401)).await).left, NanoUsd(400));
    node.settle(&caller.usage(1, 150));
    node.flushed().await;
    assert_eq!(node.counters.spent(key, Window::Month, MIDNIGHT), NanoUsd(550));
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unbooked_spending_survives_a_redis_without_data() {
    let Some(mut server) = Redis::start("a_redis_that_loses_its_data") else { return };
    let (name, ledger) = (namespace(), Arc::new(StaticLedger::default()));
    let (one, other) = (Node::start(&server.url(), &name, &ledger).await, Node::start(&server.url(), &name, &ledger).await);
    let caller = caller_with_a_thousand();
    for (node, number) in [(&one, 1), (&one, 2), (&other, 3)] {
        node.reserve(&caller.reservation(number, 100)).await.unwrap();
        node.settle(&caller.usage(number, 100));
        node.flushed().await;
    }
    // The database has the first request only.
    let spent = SpendTotals::loaded(MIDNIGHT, NanoUsd(100), NanoUsd(100), NanoUsd(100));
    ledger.0.lock().unwrap().spent = vec![(Subject::Key(caller.key.id), spent)];
    ledger.1.lock().unwrap().extend([caller.usage(2, 0).id, caller.usage(3, 0).id]);
    let before = [&one, &other].map(|node| node.counters.0.epoch().number);
    server.stop();
    server.restart();
    // The node that arrives first serves from its share until the other one has reported.
    until("both have rejoined", || one.epoch_is_after(before[0]) && other.epoch_is_after(before[1])).await;
    for node in [&one, &other] {
        node.flushed().await;
        assert_eq!(exceeded_funds(node.reserve(&caller.reservation(4, 701)).await).left, NanoUsd(700));
    }
    one.end().await;
    other.end().await;
}

/// Reserves on each node until it refuses; the number of reservations.
async fn reserve_all(nodes: &[&Node], caller: &TestCaller, first: u64, tokens: u64) -> u64 {
    let mut made = 0;
    for node in nodes {
        while node.reserve(&caller.reservation(first + made, tokens)).await.is_ok() {
            made += 1;
        }
    }
    made
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn minute_limits_survive_an_outage_and_a_redis_without_data() {
    let Some(mut server) = Redis::start("limits_of_the_minute") else { return };
    let (name, ledger) = (namespace(), Arc::new(StaticLedger::default()));
    let (one, other) = (Node::start(&server.url(), &name, &ledger).await, Node::start(&server.url(), &name, &ledger).await);
    let nodes = [&one, &other];
    let requests = TestCaller::new(|it| it.key.limits.rpm = 60);
    let tokens = TestCaller::new(|it| {
        it.key.id = tollgate_core::KeyId::from_parts(MIDNIGHT, [7; 10]);
        it.key.limits.tpm = 6_000;
    });
    // The window slides: a sixtieth of what the minute before has used is free again after each second.
    let begin = Instant::now();
    let most = || 60 + begin.elapsed().as_secs() + 1;
    let (mut requested, mut counted) = (reserve_all(&nodes, &requests, 0, 10).await, 0);
    assert_eq!(requested, 60);
    for number in 0..60 {
        // Ten of the estimated hundred are used; the rest is free again.
        one.reserve(&tokens.reservation(1_000 + number, 100)).await.unwrap();
        one.settle(&tokens.usage(1_000 + number, if number < 30 { 100 } else { 10 }));
        counted += if number < 30 { 100 } else { 10 };
    }
    one.flushed().await;
    let before = nodes.map(|node| node.counters.0.epoch().number);
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    server.stop();
    until("both notice", || nodes.iter().all(|node| !node.is_up())).await;
    requested += reserve_all(&nodes, &requests, 2_000, 10).await;
    assert!(requested <= most(), "{requested} requests with their shares");
    server.restart();
    until("both have rejoined", || one.epoch_is_after(before[0]) && other.epoch_is_after(before[1])).await;
    for node in nodes {
        node.flushed().await;
    }
    requested += reserve_all(&nodes, &requests, 3_000, 10).await;
    assert!(requested <= most(), "{requested} requests after it came back");
    let more = reserve_all(&nodes, &tokens, 4_000, 100).await;
    counted += 100 * more;
    assert!((5_900..=100 * most()).contains(&counted), "{counted} tokens");
    one.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_starts_again_ends_its_earlier_registration() {
    let Some(url) = redis("a_node_that_starts_again") else { return };
    let (name, ledger) = (namespace(), Arc::new(StaticLedger::default()));
    let node = async |identity: &str| {
        let options = RedisOptions { identity: identity.to_owned(), ..options(&url, &name) };
        Node::with_options(options, &ledger, Spending::default()).await
    };
    let (killed, other) = (node("one").await, node("other").await);
    let caller = caller_with_a_thousand();
    killed.reserve(&caller.reservation(1, 600)).await.unwrap();
    assert_eq!(exceeded_funds(other.reserve(&caller.reservation(2, 500)).await).left, NanoUsd(400));
    killed.worker.abort();
    let again = node("one").await;
    other.reserve(&caller.reservation(2, 1_000)).await.unwrap();
    again.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_and_its_successor_do_not_end_each_others_registrations() {
    let Some(url) = redis("a_process_and_its_successor") else { return };
    let (name, ledger) = (namespace(), Arc::new(StaticLedger::default()));
    let process = async |beside: Option<&str>| {
        let options = RedisOptions { identity: "one".to_owned(), beside: beside.map(str::to_owned), ..options(&url, &name) };
        Node::with_options(options, &ledger, Spending::default()).await
    };
    let registered = |node: &Node| node.counters.0.epoch().up().expect("the process is connected").2.node;
    let (old, new) = (process(None).await, process(Some("77")).await);
    let (first, second) = (registered(&old), registered(&new));
    let mut connection = ::redis::Client::open(url.as_str()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let nodes = old.counters.0.scripts.key("nodes");
    let mut score = async |node: &str| -> Option<f64> {
        ::redis::cmd("ZSCORE").arg(&nodes).arg(node).query_async(&mut connection).await.unwrap()
    };
    assert!(score(&first).await.is_some() && score(&second).await.is_some(), "the successor does not change the other one");
    // The old process reconnects.
    let before = old.counters.0.epoch().number;
    old.counters.0.connection_lost(before, "the test cuts it");
    until("it has rejoined", || old.epoch_is_after(before) && old.is_up()).await;
    let third = registered(&old);
    assert!(score(&first).await.is_none() && score(&second).await.is_some(), "it replaces its own registration only");
    // A start ends both.
    let again = process(None).await;
    assert!(score(&third).await.is_none() && score(&second).await.is_none());
    for node in [old, new, again] {
        node.worker.abort();
    }
}

#[tokio::test]
async fn invalid_address_is_rejected_without_showing_its_password() {
    let check = async |url: &str| check_redis(&RedisAddress { url: url.to_owned(), ca: None }).await;
    let refused = check("redis://user:hidden@:x/").await.unwrap_err();
    assert!(!refused.to_string().contains("hidden"), "{refused}");
    assert_eq!(refused.class(), crate::ErrorClass::Operator);
    assert!(check("redis://127.0.0.1:1").await.unwrap_err().is_unreachable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_requires_a_trusted_certificate_and_the_password() {
    let fixture =
        |name: &str| std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tollgate-gateway/fixtures/tls").join(name);
    let Some(mut server) = Redis::start_tls("counting_over_tls", &fixture("server.pem"), &fixture("server.key")) else { return };
    let ca = std::fs::read(fixture("ca.pem")).unwrap();
    let address = |url: String, ca: Option<Vec<u8>>| RedisAddress { url, ca };
    check_redis(&address(server.url(), Some(ca.clone()))).await.unwrap();
    let refused = check_redis(&address(server.url(), None)).await.unwrap_err();
    assert!(refused.to_string().contains("certificate") && refused.is_unreachable(), "{refused}");
    let wrong_password = server.url().replace("opens%3Asesame", "guessed");
    let refused = check_redis(&address(wrong_password, Some(ca.clone()))).await.unwrap_err();
    assert!(!refused.to_string().contains("guessed"), "{refused}");
    let refused = check_redis(&address(server.url(), Some(b"no certificate".to_vec()))).await.unwrap_err();
    assert_eq!(refused.class(), crate::ErrorClass::Operator, "{refused}");
    let refused = check_redis(&address(server.url().replace("rediss", "redis"), Some(ca.clone()))).await.unwrap_err();
    assert_eq!(refused.class(), crate::ErrorClass::Operator, "{refused}");

    let options = RedisOptions { address: address(server.url(), Some(ca)), ..options("", &namespace()) };
    let node = Node::with_options(options, &Arc::new(StaticLedger::default()), Spending::default()).await;
    let caller = caller_with_a_thousand();
    node.reserve(&caller.reservation(1, 600)).await.unwrap();
    assert_eq!(exceeded_funds(node.reserve(&caller.reservation(2, 500)).await).left, NanoUsd(400));
    let before = node.counters.0.epoch().number;
    server.stop();
    server.restart();
    until("the node rejoins over TLS", || node.epoch_is_after(before)).await;
    node.flushed().await;
    assert_eq!(exceeded_funds(node.reserve(&caller.reservation(2, 500)).await).left, NanoUsd(400));
    node.end().await;
}
