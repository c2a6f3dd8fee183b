//! Pricing: what models cost callers and gateway, with the margin; models without a price; import of lists; the simulator; the history.

mod by_group;
mod edit;
mod export;
mod facts;
mod history;
pub(super) mod import;
pub(super) mod import_text;
mod order;
mod simulate;
mod unpriced;
mod view;

use std::sync::Arc;

use askama::Template;
use serde_json::Value;
use tollgate_store::AdminScope;

pub(super) use self::view::model_query;
use self::view::{PriceRow, PricesObject};
use super::{
    control::{Pager, Tab},
    form::FormData,
    layout::{Layout, Script},
    list_order::{ListOrder, page_of},
    locale::Locale,
    operations,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get},
    route::{PageRoute, SeenBy, page},
};
use crate::api_error::ApiError;

const OPERATOR: SeenBy = SeenBy::Role(AdminScope::Operator);

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/pricing", OPERATOR, page!(list)),
    PageRoute::get("/pricing.csv", OPERATOR, page!(export::csv)),
    PageRoute::get("/pricing/groups", OPERATOR, page!(by_group::show)),
    PageRoute::post("/pricing/groups", OPERATOR, page!(by_group::save)),
    PageRoute::get("/pricing/model", OPERATOR, page!(edit::show)),
    PageRoute::post("/pricing/model", OPERATOR, page!(edit::save)),
    PageRoute::get("/pricing/model/facts", OPERATOR, page!(facts::show)),
    PageRoute::post("/pricing/model/facts", OPERATOR, page!(facts::save)),
    PageRoute::post("/pricing/model/remove", OPERATOR, page!(edit::remove)),
    PageRoute::get("/pricing/unpriced", OPERATOR, page!(unpriced::show)),
    PageRoute::get("/pricing/import", OPERATOR, page!(import::show)),
    PageRoute::post("/pricing/import", OPERATOR, page!(import::compare)).takes_bytes(import::MAX_BYTES),
    PageRoute::post("/pricing/import/apply", OPERATOR, page!(import::apply)).takes_bytes(import::MAX_BYTES),
    PageRoute::get("/pricing/simulate", OPERATOR, page!(simulate::show)),
    PageRoute::get("/pricing/history", OPERATOR, page!(history::show)),
];

/// Models on a page.
const PAGE: usize = 50;
/// Groups that can be chosen.
const MAX_GROUPS: &str = "200";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Models,
    Groups,
    Unpriced,
    Import,
    Simulate,
    History,
}

fn tabs(request: &PageRequest, current: Section) -> Vec<Tab> {
    let t = request.t();
    let tab =
        |section: Section, label: &'static str, path: &str| Tab { label, link: request.url(path), is_current: section == current };
    vec![
        tab(Section::Models, t.say("keys.models"), "/pricing"),
        tab(Section::Groups, t.say("nav.groups"), "/pricing/groups"),
        tab(Section::Unpriced, t.say("pricing.unpriced"), "/pricing/unpriced"),
        tab(Section::Import, t.say("pricing.import"), "/pricing/import"),
        tab(Section::Simulate, t.say("pricing.simulate"), "/pricing/simulate"),
        tab(Section::History, t.say("pricing.history"), "/pricing/history"),
    ]
}

#[derive(Debug, Template)]
#[template(path = "pricing.html")]
struct PricingPage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    search: String,
    /// Value, label, whether it is chosen.
    states: Vec<(&'static str, &'static str, bool)>,
    groups: Vec<(String, bool)>,
    /// Whether prices are those of a group.
    is_of_group: bool,
    is_filtered: bool,
    /// The address of the same list as a file.
    csv: String,
    order: ListOrder,
    sorts: Vec<(&'static str, &'static str, bool)>,
    rows: Vec<PriceRow>,
    pager: Pager,
    problem: Option<&'static str>,
}

/// The names of groups.
async fn group_names(request: &PageRequest) -> Result<Vec<String>, ApiError> {
    let found = request.read::<ApiPage<Value>>(operations::LIST_GROUPS, get(&[("limit", MAX_GROUPS)])).await?;
    Ok(found.items.iter().filter_map(|group| group["name"].as_str().map(str::to_owned)).collect())
}

/// The filter of an address, as the admin API takes it.
fn filter(query: &FormData) -> Vec<(&'static str, &str)> {
    let mut filter: Vec<(&str, &str)> =
        ["search", "group"].into_iter().filter_map(|name| Some((name, query.filled(name)?))).collect();
    match query.value("state") {
        "below_cost" => filter.push(("below_cost", "true")),
        "priced" => filter.push(("priced", "true")),
        "unpriced" => filter.push(("priced", "false")),
        _ => {}
    }
    filter
}

/// A page of the list, and why it is not in the requested order.
async fn found(
    request: &PageRequest,
    order: &mut ListOrder,
    now: &str,
) -> Result<(ApiPage<PricesObject>, Option<&'static str>), ApiError> {
    let after = request.query.filled("after");
    let sorted = match order.chosen() {
        Some(by) => order::sorted(request, now, by).await?,
        None => None,
    };
    if let Some(models) = sorted {
        return Ok((page_of(models, after, PAGE), None));
    }
    let problem = order.give_up().then(|| request.t().say("pricing.too_many_to_sort"));
    Ok((order::page(request, &PAGE.to_string(), after).await?, problem))
}

async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, query) = (request.t(), &request.query);
    let state = query.value("state");
    let mut order = ListOrder::of(&request, &order::SORTS);
    let now = crate::time::rfc3339(request.state.gateway.now());
    let (found, problem) = match found(&request, &mut order, &now).await {
        Ok(found) => found,
        // A group that was removed meanwhile.
        Err(error) if error.status == http::StatusCode::NOT_FOUND => (ApiPage::empty(), Some(t.say("problem.unknown_group"))),
        Err(error) => return Err(error.into()),
    };
    let rows: Vec<PriceRow> = found.items.iter().map(|prices| PriceRow::of(t, prices, &now)).collect();
    let groups = group_names(&request).await?.into_iter().map(|name| (name.clone(), name == query.value("group")));
    let states = [
        ("", t.say("facet.any")),
        ("priced", t.say("pricing.priced")),
        ("unpriced", t.say("price.none")),
        ("below_cost", t.say("pricing.below_cost")),
    ];
    let count = t.say_count("pricing.one", "pricing.count", u64::try_from(rows.len()).unwrap_or(u64::MAX));
    let template = PricingPage {
        layout: request.layout(t.say("nav.pricing")).wide().with(Script::Tables),
        t,
        tabs: tabs(&request, Section::Models),
        search: query.value("search").to_owned(),
        states: states.map(|(value, label)| (value, label, value == state)).to_vec(),
        groups: groups.collect(),
        is_of_group: query.filled("group").is_some(),
        is_filtered: ["search", "group", "state"].iter().any(|name| query.filled(name).is_some()),
        csv: request.at("/pricing.csv", &Vec::new()),
        sorts: order.choices(&order::labels(t)),
        order,
        rows,
        pager: request.pager("/pricing", count, found.next.as_deref()),
        problem,
    };
    PageReply::ok(&template)
}
