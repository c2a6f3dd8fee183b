//! PostgreSQL unavailable, hanging or read-only at the start and while serving. Cached keys are served, other keys get 503,
//! and records are stored when the database returns.

use std::{thread, time::Duration};

use serde_json::Value;
use tempfile::TempDir;
use tollgate_testkit::{ClientResponse, Postgres, Request, TestGateway, TestGatewayBuilder, wait_for};

use crate::support::{self, PROGRAM};

/// A well-formed key that does not exist.
const UNKNOWN_KEY: &str = "tk-a-key-that-was-never-handed-out";

fn builder(postgres: &Postgres, data: Option<TempDir>) -> TestGatewayBuilder {
    let gateway =
        TestGateway::builder(PROGRAM).env("DATABASE_URL", &postgres.url()).env("TOLLGATE_DEGRADED__WRITE_EVERY_MS", "1000");
    match data {
        Some(data) => gateway.data_folder(data),
        None => gateway,
    }
}

fn chat(gateway: &TestGateway, key: &str) -> ClientResponse {
    gateway.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(key))
}

fn ready(gateway: &TestGateway) -> (u16, String) {
    let answer = gateway.send(&Request::get("/readyz"));
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    (answer.status, body["status"].as_str().unwrap_or_default().to_owned())
}

/// Waits for a cache file that was begun after this call.
fn wait_for_cache(gateway: &TestGateway) {
    let path = gateway.data().join("cache.sealed");
    let stamp = || std::fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
    // Twice: the first may have been begun before.
    for _ in 0..2 {
        let before = stamp();
        wait_for("cache.sealed", Duration::from_secs(10), || stamp() != before);
    }
}

