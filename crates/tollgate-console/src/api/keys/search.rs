//! Search for keys by state, group, expiry and usage. Keys are few compared with records, so they are filtered and sorted here; usage
//! comes from the sums. Of keys that are not shown, only the compared values are read; their usage only if the order or the filter
//! needs it.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tollgate_core::{KeyId, NanoUsd, Timestamp};
use tollgate_store::{
    KeyEntry, KeySpec, ObjectScope, RowFilter, RowKind, StoredRow,
    fields::{FieldShape, Kind},
};

use super::{
    STATES, Standing,
    key_use::{self, KeyUse, ShownUse},
    member_of, row_filter, show, wants_use, with_use,
};
use crate::{
    api::{
        request_context::{InputFields, RequestContext},
        row_names::{names_by_id, rows_by_id},
        rows,
        schema::{NAME, both, join},
    },
    api_error::ApiError,
    response::ApiResponse,
    time::DAY_MS,
};

/// Maximum number of keys that are searched.
const MAX_KEYS: u32 = 20_000;

/// Conditions on keys.
pub(super) const SELECTION: [FieldShape; 5] = [
    both("search", NAME, "With this in the name or in the member's name, or at the key's end."),
    both("group", NAME, "Of this group, by name."),
    both("state", Kind::Word(&STATES), "In this state."),
    both("expires_within_days", Kind::Integer { min: 1, max: 3_650 }, "Only keys that end within so many days."),
    both("unused_days", Kind::Integer { min: 1, max: 365 }, "Only keys without a request in so many days that were made before."),
];

pub(super) const PARAMETERS: [FieldShape; 6] = join(&[
    &SELECTION,
    &[both(
        "sort",
        Kind::Word(&["created", "name", "expires", "spent", "requests", "last_used"]),
        "Order: oldest first (default), by name, the next to end first, the most used of this UTC month first, or the last used first.",
    )],
]);

/// Whether a request filters or sorts keys, rather than listing them in the order of creation.
pub(super) fn is_asked(query: &InputFields) -> bool {
    PARAMETERS.iter().any(|parameter| query.has(parameter.name))
}

/// A key with the values that it is sorted by.
struct Found {
    entry: Arc<KeyEntry>,
    expires_at: Option<Timestamp>,
    spent: NanoUsd,
    requests: u64,
    last_used: Option<Timestamp>,
}

impl Found {
    fn id(&self) -> Option<KeyId> {
        KeyId::parse(&self.entry.id)
    }

    /// A key without use.
    fn of(entry: Arc<KeyEntry>, expires_at: Option<Timestamp>) -> Self {
        Self { entry, expires_at, spent: NanoUsd(0), requests: 0, last_used: None }
    }
}

pub(super) async fn search(context: &RequestContext, mut filter: RowFilter) -> Result<ApiResponse, ApiError> {
    let after = filter.after.take();
    let member = member_of(&filter);
    let sort = context.query.text("sort").unwrap_or("created");
    let mut keys = selected(context, filter, sort).await?;
    let mut month = None;
    if matches!(sort, "spent" | "requests") {
        let used = KeyUse::of_month(context, member, None).await?;
        for key in &mut keys {
            (key.spent, key.requests) = used.of(&key.entry.id);
        }
        month = Some(used);
    }
    if sort == "last_used" {
        let most = if after.is_none() { context.limit() as usize + 1 } else { usize::MAX };
        let last = key_use::last_requests(context, keys.iter().filter_map(Found::id).collect(), most).await?;
        for key in &mut keys {
            key.last_used = key.id().and_then(|id| last.get(&id)).copied();
        }
    }
    order(&mut keys, sort);
    let begin = rows::index_after(&keys, after.as_deref(), |key, after| key.entry.id == after)?;
    let ids: Vec<String> =
        keys.into_iter().skip(begin).take(context.limit() as usize + 1).map(|key| key.entry.id.clone()).collect();
    let rows = rows_by_id(context, RowKind::Key, ids.iter().cloned().collect()).await?;
    let page: Vec<&StoredRow> = ids.iter().filter_map(|id| rows.get(id)).collect();
    let specs = page.iter().map(|row| Ok((*row, row.read()?))).collect::<Result<Vec<(&StoredRow, KeySpec)>, ApiError>>()?;
    let standing = Standing::of(context, &page).await?;
    let used = if wants_use(context) {
        let ids = key_use::ids(page.iter().map(|row| row.id.as_str()));
        Some(ShownUse::of(context, member, ids, month).await?)
    } else {
        None
    };
    let show = |(row, spec): &(&StoredRow, KeySpec)| with_use(show(row, spec, &standing), row, used.as_ref());
    Ok(rows::page(specs, context.limit(), |(row, _)| row.id.clone(), show))
}

