//! The journal when it has no room, is damaged in the middle, or holds what the database refuses: nothing is lost without
//! a word, and whoever looks is told.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use tollgate_testkit::{Postgres, Request, TestGateway, wait_for};

use crate::{
    journal, load,
    support::{self, PROGRAM},
};

/// How long what waited may take to be booked.
const SOON: Duration = Duration::from_secs(30);
/// A journal for a few hundred requests.
const SMALL: (&str, &str) = ("TOLLGATE_JOURNAL__MAX_BYTES", "1048576");
/// More requests than the till's queue and a batch hold.
const MANY: usize = 22_000;

fn metric(gate: &TestGateway, name: &str) -> usize {
    let text = gate.send(&Request::get("/metrics")).text();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap_or_else(|| panic!("no {name}\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn wait_until(what: &str, gate: &TestGateway, is_so: impl Fn() -> bool) {
    let what = format!("{what}, of {}", gate.address());
    wait_for(&what, SOON, is_so);
}

fn said(output: &std::process::Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn what_only_memory_has_is_told_booked_after_an_outage_and_kept_by_a_stop() {
    let Some(mut postgres) = Postgres::start("what_only_memory_has") else { return };
    let start = || TestGateway::of(PROGRAM).env("DATABASE_URL", &postgres.url()).env(SMALL.0, SMALL.1);
    let mut gate = start().spawn();
    assert_eq!(gate.chat(&support::chat("echo")).status, 200);
    postgres.stop();
    assert_eq!(load::send(&gate, "echo", MANY, 8).failed(), 0);
    wait_until("it is told", &gate, || metric(&gate, "tollgate_journal_held") > 5_000);
    assert!(gate.send(&Request::get("/readyz")).text().contains("degraded"));
    assert_eq!(metric(&gate, "tollgate_unrecorded_total"), 0);
    postgres.start_again();
    let back = Instant::now();
    let booked = || postgres.sql("SELECT COUNT(*) FROM usage").parse::<usize>().unwrap();
    // No request comes any more that could carry what waits to the disk.
    wait_until("every record is booked", &gate, || booked() == MANY + 1);
    println!("{MANY} requests with a journal of 1 MiB, PostgreSQL away: all booked {:.1?} after its return", back.elapsed());
    wait_until("nothing waits in memory", &gate, || metric(&gate, "tollgate_journal_held") == 0);
    let verified = gate.run(&["verify"]);
    assert!(verified.status.success() && said(&verified).contains("everything agrees"), "{}", said(&verified));

    postgres.stop();
    assert_eq!(load::send(&gate, "echo", 2_000, 8).failed(), 0);
    wait_until("it is told again", &gate, || metric(&gate, "tollgate_journal_held") > 0);
    assert_eq!(gate.stop(), Some(0), "a stop writes above the bound\n{}", gate.log());
    postgres.start_again();
    let start = TestGateway::of(PROGRAM).env("DATABASE_URL", &postgres.url()).env(SMALL.0, SMALL.1);
    let gate = start.on(gate.take_data()).spawn();
    let booked = || postgres.sql("SELECT COUNT(*) FROM usage").parse::<usize>().unwrap();
    wait_until("the next start books them", &gate, || booked() == MANY + 2_001);
}

#[test]
fn a_stop_that_can_write_nowhere_says_what_it_loses() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut gate = TestGateway::of(&journal::on_a_disk_that_fills(&folder)).without_record_check().spawn();
    assert_eq!(gate.chat(&support::chat("echo")).status, 200);
    wait_until("the first one is booked", &gate, || metric(&gate, "tollgate_till_records_total") == 1);
    journal::room_on_disk(&gate, "0");
    assert_eq!(load::send(&gate, "echo", 50, 4).failed(), 0);
    assert_eq!(gate.stop(), Some(1), "{}", gate.log());
    assert!(gate.log().contains("50 requests are lost"), "{}", gate.log());
}

#[test]
fn a_record_that_postgresql_refuses_keeps_nobody_elses_waiting() {
    let Some(postgres) = Postgres::start("a_record_that_postgresql_refuses") else { return };
    let gate = TestGateway::of(PROGRAM).env("DATABASE_URL", &postgres.url()).without_record_check().spawn();
    assert_eq!(gate.chat(&support::chat("echo")).status, 200);
    postgres.sql("ALTER TABLE usage ADD CONSTRAINT no_such_model CHECK (model IS NULL OR model <> 'poison') NOT VALID");
    let refused = gate.chat(&support::chat("poison"));
    assert_eq!(refused.status, 404, "{}", refused.text());
    assert_eq!(load::send(&gate, "echo", 300, 4).failed(), 0);
    let booked = || postgres.sql("SELECT COUNT(*) FROM usage").parse::<usize>().unwrap();
    wait_until("all others are booked", &gate, || booked() == 301);
    wait_until("it is told", &gate, || metric(&gate, "tollgate_journal_refused") == 1);
    let id = refused.header("x-request-id").unwrap().to_owned();
    let verified = gate.run(&["verify"]);
    assert_eq!(verified.status.code(), Some(1), "{}", said(&verified));
    assert!(said(&verified).contains(&id) && said(&verified).contains("the database refuses"), "{}", said(&verified));
    assert!(gate.send(&Request::get("/readyz")).text().contains("ready"));
    // It is offered again by each start, and keeps none from serving.
    let environment = postgres.url();
    let again = |data| TestGateway::of(PROGRAM).env("DATABASE_URL", &environment).on(data).without_record_check().spawn();
    let gate = again(gate.kill());
    wait_until("it is told again", &gate, || metric(&gate, "tollgate_journal_refused") == 1);
    let data = gate.kill();
    postgres.sql("ALTER TABLE usage DROP CONSTRAINT no_such_model");
    let gate = again(data);
    wait_until("it is booked", &gate, || booked() == 302);
    let verified = gate.run(&["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", said(&verified));
}

/// The segments of a journal that hold something.
fn segments(data: &std::path::Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("journal")).unwrap().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "tgj") && fs::metadata(path).unwrap().len() > 200)
        .collect();
    found.sort();
    found
}

