//! The step about the gateway itself: its name, its address for callers, and the default preferences. Each field is a setting that can be
//! changed at run time.

use std::sync::Arc;

use askama::Template;
use serde_json::Value;

use super::{CHANNEL, SetUpStep, steps};
use crate::{
    api::preferences::{MAX_TIME_ZONE, time_zones},
    api_error::ApiError,
    currency::CURRENCIES,
    dispatch::ApiCall,
    gateway_handle::EffectiveSetting,
    pages::{
        control::Control,
        form::{FormData, FormState},
        home::model_url,
        layout::Layout,
        locale::{Language, Locale},
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{PageRequest, path_of},
    },
    registration::Registration,
};

/// A field of the form: its name, its setting, and the reason to show if the setting refuses the value.
type Field = (&'static str, &'static str, &'static str);

const FIELDS: [Field; 8] = [
    ("name", "console.display_name", "line"),
    ("api_url", "console.api_url", "http_url"),
    ("language", "console.language", ""),
    ("time_zone", "console.time_zone", "time_zone"),
    ("currency", "console.currency", ""),
    ("currency_per_usd", "console.currency_per_usd", "rate"),
    ("registration", "access.registration", ""),
    ("square_public", "square.public", ""),
];
const LONGEST_URL: usize = 500;
const LONGEST_NAME: usize = 60;

#[derive(Debug, Template)]
#[template(path = "set_up_gateway.html")]
struct GatewayPage {
    layout: Layout,
    t: Locale,
    steps: Vec<SetUpStep>,
    banner: Option<String>,
    controls: Vec<Control>,
    square_public: Option<Control>,
    /// Settings with a source other than the database: label, value, and the source.
    fixed: Vec<FixedSetting>,
    /// Address of the console, which is read at the start.
    console_url: String,
    /// Who can sign in at the OpenID provider, if there is one.
    provider: Option<&'static str>,
}

/// Who can sign in at the OpenID provider; its settings are read at the start. `None` without a provider.
fn provider(t: Locale, settings: &[EffectiveSetting]) -> Result<Option<&'static str>, ApiError> {
    let has_provider = setting(settings, "oidc.issuer")?.value.as_deref().is_some_and(|issuer| !issuer.is_empty());
    Ok(match (has_provider, setting(settings, "oidc.create_members")?.value.as_deref()) {
        (false, _) => None,
        (true, Some("true")) => Some(t.say("set_up.people_provider")),
        (true, _) => Some(t.say("set_up.people_known")),
    })
}

#[derive(Debug)]
struct FixedSetting {
    label: &'static str,
    value: String,
    set_by: String,
}

fn label(t: Locale, field: &str) -> &'static str {
    match field {
        "name" => t.say("set_up.name"),
        "api_url" => t.say("set_up.api_url"),
        "language" => t.say("set_up.language"),
        "time_zone" => t.say("profile.time_zone"),
        "currency" => t.say("set_up.currency"),
        "currency_per_usd" => t.say("set_up.rate"),
        "registration" => t.say("set_up.registration"),
        _ => t.say("set_up.square_public"),
    }
}

fn control(request: &PageRequest, form: &FormState, field: &'static str) -> Control {
    let (t, name) = (request.t(), label(request.t(), field));
    match field {
        "name" => form.text(field, name).max(LONGEST_NAME).hint(t.say("set_up.name_hint")).focus(),
        "api_url" => {
            let hint = t.say_with("set_up.api_url_hint", &[("address", &model_url(request))]);
            form.text(field, name).max(LONGEST_URL).hint(hint)
        }
        "language" => {
            let languages = Language::ALL.map(|language| (language.tag(), language.name()));
            form.choice(field, name, std::iter::once(("auto", t.say("set_up.of_browser"))).chain(languages))
        }
        "time_zone" => form.suggest(field, name, time_zones().collect()).max(MAX_TIME_ZONE).hint(t.say("set_up.time_zone_hint")),
        "currency" => form.choice(field, name, CURRENCIES.iter().map(|code| (*code, *code))),
        "currency_per_usd" => form.number(field, name).hint(t.say("set_up.rate_hint")),
        "registration" => {
            let modes = Registration::MODES.iter().map(|mode| (*mode, mode_name(t, mode)));
            form.choice(field, name, modes).hint(t.say("set_up.registration_hint"))
        }
        _ => form.check(field, name).hint(t.say("set_up.square_hint")),
    }
}

