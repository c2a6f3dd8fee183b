//! The text of a line, as docs/logging.md describes it: a JSON object, or words for people.

use std::io::Write as _;

use tollgate_core::{IdText, Outcome, RequestId, Timestamp, UsageRecord};
use tollgate_protocol::Protocol;

/// Target of the lines (docs/logging.md), independent of the module path.
const TARGET: &str = "tollgate::request";

/// The format of the lines of requests (`log.format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    Json,
    Text,
}

/// A refusal that leaves no usage record.
#[derive(Debug)]
pub(crate) struct RefusedRequest<'a> {
    pub(crate) id: RequestId,
    pub(crate) status: u16,
    pub(crate) error: &'static str,
    pub(crate) protocol: Protocol,
    pub(crate) client_request_id: Option<&'a str>,
    pub(crate) duration_us: u64,
}

pub(super) fn record_line(out: &mut Vec<u8>, format: LineFormat, record: &UsageRecord, now: Timestamp) {
    let mut line = LineWriter::begin(out, format, now);
    let (tokens, last) = (&record.tokens, record.attempts.last());
    line.id("request.id", record.id.text());
    line.number("http.status", record.status.into());
    line.text_if("error.id", record.reason.as_deref().filter(|reason| reason.starts_with('E')));
    line.text("outcome", record.outcome.as_str());
    line.text_if("reason", record.reason.as_deref());
    line.text("protocol.in", record.protocol_in.as_str());
    line.text_if("protocol.out", record.protocol_out.map(Protocol::as_str));
    line.text_if("model.name", record.model.as_deref());
    line.id("key.id", record.key.text());
    line.text_if("group.name", record.group_name.as_deref());
    if let Some(attempt) = last {
        line.id("channel.id", attempt.channel.text());
        line.id("account.id", attempt.account.text());
    }
    line.text_if("client.request_id", record.client_request_id.as_deref());
    line.number("attempts", record.attempts.len() as u64);
    line.flag("stream", record.stream);
    line.number("tokens.input", tokens.input + tokens.cache_read + tokens.cache_write + tokens.image + tokens.audio);
    line.number("tokens.output", tokens.output + tokens.thinking);
    line.amount_if("sale_nano_usd", record.sale.map(|amount| amount.0));
    line.amount_if("cost_nano_usd", record.cost.map(|amount| amount.0));
    if let Some(first) = record.ttft_us {
        line.number("ttft_ms", first / 1_000);
    }
    line.number("duration_ms", record.duration_us / 1_000);
    line.end();
}

pub(super) fn refusal_line(out: &mut Vec<u8>, format: LineFormat, refused: &RefusedRequest<'_>, now: Timestamp) {
    let mut line = LineWriter::begin(out, format, now);
    line.id("request.id", refused.id.text());
    line.number("http.status", refused.status.into());
    line.text("error.id", refused.error);
    line.text("outcome", Outcome::Refused.as_str());
    line.text("reason", refused.error);
    line.text("protocol.in", refused.protocol.as_str());
    line.text_if("client.request_id", refused.client_request_id);
    line.number("duration_ms", refused.duration_us / 1_000);
    line.end();
}

/// A line while it is written.
struct LineWriter<'a> {
    out: &'a mut Vec<u8>,
    format: LineFormat,
}

impl<'a> LineWriter<'a> {
    fn begin(out: &'a mut Vec<u8>, format: LineFormat, now: Timestamp) -> Self {
        match format {
            LineFormat::Json => {
                out.extend_from_slice(b"{\"timestamp\":\"");
                out.extend_from_slice(&now.rfc3339_micros());
                out.extend_from_slice(b"\",\"level\":\"INFO\",\"message\":\"request\"");
            }
            LineFormat::Text => {
                out.extend_from_slice(&now.rfc3339_micros());
                out.extend_from_slice(b"  INFO ");
                out.extend_from_slice(TARGET.as_bytes());
                out.extend_from_slice(b": request");
            }
        }
        Self { out, format }
    }

    fn end(self) {
        match self.format {
            LineFormat::Json => {
                self.out.extend_from_slice(b",\"target\":\"");
                self.out.extend_from_slice(TARGET.as_bytes());
                self.out.extend_from_slice(b"\"}\n");
            }
            LineFormat::Text => self.out.push(b'\n'),
        }
    }

    /// The name of a field, up to its value. Names need no escapes.
    fn name(&mut self, name: &str) {
        let (before, after): (&[u8], &[u8]) = match self.format {
            LineFormat::Json => (b",\"", b"\":"),
            LineFormat::Text => (b" ", b"="),
        };
        self.out.extend_from_slice(before);
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(after);
    }

    fn id(&mut self, name: &str, id: IdText) {
        self.name(name);
        match self.format {
            LineFormat::Json => {
                self.out.push(b'"');
                self.out.extend_from_slice(id.as_bytes());
                self.out.push(b'"');
            }
            LineFormat::Text => self.out.extend_from_slice(id.as_bytes()),
        }
    }

    fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        match self.format {
            LineFormat::Json => json_text(self.out, text),
            // Writing to memory cannot fail.
            LineFormat::Text => drop(write!(self.out, "{text:?}")),
        }
    }

    fn text_if(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    fn number(&mut self, name: &str, number: u64) {
        self.name(name);
        push_number(self.out, number);
    }

    fn amount_if(&mut self, name: &str, amount: Option<i64>) {
        let Some(amount) = amount else { return };
        self.name(name);
        if amount < 0 {
            self.out.push(b'-');
        }
        push_number(self.out, amount.unsigned_abs());
    }

    fn flag(&mut self, name: &str, flag: bool) {
        self.name(name);
        self.out.extend_from_slice(if flag { b"true" } else { b"false" });
    }
}

fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// A JSON string. Names come from callers, so every byte that JSON does not allow unescaped is escaped.
fn json_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut written = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&text.as_bytes()[written..at]);
        written = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            control => drop(write!(out, "\\u{control:04x}")),
        }
    }
    out.extend_from_slice(&text.as_bytes()[written..]);
    out.push(b'"');
}
