//! Rows and names of rows by their ids, removed ones included, for lists that hold ids.

use std::collections::{HashMap, HashSet};

use tollgate_store::{RowKind, RowName, StoredRow};

use super::request_context::RequestContext;
use crate::api_error::ApiError;

/// The rows with these ids. Ids that no row has are left out.
pub(super) async fn rows_by_id(
    context: &RequestContext,
    kind: RowKind,
    ids: HashSet<String>,
) -> Result<HashMap<String, StoredRow>, ApiError> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = context.state.store.listing.rows(kind, ids.into_iter().collect(), context.objects);
    Ok(context.with_query_timeout(rows).await?.into_iter().map(|row| (row.id.clone(), row)).collect())
}

/// The names of the rows with these ids. Ids that no row has are left out.
pub(super) async fn names_by_id(
    context: &RequestContext,
    kind: RowKind,
    ids: HashSet<String>,
) -> Result<HashMap<String, RowName>, ApiError> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let names = context.state.store.listing.names(kind, ids.into_iter().collect(), context.objects);
    let names = context.with_query_timeout(names).await?;
    Ok(names.into_iter().map(|name| (name.id.clone(), name)).collect())
}
