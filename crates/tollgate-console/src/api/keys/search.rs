//! Keys by what they are now and by what was used of them: state, group, expiry, usage. Keys are few compared with records, so they are
//! read, filtered and sorted here; usage comes from the sums.

use std::cmp::Reverse;

use futures_util::{FutureExt as _, future::OptionFuture};
use tollgate_core::NanoUsd;
use tollgate_store::{
    KeySpec, RowFilter, StoredRow,
    fields::{FieldShape, Kind},
};

use super::{STATES, Standing, key_use::KeyUse, member_of, show, wants_use, with_use};
use crate::{
    api::{
        request_context::{InputFields, RequestContext},
        rows,
        schema::{NAME, both},
    },
    api_error::ApiError,
    response::ApiResponse,
};

/// Keys that are searched at most, and read at once.
const MAX_KEYS: usize = 20_000;
const ROWS_AT_ONCE: u32 = 1_000;
const DAY_MS: i64 = 86_400_000;

pub(super) const PARAMETERS: [FieldShape; 6] = [
    both("search", NAME, "With this in the name or in the member's name, or at the key's end."),
    both("group", NAME, "Of this group, by name."),
    both("state", Kind::Word(&STATES), "In this state."),
    both("expires_within_days", Kind::Integer { min: 1, max: 3_650 }, "Which end within so many days."),
    both("unused_days", Kind::Integer { min: 1, max: 365 }, "Without a request in so many days, and made before."),
    both(
        "sort",
        Kind::Word(&["created", "name", "expires", "spent", "requests"]),
        "Order: oldest first (default), by name, the next to end first, or the most used of this UTC month first.",
    ),
];

/// Whether a request asks for more than the list in the order of creation.
pub(super) fn is_asked(query: &InputFields) -> bool {
    PARAMETERS.iter().any(|parameter| query.has(parameter.name))
}

/// A key with what it is sorted by.
struct Found {
    row: StoredRow,
    spec: KeySpec,
    spent: NanoUsd,
    requests: u64,
}

pub(super) async fn search(context: &RequestContext, mut filter: RowFilter) -> Result<ApiResponse, ApiError> {
    let after = filter.after.take();
    let member = member_of(&filter);
    let query = &context.query;
    let unused_since = query.whole("unused_days").map(|days| context.now().plus_ms(-days * DAY_MS));
    let sort = query.text("sort").unwrap_or("created");
    let needs_use = wants_use(context) || matches!(sort, "spent" | "requests");
    // At once: each takes some 100 ms of ten thousand keys.
    let used = OptionFuture::from(unused_since.map(|since| KeyUse::since(context, member, since))).map(Option::transpose);
    let month = OptionFuture::from(needs_use.then(|| KeyUse::of_month(context, member))).map(Option::transpose);
    let (all, used, month) = tokio::try_join!(read_all(context, filter), used, month)?;
    let month = month.unwrap_or_default();
    let standing = Standing::of(context, &all.iter().map(|(row, _)| row).collect::<Vec<_>>()).await?;
    let mut found: Vec<(StoredRow, KeySpec)> = all.into_iter().filter(|(row, spec)| matches(query, row, spec, &standing)).collect();
    if let Some((since, used)) = unused_since.zip(used) {
        found.retain(|(row, _)| row.created_at < since && !used.has(&row.id));
    }
    let with_order = |(row, spec): (StoredRow, KeySpec)| {
        let (spent, requests) = month.of(&row.id);
        Found { row, spec, spent, requests }
    };
    let mut found: Vec<Found> = found.into_iter().map(with_order).collect();
    order(&mut found, sort);
    let begin = match after {
        None => 0,
        Some(after) => found.iter().position(|key| key.row.id == after).map_or(found.len(), |at| at + 1),
    };
    let page: Vec<Found> = found.into_iter().skip(begin).take(context.limit() as usize + 1).collect();
    let month = wants_use(context).then_some(&month);
    let show = |key: &Found| with_use(show(&key.row, &key.spec, &standing), &key.row, month);
    Ok(rows::page(page, context.limit(), |key| key.row.id.clone(), show))
}

async fn read_all(context: &RequestContext, mut filter: RowFilter) -> Result<Vec<(StoredRow, KeySpec)>, ApiError> {
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
        if is_last {
            return Ok(all);
        }
        if all.len() >= MAX_KEYS {
            let message = format_args!("there are more than {MAX_KEYS} keys; name a member");
            return Err(ApiError::value("search", message));
        }
    }
}

fn matches(query: &InputFields, row: &StoredRow, spec: &KeySpec, standing: &Standing) -> bool {
    let contains = |text: &str, part: &str| text.to_lowercase().contains(part);
    let is_named = query.text("search").is_none_or(|search| {
        let (part, suffix) = (search.to_lowercase(), row.shown.as_ref().map_or("", |(_, suffix)| suffix.as_str()));
        contains(&spec.name, &part) || contains(&spec.member, &part) || search.ends_with(suffix) && !suffix.is_empty()
    });
    let is_of_group = query.text("group").is_none_or(|group| spec.groups.iter().any(|known| known == group));
    let is_in_state = query.text("state").is_none_or(|state| standing.state(row, spec) == state);
    let ends_soon = query.whole("expires_within_days").is_none_or(|days| {
        let ends = standing.now..standing.now.plus_ms(days * DAY_MS);
        spec.expires_at.is_some_and(|at| ends.contains(&at))
    });
    is_named && is_of_group && is_in_state && ends_soon
}

fn order(found: &mut [Found], sort: &str) {
    match sort {
        "name" => found.sort_by(|one, other| one.spec.name.cmp(&other.spec.name)),
        "expires" => found.sort_by_key(|key| (key.spec.expires_at.is_none(), key.spec.expires_at)),
        "spent" => found.sort_by_key(|key| Reverse((key.spent, key.requests))),
        "requests" => found.sort_by_key(|key| Reverse((key.requests, key.spent))),
        _ => {}
    }
}
