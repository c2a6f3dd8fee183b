//! Stored rows as handlers use them: finding one by id or name, showing pages of them, and changing one without overwriting
//! concurrent changes.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tollgate_core::KeyId;
use tollgate_store::{Change, RowFilter, RowKind, StoredRow};

use super::request_context::{ApplyOutcome, RequestContext};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value};

/// Attempts to change a row that is changed concurrently.
const MAX_ATTEMPTS: u32 = 32;
/// Rows that [`all`] reads by one query.
const ROWS_AT_ONCE: u32 = 1_000;

/// Prefix of ids of a kind.
pub(super) const fn prefix(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Channel => "chn_",
        RowKind::Account => "acc_",
        RowKind::Model => "mdl_",
        RowKind::Group => "grp_",
        RowKind::Member => "mbr_",
        RowKind::Key => "key_",
        RowKind::AdminKey => "adm_",
        RowKind::Setting => "set_",
        RowKind::AlertDestination => "dst_",
    }
}

/// Whether a text has the form of an id of this kind.
pub(super) fn is_id(kind: RowKind, text: &str) -> bool {
    text.strip_prefix(prefix(kind)).is_some_and(|digits| digits.len() == 26)
}

/// Finds a row by id (revoked keys included), or an existing one by its name below `parent`.
pub(super) async fn find(context: &RequestContext, kind: RowKind, parent: Option<&str>, text: &str) -> Result<StoredRow, ApiError> {
    let listing = &context.state.store.listing;
    let found = if is_id(kind, text) {
        let visible = |row: &StoredRow| {
            let exists = matches!(kind, RowKind::Key | RowKind::AdminKey) || row.removed_at.is_none();
            exists && parent.is_none_or(|parent| row.parent == parent)
        };
        listing.row(kind, text, context.objects).await?.filter(visible)
    } else if matches!(kind, RowKind::Key | RowKind::AdminKey) {
        // Key names are not unique.
        None
    } else {
        return written(context, kind, parent, text).await;
    };
    found.ok_or_else(|| ApiError::not_found(kind))
}

/// The row of this name, after a write that created or changed it.
pub(super) async fn written(
    context: &RequestContext,
    kind: RowKind,
    parent: Option<&str>,
    name: &str,
) -> Result<StoredRow, ApiError> {
    let (name, parent) = (Some(name.to_owned()), parent.map(str::to_owned));
    let filter = RowFilter { scope: context.objects, name, parent, ..RowFilter::of(kind, 1) };
    context.state.store.listing.page(&filter).await?.pop().ok_or_else(|| ApiError::not_found(kind))
}

/// A page of rows as objects.
pub(super) async fn list<S: DeserializeOwned>(
    context: &RequestContext,
    filter: &RowFilter,
    show: impl Fn(&StoredRow, &S) -> Value,
) -> Result<ApiResponse, ApiError> {
    let rows = context.with_query_timeout(context.state.store.listing.page(filter)).await?;
    let rows = rows.into_iter().map(|row| Ok((row.read()?, row))).collect::<Result<Vec<(S, StoredRow)>, ApiError>>()?;
    Ok(page(rows, context.limit(), |(_, row)| row.id.clone(), |(spec, row)| show(row, spec)))
}

/// All rows that `filter` matches, in the order of creation. Fails with `too_many` if there are more than `max`.
pub(super) async fn all<S: DeserializeOwned>(
    context: &RequestContext,
    mut filter: RowFilter,
    max: usize,
    too_many: impl Fn() -> ApiError,
) -> Result<Vec<(StoredRow, S)>, ApiError> {
    filter.limit = ROWS_AT_ONCE;
    let mut all = Vec::new();
    loop {
        let rows = context.with_query_timeout(context.state.store.listing.page(&filter)).await?;
        let is_last = rows.len() < ROWS_AT_ONCE as usize;
        filter.after = rows.last().map(|row| row.id.clone());
        for row in rows {
            let spec = row.read()?;
            all.push((row, spec));
        }
        if all.len() > max {
            return Err(too_many());
        }
        if is_last {
            return Ok(all);
        }
    }
}

