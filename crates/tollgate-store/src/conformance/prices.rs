//! The contract of the history of prices.

use tollgate_core::{ChannelSpec, ModelMapping, ModelSpec, Price, PriceSchedule};

use super::{apply, put_channel, refusal};
use crate::{
    Change, ChangeRefusal, ImportedPrice, PriceChange, PriceHistoryFilter, PriceHistoryPosition, Store, samples::MIDNIGHT,
};

fn price(input: i64) -> PriceSchedule {
    let price = Price { input: Some(input), output: Some(2 * input), ..Price::default() };
    PriceSchedule::constant(price)
}

fn set_price(input: Option<i64>, source: Option<&str>) -> Change {
    Change::SetPrice { model: "fast".to_owned(), price: input.map(price), source: source.map(str::to_owned) }
}

fn set_cost(input: i64, source: Option<&str>) -> Change {
    let costs = vec![("fast".to_owned(), Some(price(input)))];
    Change::SetCosts { channel: "main".to_owned(), costs, source: source.map(str::to_owned) }
}

async fn history(store: &Store) -> Vec<(PriceHistoryPosition, PriceChange)> {
    let filter = PriceHistoryFilter { model: Some("fast".to_owned()), channel: None, before: None, limit: 100 };
    store.listing.price_history(&filter).await.unwrap()
}

/// Channel, source, and the input prices before and after, newest first.
async fn changes(store: &Store) -> Vec<(Option<String>, Option<String>, Option<i64>, Option<i64>)> {
    let input = |price: Option<PriceSchedule>| price.and_then(|price| price.0[0].price.input);
    let shown = |(_, change): (_, PriceChange)| (change.channel, change.source, input(change.before), input(change.after));
    history(store).await.into_iter().map(shown).collect()
}

pub(super) async fn every_change_of_a_price_is_in_its_history(store: &Store) {
    let main = || Some("main".to_owned());
    apply(store, &[put_channel("main"), set_price(Some(1), None)]).await.unwrap();
    let model = ModelSpec { name: "fast".to_owned(), price: Some(price(2)), ..ModelSpec::default() };
    apply(store, &[Change::PutModel(Box::new(model.clone()))]).await.unwrap();
    let described = ModelSpec { description: Some("quick".to_owned()), ..model };
    apply(store, &[Change::PutModel(Box::new(described))]).await.expect("a change of another field does not change the price");
    let mapping =
        ModelMapping { model: "fast".to_owned(), upstream: "f".to_owned(), cost: Some(price(3)), ..ModelMapping::default() };
    apply(store, &[Change::PutModelMapping { channel: "main".to_owned(), mapping: Box::new(mapping) }]).await.unwrap();
    apply(store, &[set_price(Some(4), Some("a list")), set_cost(5, Some("a list"))]).await.unwrap();
    let cheaper = ChannelSpec { serves: Vec::new(), ..super::channel("main") };
    apply(store, &[Change::PutChannel(Box::new(cheaper))]).await.unwrap();
    apply(store, &[Change::RemoveModel { model: "fast".to_owned() }]).await.unwrap();
    let list = || Some("a list".to_owned());
    let expected = [
        (None, None, Some(4), None),
        (main(), None, Some(5), None),
        (main(), list(), Some(3), Some(5)),
        (None, list(), Some(2), Some(4)),
        (main(), None, None, Some(3)),
        (None, None, Some(1), Some(2)),
        (None, None, None, Some(1)),
    ];
    assert_eq!(changes(store).await, expected);
    let newest = &history(store).await[0].1;
    let revision = store.catalog.revision().await.unwrap();
    assert_eq!((newest.revision, newest.at, newest.origin.as_str(), newest.actor.as_str()), (revision, MIDNIGHT, "cli", "tester"));
}

pub(super) async fn price_set_by_hand_has_no_import_source(store: &Store) {
    apply(store, &[put_channel("main"), set_price(Some(1), Some("a list")), set_cost(1, Some("a list"))]).await.unwrap();
    let imported = |channel: Option<&str>, source: &str| ImportedPrice {
        model: "fast".to_owned(),
        channel: channel.map(str::to_owned),
        source: source.to_owned(),
        at: MIDNIGHT,
    };
    let known = store.listing.imported_prices().await.unwrap();
    assert_eq!(known, [imported(None, "a list"), imported(Some("main"), "a list")]);
    let revision = apply(store, &[set_price(Some(1), Some("a list"))]).await.unwrap();
    assert_eq!(apply(store, &[set_price(Some(1), Some("a list"))]).await.unwrap(), revision, "nothing changed");
    // The same figures, set by hand: only the source changes.
    apply(store, &[set_price(Some(1), None)]).await.unwrap();
    apply(store, &[set_cost(1, Some("another list"))]).await.unwrap();
    assert_eq!(store.listing.imported_prices().await.unwrap(), [imported(Some("main"), "another list")]);
    assert_eq!(changes(store).await[1], (None, None, Some(1), Some(1)));
    let audit = store.catalog.audit(None, 2).await.unwrap();
    assert!(audit[0].detail.contains("imported from another list") && audit[1].detail.contains("set by hand"), "{audit:?}");
}

pub(super) async fn history_of_a_price_has_pages(store: &Store) {
    apply(store, &[put_channel("main")]).await.unwrap();
    for input in 1..=3 {
        apply(store, &[set_price(Some(input), None), set_cost(input, None)]).await.unwrap();
    }
    let all = history(store).await;
    assert_eq!(all.len(), 6);
    let mut filter = PriceHistoryFilter { model: Some("fast".to_owned()), channel: None, before: None, limit: 4 };
    let mut seen = store.listing.price_history(&filter).await.unwrap();
    filter.before = Some(seen[3].0);
    seen.extend(store.listing.price_history(&filter).await.unwrap());
    assert_eq!(seen, all);
    let of_channel = PriceHistoryFilter { channel: Some("main".to_owned()), before: None, ..filter.clone() };
    assert_eq!(store.listing.price_history(&of_channel).await.unwrap().len(), 3);
    let other = PriceHistoryFilter { model: Some("slow".to_owned()), before: None, ..filter };
    assert_eq!(store.listing.price_history(&other).await.unwrap(), []);
    let of_all = PriceHistoryFilter { model: None, limit: 100, ..other };
    assert_eq!(store.listing.price_history(&of_all).await.unwrap(), all);
}

pub(super) async fn cost_of_a_model_that_is_not_served_is_refused(store: &Store) {
    let revision = apply(store, &[put_channel("main")]).await.unwrap();
    let costs = vec![("fast".to_owned(), Some(price(1))), ("slow".to_owned(), Some(price(1)))];
    let change = Change::SetCosts { channel: "main".to_owned(), costs, source: None };
    let error = apply(store, &[change]).await.unwrap_err();
    assert!(error.to_string().contains("slow"), "{error}");
    assert_eq!(refusal(error), ChangeRefusal::NotFound);
    assert_eq!((store.catalog.revision().await.unwrap(), changes(store).await), (revision, Vec::new()));
    assert!(store.listing.imported_prices().await.unwrap().is_empty());
}
