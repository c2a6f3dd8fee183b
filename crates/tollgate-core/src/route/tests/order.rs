//! Priorities, weights, affinity, the last resort, and invariants of every plan.

use crate::{ChannelSpec, Provider};
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A deterministic sequence of random numbers.
pub(super) fn random(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(state >> 32).unwrap()
    }
}

/// How often each account comes first in 4,000 plans.
pub(super) fn firsts(case: &mut Case, affinity: bool) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    let mut random = random(42);
    for key in 0..4_000u64 {
        case.summary.affinity = affinity.then(|| key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let plan = case.run_with(&mut random).unwrap();
        *counts.entry(plan.first.account.spec.name.clone()).or_insert(0) += 1;
    }
    counts
}

/// True for a share of 4,000 within 3 percentage points.
pub(super) fn near(count: Option<&u32>, percent: u32) -> bool {
    count.copied().unwrap_or(0).abs_diff(percent * 40) < 120
}

#[test]
fn plan_has_at_most_three_distinct_accounts() {
    let planned = Case::accounts(5).planned();
    assert_eq!(planned.len(), MAX_ATTEMPTS);
    let mut unique = planned.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), planned.len());
    assert_eq!(Case::accounts(1).planned(), ["c/0"]);
}

#[test]
fn lower_priority_numbers_come_first() {
    let tier = |name, priority| Channel { spec: ChannelSpec { priority, ..channel(name, &["m"]).spec }, ..channel(name, &["m"]) };
    let case = Case::over(vec![tier("a", 5), tier("b", -1), tier("c", 0), tier("d", 9)]);
    assert_eq!(case.planned(), ["b/0", "c/0", "a/0"]);
}

#[test]
fn weights_apply_to_random_choice_and_affinity_alike() {
    let weighted = |name, weight| Channel { spec: ChannelSpec { weight, ..channel(name, &["m"]).spec }, ..channel(name, &["m"]) };
    for affinity in [false, true] {
        let counts = firsts(&mut Case::over(vec![weighted("a", 3), weighted("b", 1)]), affinity);
        assert!(near(counts.get("a/0"), 75) && near(counts.get("b/0"), 25), "{counts:?}");
    }
}

#[test]
fn channel_share_is_independent_of_its_accounts() {
    for affinity in [false, true] {
        let counts = firsts(&mut Case::over(vec![with_accounts(channel("a", &["m"]), 4), channel("b", &["m"])]), affinity);
        assert!(near(counts.get("b/0"), 50), "{counts:?}");
    }
}

#[test]
fn failing_accounts_get_less_traffic_but_some() {
    let mut case = Case::accounts(2);
    case.health.0.insert(account_id("c/1"), AccountHealth { error_average: 1_000_000, ..AccountHealth::default() });
    let counts = firsts(&mut case, false);
    assert!(near(counts.get("c/1"), 5), "{counts:?}");
}

#[test]
fn zero_weight_comes_last_cheapest_first() {
    let row = |name, weight, cost| {
        let mut row = Channel { spec: ChannelSpec { weight, ..channel(name, &["m"]).spec }, ..channel(name, &["m"]) };
        row.spec.serves[0].cost = Some(always(price(cost, cost)));
        row
    };
    let case = Case::over(vec![row("dear", 0, "5"), row("cheap", 0, "1"), row("main", 1, "9")]);
    assert_eq!(case.planned(), ["main/0", "cheap/0", "dear/0"]);
}

#[test]
fn conversation_stays_on_its_account() {
    let mut case = Case::accounts(20);
    case.summary.affinity = Some(77);
    let first = case.run_with(&mut random(1)).unwrap();
    for seed in 2..20 {
        let again = case.run_with(&mut random(seed)).unwrap();
        let names = |plan: &Plan<'_>| plan.attempts().map(|it| it.account.spec.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&again), names(&first));
    }
}

