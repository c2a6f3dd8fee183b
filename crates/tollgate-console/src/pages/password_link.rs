//! One-time links that set a password: that of the first admin at the first start, and those for members who forgot theirs.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;

use super::{
    control::Control,
    form::{FormData, FormState},
    format::{self, TimeText},
    layout::{Layout, Script},
    locale::Locale,
    operations,
    reply::{PageFailure, PageReply},
    request::{PageRequest, read_answer},
    route::{PageRoute, SeenBy, page},
    set_up::{SetUpStep, steps},
    sign_in::{HOME, SignInStep, proceed},
};
use crate::{
    api_error::ApiError,
    identity::password::{COMMON, MAX_CHARS, MIN_CHARS},
};

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/setup", SeenBy::Anyone, page!(show)),
    PageRoute::post("/setup", SeenBy::Anyone, page!(send)),
    PageRoute::get("/reset-password", SeenBy::Anyone, page!(show)),
    PageRoute::post("/reset-password", SeenBy::Anyone, page!(send)),
];

#[derive(Debug, Template)]
#[template(path = "password_link.html")]
struct PasswordLinkPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    link: LinkView,
    /// The steps of the set-up, if it begins here.
    steps: Vec<SetUpStep>,
    token: String,
    /// The name of the first admin, in the set-up.
    name: Option<Control>,
    password: Control,
    again: Control,
    strength: PasswordStrength,
    expires_at: Option<TimeText>,
}

#[derive(Debug, Deserialize)]
struct LinkView {
    member: String,
    kind: String,
    expires_at: String,
}

impl LinkView {
    fn is_set_up(&self) -> bool {
        self.kind == "set_up"
    }
}

/// Refuses a new password that was typed differently the second time.
pub(super) fn check_repeated(form: &FormData) -> Result<&str, ApiError> {
    let password = form.value("new_password");
    if form.value("new_password_again") == password {
        Ok(password)
    } else {
        Err(ApiError::value("new_password_again", "the two passwords differ"))
    }
}

/// The two fields of a new password.
pub(super) fn new_password(t: Locale, form: &FormState) -> (Control, Control) {
    let (min, max) = (MIN_CHARS.to_string(), MAX_CHARS.to_string());
    let hint = t.say_with("password.hint", &[("min", &min), ("max", &max)]);
    (
        form.secret("new_password", t.say("password.new")).hint(hint).required(),
        form.secret("new_password_again", t.say("password.again")).required(),
    )
}

/// How hard a new password is to guess, which a script shows while it is typed.
#[derive(Debug, Template)]
#[template(path = "parts/password_strength.html")]
pub(super) struct PasswordStrength {
    t: Locale,
    min: usize,
    /// Passwords that are refused because they are the most common.
    tried_first: String,
    short: String,
}

impl PasswordStrength {
    pub(super) fn of(t: Locale) -> Self {
        let (min, max) = (MIN_CHARS.to_string(), MAX_CHARS.to_string());
        let short = t.say_with("problem.password_length", &[("min", &min), ("max", &max)]);
        Self { t, min: MIN_CHARS, tried_first: COMMON.join(" "), short }
    }
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    link_page(&request, request.query.value("token"), None).await
}

/// `form`: one that was sent.
async fn link_page(request: &PageRequest, token: &str, form: Option<&FormState>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let link: LinkView = read_answer(request.send(operations::CHECK_PASSWORD_LINK, &[("token", token)]).await?)?;
    let title = if link.is_set_up() { t.say("set_up.title") } else { t.say("reset.title") };
    let first = FormState::of(FormData::of(&[("name", &link.member)]));
    let form = form.unwrap_or(&first);
    let (password, again) = new_password(t, form);
    let name = link.is_set_up().then(|| {
        form.text("name", t.say("invite.name")).autocomplete("username").hint(t.say("invite.name_hint")).required().focus()
    });
    let template = PasswordLinkPage {
        layout: request.layout(title).public_shell().with(Script::Password),
        t,
        banner: form.banner(),
        token: token.to_owned(),
        password: if name.is_some() { password } else { password.focus() },
        name,
        again,
        strength: PasswordStrength::of(t),
        expires_at: format::time(t, &link.expires_at),
        steps: if link.is_set_up() { steps(t, 0) } else { Vec::new() },
        link,
    };
    PageReply::page(form.status(), &template)
}

async fn send(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (form, token) = (&request.form, request.form.value("token"));
    let is_set_up = request.address.starts_with("/setup");
    let sent = match check_repeated(form) {
        Ok(password) => {
            let mut fields = vec![("token", token), ("new_password", password)];
            fields.extend(is_set_up.then(|| ("name", form.value("name").trim())));
            request.send(operations::USE_PASSWORD_LINK, &fields).await
        }
        Err(error) => Err(error),
    };
    match sent {
        Ok(answer) => proceed(&request, SignInStep::of(answer), if is_set_up { "/setup/gateway" } else { HOME }),
        Err(error) if error.param() == Some("token") => Err(error.into()),
        Err(error) => {
            let error = if error.code() == "already_exists" { error.about("name") } else { error };
            let form = FormState::refused(request.t(), form, &error, &["name", "new_password", "new_password_again"])?;
            link_page(&request, token, Some(&form)).await
        }
    }
}
