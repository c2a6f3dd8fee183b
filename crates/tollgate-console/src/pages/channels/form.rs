//! The form that creates a channel, and parts that the forms for changing one or several channels share.

use std::{collections::HashSet, sync::Arc};

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate_store::fields::private_host;

use super::{
    credentials, parameter_edits,
    state::{path, provider_name},
};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        budgets,
        control::{Choice, Control, ControlSection},
        form::{FormData, FormState},
        layout::Layout,
        locale::Locale,
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get},
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
    "failures_to_cool",
    "cool_down_s",
    "pausing_statuses",
    "test_model",
    "concurrency",
    "rpm",
    "tpm",
    "headers",
    "proxy",
    "ca_file",
    "client_certificate",
    "client_key",
    "groups",
];
/// Providers that can be chosen, in this order.
const PROVIDERS: [&str; 6] = ["openai", "gemini", "anthropic", "compatible", COMPATIBLE_GEMINI, "echo"];
/// The form's word for an upstream that is compatible with Gemini's protocol.
const COMPATIBLE_GEMINI: &str = "compatible_gemini";
/// The hidden field with the groups that offered the channel when its form was loaded, one a line.
pub(super) const OFFERED_BY: &str = "offered_by";
/// Longest name of a channel, in bytes.
const MAX_NAME: usize = 100;
/// Fields that are whole numbers.
pub(super) const NUMBERS: [&str; 9] = [
    "priority",
    "weight",
    "connect_timeout_ms",
    "first_byte_timeout_ms",
    "idle_timeout_ms",
    "total_timeout_ms",
    "probe_interval_s",
    "failures_to_cool",
    "cool_down_s",
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
pub(in crate::pages) struct OfferingGroup {
    pub(in crate::pages) name: String,
    pub(in crate::pages) owner: String,
    pub(super) channels: Vec<String>,
}

pub(in crate::pages) async fn groups(request: &PageRequest) -> Result<Vec<OfferingGroup>, ApiError> {
    Ok(request.read::<ApiPage<OfferingGroup>>(operations::LIST_GROUPS, get(&[("limit", "1000")])).await?.items)
}

pub(super) async fn new(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = FormState::of(FormData::of(&[("provider", "openai"), ("groups", "default")]));
    new_page(&request, &form).await
}

pub(super) async fn make(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    if let Some(state) = credentials::refused(request.t(), &request.form) {
        return new_page(&request, &state).await;
    }
    let groups: Vec<&str> = request.form.all("groups").collect();
    match make_channel(&request, &groups).await {
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

/// Makes the channel of a form, which these groups offer. Returns its name, which is that of the provider if none was entered.
pub(in crate::pages) async fn make_channel(request: &PageRequest, groups: &[&str]) -> Result<String, ApiError> {
    let form = &request.form;
    let (provider, protocol) = match form.value("provider") {
        COMPATIBLE_GEMINI => ("compatible", Some("gemini")),
        provider => (provider, form.filled("protocol")),
    };
    let name = match form.value("name").trim() {
        "" => free_name(request, provider).await?,
        name => name.to_owned(),
    };
    let mut body = Map::new();
    body.insert("name".to_owned(), name.as_str().into());
    body.insert("provider".to_owned(), provider.into());
    let given = [("protocol", protocol), ("base_url", form.filled("base_url"))];
    body.extend(given.into_iter().filter_map(|(field, value)| Some((field.to_owned(), Value::from(value?)))));
    if form.has("private_network") {
        body.insert("private_network".to_owned(), true.into());
    }
    // A local server needs no credential, but requests need an account.
    let credentials = credentials::of(form);
    let names = credentials::names(form.filled("account").unwrap_or("main"), credentials.len(), &HashSet::new());
    let account = |(index, name): (usize, String)| match credentials.get(index) {
        Some(credential) => json!({"name": name, "credential": credential}),
        None => json!({"name": name}),
    };
    body.insert("accounts".to_owned(), names.into_iter().enumerate().map(account).collect());
    body.insert("add_to_groups".to_owned(), json!(groups));
    let mut faults = connection_faults(form, &body, request.is_admin());
    if let Err(error) = request.call(operations::MAKE_CHANNEL, ApiCall { body, ..ApiCall::default() }).await {
        faults.extend(name_fault(request, &name).await?);
        return Err(error.with_others(faults));
    }
    Ok(name)
}

/// The fault of a name that another channel has. The admin API checks it last, and only if everything else is valid.
async fn name_fault(request: &PageRequest, name: &str) -> Result<Option<ApiError>, ApiError> {
    let is_name = !name.is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control);
    if !is_name {
        return Ok(None);
    }
    let found: ApiPage<Value> = request.read(operations::LIST_CHANNELS, get(&[("name", name)])).await?;
    Ok((!found.items.is_empty()).then(|| ApiError::conflict("already_exists", "A channel has this name.")))
}

/// Faults that the admin API finds only if each value is valid by itself: an address that is not public without the permission for
/// it, and a certificate without its key or the reverse. Pages show them together with the others.
pub(super) fn connection_faults(form: &FormData, body: &Map<String, Value>, is_admin: bool) -> Vec<ApiError> {
    let is_permitted = is_admin && form.has("private_network");
    // Only admins see and change the permission; for others, an unchanged address was checked before.
    let address = if is_admin { form.filled("base_url") } else { None };
    let address = address.or_else(|| body.get("base_url").and_then(Value::as_str)).filter(|_| !is_permitted);
    let private = address.and_then(private_host).map(|_| {
        let reason = if is_admin { "private_address" } else { "private_address_for_admins" };
        ApiError::value("base_url", "it does not belong to the public internet").because(reason)
    });
    let is_sent = |field: &str| body.get(field).map(|value| !value.is_null());
    let half = match (is_sent("client_certificate"), is_sent("client_key")) {
        (Some(true), Some(false)) => Some(ApiError::value("client_key", "is needed with client_certificate")),
        (Some(false), Some(true)) => Some(ApiError::value("client_certificate", "is needed with client_key")),
        _ => None,
    };
    private.into_iter().chain(half).collect()
}

/// What a form changes about the groups that offer a channel: only the ticks that differ from when it was loaded, so that changes by
/// others since are kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GroupChanges<'a> {
    pub(super) added: Vec<&'a str>,
    pub(super) removed: Vec<&'a str>,
}

impl<'a> GroupChanges<'a> {
    /// Groups that were removed meanwhile, or that the catalog file owns now, are not changed.
    pub(super) fn of(form: &'a FormData, known: &[OfferingGroup]) -> Self {
        let is_changeable = |name: &str| known.iter().any(|group| group.name == name && group.owner != "file");
        let was_offered = |name: &str| form.value(OFFERED_BY).lines().any(|offered| offered == name);
        let is_chosen = |name: &str| form.all("groups").any(|chosen| chosen == name);
        Self {
            added: form.all("groups").filter(|name| !was_offered(name)).collect(),
            removed: form.value(OFFERED_BY).lines().filter(|name| !is_chosen(name) && is_changeable(name)).collect(),
        }
    }

    /// The fields as the admin API takes them.
    pub(super) fn body(&self) -> [(String, Value); 2] {
        [("add_to_groups", &self.added), ("remove_from_groups", &self.removed)]
            .map(|(field, names)| (field.to_owned(), json!(names)))
    }
}

async fn new_page(request: &PageRequest, form: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let template = NewChannelPage {
        layout: request.layout(t.say("channels.new")).below("/channels", t.say("nav.channels")),
        t,
        banner: form.banner(),
        providers: providers(t, form),
        section: new_section(request, form),
        groups: group_section(t, form, &groups(request).await?),
    };
    PageReply::page(form.status(), &template)
}

/// The fields of a new channel.
pub(in crate::pages) fn new_section(request: &PageRequest, form: &FormState) -> ControlSection {
    let t = request.t();
    let mut controls = vec![
        form.text("name", t.say("channels.name")).hint(t.say("channels.name_hint")),
        form.text("base_url", t.say("channels.base_url")).hint(t.say("channels.base_url_hint")).max(2_000).holds_secrets(),
        credentials::control(t, form),
    ];
    controls.extend(private_network(request, form));
    ControlSection::new(t.say("channels.connection"), controls)
}

/// Only admins may let a channel reach private addresses.
pub(super) fn private_network(request: &PageRequest, form: &FormState) -> Option<Control> {
    let t = request.t();
    request.is_admin().then(|| switch(t, form, "private_network"))
}

/// The providers to choose from: word, name, and whether it is chosen.
pub(in crate::pages) fn providers(t: Locale, form: &FormState) -> Vec<(&'static str, &'static str, bool)> {
    let name = |word| match word {
        "compatible" => t.say("channels.openai_compatible"),
        COMPATIBLE_GEMINI => t.say("channels.gemini_compatible"),
        _ => provider_name(t, word),
    };
    PROVIDERS.map(|word| (word, name(word), form.value("provider") == word)).to_vec()
}

pub(super) fn group_section(t: Locale, form: &FormState, groups: &[OfferingGroup]) -> ControlSection {
    let choices = groups.iter().filter(|group| group.owner != "file").map(|group| Choice {
        value: group.name.clone(),
        label: group.name.clone(),
        about: None,
        is_chosen: form.all("groups").any(|wanted| wanted == group.name),
    });
    let title = t.say("channels.groups");
    let groups = form.chosen("groups", title, choices.collect());
    ControlSection::new(title, vec![groups]).about(t.say("channels.groups_about"))
}

/// Tags, with commas between them.
pub(super) fn tags(text: &str) -> Value {
    text.split([',', '，']).map(str::trim).filter(|tag| !tag.is_empty()).collect()
}

/// Statuses with commas between them. Text with anything else is sent unchanged, so that the admin API refuses it.
pub(super) fn statuses(text: &str) -> Value {
    let words = text.split(|c: char| c == ',' || c == '，' || c.is_whitespace()).filter(|word| !word.is_empty());
    words.map(|word| word.parse::<u16>().ok()).collect::<Option<Vec<_>>>().map_or_else(|| text.into(), Value::from)
}

pub(super) fn statuses_control(t: Locale, form: &FormState) -> Control {
    form.text("pausing_statuses", t.say("channels.pausing_statuses")).hint(t.say("channels.pausing_statuses_hint")).max(200)
}

/// A whole number for a body, 0 for an empty field. Text that is not a number is sent unchanged, so that the admin API reports it together
/// with the other faults.
pub(super) fn number_or_text(form: &FormData, field: &str) -> Value {
    let digits: String = form.value(field).chars().filter(|c| !c.is_whitespace() && *c != ',').collect();
    if digits.is_empty() {
        return 0.into();
    }
    digits.parse::<i64>().map_or_else(|_| form.value(field).trim().into(), Value::from)
}

/// Limits of a channel, for all its accounts together.
pub(super) const LIMITS: [&str; 3] = ["concurrency", "rpm", "tpm"];

/// A form that was refused, with the fault beside the field that it is about.
pub(in crate::pages) fn refused(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    FormState::refused_each(error, |error| refused_one(t, form, error))
}

fn refused_one(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    let error = budgets::placed(form, error);
    if let Some(text) = parameter_edits::fault(t, &error) {
        return Ok(FormState::worded(form, "parameter_edits", text));
    }
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
        "tags" => error.about("tags").because("tags"),
        "pausing_statuses" => error.about("pausing_statuses").because("statuses"),
        "test_model" => error.about("test_model").because("row_name"),
        "add_to_groups" | "remove_from_groups" | "groups" => error.about("groups").because("no_group"),
        "concurrency" | "rpm" | "tpm" => error.because("limit"),
        field if NUMBERS.contains(&field) => error.because("number_range"),
        _ if error.code() == "already_exists" => error.about("name").because("row_exists"),
        _ if error.code() == "nothing_left" => error.about("groups").because("nothing_left_of_group"),
        field if budgets::FIELDS.contains(&field) => return FormState::refused_at(t, form, &error, Some(field)),
        _ => error,
    };
    FormState::refused(t, form, &error, FIELDS)
}

