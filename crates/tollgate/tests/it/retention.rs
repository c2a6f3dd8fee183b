//! Retention: old usage records are deleted, their sums stay, and a clock that is ahead deletes nothing.

use std::{fmt::Write as _, path::Path, time::Duration};

use serde_json::Value;
use sqlx::Connection as _;
use tempfile::TempDir;
use tollgate_core::{RequestId, Timestamp};
use tollgate_testkit::{Postgres, TestGateway, TestGatewayBuilder, Upstream, wait_for};

use crate::support;

const FORTY_DAYS_US: i64 = 40 * 86_400_000_000;

/// Makes ledger and sums forty days older.
fn forty_days() -> String {
    let mut sql = "UPDATE ledger SET at = at - 3456000000000, first_at = first_at - 3456000000000, \
         last_at = last_at - 3456000000000; UPDATE attempt_sums SET minute = minute - 57600;"
        .to_owned();
    // The records arrived a moment ago.
    let then = Timestamp(jiff::Timestamp::now().as_microsecond() - FORTY_DAYS_US);
    let month = Timestamp::of_month(then.month()).0 / 60_000_000;
    for table in ["usage_sums", "key_sums", "key_totals", "key_days", "account_sums"] {
        let minute = format!("CASE width WHEN 44640 THEN {month} ELSE minute - 57600 END");
        write!(sql, " UPDATE {table} SET minute = {minute};").unwrap();
    }
    sql
}

/// Sets the log's time to that of its newest record. The gateway may have set it before it stopped.
const TIME: &str = "INSERT INTO counters (name, value) SELECT 'log_time', MAX(last_at) FROM ledger WHERE true \
    ON CONFLICT (name) DO UPDATE SET value = excluded.value;";

/// Makes the records of PostgreSQL forty days older: their ids begin with the millisecond of arrival.
const FORTY_DAYS_OF_POSTGRES: &str = "UPDATE usage SET id = decode(lpad(to_hex(('x' || encode(substring(id FROM 1 FOR 6), \
     'hex'))::bit(48)::bigint - 3456000000), 12, '0'), 'hex') || substring(id FROM 7);";

/// The same id, forty days older.
fn older(id: &[u8]) -> Vec<u8> {
    let id = RequestId::from_uuid(uuid::Uuid::from_slice(id).unwrap());
    let time = RequestId::first_at(Timestamp(id.time().0 - FORTY_DAYS_US)).uuid();
    [&time.as_bytes()[..6], &id.uuid().as_bytes()[6..]].concat()
}

/// Makes everything in the SQLite database of a stopped gateway forty days older.
fn make_older(data: &TempDir) {
    change(data, &forty_days());
    let place = format!("sqlite:{}", data.path().join("tollgate.db").display());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&place).await.unwrap();
        let ids: Vec<Vec<u8>> = sqlx::query_scalar("SELECT id FROM usage").fetch_all(&mut database).await.unwrap();
        for id in ids {
            let query = sqlx::query("UPDATE usage SET id = $1 WHERE id = $2").bind(older(&id)).bind(id);
            query.execute(&mut database).await.unwrap();
        }
        database.close().await.unwrap();
    });
}

/// The arrival of the oldest record of an SQLite database.
fn oldest_record(data: &Path) -> Timestamp {
    let place = format!("sqlite:{}?mode=ro", data.join("tollgate.db").display());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&place).await.unwrap();
        let id: Vec<u8> = sqlx::query_scalar("SELECT MIN(id) FROM usage").fetch_one(&mut database).await.unwrap();
        database.close().await.unwrap();
        RequestId::from_uuid(uuid::Uuid::from_slice(&id).unwrap()).time()
    })
}

/// Changes the SQLite database of a stopped gateway.
fn change(data: &TempDir, statements: &str) {
    let place = format!("sqlite:{}", data.path().join("tollgate.db").display());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&place).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(statements.to_owned())).execute(&mut database).await.unwrap();
        database.close().await.unwrap();
    });
}

fn number_in(data: &Path, query: &'static str) -> i64 {
    let place = format!("sqlite:{}?mode=ro", data.join("tollgate.db").display());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&place).await.unwrap();
        let number = sqlx::query_scalar(query).fetch_one(&mut database).await.unwrap();
        database.close().await.unwrap();
        number
    })
}

