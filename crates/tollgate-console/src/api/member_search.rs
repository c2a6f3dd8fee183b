//! The list of members: in the order of creation, or filtered and sorted. Members are few compared with records, so they are
//! filtered and sorted here; what they spent comes from the sums of usage, and their last requests from the log. Rows are read only of
//! the members that are shown.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use serde_json::{Value, json};
use tollgate_core::{MemberId, NanoUsd, Timestamp};
use tollgate_store::{
    Grouping, MemberSpec, ObjectScope, RowFilter, RowKind, StoredRow, SummaryBy, UsageFilter,
    fields::{Access, FieldShape, Kind},
};

use super::{
    named_resource::{list_rows, object, row_filter},
    named_rows::Members,
    request_context::{InputFields, RequestContext},
    row_names::rows_by_id,
    rows,
    schema::{NAME, both, read},
};
use crate::{api_error::ApiError, catalog_lists::MemberEntry, response::ApiResponse, time::time_value};

/// Maximum number of members that are searched.
const MAX_ROWS: usize = 20_000;

pub(super) const PARAMETERS: [FieldShape; 5] = [
    both("role", Kind::Word(&["member", "operator", "admin"]), "With this role."),
    both("status", Kind::Word(&["active", "suspended"]), "In this state."),
    both("group", NAME, "Only members who were granted this group or have it by default, by name of the group."),
    both(
        "sort",
        Kind::Word(&["created", "newest", "name", "spent", "last_used"]),
        "Order: oldest first (default), newest first, by name, the most charged of this UTC month first, or the last request first.",
    ),
    both("use", Kind::Flag, "With the last request of each member: `last_used_at`."),
];

pub(super) const LAST_USED_AT: FieldShape = read(
    "last_used_at",
    Kind::Time,
    "The last request in the usage log, only in a list that is requested with `use`; null: there is none.",
)
.or_null()
.with(Access::ShownOnce);

type LastUses = HashMap<String, Timestamp>;

/// A member with the values that lists are sorted by.
struct Found {
    entry: Arc<MemberEntry>,
    spent: (NanoUsd, u64),
    last_used: Option<Timestamp>,
}

pub(super) async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let is_asked = |name| context.query.has(name);
    if !["role", "status", "group", "sort", "use"].into_iter().any(is_asked) {
        return list_rows::<Members>(context).await;
    }
    let mut filter = row_filter::<Members>(&context)?;
    let has_filter = ["role", "status", "group"].into_iter().any(is_asked);
    let sort = context.query.text("sort").unwrap_or("created").to_owned();
    if !has_filter && sort == "created" {
        let rows = context.with_query_timeout(context.state.store.listing.page(&filter)).await?;
        return show(&context, rows, None).await;
    }
    let after = filter.after.take();
    let entries = entries(&context, filter).await?;
    let meeting = entries.iter().filter(|entry| meets(&context.query, &entry.spec));
    let mut found: Vec<Found> = meeting.map(|entry| Found::of(Arc::clone(entry))).collect();
    let most = if after.is_none() { context.limit() as usize + 1 } else { usize::MAX };
    let last = add_values(&context, &mut found, &sort, most).await?;
    order(&mut found, &sort);
    let begin = rows::index_after(&found, after.as_deref(), |member, after| member.entry.id == after)?;
    let ids: Vec<String> = found.into_iter().skip(begin).take(context.limit() as usize + 1).map(|it| it.entry.id.clone()).collect();
    let mut rows = rows_by_id(&context, RowKind::Member, ids.iter().cloned().collect()).await?;
    show(&context, ids.iter().filter_map(|id| rows.remove(id)).collect(), last).await
}

/// The members of a filter.
async fn entries(context: &RequestContext, filter: RowFilter) -> Result<Arc<Vec<Arc<MemberEntry>>>, ApiError> {
    let is_whole = filter.scope == ObjectScope::Everything && filter.search.is_none() && filter.name.is_none() && !filter.removed;
    let read = async {
        let members = rows::all(context, filter, MAX_ROWS, too_many_members).await?;
        Ok(members.into_iter().map(|(row, spec)| Arc::new(MemberEntry { id: row.id, spec })).collect())
    };
    if is_whole {
        return context.state.catalog_lists.members.get(context.revision().await?, read).await;
    }
    read.await.map(Arc::new)
}

