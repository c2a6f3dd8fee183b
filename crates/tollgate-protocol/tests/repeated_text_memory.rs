//! Memory of a translated Responses stream, whose last events repeat its text: the text must be in memory only once. A separate
//! test binary, so that no other test affects the measured process.

#![cfg(target_os = "linux")]

use std::fs;

use bytes::Bytes;
use tollgate_protocol::{Protocol, StreamRelay, neutral::ReplyContext, translating_relay};

const MIB: usize = 1024 * 1024;
/// Length of the text.
const TEXT: usize = 48 * MIB;

/// A memory statistic of this process, in bytes.
fn status(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("procfs is mounted");
    let line = status.lines().find(|line| line.starts_with(name)).expect("the status has it");
    line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok()).expect("a number") * 1024
}

/// Pushes an event as the gateway does; returns how many bytes the caller gets.
fn push(relay: &mut dyn StreamRelay, event: &Bytes) -> usize {
    let mut out = Vec::new();
    relay.push(event, &mut out).expect("a valid event");
    let written: usize = out.drain(..).map(|bytes| bytes.len()).sum();
    written + std::iter::from_fn(|| relay.next_shared()).map(|bytes| bytes.len()).sum::<usize>()
}

#[test]
fn text_of_forty_eight_mebibytes_is_in_memory_once() {
    let piece = "0123456789abcdef".repeat(256);
    let event = format!(r#"data: {{"choices":[{{"index":0,"delta":{{"content":"{piece}"}},"finish_reason":null}}]}}"#);
    let event = Bytes::from(event + "\n\n");
    let mut relay = translating_relay(Protocol::OpenAi, Protocol::Responses, &ReplyContext::new("r", 1, "m"));
    let before = status("VmRSS:");
    let mut sent = 0;
    for _ in 0..TEXT / piece.len() {
        sent += push(&mut *relay, &event);
    }
    sent += push(
        &mut *relay,
        &Bytes::from("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"),
    );
    assert!(relay.complete() && sent > 5 * TEXT, "the deltas and four events with the whole text: {sent}");
    let grown = status("VmHWM:").saturating_sub(before);
    println!("{} MiB of text, {} MiB sent, {} MiB of memory", TEXT / MIB, sent / MIB, grown / MIB);
    assert!(grown < TEXT + TEXT / 4, "{} MiB", grown / MIB);
}
