//! What a group's `routing` does with equal candidates: cheapest, fastest.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    order::{dice, firsts, near},
    *,
};

fn priced(name: &str, cost: &str) -> Channel {
    let mut row = channel(name, &["m"]);
    row.mappings[0].cost = Some(always(price(cost, cost)));
    row
}

fn routed(routing: Routing, case: Case) -> Case {
    let group = Group { routing, ..case.group.clone() };
    Case { group, ..case }
}

/// Average time to the first token, milliseconds.
fn speed(mut case: Case, account: &str, ms: u64) -> Case {
    case.summary.stream = true;
    case.health.0.entry(account_id(account)).or_default().first_token_average_us = ms * 1_000;
    case
}

#[test]
fn cheapest_goes_by_cost_and_an_unknown_cost_comes_last() {
    let channels = vec![priced("a", "3"), channel("b", &["m"]), priced("c", "1"), priced("d", "2")];
    let mut case = routed(Routing::Cheapest, Case::over(channels));
    assert_eq!(case.tried(), ["c/0", "d/0", "a/0"]);
    case.channels.truncate(2);
    assert_eq!(case.tried(), ["a/0", "b/0"]);
}

#[test]
fn cheapest_counts_the_accounts_multiplier_and_obeys_priorities() {
    let mut dear = priced("a", "1");
    dear.accounts = vec![Arc::new(Account { cost_multiplier: Multiplier(3_000_000), ..account("a", 0) })];
    let later = Channel { priority: 1, ..priced("c", "0.1") };
    let case = routed(Routing::Cheapest, Case::over(vec![dear, priced("b", "2"), later]));
    assert_eq!(case.tried(), ["b/0", "a/0", "c/0"]);
}

#[test]
fn equally_cheap_accounts_share_by_weight() {
    let weighted = |name, weight| Channel { weight, ..priced(name, "1") };
    for affinity in [false, true] {
        let case = Case::over(vec![weighted("a", 3), weighted("b", 1), priced("c", "2")]);
        let counts = firsts(&mut routed(Routing::Cheapest, case), affinity);
        assert!(near(counts.get("a/0"), 75) && near(counts.get("b/0"), 25), "{counts:?}");
    }
}

#[test]
fn fastest_takes_the_faster_one_of_two() {
    let case = routed(Routing::Fastest, Case::accounts(2));
    let mut case = speed(speed(case, "c/0", 900), "c/1", 200);
    for affinity in [false, true] {
        assert_eq!(firsts(&mut case, affinity), BTreeMap::from([("c/1".to_owned(), 4_000)]));
    }
    assert_eq!(case.tried(), ["c/1", "c/0"]);
}

#[test]
fn fastest_of_many_never_begins_with_the_slowest_and_keeps_the_others_in_use() {
    let case = routed(Routing::Fastest, Case::accounts(3));
    let mut case = speed(speed(speed(case, "c/0", 100), "c/1", 200), "c/2", 300);
    for affinity in [false, true] {
        let counts = firsts(&mut case, affinity);
        // Two of three pairs hold the fastest one; the third pair gives the second.
        assert!(near(counts.get("c/0"), 67) && near(counts.get("c/1"), 33), "{counts:?}");
        assert_eq!(counts.get("c/2"), None);
    }
}

#[test]
fn an_account_nobody_measured_goes_first_so_that_it_is() {
    let mut case = speed(routed(Routing::Fastest, Case::accounts(2)), "c/0", 5);
    assert_eq!(firsts(&mut case, false), BTreeMap::from([("c/1".to_owned(), 4_000)]));
}

#[test]
fn speed_counts_where_cooling_is_off_and_says_nothing_elsewhere() {
    let mut case = speed(speed(Case::accounts(2), "c/0", 900), "c/1", 200);
    case.channels[0].cooling = false;
    assert!(near(firsts(&mut case, false).get("c/1"), 50), "weighted looks at weights alone");
    let mut case = routed(Routing::Fastest, case);
    assert_eq!(firsts(&mut case, false).get("c/1"), Some(&4_000));
}

/// Average time to a whole answer, milliseconds.
fn plain_speed(mut case: Case, account: &str, ms: u64) -> Case {
    case.health.0.entry(account_id(account)).or_default().whole_answer_average_us = ms * 1_000;
    case
}

#[test]
fn streams_are_compared_by_first_tokens_plain_answers_by_whole_ones_and_nothing_else_is() {
    let case = speed(speed(routed(Routing::Fastest, Case::accounts(2)), "c/0", 100), "c/1", 900);
    let mut case = plain_speed(plain_speed(case, "c/0", 9_000), "c/1", 1_000);
    case.summary.stream = true;
    assert_eq!(firsts(&mut case, false).get("c/0"), Some(&4_000));
    case.summary.stream = false;
    assert_eq!(firsts(&mut case, false).get("c/1"), Some(&4_000));
    // Who is known by the other kind only is measured first.
    case.health.0.entry(account_id("c/0")).or_default().whole_answer_average_us = 0;
    assert_eq!(firsts(&mut case, false).get("c/0"), Some(&4_000));
    case.summary.method = Method::CountTokens;
    assert!(near(firsts(&mut case, false).get("c/0"), 50), "by weights alone");
}

proptest! {
    #[test]
    fn every_routing_plans_the_same_accounts_once_each_in_tiers_and_equal_inputs_agree(
        rows in proptest::collection::vec((0i32..2, 0u32..3, 0u8..4, 0u64..4), 1..7),
        routing in prop_oneof![Just(Routing::Weighted), Just(Routing::Cheapest), Just(Routing::Fastest)],
        affinity in proptest::option::of(any::<u64>()),
        seed in any::<u64>(),
    ) {
        let channels = rows.iter().enumerate().map(|(i, (priority, weight, cost, _))| {
            Channel { priority: *priority, weight: *weight, ..priced(&format!("c{i}"), &cost.to_string()) }
        });
        let mut case = routed(routing, Case::over(channels.collect()));
        case.summary.affinity = affinity;
        for (i, row) in rows.iter().enumerate() {
            case = speed(case, &format!("c{i}/0"), row.3);
        }
        let plan = case.run_with(&mut dice(seed)).unwrap();
        let names: Vec<&str> = plan.attempts().map(|it| it.account.name.as_str()).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        prop_assert_eq!(unique.len(), rows.len().min(MAX_ATTEMPTS));
        prop_assert_eq!(names.len(), unique.len());
        prop_assert!(plan.attempts().map(|it| it.channel.priority).is_sorted());
        if routing == Routing::Cheapest {
            let order = |it: &PlannedAttempt| (it.channel.priority, it.channel.weight == 0, it.cost.clone().and_then(|cost| cost.input));
            prop_assert!(plan.attempts().map(order).is_sorted());
        }
        let again = case.run_with(&mut dice(seed)).unwrap();
        let again: Vec<&str> = again.attempts().map(|it| it.account.name.as_str()).collect();
        prop_assert_eq!(names, again);
    }
}