/// The keys that meet all conditions of a request, in the order of creation.
async fn selected(context: &RequestContext, filter: RowFilter, sort: &str) -> Result<Vec<Found>, ApiError> {
    let (query, member) = (&context.query, member_of(&filter));
    let unused_since = query.whole("unused_days").map(|days| context.now().plus_ms(-days * DAY_MS));
    let mut keys = candidates(context, filter, sort).await?;
    if let Some(search) = query.text("search") {
        let members = members(context, &keys).await?;
        let part = search.to_lowercase();
        keys.retain(|key| is_named(&key.entry, members.get(&key.entry.member), search, &part));
    }
    if let Some(since) = unused_since {
        keys.retain(|key| key.entry.created_at < since);
        let unused = key_use::unused(context, member, since, keys.iter().filter_map(Found::id).collect()).await?;
        keys.retain(|key| key.id().is_some_and(|id| unused.contains(&id)));
    }
    Ok(keys)
}

/// The usage of all keys that the query selects.
pub(super) async fn summary(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let filter = row_filter(&context).await?;
    let member = member_of(&filter);
    let keys: Vec<KeyId> = selected(&context, filter, "created").await?.iter().filter_map(Found::id).collect();
    key_use::summary(&context, member, keys).await.map(ApiResponse::ok)
}

/// The keys to search, with their expiry if it is needed. Whole rows are read only if a condition or the order needs them.
async fn candidates(context: &RequestContext, filter: RowFilter, sort: &str) -> Result<Vec<Found>, ApiError> {
    let query = &context.query;
    let needs_specs = ["group", "state", "expires_within_days"].into_iter().any(|name| query.has(name)) || sort == "expires";
    if !needs_specs && filter.name.is_none() {
        let entries = entries(context, &filter).await?;
        return Ok(entries.iter().map(|entry| Found::of(Arc::clone(entry), None)).collect());
    }
    let all: Vec<(StoredRow, KeySpec)> = rows::all(context, filter, MAX_KEYS as usize, too_many_keys).await?;
    let standing = Standing::of(context, &all.iter().map(|(row, _)| row).collect::<Vec<_>>()).await?;
    let meeting = all.into_iter().filter(|(row, spec)| meets(query, row, spec, &standing));
    Ok(meeting.map(|(row, spec)| Found::of(Arc::new(entry(row)), spec.expires_at)).collect())
}

/// Search and sort data of the keys of a filter without a name.
async fn entries(context: &RequestContext, filter: &RowFilter) -> Result<Arc<Vec<Arc<KeyEntry>>>, ApiError> {
    let read = async {
        let entries = context.with_query_timeout(context.state.store.listing.key_entries(filter, MAX_KEYS + 1)).await?;
        if entries.len() > MAX_KEYS as usize {
            return Err(too_many_keys());
        }
        Ok(entries.into_iter().map(Arc::new).collect())
    };
    let is_whole = filter.scope == ObjectScope::Everything && filter.parent.is_none() && filter.after.is_none() && !filter.removed;
    if is_whole {
        return context.state.catalog_lists.keys.get(context.revision().await?, read).await;
    }
    read.await.map(Arc::new)
}

fn too_many_keys() -> ApiError {
    ApiError::value("search", format_args!("there are more than {MAX_KEYS} keys; name a member"))
}

fn entry(row: StoredRow) -> KeyEntry {
    let suffix = row.shown.map_or_else(String::new, |(_, suffix)| suffix);
    KeyEntry { id: row.id, member: row.parent, name: row.name, suffix, created_at: row.created_at }
}

/// The names of the keys' members in lower case, by id.
async fn members(context: &RequestContext, keys: &[Found]) -> Result<HashMap<String, String>, ApiError> {
    let ids: HashSet<String> = keys.iter().map(|key| key.entry.member.clone()).collect();
    let names = names_by_id(context, RowKind::Member, ids).await?;
    Ok(names.into_iter().map(|(id, member)| (id, member.name.to_lowercase())).collect())
}

/// Whether the search text is part of the key's name or of its member's name, or ends with the key's last characters. `part` is `search`
/// in lower case.
fn is_named(entry: &KeyEntry, member: Option<&String>, search: &str, part: &str) -> bool {
    entry.name.to_lowercase().contains(part)
        || member.is_some_and(|name| name.contains(part))
        || !entry.suffix.is_empty() && search.ends_with(&entry.suffix)
}

/// Whether a key meets the conditions on its state, its groups and its expiry.
fn meets(query: &InputFields, row: &StoredRow, spec: &KeySpec, standing: &Standing) -> bool {
    let is_of_group = query.text("group").is_none_or(|group| spec.groups.iter().any(|known| known == group));
    let is_in_state = query.text("state").is_none_or(|state| standing.state(row, spec) == state);
    let ends_soon = query.whole("expires_within_days").is_none_or(|days| {
        let ends = standing.now..standing.now.plus_ms(days * DAY_MS);
        spec.expires_at.is_some_and(|at| ends.contains(&at))
    });
    is_of_group && is_in_state && ends_soon
}

fn order(found: &mut [Found], sort: &str) {
    match sort {
        "name" => found.sort_by(|one, other| one.entry.name.cmp(&other.entry.name)),
        "expires" => found.sort_by_key(|key| (key.expires_at.is_none(), key.expires_at)),
        "spent" => found.sort_by_key(|key| Reverse((key.spent, key.requests))),
        "requests" => found.sort_by_key(|key| Reverse((key.requests, key.spent))),
        // Keys without a request are last.
        "last_used" => found.sort_by_key(|key| Reverse(key.last_used)),
        _ => {}
    }
}
