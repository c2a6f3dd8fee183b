//! The form that creates a channel, and parts that the forms for changing one or several channels share.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use url::Url;

use super::state::{path, provider_name};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{Choice, Control, ControlSection},
        form::{FormData, FormState},
        layout::Layout,
        locale::Locale,
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get, path_of},
    },
};

const FIELDS: &[&str] = &[
    "name",
    "provider",
    "protocol",
    "base_url",
    "credential",
    "priority",
    "weight",
    "tags",
    "connect_timeout_ms",
    "first_byte_timeout_ms",
    "idle_timeout_ms",
    "total_timeout_ms",
    "probe_interval_s",
    "headers",
    "proxy",
    "ca_file",
    "client_certificate",
    "client_key",
    "budget_amount",
];
/// Providers that can be chosen, in this order.
const PROVIDERS: [&str; 5] = ["openai", "gemini", "anthropic", "compatible", "echo"];
/// Fields that are whole numbers.
pub(super) const NUMBERS: [&str; 7] = [
    "priority",
    "weight",
    "connect_timeout_ms",
    "first_byte_timeout_ms",
    "idle_timeout_ms",
    "total_timeout_ms",
    "probe_interval_s",
];

#[derive(Debug, Template)]
#[template(path = "channel_new.html")]
struct NewChannelPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    /// Word, name, and whether it is chosen.
    providers: Vec<(&'static str, &'static str, bool)>,
    section: ControlSection,
    groups: ControlSection,
}

#[derive(Debug, Deserialize)]
pub(super) struct OfferingGroup {
    name: String,
    owner: String,
    channels: Vec<String>,
}

pub(super) async fn groups(request: &PageRequest) -> Result<Vec<OfferingGroup>, ApiError> {
    Ok(request.read::<ApiPage<OfferingGroup>>(operations::LIST_GROUPS, get(&[("limit", "1000")])).await?.items)
}

pub(super) async fn new(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = FormState::of(FormData::of(&[("provider", "openai"), ("groups", "default")]));
    new_page(&request, &form).await
}

pub(super) async fn make(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    match make_channel(&request).await {
        Ok(name) => Ok(PageReply::redirect(&request.url(&format!("{}/models", path(&name)))).toast(Toast::Saved)),
        Err(error) => new_page(&request, &refused(request.t(), &request.form, error)?).await,
    }
}

/// A name that no channel has: that of the provider, or with a number after it.
async fn free_name(request: &PageRequest, provider: &str) -> Result<String, ApiError> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let known = request.read::<ApiPage<Named>>(operations::LIST_CHANNELS, get(&[("limit", "1000")])).await?.items;
    let numbered = (2..1_002).map(|number| format!("{provider}-{number}"));
    let mut names = std::iter::once(provider.to_owned()).chain(numbered);
    Ok(names.find(|name| known.iter().all(|channel| channel.name != *name)).unwrap_or_default())
}

/// Makes the channel of a form and lets the chosen groups offer it. Returns its name, which is that of the provider if none was entered.
pub(in crate::pages) async fn make_channel(request: &PageRequest) -> Result<String, ApiError> {
    let form = &request.form;
    let provider = form.value("provider");
    let name = match form.value("name").trim() {
        "" => free_name(request, provider).await?,
        name => name.to_owned(),
    };
    let mut body = Map::new();
    body.insert("name".to_owned(), name.as_str().into());
    body.insert("provider".to_owned(), provider.into());
    let given = ["protocol", "base_url"].into_iter().filter_map(|field| Some((field.to_owned(), Value::from(form.filled(field)?))));
    body.extend(given);
    if form.has("private_network") {
        body.insert("private_network".to_owned(), true.into());
    }
    // A local server needs no credential, but requests need an account.
    let mut account = json!({"name": form.filled("account").unwrap_or("main")});
    if let Some(credential) = form.filled("credential") {
        account["credential"] = credential.into();
    }
    body.insert("accounts".to_owned(), json!([account]));
    let made = request.call(operations::MAKE_CHANNEL, ApiCall { body, ..ApiCall::default() }).await;
    made.map_err(|error| with_fault_of_url(form, error))?;
    set_groups(request, &name, &groups(request).await?).await?;
    Ok(name)
}

