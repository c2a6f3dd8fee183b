//! Groups: the list, each group with its form, a preview of its offers before it is saved, and the model square as its callers see it.

mod export;
mod form;
mod order;
mod view;

use std::{collections::HashMap, sync::Arc};

use askama::Template;
use serde_json::Value;
use tollgate_store::AdminScope;

use self::{
    form::OfferableChannel,
    view::{EffectRow, EffectsAnswer, GroupDetail, GroupObject, GroupOfferRow, GroupRow, GroupSpent, OfferAnswer},
};
pub(super) use self::{
    form::{check_price_limit, price_limit},
    view::{PriceLimitObject, price_limit_lines},
};
use super::{
    control::{Danger, FormView, Pager, check_typed_name},
    form::{FormData, FormState},
    format,
    further_faults::with_further_faults,
    layout::{Layout, Script},
    list_order::{ListOrder, page_of},
    locale::Locale,
    models::{ModelCard, SquareDocument, cards},
    operations,
    overview::sums::WITHOUT_TIMES,
    preferences::Toast,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get, path_of, read_answer},
    route::{PageRoute, SeenBy, page},
};
use crate::{api::keys::self_service::DEFAULT_GROUP, api_error::ApiError, dispatch::ApiCall, registration::RegistrationMode};

const OPERATOR: SeenBy = SeenBy::Role(AdminScope::Operator);

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/groups", OPERATOR, page!(list)),
    PageRoute::get("/groups.csv", OPERATOR, page!(export::csv)),
    PageRoute::get("/groups/new", OPERATOR, page!(new)),
    PageRoute::post("/groups/new", OPERATOR, page!(make)),
    PageRoute::post("/groups/new/offers", OPERATOR, page!(preview_new)),
    PageRoute::get("/groups/{name}", OPERATOR, page!(detail)),
    PageRoute::post("/groups/{name}", OPERATOR, page!(change)),
    PageRoute::post("/groups/{name}/offers", OPERATOR, page!(preview)),
    PageRoute::post("/groups/{name}/remove", OPERATOR, page!(remove)),
    PageRoute::get("/groups/{name}/square", OPERATOR, page!(square)),
];

/// Groups on a page of the list.
const PAGE: usize = 100;
/// Models that the preview names.
const MAX_OFFERS: usize = 500;
/// Maximum number of channels to choose from: as many as the list of channels has.
const MAX_CHANNELS: &str = "1000";

#[derive(Debug, Template)]
#[template(path = "groups.html")]
struct GroupsPage {
    layout: Layout,
    t: Locale,
    /// The address of the same list as a file.
    csv: String,
    order: ListOrder,
    sorts: Vec<(&'static str, &'static str, bool)>,
    rows: Vec<GroupRow>,
    pager: Pager,
    /// Why the list is not in the order that is asked for.
    problem: Option<&'static str>,
}

#[derive(Debug, Template)]
#[template(path = "group.html")]
struct GroupPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    /// `None`: a new one.
    group: Option<GroupDetail>,
    /// Whether new members have it by default.
    is_default: bool,
    form: FormView,
    danger: Option<Danger>,
    /// The preview of its offers.
    offers: Option<Offers>,
    is_faulty: bool,
}

/// The preview alone, as it is loaded again when a field changes.
#[derive(Debug, Template)]
#[template(path = "group_offers.html")]
struct OffersPart {
    layout: Layout,
    t: Locale,
    offers: Option<Offers>,
    /// There is no preview because a field has a fault.
    is_faulty: bool,
}

#[derive(Debug)]
struct Offers {
    count: String,
    rows: Vec<GroupOfferRow>,
    is_cut: bool,
    /// Accounts that price limits would exclude.
    effects: Vec<EffectRow>,
}

#[derive(Debug, Template)]
#[template(path = "group_square.html")]
struct SquarePage {
    layout: Layout,
    t: Locale,
    about: String,
    cards: Vec<ModelCard>,
    is_cut: bool,
}

