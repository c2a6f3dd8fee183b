//! Members: the list, each member with login, sessions, limits and money; invites and admin keys. Operators read members, admins
//! change them.

mod admin_keys;
mod drawer;
mod export;
mod filter;
mod form;
mod groups;
mod invites;
mod login;
mod view;

use std::{collections::HashMap, sync::Arc};

use askama::Template;
use serde_json::{Map, Value};
use tollgate_store::{AdminScope, ViewPage};

use self::{
    drawer::MemberDrawer,
    filter::MemberFilter,
    groups::MemberGroups,
    view::{BalanceObject, LoginObject, MemberDetail, MemberObject, MemberRow, MemberSpent},
};
use super::{
    control::{Control, ControlSection, Danger, FormView, Pager, Tab, check_typed_name, decimal},
    form::{FormData, FormState},
    format,
    layout::{Layout, Script},
    ledger::{EntryObject, LedgerRow},
    locale::Locale,
    money, operations,
    overview::sums::WITHOUT_TIMES,
    preferences::Toast,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get, path_of, read_answer},
    route::{PageRoute, SeenBy, page},
    sessions::SessionEntry,
    suggestions::{Names, Suggestions},
    views::SavedViews,
};
use crate::{api_error::ApiError, dispatch::ApiCall};

const OPERATOR: SeenBy = SeenBy::Role(AdminScope::Operator);
const ADMIN: SeenBy = SeenBy::Role(AdminScope::Admin);

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/members", OPERATOR, page!(list)),
    PageRoute::get("/members.csv", OPERATOR, page!(export::csv)),
    PageRoute::get("/members/new", ADMIN, page!(new)),
    PageRoute::post("/members/new", ADMIN, page!(make)),
    PageRoute::get("/members/invites", ADMIN, page!(invites::list)),
    PageRoute::post("/members/invites", ADMIN, page!(invites::make)),
    PageRoute::get("/members/invites/{invite}/revoke", ADMIN, page!(invites::ask_revoking)),
    PageRoute::post("/members/invites/{invite}/revoke", ADMIN, page!(invites::revoke)),
    PageRoute::get("/members/admin-keys", ADMIN, page!(admin_keys::list)),
    PageRoute::post("/members/admin-keys", ADMIN, page!(admin_keys::make)),
    PageRoute::get("/members/admin-keys/{admin_key}", ADMIN, page!(admin_keys::detail)),
    PageRoute::post("/members/admin-keys/{admin_key}/revoke", ADMIN, page!(admin_keys::revoke)),
    PageRoute::get("/members/{name}", OPERATOR, page!(detail)),
    PageRoute::post("/members/{name}", ADMIN, page!(change)),
    PageRoute::post("/members/{name}/activate", ADMIN, page!(activate)),
    PageRoute::post("/members/{name}/ledger", ADMIN, page!(post_money)),
    PageRoute::post("/members/{name}/password-link", ADMIN, page!(login::make_link)),
    PageRoute::post("/members/{name}/login", ADMIN, page!(login::change_email)),
    PageRoute::post("/members/{name}/codes", ADMIN, page!(login::reset_codes)),
    PageRoute::post("/members/{name}/passkeys", ADMIN, page!(login::remove_passkeys)),
    PageRoute::post("/members/{name}/unlink", ADMIN, page!(login::unlink)),
    PageRoute::post("/members/{name}/sessions/{session}/end", ADMIN, page!(login::end_session)),
    PageRoute::post("/members/{name}/remove", ADMIN, page!(remove)),
];

/// Members on a page of the list.
const PAGE: &str = "50";
/// Balances that are read at once: those of a page, and of the parts of a file.
const MAX_BALANCES: &str = "100";
/// Entries of the ledger beside a member.
const ENTRIES: &str = "5";

#[derive(Debug, Template)]
#[template(path = "members.html")]
struct MembersPage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    is_admin: bool,
    /// Value, label, and whether it is chosen.
    roles: Vec<(&'static str, &'static str, bool)>,
    states: Vec<(&'static str, String, bool)>,
    sorts: Vec<(&'static str, &'static str, bool)>,
    filter: MemberFilter,
    /// The address of the same list as a file.
    csv: String,
    views: SavedViews,
    suggestions: Suggestions,
    rows: Vec<MemberRow>,
    pager: Pager,
    /// The member that the address opens beside the list.
    open: Option<MemberDrawer>,
}

