//! The member's own page: password, one-time codes, passkeys, time zone, notices, sessions. The forms for language and theme are on
//! every page.

mod notices;

use std::{collections::HashMap, sync::Arc};

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_store::AdminScope;

use self::notices::NoticesView;
use super::{
    control::Control,
    form::{FormData, FormState},
    layout::{Layout, Script},
    locale::{Language, Locale},
    operations,
    passkeys::PasskeysView,
    password_link::{PasswordStrength, check_repeated, new_password},
    preferences::{Toast, keep},
    qr_code::QrCode,
    reply::{PageFailure, PageReply},
    request::{PageRequest, path_of, read_answer},
    route::{PageRoute, SeenBy, page},
    sessions::{self, SessionEntry},
};
use crate::{api::preferences, api_error::ApiError, dispatch::ApiCall};

const MEMBER: SeenBy = SeenBy::Role(AdminScope::Member);

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/profile", MEMBER, page!(show)),
    PageRoute::post("/profile/password", MEMBER, page!(change_password)),
    PageRoute::get("/profile/codes", MEMBER, page!(begin_codes)),
    PageRoute::post("/profile/codes", MEMBER, page!(enable_codes)),
    PageRoute::post("/profile/codes/off", MEMBER, page!(disable_codes)),
    PageRoute::post("/profile/codes/renew", MEMBER, page!(renew_codes)),
    PageRoute::post("/profile/time-zone", MEMBER, page!(change_display)),
    PageRoute::post("/profile/notices", MEMBER, page!(notices::change)),
    PageRoute::post("/profile/sessions/{session}/end", MEMBER, page!(end_session)),
    PageRoute::post("/profile/other-sessions/end", MEMBER, page!(end_other_sessions)),
];

#[derive(Debug, Template)]
#[template(path = "profile.html")]
struct ProfilePage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    login: LoginView,
    codes_left: String,
    passkeys: PasskeysView,
    sessions: Vec<SessionEntry>,
    has_other_sessions: bool,
    password: Control,
    new_password: Control,
    strength: PasswordStrength,
    again: Control,
    codes_password: Control,
    time_zone: Control,
    language: Control,
    theme: Control,
    notices: NoticesView,
}

#[derive(Debug, Deserialize)]
struct LoginView {
    email: Option<String>,
    password: bool,
    totp: bool,
    oidc: bool,
}

#[derive(Debug, Deserialize)]
struct TotpView {
    recovery_codes_left: u64,
}

#[derive(Debug, Template)]
#[template(path = "profile_codes.html")]
struct CodesPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    secret: SecretView,
    /// The address of the secret; `None` if it is too long.
    qr_code: Option<QrCode>,
    code: Control,
    password: Control,
}

#[derive(Debug, Deserialize)]
struct SecretView {
    /// In groups of four, as people type it.
    secret: String,
    uri: String,
    challenge: String,
}