#[test]
fn cooling_account_moves_only_its_own_conversations() {
    let mut all_healthy = Case::accounts(10);
    let mut one_cooling = Case::accounts(10).cooling("c/3", CoolingReason::RateLimited, 5_000);
    let mut moved = 0;
    for key in 0..500 {
        (all_healthy.summary.affinity, one_cooling.summary.affinity) = (Some(key), Some(key));
        let (before, after) = (all_healthy.planned(), one_cooling.planned());
        if before[0] == "c/3" {
            moved += 1;
            assert_eq!(after[0], before[1], "the next account is the same on every node");
        } else {
            assert_eq!(after[0], before[0]);
        }
    }
    assert!(moved > 20, "{moved}");
}

#[test]
fn affinity_order_is_stable_across_versions() {
    let firsts = |case: &mut Case| {
        let mut digits = String::new();
        for key in 0..16 {
            case.summary.affinity = Some(key);
            digits.push_str(&case.run().unwrap().first.account.spec.name.replace(|it: char| !it.is_ascii_digit(), ""));
        }
        digits
    };
    // Nodes of different versions must agree during an upgrade.
    assert_eq!(firsts(&mut Case::accounts(8)), "7041130757025510");
    let weighted = (1..5).map(|n| {
        let name = format!("c{n}");
        let mut row = Channel { accounts: vec![Arc::new(account("w", n as usize))], ..channel(&name, &["m"]) };
        row.spec.weight = n;
        row
    });
    assert_eq!(firsts(&mut Case::over(weighted.collect())), "4342331334143343");
}

#[test]
fn last_account_is_tried_despite_transient_cooling() {
    for why in [CoolingReason::ConnectFailure, CoolingReason::ServerError, CoolingReason::Timeout, CoolingReason::BadAnswer] {
        let case = Case::accounts(2).cooling("c/0", why, 9_000).cooling("c/1", why, 4_000);
        assert_eq!(case.planned(), ["c/1"], "one attempt, on the account available first");
        assert_eq!(case.run().unwrap().excluded.len(), 1, "the planned account is not excluded");
    }
}

#[test]
fn last_account_is_not_tried_while_its_rate_is_limited() {
    assert!(Case::accounts(1).cooling("c/0", CoolingReason::RateLimited, 5_000).run().is_err());
}

#[test]
fn cooling_account_is_not_tried_while_another_is_usable_or_busy() {
    let case = Case::over(vec![bounded(with_accounts(channel("c", &["m"]), 2))]).cooling("c/0", CoolingReason::ServerError, 5_000);
    assert_eq!(case.planned(), ["c/1"]);
    let busy = case.load("c/1", CapacityLoad::AtConcurrency);
    assert_eq!(busy.fails().cause(), NoRouteCause::Concurrency);
}

#[test]
fn last_resort_must_pass_all_other_checks() {
    let mut case = Case::accounts(1).cooling("c/0", CoolingReason::ServerError, 5_000);
    case.request_limit = Some(ceiling(1, PriceLimitOn::Sale));
    assert_eq!(case.fails().cause(), NoRouteCause::PriceLimit);
    let off = Channel { spec: ChannelSpec { on: false, ..channel("c", &["m"]).spec }, ..channel("c", &["m"]) };
    assert_eq!(Case::over(vec![off]).cooling("c/0", CoolingReason::ServerError, 5_000).fails().cause(), NoRouteCause::Disabled);
}

#[test]
fn account_whose_cooling_ended_is_usable_as_the_probe() {
    let case = Case::accounts(1).cooling("c/0", CoolingReason::RateLimited, 0);
    assert_eq!(case.planned(), ["c/0"]);
}

#[test]
fn channel_without_cooling_ignores_health() {
    let mut case = Case::accounts(1).cooling("c/0", CoolingReason::RateLimited, 5_000);
    case.channels[0].spec.cooling = false;
    assert_eq!(case.planned(), ["c/0"]);
}