/// A page of members; `last`: their last requests if they are known already.
async fn show(context: &RequestContext, rows: Vec<StoredRow>, last: Option<LastUses>) -> Result<ApiResponse, ApiError> {
    let page = rows.into_iter().map(|row| Ok((row.read()?, row))).collect::<Result<Vec<(MemberSpec, StoredRow)>, ApiError>>()?;
    let last = match last {
        _ if !context.query.flag("use") => None,
        Some(last) => Some(last),
        None => Some(last_uses(context, page.iter().map(|(_, row)| row.id.as_str()), usize::MAX).await?),
    };
    let shown = |(spec, row): &(MemberSpec, StoredRow)| {
        let mut shown = object::<Members>(row, spec);
        if let Some(last) = &last {
            let at = last.get(&row.id).copied();
            shown.insert(LAST_USED_AT.name.to_owned(), json!(at.map(time_value)));
        }
        Value::Object(shown)
    };
    Ok(rows::page(page, context.limit(), |(_, row)| row.id.clone(), shown))
}

impl Found {
    /// A member whose use is not read yet.
    const fn of(entry: Arc<MemberEntry>) -> Self {
        Self { entry, spent: (NanoUsd::ZERO, 0), last_used: None }
    }
}

fn too_many_members() -> ApiError {
    ApiError::value("search", format_args!("there are more than {MAX_ROWS} members; search for a part of the name"))
}

fn meets(query: &InputFields, member: &MemberSpec) -> bool {
    let has = |name: &str, value: &Value| query.text(name).is_none_or(|wanted| value == wanted);
    let is_of_group = query
        .text("group")
        .is_none_or(|group| member.groups.iter().any(|known| known == group) || member.default_group.as_deref() == Some(group));
    has("role", &json!(member.role)) && has("status", &json!(member.status)) && is_of_group
}

/// Adds what the order needs, for the first `most` of it. Returns the last requests if they were read.
async fn add_values(context: &RequestContext, found: &mut [Found], sort: &str, most: usize) -> Result<Option<LastUses>, ApiError> {
    match sort {
        "spent" => {
            let spent = spent(context).await?;
            for member in found {
                member.spent = spent.get(&member.entry.id).copied().unwrap_or_default();
            }
            Ok(None)
        }
        "last_used" => {
            let last = last_uses(context, found.iter().map(|member| member.entry.id.as_str()), most).await?;
            for member in found {
                member.last_used = last.get(&member.entry.id).copied();
            }
            Ok(Some(last))
        }
        _ => Ok(None),
    }
}

/// What members were charged in this UTC month and for how many requests, by id.
async fn spent(context: &RequestContext) -> Result<HashMap<String, (NanoUsd, u64)>, ApiError> {
    let since = Some(Timestamp::of_month(context.now().month()));
    let filter = UsageFilter { member: context.only_member(None)?, since, ..UsageFilter::default() };
    let by = Grouping::from(SummaryBy::Member).without_times();
    let _permit = context.acquire_heavy_permit().await?;
    let sums = context.with_query_timeout(context.state.store.usage.summary(&filter, by)).await?;
    Ok(sums.into_iter().map(|sum| (sum.of, (sum.sale, sum.requests))).collect())
}

/// The last requests of members, at least of the `most` that were active last, by id, including requests with keys that are revoked now.
async fn last_uses(context: &RequestContext, members: impl Iterator<Item = &str>, most: usize) -> Result<LastUses, ApiError> {
    let members = members.filter_map(MemberId::parse).collect();
    let _permit = context.acquire_heavy_permit().await?;
    let last = context.with_query_timeout(context.state.store.usage.last_use_of_members(members, most)).await?;
    Ok(last.into_iter().map(|(member, at)| (member.to_string(), at)).collect())
}

fn order(found: &mut [Found], sort: &str) {
    match sort {
        "newest" => found.reverse(),
        "name" => found.sort_by_cached_key(|member| member.entry.spec.name.to_lowercase()),
        "spent" => found.sort_by_key(|member| Reverse(member.spent)),
        // Members without requests sort last.
        "last_used" => found.sort_by_key(|member| Reverse(member.last_used)),
        _ => {}
    }
}
