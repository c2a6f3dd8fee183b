//! Prices: the sale price of each model next to the cost of each channel that serves it, with the margin, and the history of both.

mod by_group;
mod history;
mod import;
mod simulate;
mod unpriced;

use std::collections::HashMap;

use serde_json::{Value, json};
use tollgate_core::{
    Catalog, Channel, Group, ModelMapping, ModelSpec, Multiplier, Price, PriceSchedule, Timestamp, below_cost, cost_of,
    output_price_warning, price_margin,
};
use tollgate_store::{
    AdminScope, Change, ImportedPrice, RowKind,
    fields::{Access, FieldValue as _, Kind, Object, WriteMode, price},
};

use super::{
    check,
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{MODEL_NAME, NAME, TEXT, both, read},
};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value};

pub(super) use by_group::ROUTES as BY_GROUP_ROUTES;
pub(super) use history::ROUTES as HISTORY_ROUTES;
pub(super) use import::{
    BODY_BYTES as IMPORT_BODY_BYTES, FILE as LIST_FILE, FORMAT as LIST_FORMAT, MODELS, OVERWRITE, ROUTES as IMPORT_ROUTES, SOURCE,
    TARGET,
};
pub(super) use simulate::{LINE_FIELDS, ROUTES as SIMULATION_ROUTES, show_lines};
pub(super) use unpriced::ROUTES as UNPRICED_ROUTES;

static COST: Object = Object::of(
    "ChannelCost",
    &[
        read("channel", NAME, "Channel name."),
        read("upstream", MODEL_NAME, "Model name of the provider."),
        price("cost", "Cost price, before the account's multiplier; null: unknown.").with(Access::ReadOnly),
        read("source", TEXT, "What the cost was imported from; null: set by hand.").or_null(),
        read("imported_at", Kind::Time, "When it was imported.").or_null(),
        read("cost_multiplier", Kind::Factor { max: i64::MAX }, "Highest factor among the accounts that are on."),
        read("margin_input", TEXT, "(sale - cost) / sale of an input token after both factors; null where one is unknown or 0.")
            .or_null(),
        read("margin_output", TEXT, "The same of an output token.").or_null(),
        read("below_cost", TEXT, "The first kind of token that sells below its cost, with both prices.").or_null(),
    ],
);
static PRICES: Object = Object::of(
    "ModelPrices",
    &[
        read("model", MODEL_NAME, "Model name used by callers."),
        price("price", "Sale price, before the group's multiplier; null: not priced."),
        read("source", TEXT, "What the sale price was imported from; null: set by hand.").or_null(),
        read("imported_at", Kind::Time, "When it was imported.").or_null(),
        read("warning", TEXT, "A probable mistake in the sale price, and what to do; null: none.").or_null(),
        read(
            "sale_multiplier",
            Kind::Factor { max: i64::MAX },
            "Factor of the group on the price of this model; 1 without a group.",
        ),
        read("served_by", Kind::List { of: &Kind::Object(&COST), max: 100_000 }, "Channels that serve it."),
    ],
);

const RESOURCE: Resource = Resource { tag: "prices", needs: Needs::Scope(AdminScope::Operator) };

pub(super) static ROUTES: &[Route] = &[
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/prices",
            "list_prices",
            "Prices and margins of every model that has a row or is served, by name.",
            handler!(list),
        )
        .query(&[
            LIMIT,
            AFTER,
            both("priced", Kind::Flag, "true: only models with a price; false: only models without one."),
            both("group", NAME, "Only channels of this group, and margins after its multiplier."),
            both("model", MODEL_NAME, "Only this model."),
            both("search", MODEL_NAME, "Only models with this text in the name."),
            both("below_cost", Kind::Flag, "true: only models of which a kind of token sells below its cost on a channel."),
        ])
        .returns(ResponseSchema::Page(&PRICES)),
    RESOURCE
        .route(
            Method::Put,
            "/admin/v1/prices/{model}",
            "set_price",
            "Sets the sale price of a model by hand; creates its row if there is none.",
            handler!(set),
        )
        .takes(&PRICES, WriteMode::Update)
        .at_revision()
        .returns(ResponseSchema::Object(&PRICES)),
];

