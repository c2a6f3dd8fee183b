//! Sale price of each model next to the cost of each channel that serves it; also lists models without a price.

use serde_json::{Value, json};
use tollgate_core::ModelSpec;
use tollgate_store::{
    AdminScope, Change, RowKind,
    fields::{Access, FieldValue as _, Kind, Object, WriteMode, price},
};

use super::{
    check,
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{MODEL_NAME, NAME, both, read},
};
use crate::{api_error::ApiError, response::ApiResponse};

static COST: Object = Object::of(
    "ChannelCost",
    &[
        read("channel", NAME, "Channel name."),
        read("upstream", MODEL_NAME, "Model name of the provider."),
        price("cost", "Cost price, before the account's multiplier; null: unknown.").with(Access::ReadOnly),
    ],
);
static PRICES: Object = Object::of(
    "ModelPrices",
    &[
        read("model", MODEL_NAME, "Model name used by callers."),
        price("price", "Sale price, before the group's multiplier; null: not priced."),
        read("served_by", Kind::List { of: &Kind::Object(&COST), max: 100_000 }, "Channels that serve it."),
    ],
);

const RESOURCE: Resource = Resource { tag: "prices", needs: AdminScope::Operator };

pub(super) static ROUTES: &[Route] = &[
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/prices",
            "list_prices",
            "Prices of every model that has a row or is served, by name.",
            handler!(list),
        )
        .query(&[LIMIT, AFTER, both("priced", Kind::Flag, "true: only models with a price; false: only models without one.")])
        .returns(ResponseSchema::Page(&PRICES)),
    RESOURCE
        .route(
            Method::Put,
            "/admin/v1/prices/{model}",
            "set_price",
            "Sets the sale price of a model; creates its row if there is none.",
            handler!(set),
        )
        .takes(&PRICES, WriteMode::Update)
        .returns(ResponseSchema::Object(&PRICES)),
];

/// Every model with its prices, by name.
async fn all(context: &RequestContext) -> Result<Vec<(String, Value)>, ApiError> {
    let catalog = context.with_query_timeout(context.state.store.catalog.load()).await?;
    let mut names: Vec<&String> = catalog.models.keys().chain(catalog.mappings_by_model.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let shown = names.into_iter().map(|name| {
        let price = catalog.models.get(name).and_then(|model| model.spec.price.clone());
        let served: Vec<Value> = catalog
            .channels
            .values()
            .flat_map(|channel| {
                channel.spec.serves.iter().filter(|serves| serves.model == *name).map(move |serves| (channel, serves))
            })
            .map(|(channel, serves)| json!({"channel": channel.spec.name, "upstream": serves.upstream, "cost": serves.cost.show()}))
            .collect();
        (name.clone(), json!({"model": name, "price": price.show(), "served_by": served}))
    });
    Ok(shown.collect())
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let after = context.query.text("after").unwrap_or_default();
    let priced = context.query.0.get("priced").and_then(Value::as_bool);
    let mut models = all(&context).await?;
    models.retain(|(name, shown)| name.as_str() > after && priced.is_none_or(|priced| shown["price"].is_null() != priced));
    models.truncate(context.limit() as usize + 1);
    Ok(rows::page(models, context.limit(), |(name, _)| name.clone(), |(_, shown)| shown.clone()))
}

async fn set(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let name = context.path_param("model").to_owned();
    if !context.body.has("price") {
        return Err(ApiError::invalid("missing_required_parameter", "price", "Missing required parameter: 'price'."));
    }
    let edited = rows::edit(&context, RowKind::Model, None, &name, |row| {
        let mut spec: ModelSpec = row.read()?;
        check::write(&context.body.0, &mut spec)?;
        Ok(vec![Change::PutModel(Box::new(spec))])
    });
    match edited.await {
        Ok(_) => {}
        Err(problem) if problem.status == http::StatusCode::NOT_FOUND && !rows::is_id(RowKind::Model, &name) => {
            if context.if_match()?.is_some() {
                let message = format!("Model '{name}' has no row that could have this revision; omit If-Match to create one.");
                return Err(ApiError::conflict("revision_conflict", message));
            }
            let mut spec = ModelSpec { name: name.clone(), ..ModelSpec::default() };
            check::write(&context.body.0, &mut spec)?;
            let new = Change::ExpectNew { kind: RowKind::Model, parent: String::new(), name: name.clone() };
            context.apply(&[new, Change::PutModel(Box::new(spec))]).await?;
        }
        Err(problem) => return Err(problem),
    }
    let name =
        if rows::is_id(RowKind::Model, &name) { rows::find(&context, RowKind::Model, None, &name).await?.name } else { name };
    let found = all(&context).await?.into_iter().find(|(model, _)| *model == name);
    found.map(|(_, shown)| ApiResponse::ok(shown)).ok_or_else(|| ApiError::not_found(RowKind::Model))
}
