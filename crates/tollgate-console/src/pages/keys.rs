//! Service keys: the list, each key with the rest of its budgets and lines for clients, and the forms that change it. Members see their
//! own keys, operators all keys.

mod check;
mod drawer;
mod export;
mod figures;
mod filter;
mod form;
mod making;
mod row_menu;
mod selection;
mod sums;
mod test_request;
mod view;

use std::{collections::HashMap, sync::Arc};

use askama::Template;
use serde_json::Value;
use tollgate_store::{AdminScope, ViewPage};

use self::{
    drawer::KeyDrawer,
    figures::KeyFigures,
    filter::KeyFilter,
    making::NewKeyDrawer,
    row_menu::RowMenu,
    test_request::KeyTest,
    view::{Allowance, BudgetRow, KeyDetail, KeyRow},
};
pub(super) use self::{
    form::{expires_at, expiry},
    view::{Expiry, KeyObject},
};
use super::{
    clients::{self, Access, ProtocolLines},
    control::{ControlSection, Danger, Pager, check_typed_name},
    form::{FormData, FormState},
    format::TimeText,
    further_faults::with_further_faults,
    groups,
    home::{first_model, model_url},
    layout::{Layout, Script},
    locale::Locale,
    operations,
    playground::{groups_for_keys, sending},
    preferences::Toast,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get, path_of, read_answer},
    route::{PageRoute, SeenBy, page},
    suggestions::{Names, Suggestions},
    views::SavedViews,
};
use crate::{api_error::ApiError, dispatch::ApiCall};

const MEMBER: SeenBy = SeenBy::Role(AdminScope::Member);
const OPERATOR: SeenBy = SeenBy::Role(AdminScope::Operator);

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/key", SeenBy::Anyone, page!(check::show)),
    PageRoute::post("/key", SeenBy::Anyone, page!(check::check)),
    PageRoute::get("/keys", MEMBER, page!(list)),
    PageRoute::post("/keys", MEMBER, page!(making::make)),
    PageRoute::get("/keys.csv", MEMBER, page!(export::csv)),
    PageRoute::post("/key-selection", MEMBER, page!(selection::act)),
    PageRoute::get("/key-selection/off", MEMBER, page!(selection::ask_turning_off)),
    PageRoute::post("/key-selection/off", MEMBER, page!(selection::turn_off_chosen)),
    PageRoute::get("/key-selection/revoke", MEMBER, page!(selection::ask_revoking)),
    PageRoute::post("/key-selection/revoke", MEMBER, page!(selection::revoke)),
    PageRoute::get("/key-selection/move", OPERATOR, page!(selection::ask_groups)),
    PageRoute::post("/key-selection/move", OPERATOR, page!(selection::set_groups)),
    PageRoute::post("/key-selection/enable", OPERATOR, page!(selection::turn_on_again)),
    PageRoute::get("/keys/new", MEMBER, page!(making::new)),
    PageRoute::post("/keys/new", MEMBER, page!(making::make)),
    PageRoute::get("/keys/{key}", MEMBER, page!(detail)),
    PageRoute::post("/keys/{key}", OPERATOR, page!(change)),
    PageRoute::post("/keys/{key}/rotate", MEMBER, page!(rotate)),
    PageRoute::post("/keys/{key}/disable", MEMBER, page!(disable)),
    PageRoute::post("/keys/{key}/enable", OPERATOR, page!(enable)),
    PageRoute::post("/keys/{key}/revoke", MEMBER, page!(revoke)),
];

/// Keys on a page of the list.
const PAGE: usize = 50;
/// The page to which an action returns, in forms and addresses.
const TO: &str = "to";
/// Placeholder for a key in examples.
const NO_KEY: &str = "$TOLLGATE_KEY";