#[derive(Debug, Template)]
#[template(path = "member.html")]
struct MemberPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    member: MemberDetail,
    /// The link that sets a password, shown only once.
    link: Option<String>,
    /// Admins only, as all that follows.
    form: Option<FormView>,
    money: Option<FormView>,
    entries: Vec<LedgerRow>,
    sessions: Vec<SessionEntry>,
    danger: Option<Danger>,
    /// The own password, before a link for a new one is made; `None`: the reader has none.
    link_password: Option<Control>,
    /// Switching off one-time codes, if they are on.
    codes: Option<Danger>,
    /// The removal of all passkeys, if there are any.
    passkeys: Option<Danger>,
    /// The unlinking of the account of the OpenID provider, if there is one.
    unlink: Option<Danger>,
}

#[derive(Debug, Template)]
#[template(path = "member_new.html")]
struct NewMemberPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    form: FormView,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MembersTab {
    Members,
    Invites,
    AdminKeys,
}

/// Members, invites and admin keys; operators see members alone.
fn tabs(request: &PageRequest, current: MembersTab) -> Vec<Tab> {
    if !request.is_admin() {
        return Vec::new();
    }
    let t = request.t();
    let tab = |tab: MembersTab, label, path| Tab { label, link: request.url(path), is_current: tab == current };
    vec![
        tab(MembersTab::Members, t.say("nav.members"), "/members"),
        tab(MembersTab::Invites, t.say("members.invites"), "/members/invites"),
        tab(MembersTab::AdminKeys, t.say("admin_keys.title"), "/members/admin-keys"),
    ]
}

/// The part of a query that a saved view keeps.
pub(super) fn kept_query(query: &FormData) -> String {
    MemberFilter::of(query).address()
}

async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, query) = (request.t(), &request.query);
    let filter = MemberFilter::of(query);
    let mut pairs = filter.pairs();
    pairs.push(("limit", PAGE));
    pairs.extend(query.filled("after").map(|after| ("after", after)));
    let (listed, open, views, suggestions) = tokio::join!(
        listed(&request, pairs),
        MemberDrawer::opened(&request),
        SavedViews::read(&request, ViewPage::Members),
        Suggestions::of(&request, &[Names::Groups])
    );
    let (found, (spent, balances)) = listed?;
    let of = (t, request.state.gateway.now());
    let row = |member: &MemberObject| MemberRow::of(of, member, spent.get(&member.id), balances.get(&member.id));
    let rows: Vec<MemberRow> = found.items.iter().map(row).collect();
    let count = t.say_count("members.one", "members.count", u64::try_from(rows.len()).unwrap_or(u64::MAX));
    let template = MembersPage {
        layout: request.layout(t.say("nav.members")).wide().with(Script::Tables).with(Script::Drawer),
        t,
        open: open?,
        tabs: tabs(&request, MembersTab::Members),
        is_admin: request.is_admin(),
        roles: filter.roles(t),
        states: filter.states(t),
        sorts: filter.sorts(t),
        csv: request.at("/members.csv", &Vec::new()),
        filter,
        views: views?,
        suggestions,
        rows,
        pager: request.pager("/members", count, found.next.as_deref()),
    };
    PageReply::ok(&template)
}

/// Usage and balances by member id.
type Figures = (HashMap<String, MemberSpent>, HashMap<String, String>);

/// The members with their usage and balances.
async fn listed(request: &PageRequest, pairs: Vec<(&str, &str)>) -> Result<(ApiPage<MemberObject>, Figures), ApiError> {
    let found = found(request, pairs).await?;
    let figures = tokio::try_join!(spent(request, &found.items), balances(request, &found.items))?;
    Ok((found, figures))
}

/// The members with their last requests. While the database is busy the list is shown without them.
async fn found(request: &PageRequest, mut pairs: Vec<(&str, &str)>) -> Result<ApiPage<MemberObject>, ApiError> {
    let without_use = get(&pairs);
    pairs.push(("use", "true"));
    match request.read(operations::LIST_MEMBERS, get(&pairs)).await {
        Err(error) if error.code() == "server_overloaded" => request.read(operations::LIST_MEMBERS, without_use).await,
        read => read,
    }
}

/// Usage of these members in this UTC month, by id; empty if the database is busy.
async fn spent(request: &PageRequest, members: &[MemberObject]) -> Result<HashMap<String, MemberSpent>, ApiError> {
    if members.is_empty() {
        return Ok(HashMap::new());
    }
    let since = format::month_begin(request.state.gateway.now());
    let ids = ids(members);
    let query = [("by", "member"), ("since", since.as_str()), ("members", ids.as_str()), WITHOUT_TIMES];
    match request.read::<ApiPage<MemberSpent>>(operations::SUM_USAGE, get(&query)).await {
        Ok(sums) => Ok(sums.items.into_iter().map(|sum| (sum.of.clone(), sum)).collect()),
        Err(error) if error.code() == "server_overloaded" => Ok(HashMap::new()),
        Err(error) => Err(error),
    }
}

/// Ids in one parameter.
fn ids(members: &[MemberObject]) -> String {
    members.iter().map(|member| member.id.as_str()).collect::<Vec<_>>().join(",")
}

