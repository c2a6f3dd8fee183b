//! The form that changes a channel, in sections: connection, client certificate, routing, health, limits, time limits, parameters,
//! translation, budget, and the groups that offer it.

use std::sync::Arc;

use askama::Template;
use serde_json::{Map, Value, json};
use tollgate_protocol::Protocol;
use tollgate_store::MAX_PEM;

use super::{
    edit_comparison::EditComparison,
    form::{
        GroupChanges, LIMITS, NUMBERS, OFFERED_BY, OfferingGroup, connection_faults, group_section, groups, number_or_text,
        private_network, refused, statuses, statuses_control, switch, tags, tags_control,
    },
    parameter_edits,
    state::{call_of, path},
};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        budgets,
        control::{Control, ControlSection, limit_or_text, limit_text},
        form::{FormData, FormState, REVISION},
        layout::Layout,
        locale::Locale,
        operations,
        preferences::Toast,
        protocols,
        reply::{PageFailure, PageReply},
        request::PageRequest,
    },
};

/// Largest form: with a certificate chain and a key.
pub(super) const MAX_BYTES: usize = 256 << 10;
/// Fields that are switches.
const SWITCHES: [&str; 8] = [
    "cooling",
    "empty_answer_is_failure",
    "learn_unsupported",
    "retry_uncertain",
    "hoist",
    "server_tools",
    "pass_user",
    "fetch_media",
];

#[derive(Debug, Template)]
#[template(path = "channel_edit.html")]
struct EditChannelPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    /// `None` until the form was compared.
    comparison: Option<EditComparison>,
    back: String,
    action: String,
    /// What the form was loaded with: the revision of the channel, and the groups that offered it.
    loaded: [(&'static str, String); 2],
    sections: Vec<ControlSection>,
}

/// The row of a channel with all its fields.
async fn row(request: &PageRequest) -> Result<Map<String, Value>, ApiError> {
    request.read(operations::GET_CHANNEL, call_of(request)).await
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (row, groups) = tokio::try_join!(row(&request), groups(&request))?;
    let name = request.path_param("name");
    let offering = groups.iter().filter(|group| group.owner != "file" && group.channels.iter().any(|channel| channel == name));
    let offering: Vec<&str> = offering.map(|group| group.name.as_str()).collect();
    let (fields, offered_by) = (values(&row), offering.join("\n"));
    let pairs = fields.pairs().chain(offering.into_iter().map(|name| ("groups", name)));
    let pairs: Vec<(&str, &str)> = pairs.chain([(OFFERED_BY, offered_by.as_str())]).collect();
    edit_page(&request, &FormState::of(FormData::of(&pairs)), &groups, None)
}

/// The initial values of a channel's form.
fn values(row: &Map<String, Value>) -> FormData {
    let text = |name: &str| match row.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let mut pairs: Vec<(&str, String)> = NUMBERS.iter().map(|name| (*name, text(name))).collect();
    pairs.push((REVISION, text("revision")));
    pairs.extend(LIMITS.map(|name| (name, limit_text(row.get(name).and_then(Value::as_u64).unwrap_or(0)))));
    // The private key is not shown: an empty field keeps it.
    pairs.extend(["protocol", "base_url", "test_model", "proxy", "ca_file", "client_certificate"].map(|name| (name, text(name))));
    pairs.extend(
        SWITCHES
            .iter()
            .chain(&["private_network"])
            .filter(|name| row.get(**name) == Some(&Value::Bool(true)))
            .map(|name| (*name, "true".to_owned())),
    );
    let headers = row.get("headers").and_then(Value::as_object).into_iter().flatten();
    let headers: Vec<String> = headers.map(|(name, value)| format!("{name}: {}", value.as_str().unwrap_or_default())).collect();
    pairs.push(("headers", headers.join("\n")));
    pairs.push(("parameter_edits", parameter_edits::lines(row.get("parameter_edits"))));
    let tags = row.get("tags").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    pairs.push(("tags", tags.collect::<Vec<_>>().join(", ")));
    let statuses = row.get("pausing_statuses").and_then(Value::as_array).into_iter().flatten();
    pairs.push(("pausing_statuses", statuses.map(Value::to_string).collect::<Vec<_>>().join(", ")));
    pairs.extend(budgets::values(row.get("budget").unwrap_or(&Value::Null)));
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (*name, value.as_str())).collect();
    FormData::of(&pairs)
}