async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, after) = (request.t(), request.query.filled("after"));
    let mut order = ListOrder::of(&request, &order::SORTS);
    let sorted = match order.chosen() {
        Some(by) => order::sorted(&request, by).await?,
        None => None,
    };
    let (found, spent, problem) = if let Some((groups, spent)) = sorted {
        (page_of(groups, after, PAGE), spent, None)
    } else {
        let found = order::page(&request, &PAGE.to_string(), after).await?;
        let spent = spent(&request, !found.items.is_empty()).await?;
        (found, spent, order.give_up().then(|| t.say("groups.too_many_to_sort")))
    };
    let default = default_of_new_members(&request);
    let row = |group: &GroupObject| GroupRow::of(t, group, spent.get(&group.name), group.name == default);
    let rows: Vec<GroupRow> = found.items.iter().map(row).collect();
    let count = t.say_count("groups.one", "groups.count", u64::try_from(rows.len()).unwrap_or(u64::MAX));
    let pager = request.pager("/groups", count, found.next.as_deref());
    let layout = request.layout(t.say("nav.groups")).wide().with(Script::Tables);
    let (csv, sorts) = (request.at("/groups.csv", &Vec::new()), order.choices(&order::labels(t)));
    PageReply::ok(&GroupsPage { layout, t, csv, order, sorts, rows, pager, problem })
}

/// The name of the group of keys that new members make: that of members who register if they may, else the one that keys without a
/// group have.
fn default_of_new_members(request: &PageRequest) -> String {
    let registration = request.state.gateway.registration();
    registration.group.filter(|_| registration.mode == RegistrationMode::Open).unwrap_or_else(|| DEFAULT_GROUP.to_owned())
}

/// The groups with their members, keys and models. While the database is busy the list is shown without them.
async fn found(request: &PageRequest, mut query: Vec<(&str, &str)>) -> Result<ApiPage<GroupObject>, ApiError> {
    let without_use = get(&query);
    query.push(("use", "true"));
    match request.read(operations::LIST_GROUPS, get(&query)).await {
        Err(error) if error.code() == "server_overloaded" => request.read(operations::LIST_GROUPS, without_use).await,
        read => read,
    }
}

/// Usage of the groups in this UTC month, by name; empty if the database is busy.
async fn spent(request: &PageRequest, has_groups: bool) -> Result<HashMap<String, GroupSpent>, ApiError> {
    if !has_groups {
        return Ok(HashMap::new());
    }
    let since = format::month_begin(request.state.gateway.now());
    match request
        .read::<ApiPage<GroupSpent>>(operations::SUM_USAGE, get(&[("by", "group"), ("since", &since), WITHOUT_TIMES]))
        .await
    {
        Ok(sums) => Ok(sums.items.into_iter().map(|sum| (sum.of.clone(), sum)).collect()),
        Err(error) if error.code() == "server_overloaded" => Ok(HashMap::new()),
        Err(error) => Err(error),
    }
}

fn of_group(request: &PageRequest) -> ApiCall {
    ApiCall { path: path_of(&[("name", request.path_param("name"))]), ..ApiCall::default() }
}

async fn read_group(request: &PageRequest) -> Result<GroupObject, ApiError> {
    request.read(operations::GET_GROUP, of_group(request)).await
}

/// The channels that a group can have.
async fn channels(request: &PageRequest) -> Result<Vec<OfferableChannel>, ApiError> {
    Ok(request.read::<ApiPage<OfferableChannel>>(operations::LIST_CHANNELS, get(&[("limit", MAX_CHANNELS)])).await?.items)
}

/// The sent form, in which the channels with a chosen tag are chosen too.
async fn sent_form(request: &PageRequest) -> Result<FormData, ApiError> {
    if !request.form.has(form::TAGS) {
        return Ok(request.form.clone());
    }
    Ok(form::with_tagged(&request.form, &channels(request).await?))
}

async fn new(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let state = FormState::of(form::defaults());
    group_page(&request, None, &state, None).await
}

async fn detail(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let group = read_group(&request).await?;
    let form = form::values(&group);
    // A form is shown even if its preview fails.
    let offers = offers(&request, None, &form).await.ok();
    group_page(&request, Some(&group), &FormState::of(form), offers).await
}

