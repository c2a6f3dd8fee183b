//! Rows and names of rows by their ids, removed ones included, for lists that hold ids.

use std::collections::{HashMap, HashSet};

use tollgate_store::{RowFilter, RowKind, RowName, StoredRow};

use super::request_context::RequestContext;
use crate::api_error::ApiError;

/// Up to so many ids are looked up one by one; more are found by reading all rows of the kind.
const MAX_LOOKUPS: usize = 40;
/// Rows of a page.
const PAGE: u32 = 1_000;
/// Most pages that are read: names of the newest rows beyond them stay unknown.
const MAX_PAGES: usize = 100;

/// The rows with these ids. Ids that no row has are left out.
pub(super) async fn rows_by_id(
    context: &RequestContext,
    kind: RowKind,
    mut ids: HashSet<String>,
) -> Result<HashMap<String, StoredRow>, ApiError> {
    let listing = &context.state.store.listing;
    let mut found = HashMap::new();
    if ids.len() <= MAX_LOOKUPS {
        for id in ids {
            if let Some(row) = context.with_query_timeout(listing.row(kind, &id, context.objects)).await? {
                found.insert(id, row);
            }
        }
        return Ok(found);
    }
    let mut filter = RowFilter { scope: context.objects, removed: true, ..RowFilter::of(kind, PAGE) };
    for _ in 0..MAX_PAGES {
        let rows = context.with_query_timeout(listing.page(&filter)).await?;
        let is_last = rows.len() < PAGE as usize;
        filter.after = rows.last().map(|row| row.id.clone());
        found.extend(rows.into_iter().filter(|row| ids.remove(&row.id)).map(|row| (row.id.clone(), row)));
        if is_last || ids.is_empty() {
            break;
        }
    }
    Ok(found)
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
