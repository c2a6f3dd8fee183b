//! The journal under `kill -9`, full disks and damage: every request that reached an upstream has exactly one record.

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

use serde_json::Value;
use tollgate_testkit::{PendingResponse, Request, SERVICE_KEY, ScriptedResponse, TestGateway, Upstream};

use crate::{
    load,
    support::{self, PROGRAM},
};

/// Number of kills.
const KILLS: usize = 50;
/// Concurrent callers, half of them streaming.
const CALLERS: usize = 16;
/// Minimum number of requests that reach the upstream between two kills.
const REQUESTS: usize = 60;

#[test]
fn fifty_kills_under_load_lose_and_duplicate_no_record() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat_stream(&["one", "two", "three"]).chunk_delay(Duration::from_millis(5)));
    let catalog = support::catalog(&upstream, "cooling = false\nretry_uncertain = false");
    let mut data = None;
    let (mut answered, mut served_for) = (Vec::new(), Duration::ZERO);
    for kill in 0..KILLS {
        let sync = if kill % 2 == 0 { "background" } else { "group" };
        let mut builder = TestGateway::builder(PROGRAM).catalog(&catalog).env("TOLLGATE_JOURNAL__SYNC", sync);
        if let Some(folder) = data.take() {
            builder = builder.data_folder(folder);
        }
        let gateway = builder.spawn();
        let address = gateway.address();
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
                        let Ok(answer) = request.send(address).and_then(PendingResponse::read) else { break };
                        // The upstream streams to all callers; those that did not request a stream get an error.
                        whole.extend(answer.header("x-request-id").map(str::to_owned));
                    }
                    whole
                })
            })
            .collect();
        let before = upstream.received().len();
        upstream.wait_for("some load", |received| received.len() >= before + REQUESTS);
        served_for += begin.elapsed();
        data = Some(gateway.kill());
        stop.store(true, Ordering::SeqCst);
        for caller in callers {
            answered.extend(caller.join().unwrap());
        }
    }
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).data_folder(data.unwrap()).spawn();
    let records = gateway.records();
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for record in &records {
        *times.entry(record["id"].as_str().unwrap()).or_default() += 1;
    }
    let duplicates = times.values().filter(|times| **times > 1).count();
    let lost = answered.iter().filter(|id| !times.contains_key(id.as_str())).count();
    let attempts: usize = records.iter().map(|record| record["attempts"].as_array().unwrap().len()).sum();
    let received = upstream.received().len();
    let stopped = records.iter().filter(|record| record["outcome"] == "gateway_stopped").count();
    println!(
        "{KILLS} kills at {} requests/s: {received} requests upstream, {attempts} attempts in {} records, {stopped} of them cut by a \
         kill; {} whole answers, {lost} lost, {duplicates} duplicates",
        received as u128 * 1_000 / served_for.as_millis().max(1),
        records.len(),
        answered.len()
    );
    assert_eq!((lost, duplicates), (0, 0));
    // The begin entry is written before the first byte is sent, so a kill in between leaves an attempt that the upstream
    // did not receive, never the reverse.
    assert!(attempts >= received, "{received} requests reached the upstream, {attempts} attempts are recorded");
    assert!(attempts <= received + KILLS * CALLERS, "{attempts} attempts for {received} requests");
    assert!(stopped > 0, "the kills hit running requests");
    let verified = gateway.run(&["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", String::from_utf8_lossy(&verified.stderr));
}

/// Time of the slowest of twenty small flushed writes.
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
fn group_sync_delays_an_answer_by_at_most_two_flushes() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hi"));
    let load = |sync: &str| {
        let gateway = support::builder(&upstream, "cooling = false").env("TOLLGATE_JOURNAL__SYNC", sync).spawn();
        load::send(&gateway, "chat-model", 200, 4);
        let load = load::send(&gateway, "chat-model", 1_000, 4);
        assert_eq!(load.failed(), 0);
        (load.within(500), load.within(990))
    };
    let (background, group) = (load("background"), load("group"));
    println!(
        "journal.sync: background p50 {:.2?}, p99 {:.2?}; group p50 {:.2?}, p99 {:.2?}",
        background.0, background.1, group.0, group.1
    );
    // An answer waits for at most two flushes: its own and the running one.
    let flush = slowest_flush();
    println!("the slowest of twenty flushes of this disk took {flush:.2?}");
    assert!(group.0 < background.0 + 4 * flush + Duration::from_millis(50), "the median waits for a flush, not for a time");
}

