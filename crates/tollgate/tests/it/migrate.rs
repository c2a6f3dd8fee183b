//! Migration from SQLite to PostgreSQL with the real binary: a first pass while it serves, a last one when it is stopped.

use serde_json::Value;
use tollgate_testkit::{Postgres, Request, TestGateway};

use crate::support::{self, PROGRAM};

fn pass(gateway: &TestGateway, url: &str) -> Value {
    let out = gateway.run(&["migrate", "to-postgres", url, "--json"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn rows(report: &Value, table: &str) -> (u64, u64) {
    let found = report["tables"].as_array().unwrap().iter().find(|found| found["table"] == table).unwrap();
    (found["copied"].as_u64().unwrap(), found["rows"].as_u64().unwrap())
}

#[test]
fn running_gateway_migrates_to_postgres_without_loss() {
    let Some(postgres) = Postgres::start("a_gateway_that_serves_moves_to_postgres") else { return };
    let url = postgres.url();
    let mut gateway = support::echo();
    let key = gateway.key().to_owned();
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(gateway.record_of(&gateway.chat(&support::chat("echo")))["id"].as_str().unwrap().to_owned());
    }
    let report = pass(&gateway, &url);
    assert_eq!(report["complete"], false, "{report}");
    let (copied, _) = rows(&report, "usage");
    for _ in 0..10 {
        ids.push(gateway.record_of(&gateway.chat(&support::chat("echo")))["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(gateway.stop(), Some(0));
    let report = pass(&gateway, &url);
    assert_eq!(report["complete"], true, "{report}");
    assert_eq!(rows(&report, "usage"), (30 - copied, 30), "only what came since is copied");

    // The same data folder (journal, master key) with the new database; the old key still works.
    let data = gateway.into_data();
    let moved = TestGateway::builder(PROGRAM).data_folder(data).env("DATABASE_URL", &url).spawn();
    assert_eq!(moved.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&key)).status, 200);
    let _ = moved.wait_for_record("all records", |_| moved.records().len() == 31);
    let there: Vec<String> = moved.records().iter().map(|record| record["id"].as_str().unwrap().to_owned()).collect();
    assert!(ids.iter().all(|id| there.contains(id)), "{} of {}", there.len(), ids.len());
    assert!(postgres.sql("SELECT COUNT(*) FROM pg_inherits WHERE inhparent = 'usage'::regclass").parse::<u32>().unwrap() >= 4);

    let refused = moved.run(&["migrate", "to-postgres", &url]);
    assert_eq!(refused.status.code(), Some(3), "{}", String::from_utf8_lossy(&refused.stderr));
}

#[test]
fn unreachable_and_non_postgres_addresses_have_distinct_errors() {
    let gateway = support::echo();
    let code = |url: &str| gateway.run(&["migrate", "to-postgres", url]).status.code();
    assert_eq!(code("sqlite:x.db"), Some(2));
    assert_eq!(code("mysql://x"), Some(3));
    assert_eq!(code("postgres://127.0.0.1:1/x"), Some(4));
}