#[derive(Debug, Template)]
#[template(path = "keys.html")]
struct KeysPage {
    layout: Layout,
    t: Locale,
    is_operator: bool,
    may_make: bool,
    filter: KeyFilter,
    views: SavedViews,
    suggestions: Suggestions,
    /// Value, label, and whether it is chosen.
    states: Vec<(&'static str, String, bool)>,
    sorts: Vec<(&'static str, &'static str, bool)>,
    /// The address of the same list as a file.
    csv: String,
    /// Actions on the chosen rows: value and label.
    actions: Vec<(&'static str, &'static str)>,
    rows: Vec<(KeyRow, RowMenu)>,
    /// The total usage of all keys of the filter.
    sums: Option<String>,
    /// The address of the list, to which the actions of a row return.
    here: String,
    pager: Pager,
    /// The key that the address opens beside the list.
    open: Option<KeyDrawer>,
    /// The form of a new key beside the list.
    new_key: Option<NewKeyDrawer>,
}

#[derive(Debug, Template)]
#[template(path = "key.html")]
struct KeyPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    /// The key itself, once.
    secret: Option<String>,
    key: KeyDetail,
    figures: Option<KeyFigures>,
    test: KeyTest,
    budgets: Vec<BudgetRow>,
    /// When each budget of the whole gateway renews that is spent.
    gateway_renewals: Vec<Option<TimeText>>,
    by_protocol: Vec<ProtocolLines>,
    /// Whether the key can be used, but its groups and its own list of models leave it without a model.
    has_no_model: bool,
    /// Model that the playground begins with.
    model: String,
    form: Option<ControlSection>,
    /// The revision that the form is for.
    revision: String,
    may_enable: bool,
    may_make: bool,
    /// Why the reader may not replace, disable or revoke the key.
    locked: Option<String>,
    danger: Danger,
}

async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    list_page(&request, None).await
}

/// The list, with the form of a new key that was refused beside it.
async fn list_page(request: &PageRequest, refused: Option<&FormState>) -> Result<PageReply, PageFailure> {
    let (t, query) = (request.t(), &request.query);
    let filter = KeyFilter::of(query, request.is_operator());
    let limit = PAGE.to_string();
    let mut pairs = filter.pairs();
    pairs.push(("limit", limit.as_str()));
    pairs.extend(query.filled("after").map(|after| ("after", after)));
    let suggested: &[Names] = if request.is_operator() { &[Names::Groups, Names::Members] } else { &[Names::Groups] };
    // The larger ones are boxed, because those that run at the same time need room at the same time.
    let (found, open, new_key, views, suggestions, groups) = tokio::join!(
        Box::pin(found(request, pairs)),
        Box::pin(KeyDrawer::opened(request)),
        Box::pin(NewKeyDrawer::opened(request, refused)),
        SavedViews::read(request, ViewPage::Keys),
        Suggestions::of(request, suggested),
        groups_for_keys(request)
    );
    let found = match found {
        Ok(found) => found,
        // A member that does not exist has no keys.
        Err(error) if query.filled("member").is_some() && error.status == http::StatusCode::NOT_FOUND => ApiPage::empty(),
        Err(error) => return Err(error.into()),
    };
    let now = request.state.gateway.now();
    let sums = sums::of(request, &filter, &found).await?;
    let row = |key: &KeyObject| (KeyRow::of(t, key, now), RowMenu::of(key, request.is_operator()));
    let rows: Vec<(KeyRow, RowMenu)> = found.items.iter().map(row).collect();
    let count = t.say_count("keys.one", "keys.count", u64::try_from(rows.len()).unwrap_or(u64::MAX));
    let template = KeysPage {
        layout: request
            .layout(t.say("nav.keys"))
            .wide()
            .with(Script::Tables)
            .with(Script::Choose)
            .with(Script::Drawer)
            .with(Script::Order),
        t,
        is_operator: request.is_operator(),
        open: open?,
        new_key: new_key?,
        csv: request.url(&format!("/keys.csv?{}", filter.address(&[]))),
        here: request.url(&request.address),
        views: views?,
        suggestions,
        actions: selection::actions(t, request.is_operator()),
        may_make: !groups?.is_empty(),
        pager: request.pager("/keys", count, found.next.as_deref()),
        rows,
        sums,
        states: filter.states(t),
        sorts: filter.sorts(t),
        filter,
    };
    PageReply::page(refused.map_or(http::StatusCode::OK, FormState::status), &template)
}

/// The part of a query that a saved view keeps.
pub(super) fn kept_query(request: &PageRequest, query: &FormData) -> String {
    KeyFilter::of(query, request.is_operator()).address(&[])
}

/// The keys with their usage in this month. While the database is busy the list is shown without it.
async fn found(request: &PageRequest, mut pairs: Vec<(&str, &str)>) -> Result<ApiPage<KeyObject>, ApiError> {
    let without_use = get(&pairs);
    pairs.push(("use", "true"));
    match request.read(operations::LIST_KEYS, get(&pairs)).await {
        Err(error) if error.code() == "server_overloaded" => request.read(operations::LIST_KEYS, without_use).await,
        read => read,
    }
}

fn key_path(request: &PageRequest) -> HashMap<String, String> {
    path_of(&[("key", request.path_param("key"))])
}

fn of_key(request: &PageRequest) -> ApiCall {
    ApiCall { path: key_path(request), ..ApiCall::default() }
}

