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
    /// Hidden fields with the values that the form was loaded with.
    loaded: Vec<(String, String)>,
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
    let (mut controls, mut loaded, mut fixed) = (Vec::new(), Vec::new(), Vec::new());
    for (field, name, _) in FIELDS {
        let setting = setting(&settings, name)?;
        if setting.writable {
            controls.push((field, control(request, form, field)));
            loaded.push((loaded_field(field), loaded_value(form, field, setting)));
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
        loaded,
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

/// The hidden field with the value that a field was loaded with.
fn loaded_field(field: &str) -> String {
    format!("loaded_{field}")
}

/// A value as it was typed.
fn typed(value: &str, field: &str) -> String {
    if field == "square_public" { (value == "true").to_string() } else { value.trim().to_owned() }
}

/// The value that the form to show was loaded with. A field that was stored before another one was refused takes over what is stored.
fn loaded_value(form: &FormState, field: &str, setting: &EffectiveSetting) -> String {
    let (loaded, stored) = (loaded_field(field), setting.value.as_deref().unwrap_or_default());
    let is_kept = form.has(&loaded) && typed(form.value(field), field) != stored;
    if is_kept { form.value(&loaded).to_owned() } else { stored.to_owned() }
}

/// The value to store for a field: `None` if it stays unchanged, an empty text if the default applies again. A setting that another person
/// changed since the form was loaded is not overwritten.
fn wanted(form: &FormData, field: &str, setting: &EffectiveSetting) -> Result<Option<String>, ApiError> {
    let (value, loaded) = (typed(form.value(field), field), loaded_field(field));
    let stored = setting.value.as_deref().unwrap_or_default();
    let before = if form.has(&loaded) { form.value(&loaded) } else { stored };
    if !setting.writable || value == stored || value == before {
        return Ok(None);
    }
    if before != stored {
        return Err(
            ApiError::conflict("revision_conflict", "The setting was changed concurrently; load the page again.").about(field)
        );
    }
    Ok(Some(value))
}

/// Stores the fields that changed, none of them if another person changed one since. The first that is refused ends it; those before it
/// are kept.
async fn store(request: &PageRequest) -> Result<(), ApiError> {
    let (form, settings) = (&request.form, request.state.gateway.settings());
    let has_rate = form.filled("currency_per_usd").is_some();
    if form.has("currency_per_usd") && !has_rate && !["", "USD"].contains(&form.value("currency")) {
        return Err(ApiError::value("currency_per_usd", "expected a rate").because("rate"));
    }
    let mut changes = Vec::new();
    for (field, name, reason) in FIELDS {
        changes.extend(wanted(form, field, setting(&settings, name)?)?.map(|value| (field, name, reason, value)));
    }
    for (field, name, reason, value) in changes {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway_handle::SettingKind;

    fn stored(value: &str) -> EffectiveSetting {
        EffectiveSetting {
            name: "access.registration",
            value: Some(value.to_owned()),
            default: None,
            source: "database",
            variable: String::new(),
            secret: false,
            kind: SettingKind::Text,
            unit: None,
            needs_restart: false,
            writable: true,
            doc: "",
        }
    }

    #[test]
    fn setting_that_another_person_changed_is_not_overwritten() {
        let wanted = |form: &[u8], value: &str| wanted(&FormData::parse(form), "registration", &stored(value));
        let changed = b"registration=open&loaded_registration=invite";
        assert_eq!(wanted(changed, "invite").unwrap().as_deref(), Some("open"));
        let refused = wanted(changed, "off").unwrap_err();
        assert_eq!((refused.code(), refused.param()), ("revision_conflict", Some("registration")));
        assert_eq!(wanted(changed, "open").unwrap(), None, "another person did the same");
        assert_eq!(wanted(b"registration=invite&loaded_registration=invite", "off").unwrap(), None);
    }

    #[test]
    fn field_that_was_stored_takes_over_the_stored_value() {
        let form = FormState::of(FormData::parse(b"registration=open&loaded_registration=invite"));
        let loaded = |value: &str| loaded_value(&form, "registration", &stored(value));
        assert_eq!((loaded("open").as_str(), loaded("off").as_str()), ("open", "invite"));
        assert_eq!(loaded_value(&FormState::default(), "registration", &stored("off")), "off");
    }
}
