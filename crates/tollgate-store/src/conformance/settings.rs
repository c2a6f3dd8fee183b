//! Stored settings: rows without a parent or a secret, loaded with the catalog.

use super::{apply, refusal};
use crate::{AuditKind, Change, ChangeRefusal, RowFilter, RowKind, Store, StoredSetting};

fn set(name: &str, value: &str) -> Change {
    Change::SetSetting { name: name.to_owned(), value: value.to_owned() }
}

pub(super) async fn stored_settings_are_loaded_with_the_catalog(store: &Store) {
    assert!(store.catalog.load().await.unwrap().stored_settings.is_empty());
    let first = apply(store, &[set("log.level", "debug"), set("limits.in_flight", "9")]).await.unwrap();
    let loaded = || async { store.catalog.load().await.unwrap().stored_settings.into_iter().collect::<Vec<_>>() };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(loaded().await, [pair("limits.in_flight", "9"), pair("log.level", "debug")]);
    assert_eq!(apply(store, &[set("log.level", "debug")]).await.unwrap(), first, "the same value makes no revision");
    let second = apply(store, &[set("log.level", "warn")]).await.unwrap();
    let changed = store.catalog.changed_since(first).await.unwrap();
    assert_eq!(changed.iter().map(|row| (row.revision, row.kind)).collect::<Vec<_>>(), [(second, RowKind::Setting)]);
    let unset = || Change::UnsetSetting { name: "log.level".to_owned() };
    apply(store, &[unset()]).await.unwrap();
    assert_eq!(loaded().await, [pair("limits.in_flight", "9")]);
    assert_eq!(refusal(apply(store, &[unset()]).await.unwrap_err()), ChangeRefusal::NotFound);
    apply(store, &[set("log.level", "error")]).await.unwrap();
    let rows = store.listing.page(&RowFilter::of(RowKind::Setting, 10)).await.unwrap();
    let mut found: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.read::<StoredSetting>().unwrap().value)).collect();
    found.sort();
    assert_eq!(found, [("limits.in_flight", "9".to_owned()), ("log.level", "error".to_owned())]);
}

pub(super) async fn audit_has_the_old_and_the_new_value_of_a_setting(store: &Store) {
    apply(store, &[set("log.slow_ms", "5")]).await.unwrap();
    apply(store, &[set("log.slow_ms", "7")]).await.unwrap();
    apply(store, &[Change::UnsetSetting { name: "log.slow_ms".to_owned() }]).await.unwrap();
    let mut events = store.catalog.audit(None, 10).await.unwrap();
    // A new store has the event of its first member.
    events.truncate(3);
    let of = |detail: &str| {
        let detail: serde_json::Value = serde_json::from_str(detail).unwrap();
        [&detail["before"]["value"], &detail["after"]["value"]].map(|value| value.as_str().map(str::to_owned))
    };
    let found: Vec<_> = events.iter().map(|event| (event.action.as_str(), event.name.as_str(), of(&event.detail))).collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        found,
        [
            ("remove", "log.slow_ms", [text("7"), None]),
            ("put", "log.slow_ms", [text("5"), text("7")]),
            ("put", "log.slow_ms", [None, text("5")]),
        ]
    );
    assert!(events.iter().all(|event| event.kind == AuditKind::Row(RowKind::Setting)));
}