/// Balances by member id, for admins.
async fn balances(request: &PageRequest, members: &[MemberObject]) -> Result<HashMap<String, String>, ApiError> {
    if !request.is_admin() || members.is_empty() {
        return Ok(HashMap::new());
    }
    let filter = get(&[("members", &ids(members)), ("limit", MAX_BALANCES)]);
    let found = request.read::<ApiPage<BalanceObject>>(operations::LIST_BALANCES, filter).await?;
    Ok(found.items.into_iter().map(|balance| (balance.member, balance.balance)).collect())
}

async fn new(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    new_page(&request, &FormState::of(form::defaults())).await
}

async fn new_page(request: &PageRequest, state: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let mut sections = form::sections(t, state, &MemberGroups::read(request).await?);
    let name = state.text("name", t.say("members.name")).hint(t.say("members.name_hint")).max(100).required().focus();
    sections.insert(0, ControlSection::new("", vec![name]));
    let form = FormView::new(request.url("/members/new"), sections, t.say("members.make")).cancel(request.url("/members"));
    let layout = request.layout(t.say("members.new")).below("/members", t.say("nav.members"));
    PageReply::page(state.status(), &NewMemberPage { layout, t, banner: state.banner(), form })
}

async fn make(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let mut body = form::body(&request.form);
    body.insert("name".to_owned(), request.form.value("name").trim().into());
    match request.call(operations::MAKE_MEMBER, ApiCall { body, ..ApiCall::default() }).await {
        Ok(answer) => {
            let made: Value = read_answer(answer)?;
            let path = format!("/members/{}", made["id"].as_str().unwrap_or_default());
            Ok(PageReply::redirect(&request.url(&path)).toast(Toast::Saved))
        }
        Err(error) => new_page(&request, &form::refused(request.t(), &request.form, error)?).await,
    }
}

fn of_member(request: &PageRequest) -> ApiCall {
    ApiCall { path: path_of(&[("name", request.path_param("name"))]), ..ApiCall::default() }
}

async fn read_member(request: &PageRequest) -> Result<MemberObject, ApiError> {
    request.read(operations::GET_MEMBER, of_member(request)).await
}

async fn detail(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let member = read_member(&request).await?;
    if request.wants_part() {
        return PageReply::ok(&MemberDrawer::of(&request, &member).await?);
    }
    let state = FormState::of(form::values(&member));
    member_page(&request, &member, &state, None).await
}

/// The page of a member; with `link` just after it was made.
async fn member_page(
    request: &PageRequest,
    member: &MemberObject,
    state: &FormState,
    link: Option<String>,
) -> Result<PageReply, PageFailure> {
    let (t, is_admin) = (request.t(), request.is_admin());
    let since = format::month_begin(request.state.gateway.now());
    let query = [("by", "member"), ("since", since.as_str()), ("member", member.id.as_str()), WITHOUT_TIMES];
    let spent = request.read::<ApiPage<MemberSpent>>(operations::SUM_USAGE, get(&query)).await?.items.into_iter().next();
    let path = request.url(&format!("/members/{}", member.id));
    let mut template = MemberPage {
        layout: request.layout(member.name.clone()).below("/members", t.say("nav.members")),
        t,
        banner: state.banner(),
        member: MemberDetail::of(t, member, spent.as_ref()),
        link,
        form: None,
        money: None,
        entries: Vec::new(),
        sessions: Vec::new(),
        danger: None,
        link_password: None,
        codes: None,
        passkeys: None,
        unlink: None,
    };
    if is_admin {
        let login: LoginObject = request.read(operations::GET_LOGIN, of_member(request)).await?;
        let danger = |field, below: &str, title, about: &str| {
            Danger::in_field(field, t, state, format!("{path}/{below}"), (title, about.to_owned(), title))
        };
        template.codes = login.totp.then(|| {
            let about = t.say("members.reset_codes_about");
            danger(form::CODES_NAME, "codes", t.say("members.reset_codes"), about)
        });
        template.passkeys = (login.passkeys > 0).then(|| {
            let about = t.say("members.remove_passkeys_about");
            danger(form::PASSKEYS_NAME, "passkeys", t.say("members.remove_passkeys"), about)
        });
        template.unlink = login.oidc.then(|| {
            let about = t.say("members.unlink_about");
            danger(form::UNLINK_NAME, "unlink", t.say("members.unlink"), about)
        });
        template.link_password =
            request.has_password().then(|| state.current_password(form::LINK_PASSWORD, t.say("form.own_password")));
        template.member.add_login(t, &login, state);
        let query = [("member", member.id.as_str()), ("limit", ENTRIES)];
        let entries = request.read::<ApiPage<EntryObject>>(operations::LIST_LEDGER, get(&query)).await?;
        template.member.balance = Some(money::rounded(t, entries.items.first().map_or("0", |entry| entry.balance.as_str())));
        template.sessions = SessionEntry::of_member(request, &member.id, &format!("/members/{}", member.id)).await?;
        template.entries = entries.items.iter().map(|entry| LedgerRow::of(t, entry)).collect();
        if member.owner != "file" {
            // If another form of the page was sent, this one shows the stored values.
            let is_of_form = state.has("role");
            let kept = if is_of_form { state.clone() } else { FormState::of(form::values(member)) };
            let sections = form::sections(t, &kept, &MemberGroups::read(request).await?);
            template.form = Some(FormView::new(path.clone(), sections, t.say("form.save")).at_revision(&kept, member.revision));
            let about = t.say("members.remove_about").to_owned();
            let words = (t.say("members.remove"), about, t.say("members.remove"));
            template.danger = Some(Danger::new(t, state, format!("{path}/remove"), words));
        }
        template.money = Some(money_form(request, state, &path));
    }
    PageReply::page(state.status(), &template)
}

