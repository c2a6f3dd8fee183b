//! Usage records as table rows and JSON lines, for `usage`.

use serde_json::Value;
use tollgate_console::{ExportView, write_usage_csv, write_usage_json};
pub(crate) use tollgate_console::{rfc3339 as time, usage_json as json};
use tollgate_core::UsageRecord;

use crate::output;

/// Table row of a record, from its JSON.
pub(crate) fn table_row(record: &Value) -> Vec<String> {
    let text = |member: &str| record[member].as_str().unwrap_or("–").to_owned();
    let tokens = |kinds: &[&str]| kinds.iter().filter_map(|kind| record["tokens"][*kind].as_u64()).sum::<u64>().to_string();
    let last = record["attempts"].as_array().and_then(|attempts| attempts.last());
    let account = last.and_then(|last| Some(format!("{}/{}", last["channel"].as_str()?, last["account"].as_str()?)));
    vec![
        text("at"),
        record["status"].to_string(),
        text("outcome"),
        text("reason"),
        text("model"),
        text("key_name"),
        account.unwrap_or_else(|| "–".to_owned()),
        tokens(&["input", "cache_read", "cache_write", "image", "audio"]),
        tokens(&["output", "thinking"]),
        record["sale"].as_str().unwrap_or("not priced").to_owned(),
        format!("{} ms", record["duration_us"].as_u64().unwrap_or_default() / 1_000),
        text("id"),
    ]
}

/// Headings of [`table_row`].
pub(crate) const HEADINGS: [&str; 12] =
    ["at", "status", "outcome", "reason", "model", "key", "account", "in", "out", "sale USD", "took", "id"];

/// Prints one record as a JSON line; `false` when the pipe is closed.
pub(crate) fn print_json(record: &UsageRecord) -> bool {
    let mut line = Vec::new();
    write_usage_json(&mut line, record);
    output::raw(&line)
}

/// Prints one record as a CSV row; `false` when the pipe is closed.
pub(crate) fn print_csv(record: &UsageRecord) -> bool {
    let mut line = Vec::new();
    write_usage_csv(&mut line, ExportView::Operator, std::slice::from_ref(record));
    output::raw(&line)
}
