//! A gateway moves whole, in as many passes as it takes, and never over something else.

use tempfile::TempDir;
use tollgate_core::UsageRecord;

use super::*;
use crate::{
    AccessMode, Actor, ChangeOrigin, OpenOptions, Posting, PostingKind, SortOrder, Store, StoreUrl, UsageFilter,
    conformance::{Schema, options, postgres, put_account, put_channel, put_group, put_key, sqlite},
    open,
    samples::{NOON, record},
};

const DOOR: ChangeOrigin = ChangeOrigin::Cli;

async fn apply(store: &Store, batch: &[crate::Change]) {
    store.catalog.apply(batch, &Actor { door: DOOR, name: "tester".to_owned() }, NOON).await.unwrap();
}

/// A gateway with a catalog, money and records, three of them in other months.
async fn filled(dir: &TempDir) -> Store {
    let store = open(options(sqlite(dir), dir)).await.unwrap();
    let key = put_key(&store, "ci", &["default"], Some("tk-imported-0123456789"));
    apply(&store, &[put_channel("main"), put_account("main", "a", Some("sk-upstream")), put_group("default", &["main"]), key])
        .await;
    let mut records: Vec<UsageRecord> = (0..40).map(record).collect();
    records[1].at = Timestamp::of_month(NOON.month() - 3);
    records[2].at = Timestamp::of_month(NOON.month() + 1);
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
    };
    store.ledger.post(&posting, NOON).await.unwrap();
    store
}

async fn pass(dir: &TempDir, schema: &Schema) -> Result<Vec<TransferredTable>, StoreError> {
    let StoreUrl::Postgres(url) = schema.address.clone() else { unreachable!("it is PostgreSQL's") };
    let what = DatabaseTransfer { from: dir.path().join("tollgate.db"), place: schema.address.shown(), url, now: NOON };
    let mut last = None;
    let moved = run(&what, &mut |progress| {
        assert!(progress.done <= progress.of, "{progress:?}");
        last = Some((progress.table.to_owned(), progress.done));
    })
    .await?;
    assert!(last.is_some());
    Ok(moved)
}

async fn everything(store: &Store) -> (Vec<UsageRecord>, String) {
    let filter = UsageFilter { limit: 1_000, order: SortOrder::Oldest, ..UsageFilter::default() };
    let records = store.usage.page(&filter).await.unwrap().items;
    let catalog = store.catalog.load().await.unwrap();
    let credential = catalog.channel_by_name("main").unwrap().accounts[0].credential.as_ref().unwrap().expose().to_owned();
    let (balances, spending) = (store.ledger.balances().await.unwrap(), store.ledger.spending(NOON).await.unwrap());
    let mut spent = spending.spent;
    spent.sort_by_key(|(subject, _)| *subject);
    let audit = store.catalog.audit(None, 1_000).await.unwrap();
    let rest = (catalog.revision, credential, balances, spent, spending.ledger, audit, store.keys.list().await.unwrap());
    (records, format!("{rest:#?}"))
}

fn rows(moved: &[TransferredTable], name: &str) -> (u64, u64) {
    let table = moved.iter().find(|table| table.name == name).unwrap();
    (table.copied, table.rows)
}

#[tokio::test]
async fn a_gateway_moves_whole_and_a_second_pass_brings_what_came_since() {
    let Some(schema) = postgres("a_gateway_moves").await else { return };
    let dir = TempDir::new().unwrap();
    let store = filled(&dir).await;
    let moved = pass(&dir, &schema).await.unwrap();
    assert_eq!(rows(&moved, "usage"), (40, 40));

    // The gateway goes on while it was copied, and after.
    store.usage.append(&[record(100), record(101)]).await.unwrap();
    apply(&store, &[put_channel("second")]).await;
    let moved = pass(&dir, &schema).await.unwrap();
    assert_eq!((rows(&moved, "usage"), rows(&moved, "attempts").0), ((2, 42), 4));

    let there = open(options(schema.address.clone(), &dir)).await.unwrap();
    assert_eq!(everything(&there).await, everything(&store).await);
    let hash = there.hasher.hash("tk-imported-0123456789");
    assert_eq!(there.keys.find(&hash).await.unwrap().unwrap().name, "ci");
    let verified = there.ledger.verify(NOON).await.unwrap();
    assert_eq!((verified.records, verified), (42, store.ledger.verify(NOON).await.unwrap()));
    // What the journal still holds is booked by the first start there: known records stay as they are.
    assert_eq!(there.usage.append(&[record(101), record(102)]).await.unwrap(), 1);
    there.close().await;

    let refused = pass(&dir, &schema).await.unwrap_err();
    assert!(matches!(&refused, StoreError::MoveRefused { detail, .. } if detail.contains("used since")), "{refused}");
    schema.drop().await;
}

