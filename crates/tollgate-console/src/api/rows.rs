//! Operations on stored rows that handlers share: finding a row by id or name, and changing one without overwriting concurrent
//! changes.

use tollgate_core::KeyId;
use tollgate_store::{Change, RowFilter, RowKind, StoredRow};

use super::request_context::{ApplyOutcome, RequestContext};
use crate::api_error::ApiError;

/// Attempts to change a row that is changed concurrently.
const MAX_ATTEMPTS: u32 = 5;

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
        listing.row(kind, text).await?.filter(visible)
    } else if matches!(kind, RowKind::Key | RowKind::AdminKey) {
        // Key names are not unique.
        None
    } else {
        let filter = RowFilter { name: Some(text.to_owned()), parent: parent.map(str::to_owned), ..RowFilter::of(kind, 1) };
        listing.page(&filter).await?.pop()
    };
    found.ok_or_else(|| ApiError::missing(kind, text))
}

/// Reads back the row of this name after a write.
pub(super) async fn written(
    context: &RequestContext,
    kind: RowKind,
    parent: Option<&str>,
    name: &str,
) -> Result<StoredRow, ApiError> {
    let filter = RowFilter { name: Some(name.to_owned()), parent: parent.map(str::to_owned), ..RowFilter::of(kind, 1) };
    context.state.store.listing.page(&filter).await?.pop().ok_or_else(|| ApiError::missing(kind, name))
}

/// Resolves a key id, or the name of a key if it is unambiguous.
pub(super) async fn key_id(context: &RequestContext, text: &str) -> Result<KeyId, ApiError> {
    let id = if is_id(RowKind::Key, text) {
        Some(text.to_owned())
    } else {
        let named = RowFilter { name: Some(text.to_owned()), ..RowFilter::of(RowKind::Key, 2) };
        let mut keys = context.state.store.listing.page(&named).await?;
        if keys.len() > 1 {
            return Err(ApiError::value("key", "more than one key has this name; send its id"));
        }
        keys.pop().map(|key| key.id)
    };
    id.and_then(|id| KeyId::parse(&id)).ok_or_else(|| ApiError::missing(RowKind::Key, text))
}

/// Row filter from the query parameters `limit`, `after` and `name`.
pub(super) fn filter(context: &RequestContext, kind: RowKind) -> Result<RowFilter, ApiError> {
    let after = context.query.text("after");
    if after.is_some_and(|after| !is_id(kind, after)) {
        return Err(ApiError::value("after", "expected the 'next' of a page"));
    }
    Ok(RowFilter {
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
                let found = context.state.store.listing.row(kind, &row.id).await?;
                return found.ok_or_else(|| ApiError::missing(kind, text));
            }
        }
    }
}