#[test]
fn echo_answers_in_the_callers_protocol_and_costs_nothing() {
    let echo = Channel { spec: ChannelSpec { provider: Provider::Echo, ..channel("e", &["m"]).spec }, ..channel("e", &["m"]) };
    let case = Case { from: Protocol::Gemini, summary: summary("m", Method::Generate), ..Case::over(vec![echo]) };
    let plan = case.run().unwrap();
    assert_eq!((plan.first.protocol, plan.first.cost.clone()), (Protocol::Gemini, Some(Price::free().into())));
}

#[test]
fn attempt_has_the_current_cost_and_upstream_name() {
    let mut row = channel("c", &["other", "m"]);
    row.spec.serves[1].cost = Some(always(price("0.5", "1")));
    let plan = Case::over(vec![row]).run().unwrap();
    assert_eq!(plan.first.cost, Some(price("0.5", "1").into()));
    assert_eq!((plan.first.mapping_index, plan.first.mapping().upstream.as_str()), (1, "m-up"));
}

#[test]
fn plan_trace_lists_planned_then_excluded_accounts() {
    let case = Case::accounts(2).cooling("c/1", CoolingReason::Timeout, 5_000);
    let trace = case.run().unwrap().trace();
    let codes: Vec<(&str, Option<&str>)> = trace.iter().map(|it| (&*it.code, it.account.as_deref())).collect();
    assert_eq!(codes, [("planned", Some("c/0")), ("cooling", Some("c/1"))]);
}

/// Applies one of several obstacles to an account, by number.
fn obstruct(case: Case, name: &str, which: u8) -> Case {
    match which {
        1 => case.cooling(name, CoolingReason::RateLimited, 5_000),
        2 => case.cooling(name, CoolingReason::ServerError, 5_000),
        3 => case.state(name, HealthState::Resting { why: RestingReason::Refused, since: NOW, until: None }),
        4 => case.load(name, CapacityLoad::AtConcurrency),
        5 => case.cooling(name, CoolingReason::Timeout, -1),
        _ => case,
    }
}

proptest! {
    #[test]
    fn candidates_are_either_planned_or_excluded(
        rows in proptest::collection::vec((0i32..3, 0u32..4, proptest::collection::vec(0u8..7, 0..5)), 1..6),
        affinity in proptest::option::of(any::<u64>()),
        seed in any::<u64>(),
    ) {
        let channels = rows.iter().enumerate().map(|(i, (priority, weight, accounts))| {
            let mut row = channel(&format!("c{i}"), &["m"]);
            (row.spec.priority, row.spec.weight) = (*priority, *weight);
            bounded(with_accounts(row, accounts.len()))
        });
        let mut case = Case::over(channels.collect());
        case.summary.affinity = affinity;
        for (i, (_, _, accounts)) in rows.iter().enumerate() {
            for (n, which) in accounts.iter().enumerate() {
                case = obstruct(case, &format!("c{i}/{n}"), *which);
            }
        }
        let free: usize = rows.iter().flat_map(|row| &row.2).filter(|which| matches!(which, 0 | 5 | 6)).count();
        let all: usize = rows.iter().map(|row| row.2.len().max(1)).sum();
        match case.run_with(&mut random(seed)) {
            Ok(plan) => {
                let planned: Vec<AccountId> = plan.attempts().map(|it| it.account.id).collect();
                let mut unique = planned.clone();
                unique.sort();
                unique.dedup();
                prop_assert_eq!(unique.len(), planned.len());
                prop_assert_eq!(planned.len(), if free == 0 { 1 } else { free.min(MAX_ATTEMPTS) });
                for it in &plan.excluded {
                    prop_assert!(it.account().is_none_or(|account| !planned.contains(&account.id)));
                }
                prop_assert_eq!(plan.excluded.len(), all - if free == 0 { 1 } else { free });
                let priorities: Vec<i32> = plan.attempts().map(|it| it.channel.spec.priority).collect();
                prop_assert!(priorities.is_sorted());
            }
            Err(no_route) => {
                prop_assert_eq!(free, 0);
                prop_assert_eq!(no_route.excluded.len(), all);
            }
        }
    }
}