#[test]
fn a_journal_damaged_in_the_middle_is_told_by_whoever_reads_it() {
    let Some(mut postgres) = Postgres::start("a_journal_damaged_in_the_middle") else { return };
    let builder = || TestGateway::of(PROGRAM).env("DATABASE_URL", &postgres.url()).env("TOLLGATE_SERVER__CORES", "1");
    let gate = builder().without_record_check().spawn();
    assert_eq!(gate.chat(&support::chat("echo")).status, 200);
    let url = postgres.url();
    postgres.stop();
    let ids: Vec<String> = (0..8).map(|_| gate.chat(&support::chat("echo")).header("x-request-id").unwrap().to_owned()).collect();
    let data = gate.kill();
    postgres.start_again();
    let segment = segments(data.path()).pop().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    // In the end of the fourth request, behind its id: the last place that names it.
    let needle = ids[3].as_bytes();
    let at = bytes.windows(needle.len()).rposition(|window| window == needle).unwrap();
    bytes[at + 60] ^= 0x20;
    fs::write(&segment, &bytes).unwrap();

    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(PROGRAM);
        command.args(arguments).arg("--data").arg(data.path()).env_clear().env("DATABASE_URL", &url);
        command.output().unwrap()
    };
    let name = segment.file_name().unwrap().to_str().unwrap();
    for arguments in [&["verify"][..], &["doctor"], &["usage", "export"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", said(&output));
        for words in [name, "at offset", "doctor --repair"] {
            assert!(said(&output).contains(words), "{arguments:?} says '{words}': {}", said(&output));
        }
    }
    let quiet = run(&["doctor", "--quiet"]);
    assert!(String::from_utf8_lossy(&quiet.stdout).lines().all(|line| line.starts_with("FAIL")), "{}", said(&quiet));
    let repaired = run(&["doctor", "--repair"]);
    assert_eq!(repaired.status.code(), Some(0), "{}", said(&repaired));
    assert!(said(&repaired).contains(&ids[3]), "it names what it could not keep: {}", said(&repaired));
    let verified = run(&["verify"]);
    assert!(verified.status.success(), "{}", said(&verified));
    assert!(said(&verified).contains("records wait in the journal; the next start books them"), "{}", said(&verified));
    assert!(said(&verified).contains("1 requests were cut by a kill; the next start records them"), "{}", said(&verified));
    let gate = TestGateway::of(PROGRAM).env("DATABASE_URL", &url).on(data).spawn();
    for id in ids {
        assert_eq!(gate.wait_for_record(&id, |record| record["id"] == id.as_str())["id"], id);
    }
}
