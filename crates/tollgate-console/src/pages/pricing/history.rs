//! The history of sale prices and of channels' costs, for one model or all.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::Value;

use super::{Section, tabs, view::model_query};
use crate::{
    dispatch::ApiCall,
    pages::{
        audit_action,
        control::{Pager, Tab},
        format::{self, TimeText},
        layout::Layout,
        locale::Locale,
        operations, price_text,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get, path_of},
    },
};

/// Changes on a page.
const PAGE: &str = "50";
/// Names that are suggested.
const SUGGESTED: &str = "1000";

#[derive(Debug, Template)]
#[template(path = "pricing_history.html")]
struct HistoryPage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    model: String,
    query: String,
    models: Vec<String>,
    is_unknown: bool,
    rows: Vec<ChangeRow>,
    pager: Pager,
}

#[derive(Debug, Deserialize)]
struct ChangeObject {
    at: String,
    origin: String,
    actor: String,
    model: String,
    channel: Option<String>,
    source: Option<String>,
    before: Value,
    after: Value,
}

#[derive(Debug)]
struct ChangeRow {
    at: Option<TimeText>,
    actor: String,
    author: String,
    origin: String,
    model: String,
    /// The query that shows the changes of this model.
    query: String,
    channel: Option<String>,
    source: String,
    before: String,
    after: String,
    is_source_only: bool,
}

/// The names of models that have a price or are served.
pub(super) async fn model_names(request: &PageRequest) -> Result<Vec<String>, crate::api_error::ApiError> {
    let found = request.read::<ApiPage<Value>>(operations::LIST_PRICES, get(&[("limit", SUGGESTED)])).await?;
    Ok(found.items.iter().filter_map(|item| item["model"].as_str().map(str::to_owned)).collect())
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let model = request.query.filled("model").unwrap_or_default().to_owned();
    let models = model_names(&request).await?;
    let is_known = models.contains(&model) || models.len() >= 1_000;
    let mut filter = vec![("limit", PAGE)];
    filter.extend(request.query.filled("after").map(|after| ("after", after)));
    let found: ApiPage<ChangeObject> = if model.is_empty() {
        request.read(operations::LIST_ALL_PRICE_CHANGES, get(&filter)).await?
    } else if is_known {
        let call = ApiCall { path: path_of(&[("model", &model)]), ..get(&filter) };
        request.read(operations::LIST_PRICE_CHANGES, call).await?
    } else {
        ApiPage::empty()
    };
    let schedule = |schedule: &Value| match schedule.as_array() {
        Some(entries) => entries.iter().map(|entry| entry_text(t, entry)).collect::<Vec<_>>().join("; "),
        None => entry_text(t, schedule),
    };
    let rows: Vec<ChangeRow> = found
        .items
        .iter()
        .map(|change| ChangeRow {
            at: format::time(t, &change.at),
            actor: audit_action::shown_author(t, &change.actor).to_owned(),
            author: change.actor.clone(),
            origin: audit_action::origin(t, &change.origin).to_owned(),
            model: change.model.clone(),
            query: model_query(&change.model),
            channel: change.channel.clone(),
            source: change.source.clone().unwrap_or_else(|| t.say("pricing.by_hand").to_owned()),
            before: schedule(&change.before),
            after: schedule(&change.after),
            is_source_only: change.before == change.after,
        })
        .collect();
    let count = t.say_count("pricing.change", "pricing.changes_count", u64::try_from(rows.len()).unwrap_or(u64::MAX));
    let template = HistoryPage {
        layout: request.layout(t.say("nav.pricing")).wide(),
        t,
        tabs: tabs(&request, Section::History),
        is_unknown: !model.is_empty() && !is_known,
        query: model_query(&model),
        pager: request.pager("/pricing/history", count, found.next.as_deref()),
        model,
        models,
        rows,
    };
    PageReply::ok(&template)
}

/// An entry of a schedule with its time.
fn entry_text(t: Locale, entry: &Value) -> String {
    let price = price_text::sentence(t, entry);
    match entry["valid_from"].as_str().and_then(|at| format::beginning(t, at)) {
        Some(from) => format!("{} {}: {price}", t.say("pricing.from"), from.text),
        None => price,
    }
}