#[tokio::test]
async fn what_belongs_to_another_gateway_is_not_written_over() {
    let Some(schema) = postgres("what_belongs_to_another").await else { return };
    let (dir, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    filled(&dir).await.close().await;
    open(options(schema.address.clone(), &other)).await.unwrap().close().await;
    let refused = pass(&dir, &schema).await.unwrap_err();
    assert!(matches!(&refused, StoreError::MoveRefused { detail, .. } if detail.contains("another gateway")), "{refused}");
    schema.drop().await;

    let Some(schema) = postgres("what_was_filled_from_another").await else { return };
    filled(&other).await.close().await;
    pass(&other, &schema).await.unwrap();
    let refused = pass(&dir, &schema).await.unwrap_err();
    assert!(matches!(&refused, StoreError::MoveRefused { detail, .. } if detail.contains("filled from")), "{refused}");
    schema.drop().await;
}

#[tokio::test]
async fn a_server_on_the_target_keeps_a_pass_away() {
    let Some(schema) = postgres("a_server_on_the_target").await else { return };
    let (dir, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    filled(&dir).await.close().await;
    let server = open(OpenOptions { access: AccessMode::Serve, ..options(schema.address.clone(), &other) }).await.unwrap();
    assert!(matches!(pass(&dir, &schema).await, Err(StoreError::SecondNode { .. })));
    server.close().await;
    schema.drop().await;
}

#[tokio::test]
async fn records_dropped_at_the_source_are_gone_at_the_target_after_the_next_pass() {
    let Some(schema) = postgres("records_dropped").await else { return };
    let dir = TempDir::new().unwrap();
    filled(&dir).await.close().await;
    pass(&dir, &schema).await.unwrap();
    let mut source = SqliteConnection::connect(&sqlite_url(&dir.path().join("tollgate.db"))).await.unwrap();
    sqlx::raw_sql("DELETE FROM audit WHERE revision = 1").execute(&mut source).await.unwrap();
    source.close().await.unwrap();
    let moved = pass(&dir, &schema).await.unwrap();
    let (copied, rows) = rows(&moved, "audit");
    assert_eq!(copied, rows);
    schema.drop().await;
}

#[tokio::test]
async fn months_are_made_ahead_and_take_what_was_kept_elsewhere() {
    let Some(schema) = postgres("months").await else { return };
    let dir = TempDir::new().unwrap();
    let store = open(options(schema.address.clone(), &dir)).await.unwrap();
    let mut later = record(1);
    later.at = Timestamp::of_month(NOON.month() + 2).plus_ms(5);
    store.usage.append(&[record(2), later.clone()]).await.unwrap();
    assert_eq!(store.usage.make_room(NOON).await.unwrap(), 3);
    assert_eq!(store.usage.make_room(NOON).await.unwrap(), 0);
    assert_eq!(store.usage.append(&[record(2), later.clone(), record(3)]).await.unwrap(), 1, "each once, wherever it is kept");
    assert_eq!(store.usage.find(later.id).await.unwrap(), Some(later));
    let StoreUrl::Postgres(url) = schema.address.clone() else { unreachable!("it is PostgreSQL's") };
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for (table, rows) in [("usage_other", 0), ("usage_2026_11", 2), ("usage_2027_01", 1)] {
        let sql = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
        let found: i64 = sqlx::query(sql).fetch_one(&mut connection).await.unwrap().get(0);
        assert_eq!(found, rows, "{table}");
    }
    connection.close().await.unwrap();
    store.close().await;
    schema.drop().await;
}
