//! Pages to make, test, switch off and remove destinations of alerts.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Section, rule_names, tabs};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        alert_text,
        control::{self, ControlSection, Danger, FaultPlace, FormView, Tab, check_typed_name, names},
        form::{FormData, FormState},
        layout::Layout,
        locale::Locale,
        mark::Mark,
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get, path_of, read_answer},
    },
};

/// Maximum number of destinations shown, more than gateways usually have.
const MAX_SHOWN: &str = "200";
/// The kinds in the order of the form.
const KINDS: [&str; 7] = ["webhook", "slack", "feishu", "dingtalk", "wecom", "telegram", "email"];
const PLACES: &[FaultPlace] = &[
    ("name", "name", "name"),
    ("already_exists", "name", "exists"),
    ("url", "url", ""),
    ("secret", "secret", ""),
    ("rules", "rules", ""),
    ("from", "from", ""),
    ("to", "to", ""),
    ("private_network", "private_network", ""),
    ("typed_name", "typed_name", "typed_name"),
];

#[derive(Debug, Template)]
#[template(path = "alert_destinations.html")]
struct DestinationsPage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    rows: Vec<DestinationRow>,
}

#[derive(Debug, Template)]
#[template(path = "alert_destination.html")]
struct DestinationPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    id: Option<String>,
    /// Result of a test message: delivered, or the reason why not.
    tested: Option<Tested>,
    form: FormView,
    danger: Option<Danger>,
}

#[derive(Debug)]
struct Tested {
    is_delivered: bool,
    fault: String,
}

#[derive(Debug, Deserialize)]
struct DestinationObject {
    id: String,
    name: String,
    kind: String,
    url: String,
    status: String,
    rules: Vec<String>,
    private_network: bool,
    from: String,
    to: Vec<String>,
    has_secret: bool,
    revision: u64,
}

#[derive(Debug)]
struct DestinationRow {
    id: String,
    name: String,
    kind: &'static str,
    url: String,
    mark: Mark,
    rules: String,
}

fn kind(t: Locale, kind: &str) -> &'static str {
    match kind {
        "slack" => "Slack",
        "feishu" => t.say("alerts.feishu"),
        "dingtalk" => t.say("alerts.dingtalk"),
        "wecom" => t.say("alerts.wecom"),
        "telegram" => "Telegram",
        "email" => t.say("alerts.email"),
        _ => "Webhook",
    }
}

fn of_destination(request: &PageRequest) -> ApiCall {
    ApiCall { path: path_of(&[("name", request.path_param("name"))]), ..ApiCall::default() }
}

async fn read_destination(request: &PageRequest) -> Result<DestinationObject, ApiError> {
    request.read(operations::GET_DESTINATION, of_destination(request)).await
}

pub(super) async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let found = request.read::<ApiPage<DestinationObject>>(operations::LIST_DESTINATIONS, get(&[("limit", MAX_SHOWN)])).await?;
    let row = |it: DestinationObject| DestinationRow {
        kind: kind(t, &it.kind),
        mark: match it.status.as_str() {
            "on" => Mark::new("ok", "okc", t.say("codes.on")),
            _ => Mark::new("off", "off", t.say("codes.off")),
        },
        rules: it.rules.iter().map(|rule| alert_text::name(t, rule)).collect::<Vec<_>>().join(t.say("list.separator")),
        id: it.id,
        name: it.name,
        url: it.url,
    };
    let template = DestinationsPage {
        layout: request.layout(t.say("nav.alerts")).wide(),
        t,
        tabs: tabs(&request, Section::Destinations),
        rows: found.items.into_iter().map(row).collect(),
    };
    PageReply::ok(&template)
}

