//! The list of groups with the numbers of their members, keys and models.

use std::slice;

use serde_json::{Map, Value};
use tollgate_core::{Audience, Catalog, visible_offers};
use tollgate_store::{
    GroupSpec, GroupUsers, StoredRow,
    fields::{Access, FieldShape, Kind},
};

use super::{
    named_resource::{list_rows, object, row_filter},
    named_rows::Groups,
    request_context::RequestContext,
    rows,
    schema::{COUNT, both, read},
};
use crate::{api_error::ApiError, response::ApiResponse};

pub(super) const USE: FieldShape =
    both("use", Kind::Flag, "With the number of members, keys and models of each group: `member_count` and so on.");

pub(super) const MEMBERS: FieldShape = read(
    "member_count",
    COUNT,
    "Members who were granted it or whose default group it is; this and the following only in a list that is requested with `use`.",
)
.with(Access::ShownOnce);
pub(super) const KEYS: FieldShape =
    read("key_count", COUNT, "Service keys that name it and are not revoked.").with(Access::ShownOnce);
pub(super) const DEFAULT_KEYS: FieldShape =
    read("default_key_count", COUNT, "Service keys that name no group, of members whose default group it is.")
        .with(Access::ShownOnce);
pub(super) const MODELS: FieldShape =
    read("model_count", COUNT, "Models that it offers, without hidden ones.").with(Access::ShownOnce);

pub(super) async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    if !context.query.flag(USE.name) {
        return list_rows::<Groups>(context).await;
    }
    let rows = context.with_query_timeout(context.state.store.listing.page(&row_filter::<Groups>(&context)?)).await?;
    let rows = rows.into_iter().map(|row| Ok((row.read()?, row))).collect::<Result<Vec<(GroupSpec, StoredRow)>, ApiError>>()?;
    let users = async {
        let _permit = context.acquire_heavy_permit().await?;
        context.with_query_timeout(context.state.store.listing.group_users()).await
    };
    let users = context.state.catalog_lists.group_users.get(context.revision().await?, users).await?;
    let catalog = context.state.gateway.catalog().await?;
    let show = |(spec, row): &(GroupSpec, StoredRow)| {
        let mut shown = object::<Groups>(row, spec);
        add(&mut shown, users.get(&spec.name).copied().unwrap_or_default(), models(&catalog, &spec.name));
        Value::Object(shown)
    };
    Ok(rows::page(rows, context.limit(), |(_, row)| row.id.clone(), show))
}

fn add(shown: &mut Map<String, Value>, users: GroupUsers, models: usize) {
    let GroupUsers { members, keys, default_keys } = users;
    for (field, count) in [(MEMBERS, members), (KEYS, keys), (DEFAULT_KEYS, default_keys)] {
        shown.insert(field.name.to_owned(), count.into());
    }
    shown.insert(MODELS.name.to_owned(), models.into());
}

/// Models that a group offers; empty for a group that another node created within the last second.
fn models(catalog: &Catalog, group: &str) -> usize {
    let group = catalog.group_by_name(group);
    group.map_or(0, |group| visible_offers(catalog, Audience::of_groups(slice::from_ref(group))).len())
}
