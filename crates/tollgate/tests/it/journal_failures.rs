//! A journal that cannot be written, is damaged in the middle, or holds records that the database rejects: lost records are
//! always reported.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use tollgate_testkit::{FREE_ADDRESS, Postgres, Request, TestGateway, wait_for};

use crate::{
    journal, load,
    support::{self, PROGRAM},
};

/// Longest time to store waiting records.
const SOON: Duration = Duration::from_secs(30);
/// Journal limit that a few hundred requests exceed.
const SMALL: (&str, &str) = ("TOLLGATE_JOURNAL__MAX_BYTES", "1048576");
/// More requests than fit in the usage writer's queue and one batch.
const MANY: usize = 22_000;

fn metric_text(gateway: &TestGateway, name: &str) -> String {
    let text = gateway.send(&Request::get("/metrics")).text();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap_or_else(|| panic!("no {name}\n{text}"));
    line.rsplit(' ').next().unwrap().to_owned()
}

fn metric(gateway: &TestGateway, name: &str) -> usize {
    metric_text(gateway, name).parse().unwrap()
}

fn gauge(gateway: &TestGateway, name: &str) -> f64 {
    metric_text(gateway, name).parse().unwrap()
}

fn wait_until(what: &str, gateway: &TestGateway, is_so: impl FnMut() -> bool) {
    let what = format!("{what}, of {}", gateway.address());
    wait_for(&what, SOON, is_so);
}

fn output_text(output: &std::process::Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn records_in_memory_are_reported_flushed_after_an_outage_and_saved_on_stop() {
    let Some(mut postgres) = Postgres::start("what_only_memory_has") else { return };
    let start = || TestGateway::builder(PROGRAM).env("DATABASE_URL", &postgres.url()).env(SMALL.0, SMALL.1);
    let mut gateway = start().spawn();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    postgres.stop();
    assert_eq!(load::send(&gateway, "echo", MANY, 8).failed(), 0);
    wait_until("the metric reports it", &gateway, || metric(&gateway, "tollgate_journal_held") > 5_000);
    assert!(gateway.send(&Request::get("/readyz")).text().contains("degraded"));
    assert_eq!(metric(&gateway, "tollgate_unrecorded_total"), 0);
    postgres.restart();
    let back = Instant::now();
    let booked = || postgres.sql("SELECT COUNT(*) FROM usage").parse::<usize>().unwrap();
    // No later request flushes the waiting records.
    wait_until("every record is booked", &gateway, || booked() == MANY + 1);
    println!("{MANY} requests with a journal of 1 MiB, PostgreSQL away: all booked {:.1?} after its return", back.elapsed());
    wait_until("nothing waits in memory", &gateway, || metric(&gateway, "tollgate_journal_held") == 0);
    let verified = gateway.run(&["verify"]);
    assert!(verified.status.success() && output_text(&verified).contains("everything agrees"), "{}", output_text(&verified));

    postgres.stop();
    assert_eq!(load::send(&gateway, "echo", 5_000, 8).failed(), 0);
    wait_until("the metric reports it again", &gateway, || metric(&gateway, "tollgate_journal_held") > 0);
    assert_eq!(gateway.stop(), Some(0), "a stop writes above the bound\n{}", gateway.log());
    postgres.restart();
    let start = TestGateway::builder(PROGRAM).env("DATABASE_URL", &postgres.url()).env(SMALL.0, SMALL.1);
    let gateway = start.data_folder(gateway.into_data()).spawn();
    let booked = || postgres.sql("SELECT COUNT(*) FROM usage").parse::<usize>().unwrap();
    wait_until("the next start books them", &gateway, || booked() == MANY + 5_001);
}

#[test]
fn stop_without_writable_storage_reports_lost_records() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut gateway = TestGateway::builder(&journal::program_with_file_size_limit(&folder)).without_record_check().spawn();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    wait_until("the first one is booked", &gateway, || metric(&gateway, "tollgate_till_records_total") == 1);
    journal::limit_file_size(&gateway, "0");
    assert_eq!(load::send(&gateway, "echo", 50, 4).failed(), 0);
    assert_eq!(gateway.stop(), Some(1), "{}", gateway.log());
    assert!(gateway.log().contains("50 requests are lost"), "{}", gateway.log());
}

