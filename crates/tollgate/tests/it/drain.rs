//! Shutdown on SIGTERM: running responses complete, new requests are refused, the process exits.

use std::{
    thread,
    time::{Duration, Instant},
};

use tollgate_testkit::{ClientResponse, PendingResponse, Request, ScriptedResponse, Upstream, wait_for};

use crate::support;

#[test]
fn shutdown_completes_running_streams_and_exits_within_a_second() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat_stream(&["one", "two", "three", "four"]).chunk_delay(Duration::from_millis(250)));
    let mut gateway = support::gateway_for(&upstream);
    let request = Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(gateway.key());
    let address = gateway.address();
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let request = request.clone();
            thread::spawn(move || {
                let answer = request.send(address).and_then(tollgate_testkit::PendingResponse::read).expect("an answer");
                (answer.status, answer.complete, answer.text().contains("[DONE]"), Instant::now())
            })
        })
        .collect();
    upstream.wait_for("all streams", |received| received.len() == 20);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    let ended = Instant::now();
    let answers: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    assert!(answers.iter().all(|answer| (answer.0, answer.1, answer.2) == (200, true, true)), "{answers:?}");
    let last = answers.iter().map(|answer| answer.3).max().unwrap();
    let lingered = ended.saturating_duration_since(last);
    println!("ended {lingered:?} after the last of twenty streams");
    assert!(lingered < Duration::from_secs(10), "it lingered for {lingered:?}");
    assert_eq!(gateway.records().iter().filter(|record| record["outcome"] == "completed").count(), 20);
}

/// Waits for the rest of a response that the gateway ends.
fn rest(mut open: PendingResponse, mut answer: ClientResponse) -> ClientResponse {
    open.read_rest(&mut answer);
    answer
}

#[test]
fn shutdown_deadline_ends_streams_with_an_error_in_the_callers_protocol() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat_stream(&["one"]).stall_after(2));
    let mut gateway = support::builder(&upstream, "cooling = false").env("TOLLGATE_SERVER__DRAIN_TIMEOUT_MS", "500").spawn();
    let chat = Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(gateway.key());
    let native =
        Request::post("/v1beta/models/chat-model:streamGenerateContent?alt=sse", &support::native()).native_key(gateway.key());
    let mut streams = Vec::new();
    for request in [&chat, &native] {
        let mut open = gateway.start_request(request);
        let mut answer = open.read_head().unwrap();
        answer.body = open.read_chunk(&answer).unwrap().unwrap();
        streams.push((open, answer));
    }
    // A whole answer whose upstream has not begun.
    upstream.set_default(ScriptedResponse::chat("late").delay(Duration::from_mins(1)));
    let whole = gateway.start_request(&Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(gateway.key()));
    upstream.wait_for("all requests", |received| received.len() == 3);
    assert_eq!(gateway.stop(), Some(1), "drain time exceeded\n{}", gateway.log());
    let ended: Vec<ClientResponse> = streams.into_iter().map(|(open, answer)| rest(open, answer)).collect();
    assert!(ended[0].text().contains("\"code\":\"shutting_down\"") && !ended[0].complete, "{}", ended[0].text());
    assert!(ended[1].text().contains("SHUTTING_DOWN") && !ended[1].complete, "{}", ended[1].text());
    let whole = whole.read().expect("an answer");
    assert_eq!((whole.status, whole.complete), (503, true), "{}", whole.text());
    assert!(whole.text().contains("shutting_down"), "{}", whole.text());
    let records = gateway.records();
    assert!(records.iter().all(|record| record["outcome"] == "gateway_stopped"), "{records:#?}");
}

#[test]
fn second_signal_ends_a_drain_at_once() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat_stream(&["one"]).stall_after(2));
    let mut gateway = support::builder(&upstream, "cooling = false").spawn();
    let request = Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(gateway.key());
    let mut open = gateway.start_request(&request);
    let answer = open.read_head().unwrap();
    assert!(open.read_chunk(&answer).unwrap().is_some());
    gateway.signal("INT");
    wait_for("it drains", Duration::from_secs(5), || gateway.log().contains("stopping: running responses continue"));
    let before = Instant::now();
    assert_eq!(gateway.stop(), Some(1), "{}", gateway.log());
    assert!(before.elapsed() < Duration::from_secs(5), "ten minutes of draining were left");
    assert!(gateway.log().contains("were cut off by a second signal"), "{}", gateway.log());
    assert_eq!(gateway.records().len(), 1, "what was cut off has its record");
}

#[test]
fn shutdown_deadline_aborts_stalled_streams() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat_stream(&["one"]).stall_after(2));
    let mut gateway = support::builder(&upstream, "cooling = false").env("TOLLGATE_SERVER__DRAIN_TIMEOUT_MS", "300").spawn();
    let request = Request::post("/v1/chat/completions", &support::chat_stream("chat-model")).bearer(gateway.key());
    let mut open = gateway.start_request(&request);
    let answer = open.read_head().unwrap();
    assert!(open.read_chunk(&answer).unwrap().is_some());
    // The upstream stalls for two minutes.
    assert_eq!(gateway.stop(), Some(1), "drain time exceeded\n{}", gateway.log());
}
