//! Tampering with rows that a chain covers.

use tempfile::TempDir;
use tollgate_core::NanoUsd;

use crate::{
    ChangeOrigin, Posting, PostingKind, Store, WorkControl,
    conformance::{actor, apply, options, put_group, sqlite},
    open,
    samples::{MIDNIGHT, record},
    verify::ConsistencyRule,
};

/// A database with a few audit events, records and postings, after a statement was run on it. Returns the violated rules.
async fn after(tampering: &str) -> Vec<(ConsistencyRule, String)> {
    let dir = TempDir::new().unwrap();
    let store = open(options(sqlite(&dir), &dir)).await.unwrap();
    write(&store).await;
    rusqlite::Connection::open(dir.path().join("tollgate.db")).unwrap().execute_batch(tampering).unwrap();
    let report = store.ledger.verify(MIDNIGHT, &WorkControl::unattended()).await.unwrap();
    let chains = report.differences.into_iter().filter(|it| matches!(it.rule, ConsistencyRule::Chain | ConsistencyRule::ChainEnd));
    chains.map(|it| (it.rule, it.what)).collect()
}

async fn write(store: &Store) {
    for name in ["one", "two", "three"] {
        apply(store, &[put_group(name, &[])]).await.unwrap();
    }
    store.usage.append(&(1..4).map(record).collect::<Vec<_>>()).await.unwrap();
    let owner = store.ledger.balances().await.unwrap().into_iter().find(|balance| balance.name == "owner").unwrap().member;
    let posting = Posting {
        member: owner,
        kind: PostingKind::TopUp,
        amount: NanoUsd(5),
        idempotency_key: None,
        note: "paid".to_owned(),
        actor: actor(ChangeOrigin::Cli).name,
        address: Some("203.0.113.9".parse().unwrap()),
    };
    store.ledger.post(&posting, MIDNIGHT).await.unwrap();
    store.usage.append(&(4..6).map(record).collect::<Vec<_>>()).await.unwrap();
}

#[tokio::test]
async fn untampered_chains_are_consistent() {
    assert!(after("SELECT 1").await.is_empty());
}

#[tokio::test]
async fn removed_changed_and_added_audit_events_are_detected() {
    let rules = |found: Vec<(ConsistencyRule, String)>| found.into_iter().map(|(rule, _)| rule).collect::<Vec<_>>();
    let found = after("DELETE FROM audit WHERE revision = 3").await;
    assert_eq!(found, [(ConsistencyRule::Chain, "audit events of revisions 3 to 3".to_owned())]);
    assert_eq!(rules(after("UPDATE audit SET actor = 'another' WHERE revision = 2").await), [ConsistencyRule::Chain]);
    let with_link = "DELETE FROM audit WHERE revision = 3; DELETE FROM chain_links WHERE chain = 'audit' AND last = 3";
    assert_eq!(rules(after(with_link).await), [ConsistencyRule::Chain], "the next link names the removed one");
    let newest = "DELETE FROM audit WHERE revision = 4; DELETE FROM chain_links WHERE chain = 'audit' AND last = 4";
    assert_eq!(rules(after(newest).await), [ConsistencyRule::ChainEnd]);
    let with_head = format!(
        "{newest}; UPDATE chain_heads SET last = 3, mac = (SELECT mac FROM chain_links WHERE chain = 'audit' AND last = 3) WHERE chain = 'audit'"
    );
    assert_eq!(rules(after(&with_head).await), [ConsistencyRule::ChainEnd], "the head has a separate MAC");
    let all = "DELETE FROM audit; DELETE FROM chain_links WHERE chain = 'audit'";
    assert_eq!(rules(after(all).await), [ConsistencyRule::ChainEnd]);
    let added = "INSERT INTO audit SELECT revision + 100, position, at, origin, actor, action, kind, id, name, detail, address FROM audit \
                 WHERE revision = 2";
    assert_eq!(rules(after(added).await), [ConsistencyRule::Chain]);
}

#[tokio::test]
async fn edited_ledger_entries_are_detected_though_the_balances_match() {
    // Columns that no other rule reads: author and note.
    let found = after("UPDATE ledger SET note = 'gift' WHERE kind = 'top_up'").await;
    assert_eq!(found, [(ConsistencyRule::Chain, "ledger entries 3 to 3".to_owned())]);
    assert_eq!(after("UPDATE ledger SET at = at - 1 WHERE seq = 2").await.len(), 1);
    assert_eq!(after("DELETE FROM ledger WHERE seq = 5").await.len(), 1);
}

#[tokio::test]
async fn address_columns_are_covered_by_the_chains() {
    for tampering in [
        "UPDATE audit SET address = '198.51.100.1' WHERE revision = 2",
        "UPDATE audit SET address = NULL WHERE revision = 2",
        "UPDATE ledger SET address = '198.51.100.1' WHERE kind = 'top_up'",
        "UPDATE ledger SET address = '198.51.100.1' WHERE seq = (SELECT MIN(seq) FROM ledger WHERE kind = 'settle')",
    ] {
        let found = after(tampering).await;
        assert!(matches!(found.as_slice(), [(ConsistencyRule::Chain, _)]), "{tampering}: {found:?}");
    }
}