pub(super) fn switch(t: Locale, form: &FormState, name: &'static str) -> Control {
    let (label, hint) = match name {
        "private_network" => (t.say("channels.private_network"), t.say("channels.private_network_hint")),
        "cooling" => (t.say("channels.cooling"), t.say("channels.cooling_hint")),
        "empty_answer_is_failure" => (t.say("channels.empty_answer"), t.say("channels.empty_answer_hint")),
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
    use crate::api_error::NumberRange;

    #[test]
    fn tags_are_split_at_ascii_and_fullwidth_commas() {
        assert_eq!(tags(" eu,, batch 2，us "), json!(["eu", "batch 2", "us"]));
        assert_eq!(tags(""), json!([]));
    }

    #[test]
    fn only_ticks_of_groups_that_differ_are_sent() {
        let known: Vec<OfferingGroup> = serde_json::from_value(json!([
            {"name": "a", "owner": "database", "channels": ["c"]},
            {"name": "b", "owner": "database", "channels": ["c"]},
            {"name": "f", "owner": "file", "channels": ["c"]},
        ]))
        .unwrap();
        let changes = |form: &[u8]| {
            let form = FormData::parse(form);
            let GroupChanges { added, removed } = GroupChanges::of(&form, &known);
            (added.join(" "), removed.join(" "))
        };
        assert_eq!(changes(b"offered_by=a&groups=a"), (String::new(), String::new()), "b was added by another person");
        assert_eq!(changes(b"offered_by=a%0D%0Ab&groups=b&groups=gone"), ("gone".to_owned(), "a".to_owned()));
        assert_eq!(changes(b"offered_by=f%0Agone"), (String::new(), String::new()));
        let error = ApiError::value("add_to_groups[0]", "there is no such group");
        let form = refused(Locale::EN, &FormData::parse(b"groups=gone"), error).unwrap();
        assert!(group_section(Locale::EN, &form, &known).controls[0].has_fault());
    }

    #[test]
    fn statuses_are_numbers_or_the_text_unchanged() {
        assert_eq!(statuses(" 402,, 529，503 "), json!([402, 529, 503]));
        assert_eq!((statuses(""), statuses("402 x")), (json!([]), json!("402 x")));
    }

    #[test]
    fn name_conflict_and_invalid_url_are_reported_together_and_the_credential_is_kept() {
        let sent = FormData::parse(b"name=c&base_url=example.com&credential=sk-typed");
        let error = ApiError::value("base_url", "x").with_others(vec![ApiError::conflict("already_exists", "x")]);
        let form = refused(Locale::EN, &sent, error).unwrap();
        assert!(form.text("name", "x").has_fault() && form.text("base_url", "x").has_fault() && form.banner().is_none());
        assert_eq!(credentials::control(Locale::EN, &form).value, "sk-typed");
        assert_eq!(form.secret("credential", "x").value, "");
    }

    #[test]
    fn private_addresses_and_halves_of_a_certificate_are_reported_with_the_other_faults() {
        let faults = |form: &[u8], body: Value, is_admin: bool| {
            let found = connection_faults(&FormData::parse(form), body.as_object().unwrap(), is_admin);
            found.iter().map(|fault| (fault.param().unwrap_or_default().to_owned(), fault.reason())).collect::<Vec<_>>()
        };
        let private = json!({"base_url": "http://127.0.0.1:1/v1"});
        let of_url = |reason| vec![("base_url".to_owned(), Some(reason))];
        assert_eq!(faults(b"", private.clone(), true), of_url("private_address"));
        assert!(faults(b"private_network=true", private.clone(), true).is_empty());
        assert_eq!(faults(b"private_network=true", private, false), of_url("private_address_for_admins"));
        assert!(faults(b"", json!({"base_url": "https://example.com"}), true).is_empty());
        let half = json!({"client_certificate": "PEM", "client_key": null});
        assert_eq!(faults(b"", half, true), [("client_key".to_owned(), None)]);
    }

    #[test]
    fn faults_of_numbers_name_their_bounds() {
        let range = NumberRange { min: 1, max: 1_000_000, or_zero: false };
        let error = ApiError::value("weight", "x").within(Some(range)).with_others(vec![
            ApiError::value("probe_interval_s", "x").within(Some(NumberRange { min: 10, max: 86_400, or_zero: true })),
            ApiError::value("priority", "x").within(Some(NumberRange { min: -5, max: 5, or_zero: false })),
        ]);
        let form = refused(Locale::EN, &FormData::default(), error).unwrap();
        assert_eq!(form.fault("weight"), Some("Enter a whole number from 1 to 1,000,000."));
        assert_eq!(form.fault("probe_interval_s"), Some("Enter 0, or a whole number from 10 to 86,400."));
        assert_eq!(form.fault("priority"), Some("Enter a whole number from −5 to 5."));
        assert_eq!(number_or_text(&FormData::parse(b"weight=abc"), "weight"), json!("abc"));
    }

    #[test]
    fn errors_are_shown_beside_their_fields() {
        for (error, field) in [
            (ApiError::value("accounts[0].credential", "x"), "credential"),
            (ApiError::value("weight", "x"), "weight"),
            (ApiError::value("budget.amount", "x"), "budget_month_block"),
        ] {
            let form = refused(Locale::EN, &FormData::default(), error).unwrap();
            assert!(form.text(field, "x").has_fault(), "{field}");
        }
    }
}
