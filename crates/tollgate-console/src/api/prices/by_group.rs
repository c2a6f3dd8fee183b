//! The price of each model in each group, side by side: the sale price after the group's factor.

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_core::{Audience, Catalog, Group, Timestamp, visible_model};
use tollgate_store::{
    AdminScope,
    fields::{Access, FieldValue as _, Kind, Object, price},
};

use super::PriceTable;
use crate::{
    api::{
        request_context::RequestContext,
        route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
        rows,
        schema::{MODEL_NAME, NAME, TEXT, both, read},
    },
    api_error::ApiError,
    response::ApiResponse,
    square::show_price,
};

/// Maximum number of groups in one answer.
const MAX_GROUPS: usize = 8;

static IN_GROUP: Object = Object::of(
    "PriceInGroup",
    &[
        read("group", NAME, "Group name."),
        read("multiplier", Kind::Factor { max: i64::MAX }, "Factor on the price of this model."),
        read("multiplier_of", MODEL_NAME, "Entry of `model_multipliers` that has the factor; null: it is `sale_multiplier`.")
            .or_null(),
        read("offered", Kind::Flag, "Whether keys of the group can use the model."),
        price("price", "Price in force after the group's factor; null: not priced.").with(Access::ReadOnly),
        read("below_cost", TEXT, "The first kind of token that sells below its cost on a channel of the group, with both prices.")
            .or_null(),
    ],
);
static ROW: Object = Object::of(
    "GroupPrices",
    &[
        read("model", MODEL_NAME, "Model name used by callers."),
        price("price", "Price in force before any factor; null: not priced.").with(Access::ReadOnly),
        read("groups", Kind::List { of: &Kind::Object(&IN_GROUP), max: MAX_GROUPS }, "Groups by name, up to eight."),
    ],
);

const RESOURCE: Resource = Resource { tag: "prices", needs: Needs::Scope(AdminScope::Operator) };

pub(in crate::api) static ROUTES: &[Route] = &[RESOURCE
    .route(
        Method::Get,
        "/admin/v1/group-prices",
        "list_group_prices",
        "Prices of every model that has a row or is served, by name, in each group.",
        handler!(list),
    )
    .query(&[
        LIMIT,
        AFTER,
        both("search", MODEL_NAME, "Only models with this text in the name."),
        both("groups_from", NAME, "Groups from this name on; default: from the first one."),
    ])
    .returns(ResponseSchema::Page(&ROW))];

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let after = context.query.text("after").unwrap_or_default();
    let search = context.query.text("search").unwrap_or_default().to_lowercase();
    let catalog = context.with_query_timeout(context.state.store.catalog.load()).await?;
    let groups = groups_from(&catalog, context.query.text("groups_from").unwrap_or_default());
    let mut models = PriceTable::of(&catalog, &[], None, context.now()).models();
    models.retain(|name| *name > after && name.to_lowercase().contains(&search));
    models.truncate(context.limit() as usize + 1);
    let show = |name: &&str| show(&catalog, &groups, name, context.now());
    Ok(rows::page(models, context.limit(), |name| (*name).to_owned(), show))
}

/// Groups by name.
fn groups_from<'a>(catalog: &'a Catalog, first: &str) -> Vec<&'a Arc<Group>> {
    let mut groups: Vec<&Arc<Group>> = catalog.groups.values().filter(|group| group.name.as_str() >= first).collect();
    groups.sort_by(|one, other| one.name.cmp(&other.name));
    groups.truncate(MAX_GROUPS);
    groups
}

fn show(catalog: &Catalog, groups: &[&Arc<Group>], model: &str, now: Timestamp) -> Value {
    let price = PriceTable::of(catalog, &[], None, now).schedule(model).and_then(|schedule| schedule.at(now));
    let in_group = |group: &&Arc<Group>| {
        let is_offered = visible_model(catalog, Audience::of_groups(std::slice::from_ref(*group)), model).is_some();
        let below = PriceTable::of(catalog, &[], Some(group), now).first_below_cost(model);
        let factor = group.sale_multiplier(model);
        json!({
            "group": group.name, "multiplier": factor.show(), "multiplier_of": group.multipliers.own(model).map(|(pattern, _)| pattern),
            "offered": is_offered, "price": show_price(price.map(|price| price.times(factor)), None),
            "below_cost": below.filter(|_| is_offered),
        })
    };
    json!({
        "model": model, "price": show_price(price.cloned(), None), "groups": groups.iter().map(in_group).collect::<Vec<_>>(),
    })
}