/// The catalog and the sources of its prices.
struct PriceTable<'a> {
    catalog: &'a Catalog,
    imported: HashMap<(&'a str, Option<&'a str>), &'a ImportedPrice>,
    group: Option<&'a Group>,
    now: Timestamp,
}

impl<'a> PriceTable<'a> {
    fn of(catalog: &'a Catalog, imported: &'a [ImportedPrice], group: Option<&'a Group>, now: Timestamp) -> Self {
        let imported = imported.iter().map(|it| ((it.model.as_str(), it.channel.as_deref()), it)).collect();
        Self { catalog, imported, group, now }
    }

    /// The names of models that have a row or are served.
    fn models(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> =
            self.catalog.models.keys().chain(self.catalog.mappings_by_model.keys()).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn schedule(&self, model: &str) -> Option<&'a PriceSchedule> {
        self.catalog.models.get(model).and_then(|model| model.spec.price.as_ref())
    }

    fn show(&self, model: &str) -> Value {
        let schedule = self.schedule(model);
        let multiplier = self.group.map_or(Multiplier::ONE, |group| group.sale_multiplier(model));
        let sale = schedule.and_then(|schedule| schedule.at(self.now)).map(|price| (price, multiplier));
        let mappings = self.catalog.mappings_by_model.get(model).into_iter().flatten();
        let served: Vec<Value> = mappings
            .filter_map(|at| {
                let channel = self.catalog.channel_at(at.channel)?;
                let mapping = channel.spec.serves.get(at.mapping as usize)?;
                let reaches = self.group.is_none_or(|group| group.channels.contains(&channel.id));
                reaches.then(|| self.show_cost(channel, (at.mapping as usize, mapping), sale))
            })
            .collect();
        let (source, imported_at) = self.source(model, None);
        let warning = self.catalog.models.get(model).and_then(|model| output_price_warning(&model.spec));
        json!({
            "model": model, "price": schedule.cloned().show(), "warning": warning, "source": source, "imported_at": imported_at,
            "sale_multiplier": multiplier.to_decimal(), "served_by": served,
        })
    }

    fn sells_below_cost(&self, model: &str) -> bool {
        self.first_below_cost(model).is_some()
    }

    /// The first kind of token that sells below its cost on a channel.
    fn first_below_cost(&self, model: &str) -> Option<String> {
        let shown = self.show(model);
        let mut served = shown["served_by"].as_array().into_iter().flatten();
        served.find_map(|channel| channel["below_cost"].as_str().map(str::to_owned))
    }

    fn show_cost(&self, channel: &Channel, (at, mapping): (usize, &ModelMapping), sale: Option<(&Price, Multiplier)>) -> Value {
        let accounts = channel.accounts.iter().filter(|account| account.spec.on).map(|account| account.spec.cost_multiplier);
        let multiplier = accounts.max().unwrap_or_default();
        let price = cost_of(channel, at, self.now);
        let cost = price.as_ref().map(|price| (&***price, multiplier));
        let margin = |of: fn(&Price) -> i64| {
            let ((sale, by_group), (cost, by_account)) = sale.zip(cost)?;
            price_margin((of(sale), by_group), (of(cost), by_account)).map(show_margin)
        };
        let below = sale.zip(cost).and_then(|(sale, cost)| below_cost(sale, cost, u64::MAX, true));
        let (source, imported_at) = self.source(&mapping.model, Some(&channel.spec.name));
        json!({
            "channel": channel.spec.name, "upstream": mapping.upstream, "cost": mapping.cost.show(), "source": source,
            "imported_at": imported_at, "cost_multiplier": multiplier.to_decimal(),
            "margin_input": margin(|price| price.rates(0).input), "margin_output": margin(|price| price.rates(0).output),
            "below_cost": below.map(|below| below.to_string()),
        })
    }

