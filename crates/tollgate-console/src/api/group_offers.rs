//! The models that a group would offer with these channels and patterns, before it is saved. Computed from the catalog as it would be
//! after saving, so that the result agrees with routing and lists.

use std::collections::HashSet;

use serde_json::{Value, json};
use tollgate_core::{Audience, MAX_MODEL_MULTIPLIERS, ScheduledPrice, VisibleModel, visible_model, visible_offers};
use tollgate_store::{
    AdminScope, Change, GroupSpec, KeyScope, RandomSource, RowKind,
    fields::{Access, FieldValue as _, Kind, Object, Row as _, WriteMode, price},
    preview_changes,
};

use super::{
    check,
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::{MODEL_NAME, NAME, both, needed, read},
};
use crate::{api_error::ApiError, response::ApiResponse};

const NAMES: Kind = Kind::List { of: &NAME, max: 1_000 };
const PATTERNS: Kind = Kind::List { of: &MODEL_NAME, max: 1_000 };

const FACTORS: Kind = Kind::FactorMap { max: MAX_MODEL_MULTIPLIERS };

static OFFERS: Object = Object::of(
    "GroupOffer",
    &[
        needed("channels", NAMES, "Names of channels. In the response, those of them that serve the model."),
        both("models", PATTERNS, "Names or globs of the models offered; default all.").with(Access::WriteOnly),
        both("sale_multiplier", Kind::Factor { max: i64::MAX }, "Factor on sale prices; default 1.").with(Access::WriteOnly),
        both("model_multipliers", FACTORS, "Factors of models instead, by name or glob; default none.").with(Access::WriteOnly),
        read("model", MODEL_NAME, "Model name used by callers."),
        read("listed", Kind::Flag, "Whether lists name it; hidden models are usable by name."),
        price("price", "Price in force after the factor; null: not priced.").with(Access::ReadOnly),
    ],
);

const RESOURCE: Resource = Resource { tag: "groups", needs: Needs::Scope(AdminScope::Operator) };

pub(super) static ROUTES: &[Route] = &[RESOURCE
    .route(
        Method::Post,
        "/admin/v1/group-offers",
        "preview_group_offers",
        "The models that a group with these channels and patterns would offer, by name, on one page. Nothing is saved.",
        handler!(run),
    )
    .takes(&OFFERS, WriteMode::Create)
    .returns(ResponseSchema::Page(&OFFERS))];

/// No group has this name, because names cannot look like ids.
const DRAFT: &str = "group offers preview";

async fn run(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let mut spec = GroupSpec::blank();
    check::write(&context.body.0, &mut spec)?;
    DRAFT.clone_into(&mut spec.name);
    // Reading and copying the whole catalog takes a while if it is large.
    let _permit = context.acquire_heavy_permit().await?;
    let scope = KeyScope::Limited { names: HashSet::new(), max: 0 };
    let current = context.with_query_timeout(context.state.store.catalog.live_rows(&scope)).await?;
    let changes = [Change::PutGroup(Box::new(spec))];
    let preview = preview_changes(&current, &changes, RandomSource::system(), context.now()).await;
    let preview = preview.map_err(|error| ApiError::store(&error, context.state.catalog_file.as_deref()))?;
    let catalog = preview.after;
    let group = std::sync::Arc::clone(catalog.group_by_name(DRAFT).ok_or_else(|| ApiError::not_found(RowKind::Group))?);
    let groups = [group];
    let audience = Audience::of_groups(&groups);
    let listed: HashSet<String> = visible_offers(&catalog, audience).into_iter().map(|it| it.model.spec.name.clone()).collect();
    let mut names: Vec<&String> = catalog.mappings_by_model.keys().collect();
    names.sort_unstable();
    let offers = names.into_iter().filter_map(|name| visible_model(&catalog, audience, name));
    let show = |offer: VisibleModel| {
        let channels: Vec<&str> = offer.channels(&catalog).map(|channel| channel.spec.name.as_str()).collect();
        let schedule = offer.model.spec.price.as_ref();
        let factor = groups[0].sale_multiplier(&offer.model.spec.name);
        let price = schedule.and_then(|schedule| schedule.at(context.now())).map(|price| price.times(factor));
        json!({
            "model": offer.model.spec.name, "channels": channels, "listed": listed.contains(&offer.model.spec.name),
            "price": price.map_or(Value::Null, |price| ScheduledPrice { valid_from: None, price: price.into() }.show()),
        })
    };
    let items: Vec<Value> = offers.map(show).collect();
    Ok(ApiResponse::ok(json!({"items": items, "next": null})))
}
