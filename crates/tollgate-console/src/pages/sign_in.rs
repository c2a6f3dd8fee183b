//! Signing in and out: password, one-time code, passkey, and the redirect to the OpenID provider.

use std::sync::Arc;

use askama::Template;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_store::AdminScope;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::{
    control::Control,
    form::{FormData, FormState},
    layout::{Layout, Script},
    locale::Locale,
    operations,
    preferences::Toast,
    reply::{PageFailure, PageReply},
    request::PageRequest,
    route::{PageRoute, SeenBy, page},
};
use crate::{api_error::ApiError, dispatch::ApiCall, response::ApiResponse};

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/sign-in", SeenBy::Anyone, page!(show)),
    PageRoute::post("/sign-in", SeenBy::Anyone, page!(send)),
    PageRoute::post("/sign-in/code", SeenBy::Anyone, page!(send_code)),
    PageRoute::post("/sign-in/passkey", SeenBy::Anyone, page!(send_passkey)),
    PageRoute::post("/sign-out", SeenBy::Role(AdminScope::Member), page!(sign_out)),
];

/// The page after a sign-in, unless another page led to the sign-in.
pub(super) const HOME: &str = "/console";
/// Digits of a one-time code; anything else is a recovery code.
const CODE_DIGITS: usize = 6;

#[derive(Debug, Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    /// Whether a form was sent after the session had ended.
    is_form_lost: bool,
    login: Control,
    password: Control,
    /// `None` where members cannot be remembered.
    remember: Option<Control>,
    to: String,
    /// The query of the forms.
    query: String,
    oidc: Option<OidcButton>,
    /// Origin at which browsers offer passkeys.
    passkey_origin: Option<String>,
    /// Whether visitors can register.
    takes_registrations: bool,
}

#[derive(Debug)]
struct OidcButton {
    label: String,
    link: String,
    /// The same for members who stay signed in.
    remembering_link: String,
}

#[derive(Debug, Template)]
#[template(path = "sign_in_code.html")]
struct CodePage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    code: Control,
    challenge: String,
    to: String,
    /// The query of the form.
    query: String,
}

#[derive(Debug, Deserialize)]
struct Methods {
    oidc: Option<String>,
    passkey_origin: Option<String>,
    remember: bool,
    registration: bool,
}

/// The end of a step of signing in.
#[derive(Debug)]
pub(super) enum SignInStep {
    /// The session's cookie.
    Done(Vec<(HeaderName, HeaderValue)>),
    /// A one-time code is needed, with this challenge.
    Code(String),
}

impl SignInStep {
    pub(super) fn of(answer: ApiResponse) -> Self {
        let (value, headers) = answer.into_parts();
        match value["challenge"].as_str() {
            Some(challenge) => Self::Code(challenge.to_owned()),
            None => Self::Done(headers),
        }
    }
}

/// Redirects to the page, or asks for the one-time code first.
pub(super) fn proceed(request: &PageRequest, step: SignInStep, to: &str) -> Result<PageReply, PageFailure> {
    match step {
        SignInStep::Done(headers) => Ok(PageReply::redirect(&request.url(to)).cookies(headers)),
        SignInStep::Code(challenge) => code_page(request, &FormState::default(), &challenge, to),
    }
}

/// The page to go to afterwards.
fn target<'a>(request: &PageRequest, text: &'a str) -> &'a str {
    request.local_path(text).unwrap_or(HOME)
}

/// Whether a form was sent after the session had ended.
fn is_form_lost(request: &PageRequest) -> bool {
    request.query.value("lost") == "form"
}

/// The query of the page that leads there, which its forms keep: their answers are loaded again from it.
fn query_to(request: &PageRequest, to: &str) -> String {
    let mut query = Serializer::new(String::new());
    if to != HOME {
        query.append_pair("to", to);
    }
    if is_form_lost(request) {
        query.append_pair("lost", "form");
    }
    let query = query.finish();
    if query.is_empty() { query } else { format!("?{query}") }
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let to = target(&request, request.query.value("to"));
    if request.signed_in.is_some() {
        return Ok(PageReply::redirect(&request.url(to)));
    }
    password_page(&request, &FormState::default(), to).await
}