/// Adds the fault of the address to a refusal of the name. The admin API refuses a name that is taken before it checks the address.
fn with_fault_of_url(form: &FormData, error: ApiError) -> ApiError {
    let is_url = |text: &str| Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let is_wrong = form.filled("base_url").is_some_and(|text| !is_url(text));
    if error.code() != "already_exists" || !is_wrong {
        return error;
    }
    let url = ApiError::value("base_url", "expected an http:// or https:// URL");
    ApiError::first_of(vec![error, url]).err().unwrap_or_else(ApiError::internal)
}

/// Lets the chosen groups offer the channel and the others not. Groups of the catalog file stay.
pub(super) async fn set_groups(request: &PageRequest, channel: &str, groups: &[OfferingGroup]) -> Result<(), ApiError> {
    for group in groups.iter().filter(|group| group.owner != "file") {
        let is_wanted = request.form.all("groups").any(|wanted| wanted == group.name);
        if is_wanted == group.channels.iter().any(|known| known == channel) {
            continue;
        }
        let mut channels: Vec<&str> = group.channels.iter().map(String::as_str).filter(|known| *known != channel).collect();
        channels.extend(is_wanted.then_some(channel));
        let body = [("channels".to_owned(), json!(channels))].into_iter().collect();
        request
            .call(operations::CHANGE_GROUP, ApiCall { path: path_of(&[("name", &group.name)]), body, ..ApiCall::default() })
            .await?;
    }
    Ok(())
}

async fn new_page(request: &PageRequest, form: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let template = NewChannelPage {
        layout: request.layout(t.say("channels.new")).below("/channels", t.say("nav.channels")),
        t,
        banner: form.banner(),
        providers: PROVIDERS.map(|word| (word, provider_name(t, word), form.value("provider") == word)).to_vec(),
        section: new_section(request, form),
        groups: group_section(t, form, &groups(request).await?, None),
    };
    PageReply::page(form.status(), &template)
}

/// The fields of a new channel.
pub(in crate::pages) fn new_section(request: &PageRequest, form: &FormState) -> ControlSection {
    let t = request.t();
    let mut controls = vec![
        form.text("name", t.say("channels.name")).hint(t.say("channels.name_hint")),
        form.text("base_url", t.say("channels.base_url")).hint(t.say("channels.base_url_hint")).max(2_000),
        form.secret("credential", t.say("channels.credential")).hint(t.say("channels.credential_hint")).kept_from(form),
    ];
    controls.extend(private_network(request, form));
    ControlSection::new(t.say("channels.connection"), controls)
}

/// Only admins may let a channel reach private addresses.
pub(super) fn private_network(request: &PageRequest, form: &FormState) -> Option<Control> {
    let t = request.t();
    request.is_admin().then(|| switch(t, form, "private_network"))
}

pub(in crate::pages) const fn providers() -> [&'static str; 5] {
    PROVIDERS
}

pub(super) fn group_section(t: Locale, form: &FormState, groups: &[OfferingGroup], channel: Option<&str>) -> ControlSection {
    let is_chosen = |group: &OfferingGroup| match channel {
        Some(channel) if !form.has("name") => group.channels.iter().any(|known| known == channel),
        _ => form.all("groups").any(|wanted| wanted == group.name),
    };
    let choices = groups.iter().filter(|group| group.owner != "file").map(|group| Choice {
        value: group.name.clone(),
        label: group.name.clone(),
        is_chosen: is_chosen(group),
    });
    let title = t.say("channels.groups");
    let groups = form.chosen("groups", title, choices.collect());
    ControlSection::new(title, vec![groups]).about(t.say("channels.groups_about"))
}

/// Tags, with commas between them.
pub(super) fn tags(text: &str) -> Value {
    text.split([',', '，']).map(str::trim).filter(|tag| !tag.is_empty()).collect()
}

