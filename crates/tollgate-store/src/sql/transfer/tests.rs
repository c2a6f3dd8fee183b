//! A transfer is complete, can be repeated, and never overwrites another gateway.

use tempfile::TempDir;
use tollgate_core::UsageRecord;

use super::*;
use crate::{
    AccessMode, Actor, ChangeOrigin, OpenOptions, Posting, PostingKind, SortOrder, Store, StoreUrl, UsageFilter, WorkControl,
    conformance::{Schema, options, postgres, put_account, put_channel, put_group, put_key, sqlite},
    open,
    samples::{MIDNIGHT, arrived, record},
};

async fn apply(store: &Store, batch: &[crate::Change]) {
    store.catalog.apply(batch, &Actor::local(ChangeOrigin::Cli, "tester"), MIDNIGHT).await.unwrap();
}

/// A gateway with a catalog, money and records, two of which are of other months.
async fn filled(dir: &TempDir) -> Store {
    let store = open(options(sqlite(dir), dir)).await.unwrap();
    let key = put_key(&store, "ci", &["default"], Some("tk-imported-0123456789"));
    apply(&store, &[put_channel("main"), put_account("main", "a", Some("sk-upstream")), put_group("default", &["main"]), key])
        .await;
    let mut records: Vec<UsageRecord> = (0..40).map(record).collect();
    records[1] = arrived(record(1), Timestamp::of_month(MIDNIGHT.month() - 3));
    records[2] = arrived(record(2), Timestamp::of_month(MIDNIGHT.month() - 1));
    records[3].detail = Some("tab\there, \\N, \"quotes\"\nand a line".to_owned());
    store.usage.append(&records).await.unwrap();
    let member = store.keys.list().await.unwrap()[0].member.id;
    let posting = Posting {
        member,
        kind: PostingKind::TopUp,
        amount: tollgate_core::NanoUsd(5_000),
        idempotency_key: Some("once".to_owned()),
        note: "a top-up".to_owned(),
        actor: "tester".to_owned(),
        address: Some("203.0.113.9".parse().unwrap()),
    };
    store.ledger.post(&posting, MIDNIGHT).await.unwrap();
    store
}

async fn pass(dir: &TempDir, schema: &Schema) -> Result<Vec<TransferredTable>, StoreError> {
    let StoreUrl::Postgres(url) = schema.address.clone() else { unreachable!("the schema is on PostgreSQL") };
    let transfer =
        DatabaseTransfer { from: dir.path().join("tollgate.db"), shown: schema.address.shown(), url, now: MIDNIGHT, keep_days: 0 };
    let mut last = None;
    let transferred = run(&transfer, &mut |progress| {
        assert!(progress.done <= progress.of, "{progress:?}");
        last = Some((progress.table.to_owned(), progress.done));
    })
    .await?;
    assert!(last.is_some());
    Ok(transferred)
}

async fn everything(store: &Store) -> (Vec<UsageRecord>, String) {
    let filter = UsageFilter { limit: 1_000, order: SortOrder::Oldest, ..UsageFilter::default() };
    let records = store.usage.page(&filter).await.unwrap().items;
    let catalog = store.catalog.load().await.unwrap();
    let credential = catalog.channel_by_name("main").unwrap().accounts[0].credential.as_ref().unwrap().expose().to_owned();
    let (balances, spending) = (store.ledger.balances().await.unwrap(), store.ledger.spending(MIDNIGHT).await.unwrap());
    let mut spent = spending.spent;
    spent.sort_by_key(|(subject, _)| *subject);
    let audit = store.catalog.audit(None, 1_000).await.unwrap();
    let rest = (catalog.revision, credential, balances, spent, spending.ledger, audit, store.keys.list().await.unwrap());
    (records, format!("{rest:#?}"))
}

fn rows(transferred: &[TransferredTable], name: &str) -> (u64, u64) {
    let table = transferred.iter().find(|table| table.name == name).unwrap();
    (table.copied, table.rows)
}

