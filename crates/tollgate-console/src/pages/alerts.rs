//! Alerts: what rules have found, open and past, the rules with their thresholds, and where messages go.

mod destinations;
mod export;

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::Value;
use tollgate_store::AdminScope;

use super::{
    alert_text,
    control::{Pager, Tab},
    form::FormData,
    format::{self, TimeText},
    layout::Layout,
    locale::Locale,
    mark::Mark,
    money, operations,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get},
    route::{PageRoute, SeenBy, page},
    setting_texts,
};
use crate::dispatch::ApiCall;

const OPERATOR: SeenBy = SeenBy::Role(AdminScope::Operator);
const ADMIN: SeenBy = SeenBy::Role(AdminScope::Admin);

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/alerts", OPERATOR, page!(list)),
    PageRoute::get("/alerts.csv", OPERATOR, page!(export::csv)),
    PageRoute::get("/alerts/rules", OPERATOR, page!(rules)),
    PageRoute::get("/alerts/destinations", ADMIN, page!(destinations::list)),
    PageRoute::get("/alerts/destinations/new", ADMIN, page!(destinations::new)),
    PageRoute::post("/alerts/destinations/new", ADMIN, page!(destinations::make)),
    PageRoute::get("/alerts/destinations/{name}", ADMIN, page!(destinations::detail)),
    PageRoute::post("/alerts/destinations/{name}", ADMIN, page!(destinations::change)),
    PageRoute::post("/alerts/destinations/{name}/test", ADMIN, page!(destinations::test)),
    PageRoute::post("/alerts/destinations/{name}/remove", ADMIN, page!(destinations::remove)),
];

/// Alerts on a page.
const PAGE: &str = "50";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Events,
    Rules,
    Destinations,
}

fn tabs(request: &PageRequest, current: Section) -> Vec<Tab> {
    let t = request.t();
    let tab =
        |section: Section, label: &'static str, path: &str| Tab { label, link: request.url(path), is_current: section == current };
    let mut tabs =
        vec![tab(Section::Events, t.say("nav.alerts"), "/alerts"), tab(Section::Rules, t.say("alerts.rules"), "/alerts/rules")];
    // Destinations hold addresses that are secrets.
    if request.is_admin() {
        tabs.push(tab(Section::Destinations, t.say("alerts.destinations"), "/alerts/destinations"));
    }
    tabs
}

#[derive(Debug, Template)]
#[template(path = "alerts.html")]
struct AlertsPage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    /// Value, label, whether it is chosen.
    states: Vec<(&'static str, &'static str, bool)>,
    /// Word, name, whether it is chosen.
    rules: Vec<(String, String, bool)>,
    is_filtered: bool,
    /// The address of the same list as a file.
    csv: String,
    rows: Vec<AlertRow>,
    pager: Pager,
}

#[derive(Debug, Template)]
#[template(path = "alert_rules.html")]
struct RulesPage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    is_admin: bool,
    rows: Vec<RuleRow>,
}

#[derive(Debug, Deserialize)]
struct AlertObject {
    rule: String,
    state: String,
    raised_at: String,
    ended_at: Option<String>,
    subject: String,
    text: String,
    detail: Value,
    node: String,
    messages: Vec<MessageObject>,
}

#[derive(Debug, Deserialize)]
struct MessageObject {
    destination: String,
    kind: String,
    state: String,
    attempts: u64,
    fault: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RuleObject {
    name: String,
    doc: String,
    settings: Vec<ThresholdObject>,
    open: u64,
}

#[derive(Debug, Deserialize)]
struct ThresholdObject {
    name: String,
    value: Option<String>,
    unit: Option<String>,
    doc: String,
}

#[derive(Debug)]
struct AlertRow {
    mark: Mark,
    rule: String,
    text: String,
    /// The page of the alert's subject.
    link: Option<String>,
    raised: Option<TimeText>,
    ago: String,
    ended: Option<TimeText>,
    messages: Vec<(Mark, String)>,
}

#[derive(Debug)]
struct RuleRow {
    name: String,
    label: String,
    doc: String,
    open: u64,
    open_text: String,
    settings: Vec<ThresholdRow>,
}

#[derive(Debug)]
struct ThresholdRow {
    name: String,
    value: String,
    doc: String,
}

fn message(t: Locale, message: &MessageObject) -> (Mark, String) {
    let kind = if message.kind == "ended" { t.say("alerts.told_end") } else { t.say("alerts.told_begin") };
    let word = format!("{} · {kind}", message.destination);
    let mark = match message.state.as_str() {
        "sent" => Mark::new("ok", "okc", word),
        "failed" => Mark::new("bad", "badc", word),
        _ => Mark::new("off", "clock", word),
    };
    let attempts = if message.attempts > 1 { format!("× {} ", message.attempts) } else { String::new() };
    (mark, format!("{attempts}{}", message.fault.as_deref().unwrap_or_default()).trim().to_owned())
}

async fn read_rules(request: &PageRequest) -> Result<Vec<RuleObject>, crate::api_error::ApiError> {
    Ok(request.read::<ApiPage<RuleObject>>(operations::LIST_ALERT_RULES, ApiCall::default()).await?.items)
}

/// The filter of an address, as the admin API takes it.
fn filter<'a>(query: &'a FormData, rules: &[RuleObject]) -> Vec<(&'static str, &'a str)> {
    let (state, rule) = (query.value("state"), query.value("rule"));
    let state = matches!(state, "open" | "ended").then_some(("state", state));
    state.into_iter().chain(rules.iter().any(|known| known.name == rule).then_some(("rule", rule))).collect()
}

