//! The contract of the data that the model square reads.

use tempfile::TempDir;
use tollgate_core::{
    ChannelSpec, Glob, ModelMapping, ModelSpec, Multiplier, Outcome, Price, PriceSchedule, Timestamp, Tokens, UsageRecord,
};

use super::{apply, channel, options, usage_dimensions::varied};
use crate::{
    Change, GroupSpec, KeyScope, OfferChangeKind, Store, StoreUrl, TrafficWidth, open,
    rollup::{DAY, HOUR},
    samples::{MIDNIGHT, record},
};

/// The store in memory computes traffic from the records.
pub(super) async fn traffic_of_offers_matches_the_records(store: &Store) {
    let records = varied();
    let dir = TempDir::new().unwrap();
    let reference = open(options(StoreUrl::Memory, &dir)).await.unwrap();
    // In two batches, so that sums are added to.
    for batch in records.chunks(130) {
        store.usage.append(batch).await.unwrap();
        reference.usage.append(batch).await.unwrap();
    }
    let last = records.last().unwrap().at;
    for (since, width) in [
        (MIDNIGHT, TrafficWidth::Day),
        (TrafficWidth::Day.bucket(last, 6), TrafficWidth::Day),
        (TrafficWidth::Hour.bucket(last, 23), TrafficWidth::Hour),
        (TrafficWidth::FiveMinutes.bucket(last, 12), TrafficWidth::FiveMinutes),
        (Timestamp(MIDNIGHT.0 + 3 * HOUR), TrafficWidth::Hour),
        (Timestamp(last.0 + 2 * DAY), TrafficWidth::Day),
    ] {
        let expected = reference.square.offer_traffic(since, width).await.unwrap();
        assert_eq!(store.square.offer_traffic(since, width).await.unwrap(), expected, "{since} {width:?}");
        assert_eq!(expected.is_empty(), since > last, "{since}");
    }
}

pub(super) async fn traffic_counts_faults_of_upstream_and_gateway_only(store: &Store) {
    let of = |n: u64, outcome: Outcome, reason: Option<&str>| UsageRecord {
        model: Some("m".into()),
        outcome,
        reason: reason.map(str::to_owned),
        stream: n == 0,
        tokens: Tokens { output: 30, thinking: 5, ..Tokens::default() },
        ttft_us: Some(1_000),
        duration_us: 4_000,
        ..record(n)
    };
    let records = [
        of(0, Outcome::Completed, None),
        of(1, Outcome::Completed, Some("usage_excess")),
        of(2, Outcome::CallerLeft, None),
        of(3, Outcome::Refused, Some("E31")),
        of(4, Outcome::Refused, Some("E52")),
        of(5, Outcome::Refused, Some("E40")),
        of(6, Outcome::UpstreamBroke, Some("E59")),
        of(7, Outcome::GatewayStopped, Some("gateway_stopped")),
        UsageRecord { group: None, group_name: None, ..of(8, Outcome::Refused, Some("E63")) },
    ];
    store.usage.append(&records).await.unwrap();
    let traffic = store.square.offer_traffic(MIDNIGHT, TrafficWidth::Day).await.unwrap();
    let [offer] = &traffic[..] else { panic!("{traffic:?}") };
    assert_eq!((offer.group, offer.model.as_str()), (record(0).group.unwrap(), "m"));
    let [bucket] = offer.buckets[..] else { panic!("{offer:?}") };
    assert_eq!((bucket.at, bucket.answered, bucket.failed), (MIDNIGHT, 2, 3));
    assert_eq!((bucket.streamed.answers, bucket.streamed.tokens, bucket.streamed.micros), (1, 30, 3_000));
    assert!(offer.first_content.is_some_and(|times| (1_000..=1_125).contains(&times.p50_us)), "{offer:?}");
}

fn serving(models: &[&str]) -> Change {
    let mapping = |model: &&str| ModelMapping { model: (*model).to_owned(), upstream: "up".to_owned(), ..ModelMapping::default() };
    Change::PutChannel(Box::new(ChannelSpec { serves: models.iter().map(mapping).collect(), ..channel("main") }))
}

fn offering(name: &str, models: &[&str], multiplier: Multiplier) -> Change {
    let models = models.iter().map(|model| Glob((*model).to_owned())).collect();
    let channels = vec!["main".to_owned()];
    Change::PutGroup(Box::new(GroupSpec {
        name: name.to_owned(),
        channels,
        models,
        sale_multiplier: multiplier,
        ..GroupSpec::default()
    }))
}

/// Revision, group and change, newest first.
async fn offer_changes(store: &Store) -> Vec<(i64, String, OfferChangeKind)> {
    let catalog = store.catalog.load().await.unwrap();
    let changes = store.square.offer_changes(1_000).await.unwrap();
    let positions: Vec<_> = changes.iter().map(|(position, _)| *position).collect();
    assert!(positions.is_sorted_by(|one, next| one > next), "{positions:?}");
    let group = |id| catalog.groups.get(&id).map_or("removed", |group| group.name.as_str()).to_owned();
    changes.into_iter().map(|(_, change)| (change.revision.0, group(change.group), change.what)).collect()
}

