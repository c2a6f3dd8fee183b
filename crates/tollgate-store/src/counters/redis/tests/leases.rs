//! Leases, and what reservations cost in round trips.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_serve_requests_far_from_the_limit_without_overspending() {
    const EACH: u64 = 100;
    let Some(url) = redis("where_the_bound_is_far") else { return };
    let (name, ledger) = (namespace(), Arc::new(StaticLedger::default()));
    let nodes = [Node::start(&url, &name, &ledger).await, Node::start(&url, &name, &ledger).await];
    // Enough for 3,000 requests; the other limits are not reached.
    let caller = TestCaller::new(|it| {
        it.key.budgets = budget(300_000, BudgetAction::Block);
        it.group.limits = tollgate_core::Limits { rpm: 1_000_000, tpm: 1_000_000_000, concurrency: 100_000 };
    });
    let key = Subject::Key(caller.key.id);
    let mut sold = [0_i64; 2];
    let mut refused_in_a_row = 0;
    for number in 0.. {
        let node = usize::try_from(number % 2).unwrap();
        match nodes[node].reserve(&caller.reservation(number, EACH)).await {
            Ok(rate_statuses) => {
                refused_in_a_row = 0;
                let spent = if number % 3 == 0 { EACH } else { EACH - 30 };
                nodes[node].settle(&caller.usage(number, spent));
                sold[node] += i64::try_from(spent).unwrap();
                if number == 0 {
                    assert_eq!(rate_statuses.requests.unwrap().used, 1, "leased requests do not count as used");
                }
            }
            Err(LimitExceeded::Money(funds)) => {
                assert!(funds.left < NanoUsd(100), "{funds:?}");
                refused_in_a_row += 1;
                if refused_in_a_row == 2 {
                    // Wait until leases are returned and changes sent; after that nothing is left.
                    for node in &nodes {
                        node.flushed().await;
                    }
                    until("all leases are returned", || nodes.iter().all(|node| node.counters.0.leases.is_empty())).await;
                    for node in &nodes {
                        node.flushed().await;
                    }
                } else if refused_in_a_row > 2 {
                    break;
                }
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    let all: i64 = sold.iter().sum();
    let remote: u64 = nodes.iter().map(|node| node.counters.0.remote_reservations.load(Ordering::Relaxed)).sum();
    println!("two nodes sold {sold:?} of 300000 with {remote} reservations in Redis");
    assert!((299_900..=300_000).contains(&all), "{sold:?}");
    assert!(remote < 1_200, "{remote}");
    for node in nodes {
        assert_eq!(node.counters.open_reservations(), 0);
        node.flushed().await;
        until("all spending is counted", || node.counters.spent(key, Window::Total, MIDNIGHT) == NanoUsd(all)).await;
        node.end().await;
    }
}

#[tokio::test]
async fn nearly_exhausted_budget_takes_one_round_trip() {
    let Some(url) = redis("a_nearly_spent_budget") else { return };
    let (name, ledger) = (namespace(), Arc::new(StaticLedger::default()));
    let node = Node::start(&url, &name, &ledger).await;
    let caller = caller_with_a_thousand();
    node.reserve(&caller.reservation(1, 400)).await.unwrap();
    let before = node.counters.0.remote_reservations.load(Ordering::Relaxed);
    // Without an output limit the default of 16,384 tokens applies; 600 are left.
    let receipt = node.counters.reserve(&caller.flexible_reservation(2), &[], now()).await.unwrap().unwrap();
    assert_eq!(receipt.output, Some(600));
    assert_eq!(node.counters.0.remote_reservations.load(Ordering::Relaxed), before + 1);
    assert_eq!(exceeded_funds(node.reserve(&caller.flexible_reservation(3)).await).left, NanoUsd(0));
    node.settle(&caller.usage(2, 345));
    node.flushed().await;
    assert_eq!(
        exceeded_funds(node.reserve(&caller.flexible_reservation(3)).await).left,
        NanoUsd(255),
        "less than the minimum output"
    );
    node.settle(&caller.usage(1, 0));
    node.flushed().await;
    assert_eq!(node.counters.reserve(&caller.flexible_reservation(3), &[], now()).await.unwrap().unwrap().output, Some(655));
    node.end().await;
}

#[tokio::test]
async fn attempt_reservations_are_prepared_with_their_request() {
    let Some(url) = redis("attempts_are_asked_for") else { return };
    let (name, ledger) = (namespace(), Arc::new(StaticLedger::default()));
    let node = Node::start(&url, &name, &ledger).await;
    let caller = caller_with_a_thousand();
    let on = |number: u8, amount: i64, bound: i64| {
        let subject = Subject::Channel(tollgate_core::ChannelId::from_parts(MIDNIGHT, [number; 10]));
        let limit = tollgate_core::Limit { subject, rule: LimitRule::Budget(budget(bound, BudgetAction::Block)[0]) };
        let mut reservation = caller.reservation(1, u64::try_from(amount).unwrap());
        reservation.limits = vec![limit];
        reservation
    };
    let (wide, narrow, spent) = (on(1, 50, 1_000_000), on(2, 50, 60), on(3, 50, 40));
    let attempts = [wide.clone(), narrow.clone(), spent.clone(), wide.clone(), narrow.clone()];
    node.counters.reserve(&caller.reservation(1, 100), &attempts, now()).await.unwrap().unwrap();
    let remote = || node.counters.0.remote_reservations.load(Ordering::Relaxed);
    let before = remote();
    assert_eq!(node.counters.spent(narrow.limits[0].subject, Window::Month, MIDNIGHT), NanoUsd(0), "no attempt has begun there");
    node.reserve(&wide).await.unwrap();
    node.reserve(&narrow).await.unwrap();
    exceeded_funds(node.reserve(&spent).await);
    node.reserve(&wide).await.unwrap();
    assert_eq!(remote(), before, "all of them were prepared or refused");
    exceeded_funds(node.reserve(&narrow).await);
    assert_eq!(remote(), before + 1, "a repeated reservation is not prepared where little is left");
    // Another request prepares a reservation that it does not need.
    let mut other = narrow.clone();
    other.id = caller.reservation(2, 1).id;
    node.settle(&caller.usage(1, 100));
    node.flushed().await;
    node.counters.reserve(&caller.reservation(2, 100), &[other], now()).await.unwrap().unwrap();
    exceeded_funds(node.reserve(&on(2, 50, 60)).await);
    node.counters.attempt_answered(caller.reservation(2, 1).id);
    node.flushed().await;
    node.reserve(&on(2, 50, 60)).await.unwrap();
    node.end().await;
}

#[tokio::test]
async fn leases_are_not_used_once_the_registration_may_have_expired() {
    let Some(url) = redis("a_node_that_is_not_sure") else { return };
    let (name, ledger) = (namespace(), Arc::new(StaticLedger::default()));
    let node = Node::start(&url, &name, &ledger).await;
    let caller = TestCaller::new(|it| it.key.budgets = budget(1_000_000, BudgetAction::Block));
    let remote = || node.counters.0.remote_reservations.load(Ordering::Relaxed);
    node.reserve(&caller.reservation(1, 10)).await.unwrap();
    node.reserve(&caller.reservation(2, 10)).await.unwrap();
    assert_eq!(remote(), 1);
    let late = now() + Duration::from_secs(41);
    node.counters.reserve(&caller.reservation(3, 10), &[], late).await.unwrap().unwrap();
    assert_eq!(remote(), 2);
    node.end().await;
}
