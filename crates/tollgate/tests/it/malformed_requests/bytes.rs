//! Turns an input's segments into bytes: text, repetitions, gzip, HTTP/2 frames.

use std::{io::Write, time::Duration};

use serde_json::Value;

/// Values of the placeholders in the corpus.
pub(crate) struct Placeholders {
    pub(crate) host: String,
    pub(crate) key: String,
    pub(crate) model: String,
    pub(crate) canary: String,
    pub(crate) admin: String,
}

/// One step on the connection.
pub(crate) enum Action {
    Send(Vec<u8>),
    Wait(Duration),
    Shut,
}

/// The actions of an input's head, body and tail, in order.
pub(crate) fn actions(request: &Value, placeholders: &Placeholders) -> Vec<Action> {
    let body: Vec<Action> = segments(request, "body").iter().map(|segment| one(segment, placeholders, 0, 0)).collect();
    let length = body.iter().map(|action| if let Action::Send(bytes) = action { bytes.len() } else { 0 }).sum();
    let mut all: Vec<Action> = segments(request, "head").iter().map(|segment| one(segment, placeholders, length, 0)).collect();
    all.extend(body);
    all.extend(segments(request, "tail").iter().map(|segment| one(segment, placeholders, length, 0)));
    all
}

fn segments<'a>(request: &'a Value, part: &str) -> &'a [Value] {
    request[part].as_array().map_or(&[], Vec::as_slice)
}

/// Latin-1 text with its placeholders filled in.
pub(crate) fn text(template: &str, placeholders: &Placeholders, length: usize) -> Vec<u8> {
    let filled = template
        .replace("{{HOST}}", &placeholders.host)
        .replace("{{KEY}}", &placeholders.key)
        .replace("{{MODEL}}", &placeholders.model)
        .replace("{{NMODEL}}", &placeholders.model)
        .replace("{{R:chat}}", "/v1/chat/completions")
        .replace("{{R:native}}", &format!("/v1beta/models/{}:generateContent", placeholders.model))
        .replace("{{R:native_list}}", "/v1beta/models")
        .replace("{{R:square}}", "/square")
        .replace("{{ADMIN}}", &placeholders.admin)
        .replace("{{CANARY}}", &placeholders.canary)
        .replace("{{CL}}", &length.to_string());
    filled.chars().map(|character| u8::try_from(u32::from(character)).expect("segments are Latin-1")).collect()
}

fn one(segment: &Value, placeholders: &Placeholders, length: usize, stream: u32) -> Action {
    let fill = |value: &Value| text(value.as_str().expect("a text"), placeholders, length);
    let count = |value: &Value| usize::try_from(value.as_u64().expect("a count")).expect("a small count");
    let (kind, value) = segment.as_object().and_then(|object| object.iter().next()).expect("a segment has one member");
    Action::Send(match kind.as_str() {
        "t" => fill(value),
        "b" => decode(value),
        "r" => fill(&value[0]).repeat(count(&value[1])),
        "rb" => decode(&value[0]).repeat(count(&value[1])),
        "seq" => {
            let template = value[0].as_str().expect("a text");
            (0..count(&value[1]))
                .flat_map(|number| text(&template.replace("%d", &number.to_string()), placeholders, length))
                .collect()
        }
        "gz" => gzip(&fill(&value[0]), &fill(&value[1]), count(&value[2]), &fill(&value[3])),
        "wait" | "stall" => return Action::Wait(Duration::from_secs_f64(value.as_f64().expect("seconds"))),
        "shut" => return Action::Shut,
        "h2pre" => [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, b"")].concat(),
        "h2f" => h2_frame(value, placeholders, stream),
        "h2h" => h2_headers(value, placeholders, stream),
        "h2loop" => h2_loop(value, placeholders),
        other => panic!("unknown segment {other}"),
    })
}

fn decode(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("base64");
    let (mut out, mut bits, mut bit_count) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        bits = (bits << 6) | u32::from(digit);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            out.push(u8::try_from((bits >> bit_count) & 0xff).expect("one byte"));
        }
    }
    out
}

fn gzip(before: &[u8], unit: &[u8], count: usize, after: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let block = unit.repeat(65_536);
    encoder.write_all(before).unwrap();
    for _ in 0..count / 65_536 {
        encoder.write_all(&block).unwrap();
    }
    encoder.write_all(after).unwrap();
    encoder.finish().unwrap()
}

// === HTTP/2 ===

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a small frame").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn number(value: &Value, name: &str, default: u64) -> u64 {
    value[name].as_u64().unwrap_or(default)
}

fn byte(value: &Value, name: &str, default: u64) -> u8 {
    u8::try_from(number(value, name, default)).expect("one byte")
}

/// The stream id of a frame; "S" is the current one of the loop.
fn stream_of(value: &Value, default: u64, current: u32) -> u32 {
    if value["stream"] == "S" { current } else { u32::try_from(number(value, "stream", default)).expect("a stream id") }
}

fn h2_frame(value: &Value, placeholders: &Placeholders, stream: u32) -> Vec<u8> {
    let payload = if value["pb"].is_string() {
        decode(&value["pb"])
    } else {
        let unit = text(value["p"].as_str().unwrap_or_default(), placeholders, 0);
        unit.repeat(usize::try_from(number(value, "x", 1)).expect("a small count"))
    };
    let mut bytes = frame(byte(value, "type", 0), byte(value, "flags", 0), stream_of(value, 0, stream), &payload);
    if let Some(lie) = value["len"].as_u64() {
        let lie = u32::try_from(lie).expect("24 bits").to_be_bytes();
        bytes[..3].copy_from_slice(&lie[1..]);
    }
    bytes
}

fn h2_headers(value: &Value, placeholders: &Placeholders, stream: u32) -> Vec<u8> {
    let times = usize::try_from(number(value, "vx", 1)).expect("a small count");
    let mut block = Vec::new();
    for pair in value["headers"].as_array().expect("a list") {
        block.push(0);
        block.extend(hpack_text(&text(pair[0].as_str().expect("a name"), placeholders, 0)));
        block.extend(hpack_text(&text(pair[1].as_str().expect("a value"), placeholders, 0).repeat(times)));
    }
    let block = block.repeat(usize::try_from(number(value, "blkx", 1)).expect("a small count"));
    frame(byte(value, "type", 1), byte(value, "flags", 5), stream_of(value, 1, stream), &block)
}

fn hpack_text(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if bytes.len() < 127 {
        out.push(u8::try_from(bytes.len()).expect("it is small"));
    } else {
        out.push(0x7f);
        let mut rest = bytes.len() - 127;
        while rest >= 128 {
            out.push(u8::try_from(rest % 128 + 128).expect("one byte"));
            rest /= 128;
        }
        out.push(u8::try_from(rest).expect("one byte"));
    }
    out.extend_from_slice(bytes);
    out
}

fn h2_loop(value: &Value, placeholders: &Placeholders) -> Vec<u8> {
    let (start, step) = (number(value, "start", 1), number(value, "step", 2));
    let mut out = Vec::new();
    for turn in 0..number(value, "n", 0) {
        let stream = u32::try_from(start + turn * step).expect("a stream id");
        for segment in value["seq"].as_array().expect("a list") {
            if let Action::Send(bytes) = one(segment, placeholders, 0, stream) {
                out.extend(bytes);
            }
        }
    }
    out
}
