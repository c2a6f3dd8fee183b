//! The model square for people: the content of `/models.json` as cards or a table, and a page for each model.

mod capability;
mod currency;
mod document;
mod filter;
mod outage;
mod unit;
mod view;

use std::sync::Arc;

use askama::Template;

use super::{
    clients::{self, Access, ProtocolLines},
    home::model_url,
    layout::{Layout, Script},
    locale::Locale,
    reply::{PageFailure, PageReply},
    request::PageRequest,
    route::{PageRoute, SeenBy, page},
};
use crate::{api_error::ApiError, square};
use capability::Capabilities;
#[cfg(test)]
pub(super) use document::example_offer;
pub(super) use document::{ModelOffer, SquareDocument, SquareEntry};
use filter::{Facet, SquareFilter};
use outage::OutagePart;
use unit::TokenUnit;
pub(super) use view::{Availability, CELL, ModelCard, StateText, StripCell, availability, path_of_name, state};
use view::{ModelFacts, OfferRow, ParameterRow};

pub(super) static ROUTES: &[PageRoute] =
    &[PageRoute::get("/models", SeenBy::Anyone, page!(list)), PageRoute::get("/models/{*name}", SeenBy::Anyone, page!(detail))];

/// Models on a page. More are found with the filters.
const MAX_SHOWN: usize = 300;

#[derive(Debug, Template)]
#[template(path = "models.html")]
struct ModelsPage {
    layout: Layout,
    t: Locale,
    filter: SquareFilter,
    units: Vec<UnitChoice>,
    /// The display currency and USD; empty if they are the same.
    currencies: Vec<UnitChoice>,
    groups: Vec<GroupChoice>,
    sorts: Vec<(&'static str, &'static str, bool)>,
    facets: Vec<Facet>,
    cards: Vec<ModelCard>,
    count: String,
    /// What the chosen group is for.
    about_group: Option<String>,
    is_cut: bool,
    is_empty: bool,
}

/// The part of the page that changes with the filter.
#[derive(Debug, Template)]
#[template(path = "parts/models.html")]
struct ModelsPart {
    layout: Layout,
    t: Locale,
    filter: SquareFilter,
    units: Vec<UnitChoice>,
    /// The display currency and USD; empty if they are the same.
    currencies: Vec<UnitChoice>,
    facets: Vec<Facet>,
    cards: Vec<ModelCard>,
    count: String,
    about_group: Option<String>,
    is_cut: bool,
    is_empty: bool,
}

#[derive(Debug)]
struct UnitChoice {
    label: String,
    link: String,
    is_chosen: bool,
}

impl UnitChoice {
    fn all(t: Locale, chosen: TokenUnit, link: impl Fn(TokenUnit) -> String) -> Vec<Self> {
        TokenUnit::ALL.map(|unit| Self { label: unit.label(t), link: link(unit), is_chosen: unit == chosen }).into()
    }
}

#[derive(Debug)]
struct GroupChoice {
    name: String,
    label: String,
    is_chosen: bool,
}

#[derive(Debug, Template)]
#[template(path = "model.html")]
struct ModelPage {
    layout: Layout,
    t: Locale,
    name: String,
    units: Vec<UnitChoice>,
    /// The display currency and USD; empty if they are the same.
    currencies: Vec<UnitChoice>,
    card: ModelCard,
    facts: ModelFacts,
    offers: Vec<OfferRow>,
    day: Availability,
    week: Availability,
    month: Availability,
    /// Why requests get 503 now.
    outages: Vec<OutagePart>,
    /// Group whose callers have these parameters.
    group: String,
    parameters: Vec<ParameterRow>,
    by_protocol: Vec<ProtocolLines>,
    /// Of a model that embeds.
    embedding: Option<String>,
}

/// Cards of the first `max` models, as callers of a group see them.
pub(super) fn cards(request: &PageRequest, document: &SquareDocument, group: &str, max: usize) -> Vec<ModelCard> {
    let of = (request.t(), TokenUnit::of(&request.query, &request.headers));
    let known = Capabilities::of(document);
    document.data.iter().take(max).filter_map(|model| ModelCard::of(of, model, Some(group), &known)).collect()
}

/// The document that the reader may see, optionally of one model or group.
pub(super) async fn document_for(
    request: &PageRequest,
    model: Option<&str>,
    group: Option<&str>,
) -> Result<SquareDocument, ApiError> {
    let body = square::document_for(&request.state, (&request.meta, &request.headers), model, group).await?;
    serde_json::from_slice(&body).map_err(|fault| {
        tracing::error!(%fault, "the model square cannot be read");
        ApiError::internal()
    })
}

/// A group with its factor on prices, which some models do not have.
pub(super) fn group_label(t: Locale, name: &str, multiplier: &str, varies: bool) -> String {
    let values = [("name", name), ("multiplier", multiplier)];
    if varies { t.say_with("models.group_varies", &values) } else { t.say_with("models.group", &values) }
}

