//! Holds are taken whole or not at all, and given back once, whatever the order.

use std::{collections::HashSet, sync::Arc, thread};

use proptest::prelude::*;
use tollgate_core::{Billing, KeyId, Limits, RateKind, SpendTotals};

use super::{
    super::test_callers::{LIFE, TestCaller, budget, money, rate},
    *,
};
use crate::samples::{NOON, record};

fn empty() -> MemoryCounters {
    MemoryCounters::new(&Spending::default(), LIFE)
}

// === Money ===

#[test]
fn a_budget_counts_what_is_held_and_what_is_spent() {
    let (counters, now) = (empty(), Instant::now());
    let asker = TestCaller::new(|it| it.key.budgets = budget(1_000, BudgetAction::Block));
    counters.take_now(&asker.hold(1, 600), now).unwrap();
    assert_eq!(money(counters.take_now(&asker.hold(2, 401), now)).left, NanoUsd(400));
    counters.take_now(&asker.hold(2, 400), now).unwrap();
    assert_eq!(counters.open(), 2);
    counters.settle(&asker.spent(1, 100), now);
    let short = money(counters.take_now(&asker.hold(3, 501), now));
    assert_eq!((short.left, short.spent, short.subject), (NanoUsd(500), NanoUsd(500), Subject::Key(asker.key.id)));
    counters.take_now(&asker.hold(3, 500), now).unwrap();
}

#[test]
fn nothing_of_a_hold_is_taken_when_one_rule_says_no() {
    let (counters, now) = (empty(), Instant::now());
    let asker = TestCaller::new(|it| {
        it.key.budgets = budget(1_000, BudgetAction::Block);
        it.key.limits = Limits { rpm: 5, tpm: 10_000, concurrency: 5 };
        it.group.limits.concurrency = 1;
    });
    counters.take_now(&asker.hold(1, 10), now).unwrap();
    for _ in 0..20 {
        let busy = rate(counters.take_now(&asker.hold(2, 10), now));
        assert_eq!((busy.subject, busy.kind, busy.used), (Subject::Group(asker.group.id), RateKind::Concurrency, 1));
        assert_eq!(busy.rate_statuses.requests.unwrap().used, 1);
    }
    counters.settle(&asker.spent(1, 10), now);
    counters.take_now(&asker.hold(2, 990), now).unwrap();
}

#[test]
fn of_several_budgets_the_one_with_least_left_is_told() {
    let (counters, now) = (empty(), Instant::now());
    let asker = TestCaller::new(|it| {
        it.key.budgets = budget(900, BudgetAction::Block);
        it.key.member.budgets = budget(500, BudgetAction::Block);
        it.group.budgets = budget(700, BudgetAction::Block);
    });
    let short = money(counters.take_now(&asker.hold(1, 1_000), now));
    assert_eq!((short.subject, short.left), (Subject::Member(asker.key.member.id), NanoUsd(500)));
}

#[test]
fn two_budgets_of_one_subject_hold_once() {
    let (counters, now) = (empty(), Instant::now());
    let asker = TestCaller::new(|it| {
        it.key.budgets = budget(1_000, BudgetAction::Block);
        it.key.budgets.push(Budget { amount: NanoUsd(1_000), window: Window::Day, action: BudgetAction::Block });
    });
    counters.take_now(&asker.hold(1, 500), now).unwrap();
    counters.take_now(&asker.hold(2, 500), now).unwrap();
    counters.settle(&asker.spent(1, 0), now);
    counters.settle(&asker.spent(2, 0), now);
    assert_eq!(counters.spent(Subject::Key(asker.key.id), Window::Total, NOON), NanoUsd(0));
}

#[test]
fn a_prepaid_balance_bounds_and_postings_raise_it() {
    let (counters, now) = (empty(), Instant::now());
    let asker = TestCaller::new(|it| it.key.member.billing = Billing::Prepaid);
    assert_eq!(money(counters.take_now(&asker.hold(1, 300), now)).left, NanoUsd(0));
    counters.posted(asker.key.member.id, NanoUsd(1_000));
    counters.take_now(&asker.hold(1, 300), now).unwrap();
    let short = money(counters.take_now(&asker.hold(2, 800), now));
    assert_eq!((short.budget, short.left), (None, NanoUsd(700)));
    counters.settle(&asker.spent(1, 250), now);
    counters.take_now(&asker.hold(2, 750), now).unwrap();
}

