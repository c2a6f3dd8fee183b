//! Pages: so many items, and where the next page begins.

use serde_json::{Value, json};

use crate::response::ApiResponse;

/// A page out of at most one item more than was asked for, which tells that there is a next one.
pub(super) fn page<T>(mut rows: Vec<T>, limit: u32, place: impl Fn(&T) -> String, show: impl Fn(&T) -> Value) -> ApiResponse {
    let limit = limit as usize;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = if more { rows.last().map(place) } else { None };
    ApiResponse::ok(json!({"items": rows.iter().map(show).collect::<Vec<_>>(), "next": next}))
}
