//! kill -9 under load: what reached an upstream is in the records, once.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::json;
use tollgate_testkit::{Gate, Open, Reply, Request, SERVICE_KEY, Upstream};

use crate::support::{self, PROGRAM};

/// How often the gateway is killed.
const KILLS: usize = 20;

#[test]
fn twenty_kills_under_load_lose_nothing_and_double_nothing() {
    let upstream = Upstream::start();
    upstream.otherwise(Reply::chat_stream(&["one", "two", "three"]).every(Duration::from_millis(5)));
    let catalog = support::catalog(&upstream, "cooling = false\nretry_uncertain = false");
    let mut data = None;
    for kill in 0..KILLS {
        let mut builder = Gate::of(PROGRAM).catalog(&catalog);
        if let Some(folder) = data.take() {
            builder = builder.on(folder);
        }
        let gate = builder.spawn();
        let address = gate.address();
        let stop = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..8)
            .map(|number| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || {
                    let mut body = if number % 2 == 0 { support::chat_stream("chat-model") } else { support::chat("chat-model") };
                    body["user"] = json!(format!("kill-{kill}"));
                    let request = Request::post("/v1/chat/completions", &body).bearer(SERVICE_KEY);
                    while !stop.load(Ordering::SeqCst) {
                        if request.send(address).and_then(Open::answer).is_err() {
                            return;
                        }
                    }
                })
            })
            .collect();
        let before = upstream.seen().len();
        upstream.wait_for("some load", |seen| seen.len() > before + 30);
        data = Some(gate.kill());
        stop.store(true, Ordering::SeqCst);
        for caller in callers {
            caller.join().unwrap();
        }
    }
    let gate = Gate::of(PROGRAM).catalog(&catalog).on(data.unwrap()).spawn();
    let records = gate.records();
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for record in &records {
        *times.entry(record["id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    let doubled = times.values().filter(|times| **times > 1).count();
    let attempts: usize = records.iter().map(|record| record["attempts"].as_array().unwrap().len()).sum();
    let seen = upstream.seen().len();
    let stopped = records.iter().filter(|record| record["outcome"] == "gateway_stopped").count();
    println!(
        "{KILLS} kills: {seen} requests upstream, {attempts} attempts in {} records, {stopped} cut by a kill, {doubled} doubled",
        records.len()
    );
    assert_eq!(doubled, 0);
    // A begin is written before the first byte goes upstream, so a kill between the two leaves an attempt that the
    // upstream never saw; never the other way round.
    assert!(attempts >= seen, "{seen} requests reached the upstream, {attempts} attempts are recorded");
    assert!(attempts <= seen + KILLS * 8, "{attempts} attempts for {seen} requests");
    assert!(stopped > 0, "the kills hit running requests");
}

#[test]
fn a_killed_stream_is_recorded_as_stopped_with_what_it_had_delivered() {
    let upstream = Upstream::start();
    upstream.next(Reply::chat_stream(&["hello", "world"]).stall_after(2));
    let gate = support::before(&upstream);
    let request = Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(gate.key());
    let mut open = gate.open(&request);
    let answer = open.head().unwrap();
    let id = answer.header("x-request-id").unwrap().to_owned();
    assert!(open.piece(&answer).unwrap().is_some());
    let catalog = support::catalog(&upstream, "cooling = false");
    let gate = Gate::of(PROGRAM).catalog(&catalog).on(gate.kill()).spawn();
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
    let output = Gate::of(PROGRAM).on(data).without_record_check().fail();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(".tgj"), "{said}");
}
