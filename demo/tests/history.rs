//! The generated history is as consistent as that of a real gateway: figures in different places agree.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, wherever it does")]

use std::{collections::HashSet, path::Path};

use tollgate_core::{NanoUsd, Outcome, Timestamp, catalog_warnings};
use tollgate_demo::{ADMIN, HISTORY_MS, HistorySummary, write_history};
use tollgate_store::{
    AccessMode, AlertFilter, LedgerFilter, LedgerKind, MasterKeySource, NODE_GONE_MS, NodeRun, OpenOptions, RandomSource,
    SortOrder, Store, StoreUrl, SummaryBy, TransitionFilter, UsageFilter, WorkControl, open,
};

/// 2026-11-24T14:00:00Z, a Tuesday.
const END: Timestamp = Timestamp(1_795_528_800_000_000);

async fn written(data: &Path) -> (Store, HistorySummary) {
    let options = OpenOptions {
        url: StoreUrl::Sqlite(data.join("tollgate.db")),
        data: data.to_owned(),
        master: MasterKeySource::DataFolder,
        access: AccessMode::Serve,
        random: RandomSource::system(),
        now: END.plus_ms(-HISTORY_MS),
        without_database: None,
    };
    let store = open(options).await.unwrap();
    let summary = write_history(&store, data, "127.0.0.1:4010", END).await.unwrap();
    (store, summary)
}

#[tokio::test]
async fn generated_history_is_consistent_and_contains_every_kind_of_record() {
    let folder = tempfile::tempdir().unwrap();
    let (store, summary) = written(folder.path()).await;
    everything_agrees(&store, &summary).await;
    catalog_is_sound(&store).await;
    records_are_of_every_kind(&store).await;
    money_and_changes_are_there(&store).await;
    store.close().await;
}

async fn everything_agrees(store: &Store, summary: &HistorySummary) {
    let report = store.ledger.verify(END, &WorkControl::new(tokio_util::sync::CancellationToken::new(), |_| {})).await.unwrap();
    assert!(report.agrees(), "{report:?}");
    assert_eq!(report.records, summary.records);
    assert!((10_000..100_000).contains(&summary.records), "{summary:?}");
    let sums = store.usage.summary(&UsageFilter::default(), SummaryBy::Nothing.into()).await.unwrap();
    assert_eq!((sums[0].sale, sums[0].requests), (summary.sale, summary.records));
    assert!(sums[0].cost < sums[0].sale, "it is a business: {:?}", sums[0]);
}

async fn catalog_is_sound(store: &Store) {
    let (catalog, keys) = (store.catalog.load().await.unwrap(), store.keys.list().await.unwrap());
    let keys: Vec<_> = keys.into_iter().map(std::sync::Arc::new).collect();
    assert_eq!(catalog_warnings(&catalog, &keys, END), Vec::<String>::new());
    for model in catalog.mappings_by_model.keys() {
        let row = catalog.models.get(model).unwrap_or_else(|| panic!("{model} has no row"));
        assert!(row.spec.price.is_some(), "{model} has no price");
    }
    for channel in catalog.channels.values() {
        for mapping in &channel.spec.serves {
            assert!(mapping.cost.is_some(), "{} has no cost for {}", channel.spec.name, mapping.model);
        }
    }
}

async fn records_are_of_every_kind(store: &Store) {
    let by = |by: SummaryBy| async move { store.usage.summary(&UsageFilter::default(), by.into()).await.unwrap() };
    let outcomes: HashSet<String> = by(SummaryBy::Outcome).await.into_iter().map(|row| row.of).collect();
    for outcome in [Outcome::Completed, Outcome::CallerLeft, Outcome::UpstreamBroke, Outcome::Refused] {
        assert!(outcomes.contains(outcome.as_str()), "{outcomes:?}");
    }
    let reasons: HashSet<String> = by(SummaryBy::Reason).await.into_iter().map(|row| row.of).collect();
    for reason in ["E13", "E17", "E31", "E51", "E54", "E55", "E56", "E59", "E64"] {
        assert!(reasons.contains(reason), "no {reason} in {reasons:?}");
    }
    let recent = UsageFilter { since: Some(END.plus_ms(-3_600_000)), limit: 200, ..UsageFilter::default() };
    let recent = store.usage.page(&recent).await.unwrap().items;
    assert!(recent.len() > 30, "{} records in the last hour", recent.len());
    assert!(recent.iter().any(|record| record.attempts.len() > 1), "none was tried twice");
    assert!(recent.iter().any(|record| record.tokens.cache_read > 0 && record.stream));
    let of_day = store.usage.summary(&UsageFilter::default(), SummaryBy::Day.into()).await.unwrap();
    assert!(of_day.len() >= 30, "{} days", of_day.len());
}

async fn money_and_changes_are_there(store: &Store) {
    let entries = store.ledger.entries(&LedgerFilter { limit: 1_000, ..LedgerFilter::default() }).await.unwrap();
    let kinds = |kind| entries.iter().any(|entry| entry.kind == kind);
    assert!(kinds(LedgerKind::Settle) && kinds(LedgerKind::Adjust));
    for balance in store.ledger.balances().await.unwrap() {
        let is_prepaid = ["northwind", "fabrikam"].contains(&balance.name.as_str());
        assert!(!is_prepaid || balance.balance > NanoUsd::ZERO, "{balance:?}");
    }
    let audit = store.catalog.audit(None, 1_000).await.unwrap();
    assert!(audit.iter().any(|event| event.actor == ADMIN && event.action == "revoke"), "{} events", audit.len());
    let outages =
        store.health_history.transitions(&TransitionFilter { limit: 1_000, ..TransitionFilter::default() }).await.unwrap();
    assert!(outages.len() > 20, "{} transitions", outages.len());
    let runs = store.health_history.node_runs().await.unwrap();
    let last_day = |run: &NodeRun| run.since <= END.plus_ms(-24 * 3_600_000) && END.ms_since(run.seen_at) < NODE_GONE_MS;
    assert!(runs.len() == 1 && runs.iter().all(last_day), "{runs:?}");
    let alerts = store.alerts.alerts(&AlertFilter { limit: 100, ..AlertFilter::default() }).await.unwrap();
    assert!(alerts.iter().any(|alert| alert.ended_at.is_some()), "{alerts:?}");
    assert!(!store.identity.invites(None, SortOrder::Oldest, 100).await.unwrap().is_empty());
}
