//! PostgreSQL that is away: at the start, under load, hanging. Known keys are served, others are asked to come back, and
//! what was served is booked when the database returns.

use std::{thread, time::Duration};

use serde_json::Value;
use tempfile::TempDir;
use tollgate_testkit::{ClientResponse, Postgres, Request, TestGateway, TestGatewayBuilder, wait_for};

use crate::support::{self, PROGRAM};

/// A key that looks like one and that nobody has.
const STRANGER: &str = "tk-a-key-that-nobody-was-ever-given";

fn on(postgres: &Postgres, data: Option<TempDir>) -> TestGatewayBuilder {
    let gate = TestGateway::of(PROGRAM).env("DATABASE_URL", &postgres.url()).env("TOLLGATE_DEGRADED__WRITE_EVERY_MS", "1000");
    match data {
        Some(data) => gate.on(data),
        None => gate,
    }
}

fn chat(gate: &TestGateway, key: &str) -> ClientResponse {
    gate.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(key))
}

fn ready(gate: &TestGateway) -> (u16, String) {
    let answer = gate.send(&Request::get("/readyz"));
    let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    (answer.status, said["status"].as_str().unwrap_or_default().to_owned())
}

/// Waits for a file that was written after now.
fn wait_for_cache(gate: &TestGateway) {
    let path = gate.data().join("cache.sealed");
    let stamp = || std::fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
    // Twice: the first one may have been under way already.
    for _ in 0..2 {
        let before = stamp();
        wait_for("cache.sealed", Duration::from_secs(10), || stamp() != before);
    }
}

fn code(answer: &ClientResponse) -> String {
    let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    said["error"]["code"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_gateway_starts_without_its_database_and_serves_the_keys_it_knows() {
    let Some(mut postgres) = Postgres::start("a_gateway_starts_without_its_database") else { return };
    let gate = on(&postgres, None).spawn();
    let key = gate.key().to_owned();
    let made: Value = serde_json::from_slice(&gate.run(&["key", "create", "ended", "--json"]).stdout).unwrap();
    let ended = made["key"].as_str().unwrap().to_owned();
    assert_eq!((chat(&gate, &key).status, chat(&gate, &ended).status), (200, 200));
    assert!(gate.run(&["key", "revoke", "ended"]).status.success());
    wait_for("the revocation", Duration::from_secs(5), || chat(&gate, &ended).status == 401);
    wait_for_cache(&gate);
    let bytes = std::fs::read(gate.data().join("cache.sealed")).unwrap();
    assert!(!bytes.windows(6).any(|part| part == b"owner\"" || part == b"\"echo\""), "it is sealed");

    let served = gate.records().iter().filter(|record| record["http_status"] == 200 || record["status"] == 200).count();
    let data = gate.kill();
    postgres.stop();
    let gate = on(&postgres, Some(data)).spawn();
    wait_for("degraded", Duration::from_secs(10), || ready(&gate) == (200, "degraded".to_owned()));
    for _ in 0..20 {
        assert_eq!(chat(&gate, &key).status, 200);
    }
    let revoked = chat(&gate, &ended);
    assert_eq!((revoked.status, code(&revoked).as_str()), (401, "api_key_disabled"));
    let stranger = chat(&gate, STRANGER);
    assert_eq!((stranger.status, code(&stranger).as_str()), (503, "key_check_unavailable"), "never 401");

    postgres.start_again();
    wait_for("ready", Duration::from_secs(15), || ready(&gate) == (200, "ready".to_owned()));
    let booked = || postgres.sql("SELECT COUNT(*) FROM usage WHERE status = 200").parse::<usize>().unwrap();
    let took = wait_for("every record", Duration::from_secs(30), || booked() == served + 20);
    println!("booked {took:?} after the database was back");
    assert_eq!(chat(&gate, STRANGER).status, 401);
    // Changes reach it again.
    let made: Value = serde_json::from_slice(&gate.run(&["key", "create", "later", "--json"]).stdout).unwrap();
    wait_for("the new key", Duration::from_secs(5), || chat(&gate, made["key"].as_str().unwrap()).status == 200);
}

#[test]
fn a_database_that_hangs_is_away_at_the_start_and_while_serving() {
    let Some(postgres) = Postgres::start("a_database_that_hangs") else { return };
    let gate = on(&postgres, None).spawn();
    let key = gate.key().to_owned();
    assert_eq!(chat(&gate, &key).status, 200);
    wait_for_cache(&gate);
    let data = gate.kill();
    postgres.freeze();
    let gate = on(&postgres, Some(data)).spawn();
    assert_eq!(chat(&gate, &key).status, 200);
    assert_eq!(chat(&gate, STRANGER).status, 503);
    postgres.thaw();
    wait_for("ready", Duration::from_secs(15), || ready(&gate) == (200, "ready".to_owned()));
    assert_eq!(chat(&gate, STRANGER).status, 401);
}

#[test]
fn without_anything_known_a_start_waits_for_the_database() {
    let Some(mut postgres) = Postgres::start("a_start_waits_for_the_database") else { return };
    postgres.stop();
    let builder = on(&postgres, None);
    let starting = thread::spawn(move || builder.spawn());
    thread::sleep(Duration::from_millis(1_500));
    assert!(!starting.is_finished(), "it waits");
    postgres.start_again();
    let gate = starting.join().unwrap();
    assert_eq!(gate.chat(&support::chat("echo")).status, 200);
}

#[test]
fn a_file_of_another_database_or_of_another_key_does_not_serve() {
    let Some(mut postgres) = Postgres::start("a_file_of_another_database") else { return };
    let gate = on(&postgres, None).spawn();
    let key = gate.key().to_owned();
    assert_eq!(chat(&gate, &key).status, 200);
    wait_for_cache(&gate);
    let data = gate.kill();
    postgres.stop();
    let path = data.path().join("cache.sealed");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let builder = on(&postgres, Some(data));
    let starting = thread::spawn(move || builder.spawn());
    thread::sleep(Duration::from_millis(1_500));
    assert!(!starting.is_finished(), "it waits for the database instead");
    postgres.start_again();
    assert_eq!(chat(&starting.join().unwrap(), &key).status, 200);
}

#[test]
fn a_gateway_starts_on_a_database_that_may_only_be_read() {
    let Some(postgres) = Postgres::start("a_database_that_may_only_be_read") else { return };
    let gate = on(&postgres, None).spawn();
    let key = gate.key().to_owned();
    assert_eq!(chat(&gate, &key).status, 200);
    wait_for("the record", Duration::from_secs(5), || postgres.sql("SELECT COUNT(*) FROM usage") == "1");
    wait_for_cache(&gate);
    let data = gate.kill();
    postgres.sql("ALTER DATABASE postgres SET default_transaction_read_only = on");
    let gate = on(&postgres, Some(data)).spawn();
    assert_eq!(chat(&gate, &key).status, 200);
    // What waits in the journal does not keep the next one from starting either.
    let gate = on(&postgres, Some(gate.kill())).spawn();
    assert_eq!(chat(&gate, &key).status, 200);
    assert_eq!(postgres.sql("SELECT COUNT(*) FROM usage"), "1");

    postgres.sql("SET transaction_read_only = off; ALTER DATABASE postgres RESET default_transaction_read_only");
    postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = 'postgres'");
    wait_for("every record", Duration::from_secs(30), || postgres.sql("SELECT COUNT(*) FROM usage") == "3");
    wait_for("ready", Duration::from_secs(15), || ready(&gate) == (200, "ready".to_owned()));
}
