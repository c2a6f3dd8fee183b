//! Retention: old usage records are deleted, their sums stay, and a clock that is ahead deletes nothing.

use std::{path::Path, time::Duration};

use serde_json::Value;
use sqlx::Connection as _;
use tempfile::TempDir;
use tollgate_testkit::{Postgres, TestGateway, TestGatewayBuilder, Upstream, wait_for};

use crate::support;

/// Makes all stored records forty days older.
const FORTY_DAYS: &str = "UPDATE usage SET at = at - 3456000000000; UPDATE ledger SET at = at - 3456000000000; \
     UPDATE usage_five_minutes SET bucket = bucket - 3456000000000; \
     UPDATE usage_hours SET bucket = bucket - 3456000000000; UPDATE usage_days SET bucket = bucket - 3456000000000; \
     UPDATE attempt_hours SET bucket = bucket - 3456000000000; UPDATE attempt_days SET bucket = bucket - 3456000000000;";

/// Sets the log's time to that of its newest record.
const TIME: &str = "INSERT INTO counters (name, value) SELECT 'log_time', MAX(at) FROM usage;";

/// Changes the SQLite database of a stopped gateway.
fn change(data: &TempDir, statements: &'static str) {
    let place = format!("sqlite:{}", data.path().join("tollgate.db").display());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&place).await.unwrap();
        sqlx::raw_sql(statements).execute(&mut database).await.unwrap();
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
    // The test made the ledger's entries older, which `verify` tells; everything else agrees.
    let verified: Value = serde_json::from_slice(&gateway.run(&["verify", "--json"]).stdout).unwrap();
    let differences: Vec<_> = verified["differences"].as_array().unwrap().iter().map(|it| (&it["rule"], &it["what"])).collect();
    assert_eq!(differences, [(&Value::from("chain"), &Value::from("ledger entries 1 to 3"))], "{verified}");
}

#[test]
fn old_records_are_deleted_by_log_time() {
    let upstream = Upstream::start();
    old_records_go(&|| gateway(&upstream), &|data| {
        change(data, TIME);
        change(data, FORTY_DAYS);
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
        postgres.sql(FORTY_DAYS);
    });
}

#[test]
fn clock_forty_days_ahead_deletes_no_records() {
    let upstream = Upstream::start();
    let mut data = three_served(gateway(&upstream).spawn());
    // Relative to these records a correct clock is ahead.
    change(&data, FORTY_DAYS);
    for start in 1..=3 {
        let mut again = gateway(&upstream).data_folder(data).spawn();
        let answer = again.chat(&support::chat("chat-model"));
        assert_eq!(again.record_of(&answer)["status"], 200);
        let is_set = || number_in(again.data(), "SELECT COUNT(*) FROM counters WHERE name = 'log_time'") == 1;
        wait_for("the time of the log", Duration::from_secs(2), is_set);
        assert_eq!(again.stop(), Some(0));
        data = again.into_data();
        assert_eq!(number_in(data.path(), "SELECT COUNT(*) FROM usage"), 3 + start);
        let oldest = "SELECT value - (SELECT MIN(at) FROM usage) FROM counters WHERE name = 'log_time'";
        assert!((0..60_000_000).contains(&number_in(data.path(), oldest)), "it is as early as it was");
    }
}