#[derive(Debug, Template)]
#[template(path = "recovery_codes.html")]
struct RecoveryPage {
    layout: Layout,
    t: Locale,
    codes: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct RecoveryView {
    recovery_codes: Vec<String>,
}

pub(super) fn own_name(request: &PageRequest) -> Result<&str, ApiError> {
    request.signed_in.as_ref().map(|signed_in| signed_in.member.name.as_str()).ok_or_else(ApiError::no_session)
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    profile_page(&request, &FormState::default()).await
}

pub(super) async fn profile_page(request: &PageRequest, form: &FormState) -> Result<PageReply, PageFailure> {
    let (t, name) = (request.t(), own_name(request)?);
    let own = ApiCall { path: path_of(&[("name", name)]), ..ApiCall::default() };
    let login: LoginView = request.read(operations::GET_LOGIN, own).await?;
    let has_email = login.email.is_some();
    let totp: TotpView = request.read(operations::GET_TOTP, ApiCall::default()).await?;
    let sessions = SessionEntry::of_member(request, name, "/profile").await?;
    let (new, again) = new_password(t, form);
    let template = ProfilePage {
        layout: request.layout(t.say("nav.profile")).with(Script::Passkey).with(Script::Password),
        t,
        banner: form.banner(),
        login,
        passkeys: PasskeysView::read(request, form).await?,
        codes_left: t.say_count("codes.left_one", "codes.left", totp.recovery_codes_left),
        has_other_sessions: sessions.iter().any(|session| !session.is_current),
        sessions,
        password: form.current_password("password", t.say("profile.current_password")),
        new_password: new,
        strength: PasswordStrength::of(t),
        again,
        codes_password: form.current_password("password_for_codes", t.say("profile.current_password")),
        time_zone: time_zone(request, form),
        language: language(request, form),
        theme: theme(request, form),
        notices: NoticesView::of(request, form, has_email),
    };
    PageReply::page(form.status(), &template)
}

fn time_zone(request: &PageRequest, form: &FormState) -> Control {
    let t = request.t();
    let kept = request.kept_preferences().and_then(|kept| kept.time_zone.as_deref()).unwrap_or_default();
    let form = if form.has("time_zone") { form.clone() } else { FormState::of(FormData::of(&[("time_zone", kept)])) };
    let control = form.suggest("time_zone", t.say("profile.time_zone"), preferences::time_zones().collect());
    control.hint(t.say("profile.time_zone_hint")).max(preferences::MAX_TIME_ZONE)
}

/// Form state of one preference: the typed value, else the stored one.
fn chosen(form: &FormState, field: &'static str, kept: Option<&str>) -> FormState {
    if form.has(field) { form.clone() } else { FormState::of(FormData::of(&[(field, kept.unwrap_or_default())])) }
}

fn language(request: &PageRequest, form: &FormState) -> Control {
    let (t, kept) = (request.t(), request.kept_preferences().and_then(|kept| kept.language.as_deref()));
    let languages = Language::ALL.map(|language| (language.tag(), language.name()));
    let choices = std::iter::once(("", t.say("profile.language_of_browser"))).chain(languages);
    chosen(form, "language", kept).choice("language", t.say("nav.language"), choices)
}

fn theme(request: &PageRequest, form: &FormState) -> Control {
    let (t, kept) = (request.t(), request.kept_preferences().and_then(|kept| kept.theme.as_deref()));
    let choices = [("", t.say("theme.system")), ("light", t.say("theme.light")), ("dark", t.say("theme.dark"))];
    chosen(form, "theme", kept).choice("theme", t.say("theme.title"), choices)
}

/// An empty choice means the browser's.
async fn change_display(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let zone = Some(request.form.value("time_zone").trim()).filter(|zone| !zone.is_empty());
    let mut body = Map::from_iter([("time_zone".to_owned(), zone.map_or(Value::Null, Value::from))]);
    for (field, known) in [("language", preferences::LANGUAGES), ("theme", preferences::THEMES)] {
        if request.form.has(field) {
            body.insert(field.to_owned(), preferences::choice(known, request.form.value(field)));
        }
    }
    match request.call(operations::CHANGE_PREFERENCES, ApiCall { body, ..ApiCall::default() }).await {
        Ok(_) => Ok(keep(PageReply::redirect(&request.url("/profile")), &request.form).toast(Toast::Saved)),
        Err(error) => refuse(&request, error.because("time_zone"), &["time_zone"]).await,
    }
}

/// The profile page with the fault.
pub(super) async fn refuse(request: &PageRequest, error: ApiError, fields: &[&str]) -> Result<PageReply, PageFailure> {
    let form = FormState::refused(request.t(), &request.form, &error, fields)?;
    profile_page(request, &form).await
}

async fn change_password(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let sent = match check_repeated(form) {
        Ok(new) => request.send(operations::CHANGE_PASSWORD, &[("password", form.value("password")), ("new_password", new)]).await,
        Err(error) => Err(error),
    };
    match sent {
        Ok(answer) => {
            let reply = PageReply::redirect(&request.url("/profile")).cookies(answer.into_parts().1);
            Ok(reply.toast(Toast::PasswordChanged))
        }
        Err(error) => refuse(&request, error, &["password", "new_password", "new_password_again"]).await,
    }
}

async fn begin_codes(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let secret: SecretView = request.read(operations::MAKE_TOTP_SECRET, ApiCall::default()).await?;
    codes_page(&request, secret, &FormState::default())
}

fn codes_page(request: &PageRequest, secret: SecretView, form: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let template = CodesPage {
        layout: request.layout(t.say("codes.title")),
        t,
        banner: form.banner(),
        qr_code: QrCode::of(&secret.uri),
        secret: SecretView { secret: in_fours(&secret.secret), ..secret },
        code: form.text("code", t.say("sign_in.code")).autocomplete("one-time-code").hint(t.say("codes.code_hint")).required(),
        password: form.current_password("password", t.say("profile.current_password")),
    };
    PageReply::page(form.status(), &template)
}

fn in_fours(secret: &str) -> String {
    let digits: Vec<char> = secret.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(4).map(String::from_iter).collect::<Vec<_>>().join(" ")
}

async fn enable_codes(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let code: String = form.value("code").chars().filter(|c| !c.is_whitespace()).collect();
    let sent = [("challenge", form.value("challenge")), ("code", code.as_str()), ("password", form.value("password"))];
    match request.send(operations::ENABLE_TOTP, &sent).await {
        Ok(answer) => {
            let (value, cookies) = answer.into_parts();
            let made: RecoveryView = serde_json::from_value(value).map_err(|_| ApiError::internal())?;
            Ok(recovery_page(&request, made.recovery_codes)?.cookies(cookies))
        }
        Err(error) => {
            let state = FormState::refused(request.t(), form, &error, &["code", "password"])?;
            let of = |name: &str| form.value(name).to_owned();
            let secret = SecretView { secret: of("secret"), uri: of("uri"), challenge: of("challenge") };
            codes_page(&request, secret, &state)
        }
    }
}

fn recovery_page(request: &PageRequest, codes: Vec<String>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    PageReply::ok(&RecoveryPage { layout: request.layout(t.say("codes.recovery_title")), t, codes })
}

async fn disable_codes(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    match request.send(operations::DISABLE_TOTP, &[("password", request.form.value("password_for_codes"))]).await {
        Ok(answer) => {
            let reply = PageReply::redirect(&request.url("/profile")).cookies(answer.into_parts().1);
            Ok(reply.toast(Toast::CodesOff))
        }
        Err(error) => refuse(&request, for_codes(error), &["password_for_codes"]).await,
    }
}

async fn renew_codes(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    match request.send(operations::MAKE_RECOVERY_CODES, &[("password", request.form.value("password_for_codes"))]).await {
        Ok(answer) => recovery_page(&request, read_answer::<RecoveryView>(answer)?.recovery_codes),
        Err(error) => refuse(&request, for_codes(error), &["password_for_codes"]).await,
    }
}

/// The page has two fields for the current password; this one is beside the codes.
fn for_codes(error: ApiError) -> ApiError {
    if error.param() == Some("password") { error.because("wrong_password").about("password_for_codes") } else { error }
}

async fn end_session(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let path: HashMap<String, String> = path_of(&[("session", request.path_param("session"))]);
    let answer = request.call(operations::END_SESSION, ApiCall { path, ..ApiCall::default() }).await?;
    Ok(PageReply::redirect(&request.url("/profile")).cookies(answer.into_parts().1).toast(Toast::SessionEnded))
}

async fn end_other_sessions(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    sessions::end_others(&request, own_name(&request)?).await?;
    Ok(PageReply::redirect(&request.url("/profile")).toast(Toast::SessionsEnded))
}
