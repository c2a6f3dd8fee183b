//! kill -9 under load: what reached an upstream is in the records, once.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tollgate_testkit::{PendingResponse, Request, SERVICE_KEY, ScriptedResponse, TestGateway, Upstream};

use crate::{
    load,
    support::{self, PROGRAM},
};

/// How often the gateway is killed.
const KILLS: usize = 50;
/// Callers at once, half of them streaming.
const CALLERS: usize = 16;
/// Requests that reach the upstream between two kills, at least.
const REQUESTS: usize = 60;

#[test]
fn fifty_kills_under_load_lose_nothing_and_double_nothing() {
    let upstream = Upstream::start();
    upstream.otherwise(ScriptedResponse::chat_stream(&["one", "two", "three"]).every(Duration::from_millis(5)));
    let catalog = support::catalog(&upstream, "cooling = false\nretry_uncertain = false");
    let mut data = None;
    let (mut answered, mut served_for) = (Vec::new(), Duration::ZERO);
    for kill in 0..KILLS {
        let sync = if kill % 2 == 0 { "background" } else { "group" };
        let mut builder = TestGateway::of(PROGRAM).catalog(&catalog).env("TOLLGATE_JOURNAL__SYNC", sync);
        if let Some(folder) = data.take() {
            builder = builder.on(folder);
        }
        let gate = builder.spawn();
        let address = gate.address();
        let begin = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || {
                    let body = if number % 2 == 0 { support::chat_stream("chat-model") } else { support::chat("chat-model") };
                    let request = Request::post("/v1/chat/completions", &body).bearer(SERVICE_KEY);
                    let mut whole = Vec::new();
                    while !stop.load(Ordering::SeqCst) {
                        let Ok(answer) = request.send(address).and_then(PendingResponse::answer) else { break };
                        // The upstream streams to everybody; a caller who did not ask for that is told that it failed.
                        whole.extend(answer.header("x-request-id").map(str::to_owned));
                    }
                    whole
                })
            })
            .collect();
        let before = upstream.seen().len();
        upstream.wait_for("some load", |seen| seen.len() >= before + REQUESTS);
        served_for += begin.elapsed();
        data = Some(gate.kill());
        stop.store(true, Ordering::SeqCst);
        for caller in callers {
            answered.extend(caller.join().unwrap());
        }
    }
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).on(data.unwrap()).spawn();
    let records = gate.records();
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for record in &records {
        *times.entry(record["id"].as_str().unwrap()).or_default() += 1;
    }
    let doubled = times.values().filter(|times| **times > 1).count();
    let lost = answered.iter().filter(|id| !times.contains_key(id.as_str())).count();
    let attempts: usize = records.iter().map(|record| record["attempts"].as_array().unwrap().len()).sum();
    let seen = upstream.seen().len();
    let stopped = records.iter().filter(|record| record["outcome"] == "gateway_stopped").count();
    println!(
        "{KILLS} kills at {} requests/s: {seen} requests upstream, {attempts} attempts in {} records, {stopped} of them cut by a \
         kill; {} whole answers, {lost} lost, {doubled} doubled",
        seen as u128 * 1_000 / served_for.as_millis().max(1),
        records.len(),
        answered.len()
    );
    assert_eq!((lost, doubled), (0, 0));
    // A begin is written before the first byte goes upstream, so a kill between the two leaves an attempt that the
    // upstream never saw; never the other way round.
    assert!(attempts >= seen, "{seen} requests reached the upstream, {attempts} attempts are recorded");
    assert!(attempts <= seen + KILLS * CALLERS, "{attempts} attempts for {seen} requests");
    assert!(stopped > 0, "the kills hit running requests");
    let verified = gate.run(&["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", String::from_utf8_lossy(&verified.stderr));
}

/// What the slowest of twenty small writes takes to reach the disk.
fn slowest_flush() -> Duration {
    let mut file = tempfile::tempfile().unwrap();
    let flush = |_| {
        let begin = Instant::now();
        file.write_all(&[0; 4096]).unwrap();
        file.sync_data().unwrap();
        begin.elapsed()
    };
    (0..20).map(flush).max().unwrap()
}

#[test]
fn waiting_for_the_disk_costs_an_answer_a_few_milliseconds() {
    let upstream = Upstream::start();
    upstream.otherwise(ScriptedResponse::chat("hi"));
    let load = |sync: &str| {
        let gate = support::builder(&upstream, "cooling = false").env("TOLLGATE_JOURNAL__SYNC", sync).spawn();
        load::send(&gate, "chat-model", 200, 4);
        let load = load::send(&gate, "chat-model", 1_000, 4);
        assert_eq!(load.failed(), 0);
        (load.within(500), load.within(990))
    };
    let (background, group) = (load("background"), load("group"));
    println!(
        "journal.sync: background p50 {:.2?}, p99 {:.2?}; group p50 {:.2?}, p99 {:.2?}",
        background.0, background.1, group.0, group.1
    );
    // Two flushes at most stand before an answer (its own and the one under way), whatever the disk takes for one.
    let flush = slowest_flush();
    println!("the slowest of twenty flushes of this disk took {flush:.2?}");
    assert!(group.0 < background.0 + 4 * flush + Duration::from_millis(50), "the median waits for a flush, not for a time");
}

