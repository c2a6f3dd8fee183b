//! PostgreSQL stopped for a minute under load: cached keys are served, and every record is stored soon after its return,
//! under continued load.

use std::{
    collections::HashSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tollgate_core::RequestId;
use tollgate_testkit::{Postgres, Request, TestGateway};

use crate::support::{self, PROGRAM};

/// Length of the outage.
const OUTAGE: Duration = Duration::from_mins(1);
/// Concurrent callers, and the interval of each one's requests.
const CALLERS: usize = 4;
const INTERVAL: Duration = Duration::from_millis(9);
/// Requests during the outage: more than the usage writer's queue and one batch, so that some are read back from the journal.
const REQUESTS: usize = 21_000;
/// Longest extension of the outage to reach that number.
const EXTENSION: Duration = Duration::from_mins(4);
/// Longest time until every record of the outage is stored.
const RECOVERY: Duration = Duration::from_mins(2);

#[test]
fn one_minute_database_outage_loses_no_answer_and_no_record() {
    let Some(mut postgres) = Postgres::start("one_minute_database_outage_loses_no_answer_and_no_record") else { return };
    // The checks on drop are made at the end of the test.
    let gateway = TestGateway::builder(PROGRAM).env("DATABASE_URL", &postgres.url()).without_record_check().spawn();
    let over = AtomicBool::new(false);
    let served: Mutex<Vec<String>> = Mutex::default();
    let failed = AtomicUsize::new(0);
    let count = || served.lock().unwrap().len();
    let call = || {
        let request = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(gateway.key());
        let mut next = Instant::now();
        while !over.load(Ordering::SeqCst) {
            let answer = gateway.send(&request);
            match answer.header("x-request-id") {
                Some(id) if answer.status == 200 => served.lock().unwrap().push(id.to_owned()),
                _ => {
                    failed.fetch_add(1, Ordering::SeqCst);
                }
            }
            // A caller behind schedule sends without a pause.
            next += INTERVAL;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    };
    let (took, meanwhile) = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
        thread::sleep(Duration::from_secs(2));
        postgres.stop();
        let (begin, before) = (Instant::now(), count());
        while begin.elapsed() < OUTAGE || (count() - before < REQUESTS && begin.elapsed() < OUTAGE + EXTENSION) {
            thread::sleep(Duration::from_millis(100));
        }
        postgres.restart();
        let (back, meanwhile) = (Instant::now(), count() - before);
        let mut missing: HashSet<String> = served.lock().unwrap().iter().cloned().collect();
        // The load continues until all records of the outage are stored.
        while !missing.is_empty() && back.elapsed() < RECOVERY {
            thread::sleep(Duration::from_millis(200));
            let stored: HashSet<String> = stored_requests(&postgres.sql("SELECT encode(id, 'hex') FROM usage"));
            missing.retain(|id| !stored.contains(id));
        }
        let took = back.elapsed();
        over.store(true, Ordering::SeqCst);
        for caller in callers {
            caller.join().unwrap();
        }
        assert!(missing.is_empty(), "{} of {} not stored after {took:.1?} under load", missing.len(), count());
        (took, meanwhile)
    });
    let (served, failed) = (count(), failed.into_inner());
    let all = served + failed;
    println!(
        "PostgreSQL stopped for {OUTAGE:?} under load: {served} of {all} requests served, {meanwhile} of them during the outage; every \
         record stored {took:.1?} after its return, under continued load"
    );
    assert!(meanwhile >= REQUESTS, "{meanwhile} requests during the outage all fit the queue");
    assert!(failed * 1_000 <= all, "{failed} of {all} failed");
    let stored = || postgres.sql("SELECT COUNT(*) FROM usage WHERE status = 200").parse::<usize>().unwrap();
    let end = Instant::now();
    while stored() < served && end.elapsed() < RECOVERY {
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(stored(), served, "each once");
    let verified = gateway.run(&["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", String::from_utf8_lossy(&verified.stderr));
}

/// Request ids as callers see them, from those of the database in hexadecimal digits, one a line.
fn stored_requests(lines: &str) -> HashSet<String> {
    let id = |line: &str| RequestId::from_uuid(uuid::Uuid::parse_str(line).unwrap()).to_string();
    lines.lines().map(id).collect()
}