pub(super) async fn change(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (before, groups) = tokio::try_join!(row(&request), groups(&request))?;
    match save(&request, &before, &groups).await {
        Ok(()) => Ok(PageReply::redirect(&request.url(&path(request.path_param("name")))).toast(Toast::Saved)),
        Err(error) => {
            let state = refused(request.t(), &request.form, error)?;
            edit_page(&request, &state, &groups, None)
        }
    }
}

/// The sent form, with the changes that saving it would make.
pub(super) async fn compare(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (before, groups) = tokio::try_join!(row(&request), groups(&request))?;
    let mut sent = body(&request.form, &before, request.is_admin());
    sent.extend(GroupChanges::of(&request.form, &groups).body());
    match dry_run(&request, &sent).await {
        Ok(after) => {
            let (name, rows) = (request.path_param("name"), (&before, &after));
            let comparison = EditComparison::of(request.t(), name, rows, &sent, (groups.as_slice(), &request.form));
            edit_page(&request, &FormState::of(request.form.clone()), &groups, Some(comparison))
        }
        Err(error) => edit_page(&request, &refused(request.t(), &request.form, error)?, &groups, None),
    }
}

/// The row as saving would make it.
async fn dry_run(request: &PageRequest, sent: &Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    let faults = connection_faults(&request.form, sent, request.is_admin());
    let call = ApiCall { body: sent.clone(), query: "dry_run=true".to_owned(), ..call_of(request) };
    request.read(operations::CHANGE_CHANNEL, call).await.map_err(|error: ApiError| error.with_others(faults))
}

async fn save(request: &PageRequest, before: &Map<String, Value>, groups: &[OfferingGroup]) -> Result<(), ApiError> {
    let mut body = body(&request.form, before, request.is_admin());
    let faults = connection_faults(&request.form, &body, request.is_admin());
    body.extend(GroupChanges::of(&request.form, groups).body());
    let changed = request.call_at_revision(operations::CHANGE_CHANNEL, ApiCall { body, ..call_of(request) }).await;
    changed.map(drop).map_err(|error| error.with_others(faults))
}

/// The body for the admin API. Fields that only admins may change are sent only by admins, and the base URL only if it differs.
fn body(form: &FormData, before: &Map<String, Value>, is_admin: bool) -> Map<String, Value> {
    let mut body = Map::new();
    for field in NUMBERS {
        body.insert(field.to_owned(), number_or_text(form, field));
    }
    for field in LIMITS {
        body.insert(field.to_owned(), limit_or_text(form, field));
    }
    for field in SWITCHES {
        body.insert(field.to_owned(), form.has(field).into());
    }
    for field in ["base_url", "protocol"] {
        let value = form.value(field).trim();
        if form.has(field) && before.get(field).and_then(Value::as_str) != Some(value.trim_end_matches('/')) {
            body.insert(field.to_owned(), value.into());
        }
    }
    if is_admin {
        body.insert("private_network".to_owned(), form.has("private_network").into());
        for field in ["proxy", "ca_file"] {
            body.insert(field.to_owned(), form.filled(field).map_or(Value::Null, Value::from));
        }
    }
    if form.has("client_certificate") {
        // Browsers send lines with CRLF.
        let pem = |field| form.filled(field).map(|text| text.replace("\r\n", "\n"));
        let certificate = pem("client_certificate");
        let has_key = before.get("client_key").is_some_and(|key| !key.is_null());
        let kept = (has_key && certificate.is_some()).then(|| "***".to_owned());
        body.insert("client_key".to_owned(), json!(pem("client_key").or(kept)));
        body.insert("client_certificate".to_owned(), json!(certificate));
    }
    body.insert("headers".to_owned(), headers(form.value("headers")));
    body.insert("parameter_edits".to_owned(), parameter_edits::read(form.value("parameter_edits")));
    body.insert("pausing_statuses".to_owned(), statuses(form.value("pausing_statuses")));
    body.insert("test_model".to_owned(), json!(form.filled("test_model")));
    body.insert("tags".to_owned(), tags(form.value("tags")));
    body.extend(budgets::body(form).map(|budget| ("budget".to_owned(), budget)));
    body
}

/// Headers, one a line. Text with other lines is sent unchanged, so that the admin API refuses it together with the other faults.
fn headers(text: &str) -> Value {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let pairs = lines.map(|line| line.split_once(':').map(|(name, value)| (name.trim().to_owned(), Value::from(value.trim()))));
    pairs.collect::<Option<Map<_, _>>>().map_or_else(|| text.into(), Value::Object)
}

