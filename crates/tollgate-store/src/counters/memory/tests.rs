//! Reservations are made as a whole or not at all, and released once, in any order.

use std::{collections::HashSet, sync::Arc, thread};

use proptest::prelude::*;
use tollgate_core::{Billing, BudgetAction, KeyId, Limits, RateKind, SpendTotals};

use super::{
    super::test_callers::{RESERVATION_TTL, TestCaller, budget, exceeded_funds, exceeded_rate, now},
    *,
};
use crate::samples::{MIDNIGHT, record};

fn empty() -> MemoryCounters {
    MemoryCounters::new(&Spending::default(), RESERVATION_TTL)
}

fn reserve(counters: &MemoryCounters, reservation: &Reservation, now: Instant) -> Result<ReservationReceipt, LimitExceeded> {
    counters.try_reserve(reservation, now).map(|(receipt, _)| receipt)
}

// === Money ===

#[test]
fn budget_counts_reservations_and_spending() {
    let (counters, now) = (empty(), now());
    let caller = TestCaller::new(|it| it.key.budgets = budget(1_000, BudgetAction::Block));
    reserve(&counters, &caller.reservation(1, 600), now).unwrap();
    assert_eq!(exceeded_funds(reserve(&counters, &caller.reservation(2, 401), now)).left, NanoUsd(400));
    reserve(&counters, &caller.reservation(2, 400), now).unwrap();
    assert_eq!(counters.open_reservations(), 2);
    counters.settle(&caller.usage(1, 100), now);
    let funds = exceeded_funds(reserve(&counters, &caller.reservation(3, 501), now));
    assert_eq!((funds.left, funds.spent, funds.subject), (NanoUsd(500), NanoUsd(500), Subject::Key(caller.key.id)));
    reserve(&counters, &caller.reservation(3, 500), now).unwrap();
}

#[test]
fn refused_reservation_changes_no_meter() {
    let (counters, now) = (empty(), now());
    let caller = TestCaller::new(|it| {
        it.key.budgets = budget(1_000, BudgetAction::Block);
        it.key.limits = Limits { rpm: 5, tpm: 10_000, concurrency: 5 };
        it.group.limits.concurrency = 1;
    });
    reserve(&counters, &caller.reservation(1, 10), now).unwrap();
    for _ in 0..20 {
        let rate = exceeded_rate(reserve(&counters, &caller.reservation(2, 10), now));
        assert_eq!((rate.subject, rate.kind, rate.used), (Subject::Group(caller.group.id), RateKind::Concurrency, 1));
        assert_eq!(rate.rate_statuses.requests.unwrap().used, 1);
    }
    counters.settle(&caller.usage(1, 10), now);
    reserve(&counters, &caller.reservation(2, 990), now).unwrap();
}

#[test]
fn exceeded_budget_with_least_left_is_reported() {
    let (counters, now) = (empty(), now());
    let caller = TestCaller::new(|it| {
        it.key.budgets = budget(900, BudgetAction::Block);
        it.key.member.budgets = budget(500, BudgetAction::Block);
        it.group.budgets = budget(700, BudgetAction::Block);
    });
    let funds = exceeded_funds(reserve(&counters, &caller.reservation(1, 1_000), now));
    assert_eq!((funds.subject, funds.left), (Subject::Member(caller.key.member.id), NanoUsd(500)));
}

#[test]
fn two_budgets_of_one_subject_reserve_once() {
    let (counters, now) = (empty(), now());
    let caller = TestCaller::new(|it| {
        it.key.budgets = budget(1_000, BudgetAction::Block);
        it.key.budgets.push(Budget { amount: NanoUsd(1_000), window: Window::Day, action: BudgetAction::Block });
    });
    reserve(&counters, &caller.reservation(1, 500), now).unwrap();
    reserve(&counters, &caller.reservation(2, 500), now).unwrap();
    counters.settle(&caller.usage(1, 0), now);
    counters.settle(&caller.usage(2, 0), now);
    assert_eq!(counters.spent(Subject::Key(caller.key.id), Window::Total, MIDNIGHT), NanoUsd(0));
}

