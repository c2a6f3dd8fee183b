//! Memory of a translated stream does not depend on its length. A separate test binary, so that no other test affects the
//! measured process.

#![cfg(target_os = "linux")]

use std::fs;

use bytes::Bytes;
use tollgate_protocol::{Protocol, neutral::ReplyContext, translating_relay};

/// Resident memory of this process, in KiB.
fn resident_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("procfs is mounted");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("the status has VmRSS");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

fn event(upstream: Protocol, n: usize) -> Bytes {
    let json = match upstream {
        Protocol::OpenAi => format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"word é {n} "}},"finish_reason":null}}]}}"#),
        Protocol::Gemini if n.is_multiple_of(10) => {
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1}}}]},"index":0}]}"#.to_owned()
        }
        Protocol::Gemini => format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"text":"word é {n} "}}]}},"index":0}}],"usageMetadata":{{"promptTokenCount":4,"candidatesTokenCount":{n}}}}}"#
        ),
        Protocol::Anthropic => {
            format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"word é {n} "}}}}"#)
        }
        Protocol::Responses => format!(r#"{{"type":"response.output_text.delta","output_index":0,"delta":"word é {n} "}}"#),
    };
    Bytes::from(format!("data: {json}\n\n"))
}

#[test]
fn memory_is_the_same_for_a_thousand_and_a_hundred_thousand_events() {
    for (upstream, caller) in [
        (Protocol::Gemini, Protocol::OpenAi),
        (Protocol::OpenAi, Protocol::Gemini),
        (Protocol::Anthropic, Protocol::OpenAi),
        (Protocol::Anthropic, Protocol::Gemini),
        (Protocol::OpenAi, Protocol::Anthropic),
        (Protocol::Responses, Protocol::OpenAi),
    ] {
        let mut relay = translating_relay(upstream, caller, &ReplyContext::new("r", 1, "m"));
        let start = br#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
        let mut sent = 0;
        let mut out = Vec::new();
        if upstream == Protocol::Anthropic {
            relay.push(&Bytes::from([&start[..], b"\n\n"].concat()), &mut out).expect("a valid event");
        }
        let mut early = 0;
        for n in 0..100_000 {
            relay.push(&event(upstream, n), &mut out).expect("a valid event");
            sent += out.drain(..).map(|bytes| bytes.len()).sum::<usize>();
            if n == 1_000 {
                early = resident_kib();
            }
        }
        let grown = resident_kib().saturating_sub(early);
        assert!(sent > 4 * 1024 * 1024, "{upstream:?} {caller:?}: only {sent} bytes sent");
        assert!(grown <= 1024, "{upstream:?} {caller:?}: {grown} KiB more");
    }
}
