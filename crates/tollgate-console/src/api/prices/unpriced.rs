//! Models that are served without a sale price, with their traffic, and the groups in which they are refused.

use std::collections::HashMap;

use serde_json::{Value, json};
use tollgate_core::{Catalog, SimulatedCaller, SimulatedRequest, Timestamp, Tokens, simulate};
use tollgate_protocol::{Protocol, RequestExtras};
use tollgate_store::{
    AdminScope, Grouping, SummaryBy, SummaryRow, UsageFilter,
    fields::{Kind, Object},
};

use crate::{
    api::{
        request_context::RequestContext,
        route::{Method, Needs, Resource, ResponseSchema, Route, handler},
        schema::{COUNT, MODEL_NAME, NAME, read},
    },
    api_error::ApiError,
    response::ApiResponse,
    time::{DAY_MS, begin_of_sums},
};

/// Names and lengths of the periods, in days.
const PERIODS: [(&str, i64); 3] = [("last_day", 1), ("last_7_days", 7), ("last_30_days", 30)];

static TRAFFIC: Object = Object::of(
    "UnpricedTraffic",
    &[
        read("requests", COUNT, "Requests, refused ones included."),
        read("completed", COUNT, "Completed requests."),
        read("tokens_input", COUNT, "Input tokens."),
        read("tokens_output", COUNT, "Output tokens."),
    ],
);
const NAMES: Kind = Kind::List { of: &NAME, max: 100_000 };
static UNPRICED: Object = Object::of(
    "UnpricedModel",
    &[
        read("model", MODEL_NAME, "Model name used by callers."),
        read("channels", NAMES, "Channels that serve it."),
        read("last_day", Kind::Object(&TRAFFIC), "The last 24 hours."),
        read("last_7_days", Kind::Object(&TRAFFIC), "The last 7 days."),
        read("last_30_days", Kind::Object(&TRAFFIC), "The last 30 days."),
        read("served_in", NAMES, "Groups that serve it without a price."),
        read(
            "refused_in",
            NAMES,
            "Groups in which every key is refused (E42), because money is limited or a price limit asks for a price. In the others it \
             is refused to keys and members with a blocking budget, and to prepaid members.",
        ),
    ],
);

const RESOURCE: Resource = Resource { tag: "prices", needs: Needs::Scope(AdminScope::Operator) };

pub(in crate::api) static ROUTES: &[Route] = &[RESOURCE
    .route(
        Method::Get,
        "/admin/v1/prices/unpriced",
        "list_unpriced_models",
        "Models that are served without a price, with their traffic; most requests of the last 30 days first, on one page.",
        handler!(list),
    )
    .returns(ResponseSchema::Page(&UNPRICED))];

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let catalog = context.with_query_timeout(context.state.store.catalog.load()).await?;
    let now = context.now();
    let is_priced = |model: &str| {
        let schedule = catalog.models.get(model).and_then(|model| model.spec.price.as_ref());
        schedule.is_some_and(|schedule| schedule.at(now).is_some())
    };
    let models: Vec<&String> = catalog.mappings_by_model.keys().filter(|model| !is_priced(model)).collect();
    if models.is_empty() {
        return Ok(ApiResponse::ok(json!({"items": [], "next": null})));
    }
    let _permit = context.acquire_heavy_permit().await?;
    let mut traffic = Vec::new();
    for (_, days) in PERIODS {
        let filter = UsageFilter { since: Some(begin_of_sums(now.plus_ms(-days * DAY_MS))), ..UsageFilter::default() };
        let sums = context
            .with_query_timeout(context.state.store.usage.summary(&filter, Grouping::from(SummaryBy::Model).without_times()))
            .await?;
        traffic.push(sums.into_iter().map(|row| (row.of.clone(), row)).collect::<HashMap<String, SummaryRow>>());
    }
    let requests = |model: &str| traffic.last().and_then(|month| month.get(model)).map_or(0, |row| row.requests);
    let mut sorted = models;
    sorted.sort_by(|a, b| (requests(b), *a).cmp(&(requests(a), *b)));
    let items: Vec<Value> = sorted
        .into_iter()
        .map(|model| {
            let (served_in, refused_in) = groups(&catalog, model, now);
            let mut item =
                json!({"model": model, "channels": channels(&catalog, model), "served_in": served_in, "refused_in": refused_in});
            for ((name, _), sums) in PERIODS.iter().zip(&traffic) {
                item[*name] = show(sums.get(model));
            }
            item
        })
        .collect();
    Ok(ApiResponse::ok(json!({"items": items, "next": null})))
}

fn show(row: Option<&SummaryRow>) -> Value {
    let of = |figure: fn(&SummaryRow) -> u64| row.map_or(0, figure);
    json!({
        "requests": of(|row| row.requests), "completed": of(|row| row.completed), "tokens_input": of(|row| row.tokens_input),
        "tokens_output": of(|row| row.tokens_output),
    })
}

fn channels<'a>(catalog: &'a Catalog, model: &str) -> Vec<&'a str> {
    let mappings = catalog.mappings_by_model.get(model).into_iter().flatten();
    mappings.filter_map(|at| catalog.channel_at(at.channel)).map(|channel| channel.spec.name.as_str()).collect()
}

/// The groups that serve a model to keys without limits of their own, and those that refuse it because it has no price.
fn groups<'a>(catalog: &'a Catalog, model: &str, now: Timestamp) -> (Vec<&'a str>, Vec<&'a str>) {
    let (mut served, mut refused) = (Vec::new(), Vec::new());
    for group in catalog.groups.values() {
        let request = SimulatedRequest {
            caller: SimulatedCaller::Group(std::sync::Arc::clone(group)),
            model: model.to_owned(),
            protocol: Protocol::OpenAi,
            tokens: Tokens { input: 1_000, output: 100, ..Tokens::default() },
            extras: RequestExtras::default(),
            limit: None,
        };
        // A group that does not offer the model is in neither list.
        if let Ok(found) = simulate(catalog, &request, now) {
            match found.refused {
                None => served.push(group.name.as_str()),
                Some(cause) if cause.is_price() => refused.push(group.name.as_str()),
                Some(_) => {}
            }
        }
    }
    (served, refused)
}
