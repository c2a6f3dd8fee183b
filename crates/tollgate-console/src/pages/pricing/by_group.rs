//! The factors of groups and what each model costs in each group, side by side.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_core::Multiplier;
use tollgate_store::fields::FieldValue as _;

use super::{
    Section, tabs,
    view::{model_query, short},
};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{self, Control, ControlSection, FaultPlace, FormView, Pager, Tab, decimal},
        form::{FormData, FormState},
        layout::Layout,
        locale::Locale,
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get, path_of},
    },
};

/// Models on a page.
const PAGE: &str = "50";
/// Groups whose factors are read.
const MAX_GROUPS: &str = "1000";
/// Groups side by side; the admin API shows as many.
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
    offered: bool,
    price: Value,
    below_cost: Option<String>,
}

#[derive(Debug)]
struct MatrixRow {
    model: String,
    /// As a query.
    link: String,
    base: Option<String>,
    cells: Vec<MatrixCell>,
}

#[derive(Debug)]
struct MatrixCell {
    group: String,
    is_offered: bool,
    price: Option<String>,
    below_cost: Option<String>,
}

impl MatrixRow {
    /// The row with a cell for each of the groups. One that was made between the two questions has no price yet.
    fn of(t: Locale, row: RowObject, groups: &[GroupObject]) -> Self {
        let text = |price: &Value| (!price.is_null()).then(|| short(t, price));
        let cell = |group: &GroupObject| {
            let found = row.groups.iter().find(|cell| cell.group == group.name);
            MatrixCell {
                is_offered: found.is_some_and(|cell| cell.offered),
                price: found.and_then(|cell| text(&cell.price)),
                below_cost: found.and_then(|cell| cell.below_cost.clone()),
                group: group.name.clone(),
            }
        };
        let cells = groups.iter().map(cell).collect();
        Self { link: model_query(&row.model), base: text(&row.price), cells, model: row.model }
    }
}

/// All groups by name.
async fn groups(request: &PageRequest) -> Result<Vec<GroupObject>, ApiError> {
    let found = request.read::<ApiPage<GroupObject>>(operations::LIST_GROUPS, get(&[("limit", MAX_GROUPS)])).await?;
    let mut groups = found.items;
    groups.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(groups)
}

/// The groups side by side: where they begin among all, and how many.
fn columns(groups: &[GroupObject], first: &str) -> std::ops::Range<usize> {
    let begin = groups.partition_point(|group| group.name.as_str() < first);
    begin..groups.len().min(begin + COLUMNS)
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
    let rows: Vec<MatrixRow> = found.items.into_iter().map(|row| MatrixRow::of(t, row, &groups[shown.clone()])).collect();
    let count = t.say_count("pricing.one", "pricing.count", u64::try_from(rows.len()).unwrap_or(u64::MAX));
    let from = |begin: usize| {
        let pairs = query.pairs().filter(|(name, value)| *name != "groups_from" && !value.is_empty());
        let mut text = url::form_urlencoded::Serializer::new(String::new());
        text.extend_pairs(pairs).append_pair("groups_from", groups.get(begin).map_or("", |group| group.name.as_str()));
        request.url(&format!("/pricing/groups?{}", text.finish()))
    };
    let template = GroupPricesPage {
        layout: request.layout(t.say("nav.pricing")).wide(),
        t,
        tabs: tabs(request, Section::Groups),
        banner: state.banner(),
        search: query.value("search").to_owned(),
        form: form(request, &groups[shown.clone()], state),
        columns: groups[shown.clone()].iter().map(|group| (group.name.clone(), group.sale_multiplier.clone())).collect(),
        earlier: (shown.start > 0).then(|| from(shown.start.saturating_sub(COLUMNS))),
        later: (shown.end < groups.len()).then(|| from(shown.end)),
        rows,
        pager: request.pager("/pricing/groups", count, found.next.as_deref()),
    };
    PageReply::page(state.status(), &template)
}

/// A field for the factor of each group that can be changed here.
fn form(request: &PageRequest, groups: &[GroupObject], state: &FormState) -> Option<FormView> {
    let t = request.t();
    let groups: Vec<&GroupObject> = groups.iter().filter(|group| group.owner != "file").collect();
    if groups.is_empty() {
        return None;
    }
    let held = |index: usize, group: &GroupObject| {
        let field = format!("factor_{index}");
        // What was typed belongs to the group that stood there.
        let is_kept = state.value(&format!("group_{index}")) == group.name && state.has(&field);
        let control = state.number(field, group.name.clone()).required();
        if is_kept { control } else { Control { value: group.sale_multiplier.clone(), ..control } }
    };
    let mut controls: Vec<Control> = groups.iter().enumerate().map(|(index, group)| held(index, group)).collect();
    if state.fault("confirm").is_some() || state.has("confirm") {
        controls.push(state.check("confirm", t.say("groups.confirm")).wide());
    }
    let section = ControlSection::new(t.say("pricing.factors"), controls).about(t.say("pricing.factors_about"));
    let action = request.at("/pricing/groups", request.query.filled("after"));
    let mut form = FormView::new(action, vec![section], t.say("form.save"));
    for (index, group) in groups.iter().enumerate() {
        // A group that was written before another one was refused is at its new revision.
        let typed = read_factor(&decimal(state.value(&format!("factor_{index}"))));
        let is_written = typed.is_some() && typed == read_factor(&group.sale_multiplier);
        let sent = state.value(&format!("revision_{index}"));
        let revision = if sent.is_empty() || is_written { group.revision.to_string() } else { sent.to_owned() };
        form = form.hidden(format!("group_{index}"), &group.name).hidden(format!("revision_{index}"), revision);
    }
    Some(form)
}

