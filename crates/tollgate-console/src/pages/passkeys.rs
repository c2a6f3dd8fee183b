//! The member's own passkeys: the part of the profile that lists them, the step in which the browser makes one, and the page of each.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate_store::{AdminScope, MAX_PASSKEYS};

use super::{
    control::Control,
    form::{FormData, FormState},
    format::{self, TimeText},
    layout::{Layout, Script},
    locale::Locale,
    operations,
    preferences::Toast,
    profile::{own_name, profile_page, refuse},
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, path_of, read_answer},
    route::{PageRoute, SeenBy, page},
};
use crate::{api_error::ApiError, dispatch::ApiCall, identity::webauthn::RelyingParty};

const MEMBER: SeenBy = SeenBy::Role(AdminScope::Member);
const MAX_NAME: usize = 100;

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::post("/profile/passkeys", MEMBER, page!(begin)),
    PageRoute::post("/profile/passkeys/add", MEMBER, page!(add)),
    PageRoute::get("/profile/passkeys/{passkey}", MEMBER, page!(show)),
    PageRoute::post("/profile/passkeys/{passkey}", MEMBER, page!(rename)),
    PageRoute::post("/profile/passkeys/{passkey}/remove", MEMBER, page!(remove)),
];

#[derive(Debug, Deserialize)]
struct PasskeyObject {
    id: String,
    name: String,
    backed_up: bool,
    created_at: String,
    used_at: Option<String>,
}

/// The passkeys on the profile.
#[derive(Debug)]
pub(super) struct PasskeysView {
    pub(super) rows: Vec<PasskeyRow>,
    /// Origin at which browsers offer passkeys; `None`: nowhere.
    pub(super) origin: Option<String>,
    /// Address where passkeys can be added, for a browser that offers none at the present one.
    pub(super) elsewhere: String,
    pub(super) is_full: bool,
    pub(super) name: Control,
    pub(super) password: Control,
}

#[derive(Debug)]
pub(super) struct PasskeyRow {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) is_backed_up: bool,
    pub(super) created: Option<TimeText>,
    pub(super) used: Option<TimeText>,
}

#[derive(Debug, Template)]
#[template(path = "profile_passkey_new.html")]
struct NewPage {
    layout: Layout,
    t: Locale,
    /// The options that the script passes to the browser.
    options: String,
    origin: String,
    state: String,
    name: String,
}

#[derive(Debug, Template)]
#[template(path = "profile_passkey.html")]
struct PasskeyPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    row: PasskeyRow,
    name: Control,
}

impl PasskeyRow {
    fn of(t: Locale, passkey: PasskeyObject) -> Self {
        Self {
            id: passkey.id,
            is_backed_up: passkey.backed_up,
            created: format::time(t, &passkey.created_at),
            used: passkey.used_at.as_deref().and_then(|at| format::time(t, at)),
            name: passkey.name,
        }
    }
}

impl PasskeysView {
    pub(super) async fn read(request: &PageRequest, form: &FormState) -> Result<Self, ApiError> {
        let t = request.t();
        let rows = read_own(request).await?;
        let origin = RelyingParty::of(&request.state.identity.settings.url).map(|relying_party| relying_party.origin);
        let address = origin.as_deref().unwrap_or_default();
        Ok(Self {
            elsewhere: t.say_with("passkeys.not_here", &[("address", address)]),
            is_full: rows.len() >= MAX_PASSKEYS,
            rows: rows.into_iter().map(|passkey| PasskeyRow::of(t, passkey)).collect(),
            origin,
            name: name_control(t, form, "passkey_name"),
            password: form.current_password("password_for_passkey", t.say("profile.current_password")),
        })
    }
}

fn name_control(t: Locale, form: &FormState, field: &'static str) -> Control {
    form.text(field, t.say("passkeys.name")).hint(t.say("passkeys.name_hint")).max(MAX_NAME).autocomplete("off").required()
}

async fn read_own(request: &PageRequest) -> Result<Vec<PasskeyObject>, ApiError> {
    let own = ApiCall { path: path_of(&[("name", own_name(request)?)]), ..ApiCall::default() };
    Ok(request.read::<ApiPage<PasskeyObject>>(operations::LIST_PASSKEYS, own).await?.items)
}

