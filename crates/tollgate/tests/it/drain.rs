//! SIGTERM: running answers end well, new requests are told, the process ends.

use std::{
    thread,
    time::{Duration, Instant},
};

use tollgate_testkit::{Request, ScriptedResponse, Upstream};

use crate::support;

#[test]
fn running_streams_end_well_and_the_process_ends_within_a_second_of_the_last() {
    let upstream = Upstream::start();
    upstream.otherwise(ScriptedResponse::chat_stream(&["one", "two", "three", "four"]).every(Duration::from_millis(250)));
    let mut gate = support::before(&upstream);
    let request = Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(gate.key());
    let address = gate.address();
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let request = request.clone();
            thread::spawn(move || {
                let answer = request.send(address).and_then(tollgate_testkit::PendingResponse::answer).expect("an answer");
                (answer.status, answer.whole, answer.text().contains("[DONE]"), Instant::now())
            })
        })
        .collect();
    upstream.wait_for("all streams", |seen| seen.len() == 20);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(gate.stop(), Some(0), "{}", gate.log());
    let ended = Instant::now();
    let answers: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    assert!(answers.iter().all(|answer| (answer.0, answer.1, answer.2) == (200, true, true)), "{answers:?}");
    let last = answers.iter().map(|answer| answer.3).max().unwrap();
    let lingered = ended.saturating_duration_since(last);
    println!("ended {lingered:?} after the last of twenty streams");
    assert!(lingered < Duration::from_secs(10), "it lingered for {lingered:?}");
    assert_eq!(gate.records().iter().filter(|record| record["outcome"] == "completed").count(), 20);
}

#[test]
fn a_second_limit_ends_what_does_not_end_by_itself() {
    let upstream = Upstream::start();
    upstream.otherwise(ScriptedResponse::chat_stream(&["one"]).stall_after(2));
    let mut gate = support::builder(&upstream, "cooling = false").env("TOLLGATE_SERVER__DRAIN_TIMEOUT_MS", "300").spawn();
    let request = Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(gate.key());
    let mut open = gate.open(&request);
    let answer = open.head().unwrap();
    assert!(open.piece(&answer).unwrap().is_some());
    // The stall lasts for two minutes.
    assert_eq!(gate.stop(), Some(1), "drain time exceeded\n{}", gate.log());
}