#[test]
fn prepaid_balance_limits_and_postings_raise_it() {
    let (counters, now) = (empty(), now());
    let caller = TestCaller::new(|it| it.key.member.billing = Billing::Prepaid);
    assert_eq!(exceeded_funds(reserve(&counters, &caller.reservation(1, 300), now)).left, NanoUsd(0));
    counters.record_posting(caller.key.member.id, NanoUsd(1_000));
    reserve(&counters, &caller.reservation(1, 300), now).unwrap();
    let funds = exceeded_funds(reserve(&counters, &caller.reservation(2, 800), now));
    assert_eq!((funds.budget, funds.left), (None, NanoUsd(700)));
    counters.settle(&caller.usage(1, 250), now);
    reserve(&counters, &caller.reservation(2, 750), now).unwrap();
}

#[test]
fn free_request_is_served_with_an_exhausted_budget() {
    let (counters, now) = (empty(), now());
    let caller = TestCaller::new(|it| it.key.budgets = budget(100, BudgetAction::Block));
    counters.settle(&caller.usage(1, 150), now);
    assert_eq!(exceeded_funds(reserve(&counters, &caller.reservation(2, 1), now)).left, NanoUsd(-50));
    reserve(&counters, &caller.reservation(3, 0), now).unwrap();
}

#[test]
fn spending_before_the_start_counts_in_its_own_period() {
    let caller = TestCaller::new(|it| it.key.budgets = budget(1_000, BudgetAction::Block));
    let subject = Subject::Key(caller.key.id);
    let loaded = SpendTotals::loaded(MIDNIGHT, NanoUsd(100), NanoUsd(800), NanoUsd(5_000));
    let spending = Spending { spent: vec![(subject, loaded)], ..Spending::default() };
    let counters = MemoryCounters::new(&spending, RESERVATION_TTL);
    assert_eq!(exceeded_funds(reserve(&counters, &caller.reservation(1, 201), now())).left, NanoUsd(200));
    reserve(&counters, &caller.reservation(1, 200), now()).unwrap();
    let next_month = Timestamp::of_month(MIDNIGHT.month() + 1);
    assert_eq!(counters.spent(subject, Window::Day, next_month), NanoUsd(200), "a reservation counts in every period");
    counters.settle(&caller.usage(1, 7), now());
    assert_eq!(counters.spent(subject, Window::Month, next_month), NanoUsd(0));
    assert_eq!(counters.spent(subject, Window::Total, next_month), NanoUsd(5_007));
}

#[test]
fn crossed_alert_budget_is_reported_once() {
    let (counters, now) = (empty(), now());
    let caller = TestCaller::new(|it| it.key.budgets = budget(100, BudgetAction::Alert));
    let run = |number, output| {
        reserve(&counters, &caller.reservation(number, output), now).unwrap();
        counters.settle(&caller.usage(number, output), now)
    };
    assert_eq!(run(1, 99), []);
    let crossed = run(2, 5);
    assert_eq!((crossed.len(), crossed[0].spent, crossed[0].subject), (1, NanoUsd(104), Subject::Key(caller.key.id)));
    assert_eq!(run(3, 500), []);
}

#[test]
fn cost_of_an_attempt_counts_on_its_channel() {
    let (counters, now) = (empty(), now());
    let record = record(1);
    counters.settle(&record, now);
    let channel = Subject::Channel(record.attempts[0].channel);
    assert_eq!(counters.spent(channel, Window::Day, record.at), NanoUsd(14));
    assert_eq!(counters.spent(Subject::Gateway, Window::Day, record.at), NanoUsd(2_000));
}

// === Rates ===

#[test]
fn requests_and_tokens_per_minute_are_limited_and_corrected() {
    let (counters, now) = (empty(), now());
    let caller = TestCaller::new(|it| it.key.limits = Limits { rpm: 3, tpm: 1_000, concurrency: 0 });
    let rate_statuses = reserve(&counters, &caller.reservation(1, 900), now).unwrap().rate_statuses;
    assert_eq!((rate_statuses.requests.unwrap().used, rate_statuses.tokens.unwrap().used), (1, 900));
    let rate = exceeded_rate(reserve(&counters, &caller.reservation(2, 200), now));
    assert_eq!((rate.kind, rate.used, rate.limit), (RateKind::Tokens, 900, 1_000));
    counters.settle(&caller.usage(1, 50), now);
    reserve(&counters, &caller.reservation(2, 200), now).unwrap();
    reserve(&counters, &caller.reservation(3, 10), now).unwrap();
    let rate = exceeded_rate(reserve(&counters, &caller.reservation(4, 10), now));
    assert_eq!((rate.kind, rate.used), (RateKind::Requests, 3));
    assert!((1..=120_000).contains(&rate.wait_ms));
    reserve(&counters, &caller.reservation(4, 10), now + Duration::from_millis(rate.wait_ms)).unwrap();
}

