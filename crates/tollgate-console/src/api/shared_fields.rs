//! What several resources have in common.

use serde_json::{Map, Value, json};
use tollgate_store::StoredRow;

use super::request_context::RequestContext;
use crate::{api_error::ApiError, time::time_value};

/// A row that is made to have ended already is a typing error.
pub(super) fn require_future(context: &RequestContext, name: &str) -> Result<(), ApiError> {
    match context.body.time(name) {
        Some(at) if at <= context.now() => Err(ApiError::value(name, "it lies in the past; what is made now would never work")),
        Some(_) | None => Ok(()),
    }
}

/// An object with the members that every row has in answers.
pub(super) fn row_of(row: &StoredRow) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("id".to_owned(), row.id.clone().into());
    members.insert("owner".to_owned(), json!(row.owner));
    members.insert("created_at".to_owned(), time_value(row.created_at));
    members.insert("revision".to_owned(), row.revision.0.into());
    members
}