pub(super) fn number(form: &FormData, field: &str) -> Result<i64, ApiError> {
    let digits: String = form.value(field).chars().filter(|c| !c.is_whitespace() && *c != ',').collect();
    if digits.is_empty() {
        return Ok(0);
    }
    digits.parse().map_err(|_| ApiError::value(field, "expected a whole number"))
}

/// A form that was refused, with the fault beside the field that it is about.
pub(in crate::pages) fn refused(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    FormState::refused_each(error, |error| refused_one(t, form, error))
}

fn refused_one(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    let param = error.param().unwrap_or_default().split(['.', '[']).next().unwrap_or_default().to_owned();
    let error = match param.as_str() {
        "name" => error.about("name").because("row_name"),
        "base_url" if error.reason().is_some() => error.about("base_url"),
        "base_url" => error.about("base_url").because("base_url"),
        "proxy" => error.about("proxy").because("proxy"),
        "headers" => error.about("headers").because("headers"),
        "ca_file" => error.about("ca_file").because("ca_file"),
        "client_certificate" => error.about("client_certificate").because("client_certificate"),
        "client_key" => error.about("client_key").because("client_key"),
        "accounts" => error.about("credential").because("credential"),
        "budget" => error.about("budget_amount").because("amount"),
        "tags" => error.about("tags").because("tags"),
        field if NUMBERS.contains(&field) => error.because("number_range"),
        _ if error.code() == "already_exists" => error.about("name").because("row_exists"),
        _ => error,
    };
    FormState::refused(t, form, &error, FIELDS)
}

pub(super) fn switch(t: Locale, form: &FormState, name: &'static str) -> Control {
    let (label, hint) = match name {
        "private_network" => (t.say("channels.private_network"), t.say("channels.private_network_hint")),
        "cooling" => (t.say("channels.cooling"), t.say("channels.cooling_hint")),
        "learn_unsupported" => (t.say("channels.learn"), t.say("channels.learn_hint")),
        "retry_uncertain" => (t.say("channels.retry"), t.say("channels.retry_hint")),
        "hoist" => (t.say("channels.hoist"), t.say("channels.hoist_hint")),
        "server_tools" => (t.say("channels.server_tools"), t.say("channels.server_tools_hint")),
        "pass_user" => (t.say("channels.pass_user"), t.say("channels.pass_user_hint")),
        _ => (t.say("channels.fetch_media"), t.say("channels.fetch_media_hint")),
    };
    form.check(name, label).hint(hint).wide()
}

pub(super) fn tags_control(t: Locale, form: &FormState) -> Control {
    form.text("tags", t.say("channels.tags")).hint(t.say("channels.tags_hint")).max(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_split_at_ascii_and_fullwidth_commas() {
        assert_eq!(tags(" eu,, batch 2，us "), json!(["eu", "batch 2", "us"]));
        assert_eq!(tags(""), json!([]));
    }

    #[test]
    fn name_conflict_and_invalid_url_are_reported_together_and_the_credential_is_kept() {
        let sent = FormData::parse(b"name=c&base_url=example.com&credential=sk-typed");
        let error = with_fault_of_url(&sent, ApiError::conflict("already_exists", "x"));
        let form = refused(Locale::EN, &sent, error).unwrap();
        assert!(form.text("name", "x").has_fault() && form.text("base_url", "x").has_fault() && form.banner().is_none());
        assert_eq!(form.secret("credential", "x").kept_from(&form).value, "sk-typed");
        assert_eq!(form.secret("credential", "x").value, "");
        let right = FormData::parse(b"base_url=https%3A%2F%2Fexample.com");
        let (_, others) = with_fault_of_url(&right, ApiError::conflict("already_exists", "x")).split();
        assert!(others.is_empty());
    }

    #[test]
    fn errors_are_shown_beside_their_fields() {
        for (error, field) in [
            (ApiError::value("accounts[0].credential", "x"), "credential"),
            (ApiError::value("weight", "x"), "weight"),
            (ApiError::value("budget.amount", "x"), "budget_amount"),
        ] {
            let form = refused(Locale::EN, &FormData::default(), error).unwrap();
            assert!(form.text(field, "x").has_fault(), "{field}");
        }
    }
}
