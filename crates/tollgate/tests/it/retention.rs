//! Old usage records go, what they came to stays, and a clock that is ahead costs none of them.

use std::time::Duration;

use serde_json::Value;
use sqlx::Connection as _;
use tempfile::TempDir;
use tollgate_testkit::{Gate, GateBuilder, Postgres, Upstream, wait_for};

use crate::support;

/// Makes everything that was booked forty days older.
const FORTY_DAYS: &str = "UPDATE usage SET at = at - 3456000000000; UPDATE ledger SET at = at - 3456000000000; \
     UPDATE usage_hours SET bucket = bucket - 3456000000000; UPDATE usage_days SET bucket = bucket - 3456000000000; \
     UPDATE attempt_hours SET bucket = bucket - 3456000000000; UPDATE attempt_days SET bucket = bucket - 3456000000000;";

/// Changes an SQLite database that nobody serves.
fn change(data: &TempDir, statements: &'static str) {
    let place = format!("sqlite:{}", data.path().join("tollgate.db").display());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&place).await.unwrap();
        sqlx::raw_sql(statements).execute(&mut database).await.unwrap();
        database.close().await.unwrap();
    });
}

fn gate(upstream: &Upstream) -> GateBuilder {
    support::builder(upstream, "").env("TOLLGATE_USAGE__RETENTION_DAYS", "30")
}

fn requests_summed_up(gate: &Gate) -> u64 {
    let out = gate.run(&["--json", "usage", "summary"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let summary: Value = serde_json::from_slice(&out.stdout).unwrap();
    let rows = summary.as_array().or_else(|| summary["items"].as_array()).expect("rows").clone();
    rows.iter().map(|row| row["requests"].as_u64().unwrap()).sum()
}

/// Serves three requests and stops; what it left.
fn three_served(mut gate: Gate) -> TempDir {
    for _ in 0..3 {
        assert_eq!(gate.chat(&support::chat("chat-model")).status, 200);
    }
    assert_eq!(gate.stop(), Some(0));
    gate.take_data()
}

/// Serves three requests, ages them and goes on: they go once the log itself has moved on, and what they came to stays.
fn old_records_go(gate: &dyn Fn() -> GateBuilder, age: &dyn Fn(&TempDir)) {
    let data = three_served(gate().spawn());
    age(&data);

    // The newest record is forty days old: either nobody called, or the clock is wrong. Nothing goes at once.
    let mut second = gate().on(data).spawn();
    let answer = second.chat(&support::chat("chat-model"));
    assert_eq!(second.record_of(&answer)["status"], 200);
    assert_eq!(second.records().len(), 4);
    assert_eq!(second.stop(), Some(0));

    // Now a record tells that the days have passed.
    let third = gate().on(second.take_data()).spawn();
    wait_for("old records go", Duration::from_secs(2), || third.records().len() <= 1);
    assert_eq!(third.records()[0]["id"], answer.header("x-request-id").unwrap());
    assert_eq!(requests_summed_up(&third), 4);
}

#[test]
fn old_records_go_when_the_log_itself_has_moved_on() {
    let upstream = Upstream::start();
    old_records_go(&|| gate(&upstream), &|data| change(data, FORTY_DAYS));
}

#[test]
fn old_records_go_from_postgresql_too() {
    let Some(postgres) = Postgres::start("old_records_go_from_postgresql_too") else { return };
    let upstream = Upstream::start();
    let gate = || gate(&upstream).env("DATABASE_URL", &postgres.url());
    old_records_go(&gate, &|_| {
        wait_for("three records", Duration::from_secs(2), || postgres.sql("SELECT COUNT(*) FROM usage") == "3");
        postgres.sql(FORTY_DAYS);
    });
}
