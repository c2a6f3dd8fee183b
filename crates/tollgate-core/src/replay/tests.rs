//! Replays report the effects of a change and nothing else.

use super::*;
use crate::{
    AttemptRecord, Channel, Glob, Group, Multiplier, Outcome, PriceLimit, PriceLimitMode, PriceLimitOn, RequestId, Routing,
    SaleMultipliers, Timestamp, Tokens,
    samples::{self, NOW, always, attempt, catalog, channel, group, key, model, price},
};

/// An answered request for `m` with 1,000 input and 500 output tokens.
fn record(n: u8) -> UsageRecord {
    let id = RequestId::from_parts(Timestamp(NOW.0 + i64::from(n)), [n; 10]);
    let tokens = Tokens { input: 1_000, output: 500, source: TokenSource::Provider, ..Tokens::default() };
    let attempts = vec![AttemptRecord { tokens, ..attempt("gone") }];
    UsageRecord { id, tokens, attempts, ..samples::record() }
}

fn refused(n: u8, reason: &str) -> UsageRecord {
    let reason = Some(reason.to_owned());
    UsageRecord { outcome: Outcome::Refused, reason, tokens: Tokens::default(), attempts: Vec::new(), ..record(n) }
}

fn priced(name: &str, cost: &str) -> Channel {
    let mut row = channel(name, &["m"]);
    row.spec.serves[0].cost = Some(always(price(cost, cost)));
    row
}

fn over(channels: Vec<Channel>, change: impl FnOnce(&mut Group)) -> Catalog {
    let names: Vec<&str> = channels.iter().map(|it| it.spec.name.as_str()).collect();
    let mut group = group("default", &names);
    change(&mut group);
    catalog(channels, vec![group], vec![model("m")])
}

fn replay(before: &Catalog, after: &Catalog, records: &[UsageRecord]) -> ReplayReport {
    let keys = HashMap::from([(key(&[]).id, Arc::new(key(&[])))]);
    let mut replay = Replay::new(ReplaySide { catalog: before, keys: &keys }, ReplaySide { catalog: after, keys: &keys });
    for record in records {
        replay.add(record);
    }
    replay.finish()
}

fn records(count: u8) -> Vec<UsageRecord> {
    (0..count).map(record).collect()
}

#[test]
fn unchanged_catalog_changes_nothing() {
    let catalog = over(vec![priced("a", "1"), priced("b", "2")], |_| {});
    let report = replay(&catalog, &catalog, &records(100));
    assert_eq!((report.replayed, report.moved(), report.before), (100, 0, report.after));
    assert_eq!((report.before.served, report.before.refused), (100, 0));
    // 1,000 input tokens at 1 USD and 500 output tokens at 2 USD per million, 100 times.
    assert_eq!(report.before.sale, NanoUsd(200_000_000));
}

#[test]
fn new_channel_takes_its_share_and_moves_no_other_requests() {
    let before = over(vec![priced("a", "1"), priced("b", "1")], |_| {});
    let after = over(vec![priced("a", "1"), priced("b", "1"), priced("c", "1")], |_| {});
    let report = replay(&before, &after, &records(200));
    assert!((40..95).contains(&report.moved()), "{} of 200 moved", report.moved());
    assert!(report.moves.keys().all(|it| it.to == "c/c/0"), "{:?}", report.moves);
    let share = report.channels[&ReplayChannel { model: "m".to_owned(), channel: "c".to_owned() }];
    assert_eq!((share.before, share.after), (0, report.moved()));
}

#[test]
fn routing_by_cost_shows_the_savings() {
    let channels = vec![priced("dear", "4"), priced("cheap", "1")];
    let before = over(channels.clone(), |_| {});
    let after = over(channels, |group| group.routing = Routing::Cheapest);
    let report = replay(&before, &after, &records(100));
    assert_eq!(report.after.cost, NanoUsd(150_000_000), "1,500 tokens at 1 USD a million, a hundred times");
    assert!(report.before.cost > report.after.cost);
    assert_eq!(report.before.sale, report.after.sale);
}

#[test]
fn model_factor_applies_to_what_callers_would_have_paid() {
    let before = over(vec![priced("a", "1")], |_| {});
    let after = over(vec![priced("a", "1")], |group| {
        group.multipliers = SaleMultipliers::new(Multiplier::ONE, [(Glob("m".to_owned()), Multiplier(1_500_000))]);
    });
    let report = replay(&before, &after, &records(100));
    assert_eq!((report.moved(), report.before.sale, report.after.sale), (0, NanoUsd(200_000_000), NanoUsd(300_000_000)));
}

#[test]
fn price_limit_shows_refused_requests() {
    let mode = PriceLimitMode::Ceiling { max_input: Some(500_000_000), max_output: None };
    let before = over(vec![priced("a", "1")], |_| {});
    let after = over(vec![priced("a", "1")], |group| group.price_limit = Some(PriceLimit { mode, on: PriceLimitOn::Sale }));
    let report = replay(&before, &after, &records(3));
    assert_eq!((report.after.refused, report.after.served, report.after.sale), (3, 0, NanoUsd::ZERO));
    let to = "E41 price_limit".to_owned();
    assert_eq!(report.moves, BTreeMap::from([(ReplayMove { model: "m".to_owned(), from: "a/a/0".to_owned(), to }, 3)]));
}

#[test]
fn removed_and_added_models_are_reported() {
    let with = over(vec![priced("a", "1")], |_| {});
    let without = over(vec![channel("a", &["other"])], |_| {});
    assert_eq!(replay(&with, &without, &records(1)).moves.keys().next().unwrap().to, "E13");
    let report = replay(&without, &with, &[refused(1, "E13")]);
    assert_eq!((report.after.served, report.after.sale), (1, NanoUsd::ZERO), "a refused request used no tokens");
}

#[test]
fn totals_exclude_and_count_unknown_costs() {
    let catalog = over(vec![channel("a", &["m"])], |_| {});
    let report = replay(&catalog, &catalog, &records(2));
    assert_eq!((report.after.cost, report.after.cost_unknown), (NanoUsd::ZERO, 2));
}

#[test]
fn unrouted_and_unknown_key_records_are_skipped() {
    let catalog = over(vec![priced("a", "1")], |_| {});
    let mut unknown_key = record(9);
    unknown_key.key = KeyId::from_parts(NOW, [9; 10]);
    let bodyless = UsageRecord { model: None, ..refused(1, "E18") };
    let report = replay(&catalog, &catalog, &[refused(2, "E32"), bodyless, unknown_key, record(3)]);
    assert_eq!((report.not_routed, report.without_key, report.replayed), (2, 1, 1));
}
