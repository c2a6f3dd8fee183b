//! Each rule of `verify` detects its violations.

use std::str::FromStr as _;

use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, any::AnyConnectOptions};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tollgate_core::{NanoUsd, RequestId, Timestamp, UsageRecord};

use crate::{
    StoreError, WorkControl,
    conformance::{options, sqlite},
    open,
    rollup::{CellReader, CellWriter, DAY, MINUTE, bucket},
    samples::{MIDNIGHT, arrived, record},
    sql::{
        columns::{Column, ColumnKind},
        sum_tables::{ATTEMPT_SUMS, OF_RECORDS},
    },
    verify::ConsistencyRule,
};

/// Runs SQL on a consistent database and returns the violations that [`LedgerStore::verify`](crate::LedgerStore::verify) finds. The
/// first batch has two entries: 4,000 for two records (one of them SECOND), then 6,000 for three (one of them FIRST).
async fn broken_by(tampering: &str) -> Vec<(ConsistencyRule, i64, i64)> {
    let dir = TempDir::new().unwrap();
    let store = open(options(sqlite(&dir), &dir)).await.unwrap();
    let mut records: Vec<_> = (1..6).map(record).collect();
    for record in &mut records {
        record.cost = Some(NanoUsd(14));
    }
    records[0].attempts[0].cost = None;
    records[0].cost = None;
    store.usage.append(&records).await.unwrap();
    let path = dir.path().join("tollgate.db");
    let url = format!("sqlite:{}?mode=rw", path.display());
    let mut connection = AnyConnection::connect_with(&AnyConnectOptions::from_str(&url).unwrap()).await.unwrap();
    let id = |at: usize| format!("x'{}'", hex::encode(records[at].id.uuid().as_bytes()));
    let tampering = tampering.replace("FIRST", &id(0)).replace("SECOND", &id(1));
    sqlx::raw_sql(AssertSqlSafe(tampering)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let verified = store.ledger.verify(MIDNIGHT, &WorkControl::unattended()).await.unwrap();
    assert_eq!((verified.records, verified.members), (verified.records, 2));
    verified.differences.into_iter().map(|it| (it.rule, it.expected, it.found)).collect()
}

fn rules(found: Vec<(ConsistencyRule, i64, i64)>) -> Vec<ConsistencyRule> {
    found.into_iter().map(|(rule, ..)| rule).collect()
}

#[tokio::test]
async fn verification_ends_when_it_is_cancelled_while_a_query_runs() {
    let dir = TempDir::new().unwrap();
    let store = open(options(sqlite(&dir), &dir)).await.unwrap();
    store.usage.append(&[record(1)]).await.unwrap();
    // Reading the attempt sums is the slowest part of the test.
    let slow = "ALTER TABLE attempt_sums RENAME TO stored; CREATE VIEW attempt_sums AS SELECT * FROM stored WHERE (WITH RECURSIVE \
                numbers(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM numbers WHERE x < 30000000) SELECT COUNT(*) FROM numbers) > 0";
    rusqlite::Connection::open(dir.path().join("tollgate.db")).unwrap().execute_batch(slow).unwrap();
    let token = CancellationToken::new();
    let cancel = token.clone();
    let control = WorkControl::new(token, move |progress| {
        if progress.done == 5 {
            let cancel = cancel.clone();
            std::thread::spawn(move || cancel.cancel());
        }
    });
    let verified = store.ledger.verify(MIDNIGHT, &control).await;
    assert!(matches!(verified, Err(StoreError::Cancelled)), "{verified:?}");
}

#[tokio::test]
async fn consistent_database_has_no_mismatch() {
    assert_eq!(broken_by("SELECT 1").await, []);
}

#[tokio::test]
async fn every_kind_of_tampering_is_detected() {
    use ConsistencyRule::{AttemptRollup, Attempts, Balance, Chain, Cost, EntryKind, Positions, Rollup, Running, Settled, Settles};
    assert_eq!(broken_by("UPDATE balances SET balance = balance + 1 WHERE balance = -4000").await, [(Balance, -4_000, -3_999)]);
    assert_eq!(broken_by("UPDATE ledger SET balance = -1 WHERE seq = 1").await[0], (Running, -4_000, -1));
    assert_eq!(
        broken_by("UPDATE ledger SET kind = 'adjust' WHERE seq = 1").await,
        [(EntryKind, 0, -4_000), (Settled, -4_000, 0), (Chain, 1, 2)]
    );
    let newest = "DELETE FROM ledger WHERE seq = (SELECT MAX(seq) FROM ledger)";
    assert!(broken_by(newest).await.contains(&(Positions, 2, 1)));
    // Of all keys, of the key and in total, of the account, of the tag and by key, each by five minutes, hour and day; totals by day, and
    // by hour and day.
    let sums = [
        (4_500, 4_000, 3),
        (2_500, 2_000, 3),
        (2_500, 2_000, 1),
        (2_500, 2_000, 2),
        (4_500, 4_000, 3),
        (2_500, 2_000, 3),
        (2_500, 2_000, 3),
    ];
    let sums = sums.into_iter().flat_map(|(due, stored, widths)| std::iter::repeat_n((Rollup, due, stored), widths));
    let expected: Vec<_> = std::iter::once((Settled, -6_500, -6_000)).chain(sums).collect();
    assert_eq!(broken_by("UPDATE usage SET sale = 2500 WHERE id = FIRST").await, expected);
    assert_eq!(broken_by("UPDATE usage SET booked = 1 WHERE id = FIRST").await, [(Settled, -2_000, 0), (Settled, -4_000, -6_000)]);
    assert_eq!(broken_by("UPDATE usage SET cost = 15 WHERE id = SECOND").await[0], (Cost, 14, 15));
    assert_eq!(broken_by("UPDATE usage SET cost = 14 WHERE id = FIRST").await[0], (Cost, 7, 14));
    assert_eq!(
        broken_by("DELETE FROM attempts WHERE request = SECOND AND position = 0").await[..2],
        [(Cost, 7, 14), (Attempts, 2, 1)]
    );
    let lost = rules(broken_by("DELETE FROM usage WHERE id = SECOND").await);
    assert!(lost.starts_with(&[Settled, Attempts, Rollup]), "{lost:?}");
    let lost = broken_by("DELETE FROM usage WHERE member = (SELECT member FROM usage WHERE id = SECOND)").await;
    assert_eq!(lost[0], (Settles, 0, -4_000));
    let moved = rules(broken_by("UPDATE ledger SET member_id = 'mbr_x' WHERE seq = 1").await);
    assert!(moved.contains(&Settled) && moved.contains(&Balance), "{moved:?}");
    let counted = rules(broken_by("UPDATE ledger SET requests = requests + 1 WHERE seq = 1").await);
    assert_eq!(counted, [ConsistencyRule::SettledCount, Chain]);
    let more = "UPDATE key_days SET requests = requests + 1 WHERE requests = 1";
    assert_eq!(rules(broken_by(more).await)[..1], [Rollup]);
    let dearer = rules(broken_by("UPDATE attempt_sums SET cost = cost + 1 WHERE width = 60").await);
    assert!(!dearer.is_empty() && dearer.iter().all(|rule| *rule == AttemptRollup), "{dearer:?}");
}

/// The violations that `verify` finds after tampering with a log of four days. The first batch has records of all four days.
async fn broken_in_four_days(tampering: &str) -> Vec<(ConsistencyRule, i64, i64)> {
    let dir = TempDir::new().unwrap();
    let store = open(options(sqlite(&dir), &dir)).await.unwrap();
    let on = |day: i64, number: u64| {
        let record = arrived(record(number), Timestamp(MIDNIGHT.0 + day * DAY + number.cast_signed()));
        UsageRecord { cost: Some(NanoUsd(14)), ..record }
    };
    let batches = [vec![on(0, 2), on(1, 4), on(2, 6), on(3, 8)], vec![on(1, 10), on(1, 12)], vec![on(2, 16)], vec![on(3, 18)]];
    for batch in &batches {
        store.usage.append(batch).await.unwrap();
    }
    let ids = batches.iter().flatten().map(|record| format!("x'{}'", hex::encode(record.id.uuid().as_bytes())));
    let tampering = ids.enumerate().fold(tampering.to_owned(), |sql, (at, id)| sql.replace(&format!("ID{at}"), &id));
    rusqlite::Connection::open(dir.path().join("tollgate.db")).unwrap().execute_batch(&tampering).unwrap();
    let verified = store.ledger.verify(MIDNIGHT, &WorkControl::unattended()).await.unwrap();
    assert_eq!((verified.attempts, verified.entries), (2 * verified.records, 4));
    verified.differences.into_iter().map(|it| (it.rule, it.expected, it.found)).collect()
}

#[tokio::test]
async fn batches_of_several_days_are_compared_with_the_ledger() {
    use ConsistencyRule::{Chain, Settled, SettledCount, Settles};
    let settled = async |tampering: &str| {
        let found = broken_in_four_days(tampering).await;
        found.into_iter().filter(|(rule, ..)| [Settled, SettledCount, Settles, Chain].contains(rule)).collect::<Vec<_>>()
    };
    assert_eq!(broken_in_four_days("SELECT 1").await, []);
    for (record, batch) in [(0, -8_000), (3, -8_000), (4, -4_000), (6, -2_000), (7, -2_000)] {
        let found = settled(&format!("UPDATE usage SET sale = sale + 1 WHERE id = ID{record}")).await;
        assert_eq!(found, [(Settled, batch - 1, batch)], "record {record}");
    }
    // The only record of the third batch.
    assert_eq!(settled("UPDATE usage SET booked = 4 WHERE id = ID6").await, [(Settles, 0, -2_000), (Settled, -4_000, -2_000)]);
    // The entry claims that its last record arrived earlier, or later than any.
    for last_at in ["first_at", "9000000000000000000", "NULL"] {
        let found = settled(&format!("UPDATE ledger SET last_at = {last_at} WHERE seq = 1")).await;
        let late = [(Settled, -2_000, -8_000), (Settled, -6_000, 0), (Chain, 1, 1)];
        assert_eq!(found, if last_at == "first_at" { late.to_vec() } else { vec![(Chain, 1, 1)] }, "{last_at}");
    }
    let twice = "INSERT INTO ledger SELECT 5, member_id, at, kind, amount, balance, batch, requests, first_at, last_at, parts, NULL, note, \
                 actor, address FROM ledger WHERE seq = 4; DELETE FROM ledger WHERE seq = 4";
    assert_eq!(settled(twice).await[..1], [(Chain, 4, 4)], "the same entry at another position");
}

#[tokio::test]
async fn every_column_of_a_rollup_is_compared_with_the_records() {
    let change = |at: usize, column: &Column, key: usize| match column.kind {
        ColumnKind::Bytes => format!("{} = x'0203'", column.name),
        ColumnKind::Small | ColumnKind::Int | ColumnKind::Big | ColumnKind::Text if at < key => format!("{} = 99", column.name),
        ColumnKind::Small | ColumnKind::Int | ColumnKind::Big | ColumnKind::Text => format!("{0} = {0} + 1", column.name),
    };
    for table in OF_RECORDS.into_iter().chain([ATTEMPT_SUMS]).filter(|table| !table.is_packed()) {
        let (name, of_attempts) = (table.name, table.name == ATTEMPT_SUMS.name);
        let rule = if of_attempts { ConsistencyRule::AttemptRollup } else { ConsistencyRule::Rollup };
        let row = if table.has("model") { "model" } else { "key, member" };
        for (at, column) in table.columns.iter().enumerate().skip(2) {
            for width in table.widths.iter().map(|width| width / MINUTE) {
                let change = change(at, column, table.key);
                let of_row = format!("({row}) = (SELECT {row} FROM {name} ORDER BY {row} DESC LIMIT 1)");
                let sql = format!("UPDATE {name} SET {change} WHERE width = {width} AND {of_row}");
                let found = broken_by(&sql).await;
                assert!(!found.is_empty() && found.iter().all(|(found, ..)| *found == rule), "{sql}: {found:?}");
            }
        }
    }
    // Two changes that would cancel each other out in one sum.
    let moved = "UPDATE account_sums SET tokens_input = tokens_input + 5, tokens_output = tokens_output - 5 \
         WHERE width = 1440 AND model = (SELECT MAX(model) FROM account_sums)";
    assert_eq!(broken_by(moved).await.len(), 4, "in the day, and in the month that is the sum of its days");
    // Removing the price of a record changes no count.
    assert!(!broken_by("UPDATE usage SET sale = NULL, model = 1 WHERE id = FIRST").await.is_empty());
    let other_day = "UPDATE usage_sums SET minute = minute - 1440 WHERE width = 1440";
    assert!(!broken_by(other_day).await.is_empty(), "sums of a day without records");
}

#[tokio::test]
async fn every_column_of_packed_sums_is_compared_with_the_records() {
    let dir = TempDir::new().unwrap();
    let store = open(options(sqlite(&dir), &dir)).await.unwrap();
    let records: Vec<_> = (1..6).map(|number| UsageRecord { cost: Some(NanoUsd(14)), ..record(number) }).collect();
    store.usage.append(&records).await.unwrap();
    let database = rusqlite::Connection::open(dir.path().join("tollgate.db")).unwrap();
    for table in OF_RECORDS.iter().filter(|table| table.is_packed()) {
        let (name, columns) = (table.name, table.dimensions().len());
        for width in table.widths.iter().map(|width| width / MINUTE) {
            let of_first = format!("width = {width} AND part = (SELECT MIN(part) FROM {name})");
            let stored = format!("SELECT sums FROM {name} WHERE {of_first}");
            let stored: Vec<u8> = database.query_row(&stored, [], |row| row.get(0)).unwrap();
            // Each column of the last cell, then each figure; widths up to a day are compared in the same way.
            let figures = if width < DAY / MINUTE { 1 } else { 12 };
            let mut changed: Vec<String> =
                (0..columns + figures).map(|at| format!("sums = x'{}'", changed(&stored, columns, at))).collect();
            changed.extend(["part = 99", "sums = x'0203'", "sums = x''"].map(str::to_owned));
            changed.push(format!("sums = x'{}80'", hex::encode(&stored)));
            for change in changed {
                let sql = format!("UPDATE {name} SET {change} WHERE {of_first}");
                let found = broken_by(&sql).await;
                assert!(!found.is_empty() && found.iter().all(|(rule, ..)| *rule == ConsistencyRule::Rollup), "{sql}: {found:?}");
            }
        }
    }
}

/// Packed sums with another value in a column of the last cell, or in one of its figures, which count behind the columns; in hexadecimal
/// digits.
fn changed(stored: &[u8], columns: usize, at: usize) -> String {
    let (mut cells, mut all) = (CellReader::new(stored, columns), Vec::new());
    while let Some((columns, sums)) = cells.next().unwrap() {
        all.push((columns.to_vec(), sums));
    }
    let (last, sums) = all.last_mut().unwrap();
    match at.checked_sub(columns) {
        // A key of the same part.
        None if at == 0 => last[0] += 1,
        None => last[at] = 99,
        Some(figure) => sums.0[figure] += 1,
    }
    let mut writer = CellWriter::default();
    for (columns, sums) in &all {
        writer.push(columns, sums);
    }
    hex::encode(writer.finish())
}

/// Sets `pruned_until` to a number of days from today.
fn set_pruned_until(days: i64) -> String {
    format!("UPDATE counters SET value = {} WHERE name = 'pruned_until';", bucket(MIDNIGHT, DAY) + days * DAY)
}

#[tokio::test]
async fn impossible_pruning_limit_is_detected() {
    let lost = "DELETE FROM attempts WHERE request = SECOND; DELETE FROM usage WHERE id = SECOND;";
    let today = bucket(MIDNIGHT, DAY);
    assert_eq!(broken_by(&format!("{lost} {}", set_pruned_until(1))).await, [(ConsistencyRule::Removed, today - DAY, today + DAY)]);
    assert_eq!(broken_by(&set_pruned_until(0)).await[0], (ConsistencyRule::Removed, today - DAY, today));
    let within_a_day = format!("{} UPDATE counters SET value = value + 1 WHERE name = 'pruned_until'", set_pruned_until(-3));
    assert_eq!(broken_by(&within_a_day).await[0], (ConsistencyRule::Removed, today - 3 * DAY, today - 3 * DAY + 1));
    assert_eq!(broken_by(&set_pruned_until(-1)).await, [], "a setting may have been shorter");
}

#[tokio::test]
async fn rollups_of_removed_records_are_still_verified() {
    // A database whose records of a week ago were removed.
    let week_ago = RequestId::first_at(Timestamp(MIDNIGHT.0 - 7 * DAY)).uuid();
    let time = hex::encode(&week_ago.as_bytes()[..6]);
    let before = format!(
        "UPDATE usage SET id = CAST(x'{time}' || substr(id, 7) AS BLOB); \
         UPDATE attempts SET request = CAST(x'{time}' || substr(request, 7) AS BLOB); \
         UPDATE ledger SET first_at = first_at - 604800000000, last_at = last_at - 604800000000; \
         UPDATE key_sums SET minute = minute - 10080 WHERE width = 1440; DELETE FROM key_sums WHERE width < 1440; \
         DELETE FROM usage_sums; DELETE FROM account_sums; \
         UPDATE key_totals SET minute = minute - 10080 WHERE width = 1440; DELETE FROM key_totals WHERE width < 1440; \
         UPDATE key_days SET minute = minute - 10080; \
         UPDATE tag_sums SET minute = minute - 10080 WHERE width = 1440; DELETE FROM tag_sums WHERE width < 1440; \
         UPDATE key_tag_sums SET minute = minute - 10080 WHERE width = 1440; DELETE FROM key_tag_sums WHERE width < 1440; \
         DELETE FROM attempt_sums; DELETE FROM attempts; DELETE FROM usage;"
    );
    let pruned = format!("{before} {}", set_pruned_until(-3));
    // Making the entries older also breaks the ledger's chain. Only the violations of the other rules are compared here.
    let broken_by = async |tampering: &str| {
        let found = broken_by(tampering).await;
        let (chain, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|(rule, ..)| *rule == ConsistencyRule::Chain);
        assert_eq!(chain, [(ConsistencyRule::Chain, 1, 2)]);
        others
    };
    assert_eq!(broken_by(&pruned).await, []);
    let entry = "UPDATE ledger SET amount = amount + 1 WHERE seq = 1; UPDATE balances SET balance = balance + 1";
    assert!(rules(broken_by(&format!("{pruned} {entry}")).await).contains(&ConsistencyRule::RemovedDays));
    let day = "UPDATE key_days SET sale = sale + 1 WHERE (key, member) = (SELECT key, member FROM key_days ORDER BY key DESC, member DESC LIMIT 1)";
    let both = [ConsistencyRule::Rollup, ConsistencyRule::RemovedDays];
    assert_eq!(rules(broken_by(&format!("{pruned} {day}")).await), both, "the ledger and the totals differ");
    for changed in
        ["DELETE FROM key_totals WHERE width = 1440", "DELETE FROM tag_sums WHERE value = (SELECT MAX(value) FROM tag_sums)"]
    {
        let found = rules(broken_by(&format!("{pruned} {changed}")).await);
        assert!(!found.is_empty() && found.iter().all(|rule| *rule == ConsistencyRule::Rollup), "{changed}: {found:?}");
    }
    let more = pruned.replace("DELETE FROM usage;", "").replace("DELETE FROM attempts;", "");
    assert_eq!(broken_by(&more).await, [], "some may be left");
    let fewer = format!(
        "{more} UPDATE key_days SET requests = 0 WHERE (key, member) = (SELECT key, member FROM key_days ORDER BY key DESC, member DESC LIMIT 1)"
    );
    assert_eq!(rules(broken_by(&fewer).await), both);
}