fn gateway(upstream: &Upstream) -> TestGatewayBuilder {
    support::builder(upstream, "").env("TOLLGATE_USAGE__RETENTION_DAYS", "30")
}

fn requests_summed_up(gateway: &TestGateway) -> u64 {
    let out = gateway.run(&["--json", "usage", "summary"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let summary: Value = serde_json::from_slice(&out.stdout).unwrap();
    let rows = summary.as_array().or_else(|| summary["items"].as_array()).expect("rows").clone();
    rows.iter().map(|row| row["requests"].as_u64().unwrap()).sum()
}

/// Serves three requests and stops; returns the data folder.
fn three_served(mut gateway: TestGateway) -> TempDir {
    for _ in 0..3 {
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    }
    assert_eq!(gateway.stop(), Some(0));
    gateway.into_data()
}

/// Serves three requests and continues forty days later by log time: the records are deleted, their sums stay.
fn old_records_go(gateway: &dyn Fn() -> TestGatewayBuilder, forty_days_later: &dyn Fn(&TempDir)) {
    let data = three_served(gateway().spawn());
    forty_days_later(&data);
    let gateway = gateway().data_folder(data).without_record_check().spawn();
    let answer = gateway.chat(&support::chat("chat-model"));
    assert_eq!(gateway.record_of(&answer)["status"], 200);
    wait_for("old records go", Duration::from_secs(2), || gateway.records().len() == 1);
    assert_eq!(gateway.records()[0]["id"], answer.header("x-request-id").unwrap());
    wait_for("sums", Duration::from_secs(2), || requests_summed_up(&gateway) == 4);
    // The test made the ledger's entries older, which `verify` reports; everything else agrees.
    let verified: Value = serde_json::from_slice(&gateway.run(&["verify", "--json"]).stdout).unwrap();
    let differences = verified["differences"].as_array().unwrap();
    assert!(!differences.is_empty() && differences.iter().all(|it| it["rule"] == "chain"), "{verified}");
    assert!(differences.iter().all(|it| it["what"].as_str().unwrap().starts_with("ledger entries ")), "{verified}");
}

#[test]
fn old_records_are_deleted_by_log_time() {
    let upstream = Upstream::start();
    old_records_go(&|| gateway(&upstream), &|data| {
        change(data, TIME);
        make_older(data);
    });
}

#[test]
fn old_records_are_deleted_from_postgresql() {
    let Some(postgres) = Postgres::start("old_records_are_deleted_from_postgresql") else { return };
    let upstream = Upstream::start();
    let gateway = || gateway(&upstream).env("DATABASE_URL", &postgres.url());
    old_records_go(&gateway, &|_| {
        wait_for("three records", Duration::from_secs(2), || postgres.sql("SELECT COUNT(*) FROM usage") == "3");
        postgres.sql(TIME);
        postgres.sql(&forty_days());
        postgres.sql(FORTY_DAYS_OF_POSTGRES);
    });
}

#[test]
fn clock_forty_days_ahead_deletes_no_records() {
    let upstream = Upstream::start();
    let mut data = three_served(gateway(&upstream).spawn());
    // Relative to these records a correct clock is ahead.
    make_older(&data);
    for start in 1..=3 {
        let mut again = gateway(&upstream).data_folder(data).spawn();
        let answer = again.chat(&support::chat("chat-model"));
        assert_eq!(again.record_of(&answer)["status"], 200);
        let is_set = || number_in(again.data(), "SELECT COUNT(*) FROM counters WHERE name = 'log_time'") == 1;
        wait_for("the time of the log", Duration::from_secs(2), is_set);
        assert_eq!(again.stop(), Some(0));
        data = again.into_data();
        assert_eq!(number_in(data.path(), "SELECT COUNT(*) FROM usage"), 3 + start);
        let time = number_in(data.path(), "SELECT value FROM counters WHERE name = 'log_time'");
        assert!((0..60_000_000).contains(&(time - oldest_record(data.path()).0)), "the time has not changed");
    }
}