pub(super) async fn every_change_of_an_offer_is_in_its_history(store: &Store) {
    use OfferChangeKind::{Added, Removed};
    let (twice, gone) = (Multiplier(2_000_000), || "removed".to_owned());
    let first = store.catalog.revision().await.unwrap().0;
    apply(store, &[serving(&["a", "b"]), offering("all", &["*"], Multiplier::ONE), offering("some", &["b*"], twice)])
        .await
        .unwrap();
    let hidden = |hidden| ModelSpec { name: "b".to_owned(), hidden, ..ModelSpec::default() };
    apply(store, &[Change::PutModel(Box::new(hidden(true)))]).await.unwrap();
    apply(store, &[Change::PutModel(Box::new(hidden(false))), serving(&["b", "bb"])]).await.unwrap();
    let described = ModelSpec { description: Some("quick".to_owned()), ..hidden(false) };
    apply(store, &[Change::PutModel(Box::new(described))]).await.expect("a description changes no offer");
    apply(store, &[offering("all", &["*"], twice)]).await.unwrap();
    apply(store, &[Change::RemoveGroup { group: "some".to_owned() }]).await.unwrap();
    let (all, b, bb) = (|| "all".to_owned(), || "b".to_owned(), || "bb".to_owned());
    let mut changes = offer_changes(store).await;
    // Groups are in order of their ids, which are random.
    changes.sort_by_key(|(revision, group, what)| (std::cmp::Reverse(*revision), group.clone(), format!("{what:?}")));
    let expected = [
        (6, gone(), Removed(b())),
        (6, gone(), Removed(bb())),
        (5, all(), OfferChangeKind::Multiplier { model: None, before: Multiplier::ONE, after: twice }),
        (3, all(), Added(b())),
        (3, all(), Added(bb())),
        (3, all(), Removed("a".to_owned())),
        (3, gone(), Added(b())),
        (3, gone(), Added(bb())),
        (2, all(), Removed(b())),
        (2, gone(), Removed(b())),
        (1, all(), Added("a".to_owned())),
        (1, all(), Added(b())),
        (1, gone(), Added(b())),
    ];
    assert_eq!(changes, expected.map(|(revision, group, what)| (first + revision, group, what)));
    let since = store.square.offered_since().await.unwrap();
    assert_eq!(since.iter().map(|offer| offer.model.as_str()).collect::<Vec<_>>(), ["b", "bb"]);
    assert_eq!(store.square.offer_changes(2).await.unwrap().len(), 2);
}

pub(super) async fn model_factors_are_in_the_history_of_offers(store: &Store) {
    let [one, twice, thrice] = [1_000_000, 2_000_000, 3_000_000].map(Multiplier);
    let put = |of_group: Multiplier, own: &[(&str, Multiplier)]| {
        let model_multipliers = own.iter().map(|(pattern, factor)| (Glob((*pattern).to_owned()), *factor)).collect();
        let group = GroupSpec {
            name: "all".to_owned(),
            channels: vec!["main".to_owned()],
            sale_multiplier: of_group,
            model_multipliers,
            ..GroupSpec::default()
        };
        Change::PutGroup(Box::new(group))
    };
    let first = store.catalog.revision().await.unwrap().0;
    apply(store, &[serving(&["a-1", "a-2", "b"]), put(one, &[])]).await.unwrap();
    let added = store.square.offered_since().await.unwrap();
    apply(store, &[put(one, &[("a-*", twice)])]).await.unwrap();
    let catalog = store.catalog.load().await.unwrap();
    let group = catalog.group_by_name("all").unwrap();
    assert_eq!(["a-1", "a-2", "b"].map(|model| group.sale_multiplier(model)), [twice, twice, one], "both databases keep them");
    apply(store, &[put(one, &[("a-*", twice), ("a-1", thrice)])]).await.unwrap();
    apply(store, &[put(twice, &[("a-1", thrice), ("c-*", thrice)])]).await.expect("b and a-2 cost what the group costs");
    let changed =
        |model: Option<&str>, before, after| OfferChangeKind::Multiplier { model: model.map(str::to_owned), before, after };
    let mut changes: Vec<(i64, OfferChangeKind)> =
        offer_changes(store).await.into_iter().map(|(revision, _, what)| (revision - first, what)).filter(|it| it.0 > 1).collect();
    changes.reverse();
    let expected = [
        (2, changed(Some("a-1"), one, twice)),
        (2, changed(Some("a-2"), one, twice)),
        (3, changed(Some("a-1"), twice, thrice)),
        (4, changed(None, one, twice)),
    ];
    assert_eq!(changes, expected);
    assert_eq!(store.square.offered_since().await.unwrap(), added, "another factor does not make a new offer");
    let rows = store.catalog.live_rows(&KeyScope::All).await.unwrap();
    let row = rows.groups.iter().find(|row| row.spec.name == "all").unwrap();
    assert_eq!(row.spec.model_multipliers[&Glob("a-1".to_owned())], thrice);
}

pub(super) async fn latest_sale_prices_include_every_model(store: &Store) {
    let price = |input: i64| {
        let price = Price { input: Some(input), output: Some(input), ..Price::default() };
        Some(PriceSchedule::constant(price))
    };
    let set = |model: &str, input: i64, source: Option<&str>| Change::SetPrice {
        model: model.to_owned(),
        price: price(input),
        source: source.map(str::to_owned),
    };
    apply(store, &[serving(&["a", "b"]), set("a", 1, None), set("b", 2, None)]).await.unwrap();
    let cost = Change::SetCosts { channel: "main".to_owned(), costs: vec![("a".to_owned(), price(9))], source: None };
    apply(store, &[set("a", 3, None), cost]).await.unwrap();
    apply(store, &[set("a", 3, Some("a list"))]).await.unwrap();
    let changes = store.square.sale_price_changes(100).await.unwrap();
    let input = |price: &Option<PriceSchedule>| price.as_ref().and_then(|price| price.0[0].price.input);
    let shown: Vec<_> =
        changes.iter().map(|(_, change)| (change.model.as_str(), input(&change.before), input(&change.after))).collect();
    assert_eq!(shown, [("a", Some(1), Some(3)), ("b", None, Some(2)), ("a", None, Some(1))], "neither costs nor sources");
}
