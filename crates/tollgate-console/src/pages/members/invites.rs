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
        control::{self, ControlSection, FaultPlace, FormView, Pager, Tab},
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
        form: request.state.gateway.registration().takes_invites().then(|| {
            FormView::new(request.url("/members/invites"), vec![ControlSection::new("", controls)], t.say("members.invite_make"))
        }),
        rows,
        pager: request.pager("/members/invites", count, found.next.as_deref()),
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

pub(super) async fn revoke(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let call = ApiCall { path: path_of(&[("invite", request.path_param("invite"))]), ..ApiCall::default() };
    match request.call(operations::REVOKE_INVITE, call).await {
        Ok(_) => Ok(PageReply::redirect(&request.url("/members/invites")).toast(Toast::Removed)),
        Err(error) => invites_page(&request, &refused(request.t(), &request.form, error)?, None).await,
    }
}
