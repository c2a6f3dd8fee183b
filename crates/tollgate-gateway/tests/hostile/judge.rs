//! Checks a response against the expectations of its input.

use serde_json::Value;

use crate::{
    corpus::{Expect, Input},
    exchange::Outcome,
    http2,
};

/// Text that no response may contain: stack traces, paths, SQL errors, an evaluated template (1337 * 7331), file contents.
const NEVER: [&str; 18] = [
    "panicked at",
    "RUST_BACKTRACE",
    "stack backtrace",
    "Traceback (most recent call last)",
    "/.cargo/registry/",
    "src/lib.rs:",
    "src/main.rs:",
    "SQLSTATE",
    "syntax error at or near",
    "no such table:",
    "no such column:",
    "UNIQUE constraint failed",
    "sqlx::",
    "\nx-injected:",
    "9801547",
    "root:x:0:0",
    "ami-id",
    "computeMetadata",
];

/// Factor on time limits, for unoptimised builds on busy machines.
const TIME_FACTOR: f64 = 4.0;

/// All violations.
pub(crate) fn judge(input: &Input, outcome: &Outcome) -> Vec<String> {
    let expect = &input.expect;
    let mut faults = Vec::new();
    if input.proto == "h2" && !outcome.bytes.starts_with(b"HTTP/") {
        judge_http2(expect, outcome, &mut faults);
    } else if outcome.answers.is_empty() {
        if outcome.closed && !expect.close_ok && input.proto != "h2" {
            faults.push(format!("closed without an answer, after {:?}", String::from_utf8_lossy(&outcome.bytes)));
        }
        if !outcome.closed && !expect.silence_ok {
            faults.push("no answer, and not closed".to_owned());
        }
    } else {
        judge_answers(expect, outcome, &mut faults);
    }
    if let Some(max) = expect.max_seconds.filter(|max| outcome.seconds > max * TIME_FACTOR) {
        faults.push(format!("took {:.1} s, at most {max}", outcome.seconds));
    }
    let text = String::from_utf8_lossy(&outcome.bytes);
    let lower = text.to_ascii_lowercase();
    let never = NEVER.into_iter().filter(|never| text.contains(never) || never.starts_with('\n') && lower.contains(never));
    faults.extend(never.map(|never| format!("the answer contains {never:?}")));
    let forbidden = expect.must_not.iter().map(|text| text.replace("{{CANARY}}", &outcome.canary).replace("{{KEY}}", outcome.key));
    faults.extend(
        forbidden.filter(|forbidden| text.contains(forbidden.as_str())).map(|text| format!("the answer contains {text:?}")),
    );
    if text.contains(outcome.key) && !expect.key_echo_ok {
        faults.push("the answer contains the service key".to_owned());
    }
    faults
}

fn within(status: u16, ranges: &[[u16; 2]]) -> bool {
    ranges.iter().any(|[low, high]| (*low..=*high).contains(&status))
}

fn judge_http2(expect: &Expect, outcome: &Outcome, faults: &mut Vec<String>) {
    let read = http2::read(&outcome.bytes);
    for status in &read.statuses {
        if !within(*status, &expect.status) {
            faults.push(format!("status {status}, expected {:?}", expect.status));
        }
    }
    if read.statuses.is_empty() && !outcome.closed && !read.goaway && !read.reset && !expect.silence_ok {
        faults.push("no answer, no reset, not closed".to_owned());
    }
}

fn judge_answers(expect: &Expect, outcome: &Outcome, faults: &mut Vec<String>) {
    for (place, answer) in outcome.answers.iter().enumerate() {
        let ranges = if place == 0 { &expect.status } else { expect.status2.as_ref().unwrap_or(&expect.status) };
        if !within(answer.status, ranges) {
            let body = String::from_utf8_lossy(&answer.body);
            faults.push(format!("status {}, expected {ranges:?}: {body:.200}", answer.status));
        }
        let html = answer.head.lines().any(|line| line.starts_with("content-type:") && line.contains("html"));
        if html && expect.no_html.is_some() {
            faults.push("an HTML answer".to_owned());
        }
    }
    if outcome.answers.len() > expect.max_responses {
        faults.push(format!("{} answers, at most {}", outcome.answers.len(), expect.max_responses));
    }
    let first = &outcome.answers[0];
    if expect.body.as_deref() == Some("error") && first.status >= 400 && !is_error(&first.body) {
        faults.push(format!("no error object: {:.200}", String::from_utf8_lossy(&first.body)));
    }
    if expect.must_close && !outcome.closed {
        faults.push("the connection stayed open".to_owned());
    }
}

fn is_error(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|body| body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()))
}
