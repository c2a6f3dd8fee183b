//! Shared by the fuzz targets. An input is a few selector bytes, then the bytes of a body or a stream as on the wire. `cargo
//! xtask fuzz` writes its seeds in this form.

use bytes::Bytes;
use serde_json::Value;
use tollgate_protocol::{
    Framing, Malformed, MalformedKind, Method, Protocol, RequestEdits, RequestSummary, Target, codec, decode_request,
    neutral::ReplyContext, remove_fields,
};

/// All protocols, in the order of the selector byte.
pub const PROTOCOLS: [Protocol; 4] = [Protocol::OpenAi, Protocol::Gemini, Protocol::Anthropic, Protocol::Responses];

/// The selector bytes of an input, and the rest.
pub fn selectors<const N: usize>(input: &[u8]) -> Option<([u8; N], &[u8])> {
    input.split_first_chunk().map(|(first, rest)| (*first, rest))
}

/// The protocol selected by a byte.
pub fn protocol(byte: u8) -> Protocol {
    PROTOCOLS[usize::from(byte) % PROTOCOLS.len()]
}

/// Cuts `stream` into pieces: not at all for seed 0, after every byte for 1, at pseudo-random places for others.
pub fn cut(stream: &[u8], seed: u8) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    let mut rest = stream;
    // xorshift32; never zero, because the lowest seed bit is set.
    let mut state = 0x9E37_79B9_u32 ^ (u32::from(seed) << 8 | 1);
    while !rest.is_empty() {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        let length = match seed {
            0 => rest.len(),
            1 => 1,
            // Mostly small pieces, which are the likeliest to reveal faults; sometimes large or empty ones.
            _ if state.is_multiple_of(7) => 1 + (state >> 8) as usize % 200,
            _ => (state >> 8) as usize % 9,
        };
        let (piece, remaining) = rest.split_at(length.min(rest.len()));
        pieces.push(Bytes::copy_from_slice(piece));
        rest = remaining;
    }
    pieces
}

/// The request facts needed to translate an answer, from one byte of flags.
pub fn context(flags: u8) -> ReplyContext {
    let on = |bit: u8| flags & (1 << bit) != 0;
    ReplyContext {
        stream: on(0),
        framing: if on(1) { Framing::JsonArray } else { Framing::Sse },
        include_usage: on(2),
        include_thoughts: on(3),
        carry_thinking: on(4),
        parallel: !on(5),
        custom_tools: if on(6) { vec!["f".to_owned()] } else { Vec::new() },
        name_map: if on(7) { vec![("g".to_owned(), "own:g".to_owned())] } else { Vec::new() },
        ..ReplyContext::new("req1", 1_700_000_000, "m")
    }
}

/// Processes a caller's body as a request in its own protocol, and decodes it in full.
pub fn request(protocol: Protocol, method: Method, body: &[u8]) {
    let model = (protocol == Protocol::Gemini).then(|| "m".to_owned());
    let target = Target { method, model, framing: Framing::Sse };
    let body = Bytes::copy_from_slice(body);
    // The gateway decodes only bodies that have a summary; decoding must not rely on it.
    let _ = decode_request(protocol, &target, &body);
    match codec(protocol).summarise(&target, &body) {
        Ok(summary) => check_summary(protocol, &target, &body, &summary),
        Err(refusal) => check_malformed(&body, &refusal),
    }
}

/// A body with a summary is JSON and stays JSON of the same shape after edits.
fn check_summary(protocol: Protocol, target: &Target, body: &Bytes, summary: &RequestSummary) {
    assert!(is_json(body), "a body with a summary is JSON");
    let plain = codec(protocol).forward_request(body, summary, &RequestEdits::default());
    // Besides marked thoughts, a budget for thinking is removed that the history does not allow.
    if summary.splices.markers || !codec(protocol).left_out(body, summary).is_empty() {
        assert!(is_json(&plain), "a cleaned body is JSON");
    } else {
        assert_eq!(plain, body, "a body without edits is unchanged");
    }
    let edits = RequestEdits {
        upstream_model: Some("other \"model\""),
        force_usage: true,
        max_output: Some(7),
        output_limit_field: Some("max_tokens"),
        keep_google_signatures: false,
        drop_signatures: false,
    };
    let edited = codec(protocol).forward_request(body, summary, &edits);
    assert!(is_json(&edited), "an edited body is JSON");
    if !summary.splices.markers {
        let again = codec(protocol).summarise(target, &edited).expect("an edited body is accepted again");
        assert_eq!(again.text_bytes, summary.text_bytes, "edits do not change text");
        if protocol != Protocol::Gemini {
            assert_eq!(again.model, "other \"model\"");
        }
    }
    let unsigned = RequestEdits { drop_signatures: true, ..RequestEdits::default() };
    assert!(is_json(&codec(protocol).forward_request(body, summary, &unsigned)), "a body without signatures is JSON");
    let bare = remove_fields(body, &summary.fields);
    assert!(is_json(&bare), "a body without its fields is JSON");
}

fn check_malformed(body: &Bytes, refusal: &Malformed) {
    assert!(refusal.violations.len() <= 20, "the list of violations is bounded");
    assert!(!refusal.message.is_empty());
    if refusal.kind != MalformedKind::NotJson {
        assert!(!refusal.violations.is_empty(), "a violation names a field");
        assert!(is_json(body), "only JSON has invalid fields");
    }
}

/// True for one JSON value, nested no deeper than the scanner allows.
pub fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&serde_json::value::RawValue>(bytes).is_ok()
}

/// The data of each event in an encoded stream. Panics unless each event has one `data:` line with JSON, or the end mark of chat
/// completions.
pub fn written_events(stream: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(stream).expect("output is UTF-8");
    if !text.is_empty() {
        assert!(text.ends_with("\n\n"), "output consists of whole events");
    }
    let mut events = Vec::new();
    for event in text.split("\n\n").filter(|event| !event.is_empty()) {
        let mut lines = event.lines();
        let mut line = lines.next().expect("an event has a line");
        if line.starts_with("event: ") {
            line = lines.next().expect("a named event has data");
        }
        assert!(lines.next().is_none(), "a written event has one data line: {event}");
        let data = line.strip_prefix("data: ").expect("the line is a data line");
        if data != "[DONE]" {
            events.push(serde_json::from_str(data).expect("a written event is JSON"));
        }
    }
    events
}
