//! PostgreSQL stopped for a minute under load: known keys are served, and every record is there soon after its return,
//! though the load goes on.

use std::{
    collections::HashSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tollgate_testkit::{Postgres, Request, TestGateway};

use crate::support::{self, PROGRAM};

/// How long the database is away.
const AWAY: Duration = Duration::from_mins(1);
/// Callers at once, and how often each asks, as far as the machine goes along.
const CALLERS: usize = 4;
const EVERY: Duration = Duration::from_millis(9);
/// Requests that come meanwhile: more than the till's queue and a batch hold, so that some are read back from the journal.
const MEANWHILE: usize = 21_000;
/// How much longer it is away for them, at most.
const LONGER: Duration = Duration::from_mins(4);
/// How long after its return every record of the outage is there.
const SOON: Duration = Duration::from_mins(2);

#[test]
fn a_minute_without_its_database_costs_nobody_an_answer_and_no_record() {
    let Some(mut postgres) = Postgres::start("a_minute_without_its_database") else { return };
    // What the end of every gate checks is checked here, once.
    let gate = TestGateway::of(PROGRAM).env("DATABASE_URL", &postgres.url()).without_record_check().spawn();
    let over = AtomicBool::new(false);
    let served: Mutex<Vec<String>> = Mutex::default();
    let failed = AtomicUsize::new(0);
    let count = || served.lock().unwrap().len();
    let call = || {
        let request = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(gate.key());
        let mut next = Instant::now();
        while !over.load(Ordering::SeqCst) {
            let answer = gate.send(&request);
            match answer.header("x-request-id") {
                Some(id) if answer.status == 200 => served.lock().unwrap().push(id.to_owned()),
                _ => {
                    failed.fetch_add(1, Ordering::SeqCst);
                }
            }
            // Whoever is behind asks without a pause until he is not.
            next += EVERY;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    };
    let (took, meanwhile) = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
        thread::sleep(Duration::from_secs(2));
        postgres.stop();
        let (begin, before) = (Instant::now(), count());
        while begin.elapsed() < AWAY || (count() - before < MEANWHILE && begin.elapsed() < AWAY + LONGER) {
            thread::sleep(Duration::from_millis(100));
        }
        postgres.start_again();
        let (back, meanwhile) = (Instant::now(), count() - before);
        let mut missing: HashSet<String> = served.lock().unwrap().iter().cloned().collect();
        // The load goes on until all of the outage is booked.
        while !missing.is_empty() && back.elapsed() < SOON {
            thread::sleep(Duration::from_millis(200));
            let booked: HashSet<String> = postgres.sql("SELECT id FROM usage").lines().map(str::to_owned).collect();
            missing.retain(|id| !booked.contains(id));
        }
        let took = back.elapsed();
        over.store(true, Ordering::SeqCst);
        for caller in callers {
            caller.join().unwrap();
        }
        assert!(missing.is_empty(), "{} of {} not booked after {took:.1?} under load", missing.len(), count());
        (took, meanwhile)
    });
    let (served, failed) = (count(), failed.into_inner());
    let all = served + failed;
    println!(
        "PostgreSQL away for {AWAY:?} under load: {served} of {all} requests served, {meanwhile} of them meanwhile; every record \
         booked {took:.1?} after its return, while the load went on"
    );
    assert!(meanwhile >= MEANWHILE, "{meanwhile} requests meanwhile all fit the queue");
    assert!(failed * 1_000 <= all, "{failed} of {all} failed");
    let booked = || postgres.sql("SELECT COUNT(*) FROM usage WHERE status = 200").parse::<usize>().unwrap();
    let end = Instant::now();
    while booked() < served && end.elapsed() < SOON {
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(booked(), served, "each once");
    let verified = gate.run(&["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", String::from_utf8_lossy(&verified.stderr));
}