/// Index of the first item after the one with the id `after`; 0 without `after`.
pub(super) fn index_after<T>(items: &[T], after: Option<&str>, is_at: impl Fn(&T, &str) -> bool) -> Result<usize, ApiError> {
    let Some(after) = after else { return Ok(0) };
    // An empty page would look like the end of the list.
    let gone = || ApiError::value("after", "this position no longer exists; begin again");
    items.iter().position(|item| is_at(item, after)).map(|at| at + 1).ok_or_else(gone)
}

/// A page of up to `limit` items. `rows` holds one more if there is a next page; `position` gives the `next` cursor of an
/// item.
pub(super) fn page<T>(mut rows: Vec<T>, limit: u32, position: impl Fn(&T) -> String, show: impl Fn(&T) -> Value) -> ApiResponse {
    let limit = limit as usize;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = if more { rows.last().map(position) } else { None };
    ApiResponse::ok(json!({"items": rows.iter().map(show).collect::<Vec<_>>(), "next": next}))
}

/// The fields that all rows have in answers.
pub(super) fn object(row: &StoredRow) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("id".to_owned(), row.id.clone().into());
    members.insert("owner".to_owned(), json!(row.owner));
    members.insert("created_at".to_owned(), time_value(row.created_at));
    members.insert("revision".to_owned(), row.revision.0.into());
    members
}

/// Rejects an expiry in the past, which is a typing error: the row would never be usable.
pub(super) fn require_future(context: &RequestContext, name: &str) -> Result<(), ApiError> {
    match context.body.time(name) {
        Some(at) if at <= context.now() => Err(ApiError::value(name, "it is in the past, so it would never work")),
        Some(_) | None => Ok(()),
    }
}

/// Resolves a key id, or the name of a key if it is unambiguous.
pub(super) async fn key_id(context: &RequestContext, text: &str) -> Result<KeyId, ApiError> {
    let id = if is_id(RowKind::Key, text) {
        Some(text.to_owned())
    } else {
        let named = RowFilter { scope: context.objects, name: Some(text.to_owned()), ..RowFilter::of(RowKind::Key, 2) };
        let mut keys = context.state.store.listing.page(&named).await?;
        if keys.len() > 1 {
            return Err(ApiError::value("key", "more than one key has this name; send its id"));
        }
        keys.pop().map(|key| key.id)
    };
    id.and_then(|id| KeyId::parse(&id)).ok_or_else(|| ApiError::not_found(RowKind::Key))
}

/// Row filter from the query parameters `limit`, `after` and `name`.
pub(super) fn filter(context: &RequestContext, kind: RowKind) -> Result<RowFilter, ApiError> {
    let after = context.query.text("after");
    if after.is_some_and(|after| !is_id(kind, after)) {
        return Err(ApiError::value("after", "expected the 'next' of a page"));
    }
    Ok(RowFilter {
        scope: context.objects,
        name: context.query.text("name").map(str::to_owned),
        after: after.map(str::to_owned),
        ..RowFilter::of(kind, context.limit() + 1)
    })
}

/// Changes a row and returns it. With `If-Match` the row must have that revision; otherwise the change is computed again when
/// the row was changed concurrently.
pub(super) async fn edit(
    context: &RequestContext,
    kind: RowKind,
    parent: Option<&str>,
    text: &str,
    change: impl Fn(&StoredRow) -> Result<Vec<Change>, ApiError>,
) -> Result<StoredRow, ApiError> {
    let expected = context.if_match()?;
    let mut tries = 0;
    loop {
        tries += 1;
        let row = find(context, kind, parent, text).await?;
        let revision = expected.unwrap_or(row.revision);
        let mut changes = vec![Change::ExpectRow { kind, id: row.id.clone(), revision }];
        changes.extend(change(&row)?);
        match context.apply(&changes).await {
            Err(problem) if problem.is_stale() && expected.is_none() && tries < MAX_ATTEMPTS => {}
            Err(problem) => return Err(problem),
            Ok(ApplyOutcome::Applied | ApplyOutcome::Replayed(_)) => {
                let found = context.state.store.listing.row(kind, &row.id, context.objects).await?;
                return found.ok_or_else(|| ApiError::not_found(kind));
            }
        }
    }
}
