//! Retention removes records with all that belongs to them; on PostgreSQL it drops partitions.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqliteConnection};
use tempfile::TempDir;
use tollgate_core::{NanoUsd, UsageRecord};

use super::*;
use crate::{
    Store, StoreUrl, SummaryBy, UsageFilter, VerifyReport, WorkControl,
    conformance::{Schema, options, postgres, sqlite},
    open,
    samples::{MIDNIGHT, arrived, record},
    sql::{self, address::sqlite_url},
};

#[tokio::test]
async fn sums_by_five_minutes_are_removed_with_their_records() {
    let dir = TempDir::new().unwrap();
    let store = open(options(sqlite(&dir), &dir)).await.unwrap();
    // One record per minute; the first day has more than two slices.
    let arrive = |number: u64| record(number * 60_000);
    let records: Vec<UsageRecord> = (0..1_500).map(arrive).collect();
    store.usage.append(&records).await.unwrap();
    let mut database = SqliteConnection::connect(&sqlite_url(&dir.path().join("tollgate.db"))).await.unwrap();
    let mut left = Vec::new();
    while store.usage.prune(Timestamp(MIDNIGHT.0 + DAY + 7)).await.unwrap().is_some() {
        let sql = "SELECT MIN(minute) - $1 FROM key_sums WHERE width = 5";
        let first: i64 = sqlx::query_scalar(sql).bind(MIDNIGHT.0 / MINUTE).fetch_one(&mut database).await.unwrap();
        left.push(first);
    }
    assert_eq!(left, [500, 1_000, 1_440], "minutes of the first sums");
    let sums = store.usage.summary(&UsageFilter::default(), SummaryBy::Nothing.into()).await.unwrap();
    assert_eq!(sums[0].requests, 1_500, "of hours and days");
    database.close().await.unwrap();
}

/// Record `number` of a day after that of the samples.
fn of_day(day: i64, number: u64) -> UsageRecord {
    arrived(UsageRecord { cost: Some(NanoUsd(14)), ..record(number) }, day_start(day).plus_ms(i64::try_from(number).unwrap()))
}

fn day_start(day: i64) -> Timestamp {
    Timestamp::of_day(MIDNIGHT.day() + day)
}

/// Removes all due records. Returns their number.
async fn prune(store: &Store, before: Timestamp) -> u64 {
    let mut removed = 0;
    while let Some(more) = store.usage.prune(before).await.unwrap() {
        removed += more;
    }
    removed
}

async fn verify(store: &Store) -> VerifyReport {
    store.ledger.verify(day_start(300), &WorkControl::unattended()).await.unwrap()
}

/// A usage log with partitions in a schema of its own.
struct PartitionedLog {
    schema: Schema,
    dir: TempDir,
    store: Store,
}

impl PartitionedLog {
    /// The partitions are those for records that are kept for `days`. `None` without PostgreSQL.
    async fn open(name: &str, days: u64) -> Option<Self> {
        let schema = postgres(name).await?;
        let dir = TempDir::new().unwrap();
        let store = open(options(schema.address.clone(), &dir)).await.unwrap();
        store.usage.create_partitions(MIDNIGHT, days).await.unwrap();
        Some(Self { schema, dir, store })
    }

    fn url(&self) -> String {
        let StoreUrl::Postgres(url) = self.schema.address.clone() else { unreachable!("the schema is on PostgreSQL") };
        url
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.unwrap()
    }

    async fn close(self) {
        self.store.close().await;
        self.schema.drop().await;
    }
}

/// The number of rows of a table; `None` if there is no such table.
async fn rows(connection: &mut PgConnection, table: &str) -> Option<i64> {
    let exists: bool =
        sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(table).fetch_one(&mut *connection).await.unwrap();
    let sql = AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
    if exists { Some(sqlx::query_scalar(sql).fetch_one(&mut *connection).await.unwrap()) } else { None }
}