/// Holds the table of records locked until [`RELEASE`] is run, for five minutes at most.
const LOCK: &str = "DO $$ BEGIN LOCK TABLE usage IN ACCESS EXCLUSIVE MODE; FOR turn IN 1..6000 LOOP
    EXIT WHEN EXISTS (SELECT FROM pg_class WHERE relname = 'released'); PERFORM pg_sleep(0.05); END LOOP; END $$";
const RELEASE: &str = "CREATE TABLE released ()";
/// Maximum age of a record when the gauge of the age first shows one. The gauges are set each second, beside the running
/// transaction; a stuck transaction ends after more than eight seconds.
const SHOWN_WITHIN_S: f64 = 5.0;

#[test]
fn stuck_booking_is_shown_at_once() {
    let Some(postgres) = Postgres::start("stuck_booking_is_shown_at_once") else { return };
    let gateway = TestGateway::builder(PROGRAM).env("DATABASE_URL", &postgres.url()).env(SMALL.0, SMALL.1).spawn();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    let booked = || postgres.sql("SELECT COUNT(*) FROM usage").parse::<usize>().unwrap();
    wait_until("the first one is booked", &gateway, || booked() == 1);
    wait_until("nothing waits", &gateway, || gauge(&gateway, "tollgate_journal_oldest_seconds") <= 0.0);
    std::thread::scope(|scope| {
        let lock = scope.spawn(|| postgres.sql(LOCK));
        wait_until("the table is locked", &gateway, || {
            let held =
                "SELECT COUNT(*) FROM pg_locks WHERE relation = 'usage'::regclass AND mode = 'AccessExclusiveLock' AND granted";
            postgres.sql(held) == "1"
        });
        assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
        let mut age = 0.0;
        wait_until("a record that waits is shown", &gateway, || {
            age = gauge(&gateway, "tollgate_journal_oldest_seconds");
            age > 0.0
        });
        println!("a record that waits was {age:.1} s old when the gauge first showed it");
        assert!(age < SHOWN_WITHIN_S, "{age} s");
        assert!(metric(&gateway, "tollgate_journal_bytes") > 0);
        assert_eq!(load::send(&gateway, "echo", 6_000, 8).failed(), 0);
        wait_until("requests in memory are shown", &gateway, || metric(&gateway, "tollgate_journal_held") > 0);
        assert!(metric(&gateway, "tollgate_journal_bytes") > 500_000);
        assert!(gateway.send(&Request::get("/readyz")).text().contains("degraded"));
        assert!(!lock.is_finished(), "all of it while the table was locked");
        postgres.sql(RELEASE);
    });
    wait_until("every record is booked", &gateway, || booked() == 6_002);
    wait_until("it is ready again", &gateway, || gateway.send(&Request::get("/readyz")).text().contains("ready"));
}

#[test]
fn verify_includes_records_held_only_in_memory() {
    let folder = tempfile::TempDir::new().unwrap();
    let gateway = TestGateway::builder(&journal::program_with_file_size_limit(&folder)).without_record_check().spawn();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    wait_until("the first one is booked", &gateway, || metric(&gateway, "tollgate_till_records_total") == 1);
    journal::limit_file_size(&gateway, "0");
    assert_eq!(load::send(&gateway, "echo", 50, 4).failed(), 0);
    assert!(gateway.send(&Request::get("/readyz")).text().contains("degraded"), "at once");
    wait_until("verify mentions them", &gateway, || {
        let verified = output_text(&gateway.run(&["verify"]));
        verified.contains("50 more requests are recorded in the running gateway's memory only")
    });
    journal::limit_file_size(&gateway, "unlimited");
    wait_until("nothing waits in memory", &gateway, || metric(&gateway, "tollgate_journal_held") == 0);
}

