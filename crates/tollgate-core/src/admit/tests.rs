//! Choice of the limits, size of reservations, and counting of usage.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{
    Glob, Model, ModelSpec, Multiplier, Price, PriceTier, Revision, SaleMultipliers, TokenSource, Tokens, amount,
    samples::{NOW, account, always, channel, group, key, mapping, model, price, summary},
};

mod counting;
mod searches;
mod unseen;

const MINUTE: u64 = 60_000_000;

fn budget(usd: &str, window: Window, action: BudgetAction) -> Budget {
    Budget { amount: NanoUsd::parse(usd).unwrap(), window, action }
}

fn block(usd: &str) -> Vec<Budget> {
    vec![budget(usd, Window::Month, BudgetAction::Block)]
}

/// A request of 20 input tokens for a model priced at 1 and 2 USD, adapted by `change`.
struct Case {
    key: Key,
    group: Group,
    model: Model,
    summary: RequestSummary,
    gateway: Vec<Budget>,
}

impl Case {
    fn new(change: impl FnOnce(&mut Self)) -> Self {
        let mut case = Self {
            key: key(&["g"]),
            group: group("g", &["c"]),
            model: Model { spec: ModelSpec { max_output: Some(1_000), ..model("m").spec }, ..model("m") },
            summary: summary("m", Method::Chat),
            gateway: Vec::new(),
        };
        change(&mut case);
        case
    }

    fn offer(&self) -> Offer {
        let group = Arc::new(self.group.clone());
        let sale = self.model.spec.price.as_ref().and_then(|schedule| schedule.shared_at(NOW)).cloned();
        let (sale_multiplier, candidates, drop_fields) = (group.sale_multiplier("m"), Vec::new(), Vec::new());
        Offer { model: Arc::new(self.model.clone()), group, sale, sale_multiplier, candidates, drop_fields, revision: Revision(7) }
    }

    fn reservation(&self) -> Option<Reservation> {
        let offer = self.offer();
        let caller = Caller { key: Arc::new(self.key.clone()), groups: [Arc::clone(&offer.group)].into() };
        reservation_for(&AdmitInput {
            id: RequestId::from_parts(NOW, [1; 10]),
            at: NOW,
            caller: &caller,
            offer: &offer,
            summary: &self.summary,
            from: Protocol::OpenAi,
            gateway: &self.gateway,
        })
    }
}

// === Which limits are checked ===

#[test]
fn request_without_limits_needs_no_reservation() {
    assert!(Case::new(|_| {}).reservation().is_none());
}

