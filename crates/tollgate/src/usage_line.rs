//! A usage record as one JSON object or one CSV row: the form of `usage export` and `usage tail --json`.

use serde_json::{Value, json};
use tollgate_core::{AttemptRecord, NanoUsd, TokenSource, Tokens, UsageRecord};

use crate::say;

/// The record as JSON: `id` as shown to the caller, times in RFC 3339, amounts in integer nano-USD.
pub(crate) fn json(record: &UsageRecord) -> Value {
    json!({
        "id": record.id,
        "at": time(record.at),
        "outcome": record.outcome,
        "reason": record.reason,
        "detail": record.detail,
        "status": record.status,
        "key": record.key,
        "key_name": record.key_name,
        "member": record.member,
        "group": record.group_name,
        "protocol_in": record.protocol_in,
        "protocol_out": record.protocol_out,
        "method": record.method,
        "model": record.model,
        "stream": record.stream,
        "tokens": tokens(&record.tokens),
        "sale_nano_usd": record.sale,
        "cost_nano_usd": record.cost,
        "price_version": record.price_version,
        "ttft_us": record.ttft_us,
        "duration_us": record.duration_us,
        "address": record.address,
        "client_request_id": record.client_request_id,
        "dropped": record.dropped,
        "trace": record.trace,
        "attempts": record.attempts.iter().map(attempt).collect::<Vec<_>>(),
    })
}

fn attempt(attempt: &AttemptRecord) -> Value {
    json!({
        "channel": attempt.channel_name,
        "account": attempt.account_name,
        "protocol": attempt.protocol,
        "upstream_model": attempt.upstream_model,
        "at": time(attempt.at),
        "status": attempt.status,
        "result": attempt.result,
        "error": attempt.error,
        "tokens": tokens(&attempt.tokens),
        "cost_nano_usd": attempt.cost,
        "first_byte_us": attempt.first_byte_us,
        "duration_us": attempt.duration_us,
        "upstream_request_id": attempt.upstream_request_id,
    })
}

fn tokens(tokens: &Tokens) -> Value {
    json!(tokens)
}

/// Names of the CSV columns.
pub(crate) const COLUMNS: [&str; 26] = [
    "id",
    "at",
    "outcome",
    "reason",
    "status",
    "key",
    "key_name",
    "group",
    "protocol_in",
    "protocol_out",
    "method",
    "model",
    "stream",
    "input",
    "output",
    "cache_read",
    "cache_write",
    "thinking",
    "image",
    "audio",
    "token_source",
    "sale_nano_usd",
    "cost_nano_usd",
    "ttft_us",
    "duration_us",
    "attempts",
];

/// The record as a CSV row.
pub(crate) fn row(record: &UsageRecord) -> Vec<String> {
    let or_empty = |value: Option<String>| value.unwrap_or_default();
    vec![
        record.id.to_string(),
        time(record.at),
        record.outcome.as_str().to_owned(),
        or_empty(record.reason.clone()),
        record.status.to_string(),
        record.key.to_string(),
        record.key_name.clone(),
        or_empty(record.group_name.clone()),
        record.protocol_in.as_str().to_owned(),
        or_empty(record.protocol_out.map(|protocol| protocol.as_str().to_owned())),
        record.method.as_str().to_owned(),
        or_empty(record.model.clone()),
        record.stream.to_string(),
        record.tokens.input.to_string(),
        record.tokens.output.to_string(),
        record.tokens.cache_read.to_string(),
        record.tokens.cache_write.to_string(),
        record.tokens.thinking.to_string(),
        record.tokens.image.to_string(),
        record.tokens.audio.to_string(),
        source(record.tokens.source).to_owned(),
        or_empty(record.sale.map(|amount| amount.0.to_string())),
        or_empty(record.cost.map(|amount| amount.0.to_string())),
        or_empty(record.ttft_us.map(|us| us.to_string())),
        record.duration_us.to_string(),
        record.attempts.len().to_string(),
    ]
}

/// A line for people.
pub(crate) fn people(record: &UsageRecord) -> Vec<String> {
    vec![
        time(record.at),
        record.status.to_string(),
        record.outcome.as_str().to_owned(),
        record.reason.clone().unwrap_or_else(|| "–".to_owned()),
        record.model.clone().unwrap_or_else(|| "–".to_owned()),
        record.key_name.clone(),
        record
            .attempts
            .last()
            .map_or_else(|| "–".to_owned(), |attempt| format!("{}/{}", attempt.channel_name, attempt.account_name)),
        (record.tokens.input + record.tokens.cache_read + record.tokens.cache_write + record.tokens.image + record.tokens.audio)
            .to_string(),
        (record.tokens.output + record.tokens.thinking).to_string(),
        record.sale.map_or_else(|| "not priced".to_owned(), NanoUsd::to_usd_string),
        format!("{} ms", record.duration_us / 1_000),
        record.id.to_string(),
    ]
}

/// Headings of [`people`].
pub(crate) fn headings() -> Vec<String> {
    ["at", "status", "outcome", "reason", "model", "key", "account", "in", "out", "sale USD", "took", "id"]
        .map(str::to_owned)
        .to_vec()
}

fn source(source: TokenSource) -> &'static str {
    match source {
        TokenSource::None => "none",
        TokenSource::Provider => "provider",
        TokenSource::Counted => "counted",
        TokenSource::Estimated => "estimated",
    }
}

/// RFC 3339 in UTC, to the microsecond.
pub(crate) fn time(at: tollgate_core::Timestamp) -> String {
    jiff::Timestamp::from_microsecond(at.0).map_or_else(|_| at.0.to_string(), |time| time.to_string())
}

/// Prints one record as a JSON line; `false` when nobody reads any more.
pub(crate) fn print_json(record: &UsageRecord) -> bool {
    say::raw(format!("{}\n", json(record)).as_bytes())
}
