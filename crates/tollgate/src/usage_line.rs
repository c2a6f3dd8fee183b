//! A usage record for people, and as JSON lines: what `usage tail` prints.

pub(crate) use tollgate_console::{COLUMNS, rfc3339 as time, usage_json as json, usage_row as row};
use tollgate_core::{NanoUsd, UsageRecord};

use crate::say;

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

/// Prints one record as a JSON line; `false` when nobody reads any more.
pub(crate) fn print_json(record: &UsageRecord) -> bool {
    say::raw(format!("{}\n", json(record)).as_bytes())
}