/// The page of a form; with `comparison` after it was compared.
fn edit_page(
    request: &PageRequest,
    form: &FormState,
    groups: &[OfferingGroup],
    comparison: Option<EditComparison>,
) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let name = request.path_param("name");
    let template = EditChannelPage {
        layout: request
            .layout(t.say_with("channels.edit_title", &[("channel", name)]))
            .below("/channels", t.say("nav.channels"))
            .below(path(name), name),
        t,
        banner: form.banner(),
        comparison,
        back: request.url(&path(name)),
        action: request.url(&format!("{}/edit", path(name))),
        loaded: [REVISION, OFFERED_BY].map(|field| (field, form.value(field).to_owned())),
        sections: sections(request, form, group_section(t, form, groups)),
    };
    PageReply::page(form.status(), &template)
}

/// Fields for the destination, the proxy and the headers of requests.
fn connection_section(request: &PageRequest, form: &FormState) -> ControlSection {
    let t = request.t();
    let protocols = Protocol::WORDS.map(|word| {
        let label = protocols::label(t, word);
        (word, label)
    });
    let mut controls = vec![
        form.choice("protocol", t.say("facet.protocol"), protocols),
        form.text("base_url", t.say("channels.base_url")).hint(t.say("channels.base_url_hint")).max(2_000).holds_secrets(),
        form.area("headers", t.say("channels.headers"), 3).hint(t.say("channels.headers_hint")).holds_secrets(),
    ];
    if request.is_admin() {
        let proxy = form.text("proxy", t.say("channels.proxy")).hint(t.say("channels.proxy_hint"));
        controls.push(proxy.max(2_000).holds_secrets());
        controls.push(form.text("ca_file", t.say("channels.ca_file")).hint(t.say("channels.ca_file_hint")).max(1_000));
    }
    controls.extend(private_network(request, form));
    ControlSection::new(t.say("channels.connection"), controls)
}

/// How the gateway identifies itself to the upstream. The key is never shown.
fn certificate_section(t: Locale, form: &FormState) -> ControlSection {
    let pem = |name, label, hint| form.area(name, label, 3).hint(hint).max(MAX_PEM).holds_secrets();
    let key = pem("client_key", t.say("channels.client_key"), t.say("channels.client_key_hint"));
    let controls = vec![
        pem("client_certificate", t.say("channels.client_certificate"), t.say("channels.client_certificate_hint")),
        Control { value: String::new(), ..key },
    ];
    ControlSection::new(t.say("channels.client_certificate"), controls)
}

/// When accounts cool down and for how long, and how they are probed and tested.
fn health_section(t: Locale, form: &FormState) -> ControlSection {
    let number = |name, label, hint| form.number(name, label).hint(hint).required();
    let controls = vec![
        number("failures_to_cool", t.say("channels.failures_to_cool"), t.say("channels.failures_to_cool_hint")),
        number("cool_down_s", t.say("channels.cool_down"), t.say("channels.cool_down_hint")),
        statuses_control(t, form),
        number("probe_interval_s", t.say("channels.probe_interval"), t.say("channels.probe_interval_hint")),
        form.text("test_model", t.say("channels.test_model")).hint(t.say("channels.test_model_hint")).max(256),
        switch(t, form, "cooling"),
        switch(t, form, "empty_answer_is_failure"),
    ];
    ControlSection::new(t.say("channels.health"), controls)
}

/// Edits of parameters in requests to the upstream.
fn parameter_section(t: Locale, form: &FormState) -> ControlSection {
    let edits = form.area("parameter_edits", t.say("channels.parameter_edits"), 5).max(100_000);
    let edits = edits.hint(t.say("channels.parameter_edits_hint")).wide();
    ControlSection::new(t.say("channels.parameters"), vec![edits]).about(t.say("channels.parameters_about"))
}

