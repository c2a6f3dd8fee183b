//! PostgreSQL stopped for a minute under load: known keys are served, and every record is there soon after its return.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use tollgate_testkit::{Gate, Postgres, Request};

use crate::support::{self, PROGRAM};

/// How long the database is away.
const AWAY: Duration = Duration::from_mins(1);
/// Callers at once, and the pause each makes after an answer.
const CALLERS: usize = 4;
const PAUSE: Duration = Duration::from_millis(10);

#[test]
fn a_minute_without_its_database_costs_nobody_an_answer_and_no_record() {
    let Some(mut postgres) = Postgres::start("a_minute_without_its_database") else { return };
    let gate = Gate::of(PROGRAM).env("DATABASE_URL", &postgres.url()).spawn();
    let over = AtomicBool::new(false);
    let call = || {
        let request = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(gate.key());
        let (mut ids, mut failed) = (Vec::new(), 0);
        while !over.load(Ordering::SeqCst) {
            let answer = gate.send(&request);
            if answer.status == 200 {
                ids.extend(answer.header("x-request-id").map(str::to_owned));
            } else {
                failed += 1;
            }
            thread::sleep(PAUSE);
        }
        (ids, failed)
    };
    let (ids, failed, back) = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
        thread::sleep(Duration::from_secs(2));
        postgres.stop();
        thread::sleep(AWAY);
        postgres.start_again();
        let back = Instant::now();
        thread::sleep(Duration::from_secs(2));
        over.store(true, Ordering::SeqCst);
        let (mut ids, mut failed) = (Vec::new(), 0);
        for caller in callers {
            let (more, lost) = caller.join().unwrap();
            ids.extend(more);
            failed += lost;
        }
        (ids, failed, back)
    });
    let booked = || postgres.sql("SELECT COUNT(*) FROM usage WHERE status = 200").parse::<usize>().unwrap();
    while booked() < ids.len() {
        assert!(back.elapsed() < Duration::from_secs(30), "{} of {} booked after 30 s", booked(), ids.len());
        thread::sleep(Duration::from_millis(100));
    }
    let took = back.elapsed();
    let all = ids.len() + failed;
    println!(
        "PostgreSQL away for {AWAY:?} under load: {} of {all} requests served, every record booked {took:.1?} after its return",
        ids.len()
    );
    assert!(failed * 1_000 <= all, "{failed} of {all} failed");
    assert_eq!(booked(), ids.len(), "each once");
    let verified = gate.run(&["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", String::from_utf8_lossy(&verified.stderr));
}