#[test]
fn full_disk_is_survived_without_losing_records() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hi"));
    let folder = tempfile::TempDir::new().unwrap();
    let program = program_with_file_size_limit(&folder);
    let catalog = support::catalog(&upstream, "cooling = false");
    let start = |builder: tollgate_testkit::TestGatewayBuilder| builder.catalog(&catalog).spawn();
    let gateway = start(TestGateway::builder(&program));
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    limit_file_size(&gateway, "0");
    // Records now fit in memory only.
    for _ in 0..300 {
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    }
    assert!(gateway.log().contains("File too large"), "the disk was full: {}", gateway.log());
    limit_file_size(&gateway, "unlimited");
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    // Records in the other core's memory become visible when they are stored.
    let back = Instant::now();
    while gateway.records().len() < 302 && back.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(100));
    }
    let records = gateway.records();
    println!("a full disk: 302 requests answered, {} records {:.1?} after writes succeed again", records.len(), back.elapsed());
    assert_eq!(records.len(), 302);
    let gateway = start(TestGateway::builder(PROGRAM).data_folder(gateway.kill()));
    assert_eq!(gateway.records().len(), 302);
    assert_eq!(gateway.run(&["verify"]).status.code(), Some(0));
}

/// A script that runs the program with SIGXFSZ ignored, for [`limit_file_size`]: a limit of 0 makes every write fail as on
/// a full disk, the database's included, without the privilege to mount one.
pub(crate) fn program_with_file_size_limit(folder: &tempfile::TempDir) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let program = folder.path().join("tollgate");
    std::fs::write(&program, format!("#!/bin/sh\ntrap '' XFSZ\nexec '{PROGRAM}' \"$@\"\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program.to_str().unwrap().to_owned()
}

/// Limits the file size of a running gateway, in bytes or `unlimited`. Changes the soft limit only.
pub(crate) fn limit_file_size(gateway: &TestGateway, bytes: &str) {
    let output = std::process::Command::new("prlimit")
        .args(["--pid", &gateway.pid().to_string(), &format!("--fsize={bytes}:")])
        .output()
        .expect("prlimit is part of util-linux");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn killed_stream_is_recorded_as_stopped_with_its_delivered_tokens() {
    let upstream = Upstream::start();
    upstream.enqueue(ScriptedResponse::chat_stream(&["hello", "world"]).stall_after(2));
    let gateway = support::gateway_for(&upstream);
    let request = Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(gateway.key());
    let mut open = gateway.start_request(&request);
    let answer = open.read_head().unwrap();
    let id = answer.header("x-request-id").unwrap().to_owned();
    assert!(open.read_chunk(&answer).unwrap().is_some());
    let catalog = support::catalog(&upstream, "cooling = false");
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).data_folder(gateway.kill()).spawn();
    let record = gateway.wait_for_record("record of the killed stream", |record| record["id"] == id.as_str());
    assert_eq!(record["outcome"], "gateway_stopped");
    assert_eq!(record["attempts"][0]["channel"], "chat");
    // No progress was written yet (at most every 2 s), so nothing is charged; the provider's cost is estimated.
    assert_eq!(record["sale"], "0.00");
    assert_eq!(record["attempts"][0]["tokens"]["source"], "estimated");
}

#[test]
fn entries_of_the_journal_are_printed_as_json() {
    let gateway = support::echo();
    let ids = [gateway.chat(&support::chat("echo")), gateway.chat(&support::chat("echo"))]
        .map(|answer| answer.header("x-request-id").unwrap().to_owned());
    let dumped = |arguments: &[&str]| {
        let output = gateway.run(&[&["journal", "dump"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    let kinds = |entries: &[Value], id: &str| {
        let of_request = entries.iter().filter(|entry| entry["entry"]["id"] == id);
        of_request.map(|entry| entry["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = dumped(&[]);
    for id in &ids {
        assert_eq!(kinds(&all, id), ["begin", "end"], "{all:?}");
    }
    let one = dumped(&["--request", &ids[1]]);
    assert_eq!((one.len(), kinds(&one, &ids[1])), (2, vec!["begin".to_owned(), "end".to_owned()]));
    assert_eq!(one[1]["entry"]["outcome"], "completed");
    assert_eq!(gateway.run(&["journal", "dump", "--request", "req_1"]).status.code(), Some(2));
}

#[test]
fn damaged_journal_is_refused_by_file_name() {
    let gateway = support::echo();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    let data = gateway.kill();
    let segment =
        std::fs::read_dir(data.path().join("journal")).unwrap().flatten().map(|entry| entry.path()).find(|path| {
            path.extension().is_some_and(|extension| extension == "tgj") && std::fs::metadata(path).unwrap().len() > 200
        });
    let Some(segment) = segment else { panic!("no segment with entries") };
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[60] ^= 0xff;
    std::fs::write(&segment, bytes).unwrap();
    let output = TestGateway::builder(PROGRAM).data_folder(data).without_record_check().run_to_exit();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(".tgj"), "{stderr}");
}
