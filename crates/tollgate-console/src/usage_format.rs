//! Usage records as JSON objects and CSV rows, for the admin API, its exports and the command line. Both are written from the record
//! itself: a tree of JSON values first takes several times as long.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::Value;
use tollgate_core::{
    AttemptRecord, AttemptResult, KeyId, MemberId, NanoUsd, Outcome, RequestId, Revision, Tags, Timestamp, TokenSource, Tokens,
    TraceEntry, UsageRecord,
};
use tollgate_protocol::{FinishReason, Method, Protocol};

use crate::{
    time::rfc3339,
    usage_columns::{Cell, CellType, ExportView},
};

/// The part of a record that its caller may see: without channels, accounts, their costs and their messages.
pub(crate) fn caller_view(record: UsageRecord) -> UsageRecord {
    UsageRecord { protocol_out: None, cost: None, trace: Vec::new(), attempts: Vec::new(), ..record }
}

/// A record as a JSON value: times in RFC 3339, amounts as decimal strings in USD.
///
/// # Panics
///
/// Never: every record can be written as JSON.
pub fn json(record: &UsageRecord) -> Value {
    serde_json::to_value(RecordObject::of(record)).expect("a record has no map keys")
}

/// Appends the same as text, and a line break.
///
/// # Panics
///
/// Never: writing to memory cannot fail.
pub fn write_json_line(out: &mut Vec<u8>, record: &UsageRecord) {
    serde_json::to_writer(&mut *out, &RecordObject::of(record)).expect("writing to a Vec cannot fail");
    out.push(b'\n');
}

/// The first line of a CSV export.
pub(crate) fn csv_header(view: ExportView) -> String {
    let mut line: String = view.columns().flat_map(|column| [column.name, ","]).collect();
    line.push_str("tags\n");
    line
}

/// Appends records as CSV rows.
///
/// # Panics
///
/// Never: writing to memory cannot fail.
pub fn write_csv_lines(out: &mut Vec<u8>, view: ExportView, records: &[UsageRecord]) {
    const INFALLIBLE: &str = "writing to a Vec cannot fail";
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(out);
    for record in records {
        for column in view.columns() {
            writer.write_field(csv_field(column.kind, (column.value)(record)).as_bytes()).expect(INFALLIBLE);
        }
        writer.write_field(escape_formula(&tags_text(&record.tags)).as_bytes()).expect(INFALLIBLE);
        writer.write_record(None::<&[u8]>).expect(INFALLIBLE);
    }
    writer.flush().expect(INFALLIBLE);
}

fn csv_field(kind: CellType, cell: Cell<'_>) -> Cow<'_, str> {
    match cell {
        Cell::Null => Cow::Borrowed(""),
        Cell::Flag(flag) => Cow::Borrowed(if flag { "true" } else { "false" }),
        Cell::Number(number) => Cow::Owned(match kind {
            CellType::Time => rfc3339(Timestamp(number)),
            CellType::Usd => NanoUsd(number).to_usd_string(),
            CellType::Text | CellType::Count | CellType::Flag => number.to_string(),
        }),
        Cell::Text(Cow::Borrowed(text)) => escape_formula(text),
        // Ids.
        Cell::Text(text) => text,
    }
}

/// A time in RFC 3339.
struct Time(Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&rfc3339(self.0))
    }
}

/// An amount as a decimal string in USD.
struct Usd(NanoUsd);

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0.to_usd_string())
    }
}

/// A record in the order of the members.
#[derive(Serialize)]
struct RecordObject<'a> {
    id: RequestId,
    at: Time,
    outcome: Outcome,
    reason: Option<&'a str>,
    detail: Option<&'a str>,
    status: u16,
    key: KeyId,
    key_name: &'a str,
    member: MemberId,
    group: Option<&'a str>,
    protocol_in: Protocol,
    protocol_out: Option<Protocol>,
    method: Method,
    model: Option<&'a str>,
    stream: bool,
    finish: Option<FinishReason>,
    tokens: TokensObject,
    sale: Option<Usd>,
    cost: Option<Usd>,
    price_version: Revision,
    sale_multiplier: String,
    ttft_us: Option<u64>,
    duration_us: u64,
    overhead_us: Option<u64>,
    address: Option<&'a str>,
    client_request_id: Option<&'a str>,
    client: Option<&'a str>,
    request_bytes: u64,
    #[serde(serialize_with = "tags")]
    tags: &'a Tags,
    dropped: &'a [String],
    #[serde(serialize_with = "trace")]
    trace: &'a [TraceEntry],
    #[serde(serialize_with = "attempts")]
    attempts: &'a [AttemptRecord],
}

