//! Registration: a visitor chooses a name and a password, and becomes a member.

use std::sync::Arc;

use askama::Template;

use super::{
    control::Control,
    form::FormState,
    layout::{Layout, Script},
    locale::Locale,
    operations,
    password_link::{PasswordStrength, check_repeated, new_password},
    reply::{PageFailure, PageReply},
    request::PageRequest,
    route::{PageRoute, SeenBy, page},
    sign_in::{HOME, SignInStep, proceed},
};
use crate::{api_error::ApiError, response::ApiResponse};

pub(super) static ROUTES: &[PageRoute] =
    &[PageRoute::get("/register", SeenBy::Anyone, page!(show)), PageRoute::post("/register", SeenBy::Anyone, page!(send))];

const FIELDS: &[&str] = &["name", "email", "new_password", "new_password_again"];

#[derive(Debug, Template)]
#[template(path = "register.html")]
struct RegisterPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    name: Control,
    email: Control,
    password: Control,
    again: Control,
    strength: PasswordStrength,
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    if request.signed_in.is_some() {
        return Ok(PageReply::redirect(&request.url(HOME)));
    }
    if !request.state.gateway.registration().is_open() {
        return Err(ApiError::registration_closed().into());
    }
    register_page(&request, &FormState::default())
}

fn register_page(request: &PageRequest, form: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let (password, again) = new_password(t, form);
    let template = RegisterPage {
        layout: request.layout(t.say("register.title")).public_shell().with(Script::Password),
        t,
        banner: form.banner(),
        name: form.text("name", t.say("invite.name")).autocomplete("username").hint(t.say("invite.name_hint")).required().focus(),
        email: form.typed("email", t.say("invite.email"), "email").autocomplete("email"),
        password,
        again,
        strength: PasswordStrength::of(t),
    };
    PageReply::page(form.status(), &template)
}

async fn register(request: &PageRequest) -> Result<ApiResponse, ApiError> {
    let form = &request.form;
    let mut sent = vec![("name", form.value("name").trim()), ("new_password", check_repeated(form)?)];
    sent.extend(form.filled("email").map(|email| ("email", email)));
    request.send(operations::REGISTER, &sent).await
}

async fn send(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    if request.signed_in.is_some() {
        return Ok(PageReply::redirect(&request.url(HOME)));
    }
    match register(&request).await {
        Ok(answer) => proceed(&request, SignInStep::of(answer), HOME),
        Err(error) => {
            let error = if error.code() == "login_taken" { error.about("name") } else { error };
            register_page(&request, &FormState::refused(request.t(), &request.form, &error, FIELDS)?)
        }
    }
}