/// A top-up or an adjustment. Because of the key, a form that is sent twice makes one posting.
fn money_form(request: &PageRequest, state: &FormState, path: &str) -> FormView {
    let t = request.t();
    let kinds = [("top_up", t.say("ledger.top_up")), ("adjust", t.say("ledger.adjust"))];
    let controls = vec![
        state.choice("money_kind", t.say("ledger.kind"), kinds).hint(t.say("ledger.kind_hint")),
        state.number("amount", t.say("ledger.amount_usd")).hint(t.say("ledger.amount_hint")).required(),
        state.text("note", t.say("ledger.note")).hint(t.say("ledger.note_hint")).max(1_000).wide(),
    ];
    // A form that was refused was not posted: it keeps its key.
    let key = match state.value("money_key") {
        "" => format!("page-{}", request.meta.id),
        key => key.to_owned(),
    };
    FormView::new(format!("{path}/ledger"), vec![ControlSection::new(t.say("ledger.title"), controls)], t.say("ledger.post"))
        .hidden("money_key", key)
}

async fn refuse(request: &PageRequest, member: &MemberObject, error: ApiError) -> Result<PageReply, PageFailure> {
    let state = form::refused(request.t(), &request.form, error)?;
    member_page(request, member, &state, None).await
}

fn to_member(request: &PageRequest, member: &MemberObject, toast: Toast) -> PageReply {
    PageReply::redirect(&request.url(&format!("/members/{}", member.id))).toast(toast)
}

async fn change(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let member = read_member(&request).await?;
    let body = form::body(&request.form);
    let call = ApiCall { body, ..of_member(&request) };
    match request.call_at_revision(operations::CHANGE_MEMBER, call).await {
        Ok(_) if member.status == "active" && request.form.value("status") == "suspended" => {
            let path = request.url(&format!("/members/{}", member.id));
            Ok(PageReply::redirect(&path).toast_with_undo(Toast::MemberOff, &[&member.id]))
        }
        Ok(_) => Ok(to_member(&request, &member, Toast::Saved)),
        Err(error) => refuse(&request, &member, error).await,
    }
}

/// Undoes the suspension of a member.
async fn activate(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let member = read_member(&request).await?;
    let body = Map::from_iter([("status".to_owned(), Value::from("active"))]);
    match request.call(operations::CHANGE_MEMBER, ApiCall { body, ..of_member(&request) }).await {
        Ok(_) => Ok(to_member(&request, &member, Toast::MemberOn)),
        Err(error) => refuse(&request, &member, error).await,
    }
}

async fn post_money(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (form, member) = (&request.form, read_member(&request).await?);
    let operation = if form.value("money_kind") == "adjust" { operations::ADJUST } else { operations::TOP_UP };
    let mut body = Map::new();
    for (name, value) in
        [("member", member.id.clone()), ("amount", decimal(form.value("amount"))), ("note", form.value("note").trim().to_owned())]
    {
        body.insert(name.to_owned(), value.into());
    }
    let call = ApiCall { body, ..ApiCall::default() };
    match request.call_with(operation, call, &[("idempotency-key", form.value("money_key"))]).await {
        Ok(_) => Ok(to_member(&request, &member, Toast::Posted)),
        Err(error) => refuse(&request, &member, error).await,
    }
}

async fn remove(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let member = read_member(&request).await?;
    let removed = match check_typed_name(&request.form, &member.name) {
        Ok(()) => request.call(operations::REMOVE_MEMBER, of_member(&request)).await,
        Err(error) => Err(error),
    };
    match removed {
        Ok(_) => Ok(PageReply::redirect(&request.url("/members")).toast(Toast::Removed)),
        Err(error) => refuse(&request, &member, error).await,
    }
}