/// A call about the passkey of the page's path.
fn of_passkey(request: &PageRequest) -> Result<ApiCall, ApiError> {
    let path = path_of(&[("name", own_name(request)?), ("passkey", request.path_param("passkey"))]);
    Ok(ApiCall { path, ..ApiCall::default() })
}

/// Asks for the password before the browser makes a passkey, because a passkey that is refused afterwards would stay on
/// the device.
async fn begin(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let name = form.value("passkey_name").trim();
    let begun = if name.is_empty() {
        Err(ApiError::value("passkey_name", "it is empty").because("name"))
    } else {
        request.send(operations::BEGIN_PASSKEY, &[("password", form.value("password_for_passkey"))]).await
    };
    match begun {
        Ok(answer) => new_page(&request, &read_answer::<Value>(answer)?, name),
        Err(error) => {
            let is_of_password = error.param() == Some("password");
            let error = if is_of_password { error.because("wrong_password").about("password_for_passkey") } else { error };
            refuse(&request, error, &["passkey_name", "password_for_passkey"]).await
        }
    }
}

fn new_page(request: &PageRequest, begun: &Value, name: &str) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let text = |field: &str| begun[field].as_str().unwrap_or_default().to_owned();
    let layout = request.layout(t.say("passkeys.new")).below("/profile", t.say("nav.profile")).with(Script::Passkey);
    let options = json!({
        "challenge": begun["challenge"], "rpId": begun["rp_id"], "rpName": layout.name, "userId": begun["user_id"],
        "userName": begun["user_name"], "algorithms": begun["algorithms"], "exclude": begun["exclude"],
        "timeout": begun["timeout_ms"],
    });
    let template =
        NewPage { layout, t, options: options.to_string(), origin: text("origin"), state: text("state"), name: name.to_owned() };
    PageReply::ok(&template)
}

async fn add(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let sent = ["state", "name", "client_data", "attestation_object"].map(|field| (field, form.value(field)));
    match request.send(operations::ADD_PASSKEY, &sent).await {
        Ok(_) => Ok(PageReply::redirect(&request.url("/profile")).toast(Toast::PasskeyAdded)),
        Err(error) => {
            let reason = match (error.code(), error.param()) {
                ("challenge_ended", _) => Some("passkey_ended"),
                ("already_exists", _) => Some("passkey_exists"),
                (_, Some(param)) if param != "name" => Some("passkey_refused"),
                _ => None,
            };
            let error = match reason {
                Some(reason) => error.because(reason),
                None => error,
            };
            // Of the form's values keep only the name.
            let typed = FormData::of(&[("passkey_name", form.value("name"))]);
            profile_page(&request, &FormState::refused(request.t(), &typed, &error, &[])?).await
        }
    }
}

async fn passkey_page(request: &PageRequest, form: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let id = request.path_param("passkey");
    let found = read_own(request).await?.into_iter().find(|passkey| passkey.id == id);
    let passkey = found.ok_or_else(|| ApiError::not_found("passkey"))?;
    let form = if form.has("name") { form.clone() } else { FormState::of(FormData::of(&[("name", passkey.name.as_str())])) };
    let template = PasskeyPage {
        layout: request.layout(passkey.name.clone()).below("/profile", t.say("nav.profile")),
        t,
        banner: form.banner(),
        name: name_control(t, &form, "name"),
        row: PasskeyRow::of(t, passkey),
    };
    PageReply::page(form.status(), &template)
}

async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    passkey_page(&request, &FormState::default()).await
}

async fn rename(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let body = Map::from_iter([("name".to_owned(), request.form.value("name").trim().into())]);
    match request.call(operations::RENAME_PASSKEY, ApiCall { body, ..of_passkey(&request)? }).await {
        Ok(_) => Ok(PageReply::redirect(&request.url("/profile")).toast(Toast::Saved)),
        Err(error) => {
            let error = if error.param() == Some("name") { error.because("name") } else { error };
            passkey_page(&request, &FormState::refused(request.t(), &request.form, &error, &["name"])?).await
        }
    }
}

async fn remove(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    request.call(operations::REMOVE_PASSKEY, of_passkey(&request)?).await?;
    Ok(PageReply::redirect(&request.url("/profile")).toast(Toast::PasskeyRemoved))
}