async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, unit) = (currency::locale(&request), TokenUnit::of(&request.query, &request.headers));
    let mut filter = SquareFilter::of(&request.query, unit);
    let document = document_for(&request, None, None).await?;
    let known = Capabilities::of(&document);
    let chosen = document.groups.iter().find(|group| group.name == filter.group);
    let group = chosen.map(|group| group.name.clone());
    let about_group = chosen.and_then(|group| group.description.clone());
    filter.group = group.clone().unwrap_or_default();
    let all: Vec<&SquareEntry> =
        document.data.iter().filter(|model| group.as_deref().is_none_or(|group| model.offer(Some(group)).is_some())).collect();
    let facets = filter.facets(t, &all, group.as_deref(), &known);
    let found = filter.select(&all, group.as_deref(), &known);
    let count = t.say_with("models.count", &[("shown", &found.len().to_string()), ("all", &all.len().to_string())]);
    let (is_cut, is_empty) = (found.len() > MAX_SHOWN, found.is_empty());
    let cards: Vec<ModelCard> =
        found.into_iter().take(MAX_SHOWN).filter_map(|model| ModelCard::of((t, unit), model, group.as_deref(), &known)).collect();
    let layout = request.layout(t.say("nav.models")).with(Script::Htmx).with(Script::Tables);
    let link = |unit| request.url(&format!("/models?{}", filter.query_of_unit(unit)));
    let units = UnitChoice::all(t, unit, link);
    let currencies =
        currency::choices(&request, t, |name, code| request.url(&format!("/models?{}&{name}={code}", filter.query_of_list())));
    if request.wants_part() {
        let part = ModelsPart { layout, t, filter, units, currencies, facets, cards, count, about_group, is_cut, is_empty };
        return PageReply::ok(&part);
    }
    let choice = |group: &document::SquareGroup| GroupChoice {
        label: group_label(t, &group.name, &group.multiplier, group.multiplier_varies),
        is_chosen: group.name == filter.group,
        name: group.name.clone(),
    };
    let groups = document.groups.iter().map(choice).collect();
    let sorts = filter.sorts(t);
    let template =
        ModelsPage { layout, t, filter, units, currencies, groups, sorts, facets, cards, count, about_group, is_cut, is_empty };
    let reply = PageReply::ok(&template)?;
    Ok(keeping(&request, reply, (t, unit)))
}

/// Adds cookies to the reply so that the browser keeps the choices of the address.
fn keeping(request: &PageRequest, reply: PageReply, (t, unit): (Locale, TokenUnit)) -> PageReply {
    let unit = request.query.has("unit").then(|| unit.keep());
    let kept = [unit, currency::keep(request, t)];
    kept.into_iter().flatten().fold(reply, |reply, cookie| reply.header("set-cookie", &cookie))
}

async fn detail(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, name) = (currency::locale(&request), request.path_param("name"));
    let document = document_for(&request, Some(name), None).await?;
    let model = document.data.first().ok_or_else(|| ApiError::not_found("model"))?;
    let asked = Some(request.query.value("group")).filter(|group| model.offer(Some(group)).is_some());
    let offer = model.offer(asked).ok_or_else(|| ApiError::not_found("model"))?;
    let unit = TokenUnit::of(&request.query, &request.headers);
    let card = ModelCard::of((t, unit), model, asked, &Capabilities::of(&document)).ok_or_else(|| ApiError::not_found("model"))?;
    let (address, embeds) = (model_url(&request), offer.kind == "embedding");
    let access = Access { address: &address, key: "$TOLLGATE_KEY", model: &model.id };
    let template = ModelPage {
        layout: request.layout(model.id.clone()).below("/models", t.say("nav.models")),
        t,
        name: model.id.clone(),
        units: UnitChoice::all(t, unit, |unit| request.with_value("unit", unit.word())),
        currencies: currency::choices(&request, t, |name, code| request.with_value(name, code)),
        card,
        facts: ModelFacts::of(t, model),
        offers: model.groups.iter().map(|row| OfferRow::of((t, unit), &document, row, row.group == offer.group)).collect(),
        day: availability(t, &offer.day),
        week: availability(t, &offer.week),
        month: availability(t, &offer.month),
        outages: outage::load(&request, &model.id, offer).await?,
        group: offer.group.clone(),
        parameters: view::parameters(t, &document, offer),
        by_protocol: if embeds {
            Vec::new()
        } else {
            clients::by_protocol(t, access, |protocol| offer.has_protocol(protocol.as_str()))
        },
        embedding: embeds.then(|| clients::embedding_curl(&address, &model.id)),
    };
    let reply = PageReply::ok(&template)?;
    Ok(keeping(&request, reply, (t, unit)))
}