fn read_factor(text: &str) -> Option<Multiplier> {
    Multiplier::read(&text.into()).ok()
}

fn factor(form: &FormData, field: &str) -> Result<Multiplier, ApiError> {
    read_factor(&decimal(form.value(field))).ok_or_else(|| ApiError::value(field, "expected a factor").because("factor"))
}

/// A group of a form whose factor is another one now.
#[derive(Debug, PartialEq, Eq)]
struct Changed {
    index: usize,
    group: String,
    factor: String,
    revision: String,
}

/// The groups that a form changes. Nothing is changed if one of the factors is none.
fn changed(form: &FormData, groups: &[GroupObject]) -> Result<Vec<Changed>, ApiError> {
    let mut found = Vec::new();
    for index in 0..COLUMNS {
        let Some(name) = form.filled(&format!("group_{index}")) else { continue };
        let field = format!("factor_{index}");
        let typed = factor(form, &field)?;
        let there = groups.iter().find(|group| group.name == name);
        if there.and_then(|group| read_factor(&group.sale_multiplier)) != Some(typed) {
            found.push(Changed {
                index,
                group: name.to_owned(),
                factor: decimal(form.value(&field)),
                revision: form.value(&format!("revision_{index}")).to_owned(),
            });
        }
    }
    Ok(found)
}

pub(super) async fn save(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let groups_before = groups(&request).await?;
    let written = match changed(&request.form, &groups_before) {
        Ok(changes) => write(&request, changes).await,
        Err(error) => Err(error),
    };
    match written {
        Ok(()) => Ok(PageReply::redirect(&request.at("/pricing/groups", request.query.filled("after"))).toast(Toast::Saved)),
        Err(error) => {
            const PLACES: &[FaultPlace] = &[("nothing_left", "confirm", "nothing_left")];
            let state = control::refused(request.t(), &request.form, error, PLACES)?;
            page(&request, &groups(&request).await?, &state).await
        }
    }
}

/// Changes one group after the other; the first refusal ends it.
async fn write(request: &PageRequest, changes: Vec<Changed>) -> Result<(), ApiError> {
    let query = if request.form.value("confirm") == "true" { "confirm=true".to_owned() } else { String::new() };
    for change in changes {
        let body = Map::from_iter([("sale_multiplier".to_owned(), change.factor.as_str().into())]);
        let call = ApiCall { body, query: query.clone(), path: path_of(&[("name", &change.group)]) };
        let answer = request.call_with(operations::CHANGE_GROUP, call, &[("if-match", &change.revision)]).await;
        answer.map_err(|error| match error.param() {
            Some("sale_multiplier") => error.about(&format!("factor_{}", change.index)).because("factor"),
            _ => error,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, factor: &str) -> GroupObject {
        GroupObject { name: name.to_owned(), owner: "database".to_owned(), revision: 3, sale_multiplier: factor.to_owned() }
    }

    #[test]
    fn only_factors_that_differ_are_written() {
        let groups = [group("a", "1"), group("b", "0.9"), group("c", "2")];
        let form =
            FormData::parse(b"group_0=a&factor_0=1.0&revision_0=1&group_1=b&factor_1=+0.8&revision_1=7&group_2=c&factor_2=1.5");
        assert_eq!(changed(&form, &groups).unwrap().iter().map(|it| it.group.as_str()).collect::<Vec<_>>(), ["b", "c"]);
        let form = FormData::parse(b"group_0=b&factor_0=0.8&revision_0=7&group_1=c&factor_1=cheap");
        assert_eq!(changed(&form, &groups).unwrap_err().param(), Some("factor_1"), "nothing is written beside a wrong one");
        let form = FormData::parse(b"group_0=b&factor_0=0.8&revision_0=7");
        let expected = Changed { index: 0, group: "b".to_owned(), factor: "0.8".to_owned(), revision: "7".to_owned() };
        assert_eq!(changed(&form, &groups).unwrap(), [expected]);
    }

    #[test]
    fn groups_are_shown_side_by_side_from_a_name_on() {
        let groups: Vec<GroupObject> = ('a'..='k').map(|name| group(&name.to_string(), "1")).collect();
        assert_eq!((columns(&groups, ""), columns(&groups, "i"), columns(&groups, "z")), (0..8, 8..11, 11..11));
        assert_eq!(columns(&[], ""), 0..0);
    }
}
