//! Exports the rows of a filter as text, page by page: as CSV or as one JSON object a line.

use std::future::Future;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tollgate_store::fields::{FieldShape, Kind};

use super::schema::both;
use crate::{api_error::ApiError, response::ApiResponse, usage_format::escape_formula};

pub(super) const FORMAT: FieldShape = both("format", Kind::Word(&["csv", "jsonl"]), "Default csv.");
/// Rows of a page.
pub(super) const PAGE: u32 = 1_000;
/// Rows of an export, at most.
const MAX_ROWS: usize = 100_000;

/// A kind of rows to export.
pub(super) trait ExportedRows: Send + 'static {
    /// Name of the file, without its ending.
    const NAME: &'static str;
    /// Members of a row that CSV has as columns.
    const COLUMNS: &'static [&'static str];

    /// The next rows, at most [`PAGE`]; `None` after the last.
    fn next(&mut self) -> impl Future<Output = Result<Option<Vec<Value>>, ApiError>> + Send;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    JsonLines,
}

/// An export in progress.
struct Export<R> {
    rows: R,
    format: Format,
    has_begun: bool,
    written: usize,
}

/// Streams rows in the format that is asked for.
pub(super) async fn answer<R: ExportedRows>(format: Option<&str>, rows: R) -> Result<ApiResponse, ApiError> {
    let (format, content_type, ending) = match format {
        Some("jsonl") => (Format::JsonLines, "application/jsonl; charset=utf-8", "jsonl"),
        Some(_) | None => (Format::Csv, "text/csv; charset=utf-8", "csv"),
    };
    let mut export = Export { rows, format, has_begun: false, written: 0 };
    // The first page answers with an error if there is one; a later one ends the connection.
    let first = export.page().await?.unwrap_or_default();
    let rest = stream::try_unfold(export, |mut export| async move {
        let page = export.page().await.map_err(|error| {
            tracing::warn!(error = error.message(), export = R::NAME, "export failed");
            std::io::Error::other(error.message().to_owned())
        })?;
        Ok::<_, std::io::Error>(page.map(|bytes| (bytes, export)))
    });
    let bytes = stream::iter([Ok(first)]).chain(rest);
    let answer = ApiResponse::streamed(content_type, Body::from_stream(bytes));
    Ok(answer.header("content-disposition", &format!("attachment; filename=\"{}.{ending}\"", R::NAME)))
}

impl<R: ExportedRows> Export<R> {
    async fn page(&mut self) -> Result<Option<Bytes>, ApiError> {
        if self.written >= MAX_ROWS {
            return Ok(None);
        }
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let rows = match self.rows.next().await? {
            // CSV without rows has a head.
            None if is_first => Vec::new(),
            None => return Ok(None),
            Some(rows) => rows,
        };
        self.written += rows.len();
        Ok(Some(match self.format {
            Format::Csv => csv(R::COLUMNS, &rows, is_first),
            Format::JsonLines => json_lines(&rows),
        }))
    }
}

fn json_lines(rows: &[Value]) -> Bytes {
    rows.iter().flat_map(|row| [row.to_string(), "\n".to_owned()]).collect::<String>().into()
}

/// Texts that people chose are escaped for spreadsheets; objects are JSON in one column.
fn csv(columns: &[&str], rows: &[Value], with_head: bool) -> Bytes {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let cell = |row: &Value, column: &str| match &row[column] {
        Value::String(text) => escape_formula(text).into_owned(),
        Value::Null => String::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    };
    // Writing to memory does not fail.
    if with_head {
        let _ = writer.write_record(columns);
    }
    for row in rows {
        let _ = writer.write_record(columns.iter().map(|column| cell(row, column)));
    }
    writer.into_inner().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_written_as_csv_and_json_lines() {
        let row =
            json!({"at": "2026-11-01T00:00:00Z", "actor": "=cmd", "name": "a,b", "revision": 7, "detail": {"after": {"rpm": 1}}});
        let text = csv(&["at", "actor", "name", "revision", "detail", "note"], std::slice::from_ref(&row), true);
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert_eq!(text.lines().next(), Some("at,actor,name,revision,detail,note"));
        assert!(text.contains("'=cmd") && text.contains("\"a,b\"") && text.contains("{\"\"after\"\""), "{text}");
        let lines = String::from_utf8(json_lines(&[row.clone(), row]).to_vec()).unwrap();
        assert_eq!(lines.lines().count(), 2);
    }

    /// An endless export of full pages; the field is the next number.
    struct Numbers(usize);

    impl ExportedRows for Numbers {
        const NAME: &'static str = "numbers";
        const COLUMNS: &'static [&'static str] = &["number"];

        async fn next(&mut self) -> Result<Option<Vec<Value>>, ApiError> {
            let from = self.0;
            self.0 += PAGE as usize;
            Ok(Some((from..self.0).map(|number| json!({"number": number})).collect()))
        }
    }

    #[tokio::test]
    async fn export_has_one_header_line_and_at_most_the_maximum_rows() {
        let answer = answer(None, Numbers(0)).await.unwrap().response();
        assert_eq!(answer.headers()["content-disposition"], "attachment; filename=\"numbers.csv\"");
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert_eq!((text.lines().count(), text.lines().next(), text.lines().nth(1)), (MAX_ROWS + 1, Some("number"), Some("0")));
    }
}