/// The page of a group, or that of a new one.
async fn group_page(
    request: &PageRequest,
    group: Option<&GroupObject>,
    state: &FormState,
    offers: Option<Offers>,
) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let channels = channels(request).await?;
    let (title, path) = match group {
        Some(group) => (group.name.clone(), format!("/groups/{}", group.id)),
        None => (t.say("groups.new").to_owned(), "/groups/new".to_owned()),
    };
    let sections = form::sections(t, state, group, &channels);
    let submit = if group.is_some() { t.say("form.save") } else { t.say("groups.make") };
    let form = FormView::new(request.url(&path), sections, submit)
        .second(request.url(&format!("{path}/offers#offers")), t.say("groups.preview"))
        .cancel(request.url("/groups"));
    let form = match group {
        Some(group) => form.at_revision(state, group.revision),
        None => form,
    };
    let may_change = group.is_none_or(|group| group.owner != "file");
    let spent = match group {
        Some(group) => spent(request, true).await?.remove(&group.name),
        None => None,
    };
    let danger = group.filter(|_| may_change).map(|group| {
        let about = t.say("groups.remove_about").to_owned();
        Danger::new(
            t,
            state,
            request.url(&format!("/groups/{}/remove", group.id)),
            (t.say("groups.remove"), about, t.say("groups.remove")),
        )
    });
    let template = GroupPage {
        layout: request.layout(title).below("/groups", t.say("nav.groups")).with(Script::Offers),
        t,
        banner: state.banner(),
        is_default: group.is_some_and(|group| group.name == default_of_new_members(request)),
        group: group.map(|group| GroupDetail::of(t, group, spent.as_ref())),
        form,
        danger,
        offers,
        is_faulty: false,
    };
    PageReply::page(state.status(), &template)
}

async fn preview_new(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    show_offers(&request, None).await
}

async fn preview(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let group = read_group(&request).await?;
    show_offers(&request, Some(&group)).await
}

/// The sent form, with the offers that the group would have and the accounts that its price limit would exclude.
async fn show_offers(request: &PageRequest, group: Option<&GroupObject>) -> Result<PageReply, PageFailure> {
    let form = sent_form(request).await?;
    let found = offers(request, group, &form).await;
    if request.wants_part() {
        return offers_part(request, &form, found);
    }
    match found {
        Ok(offers) => group_page(request, group, &FormState::of(form), Some(offers)).await,
        Err(error) => refuse(request, group, (&form, error)).await,
    }
}

fn offers_part(request: &PageRequest, form: &FormData, found: Result<Offers, ApiError>) -> Result<PageReply, PageFailure> {
    let (layout, t) = (request.layout(""), request.t());
    let offers = match found {
        Ok(offers) => Some(offers),
        Err(error) => {
            // An error that is not about a field is returned.
            form::refused(t, form, error)?;
            None
        }
    };
    PageReply::ok(&OffersPart { layout, t, is_faulty: offers.is_none(), offers })
}

/// `group`: also the accounts that its price limit would exclude.
async fn offers(request: &PageRequest, group: Option<&GroupObject>, form: &FormData) -> Result<Offers, ApiError> {
    let t = request.t();
    check_price_limit(form)?;
    let body = form::body(form);
    let asked = ["channels", "models", "sale_multiplier", "model_multipliers"].into_iter();
    let asked = asked.filter_map(|name| Some((name.to_owned(), body.get(name)?.clone()))).collect();
    let call = ApiCall { body: asked, ..ApiCall::default() };
    let found = request.read::<ApiPage<OfferAnswer>>(operations::PREVIEW_GROUP_OFFERS, call).await?;
    let effects = if group.is_some() {
        let call = ApiCall { body, query: "dry_run=true".to_owned(), ..of_group(request) };
        let answer: EffectsAnswer = request.read(operations::CHANGE_GROUP, call).await?;
        answer.effects.iter().map(|effect| EffectRow::of(t, effect)).collect()
    } else {
        // A new group has no callers yet.
        Vec::new()
    };
    let all = found.items.len();
    Ok(Offers {
        count: t.say_count("groups.offer", "groups.offers", u64::try_from(all).unwrap_or(u64::MAX)),
        rows: found.items.into_iter().take(MAX_OFFERS).map(|offer| GroupOfferRow::of(t, offer)).collect(),
        is_cut: all > MAX_OFFERS,
        effects,
    })
}