fn sections(request: &PageRequest, form: &FormState, groups: ControlSection) -> Vec<ControlSection> {
    let t = request.t();
    let number = |name, label, hint| form.number(name, label).hint(hint).required();
    let switches = |names: &[&'static str]| names.iter().map(|name| switch(t, form, name)).collect::<Vec<_>>();
    let mut routing = vec![
        number("priority", t.say("channels.priority"), t.say("channels.priority_hint")),
        number("weight", t.say("channels.weight"), t.say("channels.weight_hint")),
    ];
    routing.push(tags_control(t, form));
    routing.extend(switches(&["retry_uncertain", "learn_unsupported"]));
    let times = vec![
        number("connect_timeout_ms", t.say("channels.connect_timeout"), t.say("channels.connect_timeout_hint")),
        number("first_byte_timeout_ms", t.say("channels.first_byte_timeout"), t.say("channels.first_byte_timeout_hint")),
        number("idle_timeout_ms", t.say("channels.idle_timeout"), t.say("channels.idle_timeout_hint")),
        number("total_timeout_ms", t.say("channels.total_timeout"), t.say("channels.total_timeout_hint")),
    ];
    let limit = |name, label| form.number(name, label).hint(t.say("keys.unlimited_hint"));
    let limits =
        vec![limit("concurrency", t.say("keys.concurrency")), limit("rpm", t.say("keys.rpm")), limit("tpm", t.say("keys.tpm"))];
    let budget = vec![budgets::control(t, form)];
    let translation = switches(&["hoist", "server_tools", "pass_user", "fetch_media"]);
    vec![
        connection_section(request, form),
        certificate_section(t, form),
        groups,
        ControlSection::new(t.say("channels.routing"), routing),
        health_section(t, form),
        ControlSection::new(t.say("keys.limits_of_key"), limits).about(t.say("channels.own_limits_about")),
        ControlSection::new(t.say("channels.times"), times),
        parameter_section(t, form),
        ControlSection::new(t.say("channels.translation"), translation).about(t.say("channels.translation_about")),
        ControlSection::new(t.say("home.budgets"), budget).about(t.say("channels.budget_about")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Map<String, Value> {
        let row = json!({
            "name": "c", "provider": "compatible", "protocol": "openai", "base_url": "https://a.example/v1", "priority": 0, "weight": 1,
            "connect_timeout_ms": 5_000, "first_byte_timeout_ms": 60_000, "idle_timeout_ms": 60_000, "total_timeout_ms": 0, "probe_interval_s": 0,
            "concurrency": 8, "rpm": 0, "tpm": 90_000, "failures_to_cool": 3, "cool_down_s": 10, "pausing_statuses": [402, 529], "empty_answer_is_failure": false, "test_model": null,
            "cooling": true, "learn_unsupported": true, "retry_uncertain": true, "hoist": false, "server_tools": false,
            "pass_user": false, "fetch_media": false, "private_network": false, "proxy": null, "tags": ["eu", "batch 2"], "ca_file": "/etc/ca.pem",
            "client_certificate": "PEM", "client_key": "***", "headers": {"x-a": "***"},
            "parameter_edits": [{"action": "clamp", "parameter": "temperature", "max": 1}],
            "budget": [
                {"amount": "5.00", "window": "day", "action": "block"}, {"amount": "90.00", "window": "total", "action": "alert"}
            ],
        });
        row.as_object().unwrap().clone()
    }

    #[test]
    fn unchanged_form_changes_nothing() {
        let (row, sent) = (row(), values(&row()));
        let body = body(&sent, &row, true);
        for (field, value) in &body {
            assert_eq!(Some(value), row.get(field), "{field}");
        }
        assert!(!body.contains_key("base_url"));
    }

    #[test]
    fn admin_only_fields_are_not_sent_by_operators() {
        let body = body(&values(&row()), &row(), false);
        assert!(["proxy", "ca_file", "private_network"].iter().all(|field| !body.contains_key(*field)));
    }

    #[test]
    fn private_key_is_kept_until_a_new_key_or_no_certificate_is_sent() {
        let sent = |pairs: &[(&str, &str)], row: &Map<String, Value>| {
            let pairs = pairs.iter().fold(values(row), |form, (name, value)| form.with(name, value));
            let body = body(&pairs, row, true);
            (body["client_certificate"].clone(), body["client_key"].clone())
        };
        assert_eq!(sent(&[], &row()), (json!("PEM"), json!("***")));
        assert_eq!(sent(&[("client_certificate", "new"), ("client_key", "key")], &row()), (json!("new"), json!("key")));
        assert_eq!(sent(&[("client_certificate", "")], &row()), (Value::Null, Value::Null));
        let mut without = row();
        without.extend([("client_certificate".to_owned(), Value::Null), ("client_key".to_owned(), Value::Null)]);
        assert_eq!(sent(&[("client_certificate", "new")], &without), (json!("new"), Value::Null), "the admin API asks for it");
    }

    #[test]
    fn headers_are_parsed_one_per_line() {
        assert_eq!(headers("a: b\n\n c : d:e "), json!({"a": "b", "c": "d:e"}));
        assert_eq!(headers("a: b\nc d"), json!("a: b\nc d"), "the admin API refuses it");
    }
}