impl<'a> RecordObject<'a> {
    fn of(record: &'a UsageRecord) -> Self {
        Self {
            id: record.id,
            at: Time(record.at),
            outcome: record.outcome,
            reason: record.reason.as_deref(),
            detail: record.detail.as_deref(),
            status: record.status,
            key: record.key,
            key_name: &record.key_name,
            member: record.member,
            group: record.group_name.as_deref(),
            protocol_in: record.protocol_in,
            protocol_out: record.protocol_out,
            method: record.method,
            model: record.model.as_deref(),
            stream: record.stream,
            finish: record.finish,
            tokens: TokensObject::of(record.tokens),
            sale: record.sale.map(Usd),
            cost: record.cost.map(Usd),
            price_version: record.price_version,
            sale_multiplier: record.sale_multiplier.to_decimal(),
            ttft_us: record.ttft_us,
            duration_us: record.duration_us,
            overhead_us: record.overhead_us(),
            address: record.address.as_deref(),
            client_request_id: record.client_request_id.as_deref(),
            client: record.client.as_deref(),
            request_bytes: record.request_bytes,
            tags: &record.tags,
            dropped: &record.dropped,
            trace: &record.trace,
            attempts: &record.attempts,
        }
    }
}

fn tags<S: Serializer>(tags: &Tags, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(tags.iter())
}

/// All kinds of tokens, zeros included.
#[derive(Serialize)]
struct TokensObject {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    cache_write_1h: u64,
    thinking: u64,
    image: u64,
    audio: u64,
    source: TokenSource,
    web_searches: u64,
}

impl TokensObject {
    const fn of(tokens: Tokens) -> Self {
        let Tokens { input, output, cache_read, cache_write, cache_write_1h, thinking, image, audio, source, web_searches } =
            tokens;
        Self { input, output, cache_read, cache_write, cache_write_1h, thinking, image, audio, source, web_searches }
    }
}

#[derive(Serialize)]
struct AttemptObject<'a> {
    channel: &'a str,
    account: &'a str,
    protocol: Protocol,
    upstream_model: &'a str,
    at: Time,
    status: Option<u16>,
    result: AttemptResult,
    error: Option<&'a str>,
    tokens: TokensObject,
    cost: Option<Usd>,
    sent_us: Option<u64>,
    first_byte_us: Option<u64>,
    duration_us: u64,
    upstream_request_id: Option<&'a str>,
    beside: bool,
    cost_multiplier: String,
    message: Option<&'a str>,
}

fn attempts<S: Serializer>(attempts: &[AttemptRecord], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(attempts.iter().map(|attempt| AttemptObject {
        channel: &attempt.channel_name,
        account: &attempt.account_name,
        protocol: attempt.protocol,
        upstream_model: &attempt.upstream_model,
        at: Time(attempt.at),
        status: attempt.status,
        result: attempt.result,
        error: attempt.error.as_deref(),
        tokens: TokensObject::of(attempt.tokens),
        cost: attempt.cost.map(Usd),
        sent_us: attempt.sent_us,
        first_byte_us: attempt.first_byte_us,
        duration_us: attempt.duration_us,
        upstream_request_id: attempt.upstream_request_id.as_deref(),
        beside: attempt.hedged,
        cost_multiplier: attempt.cost_multiplier.to_decimal(),
        message: attempt.message.as_deref(),
    }))
}

#[derive(Serialize)]
struct TraceObject<'a> {
    channel: &'a str,
    account: Option<&'a str>,
    code: &'a str,
    detail: Option<&'a str>,
}

fn trace<S: Serializer>(trace: &[TraceEntry], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(trace.iter().map(|TraceEntry { channel, account, code, detail }| TraceObject {
        channel,
        account: account.as_deref(),
        code,
        detail: detail.as_deref(),
    }))
}

/// Tags as their header has them.
fn tags_text(tags: &Tags) -> String {
    tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

/// Escapes text from a caller, such as a model name: spreadsheets evaluate cells that begin with one of these characters as
/// formulas, and an apostrophe prevents that.
pub(crate) fn escape_formula(text: &str) -> Cow<'_, str> {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if formula { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
pub(crate) use tests::{bare as sample, full as full_sample};

#[cfg(test)]
mod tests;
