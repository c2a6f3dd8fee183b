//! Export of all events of a filter, newest first, as CSV or as one JSON object a line.

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use serde_json::Value;
use tollgate_store::fields::{FieldShape, Kind};

use super::{AuditEntry, Cursor, find};
use crate::{
    api::{request_context::RequestContext, schema::both},
    api_error::ApiError,
    response::ApiResponse,
    usage_format::escape_formula,
};

pub(super) const DOC: &str = "Events of the filter as text, newest first: up to 100,000. CSV has the detail as JSON in one column.";
pub(super) const FORMAT: FieldShape = both("format", Kind::Word(&["csv", "jsonl"]), "Default csv.");
/// Events of an export, at most: a range of time selects older ones.
const MAX_EVENTS: usize = 100_000;
const PAGE: u32 = 1_000;
const COLUMNS: [&str; 9] = ["at", "origin", "actor", "action", "kind", "name", "id", "revision", "detail"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    JsonLines,
}

/// Where an export has got to.
struct Export {
    context: RequestContext,
    format: Format,
    /// `None`: it is over.
    next: Option<Cursor>,
    written: usize,
}

pub(super) async fn export(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (format, content_type, name) = match context.query.text("format") {
        Some("jsonl") => (Format::JsonLines, "application/jsonl; charset=utf-8", "audit.jsonl"),
        Some(_) | None => (Format::Csv, "text/csv; charset=utf-8", "audit.csv"),
    };
    let mut export = Export { context, format, next: Some(Cursor::default()), written: 0 };
    // The first page answers with an error if there is one; a later one ends the connection.
    let first = export.page().await?.unwrap_or_default();
    let rest = stream::try_unfold(export, |mut export| async move {
        let page = export.page().await.map_err(|error| {
            tracing::warn!(error = error.message(), "audit export failed");
            std::io::Error::other(error.message().to_owned())
        })?;
        Ok::<_, std::io::Error>(page.map(|bytes| (bytes, export)))
    });
    let bytes = futures_util::StreamExt::chain(stream::iter([Ok(first)]), rest);
    let answer = ApiResponse::streamed(content_type, Body::from_stream(bytes));
    Ok(answer.header("content-disposition", &format!("attachment; filename=\"{name}\"")))
}

impl Export {
    async fn page(&mut self) -> Result<Option<Bytes>, ApiError> {
        let Some(after) = self.next.filter(|_| self.written < MAX_EVENTS) else { return Ok(None) };
        let permit = self.context.acquire_heavy_permit().await?;
        let (lines, next) = find(&self.context, after, PAGE).await?;
        drop(permit);
        self.next = next;
        let is_first = self.written == 0;
        self.written += lines.len();
        let shown: Vec<Value> = lines.iter().map(AuditEntry::show).collect();
        Ok(Some(match self.format {
            Format::Csv => csv(&shown, is_first),
            Format::JsonLines => json_lines(&shown),
        }))
    }
}

fn json_lines(events: &[Value]) -> Bytes {
    events.iter().flat_map(|event| [event.to_string(), "\n".to_owned()]).collect::<String>().into()
}

/// Texts that people chose are escaped for spreadsheets.
fn csv(events: &[Value], with_head: bool) -> Bytes {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let cell = |event: &Value, column: &str| match &event[column] {
        Value::String(text) => escape_formula(text).into_owned(),
        Value::Null => String::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    };
    // Writing to memory does not fail.
    if with_head {
        let _ = writer.write_record(COLUMNS);
    }
    for event in events {
        let _ = writer.write_record(COLUMNS.map(|column| cell(event, column)));
    }
    writer.into_inner().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_become_rows_and_lines() {
        let event = json!({
            "at": "2026-11-01T00:00:00Z", "origin": "api", "actor": "=cmd", "action": "put", "kind": "group", "name": "a,b", "id": "grp_1",
            "revision": 7, "detail": {"after": {"rpm": 1}},
        });
        let text = String::from_utf8(csv(std::slice::from_ref(&event), true).to_vec()).unwrap();
        assert_eq!(text.lines().next(), Some("at,origin,actor,action,kind,name,id,revision,detail"));
        assert!(text.contains("'=cmd") && text.contains("\"a,b\"") && text.contains("{\"\"after\"\""), "{text}");
        let lines = String::from_utf8(json_lines(&[event.clone(), event]).to_vec()).unwrap();
        assert_eq!(lines.lines().count(), 2);
    }
}
