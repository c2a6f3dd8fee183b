//! Accepting an invite: the person who opens the link chooses a name and a password, and becomes a member.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;

use super::{
    control::Control,
    form::FormState,
    format::{self, TimeText},
    layout::{Layout, Script},
    locale::Locale,
    operations,
    password_link::{PasswordStrength, check_repeated, new_password},
    reply::{PageFailure, PageReply},
    request::{PageRequest, read_answer},
    route::{PageRoute, SeenBy, page},
    sign_in::{HOME, SignInStep, proceed},
};
use crate::response::ApiResponse;

pub(super) static ROUTES: &[PageRoute] =
    &[PageRoute::get("/invite", SeenBy::Anyone, page!(show)), PageRoute::post("/invite", SeenBy::Anyone, page!(send))];

const FIELDS: &[&str] = &["name", "email", "new_password", "new_password_again"];

#[derive(Debug, Template)]
#[template(path = "invite.html")]
struct InvitePage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    token: String,
    role: &'static str,
    groups: Vec<String>,
    expires_at: Option<TimeText>,
    name: Control,
    email: Control,
    password: Control,
    again: Control,
    strength: PasswordStrength,
}

#[derive(Debug, Deserialize)]
struct OfferView {
    role: String,
    groups: Vec<String>,
    expires_at: String,
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    invite_page(&request, request.query.value("token"), &FormState::default()).await
}

async fn invite_page(request: &PageRequest, token: &str, form: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let offer: OfferView = read_answer(request.send(operations::CHECK_INVITE, &[("token", token)]).await?)?;
    let (password, again) = new_password(t, form);
    let template = InvitePage {
        layout: request.layout(t.say("invite.title")).public_shell().with(Script::Password),
        t,
        banner: form.banner(),
        token: token.to_owned(),
        role: match offer.role.as_str() {
            "admin" => t.say("role.admin"),
            "operator" => t.say("role.operator"),
            _ => t.say("role.member"),
        },
        expires_at: format::time(t, &offer.expires_at),
        groups: offer.groups,
        name: form.text("name", t.say("invite.name")).autocomplete("username").hint(t.say("invite.name_hint")).required().focus(),
        email: form.typed("email", t.say("invite.email"), "email").autocomplete("email"),
        password,
        again,
        strength: PasswordStrength::of(t),
    };
    PageReply::page(form.status(), &template)
}

async fn accept(request: &PageRequest) -> Result<ApiResponse, crate::api_error::ApiError> {
    let form = &request.form;
    let password = check_repeated(form)?;
    let mut sent = vec![("token", form.value("token")), ("name", form.value("name").trim()), ("new_password", password)];
    sent.extend(form.filled("email").map(|email| ("email", email)));
    request.send(operations::ACCEPT_INVITE, &sent).await
}

async fn send(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    match accept(&request).await {
        Ok(answer) => proceed(&request, SignInStep::of(answer), HOME),
        Err(error) if error.param() == Some("token") => Err(error.into()),
        Err(error) => {
            // A name or an address that another member has.
            let error = if error.code() == "already_exists" { error.about("name") } else { error };
            let form = FormState::refused(request.t(), &request.form, &error, FIELDS)?;
            invite_page(&request, request.form.value("token"), &form).await
        }
    }
}