fn values(destination: &DestinationObject) -> FormData {
    let mut pairs: Vec<(String, String)> = [
        ("kind", destination.kind.clone()),
        ("url", destination.url.clone()),
        ("status", if destination.status == "on" { "true" } else { "" }.to_owned()),
        ("private_network", destination.private_network.to_string()),
        ("from", destination.from.clone()),
        ("to", destination.to.join(", ")),
        ("revision", destination.revision.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    pairs.extend(destination.rules.iter().map(|rule| ("rules".to_owned(), rule.clone())));
    FormData::of_pairs(pairs)
}

pub(super) async fn new(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let state = FormState::of(FormData::of(&[("kind", "webhook"), ("status", "true")]));
    destination_page(&request, None, &state, None).await
}

pub(super) async fn detail(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let destination = read_destination(&request).await?;
    destination_page(&request, Some(&destination), &FormState::of(values(&destination)), None).await
}

async fn destination_page(
    request: &PageRequest,
    destination: Option<&DestinationObject>,
    state: &FormState,
    tested: Option<Tested>,
) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let kinds = KINDS.map(|word| (word, kind(t, word)));
    let mut basics = Vec::new();
    if destination.is_none() {
        basics.push(state.text("name", t.say("keys.name")).hint(t.say("alerts.name_hint")).max(100).required().focus());
        basics.push(state.choice("kind", t.say("alerts.kind"), kinds));
    }
    basics.push(state.text("url", t.say("alerts.url")).hint(t.say("alerts.url_hint")).max(2_000).required().wide().holds_secrets());
    let has_secret = destination.is_some_and(|destination| destination.has_secret);
    let hint = if has_secret { t.say("alerts.secret_kept") } else { t.say("alerts.secret_hint") };
    basics.push(state.secret("secret", t.say("alerts.secret")).hint(hint).max(1_000));
    basics.push(state.check("status", t.say("alerts.is_on")));
    basics.push(state.check("private_network", t.say("channels.private_network")).hint(t.say("alerts.private_hint")));
    let rules = rule_names(request).await?.into_iter().map(|name| (name.clone(), alert_text::name(t, &name)));
    let chosen = vec![state.checks("rules", t.say("alerts.rules"), rules).hint(t.say("alerts.rules_hint"))];
    let mail = vec![
        state.text("from", t.say("alerts.from")).max(320),
        state.text("to", t.say("alerts.to")).hint(t.say("alerts.to_hint")).max(10_000),
    ];
    let mail = ControlSection::new(t.say("alerts.mail"), mail);
    let has_recipients = matches!(state.value("kind"), "email" | "telegram");
    let sections = vec![
        ControlSection::new("", basics),
        if has_recipients { mail } else { mail.folded() },
        ControlSection::new(t.say("alerts.which"), chosen),
    ];
    let (title, path, submit) = match destination {
        Some(destination) => (destination.name.clone(), format!("/alerts/destinations/{}", destination.id), t.say("form.save")),
        None => (t.say("alerts.new").to_owned(), "/alerts/destinations/new".to_owned(), t.say("alerts.make")),
    };
    let form = FormView::new(request.url(&path), sections, submit).cancel(request.url("/alerts/destinations"));
    let danger = destination.map(|_| {
        let words = (t.say("alerts.remove"), t.say("alerts.remove_about").to_owned(), t.say("alerts.remove"));
        Danger::new(t, state, request.url(&format!("{path}/remove")), words)
    });
    let template = DestinationPage {
        layout: request.layout(title).below("/alerts/destinations", t.say("alerts.destinations")),
        t,
        banner: state.banner(),
        id: destination.map(|destination| destination.id.clone()),
        tested,
        form: match destination {
            Some(destination) => form.at_revision(state, destination.revision),
            None => form,
        },
        danger,
    };
    PageReply::page(state.status(), &template)
}

/// The fields as the admin API takes them.
fn body(form: &FormData) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("url".to_owned(), form.value("url").trim().into());
    // An empty field keeps the secret that is stored.
    body.extend(Some(form.value("secret")).filter(|secret| !secret.is_empty()).map(|secret| ("secret".to_owned(), secret.into())));
    body.insert("status".to_owned(), if form.value("status") == "true" { "on" } else { "off" }.into());
    body.insert("private_network".to_owned(), (form.value("private_network") == "true").into());
    body.insert("rules".to_owned(), form.all("rules").collect());
    body.insert("from".to_owned(), form.value("from").trim().into());
    body.insert("to".to_owned(), names(form, "to").into_iter().collect());
    body
}

fn refused(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    control::refused(t, form, error, PLACES)
}

pub(super) async fn make(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let mut body = body(form);
    body.insert("name".to_owned(), form.value("name").trim().into());
    body.insert("kind".to_owned(), form.filled("kind").unwrap_or("webhook").into());
    match request.call(operations::MAKE_DESTINATION, ApiCall { body, ..ApiCall::default() }).await {
        Ok(answer) => {
            let made: Value = read_answer(answer)?;
            let path = format!("/alerts/destinations/{}", made["id"].as_str().unwrap_or_default());
            Ok(PageReply::redirect(&request.url(&path)).toast(Toast::Saved))
        }
        Err(error) => destination_page(&request, None, &refused(request.t(), form, error)?, None).await,
    }
}

async fn refuse(request: &PageRequest, destination: &DestinationObject, error: ApiError) -> Result<PageReply, PageFailure> {
    // A form without an address has only the name; the stored values are used for the other fields.
    let form = if request.form.has("url") {
        request.form.clone()
    } else {
        let stored = values(destination);
        let both = stored.pairs().chain(request.form.pairs()).map(|(name, value)| (name.to_owned(), value.to_owned()));
        FormData::of_pairs(both.collect())
    };
    let state = refused(request.t(), &form, error)?;
    destination_page(request, Some(destination), &state, None).await
}

pub(super) async fn change(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let destination = read_destination(&request).await?;
    let call = ApiCall { body: body(&request.form), ..of_destination(&request) };
    match request.call_at_revision(operations::CHANGE_DESTINATION, call).await {
        Ok(_) => {
            let path = format!("/alerts/destinations/{}", destination.id);
            Ok(PageReply::redirect(&request.url(&path)).toast(Toast::Saved))
        }
        Err(error) => refuse(&request, &destination, error).await,
    }
}

/// Sends a test message and shows the result.
pub(super) async fn test(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let destination = read_destination(&request).await?;
    match request.read::<Value>(operations::TEST_DESTINATION, of_destination(&request)).await {
        Ok(answer) => {
            let tested = Tested {
                is_delivered: answer["delivered"] == true,
                fault: answer["fault"].as_str().unwrap_or_default().to_owned(),
            };
            destination_page(&request, Some(&destination), &FormState::of(values(&destination)), Some(tested)).await
        }
        Err(error) => refuse(&request, &destination, error).await,
    }
}

pub(super) async fn remove(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let destination = read_destination(&request).await?;
    let removed = match check_typed_name(&request.form, &destination.name) {
        Ok(()) => request.call(operations::REMOVE_DESTINATION, of_destination(&request)).await,
        Err(error) => Err(error),
    };
    match removed {
        Ok(_) => Ok(PageReply::redirect(&request.url("/alerts/destinations")).toast(Toast::Removed)),
        Err(error) => refuse(&request, &destination, error).await,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_secret_keeps_the_stored_one() {
        let form = FormData::parse(b"url=https%3A%2F%2Fx%2F***&secret=&status=true&rules=a&rules=b&to=a%40b,+c%40d");
        let expected = json!({
            "url": "https://x/***", "status": "on", "private_network": false, "rules": ["a", "b"], "from": "", "to": ["a@b", "c@d"],
        });
        assert_eq!(Value::Object(body(&form)), expected);
        assert_eq!(body(&FormData::parse(b"secret=s"))["secret"], "s");
    }
}
