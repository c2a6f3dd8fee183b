//! Routing modes of a group: cheapest and fastest.

use crate::AccountSpec;
use crate::ChannelSpec;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    order::{firsts, near, random},
    *,
};

fn priced(name: &str, cost: &str) -> Channel {
    let mut row = channel(name, &["m"]);
    row.spec.serves[0].cost = Some(always(price(cost, cost)));
    row
}

fn routed(routing: Routing, case: Case) -> Case {
    let group = Group { routing, ..case.group.clone() };
    Case { group, ..case }
}

/// Sets the average time to the first token, in milliseconds.
fn first_token_ms(mut case: Case, account: &str, ms: u64) -> Case {
    case.summary.stream = true;
    case.health.0.entry(account_id(account)).or_default().first_token_average_us = ms * 1_000;
    case
}

#[test]
fn cheapest_orders_by_cost_with_unknown_costs_last() {
    let channels = vec![priced("a", "3"), channel("b", &["m"]), priced("c", "1"), priced("d", "2")];
    let mut case = routed(Routing::Cheapest, Case::over(channels));
    assert_eq!(case.planned(), ["c/0", "d/0", "a/0"]);
    case.channels.truncate(2);
    assert_eq!(case.planned(), ["a/0", "b/0"]);
}

#[test]
fn cheapest_applies_multipliers_within_priorities() {
    let mut dear = priced("a", "1");
    dear.accounts = vec![Arc::new(Account {
        spec: AccountSpec { cost_multiplier: Multiplier(3_000_000), ..account("a", 0).spec },
        ..account("a", 0)
    })];
    let later = Channel { spec: ChannelSpec { priority: 1, ..priced("c", "0.1").spec }, ..priced("c", "0.1") };
    let case = routed(Routing::Cheapest, Case::over(vec![dear, priced("b", "2"), later]));
    assert_eq!(case.planned(), ["b/0", "a/0", "c/0"]);
}

#[test]
fn equally_cheap_accounts_share_by_weight() {
    let weighted = |name, weight| Channel { spec: ChannelSpec { weight, ..priced(name, "1").spec }, ..priced(name, "1") };
    for affinity in [false, true] {
        let case = Case::over(vec![weighted("a", 3), weighted("b", 1), priced("c", "2")]);
        let counts = firsts(&mut routed(Routing::Cheapest, case), affinity);
        assert!(near(counts.get("a/0"), 75) && near(counts.get("b/0"), 25), "{counts:?}");
    }
}

#[test]
fn fastest_prefers_the_faster_of_two() {
    let case = routed(Routing::Fastest, Case::accounts(2));
    let mut case = first_token_ms(first_token_ms(case, "c/0", 900), "c/1", 200);
    for affinity in [false, true] {
        assert_eq!(firsts(&mut case, affinity), BTreeMap::from([("c/1".to_owned(), 4_000)]));
    }
    assert_eq!(case.planned(), ["c/1", "c/0"]);
}

#[test]
fn fastest_of_three_avoids_the_slowest_and_uses_the_others() {
    let case = routed(Routing::Fastest, Case::accounts(3));
    let mut case = first_token_ms(first_token_ms(first_token_ms(case, "c/0", 100), "c/1", 200), "c/2", 300);
    for affinity in [false, true] {
        let counts = firsts(&mut case, affinity);
        // Two of three pairs contain the fastest account; the third pair gives the second fastest.
        assert!(near(counts.get("c/0"), 67) && near(counts.get("c/1"), 33), "{counts:?}");
        assert_eq!(counts.get("c/2"), None);
    }
}

#[test]
fn unmeasured_account_goes_first() {
    let mut case = first_token_ms(routed(Routing::Fastest, Case::accounts(2)), "c/0", 5);
    assert_eq!(firsts(&mut case, false), BTreeMap::from([("c/1".to_owned(), 4_000)]));
}

#[test]
fn latency_applies_without_cooling_but_only_to_fastest() {
    let mut case = first_token_ms(first_token_ms(Case::accounts(2), "c/0", 900), "c/1", 200);
    case.channels[0].spec.cooling = false;
    assert!(near(firsts(&mut case, false).get("c/1"), 50), "weighted routing ignores latency");
    let mut case = routed(Routing::Fastest, case);
    assert_eq!(firsts(&mut case, false).get("c/1"), Some(&4_000));
}

/// Sets the average time to a complete answer, in milliseconds.
fn whole_answer_ms(mut case: Case, account: &str, ms: u64) -> Case {
    case.health.0.entry(account_id(account)).or_default().whole_answer_average_us = ms * 1_000;
    case
}

#[test]
fn streams_compare_first_tokens_and_other_answers_whole_times() {
    let case = first_token_ms(first_token_ms(routed(Routing::Fastest, Case::accounts(2)), "c/0", 100), "c/1", 900);
    let mut case = whole_answer_ms(whole_answer_ms(case, "c/0", 9_000), "c/1", 1_000);
    case.summary.stream = true;
    assert_eq!(firsts(&mut case, false).get("c/0"), Some(&4_000));
    case.summary.stream = false;
    assert_eq!(firsts(&mut case, false).get("c/1"), Some(&4_000));
    // An account measured only for the other kind goes first.
    case.health.0.entry(account_id("c/0")).or_default().whole_answer_average_us = 0;
    assert_eq!(firsts(&mut case, false).get("c/0"), Some(&4_000));
    case.summary.method = Method::CountTokens;
    assert!(near(firsts(&mut case, false).get("c/0"), 50), "by weights alone");
}

proptest! {
    #[test]
    fn every_routing_is_deterministic_and_plans_each_account_once(
        rows in proptest::collection::vec((0i32..2, 0u32..3, 0u8..4, 0u64..4), 1..7),
        routing in prop_oneof![Just(Routing::Weighted), Just(Routing::Cheapest), Just(Routing::Fastest)],
        affinity in proptest::option::of(any::<u64>()),
        seed in any::<u64>(),
    ) {
        let channels = rows.iter().enumerate().map(|(i, (priority, weight, cost, _))| {
            let mut row = priced(&format!("c{i}"), &cost.to_string());
            (row.spec.priority, row.spec.weight) = (*priority, *weight);
            row
        });
        let mut case = routed(routing, Case::over(channels.collect()));
        case.summary.affinity = affinity;
        for (i, row) in rows.iter().enumerate() {
            case = first_token_ms(case, &format!("c{i}/0"), row.3);
        }
        let plan = case.run_with(&mut random(seed)).unwrap();
        let names: Vec<&str> = plan.attempts().map(|it| it.account.spec.name.as_str()).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        prop_assert_eq!(unique.len(), rows.len().min(MAX_ATTEMPTS));
        prop_assert_eq!(names.len(), unique.len());
        prop_assert!(plan.attempts().map(|it| it.channel.spec.priority).is_sorted());
        if routing == Routing::Cheapest {
            let order = |it: &PlannedAttempt| (it.channel.spec.priority, it.channel.spec.weight == 0, it.cost.clone().and_then(|cost| cost.input));
            prop_assert!(plan.attempts().map(order).is_sorted());
        }
        let again = case.run_with(&mut random(seed)).unwrap();
        let again: Vec<&str> = again.attempts().map(|it| it.account.spec.name.as_str()).collect();
        prop_assert_eq!(names, again);
    }
}