async fn detail(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    if request.wants_part() {
        let key: KeyObject = request.read(operations::GET_KEY, of_key(&request)).await?;
        return PageReply::ok(&KeyDrawer::of(&request, &key).await?);
    }
    key_page(&request, &FormState::default(), None).await
}

/// The allowance of a key; `None` for a key that can no longer be used.
async fn allowance(request: &PageRequest, key: &str) -> Result<Option<Allowance>, ApiError> {
    let call = ApiCall { path: path_of(&[("key", key)]), ..ApiCall::default() };
    match request.read(operations::GET_KEY_ALLOWANCE, call).await {
        Ok(allowance) => Ok(Some(allowance)),
        Err(error) if error.status == http::StatusCode::NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

fn budget_rows(request: &PageRequest, allowance: Option<&Allowance>) -> Vec<BudgetRow> {
    let budgets = allowance.into_iter().flat_map(|allowance| &allowance.budgets);
    budgets.map(|budget| BudgetRow::of(request.t(), budget, request.is_operator())).collect()
}

/// The page of a key; with `secret` just after it was made or replaced.
async fn key_page(request: &PageRequest, state: &FormState, secret: Option<&Value>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let (id, shown) = match secret {
        Some(made) => (made["id"].as_str().unwrap_or_default().to_owned(), made["key"].as_str()),
        None => (request.path_param("key").to_owned(), None),
    };
    let call = ApiCall { path: path_of(&[("key", &id)]), ..ApiCall::default() };
    let key: KeyObject = request.read(operations::GET_KEY, call).await?;
    let allowance = allowance(request, &id).await?;
    let now = request.state.gateway.now();
    let may_change = request.is_operator() && key.owner != "file" && key.state != "revoked";
    // If another form of the page was sent, this one shows the stored values.
    let sent = if state.has("rpm") { state.clone() } else { FormState::of(form::values(&key)) };
    let form = if may_change { Some(change_form(request, &key, &sent).await?) } else { None };
    let models = allowance.iter().flat_map(|allowance| &allowance.models).map(String::as_str);
    let model = first_model(request, models).await?.unwrap_or("MODEL").to_owned();
    let address = model_url(request);
    let access = Access { address: &address, key: shown.unwrap_or(NO_KEY), model: &model };
    let (send, other) = sending(request);
    let template = KeyPage {
        layout: request
            .layout(key.name.clone())
            .below("/keys", t.say("nav.keys"))
            .with(Script::Download)
            .with(Script::KeyTest)
            .with(Script::Order)
            .returns_to(&format!("/keys/{}", key.id)),
        t,
        banner: state.banner(),
        secret: shown.map(str::to_owned),
        by_protocol: clients::by_protocol(t, access, |protocol| key.may_speak(protocol)),
        test: KeyTest::of(request, &send, &model, |protocol| key.may_speak(protocol)),
        figures: KeyFigures::read(request, &key).await?,
        has_no_model: allowance.as_ref().is_some_and(|allowance| allowance.models.is_empty()),
        model,
        budgets: budget_rows(request, allowance.as_ref()),
        gateway_renewals: allowance.as_ref().map_or_else(Vec::new, |allowance| allowance.gateway_renewals(t)),
        may_make: !groups_for_keys(request).await?.is_empty(),
        locked: key
            .locked_by
            .as_deref()
            .filter(|_| !request.is_operator())
            .map(|group| t.say_with("keys.locked", &[("group", group)])),
        may_enable: may_change && key.state == "disabled",
        danger: {
            let text = (t.say("keys.revoke"), t.say("keys.revoke_about").to_owned(), t.say("keys.revoke_for_good"));
            Danger::new(t, state, request.url(&format!("/keys/{}/revoke", key.id)), text)
        },
        revision: sent.revision(key.revision),
        key: KeyDetail::of(t, &key, allowance.as_ref(), now),
        form,
    };
    Ok(PageReply::page(state.status(), &template)?.connects_to(other))
}

/// The form that changes a key.
async fn change_form(request: &PageRequest, key: &KeyObject, state: &FormState) -> Result<ControlSection, ApiError> {
    let t = request.t();
    let groups = making::choice_of_all(request, state).await?;
    let mut section = form::section(t, state, form::Shape { is_operator: true, names_groups: groups.is_none() });
    let end = section.controls.iter_mut().find(|control| control.name == form::EXPIRES);
    if let (Some(end), Some(time)) = (end, form::time_of_end(key)) {
        end.hint = Some(t.say_with("keys.expires_at_hint", &[("time", time)]));
    }
    section.controls.splice(0..0, groups);
    Ok(section)
}

async fn change(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let key: KeyObject = request.read(operations::GET_KEY, of_key(&request)).await?;
    let mut body = form::body(form, request.state.gateway.now());
    if !form::moves_end(form, &key) {
        body.remove("expires_at");
    }
    let call = || ApiCall { body: body.clone(), ..of_key(&request) };
    let changed = match groups::check_price_limit(form) {
        Ok(()) => request.call_at_revision(operations::CHANGE_KEY, call()).await.map(|_| ()),
        Err(error) => Err(error),
    };
    match changed {
        Ok(()) => Ok(to_key(&request, Toast::Saved)),
        Err(error) => {
            let error = with_further_faults(&request, operations::CHANGE_KEY, call(), error, &[]).await;
            key_page(&request, &form::refused(request.t(), form, error)?, None).await
        }
    }
}

/// The page to which an action on keys returns, if the form or the address names one: the list with its filter, or a chosen key.
fn named_page(request: &PageRequest) -> Option<&str> {
    let (form, query) = (&request.form, &request.query);
    let path = request.local_path(form.filled(TO).or_else(|| query.filled(TO))?)?;
    let page = path.split('?').next().unwrap_or_default();
    let is_chosen = |id: &str| form.all(selection::FIELD).chain(query.all(selection::FIELD)).any(|chosen| chosen == id);
    (page == "/keys" || page.strip_prefix("/keys/").is_some_and(is_chosen)).then_some(path)
}

/// The page that the form names, else that of the key.
fn back(request: &PageRequest) -> String {
    match named_page(request) {
        Some(page) => request.url(page),
        None => request.url(&format!("/keys/{}", request.path_param("key"))),
    }
}

fn to_key(request: &PageRequest, toast: Toast) -> PageReply {
    PageReply::redirect(&request.url(&format!("/keys/{}", request.path_param("key")))).toast(toast)
}

async fn rotate(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let key: KeyObject = request.read(operations::GET_KEY, of_key(&request)).await?;
    // The form names the secret that it replaces, so that sending it a second time does not replace the new secret.
    if request.form.has("suffix") && request.form.value("suffix") != key.suffix {
        return refuse(&request, ApiError::value("suffix", "the key was replaced already").because("key_replaced")).await;
    }
    let overlap_s = request.form.value("overlap_s").parse::<i64>().ok();
    let body = overlap_s.map(|seconds| ("overlap_s".to_owned(), Value::from(seconds))).into_iter().collect();
    let answer = request.call(operations::ROTATE_KEY, ApiCall { body, ..of_key(&request) }).await;
    match answer {
        Ok(answer) => {
            let made: Value = read_answer(answer)?;
            key_page(&request, &FormState::default(), Some(&made)).await
        }
        Err(error) => refuse(&request, error).await,
    }
}

async fn disable(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    if !request.is_operator() {
        let key: KeyObject = request.read(operations::GET_KEY, of_key(&request)).await?;
        // A key that its member may not change is refused below.
        if key.locked_by.is_none() {
            let own = format!("/keys/{}", key.id);
            return Ok(selection::ask_member(&request, &[key], Some(named_page(&request).unwrap_or(&own))));
        }
    }
    match request.call(operations::DISABLE_KEY, of_key(&request)).await {
        Ok(_) => Ok(PageReply::redirect(&back(&request)).toast_with_undo(Toast::KeyOff, &[request.path_param("key")])),
        Err(error) => refuse(&request, error).await,
    }
}

async fn enable(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let body = [("status".to_owned(), Value::from("active"))].into_iter().collect();
    match request.call(operations::CHANGE_KEY, ApiCall { body, ..of_key(&request) }).await {
        Ok(_) => Ok(PageReply::redirect(&back(&request)).toast(Toast::KeyOn)),
        Err(error) => refuse(&request, error).await,
    }
}

/// Revoking cannot be undone, so the name is typed first.
async fn revoke(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let key: KeyObject = request.read(operations::GET_KEY, of_key(&request)).await?;
    if let Err(error) = check_typed_name(&request.form, &key.name) {
        return refuse(&request, error).await;
    }
    match request.call(operations::REVOKE_KEY, of_key(&request)).await {
        Ok(_) => Ok(to_key(&request, Toast::KeyRevoked)),
        Err(error) => refuse(&request, error).await,
    }
}

/// The page of the key with the refused form. Refusals by groups without self-service are shown there, too.
async fn refuse(request: &PageRequest, error: ApiError) -> Result<PageReply, PageFailure> {
    key_page(request, &form::refused(request.t(), &request.form, error)?, None).await
}