#[test]
fn what_costs_nothing_is_served_with_nothing_left() {
    let (counters, now) = (empty(), Instant::now());
    let asker = TestCaller::new(|it| it.key.budgets = budget(100, BudgetAction::Block));
    counters.settle(&asker.spent(1, 150), now);
    assert_eq!(money(counters.take_now(&asker.hold(2, 1), now)).left, NanoUsd(-50));
    counters.take_now(&asker.hold(3, 0), now).unwrap();
}

#[test]
fn what_was_spent_before_the_start_counts_and_so_do_other_days() {
    let asker = TestCaller::new(|it| it.key.budgets = budget(1_000, BudgetAction::Block));
    let subject = Subject::Key(asker.key.id);
    let loaded = SpendTotals::loaded(NOON, NanoUsd(100), NanoUsd(800), NanoUsd(5_000));
    let spending = Spending { spent: vec![(subject, loaded)], ..Spending::default() };
    let counters = MemoryCounters::new(&spending, LIFE);
    assert_eq!(money(counters.take_now(&asker.hold(1, 201), Instant::now())).left, NanoUsd(200));
    counters.take_now(&asker.hold(1, 200), Instant::now()).unwrap();
    let next_month = Timestamp::of_month(NOON.month() + 1);
    assert_eq!(counters.spent(subject, Window::Day, next_month), NanoUsd(200), "what is held counts on every day");
    counters.settle(&asker.spent(1, 7), Instant::now());
    assert_eq!(counters.spent(subject, Window::Month, next_month), NanoUsd(0));
    assert_eq!(counters.spent(subject, Window::Total, next_month), NanoUsd(5_007));
}

#[test]
fn an_alerting_budget_is_told_once_when_it_is_crossed() {
    let (counters, now) = (empty(), Instant::now());
    let asker = TestCaller::new(|it| it.key.budgets = budget(100, BudgetAction::Alert));
    let ends = |number, output| {
        counters.take_now(&asker.hold(number, output), now).unwrap();
        counters.settle(&asker.spent(number, output), now)
    };
    assert_eq!(ends(1, 99), []);
    let crossed = ends(2, 5);
    assert_eq!((crossed.len(), crossed[0].spent, crossed[0].subject), (1, NanoUsd(104), Subject::Key(asker.key.id)));
    assert_eq!(ends(3, 500), []);
}

#[test]
fn an_attempts_cost_is_counted_on_its_channel() {
    let (counters, now) = (empty(), Instant::now());
    let record = record(1);
    counters.settle(&record, now);
    let channel = Subject::Channel(record.attempts[0].channel);
    assert_eq!(counters.spent(channel, Window::Day, record.at), NanoUsd(14));
    assert_eq!(counters.spent(Subject::Gateway, Window::Day, record.at), NanoUsd(2_000));
}

// === Rates ===

#[test]
fn requests_and_tokens_of_a_minute_are_bounded_and_put_right() {
    let (counters, now) = (empty(), Instant::now());
    let asker = TestCaller::new(|it| it.key.limits = Limits { rpm: 3, tpm: 1_000, concurrency: 0 });
    let rate_statuses = counters.take_now(&asker.hold(1, 900), now).unwrap().rate_statuses;
    assert_eq!((rate_statuses.requests.unwrap().used, rate_statuses.tokens.unwrap().used), (1, 900));
    let busy = rate(counters.take_now(&asker.hold(2, 200), now));
    assert_eq!((busy.kind, busy.used, busy.limit), (RateKind::Tokens, 900, 1_000));
    counters.settle(&asker.spent(1, 50), now);
    counters.take_now(&asker.hold(2, 200), now).unwrap();
    counters.take_now(&asker.hold(3, 10), now).unwrap();
    let busy = rate(counters.take_now(&asker.hold(4, 10), now));
    assert_eq!((busy.kind, busy.used), (RateKind::Requests, 3));
    assert!((1..=120_000).contains(&busy.wait_ms));
    counters.take_now(&asker.hold(4, 10), now + Duration::from_millis(busy.wait_ms)).unwrap();
}