#[test]
fn request_larger_than_the_token_limit_waits_for_an_empty_minute() {
    let (counters, now) = (empty(), now());
    let caller = TestCaller::new(|it| it.key.limits.tpm = 1_000);
    reserve(&counters, &caller.reservation(1, 5_000), now).unwrap();
    exceeded_rate(reserve(&counters, &caller.reservation(2, 1), now));
    counters.settle(&caller.usage(1, 20), now);
    let rate_statuses = reserve(&counters, &caller.reservation(2, 1), now).unwrap().rate_statuses;
    assert_eq!(rate_statuses.tokens.unwrap().used, 21);
    exceeded_rate(reserve(&counters, &caller.reservation(3, 5_000), now));
}

#[test]
fn tightest_of_several_rates_is_reported() {
    let (counters, now) = (empty(), now());
    let caller = TestCaller::new(|it| {
        it.key.limits.rpm = 100;
        it.group.limits.rpm = 10;
    });
    let rate_statuses = reserve(&counters, &caller.reservation(1, 1), now).unwrap().rate_statuses;
    assert_eq!((rate_statuses.requests.unwrap().limit, rate_statuses.tokens), (10, None));
}

#[test]
fn permit_is_released_when_its_request_ends() {
    let (counters, now) = (empty(), now());
    let caller = TestCaller::new(|it| it.key.limits.concurrency = 2);
    reserve(&counters, &caller.reservation(1, 1), now).unwrap();
    reserve(&counters, &caller.reservation(2, 1), now).unwrap();
    assert_eq!(exceeded_rate(reserve(&counters, &caller.reservation(3, 1), now)).kind, RateKind::Concurrency);
    counters.settle(&caller.usage(1, 1), now);
    reserve(&counters, &caller.reservation(3, 1), now).unwrap();
    counters.settle(&caller.usage(1, 1), now);
    assert_eq!(counters.open_reservations(), 2, "a second settlement releases nothing");
    exceeded_rate(reserve(&counters, &caller.reservation(4, 1), now));
}

// === Endings ===

#[test]
fn changed_ttl_applies_to_reservations_made_or_renewed_later() {
    let (counters, now) = (empty(), now());
    let caller = TestCaller::new(|it| it.key.limits.concurrency = 3);
    reserve(&counters, &caller.reservation(1, 1), now).unwrap();
    reserve(&counters, &caller.reservation(2, 1), now).unwrap();
    counters.set_reservation_ttl(2 * RESERVATION_TTL);
    counters.renew(caller.reservation(2, 1).id, now);
    reserve(&counters, &caller.reservation(3, 1), now).unwrap();
    let unlimited = TestCaller::new(|it| it.group.limits.rpm = u32::MAX);
    for number in 1_000..3_000 {
        reserve(&counters, &unlimited.reservation(number, 1), now + RESERVATION_TTL).unwrap();
    }
    assert!(!counters.has_reservation(caller.reservation(1, 1).id), "made before the change");
    assert!([2, 3].iter().all(|number| counters.has_reservation(caller.reservation(*number, 1).id)));
}