async fn password_page(request: &PageRequest, form: &FormState, to: &str) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let methods: Methods = request.read(operations::LIST_SIGN_IN_METHODS, ApiCall::default()).await?;
    let oidc = methods.oidc.map(|name| {
        let local: String = byte_serialize(request.url(to).as_bytes()).collect();
        let link = request.url(&format!("/admin/v1/oidc/start?to={local}"));
        OidcButton {
            label: t.say_with("sign_in.oidc", &[("provider", &name)]),
            remembering_link: format!("{link}&remember=true"),
            link,
        }
    });
    let template = SignInPage {
        layout: request.layout(t.say("sign_in.title")).with(Script::Passkey),
        t,
        banner: form.banner(),
        is_form_lost: is_form_lost(request),
        login: form.text("login", t.say("sign_in.login")).autocomplete("username").required().focus(),
        password: form.current_password("password", t.say("sign_in.password")),
        remember: methods.remember.then(|| form.check("remember", t.say("sign_in.remember"))),
        to: to.to_owned(),
        query: query_to(request, to),
        oidc,
        passkey_origin: methods.passkey_origin,
        takes_registrations: methods.registration,
    };
    PageReply::page(form.status(), &template)
}

fn code_page(request: &PageRequest, form: &FormState, challenge: &str, to: &str) -> Result<PageReply, PageFailure> {
    let (t, query) = (request.t(), query_to(request, to));
    let code =
        form.text("code", t.say("sign_in.code")).autocomplete("one-time-code").hint(t.say("sign_in.code_hint")).required().focus();
    let template = CodePage {
        // A link that led here is used up.
        layout: request.layout(t.say("sign_in.code_title")).returns_to(&format!("/sign-in{query}")),
        t,
        banner: form.banner(),
        code,
        challenge: challenge.to_owned(),
        to: to.to_owned(),
        query,
    };
    PageReply::page(form.status(), &template)
}

async fn send(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (form, to) = (&request.form, target(&request, request.form.value("to")));
    if request.signed_in.is_some() {
        return Ok(PageReply::redirect(&request.url(to)));
    }
    let sent = [("login", form.value("login").trim()), ("password", form.value("password"))];
    match send_proof(&request, operations::SIGN_IN, &sent).await {
        Ok(answer) => proceed(&request, SignInStep::of(answer), to),
        // An empty or overlong name or password counts as wrong.
        Err(error) => {
            let error = if error.param().is_some() { ApiError::wrong_login() } else { error };
            let form = FormState::refused(request.t(), form, &error, &[])?;
            password_page(&request, &form, to).await
        }
    }
}

/// Sends what proves the member's identity, with the choice of the form to be remembered.
async fn send_proof(request: &PageRequest, id: &'static str, fields: &[(&str, &str)]) -> Result<ApiResponse, ApiError> {
    let mut body: Map<String, Value> = fields.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
    body.insert("remember".to_owned(), Value::from(request.form.value("remember") == "true"));
    request.call(id, ApiCall { body, ..ApiCall::default() }).await
}

async fn send_code(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (form, to) = (&request.form, target(&request, request.form.value("to")));
    let challenge = form.value("challenge");
    let typed: String = form.value("code").chars().filter(|c| !c.is_whitespace()).collect();
    let is_code = typed.len() == CODE_DIGITS && typed.bytes().all(|byte| byte.is_ascii_digit());
    let field = if is_code { "code" } else { "recovery_code" };
    match request.send(operations::SIGN_IN_WITH_CODE, &[("challenge", challenge), (field, &typed)]).await {
        Ok(answer) => proceed(&request, SignInStep::of(answer), to),
        Err(error) if error.code() == "challenge_ended" => {
            let form = FormState::refused(request.t(), form, &error, &[])?;
            password_page(&request, &form, to).await
        }
        Err(error) => {
            let is_wrong = error.code() == "wrong_code" || error.param().is_some();
            let error = if is_wrong { ApiError::wrong_code().about("code") } else { error };
            code_page(&request, &FormState::refused(request.t(), form, &error, &["code"])?, challenge, to)
        }
    }
}

async fn send_passkey(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (form, to) = (&request.form, target(&request, request.form.value("to")));
    let fields = ["credential", "client_data", "authenticator_data", "signature", "user_handle"];
    let sent = fields.map(|field| (field, form.value(field)));
    match send_proof(&request, operations::SIGN_IN_WITH_PASSKEY, &sent).await {
        Ok(answer) => proceed(&request, SignInStep::of(answer), to),
        // An empty or malformed field counts as an invalid passkey.
        Err(error) => {
            let error = if error.param().is_some() { ApiError::wrong_passkey() } else { error };
            let state = FormState::refused(request.t(), &FormData::of(&[("remember", form.value("remember"))]), &error, &[])?;
            password_page(&request, &state, to).await
        }
    }
}

async fn sign_out(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (_, headers) = request.call(operations::SIGN_OUT, ApiCall::default()).await?.into_parts();
    Ok(PageReply::redirect(&request.url("/sign-in")).cookies(headers).toast(Toast::SignedOut))
}
