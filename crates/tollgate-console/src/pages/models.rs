//! The model square for people: what `/models.json` says, as cards or a table, and a page for each model.

mod document;
mod filter;
mod view;

use std::sync::Arc;

use askama::Template;

use super::{
    home::model_url,
    layout::{Layout, Script},
    locale::Locale,
    reply::{PageFailure, PageReply},
    request::PageRequest,
    route::{PageRoute, SeenBy, page},
};
use crate::{api_error::ApiError, square};
pub(super) use document::{ModelOffer, SquareDocument, SquareEntry};
use filter::{Facet, SquareFilter};
pub(super) use view::{Availability, StateText, availability, path_of_name, state};
use view::{ModelCard, ModelFacts, OfferRow, ParameterRow};

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
    groups: Vec<GroupChoice>,
    sorts: Vec<(&'static str, &'static str, bool)>,
    facets: Vec<Facet>,
    cards: Vec<ModelCard>,
    count: String,
    is_cut: bool,
    is_empty: bool,
}

/// The same without what stays when a filter changes.
#[derive(Debug, Template)]
#[template(path = "parts/models.html")]
struct ModelsPart {
    layout: Layout,
    t: Locale,
    filter: SquareFilter,
    facets: Vec<Facet>,
    cards: Vec<ModelCard>,
    count: String,
    is_cut: bool,
    is_empty: bool,
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
    card: ModelCard,
    facts: ModelFacts,
    offers: Vec<OfferRow>,
    day: Availability,
    week: Availability,
    parameters: Vec<ParameterRow>,
    endpoints: Vec<String>,
    curl: String,
}

/// What the reader may see; of one model or group if asked for.
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

async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, mut filter) = (request.t(), SquareFilter::of(&request.query));
    let document = document_for(&request, None, None).await?;
    let group = document.groups.iter().find(|group| group.name == filter.group).map(|group| group.name.clone());
    filter.group = group.clone().unwrap_or_default();
    let all: Vec<&SquareEntry> =
        document.data.iter().filter(|model| group.as_deref().is_none_or(|group| model.offer(Some(group)).is_some())).collect();
    let facets = filter.facets(t, &all, group.as_deref());
    let found = filter.select(&all, group.as_deref());
    let count = t.say_with("models.count", &[("shown", &found.len().to_string()), ("all", &all.len().to_string())]);
    let (is_cut, is_empty) = (found.len() > MAX_SHOWN, found.is_empty());
    let cards: Vec<ModelCard> =
        found.into_iter().take(MAX_SHOWN).filter_map(|model| ModelCard::of(t, model, group.as_deref())).collect();
    let layout = request.layout(t.say("nav.models")).with(Script::Htmx);
    if request.wants_part() {
        let part = ModelsPart { layout, t, filter, facets, cards, count, is_cut, is_empty };
        return PageReply::ok(&part);
    }
    let choice = |group: &document::SquareGroup| GroupChoice {
        label: t.say_with("models.group", &[("name", &group.name), ("multiplier", &group.multiplier)]),
        is_chosen: group.name == filter.group,
        name: group.name.clone(),
    };
    let groups = document.groups.iter().map(choice).collect();
    let sorts = filter.sorts(t);
    let template = ModelsPage { layout, t, filter, groups, sorts, facets, cards, count, is_cut, is_empty };
    PageReply::ok(&template)
}

async fn detail(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, name) = (request.t(), request.path_param("name"));
    let document = document_for(&request, Some(name), None).await?;
    let model = document.data.first().ok_or_else(|| ApiError::not_found("model"))?;
    let asked = Some(request.query.value("group")).filter(|group| model.offer(Some(group)).is_some());
    let offer = model.offer(asked).ok_or_else(|| ApiError::not_found("model"))?;
    let card = ModelCard::of(t, model, asked).ok_or_else(|| ApiError::not_found("model"))?;
    let template = ModelPage {
        layout: request.layout(model.id.clone()),
        t,
        name: model.id.clone(),
        card,
        facts: ModelFacts::of(t, model),
        offers: model.groups.iter().map(|row| OfferRow::of(t, row, row.group == offer.group)).collect(),
        day: availability(t, &offer.day),
        week: availability(t, &offer.week),
        parameters: view::parameters(t, &document, offer),
        endpoints: offer.protocols.iter().flat_map(|protocol| protocol.endpoints.clone()).collect(),
        curl: curl(&model_url(&request), &model.id, offer),
    };
    PageReply::ok(&template)
}

/// A request that works as it is, with the reader's key.
fn curl(base: &str, model: &str, offer: &ModelOffer) -> String {
    let body = if offer.kind == "embedding" {
        serde_json::json!({"model": model, "input": "Hello"})
    } else {
        serde_json::json!({"model": model, "messages": [{"role": "user", "content": "Hello"}]})
    };
    let path = if offer.kind == "embedding" { "/v1/embeddings" } else { "/v1/chat/completions" };
    // A quote ends the shell's text: it is written outside of it.
    let body = body.to_string().replace('\'', "'\\''");
    format!(
        "curl {base}{path} \\\n  -H \"Authorization: Bearer $TOLLGATE_KEY\" \\\n  -H \"Content-Type: application/json\" \\\n  -d '{body}'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_quotes_stay_within_the_shells_text() {
        let offer: ModelOffer = serde_json::from_value(document::example_offer()).unwrap();
        let line = curl("http://gate:8080", "a'; rm -rf / #", &offer);
        assert!(line.contains(r#""model":"a'\''; rm -rf / #""#), "{line}");
    }
}