#[test]
fn a_full_disk_is_waited_out_and_nothing_is_lost() {
    let upstream = Upstream::start();
    upstream.otherwise(ScriptedResponse::chat("hi"));
    let folder = tempfile::TempDir::new().unwrap();
    let program = on_a_disk_that_fills(&folder);
    let catalog = support::catalog(&upstream, "cooling = false");
    let start = |builder: tollgate_testkit::TestGatewayBuilder| builder.catalog(&catalog).spawn();
    let gate = start(TestGateway::of(&program));
    assert_eq!(gate.chat(&support::chat("chat-model")).status, 200);
    room_on_disk(&gate, "0");
    // With nothing but room in memory left.
    for _ in 0..300 {
        assert_eq!(gate.chat(&support::chat("chat-model")).status, 200);
    }
    assert!(gate.log().contains("File too large"), "the disk was full: {}", gate.log());
    room_on_disk(&gate, "unlimited");
    assert_eq!(gate.chat(&support::chat("chat-model")).status, 200);
    // What waits in the other core's memory is seen once it is booked.
    let back = Instant::now();
    while gate.records().len() < 302 && back.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(100));
    }
    let records = gate.records();
    println!("a full disk: 302 requests answered, {} records {:.1?} after there was room again", records.len(), back.elapsed());
    assert_eq!(records.len(), 302);
    let gate = start(TestGateway::of(PROGRAM).on(gate.kill()));
    assert_eq!(gate.records().len(), 302);
    assert_eq!(gate.run(&["verify"]).status.code(), Some(0));
}

/// The program, to be used with [`room_on_disk`]. Without room for files to grow every write fails as on a full disk, the
/// database's too, and nobody has to be allowed to mount a small one. The signal that would come with it is ignored.
pub(crate) fn on_a_disk_that_fills(folder: &tempfile::TempDir) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let program = folder.path().join("tollgate");
    std::fs::write(&program, format!("#!/bin/sh\ntrap '' XFSZ\nexec '{PROGRAM}' \"$@\"\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program.to_str().unwrap().to_owned()
}

/// How large a file of a running gateway may become; only what it may itself undo is changed.
pub(crate) fn room_on_disk(gate: &TestGateway, bytes: &str) {
    let output = std::process::Command::new("prlimit")
        .args(["--pid", &gate.pid().to_string(), &format!("--fsize={bytes}:")])
        .output()
        .expect("prlimit is part of util-linux");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_killed_stream_is_recorded_as_stopped_with_what_it_had_delivered() {
    let upstream = Upstream::start();
    upstream.next(ScriptedResponse::chat_stream(&["hello", "world"]).stall_after(2));
    let gate = support::before(&upstream);
    let request = Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(gate.key());
    let mut open = gate.open(&request);
    let answer = open.head().unwrap();
    let id = answer.header("x-request-id").unwrap().to_owned();
    assert!(open.piece(&answer).unwrap().is_some());
    let catalog = support::catalog(&upstream, "cooling = false");
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).on(gate.kill()).spawn();
    let record = gate.wait_for_record("record of the killed stream", |record| record["id"] == id.as_str());
    assert_eq!(record["outcome"], "gateway_stopped");
    assert_eq!(record["attempts"][0]["channel"], "chat");
    // No progress was noted yet (at most every 2 s), so nothing is sold; what the provider will charge is estimated.
    assert_eq!(record["sale_nano_usd"], 0);
    assert_eq!(record["attempts"][0]["tokens"]["source"], "estimated");
}

#[test]
fn a_damaged_journal_is_refused_by_name() {
    let gate = support::echo();
    assert_eq!(gate.chat(&support::chat("echo")).status, 200);
    assert_eq!(gate.chat(&support::chat("echo")).status, 200);
    let data = gate.kill();
    let segment =
        std::fs::read_dir(data.path().join("journal")).unwrap().flatten().map(|entry| entry.path()).find(|path| {
            path.extension().is_some_and(|extension| extension == "tgj") && std::fs::metadata(path).unwrap().len() > 200
        });
    let Some(segment) = segment else { panic!("no segment with entries") };
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[60] ^= 0xff;
    std::fs::write(&segment, bytes).unwrap();
    let output = TestGateway::of(PROGRAM).on(data).without_record_check().fail();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(".tgj"), "{said}");
}