#[test]
fn record_rejected_by_postgresql_does_not_block_others() {
    let Some(postgres) = Postgres::start("a_record_that_postgresql_refuses") else { return };
    let gateway = TestGateway::builder(PROGRAM).env("DATABASE_URL", &postgres.url()).without_record_check().spawn();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    postgres.sql("ALTER TABLE usage ADD CONSTRAINT no_such_model CHECK (status <> 404) NOT VALID");
    let refused = gateway.chat(&support::chat("poison"));
    assert_eq!(refused.status, 404, "{}", refused.text());
    assert_eq!(load::send(&gateway, "echo", 300, 4).failed(), 0);
    let booked = || postgres.sql("SELECT COUNT(*) FROM usage").parse::<usize>().unwrap();
    wait_until("all others are booked", &gateway, || booked() == 301);
    wait_until("the metric reports it", &gateway, || metric(&gateway, "tollgate_journal_refused") == 1);
    let id = refused.header("x-request-id").unwrap().to_owned();
    let verified = gateway.run(&["verify"]);
    assert_eq!(verified.status.code(), Some(1), "{}", output_text(&verified));
    assert!(
        output_text(&verified).contains(&id) && output_text(&verified).contains("the database rejects"),
        "{}",
        output_text(&verified)
    );
    assert!(gateway.send(&Request::get("/readyz")).text().contains("ready"));
    // Each start offers the record again, and serves nevertheless.
    let environment = postgres.url();
    let again =
        |data| TestGateway::builder(PROGRAM).env("DATABASE_URL", &environment).data_folder(data).without_record_check().spawn();
    let gateway = again(gateway.kill());
    wait_until("the metric reports it again", &gateway, || metric(&gateway, "tollgate_journal_refused") == 1);
    let data = gateway.kill();
    postgres.sql("ALTER TABLE usage DROP CONSTRAINT no_such_model");
    let gateway = again(data);
    wait_until("it is booked", &gateway, || booked() == 302);
    let verified = gateway.run(&["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", output_text(&verified));
}

/// The segments of a journal that are not empty.
fn segments(data: &std::path::Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("journal")).unwrap().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "tgj") && fs::metadata(path).unwrap().len() > 200)
        .collect();
    found.sort();
    found
}

#[test]
fn journal_damaged_in_the_middle_is_reported_by_every_reader() {
    let Some(mut postgres) = Postgres::start("a_journal_damaged_in_the_middle") else { return };
    let builder = || TestGateway::builder(PROGRAM).env("DATABASE_URL", &postgres.url()).env("TOLLGATE_SERVER__CORES", "1");
    let gateway = builder().without_record_check().spawn();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    let url = postgres.url();
    postgres.stop();
    let ids: Vec<String> =
        (0..8).map(|_| gateway.chat(&support::chat("echo")).header("x-request-id").unwrap().to_owned()).collect();
    let data = gateway.kill();
    postgres.restart();
    let segment = segments(data.path()).pop().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    // In the end entry of the fourth request, after its id: the last entry that names it.
    let id = tollgate_core::RequestId::parse(&ids[3]).unwrap().uuid();
    let at = bytes.windows(16).rposition(|window| window == id.as_bytes()).unwrap();
    bytes[at + 60] ^= 0x20;
    fs::write(&segment, &bytes).unwrap();

    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(PROGRAM);
        command.args(arguments).arg("--data").arg(data.path()).env_clear().env("DATABASE_URL", &url);
        command.envs([FREE_ADDRESS]).output().unwrap()
    };
    let name = segment.file_name().unwrap().to_str().unwrap();
    for arguments in [&["verify"][..], &["doctor"], &["usage", "export"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", output_text(&output));
        for words in [name, "at offset", "doctor --repair"] {
            assert!(output_text(&output).contains(words), "{arguments:?} says '{words}': {}", output_text(&output));
        }
    }
    let quiet = run(&["doctor", "--quiet"]);
    assert!(String::from_utf8_lossy(&quiet.stdout).lines().all(|line| line.starts_with("FAIL")), "{}", output_text(&quiet));
    let repaired = run(&["doctor", "--repair"]);
    assert_eq!(repaired.status.code(), Some(0), "{}", output_text(&repaired));
    assert!(output_text(&repaired).contains(&ids[3]), "it names what it could not keep: {}", output_text(&repaired));
    let verified = run(&["verify"]);
    assert!(verified.status.success(), "{}", output_text(&verified));
    assert!(
        output_text(&verified).contains("records wait in the journal; the next start writes them to the database"),
        "{}",
        output_text(&verified)
    );
    assert!(
        output_text(&verified).contains("1 request was cut by a kill; the next start records it"),
        "{}",
        output_text(&verified)
    );
    let gateway = TestGateway::builder(PROGRAM).env("DATABASE_URL", &url).data_folder(data).spawn();
    for id in ids {
        assert_eq!(gateway.wait_for_record(&id, |record| record["id"] == id.as_str())["id"], id);
    }
}