    /// Source and time of an imported price.
    fn source(&self, model: &str, channel: Option<&str>) -> (Option<&str>, Option<Value>) {
        let imported = self.imported.get(&(model, channel));
        (imported.map(|it| it.source.as_str()), imported.map(|it| time_value(it.at)))
    }
}

/// A share in millionths as a decimal with four digits, rounded down.
fn show_margin(millionths: i64) -> String {
    Multiplier(millionths.div_euclid(100).saturating_mul(100)).to_decimal()
}

/// The group that a query or body names, by name or id.
fn group_of<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a std::sync::Arc<Group>, ApiError> {
    let by_id = || catalog.groups.values().find(|group| group.id.to_string() == name);
    catalog.group_by_name(name).or_else(by_id).ok_or_else(|| ApiError::not_found(RowKind::Group))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let after = context.query.text("after").unwrap_or_default();
    let priced = context.query.0.get("priced").and_then(Value::as_bool);
    let catalog = context.with_query_timeout(context.state.store.catalog.load()).await?;
    let imported = context.with_query_timeout(context.state.store.listing.imported_prices()).await?;
    let group = context.query.text("group").map(|name| group_of(&catalog, name)).transpose()?;
    let table = PriceTable::of(&catalog, &imported, group.map(std::sync::Arc::as_ref), context.now());
    let mut models = table.models();
    models.retain(|name| *name > after && priced.is_none_or(|priced| table.schedule(name).is_some() == priced));
    if let Some(model) = context.query.text("model") {
        models.retain(|name| *name == model);
    }
    if let Some(search) = context.query.text("search").map(str::to_lowercase) {
        models.retain(|name| name.to_lowercase().contains(&search));
    }
    if context.query.flag("below_cost") {
        models.retain(|name| table.sells_below_cost(name));
    }
    models.truncate(context.limit() as usize + 1);
    Ok(rows::page(models, context.limit(), |name| (*name).to_owned(), |name| table.show(name)))
}

/// The prices of one model.
async fn one(context: &RequestContext, model: &str) -> Result<ApiResponse, ApiError> {
    let catalog = context.with_query_timeout(context.state.store.catalog.load()).await?;
    let imported = context.with_query_timeout(context.state.store.listing.imported_prices()).await?;
    let table = PriceTable::of(&catalog, &imported, None, context.now());
    if table.models().binary_search(&model).is_err() {
        return Err(ApiError::not_found(RowKind::Model));
    }
    Ok(ApiResponse::ok(table.show(model)))
}

/// The name of the model in the path, which may be an id.
async fn model_name(context: &RequestContext) -> Result<String, ApiError> {
    let text = context.path_param("model");
    if rows::is_id(RowKind::Model, text) {
        return Ok(rows::find(context, RowKind::Model, None, text).await?.name);
    }
    Ok(text.to_owned())
}

async fn set(context: RequestContext) -> Result<ApiResponse, ApiError> {
    if !context.body.has("price") {
        return Err(ApiError::invalid("missing_required_parameter", "price", "Missing required parameter: 'price'."));
    }
    let name = model_name(&context).await?;
    let mut spec = ModelSpec { name: name.clone(), ..ModelSpec::default() };
    check::write(&context.body.0, &mut spec)?;
    let change = Change::SetPrice { model: name.clone(), price: spec.price, source: None };
    match rows::edit(&context, RowKind::Model, None, &name, |_| Ok(vec![change.clone()])).await {
        Ok(_) => {}
        Err(problem) if problem.status == http::StatusCode::NOT_FOUND => {
            if context.if_match()?.is_some() {
                let message = format!("Model '{name}' has no row that could have this revision; omit If-Match to create one.");
                return Err(ApiError::conflict("revision_conflict", message));
            }
            let new = Change::ExpectNew { kind: RowKind::Model, parent: String::new(), name: name.clone() };
            context.apply(&[new, change]).await?;
        }
        Err(problem) => return Err(problem),
    }
    one(&context, &name).await
}