async fn make(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = sent_form(&request).await?;
    let mut body = form::body(&form);
    body.insert("name".to_owned(), request.form.value("name").trim().into());
    let call = |query| ApiCall { body: body.clone(), query, ..ApiCall::default() };
    let made = match check_price_limit(&form) {
        Ok(()) => request.call(operations::MAKE_GROUP, call(confirmed(&form))).await,
        Err(error) => Err(error),
    };
    match made {
        Ok(answer) => {
            let made: Value = read_answer(answer)?;
            let path = format!("/groups/{}", made["id"].as_str().unwrap_or_default());
            Ok(PageReply::redirect(&request.url(&path)).toast(Toast::Saved))
        }
        Err(error) => {
            let free = format!("group of {}", request.meta.id);
            let call = call(String::new());
            let error = with_further_faults(&request, operations::MAKE_GROUP, call, error, &[("name", &free)]).await;
            refuse(&request, None, (&form, error)).await
        }
    }
}

async fn change(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let group = read_group(&request).await?;
    let form = sent_form(&request).await?;
    let body = form::body(&form);
    let call = |query| ApiCall { body: body.clone(), query, ..of_group(&request) };
    let changed = match check_price_limit(&form) {
        Ok(()) => request.call_at_revision(operations::CHANGE_GROUP, call(confirmed(&form))).await.map(|_| ()),
        Err(error) => Err(error),
    };
    match changed {
        Ok(()) => Ok(PageReply::redirect(&request.url(&format!("/groups/{}", group.id))).toast(Toast::Saved)),
        Err(error) => {
            let error = with_further_faults(&request, operations::CHANGE_GROUP, call(String::new()), error, &[]).await;
            refuse(&request, Some(&group), (&form, error)).await
        }
    }
}

/// The query of a change that is saved although price limits leave a model without any account.
fn confirmed(form: &FormData) -> String {
    if form.value("confirm") == "true" { "confirm=true".to_owned() } else { String::new() }
}

async fn remove(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let group = read_group(&request).await?;
    let removed = match check_typed_name(&request.form, &group.name) {
        Ok(()) => request.call(operations::REMOVE_GROUP, of_group(&request)).await,
        Err(error) => Err(error),
    };
    match removed {
        Ok(_) => Ok(PageReply::redirect(&request.url("/groups")).toast(Toast::Removed)),
        Err(error) => {
            // The request has only the typed name; the form shows the stored values.
            let mut values: Vec<(String, String)> =
                form::values(&group).pairs().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            values.extend(request.form.pairs().map(|(name, value)| (name.to_owned(), value.to_owned())));
            let state = form::refused(request.t(), &FormData::of_pairs(values), error)?;
            group_page(&request, Some(&group), &state, None).await
        }
    }
}

async fn refuse(
    request: &PageRequest,
    group: Option<&GroupObject>,
    (form, error): (&FormData, ApiError),
) -> Result<PageReply, PageFailure> {
    let state = form::refused(request.t(), form, error)?;
    group_page(request, group, &state, None).await
}

fn square_about(t: Locale, group: &GroupObject) -> String {
    let values = [("name", group.name.as_str()), ("multiplier", group.sale_multiplier.as_str())];
    if group.model_multipliers.is_empty() {
        t.say_with("groups.square_about", &values)
    } else {
        t.say_with("groups.square_about_varies", &values)
    }
}

/// The model square as callers of the group see it.
async fn square(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    const MAX_SHOWN: usize = 300;
    let t = request.t();
    let group = read_group(&request).await?;
    let found = request.read::<SquareDocument>(operations::SHOW_SQUARE, get(&[("group", &group.name)])).await;
    let document = match found {
        Ok(document) => document,
        // A node learns within a second of a group that another one has made.
        Err(error) if error.status == http::StatusCode::NOT_FOUND => SquareDocument::default(),
        Err(error) => return Err(error.into()),
    };
    let template = SquarePage {
        layout: request.layout(group.name.clone()).below("/groups", t.say("nav.groups")),
        t,
        about: square_about(t, &group),
        cards: cards(&request, &document, &group.name, MAX_SHOWN),
        is_cut: document.data.len() > MAX_SHOWN,
    };
    PageReply::ok(&template)
}
