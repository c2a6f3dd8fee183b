//! Invites: links with which people become members.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    MembersTab,
    form::roles,
    groups::{self, MemberGroups},
    tabs,
    view::role,
};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        audit_action,
        control::{self, ControlSection, FaultPlace, FormView, Pager, TYPED_NAME, Tab, check_typed_name},
        form::{FormData, FormState},
        format::{self, TimeText},
        layout::Layout,
        locale::Locale,
        mark::Mark,
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get, path_of, read_answer},
    },
};

const PATH: &str = "/members/invites";
/// Invites on a page.
const PAGE: &str = "100";
const PLACES: &[FaultPlace] = &[("groups", "groups", "unknown_group"), ("expires_at", "expires", "past"), ("note", "note", "")];

#[derive(Debug, Template)]
#[template(path = "invites.html")]
struct InvitesPage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    banner: Option<String>,
    /// The link of the invite that was just made.
    link: Option<String>,
    /// `None` while registration is off.
    form: Option<FormView>,
    rows: Vec<InviteRow>,
    pager: Pager,
}

#[derive(Debug, Template)]
#[template(path = "member_new.html")]
struct RevokingPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    form: FormView,
}

#[derive(Debug, Deserialize)]
struct InviteObject {
    id: String,
    role: String,
    groups: Vec<String>,
    note: String,
    expires_at: String,
    state: String,
    member: Option<String>,
    created_by: String,
    created_at: String,
}

#[derive(Debug)]
struct InviteRow {
    id: String,
    note: String,
    role: &'static str,
    groups: String,
    mark: Mark,
    is_open: bool,
    member: Option<String>,
    created_by: String,
    created: Option<TimeText>,
    expires: Option<TimeText>,
}

impl InviteRow {
    fn of(t: Locale, invite: &InviteObject) -> Self {
        let mark = match invite.state.as_str() {
            "open" => Mark::new("info", "clock", t.say("members.invite_open")),
            "accepted" => Mark::new("ok", "okc", t.say("members.invite_accepted")),
            "revoked" => Mark::new("off", "x", t.say("key.revoked")),
            _ => Mark::new("off", "clock", t.say("key.expired")),
        };
        Self {
            id: invite.id.clone(),
            note: invite.note.clone(),
            role: role(t, &invite.role),
            groups: invite.groups.join(t.say("list.separator")),
            mark,
            is_open: invite.state == "open",
            member: invite.member.clone(),
            created_by: audit_action::author(&invite.created_by).to_owned(),
            created: format::time(t, &invite.created_at),
            expires: format::time(t, &invite.expires_at),
        }
    }
}

pub(super) async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    invites_page(&request, &FormState::of(FormData::of(&[("role", "member")])), None).await
}

async fn invites_page(request: &PageRequest, state: &FormState, link: Option<String>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let mut filter = vec![("limit", PAGE), ("sort", "newest")];
    filter.extend(request.query.filled("after").map(|after| ("after", after)));
    let found = request.read::<ApiPage<InviteObject>>(operations::LIST_INVITES, get(&filter)).await?;
    let controls = vec![
        state.text("note", t.say("members.invite_note")).hint(t.say("members.invite_note_hint")).max(200),
        state.choice("role", t.say("members.role"), roles(t)),
        MemberGroups::read(request).await?.private_control(t, state),
        state.typed("expires", t.say("members.invite_until"), "date").hint(t.say("members.invite_until_hint")),
    ];
    // The newest invites are on the first page. On each page, those that can still be used come first.
    let mut rows: Vec<InviteRow> = found.items.iter().map(|invite| InviteRow::of(t, invite)).collect();
    rows.sort_by_key(|row| !row.is_open);
    let count = t.say_count("members.invite_one", "members.invite_count", u64::try_from(rows.len()).unwrap_or(u64::MAX));
    let template = InvitesPage {
        layout: request.layout(t.say("nav.members")).wide(),
        t,
        tabs: tabs(request, MembersTab::Invites),
        banner: state.banner(),
        link,
        form: request
            .state
            .gateway
            .registration()
            .takes_invites()
            .then(|| FormView::new(request.url(PATH), vec![ControlSection::new("", controls)], t.say("members.invite_make"))),
        rows,
        pager: request.pager(PATH, count, found.next.as_deref()),
    };
    PageReply::page(state.status(), &template)
}

pub(super) async fn make(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let mut body = Map::new();
    for (field, name) in [("role", "role"), ("note", "note")] {
        body.extend(form.filled(field).map(|value| (name.to_owned(), value.into())));
    }
    body.insert("groups".to_owned(), groups::chosen(form));
    body.extend(form.filled("expires").map(|day| ("expires_at".to_owned(), format!("{day}T23:59:59Z").into())));
    match request.call(operations::MAKE_INVITE, ApiCall { body, ..ApiCall::default() }).await {
        Ok(answer) => {
            let made: Value = read_answer(answer)?;
            let link = made["link"].as_str().map(str::to_owned);
            invites_page(&request, &FormState::of(FormData::of(&[("role", "member")])), link).await
        }
        Err(error) => invites_page(&request, &refused(request.t(), form, error)?, None).await,
    }
}

fn refused(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    control::refused(t, form, error, PLACES)
}

fn of_invite(request: &PageRequest) -> ApiCall {
    ApiCall { path: path_of(&[("invite", request.path_param("invite"))]), ..ApiCall::default() }
}

/// The name of an invite: its note, or its id.
fn name(invite: &InviteObject) -> &str {
    match invite.note.trim() {
        "" => &invite.id,
        note => note,
    }
}

/// A revoked invite cannot be opened again, so its name is typed first.
pub(super) async fn ask_revoking(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let invite: InviteObject = request.read(operations::GET_INVITE, of_invite(&request)).await?;
    revoking_page(&request, &invite, &FormState::default())
}

fn revoking_page(request: &PageRequest, invite: &InviteObject, state: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let typed = state.text(TYPED_NAME, t.say("form.type_name")).required();
    let section = ControlSection::new("", vec![typed]).about(t.say("members.revoke_invite_about"));
    let action = request.url(&format!("{PATH}/{}/revoke", invite.id));
    let form = FormView::new(action, vec![section], t.say("keys.revoke_for_good")).dangerous().cancel(request.url(PATH));
    let layout = request.layout(name(invite)).below("/members", t.say("nav.members")).below(PATH, t.say("members.invites"));
    PageReply::page(state.status(), &RevokingPage { layout, t, banner: state.banner(), form })
}

pub(super) async fn revoke(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let invite: InviteObject = request.read(operations::GET_INVITE, of_invite(&request)).await?;
    let revoked = match check_typed_name(&request.form, name(&invite)) {
        Ok(()) => request.call(operations::REVOKE_INVITE, of_invite(&request)).await,
        Err(error) => Err(error),
    };
    match revoked {
        Ok(_) => Ok(PageReply::redirect(&request.url(PATH)).toast(Toast::Removed)),
        Err(error) => revoking_page(&request, &invite, &FormState::refused(request.t(), &request.form, &error, &[TYPED_NAME])?),
    }
}
