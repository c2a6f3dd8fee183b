//! Rows as filters of records name them: by id, or by a name. Records outlive the rows they are about, so that rows which were removed
//! are found by their last name, too.

use tollgate_core::{AccountId, GroupId, KeyId, MemberId};
use tollgate_store::{ObjectScope, RowFilter, RowKind, StoredRow};

use super::request_context::RequestContext;
use crate::api_error::ApiError;

/// Removed rows of one name that an error lists.
const MAX_LISTED: u32 = 5;
/// Channels that had one name, in which an account is looked for.
const MAX_CHANNELS: u32 = 100;

/// The id that a parameter names, of the rows that the sender may see.
pub(super) async fn id<T>(
    context: &RequestContext,
    kind: RowKind,
    parameter: &str,
    parse: fn(&str) -> Option<T>,
) -> Result<Option<T>, ApiError> {
    let Some(text) = context.query.text(parameter) else { return Ok(None) };
    match parse(text) {
        Some(id) => Ok(Some(id)),
        None => only(kind, parameter, named(context, kind, context.objects, text).await?).map(|id| parse(&id)),
    }
}

/// The id of the key that the parameter `key` names.
pub(super) async fn key(context: &RequestContext) -> Result<Option<KeyId>, ApiError> {
    id(context, RowKind::Key, "key", KeyId::parse).await
}

/// The id of the member that the parameter `member` names.
pub(super) async fn member(context: &RequestContext) -> Result<Option<MemberId>, ApiError> {
    context.only_member(id(context, RowKind::Member, "member", MemberId::parse).await?)
}

/// The id of the account that a parameter names.
pub(super) async fn account(context: &RequestContext, parameter: &str) -> Result<Option<AccountId>, ApiError> {
    let Some(text) = context.query.text(parameter) else { return Ok(None) };
    if let Some(id) = AccountId::parse(text) {
        return Ok(Some(id));
    }
    let Some((channel, account)) = text.split_once('/') else {
        return Err(ApiError::value(parameter, "expected the account as channel/account, or its id"));
    };
    let rows = async |kind: RowKind, name: &str, parent: Option<String>, limit: u32| {
        let scope = context.objects;
        let filter = RowFilter { scope, name: Some(name.to_owned()), parent, removed: true, ..RowFilter::of(kind, limit) };
        context.state.store.listing.page(&filter).await
    };
    let channels = rows(RowKind::Channel, channel, None, MAX_CHANNELS).await?;
    if channels.is_empty() {
        return Err(ApiError::not_found(RowKind::Channel).about(parameter));
    }
    let mut accounts = Vec::new();
    for channel in channels {
        accounts.extend(rows(RowKind::Account, account, Some(channel.id), MAX_CHANNELS).await?);
    }
    only(RowKind::Account, parameter, accounts).map(|id| AccountId::parse(&id))
}

/// The group that a parameter names, visible to the sender or not; `None` if it names none, or several that were removed.
pub(super) async fn group_of_any(context: &RequestContext, text: &str) -> Result<Option<GroupId>, ApiError> {
    if let Some(id) = GroupId::parse(text) {
        return Ok(Some(id));
    }
    let rows = named(context, RowKind::Group, ObjectScope::Everything, text).await?;
    Ok(only(RowKind::Group, "group", rows).ok().and_then(|id| GroupId::parse(&id)))
}

/// The rows that have this name, or, if there are none, those that had it when they were removed.
async fn named(context: &RequestContext, kind: RowKind, scope: ObjectScope, name: &str) -> Result<Vec<StoredRow>, ApiError> {
    let of = |removed: bool| RowFilter { scope, name: Some(name.to_owned()), removed, ..RowFilter::of(kind, MAX_LISTED + 1) };
    let listing = &context.state.store.listing;
    let present = listing.page(&of(false)).await?;
    if present.is_empty() { Ok(listing.page(&of(true)).await?) } else { Ok(present) }
}

/// The id of the only row that is not removed, or of the only removed row if all are removed.
fn only(kind: RowKind, parameter: &str, rows: Vec<StoredRow>) -> Result<String, ApiError> {
    let (present, removed): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.removed_at.is_none());
    let mut rows = if present.is_empty() { removed } else { present };
    if rows.len() < 2 {
        return rows.pop().map(|row| row.id).ok_or_else(|| ApiError::not_found(kind).about(parameter));
    }
    if rows.iter().any(|row| row.removed_at.is_none()) {
        return Err(ApiError::value(parameter, format!("more than one {kind} has this name; send its id")));
    }
    let listed = MAX_LISTED as usize;
    let more = if rows.len() > listed { " …" } else { "" };
    let ids: Vec<&str> = rows.iter().take(listed).map(|row| row.id.as_str()).collect();
    let message = format!("more than one {kind} with this name was removed; send the id of one: {}{more}", ids.join(", "));
    Err(ApiError::value(parameter, message))
}