fn code(answer: &ClientResponse) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    body["error"]["code"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn starts_without_database_and_serves_cached_keys() {
    let Some(mut postgres) = Postgres::start("starts_without_database_and_serves_cached_keys") else { return };
    let gateway = builder(&postgres, None).spawn();
    let key = gateway.key().to_owned();
    let made: Value = serde_json::from_slice(&gateway.run(&["key", "create", "ended", "--json"]).stdout).unwrap();
    let ended = made["key"].as_str().unwrap().to_owned();
    assert_eq!((chat(&gateway, &key).status, chat(&gateway, &ended).status), (200, 200));
    assert!(gateway.run(&["key", "revoke", "ended"]).status.success());
    wait_for("the revocation", Duration::from_secs(5), || chat(&gateway, &ended).status == 401);
    wait_for_cache(&gateway);
    let bytes = std::fs::read(gateway.data().join("cache.sealed")).unwrap();
    assert!(!bytes.windows(6).any(|part| part == b"owner\"" || part == b"\"echo\""), "the file is sealed");

    let served = gateway.records().iter().filter(|record| record["http_status"] == 200 || record["status"] == 200).count();
    let data = gateway.kill();
    postgres.stop();
    let gateway = builder(&postgres, Some(data)).spawn();
    wait_for("degraded", Duration::from_secs(10), || ready(&gateway) == (200, "degraded".to_owned()));
    for _ in 0..20 {
        assert_eq!(chat(&gateway, &key).status, 200);
    }
    let revoked = chat(&gateway, &ended);
    assert_eq!((revoked.status, code(&revoked).as_str()), (401, "api_key_disabled"));
    let unknown = chat(&gateway, UNKNOWN_KEY);
    assert_eq!((unknown.status, code(&unknown).as_str()), (503, "key_check_unavailable"), "never 401");

    postgres.restart();
    wait_for("ready", Duration::from_secs(15), || ready(&gateway) == (200, "ready".to_owned()));
    let stored = || postgres.sql("SELECT COUNT(*) FROM usage WHERE status = 200").parse::<usize>().unwrap();
    let took = wait_for("every record", Duration::from_secs(30), || stored() == served + 20);
    println!("stored {took:?} after the database returned");
    assert_eq!(chat(&gateway, UNKNOWN_KEY).status, 401);
    // Changes reach the gateway again.
    let made: Value = serde_json::from_slice(&gateway.run(&["key", "create", "later", "--json"]).stdout).unwrap();
    wait_for("the new key", Duration::from_secs(5), || chat(&gateway, made["key"].as_str().unwrap()).status == 200);
}

#[test]
fn hanging_database_counts_as_unavailable() {
    let Some(postgres) = Postgres::start("hanging_database_counts_as_unavailable") else { return };
    let gateway = builder(&postgres, None).spawn();
    let key = gateway.key().to_owned();
    assert_eq!(chat(&gateway, &key).status, 200);
    wait_for_cache(&gateway);
    let data = gateway.kill();
    postgres.freeze();
    let gateway = builder(&postgres, Some(data)).spawn();
    assert_eq!(chat(&gateway, &key).status, 200);
    assert_eq!(chat(&gateway, UNKNOWN_KEY).status, 503);
    postgres.thaw();
    wait_for("ready", Duration::from_secs(15), || ready(&gateway) == (200, "ready".to_owned()));
    assert_eq!(chat(&gateway, UNKNOWN_KEY).status, 401);
}

#[test]
fn first_start_waits_for_the_database() {
    let Some(mut postgres) = Postgres::start("first_start_waits_for_the_database") else { return };
    postgres.stop();
    let start = builder(&postgres, None);
    let starting = thread::spawn(move || start.spawn());
    thread::sleep(Duration::from_millis(1_500));
    assert!(!starting.is_finished(), "the start waits");
    postgres.restart();
    let gateway = starting.join().unwrap();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
}

#[test]
fn cache_file_of_another_database_or_master_key_is_not_used() {
    let Some(mut postgres) = Postgres::start("cache_file_of_another_database_or_master_key_is_not_used") else { return };
    let gateway = builder(&postgres, None).spawn();
    let key = gateway.key().to_owned();
    assert_eq!(chat(&gateway, &key).status, 200);
    wait_for_cache(&gateway);
    let data = gateway.kill();
    postgres.stop();
    let path = data.path().join("cache.sealed");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let start = builder(&postgres, Some(data));
    let starting = thread::spawn(move || start.spawn());
    thread::sleep(Duration::from_millis(1_500));
    assert!(!starting.is_finished(), "the start waits for the database");
    postgres.restart();
    assert_eq!(chat(&starting.join().unwrap(), &key).status, 200);
}

#[test]
fn starts_on_a_read_only_database() {
    let Some(postgres) = Postgres::start("starts_on_a_read_only_database") else { return };
    let gateway = builder(&postgres, None).spawn();
    let key = gateway.key().to_owned();
    assert_eq!(chat(&gateway, &key).status, 200);
    wait_for("the record", Duration::from_secs(5), || postgres.sql("SELECT COUNT(*) FROM usage") == "1");
    wait_for_cache(&gateway);
    let data = gateway.kill();
    postgres.sql("ALTER DATABASE postgres SET default_transaction_read_only = on");
    let gateway = builder(&postgres, Some(data)).spawn();
    assert_eq!(chat(&gateway, &key).status, 200);
    // Waiting records in the journal do not prevent a start either.
    let gateway = builder(&postgres, Some(gateway.kill())).spawn();
    assert_eq!(chat(&gateway, &key).status, 200);
    assert_eq!(postgres.sql("SELECT COUNT(*) FROM usage"), "1");

    postgres.sql("SET transaction_read_only = off; ALTER DATABASE postgres RESET default_transaction_read_only");
    postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = 'postgres'");
    wait_for("every record", Duration::from_secs(30), || postgres.sql("SELECT COUNT(*) FROM usage") == "3");
    wait_for("ready", Duration::from_secs(15), || ready(&gateway) == (200, "ready".to_owned()));
}
