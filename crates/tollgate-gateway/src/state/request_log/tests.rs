//! Which requests are logged, the content of a line, and that a slow log neither delays requests nor takes unbounded memory.

use std::{
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
};

use tollgate_core::{AttemptResult, NanoUsd, RequestId};
use tollgate_protocol::Protocol;

use super::*;
use crate::testing::usage_record;

/// 2026-11-21T12:00:00.000042Z.
const NOW: Timestamp = Timestamp(1_795_262_400_000_042);

fn options(requests: LoggedRequests, format: LineFormat) -> RequestLogOptions {
    RequestLogOptions { selection: LogSelection { requests, slow_us: 30_000_000 }, format, buffers: 1 }
}

/// A sink that keeps the written text.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Output of a log with these options.
fn written(options: RequestLogOptions, log_all: impl FnOnce(&RequestLog)) -> String {
    let sink = Kept::default();
    let (log, thread) = RequestLog::start(options, sink.clone()).unwrap();
    log_all(&log);
    drop(thread);
    let bytes = lock(&sink.0).clone();
    String::from_utf8(bytes).unwrap()
}

/// True if the log option `problems` writes a line for the record.
fn is_logged(edit: impl FnOnce(&mut UsageRecord)) -> bool {
    let mut record = usage_record("m");
    edit(&mut record);
    let text = written(options(LoggedRequests::Problems, LineFormat::Json), |log| {
        assert_eq!(log.ended(&record, || NOW), Logged::Yes);
    });
    !text.is_empty()
}