#[tokio::test]
async fn partition_is_dropped_when_its_day_is_due() {
    let Some(log) = PartitionedLog::open("a_day_is_dropped", 7).await else { return };
    let store = &log.store;
    let mut connection = log.connect().await;
    let (first, second): (Vec<_>, Vec<_>) = ((1..41).map(|number| of_day(0, number)).collect(), vec![of_day(1, 1), of_day(1, 2)]);
    store.usage.append(&[&first[..], &second[..]].concat()).await.unwrap();
    assert_eq!(rows(&mut connection, "usage_2026_11_21").await, Some(40));
    let balances = store.ledger.balances().await.unwrap();

    assert_eq!(prune(store, Timestamp(day_start(1).0 + 5)).await, 40);
    for (table, expected) in
        [("usage_2026_11_21", None), ("attempts_2026_11_21", None), ("usage_2026_11_22", Some(2)), ("usage_other", Some(0))]
    {
        assert_eq!(rows(&mut connection, table).await, expected, "{table}");
    }
    let priced = first.iter().filter(|record| record.sale.is_some()).count();
    assert_eq!(rows(&mut connection, "removed_2026_11_21").await, i64::try_from(priced).ok());
    let sums: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM key_sums WHERE width = 5 AND minute < $1")
        .bind(i32::try_from(day_start(1).0 / MINUTE).unwrap())
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!((sums, verify(store).await.differences), (0, Vec::new()));

    // Appends them again, as if a journal still contained them.
    assert_eq!(store.usage.append(&first).await.unwrap(), 0);
    assert_eq!(store.ledger.balances().await.unwrap(), balances);
    let late = of_day(0, 50);
    assert_eq!(store.usage.append(&[late.clone(), of_day(0, 7)]).await.unwrap(), 1, "only what was never booked");
    assert_eq!(store.usage.append(std::slice::from_ref(&late)).await.unwrap(), 0);
    assert_eq!((rows(&mut connection, "usage_other").await, verify(store).await.differences), (Some(1), Vec::new()));
    assert_eq!(prune(store, day_start(1)).await, 1);
    assert_eq!(store.usage.append(&[late]).await.unwrap(), 0);

    // The ids are removed with their day, after thirty days.
    assert_eq!(prune(store, day_start(30)).await, 2);
    assert!(rows(&mut connection, "removed_2026_11_21").await.is_some());
    prune(store, day_start(31)).await;
    store.usage.append(&[of_day(40, 1)]).await.unwrap();
    prune(store, day_start(41)).await;
    assert_eq!(rows(&mut connection, "removed_2026_11_21").await, None);
    assert_eq!(verify(store).await.differences, []);
    connection.close().await.unwrap();
    log.close().await;
}

#[tokio::test]
async fn week_is_dropped_when_its_last_day_is_due() {
    let Some(log) = PartitionedLog::open("a_week_is_dropped", 365).await else { return };
    let store = &log.store;
    let records: Vec<UsageRecord> = (0..14).map(|day| of_day(day, 1)).collect();
    store.usage.append(&records).await.unwrap();
    // The week of the samples ends with 25 November.
    assert_eq!(prune(store, day_start(4)).await, 0);
    assert_eq!(prune(store, day_start(5)).await, 5);
    assert_eq!(prune(store, day_start(11)).await, 0);
    assert_eq!(prune(store, day_start(12)).await, 7);
    assert_eq!((verify(store).await.differences, store.usage.append(&records).await.unwrap()), (Vec::new(), 0));
    log.close().await;
}