fn mode_name(t: Locale, mode: &str) -> &'static str {
    match mode {
        "open" => t.say("set_up.registration_open"),
        "invite" => t.say("set_up.registration_invite"),
        _ => t.say("set_up.registration_off"),
    }
}

/// The setting of a field as it is in force.
fn setting<'a>(settings: &'a [EffectiveSetting], name: &str) -> Result<&'a EffectiveSetting, ApiError> {
    settings.iter().find(|setting| setting.name == name).ok_or_else(ApiError::internal)
}

fn set_by(t: Locale, setting: &EffectiveSetting) -> String {
    let source = match setting.source {
        "flag" => t.say("set_up.source.flag"),
        "environment" => t.say("set_up.source.environment"),
        _ => t.say("set_up.source.file"),
    };
    t.say_with("set_up.set_by", &[("source", source), ("variable", &setting.variable)])
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let settings = request.state.gateway.settings();
    let mut kept = FormData::default();
    for (field, name, _) in FIELDS {
        kept = kept.with(field, setting(&settings, name)?.value.as_deref().unwrap_or_default());
    }
    gateway_page(&request, &FormState::of(kept))
}

fn gateway_page(request: &PageRequest, form: &FormState) -> Result<PageReply, PageFailure> {
    let (t, settings) = (request.t(), request.state.gateway.settings());
    let (mut controls, mut fixed) = (Vec::new(), Vec::new());
    for (field, name, _) in FIELDS {
        let setting = setting(&settings, name)?;
        if setting.writable {
            controls.push((field, control(request, form, field)));
        } else {
            let value = setting.value.clone().unwrap_or_default();
            fixed.push(FixedSetting { label: label(t, field), value, set_by: set_by(t, setting) });
        }
    }
    let (square, controls): (Vec<_>, Vec<_>) = controls.into_iter().partition(|(field, _)| *field == "square_public");
    let template = GatewayPage {
        layout: request.layout(t.say("set_up.gateway_title")).public_shell(),
        t,
        steps: steps(t, 1),
        banner: form.banner(),
        controls: controls.into_iter().map(|(_, control)| control).collect(),
        square_public: square.into_iter().next().map(|(_, control)| control),
        fixed,
        provider: provider(t, &settings)?,
        console_url: request.state.identity.settings.url.as_str().trim_end_matches('/').to_owned(),
    };
    PageReply::page(form.status(), &template)
}

pub(super) async fn save(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    match store(&request).await {
        Ok(()) => Ok(PageReply::redirect(&request.url(CHANNEL)).toast(Toast::Saved)),
        Err(error) => {
            let fields = FIELDS.map(|(field, ..)| field);
            gateway_page(&request, &FormState::refused(request.t(), &request.form, &error, &fields)?)
        }
    }
}

/// The value to store for a field: `None` if it stays unchanged, an empty text if the default applies again.
fn wanted(form: &FormData, field: &str, setting: &EffectiveSetting) -> Option<String> {
    let value = match field {
        "square_public" => (form.value(field) == "true").to_string(),
        _ => form.value(field).trim().to_owned(),
    };
    (setting.writable && setting.value.as_deref().unwrap_or_default() != value).then_some(value)
}

/// Stores the changed fields, up to the first that is refused; earlier ones are kept.
async fn store(request: &PageRequest) -> Result<(), ApiError> {
    let (form, settings) = (&request.form, request.state.gateway.settings());
    let has_rate = form.filled("currency_per_usd").is_some();
    if form.has("currency_per_usd") && !has_rate && !["", "USD"].contains(&form.value("currency")) {
        return Err(ApiError::value("currency_per_usd", "expected a rate").because("rate"));
    }
    for (field, name, reason) in FIELDS {
        let Some(value) = wanted(form, field, setting(&settings, name)?) else { continue };
        let call = ApiCall { path: path_of(&[("name", name)]), ..ApiCall::default() };
        let sent = if value.is_empty() {
            request.call(operations::UNSET_SETTING, call).await
        } else {
            let body = [("value".to_owned(), Value::from(value))].into_iter().collect();
            request.call(operations::SET_SETTING, ApiCall { body, ..call }).await
        };
        match sent {
            Ok(_) => {}
            // Nothing is stored, because the default applies already.
            Err(error) if error.status == http::StatusCode::NOT_FOUND => {}
            Err(error) if reason.is_empty() => return Err(error.about(field)),
            Err(error) => return Err(error.about(field).because(reason)),
        }
    }
    Ok(())
}