#[test]
fn changed_log_selection_applies_to_later_requests() {
    let log_one = |log: &RequestLog| {
        let _ = log.ended(&usage_record("m"), || NOW);
    };
    let text = written(options(LoggedRequests::None, LineFormat::Json), |log| {
        log_one(log);
        log.select(LogSelection { requests: LoggedRequests::All, slow_us: 0 });
        log_one(log);
        log.select(LogSelection { requests: LoggedRequests::None, slow_us: 0 });
        log_one(log);
    });
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn problems_are_refusals_failures_and_slow_requests() {
    assert!(!is_logged(|_| {}), "a successful request");
    assert!(!is_logged(|record| record.outcome = Outcome::CallerLeft));
    assert!(is_logged(|record| record.outcome = Outcome::Refused));
    assert!(is_logged(|record| record.outcome = Outcome::UpstreamBroke));
    assert!(is_logged(|record| record.outcome = Outcome::GatewayStopped));
    assert!(is_logged(|record| record.reason = Some("usage_excess".to_owned())));
    assert!(is_logged(|record| {
        record.attempts[0].result = AttemptResult::Failed;
        record.attempts[0].error = Some("E55".to_owned());
    }));
    assert!(is_logged(|record| record.ttft_us = Some(30_000_000)), "its first content was late");
    assert!(!is_logged(|record| (record.ttft_us, record.duration_us) = (Some(29_999_999), 900_000_000)), "a long answer");
    assert!(is_logged(|record| (record.ttft_us, record.duration_us) = (None, 30_000_000)), "nothing came");
}

#[test]
fn refusals_without_a_record_are_problems_too() {
    let refused = RefusedRequest {
        id: RequestId::from_parts(NOW, [7; 10]),
        status: 401,
        error: "E1",
        protocol: Protocol::OpenAi,
        client_request_id: Some("mine"),
        duration_us: 3_999,
    };
    let expected = format!(
        "{{\"timestamp\":\"2026-11-21T12:00:00.000042Z\",\"level\":\"INFO\",\"message\":\"request\",\"request.id\":\"{}\",\
         \"http.status\":401,\"error.id\":\"E1\",\"outcome\":\"refused\",\"reason\":\"E1\",\"protocol.in\":\"openai\",\
         \"client.request_id\":\"mine\",\"duration_ms\":3,\"target\":\"tollgate::request\"}}\n",
        refused.id
    );
    for (requests, expected) in
        [(LoggedRequests::All, &*expected), (LoggedRequests::Problems, &*expected), (LoggedRequests::None, "")]
    {
        let text = written(options(requests, LineFormat::Json), |log| assert_eq!(log.refused(&refused, NOW), Logged::Yes));
        assert_eq!(text, expected);
    }
}

#[test]
fn json_line_has_the_documented_fields() {
    let mut record = usage_record("a \"model\"\n\\ ü");
    (record.sale, record.cost) = (Some(NanoUsd(45_600)), Some(NanoUsd(-38_000)));
    let text = written(options(LoggedRequests::All, LineFormat::Json), |log| {
        assert_eq!(log.ended(&record, || NOW), Logged::Yes);
    });
    let line: serde_json::Value = serde_json::from_str(text.strip_suffix('\n').unwrap()).unwrap();
    let attempt = &record.attempts[0];
    let mut expected = serde_json::json!({
        "timestamp": "2026-11-21T12:00:00.000042Z", "level": "INFO", "message": "request", "request.id": record.id,
        "http.status": 200, "outcome": "completed", "protocol.in": "openai", "model.name": "a \"model\"\n\\ ü",
        "key.id": record.key, "group.name": "default", "channel.id": attempt.channel, "account.id": attempt.account,
        "attempts": 1, "stream": record.stream, "tokens.input": 10, "tokens.output": record.tokens.output + record.tokens.thinking,
        "sale_nano_usd": 45_600, "cost_nano_usd": -38_000, "duration_ms": 2_000, "target": "tollgate::request",
    });
    for (name, value) in [
        ("protocol.out", record.protocol_out.map(|protocol| serde_json::json!(protocol))),
        ("ttft_ms", record.ttft_us.map(|us| (us / 1_000).into())),
        ("client.request_id", record.client_request_id.as_deref().map(Into::into)),
    ] {
        if let Some(value) = value {
            expected[name] = value;
        }
    }
    assert_eq!(line, expected);
}

#[test]
fn text_line_has_the_same_fields() {
    let record = usage_record("fast \"one\"");
    let text = written(options(LoggedRequests::All, LineFormat::Text), |log| {
        assert_eq!(log.ended(&record, || NOW), Logged::Yes);
    });
    let begin = format!("2026-11-21T12:00:00.000042Z  INFO tollgate::request: request request.id={} http.status=200 ", record.id);
    assert!(text.starts_with(&begin), "{text}");
    assert!(text.contains(" outcome=\"completed\" protocol.in=\"openai\""), "{text}");
    assert!(text.contains(" model.name=\"fast \\\"one\\\"\" "), "{text}");
    assert!(text.ends_with(" duration_ms=2000\n"), "{text}");
}

/// A sink that blocks until the test releases it.
struct Stuck {
    begun: SyncSender<()>,
    go_on: Receiver<()>,
    bytes: Kept,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.begun.send(());
        let _ = self.go_on.recv();
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn lines_beyond_the_buffer_of_a_slow_log_are_dropped_and_counted() {
    let ((begun, has_begun), (go_on, may_go_on)) = (sync_channel(8), sync_channel(0));
    let bytes = Kept::default();
    let sink = Stuck { begun, go_on: may_go_on, bytes: bytes.clone() };
    let (log, thread) = RequestLog::start(options(LoggedRequests::All, LineFormat::Json), sink).unwrap();
    let record = usage_record("m");
    assert_eq!(log.ended(&record, || NOW), Logged::Yes);
    has_begun.recv().unwrap();
    // The sink is blocked: lines are buffered until the buffer is full.
    let mut kept = 0;
    while log.ended(&record, || NOW) == Logged::Yes {
        kept += 1;
    }
    assert_eq!(log.ended(&record, || NOW), Logged::Dropped);
    drop(go_on);
    drop(thread);
    let text = String::from_utf8(lock(&bytes.0).clone()).unwrap();
    assert_eq!(text.lines().count(), 1 + kept, "every line that was accepted is written, whole");
    let line = text.lines().next().unwrap().len() + 1;
    assert!(text.len() - line <= BUFFER_BYTES && text.len() > BUFFER_BYTES, "{}", text.len());
    assert!(text.lines().all(|other| other.len() + 1 == line));
}

#[test]
fn dropped_lines_are_counted_by_a_metric() {
    let metrics = crate::state::metrics::Metrics::new("1");
    metrics.log_dropped();
    assert!(metrics.render().lines().any(|line| line == "tollgate_log_dropped_total 1"));
}