async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, query, now) = (request.t(), &request.query, request.state.gateway.now());
    let (state, wanted) = (query.value("state"), query.value("rule"));
    let rules = read_rules(&request).await?;
    let mut filter = filter(query, &rules);
    filter.push(("limit", PAGE));
    filter.extend(query.filled("after").map(|after| ("after", after)));
    let found = request.read::<ApiPage<AlertObject>>(operations::LIST_ALERTS, get(&filter)).await?;
    let row = |alert: &AlertObject| AlertRow {
        mark: match alert.state.as_str() {
            "open" => Mark::new("warn", "warn", t.say("alerts.open")),
            _ => Mark::new("ok", "okc", t.say("alerts.ended")),
        },
        rule: alert_text::name(t, &alert.rule),
        link: alert_text::link(t, &alert.rule, &alert.subject, &alert.detail).map(|(_, path)| request.url(&path)),
        text: alert_text::sentence(t, &alert.rule, &alert.detail, &alert.node, &alert.text),
        raised: format::time(t, &alert.raised_at),
        ago: format::ago(t, &alert.raised_at, now),
        ended: alert.ended_at.as_deref().and_then(|at| format::time(t, at)),
        messages: alert.messages.iter().map(|it| message(t, it)).collect(),
    };
    let rows: Vec<AlertRow> = found.items.iter().map(row).collect();
    let states = [("", t.say("alerts.all")), ("open", t.say("alerts.open")), ("ended", t.say("alerts.past"))];
    let count = t.say_count("alerts.one", "alerts.count", u64::try_from(rows.len()).unwrap_or(u64::MAX));
    let template = AlertsPage {
        layout: request.layout(t.say("nav.alerts")).wide(),
        t,
        tabs: tabs(&request, Section::Events),
        states: states.map(|(value, label)| (value, label, value == state)).to_vec(),
        is_filtered: ["state", "rule"].iter().any(|name| query.filled(name).is_some()),
        rules: rules
            .into_iter()
            .map(|rule| (alert_text::name(t, &rule.name), rule.name))
            .map(|(label, name)| (name.clone(), label, name == wanted))
            .collect(),
        csv: request.at("/alerts.csv", &Vec::new()),
        rows,
        pager: request.pager("/alerts", count, found.next.as_deref()),
    };
    PageReply::ok(&template)
}

async fn rules(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let threshold = |it: ThresholdObject| {
        let value = it.value.filter(|value| !value.is_empty());
        ThresholdRow {
            value: value.map_or_else(|| t.say("alerts.no_value").to_owned(), |value| shown_value(t, &value, it.unit.as_deref())),
            doc: setting_texts::doc(t, &it.name, &it.doc).to_owned(),
            name: it.name,
        }
    };
    let row = |rule: RuleObject| RuleRow {
        open: rule.open,
        open_text: format::integer(rule.open),
        settings: rule.settings.into_iter().map(threshold).collect(),
        doc: alert_text::rule(t, &rule.name, &rule.doc),
        label: alert_text::name(t, &rule.name),
        name: rule.name,
    };
    let template = RulesPage {
        layout: request.layout(t.say("nav.alerts")).wide(),
        t,
        tabs: tabs(&request, Section::Rules),
        is_admin: request.is_admin(),
        rows: read_rules(&request).await?.into_iter().map(row).collect(),
    };
    PageReply::ok(&template)
}

/// The value of a setting with its unit, or as a word.
fn shown_value(t: Locale, value: &str, unit: Option<&str>) -> String {
    match (value, unit) {
        ("true", None) => t.say("codes.on").to_owned(),
        ("false", None) => t.say("codes.off").to_owned(),
        (_, None) => value.to_owned(),
        (_, Some("USD")) => money::exact(t, value).with_title(),
        (_, Some(unit)) => format::with_unit(t, value, unit),
    }
}

/// Names of rules, for the form of a destination.
async fn rule_names(request: &PageRequest) -> Result<Vec<String>, crate::api_error::ApiError> {
    let found = request.read::<ApiPage<Value>>(operations::LIST_ALERT_RULES, ApiCall::default()).await?;
    Ok(found.items.iter().filter_map(|rule| rule["name"].as_str().map(str::to_owned)).collect())
}