#[test]
fn limits_of_all_subjects_are_checked_money_first() {
    let reservation = Case::new(|it| {
        it.key.budgets = block("1");
        it.key.limits = Limits { rpm: 60, tpm: 0, concurrency: 2 };
        it.key.member.billing = Billing::Prepaid;
        it.key.member.limits = Limits { rpm: 0, tpm: 5_000, concurrency: 0 };
        it.group.limits = Limits { rpm: 600, tpm: 0, concurrency: 0 };
        it.gateway = vec![budget("9", Window::Day, BudgetAction::Alert)];
    })
    .reservation()
    .unwrap();
    let words: Vec<&str> = reservation
        .limits
        .iter()
        .map(|limit| match (limit.subject, limit.rule) {
            (Subject::Key(_), LimitRule::Budget(_)) => "key budget",
            (Subject::Gateway, LimitRule::Budget(_)) => "gateway budget",
            (Subject::Member(_), LimitRule::Balance) => "balance",
            (Subject::Key(_), LimitRule::Requests(60)) => "key rpm",
            (Subject::Group(_), LimitRule::Requests(600)) => "group rpm",
            (Subject::Member(_), LimitRule::Tokens(5_000)) => "member tpm",
            (Subject::Key(_), LimitRule::Concurrency(2)) => "key concurrency",
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = ["key budget", "gateway budget", "balance", "key rpm", "group rpm", "member tpm", "key concurrency"];
    assert_eq!(words, expected);
}

#[test]
fn changed_offer_reserves_only_the_excess() {
    let reserved = |change: fn(&mut Case)| {
        Case::new(|it| {
            it.key.budgets = block("1");
            it.key.limits = Limits { rpm: 60, tpm: 5_000, concurrency: 2 };
            change(it);
        })
        .reservation()
        .unwrap()
    };
    let earlier = reserved(|_| {});
    let beyond = |change: fn(&mut Case)| reserved(change).exceeding(&earlier);
    let rules = |reservation: Option<Reservation>| reservation.unwrap().limits.iter().map(|limit| limit.rule).collect::<Vec<_>>();
    assert!(beyond(|_| {}).is_none());
    assert!(beyond(|it| it.model.spec.price = Some(always(price("0.5", "1")))).is_none(), "cheaper");
    assert!(beyond(|it| it.key.limits.rpm = 5).is_none(), "already counted");
    let costlier = beyond(|it| it.model.spec.price = Some(always(price("2", "4"))));
    assert!(costlier.as_ref().unwrap().amount > earlier.amount);
    assert_eq!(rules(costlier), [LimitRule::Budget(block("1")[0])], "money only");
    assert_eq!(rules(beyond(|it| it.group.limits.rpm = 9)), [LimitRule::Requests(9)]);
    assert_eq!(rules(beyond(|it| it.key.budgets = block("3"))), [LimitRule::Budget(block("3")[0])]);
}

#[test]
fn token_count_uses_neither_money_nor_requests() {
    let case = |concurrency| {
        Case::new(|it| {
            it.key.budgets = block("1");
            it.key.limits = Limits { rpm: 5, tpm: 5, concurrency };
            it.summary.method = Method::CountTokens;
        })
    };
    assert!(case(0).reservation().is_none());
    let reservation = case(3).reservation().unwrap();
    let rules: Vec<_> = reservation.limits.iter().map(|limit| limit.rule).collect();
    assert_eq!((rules.as_slice(), reservation.tokens), ([LimitRule::Concurrency(3)].as_slice(), 0));
    assert_eq!((reservation.amount, reservation.output), (NanoUsd::ZERO, None));
}

#[test]
fn token_counts_have_their_own_generous_limit() {
    let counts = |key, member, group| {
        let case = Case::new(|it| {
            it.key.limits.rpm = key;
            it.key.member.limits.rpm = member;
            it.group.limits.rpm = group;
        });
        token_counts_per_minute(&case.key, &case.group)
    };
    assert_eq!(counts(0, 0, 0), None);
    assert_eq!(counts(5, 0, 600), Some(120));
    assert_eq!(counts(0, 0, 600), Some(6_000));
}

#[test]
fn rate_limits_reserve_tokens_and_leave_the_request_unchanged() {
    let reservation = Case::new(|it| it.key.limits.tpm = 5_000).reservation().unwrap();
    assert_eq!((reservation.tokens, reservation.amount, reservation.output), (1_020, NanoUsd::ZERO, None));
    assert!(!reservation.bounds_money() && reservation.lowered_to(NanoUsd(1)).is_none());
}

#[test]
fn alert_budget_reserves_nothing_and_does_not_limit_output() {
    let reservation = Case::new(|it| it.key.budgets = vec![budget("1", Window::Day, BudgetAction::Alert)]).reservation().unwrap();
    assert_eq!((reservation.limits.len(), reservation.amount, reservation.output), (1, NanoUsd::ZERO, None));
}

// === What is reserved ===

#[test]
fn worst_case_is_reserved_and_limits_the_output() {
    let reservation = Case::new(|it| it.key.budgets = block("1")).reservation().unwrap();
    assert_eq!((reservation.amount, reservation.output), (NanoUsd(20 * 1_000 + 1_000 * 2_000), Some(1_000)));
}

#[test]
fn requested_limit_is_kept_unless_above_the_models() {
    let with_limit = |limit, candidates| {
        let reservation = Case::new(|it| {
            it.key.budgets = block("1");
            (it.summary.max_output, it.summary.candidates) = (Some(limit), candidates);
        });
        let reservation = reservation.reservation().unwrap();
        (reservation.amount.0 - 20 * 1_000, reservation.output)
    };
    assert_eq!(with_limit(50, 1), (50 * 2_000, None));
    assert_eq!(with_limit(50, 3), (150 * 2_000, None));
    assert_eq!(with_limit(7_000, 1), (1_000 * 2_000, Some(1_000)));
    assert_eq!(with_limit(0, 1), (1_000 * 2_000, None), "reserved as if unlimited, and forwarded unchanged");
}

#[test]
fn most_expensive_kind_and_tier_are_reserved() {
    let reserved = |price: Price, change: fn(&mut RequestSummary)| {
        let case = Case::new(|it| {
            it.key.budgets = block("1");
            it.summary.max_output = Some(10);
            it.model.spec.price = Some(always(price));
            change(&mut it.summary);
        });
        case.reservation().unwrap().amount.0
    };
    let list = price("1", "2");
    assert_eq!(reserved(Price { cache_write: Some(1_250_000_000), ..list.clone() }, |_| {}), 20 * 1_250 + 10 * 2_000);
    assert_eq!(reserved(Price { thinking: Some(9_000_000_000), ..list.clone() }, |_| {}), 20 * 1_000 + 10 * 9_000);
    assert_eq!(reserved(Price { per_request: Some(77), ..list.clone() }, |_| {}), 20 * 1_000 + 10 * 2_000 + 77);
    let image = Price { image: Some(5_000_000_000), ..list.clone() };
    assert_eq!(reserved(image.clone(), |_| {}), 20 * 1_000 + 10 * 2_000, "without images their price does not apply");
    assert_eq!(reserved(image, |it| it.images = 1), 1_620 * 5_000 + 10 * 2_000);
    let tier = |above| PriceTier { above, price: price("3", "1") };
    assert_eq!(reserved(Price { tiers: vec![tier(19)], ..list.clone() }, |_| {}), 20 * 3_000 + 10 * 2_000, "either may apply");
    assert_eq!(reserved(Price { tiers: vec![tier(20)], ..list }, |_| {}), 20 * 1_000 + 10 * 2_000);
}

#[test]
fn multiplier_of_the_model_applies_to_the_reservation() {
    let case = Case::new(|it| {
        it.key.budgets = block("1");
        it.group.multipliers = SaleMultipliers::new(Multiplier(1_500_000), [(Glob("m*".to_owned()), Multiplier(2_000_000))]);
    });
    assert_eq!(case.reservation().unwrap().amount, NanoUsd(20 * 2_000 + 1_000 * 4_000));
}

#[test]
fn free_or_unpriced_model_reserves_no_money_and_no_output_limit() {
    for price in [None, Some(always(Price::free()))] {
        let reservation = Case::new(|it| {
            it.key.budgets = block("1");
            it.model.spec.price = price;
        });
        let reservation = reservation.reservation().unwrap();
        assert_eq!((reservation.amount, reservation.output), (NanoUsd::ZERO, None));
    }
}

#[test]
fn model_without_output_limit_parameter_gets_none() {
    let reservation = Case::new(|it| {
        it.key.budgets = block("1");
        it.model.spec.parameters = crate::ParameterRule::Except(vec!["max_tokens".to_owned(), "max_completion_tokens".to_owned()]);
    });
    let reservation = reservation.reservation().unwrap();
    assert_eq!((reservation.output, reservation.lowered_to(NanoUsd(1_000_000)).map(|_| ())), (None, None));
}

#[test]
fn remaining_money_lowers_the_output_down_to_256_tokens() {
    let case = Case::new(|it| it.key.budgets = block("1"));
    let reservation = case.reservation().unwrap();
    let lower = reservation.lowered_to(NanoUsd(20 * 1_000 + 300 * 2_000 + 1_999)).unwrap();
    assert_eq!((lower.output, lower.amount, lower.tokens), (Some(300), NanoUsd(20 * 1_000 + 300 * 2_000), 320));
    assert_eq!(reservation.lowered_to(NanoUsd(20 * 1_000 + 256 * 2_000)).unwrap().output, Some(256));
    assert!(reservation.lowered_to(NanoUsd(20 * 1_000 + 256 * 2_000 - 1)).is_none());
    assert!(reservation.lowered_to(NanoUsd(0)).is_none() && reservation.lowered_to(NanoUsd(-5)).is_none());
    let with_limit = Case::new(|it| {
        it.key.budgets = block("1");
        it.summary.max_output = Some(900);
    });
    assert!(
        with_limit.reservation().unwrap().lowered_to(NanoUsd(1_000_000)).is_none(),
        "a limit set by the caller is never lowered"
    );
}

#[test]
fn lowered_limit_applies_per_candidate_answer() {
    let case = Case::new(|it| {
        it.key.budgets = block("1");
        it.summary.candidates = 2;
    });
    let lower = case.reservation().unwrap().lowered_to(NanoUsd(20 * 1_000 + 800 * 2_000)).unwrap();
    assert_eq!((lower.output, lower.tokens), (Some(400), 820));
}

#[test]
fn attempt_reserves_cost_on_channel_budgets() {
    let mut channel = channel("c", &["m"]);
    channel.spec.budgets = block("1");
    let mut account = account("c", 0);
    account.spec.cost_multiplier = Multiplier(2_000_000);
    let mut planned = PlannedAttempt {
        channel: Arc::new(channel.clone()),
        account: Arc::new(account),
        mapping_index: 0,
        cost: Some(price("0.5", "1").into()),
        protocol: Protocol::OpenAi,
        last_resort: false,
    };
    let case = Case::new(|it| it.summary.max_output = Some(10));
    let reservation = |planned: &PlannedAttempt| {
        reservation_for_attempt(RequestId::from_parts(NOW, [1; 10]), NOW, planned, (Protocol::OpenAi, &case.summary), &case.offer())
    };
    let reserved = reservation(&planned).unwrap();
    assert_eq!(
        (reserved.amount, reserved.output, reserved.limits[0].subject),
        (NanoUsd(40_000), None, Subject::Channel(channel.id))
    );
    planned.cost = None;
    assert_eq!(reservation(&planned).unwrap().amount, NanoUsd::ZERO);
    channel.spec.budgets.clear();
    channel.spec.serves = vec![mapping("m")];
    planned.channel = Arc::new(channel);
    assert!(reservation(&planned).is_none());
}

#[test]
fn attempt_reservations_cover_each_channel_then_further_accounts() {
    let priced = |name: &str, budgets: Vec<Budget>| {
        let mut channel = channel(name, &["m"]);
        channel.spec.serves[0].cost = Some(always(price("0.5", "1")));
        let mut expensive = account(name, 1);
        expensive.spec.cost_multiplier = Multiplier(3_000_000);
        (channel.spec.budgets, channel.accounts) = (budgets, vec![Arc::new(account(name, 0)), Arc::new(expensive)]);
        channel
    };
    let alerts = vec![budget("1", Window::Month, BudgetAction::Alert)];
    let catalog = crate::samples::catalog(
        vec![priced("free", Vec::new()), priced("one", block("1")), priced("told", alerts), priced("two", block("2"))],
        vec![group("g", &["*"])],
        vec![model("m")],
    );
    let case = Case::new(|it| it.summary.max_output = Some(10));
    let offer = Offer { candidates: catalog.mappings_by_model["m"].clone(), ..case.offer() };
    let caller = Caller { key: Arc::new(case.key.clone()), groups: [Arc::clone(&offer.group)].into() };
    let of = |summary: &RequestSummary| {
        let id = RequestId::from_parts(NOW, [1; 10]);
        let input = AdmitInput { id, at: NOW, caller: &caller, offer: &offer, summary, from: Protocol::OpenAi, gateway: &[] };
        attempt_reservations(&input, &catalog)
    };
    let reservations = of(&case.summary);
    let subjects: Vec<Subject> = reservations.iter().map(|reservation| reservation.limits[0].subject).collect();
    let [one, two] = ["one", "two"].map(|name| Subject::Channel(crate::samples::channel_id(name)));
    assert_eq!(subjects, [one, two, one, two], "each channel first, then its second account");
    assert!(reservations.iter().all(|reservation| reservation.amount == NanoUsd(60_000)), "the most expensive account");
    assert!(of(&RequestSummary { method: Method::CountTokens, ..case.summary.clone() }).is_empty());
}

#[test]
fn output_limit_field_follows_the_callers_spelling() {
    let named = |from, fields: &[&str]| {
        let fields = fields.iter().map(|&field| field.to_owned()).collect();
        output_limit_field(&RequestSummary { fields, ..summary("m", Method::Chat) }, from)
    };
    assert_eq!(named(Protocol::OpenAi, &["temperature"]), "max_completion_tokens");
    assert_eq!(named(Protocol::OpenAi, &["max_tokens"]), "max_tokens");
    assert_eq!(named(Protocol::Gemini, &[]), "generationConfig.maxOutputTokens");
}

proptest! {
    /// Any usage within the reserved tokens, of whatever kinds, costs at most the reserved amount.
    #[test]
    fn answer_within_its_limit_never_costs_more_than_reserved(
        rates in proptest::array::uniform7(0i64..50_000_000_000),
        per_request in 0i64..1_000_000,
        tiers in proptest::collection::vec((0u64..5_000, 0i64..50_000_000_000, 0i64..50_000_000_000), 0..3),
        multiplier in 0i64..5_000_000,
        text_bytes in 0u64..10_000,
        images in 0u32..2,
        candidates in 1u32..3,
        share in proptest::array::uniform6(0u64..100),
    ) {
        let [input, output, cache_read, cache_write, thinking, image, audio] = rates.map(Some);
        let tiers = tiers
            .into_iter()
            .map(|(above, input, output)| {
                PriceTier { above, price: Price { input: Some(input), output: Some(output), ..Price::default() } }
            })
            .collect();
        let list =
            Price { input, output, cache_read, cache_write, thinking, image, audio, per_request: Some(per_request), tiers, ..Price::default() };
        let case = Case::new(|it| {
            it.key.budgets = block("1");
            it.group.multipliers = Multiplier(multiplier).into();
            it.model.spec.price = Some(always(list.clone()));
            (it.summary.text_bytes, it.summary.images, it.summary.candidates) = (text_bytes, images, candidates);
        });
        let reservation = case.reservation().unwrap();
        let max_input = estimate_input(&case.summary);
        let part = |of: u64, share: u64| of * share / 600;
        let used = Tokens {
            input: part(max_input, share[0]),
            cache_read: part(max_input, share[1]),
            cache_write: part(max_input, share[2]),
            cache_write_1h: 0,
            image: if images > 0 { part(max_input, share[3]) } else { 0 },
            audio: 0,
            output: part(1_000 * u64::from(candidates), share[4]),
            thinking: part(1_000 * u64::from(candidates), share[5]),
            source: TokenSource::Provider,
            web_searches: 0,
        };
        let sale = amount(&used, &list, Multiplier(multiplier)).unwrap();
        prop_assert!(sale <= reservation.amount, "{sale:?} of {:?}", reservation.amount);
        if let Some(lower) = reservation.lowered_to(NanoUsd(reservation.amount.0 / 2)) {
            prop_assert!(lower.amount.0 <= reservation.amount.0 / 2 && lower.output.unwrap() >= MIN_OUTPUT_TOKENS);
        }
    }

    /// Weighted buckets let at most the limit pass within one bucket, and waiting for the reported time is sufficient.
    #[test]
    fn window_enforces_its_limit_and_reports_the_wait(
        limit in 1u64..50,
        steps in proptest::collection::vec((0u64..40_000_000, 1u64..20), 1..60),
    ) {
        let mut window = SlidingWindow::default();
        let mut now = 3 * MINUTE;
        let mut passed: Vec<(u64, u64)> = Vec::new();
        for (pause, amount) in steps {
            now += pause;
            let amount = amount.min(limit);
            if window.used(now) + amount <= limit {
                window.add(amount, now);
                passed.push((now / MINUTE, amount));
                prop_assert!(window.used(now) <= limit);
            } else {
                let wait = window.wait_ms(amount, limit, now);
                prop_assert!(wait > 0 && wait <= 120_000);
                prop_assert!(window.used(now + wait * 1_000) + amount <= limit, "after {wait} ms");
            }
            prop_assert_eq!(window.used(now + window.reset_ms(now) * 1_000), 0);
        }
        for bucket in passed.iter().map(|(bucket, _)| *bucket) {
            let sum: u64 = passed.iter().filter(|(at, _)| *at == bucket).map(|(_, amount)| amount).sum();
            prop_assert!(sum <= limit);
        }
    }

    /// Periods contain all amounts that were added to them, including those of late requests of the previous day.
    #[test]
    fn money_is_counted_in_its_day_and_month(
        entries in proptest::collection::vec((-1i64..1, 0i64..1_000), 1..50),
        days in proptest::collection::vec(0i64..3, 50),
    ) {
        let mut spent = SpendTotals::default();
        let mut today = 20_400;
        let mut booked: Vec<(i64, i64)> = Vec::new();
        for ((late, amount), reservations) in entries.into_iter().zip(days) {
            today += reservations;
            let day = today + late;
            spent.add(NanoUsd(amount), Timestamp::of_day(day));
            booked.push((day, amount));
            // The newest period is never evicted.
            let newest = booked.iter().map(|(day, _)| *day).max().unwrap();
            let at = Timestamp::of_day(newest);
            let of = |same: &dyn Fn(Timestamp) -> bool| {
                booked.iter().filter(|(day, _)| same(Timestamp::of_day(*day))).map(|(_, amount)| amount).sum::<i64>()
            };
            prop_assert_eq!(spent.within(Window::Day, at).0, of(&|it| it.day() == at.day()));
            prop_assert_eq!(spent.within(Window::Month, at).0, of(&|it| it.month() == at.month()));
            prop_assert_eq!(spent.within(Window::Total, at).0, of(&|_| true));
        }
    }
}
