//! Checks an answer against its expectations: status ranges, closing, silence, number of answers, leaked texts.

use std::time::Duration;

use serde_json::Value;

use super::{
    Exchange, SLACK,
    bytes::{self, Placeholders},
    messages,
};

/// Texts that no answer may hold.
const FORBIDDEN: [&str; 10] = [
    "panicked at",
    "stack backtrace",
    "/.cargo/registry/",
    "SQLSTATE",
    "syntax error at or near",
    "no such table",
    "UNIQUE constraint failed",
    "sqlx::",
    "root:x:0:0",
    "9801547",
];

struct Response {
    status: u16,
    body: Vec<u8>,
}

/// Every violation in an exchange, as text.
pub(crate) fn violations(input: &Value, exchange: &Exchange, placeholders: &Placeholders) -> Vec<String> {
    let mut violations = Vec::new();
    let expect = &input["expect"];
    if input["proto"] == "h2" && !exchange.bytes.starts_with(b"HTTP/") {
        check_http2(expect, exchange, &mut violations);
    } else {
        check_http1(expect, exchange, &mut violations);
    }
    if let Some(max) = expect["max_seconds"].as_f64()
        && exchange.waited > SLACK * Duration::from_secs_f64(max)
        && !(exchange.timed_out && expect["silence_ok"] == true)
    {
        violations.push(format!("took {:.1?}, and the limit on an idle machine is {max} s", exchange.waited));
    }
    let text = String::from_utf8_lossy(&exchange.bytes);
    violations.extend(
        FORBIDDEN.iter().filter(|forbidden| text.contains(**forbidden)).map(|forbidden| format!("the answer holds '{forbidden}'")),
    );
    if text.contains(&placeholders.admin) {
        violations.push("the answer holds the whole admin key".to_owned());
    }
    if text.contains(&placeholders.key) && expect["key_echo_ok"] != true {
        violations.push("the answer holds the whole service key".to_owned());
    }
    for forbidden in expect["must_not"].as_array().into_iter().flatten() {
        let forbidden = bytes::text(forbidden.as_str().expect("a text"), placeholders, 0);
        if exchange.bytes.windows(forbidden.len().max(1)).any(|window| window == forbidden) {
            violations.push(format!("the answer holds '{}'", String::from_utf8_lossy(&forbidden)));
        }
    }
    violations
}

/// True when a complete answer was received.
pub(crate) fn is_answered(input: &Value, exchange: &Exchange) -> bool {
    if input["proto"] == "h2" && !exchange.bytes.starts_with(b"HTTP/") {
        let (events, statuses) = h2_events(&exchange.bytes);
        return events.contains(&7) || !statuses.is_empty();
    }
    !responses(&exchange.bytes, exchange.closed).is_empty()
}

fn allowed(expect: &Value, member: &str, status: u16) -> bool {
    let ranges = expect[member].as_array();
    ranges.map_or((400..500).contains(&status), |ranges| {
        ranges.iter().any(|range| range[0].as_u64() <= Some(u64::from(status)) && Some(u64::from(status)) <= range[1].as_u64())
    })
}

fn check_http1(expect: &Value, exchange: &Exchange, violations: &mut Vec<String>) {
    let responses = responses(&exchange.bytes, exchange.closed);
    if responses.is_empty() {
        if exchange.closed && expect["close_ok"] != true {
            violations.push(format!("closed without an answer, after {:?}", String::from_utf8_lossy(&exchange.bytes)));
        }
        if !exchange.closed && expect["silence_ok"] != true {
            violations.push("neither an answer nor a close".to_owned());
        }
        return;
    }
    for (number, response) in responses.iter().enumerate() {
        let member = if number > 0 && expect.get("status2").is_some() { "status2" } else { "status" };
        if !allowed(expect, member, response.status) {
            violations.push(format!(
                "status {} is not in {}: {}",
                response.status,
                expect[member],
                String::from_utf8_lossy(&response.body)
            ));
        }
    }
    let max = usize::try_from(expect["max_responses"].as_u64().unwrap_or(1)).expect("a small count");
    if responses.len() > max {
        violations.push(format!("{} answers on one connection, at most {max}", responses.len()));
    }
    if expect["body"] == "error" && responses[0].status >= 400 {
        let body: Value = serde_json::from_slice(&responses[0].body).unwrap_or_default();
        if body["error"]["message"].as_str().is_none_or(str::is_empty) {
            violations.push(format!("no error.message in {:?}", String::from_utf8_lossy(&responses[0].body)));
        }
    }
    if expect["messages"] == true {
        let refusals = responses.iter().filter(|response| response.status >= 400 && !response.body.is_empty());
        violations.extend(refusals.filter_map(|response| messages::fault_in_error(&response.body)));
    }
    if expect["must_close"] == true && !exchange.closed {
        violations.push("the connection must be closed".to_owned());
    }
}

