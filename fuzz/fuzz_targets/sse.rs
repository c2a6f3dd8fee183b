//! Event-stream framing compared with a simple parser of the whole text, for any chunk boundaries.
//!
//! Input: one seed byte for the cuts, then the stream.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_fuzz::{cut, selectors};
use tollgate_protocol::{StreamError, sse::SseParser};

/// Name and data of an event.
type Event = (Vec<u8>, Vec<u8>);

fuzz_target!(|input: &[u8]| {
    let Some(([seed], stream)) = selectors(input) else { return };
    let expected = parse_whole(stream);
    for seed in [0, 1, seed] {
        assert_eq!(parsed(stream, seed), expected);
    }
});

/// Events from the parser. Checks that bytes marked as forwardable are exactly the event.
fn parsed(stream: &[u8], seed: u8) -> Vec<Event> {
    let mut events = Vec::new();
    let mut parser = SseParser::new();
    for chunk in cut(stream, seed) {
        let pushed = parser.push(&chunk, |event| -> Result<(), StreamError> {
            if let Some(sent) = event.as_sent() {
                let data = sent.strip_prefix(b"data:").and_then(|rest| rest.strip_suffix(b"\n\n")).expect("one data line");
                let data = if event.has_space() { &data[1..] } else { data };
                assert_eq!(data, event.data);
                if let Some(range) = event.range_in(&chunk) {
                    assert_eq!(chunk[range], sent);
                }
            }
            if let Some(sent) = event.as_sent_named() {
                assert_eq!(*sent, *[b"event: ", event.name, b"\ndata: ", event.data, b"\n\n"].concat());
                if let Some(range) = event.named_range_in(&chunk) {
                    assert_eq!(chunk[range], sent);
                }
            }
            events.push((event.name.to_vec(), event.data.to_vec()));
            Ok(())
        });
        pushed.expect("no event here is above the limit");
    }
    let finished = parser.finish(|event| -> Result<(), StreamError> {
        assert!(
            event.as_sent().is_none() && event.as_sent_named().is_none(),
            "an event without its end is not forwarded unchanged"
        );
        events.push((event.name.to_vec(), event.data.to_vec()));
        Ok(())
    });
    finished.expect("no event here is above the limit");
    events
}

/// A simple parser of the whole text by the rules of the event-stream format; an unfinished last event counts.
fn parse_whole(stream: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    let (mut name, mut data) = (Vec::new(), Vec::new());
    let mut dispatch = |name: &mut Vec<u8>, data: &mut Vec<Vec<u8>>| {
        let joined = data.join(&b'\n');
        if !joined.is_empty() {
            events.push((name.clone(), joined));
        }
        name.clear();
        data.clear();
    };
    for line in lines(stream.strip_prefix("\u{feff}".as_bytes()).unwrap_or(stream)) {
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            _ if line.is_empty() => dispatch(&mut name, &mut data),
            b"data" => data.push(value.to_vec()),
            b"event" => name = value.to_vec(),
            _ => {}
        }
    }
    dispatch(&mut name, &mut data);
    events
}

/// The lines of a text, for all three line endings.
fn lines(mut text: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    while let Some(at) = text.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        lines.push(&text[..at]);
        let end = if text[at..].starts_with(b"\r\n") { at + 2 } else { at + 1 };
        text = &text[end..];
    }
    if !text.is_empty() {
        lines.push(text);
    }
    lines
}
