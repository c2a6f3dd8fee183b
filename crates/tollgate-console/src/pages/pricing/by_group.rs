//! The factors of groups and the price of each model in each group, side by side.

mod factors;

use std::{collections::BTreeMap, sync::Arc};

use askama::Template;
use serde::Deserialize;
use serde_json::Value;

use super::{
    Section, tabs,
    view::{model_query, short},
};
use crate::{
    api_error::ApiError,
    pages::{
        channels::explain_detail,
        control::{FormView, Pager, Tab},
        form::FormState,
        layout::Layout,
        locale::Locale,
        operations,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get},
    },
};

pub(super) use factors::save;

/// Models on a page.
const PAGE: &str = "50";
/// Groups whose factors are read.
const MAX_GROUPS: &str = "1000";
/// Maximum number of groups side by side, as in the admin API.
const COLUMNS: usize = 8;

#[derive(Debug, Template)]
#[template(path = "pricing_groups.html")]
struct GroupPricesPage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    banner: Option<String>,
    search: String,
    form: Option<FormView>,
    /// Name and factor.
    columns: Vec<(String, String)>,
    /// Other groups: label and address.
    earlier: Option<String>,
    later: Option<String>,
    rows: Vec<MatrixRow>,
    pager: Pager,
}

#[derive(Debug, Deserialize)]
struct GroupObject {
    name: String,
    owner: String,
    revision: u64,
    sale_multiplier: String,
    /// Of models, by name or pattern.
    model_multipliers: BTreeMap<String, String>,
}

/// A model of the admin API.
#[derive(Debug, Deserialize)]
struct RowObject {
    model: String,
    price: Value,
    groups: Vec<CellObject>,
}

#[derive(Debug, Deserialize)]
struct CellObject {
    group: String,
    multiplier: String,
    multiplier_of: Option<String>,
    offered: bool,
    price: Value,
    below_cost: Option<String>,
}

#[derive(Debug)]
struct MatrixRow {
    model: String,
    /// As a query.
    link: String,
    /// Address of the form for its factors.
    factors: String,
    base: Option<String>,
    cells: Vec<MatrixCell>,
}

#[derive(Debug)]
struct MatrixCell {
    group: String,
    factor: String,
    /// The name or the pattern that has the factor, if it is not the group's.
    factor_of: Option<String>,
    is_offered: bool,
    price: Option<String>,
    below_cost: Option<String>,
}

impl MatrixRow {
    /// The row with a cell for each of the groups. A group that was created between the two reads has no price yet.
    fn of(request: &PageRequest, row: RowObject, groups: &[GroupObject]) -> Self {
        let t = request.t();
        let text = |price: &Value| (!price.is_null()).then(|| short(t, price));
        let cell = |group: &GroupObject| {
            let found = row.groups.iter().find(|cell| cell.group == group.name);
            MatrixCell {
                factor: found.map_or_else(String::new, |cell| cell.multiplier.clone()),
                factor_of: found.and_then(|cell| cell.multiplier_of.clone()),
                is_offered: found.is_some_and(|cell| cell.offered),
                price: found.and_then(|cell| text(&cell.price)),
                below_cost: found.and_then(|cell| explain_detail::say(t, "below_cost", cell.below_cost.as_deref()?)),
                group: group.name.clone(),
            }
        };
        let cells = groups.iter().map(cell).collect();
        let factors = address(request, &[("model", &row.model)]);
        Self { link: model_query(&row.model), factors, base: text(&row.price), cells, model: row.model }
    }
}

/// All groups by name.
async fn groups(request: &PageRequest) -> Result<Vec<GroupObject>, ApiError> {
    let found = request.read::<ApiPage<GroupObject>>(operations::LIST_GROUPS, get(&[("limit", MAX_GROUPS)])).await?;
    let mut groups = found.items;
    groups.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(groups)
}

/// The range of groups that are shown side by side.
fn columns(groups: &[GroupObject], first: &str) -> std::ops::Range<usize> {
    let begin = groups.partition_point(|group| group.name.as_str() < first);
    begin..groups.len().min(begin + COLUMNS)
}

/// The address of the page with other values of these parameters; empty: without them.
fn address(request: &PageRequest, changed: &[(&str, &str)]) -> String {
    let kept = request.query.pairs().filter(|(name, _)| changed.iter().all(|(other, _)| other != name));
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(kept.chain(changed.iter().copied()).filter(|(_, value)| !value.is_empty()));
    let query = query.finish();
    let mark = if query.is_empty() { "" } else { "?" };
    request.url(&format!("/pricing/groups{mark}{query}"))
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    page(&request, &groups(&request).await?, &FormState::default()).await
}

async fn page(request: &PageRequest, groups: &[GroupObject], state: &FormState) -> Result<PageReply, PageFailure> {
    let (t, query) = (request.t(), &request.query);
    let first = query.value("groups_from");
    let shown = columns(groups, first);
    let mut filter = vec![("limit", PAGE)];
    filter.extend(["search", "after", "groups_from"].into_iter().filter_map(|name| Some((name, query.filled(name)?))));
    let found = request.read::<ApiPage<RowObject>>(operations::LIST_GROUP_PRICES, get(&filter)).await?;
    let rows: Vec<MatrixRow> = found.items.into_iter().map(|row| MatrixRow::of(request, row, &groups[shown.clone()])).collect();
    let count = t.say_count("pricing.one", "pricing.count", u64::try_from(rows.len()).unwrap_or(u64::MAX));
    let from = |begin: usize| address(request, &[("groups_from", groups.get(begin).map_or("", |group| group.name.as_str()))]);
    let template = GroupPricesPage {
        layout: request.layout(t.say("nav.pricing")).wide(),
        t,
        tabs: tabs(request, Section::Groups),
        banner: state.banner(),
        search: query.value("search").to_owned(),
        form: factors::form(request, &groups[shown.clone()], state),
        columns: groups[shown.clone()].iter().map(|group| (group.name.clone(), group.sale_multiplier.clone())).collect(),
        earlier: (shown.start > 0).then(|| from(shown.start.saturating_sub(COLUMNS))),
        later: (shown.end < groups.len()).then(|| from(shown.end)),
        rows,
        pager: request.pager("/pricing/groups", count, found.next.as_deref()),
    };
    PageReply::page(state.status(), &template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_columns_start_at_the_given_name() {
        let group = |name: char| GroupObject {
            name: name.to_string(),
            owner: "database".to_owned(),
            revision: 3,
            sale_multiplier: "1".to_owned(),
            model_multipliers: BTreeMap::new(),
        };
        let groups: Vec<GroupObject> = ('a'..='k').map(group).collect();
        assert_eq!((columns(&groups, ""), columns(&groups, "i"), columns(&groups, "z")), (0..8, 8..11, 11..11));
        assert_eq!(columns(&[], ""), 0..0);
    }
}