#[test]
fn reservation_expires_unless_renewed() {
    let (counters, now) = (empty(), now());
    let caller = TestCaller::new(|it| {
        it.key.limits.concurrency = 2;
        it.key.budgets = budget(1_000, BudgetAction::Block);
    });
    reserve(&counters, &caller.reservation(1, 400), now).unwrap();
    reserve(&counters, &caller.reservation(2, 400), now).unwrap();
    let later = now + RESERVATION_TTL - Duration::from_secs(1);
    counters.renew(caller.reservation(2, 1).id, later);
    exceeded_rate(reserve(&counters, &caller.reservation(3, 1), later));
    // A shard is swept when it is used: use all of them.
    let unlimited = TestCaller::new(|it| it.group.limits.rpm = u32::MAX);
    for number in 1_000..3_000 {
        reserve(&counters, &unlimited.reservation(number, 1), now + RESERVATION_TTL).unwrap();
    }
    reserve(&counters, &caller.reservation(3, 600), now + RESERVATION_TTL).unwrap();
    assert_eq!(exceeded_funds(reserve(&counters, &caller.reservation(4, 1), now + RESERVATION_TTL)).left, NanoUsd(0));
    counters.settle(&caller.usage(1, 5), now + RESERVATION_TTL);
    assert_eq!(
        counters.spent(Subject::Key(caller.key.id), Window::Total, MIDNIGHT),
        NanoUsd(1_005),
        "usage counts although the reservation has expired"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// In any order of reservations, settlements and renewals, meters equal the open reservations, no limit is exceeded, and
    /// nothing stays reserved at the end.
    #[test]
    fn reservations_are_released_in_any_order(steps in proptest::collection::vec((0u8..8, 0u64..12, 1u64..600), 1..200)) {
        let counters = empty();
        let mut now = now();
        let caller = TestCaller::new(|it| {
            it.key.budgets = budget(2_000, BudgetAction::Block);
            it.key.limits = Limits { rpm: 0, tpm: 0, concurrency: 6 };
            it.group.budgets = budget(100_000, BudgetAction::Block);
            it.key.member.billing = Billing::Prepaid;
        });
        let (key, member) = (Subject::Key(caller.key.id), caller.key.member.id);
        counters.record_posting(member, NanoUsd(50_000));
        let mut open: Vec<(u64, i64)> = Vec::new();
        let mut spent = 0;
        let mut number = 0;
        for (what, which, amount) in steps {
            match what {
                0..=3 => {
                    number += 1;
                    let reservation = caller.reservation(number, amount);
                    let fits = spent + open.iter().map(|(_, amount)| amount).sum::<i64>() + reservation.amount.0 <= 2_000 && open.len() < 6;
                    let result = reserve(&counters, &reservation, now);
                    prop_assert_eq!(result.is_ok(), fits, "{:?}", result);
                    if fits {
                        open.push((number, reservation.amount.0));
                    }
                }
                4..=6 if !open.is_empty() => {
                    let (ended, reserved) = open.swap_remove(usize::try_from(which).unwrap() % open.len());
                    let used = u64::try_from(reserved).unwrap() * amount / 600;
                    spent += i64::try_from(used).unwrap();
                    counters.settle(&caller.usage(ended, used), now);
                    counters.settle(&caller.usage(ended, 0), now);
                }
                _ => {
                    now += Duration::from_millis(amount);
                    for (number, _) in &open {
                        counters.renew(record(*number).id, now);
                    }
                }
            }
            let reserved: i64 = open.iter().map(|(_, amount)| amount).sum();
            prop_assert_eq!(counters.spent(key, Window::Month, MIDNIGHT).0, spent + reserved);
            prop_assert!(spent + reserved <= 2_000);
            prop_assert_eq!(counters.open_reservations(), open.len());
        }
        for (number, _) in open {
            counters.settle(&caller.usage(number, 0), now);
        }
        prop_assert_eq!((counters.open_reservations(), counters.spent(key, Window::Month, MIDNIGHT).0), (0, spent));
        prop_assert_eq!(counters.spent(Subject::Group(caller.group.id), Window::Total, MIDNIGHT).0, spent);
    }
}

#[test]
fn concurrent_threads_neither_exceed_a_limit_nor_leak_a_reservation() {
    let counters = Arc::new(empty());
    let caller = TestCaller::new(|it| {
        it.key.budgets = budget(50_000, BudgetAction::Block);
        it.key.limits.concurrency = 7;
        it.group.limits.concurrency = 5;
    });
    let now = now();
    let threads: Vec<_> = (0..8u64)
        .map(|thread| {
            let (counters, caller) = (Arc::clone(&counters), caller.clone());
            thread::spawn(move || {
                let mut sold = 0;
                for turn in 0..400u64 {
                    let number = 10_000 + thread * 1_000 + turn;
                    if reserve(&counters, &caller.reservation(number, 100), now).is_ok() {
                        let group = counters.shard(Subject::Group(caller.group.id)).get(Subject::Group(caller.group.id)).unwrap();
                        assert!(group.running <= 5, "{}", group.running);
                        counters.settle(&caller.usage(number, 97), now);
                        sold += 97;
                    }
                }
                sold
            })
        })
        .collect();
    let sold: i64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let key = Subject::Key(caller.key.id);
    assert_eq!((counters.open_reservations(), counters.spent(key, Window::Total, MIDNIGHT).0), (0, sold));
    assert!(sold <= 50_000 && sold > 50_000 - 200, "{sold} of 50000");
    let meter = counters.shard(key).get(key).unwrap();
    assert_eq!((meter.reserved, meter.running), (0, 0));
}

#[test]
fn all_shards_are_used() {
    let shards: HashSet<usize> =
        (0..1_000u64).map(|number| shard_of(Subject::Key(KeyId::from_uuid(record(number).id.uuid())))).collect();
    assert_eq!(shards.len(), SHARDS);
}