#[test]
fn more_tokens_than_the_whole_limit_wait_for_an_empty_minute() {
    let (counters, now) = (empty(), Instant::now());
    let asker = TestCaller::new(|it| it.key.limits.tpm = 1_000);
    counters.take_now(&asker.hold(1, 5_000), now).unwrap();
    rate(counters.take_now(&asker.hold(2, 1), now));
    counters.settle(&asker.spent(1, 20), now);
    let rate_statuses = counters.take_now(&asker.hold(2, 1), now).unwrap().rate_statuses;
    assert_eq!(rate_statuses.tokens.unwrap().used, 21);
    rate(counters.take_now(&asker.hold(3, 5_000), now));
}

#[test]
fn the_tightest_of_several_rates_is_shown() {
    let (counters, now) = (empty(), Instant::now());
    let asker = TestCaller::new(|it| {
        it.key.limits.rpm = 100;
        it.group.limits.rpm = 10;
    });
    let rate_statuses = counters.take_now(&asker.hold(1, 1), now).unwrap().rate_statuses;
    assert_eq!((rate_statuses.requests.unwrap().limit, rate_statuses.tokens), (10, None));
}

#[test]
fn a_slot_is_free_again_when_its_request_ends() {
    let (counters, now) = (empty(), Instant::now());
    let asker = TestCaller::new(|it| it.key.limits.concurrency = 2);
    counters.take_now(&asker.hold(1, 1), now).unwrap();
    counters.take_now(&asker.hold(2, 1), now).unwrap();
    assert_eq!(rate(counters.take_now(&asker.hold(3, 1), now)).kind, RateKind::Concurrency);
    counters.settle(&asker.spent(1, 1), now);
    counters.take_now(&asker.hold(3, 1), now).unwrap();
    counters.settle(&asker.spent(1, 1), now);
    assert_eq!(counters.open(), 2, "a hold goes back once, however often its request is said to have ended");
    rate(counters.take_now(&asker.hold(4, 1), now));
}

// === Endings ===