/// The complete responses at the beginning of the received bytes, without interim ones.
fn responses(mut bytes: &[u8], closed: bool) -> Vec<Response> {
    let mut found = Vec::new();
    while bytes.starts_with(b"HTTP/") {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { break };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
        bytes = &bytes[end + 4..];
        if (100..200).contains(&status) {
            continue;
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        let taken = if head.contains("transfer-encoding: chunked") {
            let end = bytes.windows(5).position(|window| window == b"0\r\n\r\n").map(|at| at + 5);
            end.or(closed.then_some(bytes.len()))
        } else {
            // A response to HEAD has a length and no body.
            length.map(|length| length.min(bytes.len()))
        };
        let Some(taken) = taken else { break };
        found.push(Response { status, body: bytes[..taken].to_vec() });
        bytes = &bytes[taken..];
    }
    found
}

fn check_http2(expect: &Value, exchange: &Exchange, violations: &mut Vec<String>) {
    let (events, statuses) = h2_events(&exchange.bytes);
    violations
        .extend(statuses.iter().filter(|status| !allowed(expect, "status", **status)).map(|status| format!("h2 status {status}")));
    let ended = exchange.closed || events.contains(&7) || events.contains(&3);
    if statuses.is_empty() && !ended && expect["silence_ok"] != true {
        violations.push("no answer, no reset, no GOAWAY, not closed".to_owned());
    }
}

/// Types of the received frames, and the statuses in them.
fn h2_events(mut bytes: &[u8]) -> (Vec<u8>, Vec<u16>) {
    let (mut kinds, mut statuses) = (Vec::new(), Vec::new());
    while bytes.len() >= 9 {
        let length = usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
        let Some(payload) = bytes.get(9..9 + length) else { break };
        kinds.push(bytes[3]);
        if bytes[3] == 1
            && let Some(status) = h2_status(payload)
        {
            statuses.push(status);
        }
        bytes = &bytes[9 + length..];
    }
    (kinds, statuses)
}

/// `:status`, the first field of a response: indexed, or a literal (plain or Huffman-coded digits).
fn h2_status(mut block: &[u8]) -> Option<u16> {
    while block.first()? & 0xe0 == 0x20 {
        block = &block[1..];
    }
    let first = *block.first()?;
    if first & 0x80 != 0 {
        return [(8, 200), (9, 204), (10, 206), (11, 304), (12, 400), (13, 404), (14, 500)]
            .iter()
            .find(|(index, _)| *index == first & 0x7f)
            .map(|(_, status)| *status);
    }
    if ![0x48, 0x08, 0x18].contains(&first) {
        return None;
    }
    let length = usize::from(block.get(1)? & 0x7f);
    let value = block.get(2..2 + length)?;
    if block[1] & 0x80 == 0 {
        return std::str::from_utf8(value).ok()?.parse().ok();
    }
    let bits: String = value.iter().map(|byte| format!("{byte:08b}")).collect();
    let (mut digits, mut current) = (String::new(), String::new());
    for bit in bits.chars() {
        current.push(bit);
        let digit = ["00000", "00001", "00010", "011001", "011010", "011011", "011100", "011101", "011110", "011111"]
            .iter()
            .position(|code| *code == current);
        if let Some(digit) = digit {
            digits.push(char::from_digit(u32::try_from(digit).ok()?, 10)?);
            current.clear();
        }
        if digits.len() == 3 {
            return digits.parse().ok();
        }
    }
    None
}
