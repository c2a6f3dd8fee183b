//! Paging of lists.

use serde_json::{Value, json};

use crate::response::ApiResponse;

/// A page of up to `limit` items. `rows` holds one more if there is a next page; `position` gives the `next` cursor of an
/// item.
pub(super) fn page<T>(mut rows: Vec<T>, limit: u32, position: impl Fn(&T) -> String, show: impl Fn(&T) -> Value) -> ApiResponse {
    let limit = limit as usize;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = if more { rows.last().map(position) } else { None };
    ApiResponse::ok(json!({"items": rows.iter().map(show).collect::<Vec<_>>(), "next": next}))
}