#[tokio::test]
async fn partition_in_use_is_dropped_later_without_blocking_bookings() {
    let Some(log) = PartitionedLog::open("a_partition_in_use", 7).await else { return };
    let store = &log.store;
    store.usage.append(&[of_day(0, 1), of_day(1, 1)]).await.unwrap();
    let mut reader = log.connect().await;
    reader.execute("BEGIN; SELECT COUNT(*) FROM usage").await.unwrap();
    let booking = async {
        let mut booked = 0;
        for number in 2..12 {
            booked += store.usage.append(&[of_day(0, number), of_day(1, number)]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        booked
    };
    let (removed, booked) = tokio::join!(prune(store, day_start(1)), tokio::time::timeout(Duration::from_secs(20), booking));
    assert_eq!((removed, rows(&mut reader, "usage_2026_11_21").await.is_some()), (0, true));
    assert!(booked.expect("bookings wait for no reader") > 0);
    reader.execute("COMMIT").await.unwrap();
    assert!(prune(store, day_start(1)).await > 0);
    assert_eq!((rows(&mut reader, "usage_2026_11_21").await, verify(store).await.differences), (None, Vec::new()));
    reader.close().await.unwrap();
    log.close().await;
}

#[tokio::test]
async fn partition_already_dropped_by_another_node_is_skipped() {
    let Some(log) = PartitionedLog::open("a_drop_on_another_node", 7).await else { return };
    log.store.usage.append(&[of_day(0, 1), of_day(1, 1)]).await.unwrap();
    let node_dir = TempDir::new().unwrap();
    std::fs::copy(log.dir.path().join("master.key"), node_dir.path().join("master.key")).unwrap();
    let address = sql::SqlAddress::Postgres { url: log.url(), shown: "another node's".to_owned() };
    let node = sql::open(address, &options(log.schema.address.clone(), &node_dir)).await.unwrap();
    let (before, range) = (day_start(1), node.partitions("usage").await.unwrap()[0]);
    while node.retention.of(range).is_none() {
        assert_eq!(node.prune_step(before).await.unwrap(), Some(0));
    }
    assert_eq!(prune(&log.store, before).await, 1);
    // The node has listed its partitions before the other one dropped this.
    assert_eq!(node.drop_step(range, before.0).await.unwrap(), Some(0));
    assert_eq!((node.retention.of(range).is_none(), node.prune_step(before).await.unwrap()), (true, None));
    node.close().await;
    log.close().await;
}

#[tokio::test]
async fn late_records_during_a_partition_drop_are_booked_once() {
    let Some(log) = PartitionedLog::open("late_records_beside_a_drop", 7).await else { return };
    let store = &log.store;
    let mut connection = log.connect().await;
    let priced = |number| UsageRecord { sale: Some(NanoUsd(2_000)), ..of_day(0, number) };
    let mut records: Vec<UsageRecord> = (1..20).map(priced).collect();
    store.usage.append(&records).await.unwrap();
    for number in 100.. {
        assert!(store.usage.prune(day_start(1)).await.unwrap().is_some());
        if rows(&mut connection, "usage_2026_11_21").await.is_none() {
            break;
        }
        records.push(priced(number));
        assert_eq!(store.usage.append(&records).await.unwrap(), 1, "{number}");
    }
    assert!(records.len() > 20, "it is dropped in several steps");
    assert_eq!((store.usage.append(&records).await.unwrap(), verify(store).await.differences), (0, Vec::new()));
    connection.close().await.unwrap();
    log.close().await;
}

#[tokio::test]
async fn records_replayed_during_a_partition_drop_are_booked_once() {
    let Some(log) = PartitionedLog::open("a_replay_beside_a_drop", 7).await else { return };
    let store = &log.store;
    // All records have a price, because only priced ones leave a trace that shows whether they were stored.
    let priced = |day, number: u64| UsageRecord { sale: Some(NanoUsd(2_000)), ..of_day(day, number) };
    let stored: Vec<UsageRecord> = (0..600).map(|number| priced(0, number)).collect();
    store.usage.append(&stored).await.unwrap();
    let is_replayed = AtomicBool::new(false);
    let replay = async {
        for round in 0..40 {
            // Old ones, late ones and new ones.
            let old = stored.iter().skip(usize::try_from(round).unwrap() * 15).take(15).cloned();
            let late = (0..10).map(|number| priced(0, 1_000 + round * 10 + number));
            let new = (0..10).map(|number| priced(1, round * 10 + number));
            let batch: Vec<UsageRecord> = old.chain(late).chain(new).collect();
            assert_eq!(store.usage.append(&batch).await.unwrap(), 20, "round {round}");
        }
        is_replayed.store(true, Ordering::Relaxed);
    };
    let removal = async {
        let mut removed = 0;
        while !is_replayed.load(Ordering::Relaxed) {
            removed += prune(store, day_start(1)).await;
        }
        removed
    };
    let ((), mut removed) = tokio::join!(replay, removal);
    removed += prune(store, day_start(1)).await;
    // Late records that were dropped with the partition must not be counted.
    assert!((600..=1_000).contains(&removed), "{removed}");
    let left = store.usage.page(&UsageFilter { limit: 1_000, ..UsageFilter::default() }).await.unwrap().items;
    assert!(left.len() == 400 && left.iter().all(|record| record.at >= day_start(1)));
    let sums = store.usage.summary(&UsageFilter::default(), SummaryBy::Nothing.into()).await.unwrap();
    assert_eq!(sums[0].requests, 1_400);
    assert_eq!(sums[0].sale, NanoUsd(2_000 * 1_400));
    assert_eq!(verify(store).await.differences, []);
    log.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_in_progress_misses_no_record_that_retention_removes() {
    let Some(log) = PartitionedLog::open("a_drop_beside_a_verification", 7).await else { return };
    let store = &log.store;
    store.usage.append(&(1..20).map(|number| of_day(0, number)).collect::<Vec<_>>()).await.unwrap();
    let (address, data) = (log.schema.address.clone(), log.dir.path().to_owned());
    // The removal happens before the verification reads a record.
    let control = WorkControl::new(tokio_util::sync::CancellationToken::new(), move |progress| {
        if progress.done == 2 {
            let (address, data) = (address.clone(), data.clone());
            let pruned = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let other = open(crate::OpenOptions { data, ..options(address, &TempDir::new().unwrap()) }).await.unwrap();
                    let removed = prune(&other, day_start(1)).await;
                    other.close().await;
                    removed
                })
            });
            pruned.join().unwrap();
        }
    });
    let verified = store.ledger.verify(day_start(300), &control).await.unwrap();
    assert_eq!((verified.records, verified.differences), (19, Vec::new()));
    assert_eq!(prune(store, day_start(1)).await, 19);
    assert_eq!(verify(store).await.differences, []);
    log.close().await;
}