#[tokio::test]
async fn second_pass_copies_rows_added_since_the_first() {
    let Some(schema) = postgres("a_gateway_moves").await else { return };
    let dir = TempDir::new().unwrap();
    let store = filled(&dir).await;
    let transferred = pass(&dir, &schema).await.unwrap();
    assert_eq!(rows(&transferred, "usage"), (40, 40));
    let sums = rows(&transferred, "key_sums");
    assert!(sums.0 > 0 && sums.0 == sums.1, "{sums:?}");

    // The gateway keeps running.
    store.usage.append(&[record(100), record(101)]).await.unwrap();
    apply(&store, &[put_channel("second")]).await;
    let transferred = pass(&dir, &schema).await.unwrap();
    assert_eq!((rows(&transferred, "usage"), rows(&transferred, "attempts").0), ((2, 42), 4));

    let target = open(options(schema.address.clone(), &dir)).await.unwrap();
    assert_eq!(everything(&target).await, everything(&store).await);
    let hash = target.hasher.hash("tk-imported-0123456789");
    assert_eq!(target.keys.find(&hash).await.unwrap().unwrap().name, "ci");
    let verified = target.ledger.verify(MIDNIGHT, &WorkControl::unattended()).await.unwrap();
    assert_eq!((verified.records, verified), (42, store.ledger.verify(MIDNIGHT, &WorkControl::unattended()).await.unwrap()));
    // The first start on PostgreSQL appends the records of the journal. Copied ones are skipped.
    assert_eq!(target.usage.append(&[record(101), record(102)]).await.unwrap(), 1);
    target.close().await;

    let refused = pass(&dir, &schema).await.unwrap_err();
    assert!(matches!(&refused, StoreError::TransferRefused { detail, .. } if detail.contains("used since")), "{refused}");
    schema.drop().await;
}

#[tokio::test]
async fn target_of_another_gateway_is_refused() {
    let Some(schema) = postgres("what_belongs_to_another").await else { return };
    let (dir, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    filled(&dir).await.close().await;
    open(options(schema.address.clone(), &other)).await.unwrap().close().await;
    let refused = pass(&dir, &schema).await.unwrap_err();
    assert!(matches!(&refused, StoreError::TransferRefused { detail, .. } if detail.contains("another gateway")), "{refused}");
    schema.drop().await;

    let Some(schema) = postgres("what_was_filled_from_another").await else { return };
    let another = TempDir::new().unwrap();
    filled(&another).await.close().await;
    pass(&another, &schema).await.unwrap();
    let refused = pass(&dir, &schema).await.unwrap_err();
    assert!(matches!(&refused, StoreError::TransferRefused { detail, .. } if detail.contains("filled from")), "{refused}");
    schema.drop().await;
}

#[tokio::test]
async fn target_with_a_running_server_is_refused() {
    let Some(schema) = postgres("a_server_on_the_target").await else { return };
    let (dir, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    filled(&dir).await.close().await;
    let server = open(OpenOptions { access: AccessMode::Serve, ..options(schema.address.clone(), &other) }).await.unwrap();
    assert!(matches!(pass(&dir, &schema).await, Err(StoreError::SecondNode { .. })));
    server.close().await;
    schema.drop().await;
}

#[tokio::test]
async fn rows_removed_from_the_source_are_removed_from_the_target() {
    let Some(schema) = postgres("records_dropped").await else { return };
    let dir = TempDir::new().unwrap();
    filled(&dir).await.close().await;
    pass(&dir, &schema).await.unwrap();
    let mut source = SqliteConnection::connect(&sqlite_url(&dir.path().join("tollgate.db"))).await.unwrap();
    sqlx::raw_sql("DELETE FROM audit WHERE revision = 1").execute(&mut source).await.unwrap();
    source.close().await.unwrap();
    let transferred = pass(&dir, &schema).await.unwrap();
    let (copied, rows) = rows(&transferred, "audit");
    assert_eq!(copied, rows);
    schema.drop().await;
}

#[tokio::test]
async fn new_partition_takes_over_its_records_from_the_default_partition() {
    let Some(schema) = postgres("days").await else { return };
    let dir = TempDir::new().unwrap();
    let store = open(options(schema.address.clone(), &dir)).await.unwrap();
    let later = arrived(record(1), Timestamp::of_day(MIDNIGHT.day() + 2).plus_ms(5));
    store.usage.append(&[record(2), later.clone()]).await.unwrap();
    assert_eq!(store.usage.create_partitions(MIDNIGHT, 7).await.unwrap(), 8);
    assert_eq!(store.usage.create_partitions(MIDNIGHT, 7).await.unwrap(), 0);
    assert_eq!(store.usage.append(&[record(2), later.clone(), record(3)]).await.unwrap(), 1, "once each, in whichever partition");
    assert_eq!(store.usage.find(later.id).await.unwrap(), Some(later));
    let StoreUrl::Postgres(url) = schema.address.clone() else { unreachable!("the schema is on PostgreSQL") };
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for (table, rows) in [("usage_other", 0), ("usage_2026_11_21", 2), ("usage_2026_11_23", 1), ("attempts_2026_11_21", 4)] {
        let sql = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
        let found: i64 = sqlx::query(sql).fetch_one(&mut connection).await.unwrap().get(0);
        assert_eq!(found, rows, "{table}");
    }
    connection.close().await.unwrap();
    store.close().await;
    schema.drop().await;
}
