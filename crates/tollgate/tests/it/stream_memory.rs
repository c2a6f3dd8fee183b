//! Memory of the process while upstreams send large events.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tollgate_testkit::{ClientResponse, ScriptedResponse, Upstream};

use crate::support;

const MIB: usize = 1024 * 1024;
const STREAMS: usize = 24;

/// A stream with content, and then 15 MiB of an event that does not end.
fn endless_event() -> ScriptedResponse {
    let begin = "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"upstream-model\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"";
    let mut chunks = vec![format!("{begin}begin\"}},\"finish_reason\":null}}]}}\n\n"), begin.to_owned()];
    chunks.extend((0..15).map(|_| "x".repeat(MIB)));
    let sent = chunks.len();
    chunks.push("never sent".to_owned());
    ScriptedResponse::events(chunks).stall_after(sent)
}

#[test]
fn stream_events_stay_within_the_body_memory_limit() {
    let upstream = Upstream::start();
    let gateway = support::builder(&upstream, "cooling = false\nidle_timeout_ms = 4000")
        .env("TOLLGATE_LIMITS__BODY_MEMORY_BYTES", &(64 * MIB).to_string())
        .spawn();
    assert_eq!(gateway.chat(&support::chat_stream("chat-model")).status, 200);
    upstream.set_default(endless_event());
    let before = support::resident_kib(gateway.pid());
    let ended = AtomicBool::new(false);
    let (answers, peak) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut peak = 0;
            while !ended.load(Ordering::Relaxed) {
                peak = peak.max(support::resident_kib(gateway.pid()));
                std::thread::sleep(Duration::from_millis(20));
            }
            peak
        });
        let streams: Vec<_> = (0..STREAMS).map(|_| scope.spawn(|| gateway.chat(&support::chat_stream("chat-model")))).collect();
        let answers: Vec<ClientResponse> = streams.into_iter().map(|stream| stream.join().unwrap()).collect();
        ended.store(true, Ordering::Relaxed);
        (answers, watch.join().unwrap())
    });
    assert!(answers.iter().all(|answer| answer.status == 200 && !answer.complete && answer.text().contains("begin")));
    let ends_with =
        |code: &str| answers.iter().filter(|answer| answer.events().last().is_some_and(|last| last.contains(code))).count();
    let (without_memory, silent) = (ends_with("server_overloaded"), ends_with("upstream_timeout"));
    let last_events: Vec<_> = answers.iter().map(|answer| answer.events().last().cloned()).collect();
    assert!(without_memory > 0 && silent > 0 && without_memory + silent == STREAMS, "{last_events:?}");
    let growth = peak.saturating_sub(before) / 1024;
    println!("{STREAMS} streams with an event of 15 MiB each: resident memory grew by {growth} MiB");
    assert!(growth < 120, "resident memory grew by {growth} MiB");
    // The memory of the streams is free again.
    upstream.set_default(ScriptedResponse::chat_stream(&["hi"]));
    assert!(gateway.chat(&support::chat_stream("chat-model")).complete);
}