#[test]
fn a_hold_nobody_gives_back_ends_and_a_living_one_does_not() {
    let (counters, now) = (empty(), Instant::now());
    let asker = TestCaller::new(|it| {
        it.key.limits.concurrency = 2;
        it.key.budgets = budget(1_000, BudgetAction::Block);
    });
    counters.take_now(&asker.hold(1, 400), now).unwrap();
    counters.take_now(&asker.hold(2, 400), now).unwrap();
    let later = now + LIFE - Duration::from_secs(1);
    counters.renew(asker.hold(2, 1).id, later);
    rate(counters.take_now(&asker.hold(3, 1), later));
    // Ids spread over shards that are swept when they are used: enough of them meet every shard.
    let free = TestCaller::new(|it| it.group.limits.rpm = u32::MAX);
    for number in 1_000..3_000 {
        counters.take_now(&free.hold(number, 1), now + LIFE).unwrap();
    }
    counters.take_now(&asker.hold(3, 600), now + LIFE).unwrap();
    assert_eq!(money(counters.take_now(&asker.hold(4, 1), now + LIFE)).left, NanoUsd(0));
    counters.settle(&asker.spent(1, 5), now + LIFE);
    assert_eq!(counters.spent(Subject::Key(asker.key.id), Window::Total, NOON), NanoUsd(1_005), "spent though its hold is over");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// In whatever order requests come, end, are renewed and time passes: what is held is what is open, no bound is
    /// passed, and nothing is left when all have ended.
    #[test]
    fn holds_taken_are_given_back(steps in proptest::collection::vec((0u8..8, 0u64..12, 1u64..600), 1..200)) {
        let counters = empty();
        let mut now = Instant::now();
        let asker = TestCaller::new(|it| {
            it.key.budgets = budget(2_000, BudgetAction::Block);
            it.key.limits = Limits { rpm: 0, tpm: 0, concurrency: 6 };
            it.group.budgets = budget(100_000, BudgetAction::Block);
            it.key.member.billing = Billing::Prepaid;
        });
        let (key, member) = (Subject::Key(asker.key.id), asker.key.member.id);
        counters.posted(member, NanoUsd(50_000));
        let mut open: Vec<(u64, i64)> = Vec::new();
        let mut spent = 0;
        let mut number = 0;
        for (what, which, amount) in steps {
            match what {
                0..=3 => {
                    number += 1;
                    let hold = asker.hold(number, amount);
                    let fits = spent + open.iter().map(|(_, held)| held).sum::<i64>() + hold.amount.0 <= 2_000 && open.len() < 6;
                    let taken = counters.take_now(&hold, now);
                    prop_assert_eq!(taken.is_ok(), fits, "{:?}", taken);
                    if fits {
                        open.push((number, hold.amount.0));
                    }
                }
                4..=6 if !open.is_empty() => {
                    let (ended, held) = open.swap_remove(usize::try_from(which).unwrap() % open.len());
                    let came_to = u64::try_from(held).unwrap() * amount / 600;
                    spent += i64::try_from(came_to).unwrap();
                    counters.settle(&asker.spent(ended, came_to), now);
                    counters.settle(&asker.spent(ended, 0), now);
                }
                _ => {
                    now += Duration::from_millis(amount);
                    for (number, _) in &open {
                        counters.renew(record(*number).id, now);
                    }
                }
            }
            let held: i64 = open.iter().map(|(_, held)| held).sum();
            prop_assert_eq!(counters.spent(key, Window::Month, NOON).0, spent + held);
            prop_assert!(spent + held <= 2_000);
            prop_assert_eq!(counters.open(), open.len());
        }
        for (number, _) in open {
            counters.settle(&asker.spent(number, 0), now);
        }
        prop_assert_eq!((counters.open(), counters.spent(key, Window::Month, NOON).0), (0, spent));
        prop_assert_eq!(counters.spent(Subject::Group(asker.group.id), Window::Total, NOON).0, spent);
    }
}

#[test]
fn many_threads_at_once_neither_pass_a_bound_nor_lose_a_hold() {
    let counters = Arc::new(empty());
    let asker = TestCaller::new(|it| {
        it.key.budgets = budget(50_000, BudgetAction::Block);
        it.key.limits.concurrency = 7;
        it.group.limits.concurrency = 5;
    });
    let now = Instant::now();
    let threads: Vec<_> = (0..8u64)
        .map(|thread| {
            let (counters, asker) = (Arc::clone(&counters), asker.clone());
            thread::spawn(move || {
                let mut sold = 0;
                for turn in 0..400u64 {
                    let number = 10_000 + thread * 1_000 + turn;
                    if counters.take_now(&asker.hold(number, 100), now).is_ok() {
                        let group = counters.shard(Subject::Group(asker.group.id)).get(Subject::Group(asker.group.id)).unwrap();
                        assert!(group.running <= 5, "{}", group.running);
                        counters.settle(&asker.spent(number, 97), now);
                        sold += 97;
                    }
                }
                sold
            })
        })
        .collect();
    let sold: i64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let key = Subject::Key(asker.key.id);
    assert_eq!((counters.open(), counters.spent(key, Window::Total, NOON).0), (0, sold));
    assert!(sold <= 50_000 && sold > 50_000 - 200, "{sold} of 50000");
    let meter = counters.shard(key).get(key).unwrap();
    assert_eq!((meter.reserved, meter.running), (0, 0));
}

#[test]
fn shards_are_used_evenly_enough() {
    let places: HashSet<usize> =
        (0..1_000u64).map(|number| place_of(Subject::Key(KeyId::from_uuid(record(number).id.uuid())))).collect();
    assert_eq!(places.len(), SHARDS);
}
