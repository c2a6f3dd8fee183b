//! The versions of a channel: the differences of each change, and a form to restore one.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Section,
    state::{call_of, one, path},
    tabs,
};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        audit_action,
        control::{FormView, Pager, Tab},
        difference::{DifferenceRow, differences, summary},
        form::FormState,
        format::{self, TimeText},
        layout::Layout,
        locale::Locale,
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get},
    },
};

/// Versions on a page.
const PAGE: &str = "50";

#[derive(Debug, Template)]
#[template(path = "channel_history.html")]
struct HistoryPage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    rows: Vec<VersionRow>,
    pager: Pager,
}

#[derive(Debug, Template)]
#[template(path = "channel_version.html")]
struct VersionPage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    banner: Option<String>,
    at: Option<TimeText>,
    actor: String,
    /// Differences that restoring the version would make.
    differences: Vec<DifferenceRow>,
    is_of_file: bool,
    form: Option<FormView>,
}

/// A change of the admin API.
#[derive(Debug, Deserialize)]
struct ChangeObject {
    revision: u64,
    at: String,
    origin: String,
    actor: String,
    action: String,
    before: Value,
    after: Value,
}

#[derive(Debug)]
struct VersionRow {
    at: Option<TimeText>,
    actor: String,
    author: String,
    origin: String,
    action: String,
    summary: String,
    differences: Vec<DifferenceRow>,
    is_present: bool,
    /// Link to the comparison with the present version; `None` if the version cannot be restored.
    link: Option<String>,
}

pub(super) async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let channel = one(&request).await?;
    let here = format!("{}/history", path(&channel.name));
    let mut filter = vec![("limit", PAGE)];
    let after = request.query.filled("after");
    filter.extend(after.map(|after| ("after", after)));
    let call = ApiCall { path: call_of(&request).path, ..get(&filter) };
    let found = request.read::<ApiPage<ChangeObject>>(operations::LIST_CHANNEL_CHANGES, call).await?;
    let row = |(index, change): (usize, &ChangeObject)| {
        let detail = json!({"before": change.before, "after": change.after});
        let differences = differences(t, "channel", &detail);
        let is_present = index == 0 && after.is_none();
        VersionRow {
            at: format::time(t, &change.at),
            actor: audit_action::shown_author(t, &change.actor).to_owned(),
            author: change.actor.clone(),
            origin: audit_action::origin(t, &change.origin).to_owned(),
            action: audit_action::word(t, &change.action, "channel", &detail),
            summary: summary(t, &differences),
            differences,
            is_present,
            link: (!is_present && change.after.is_object()).then(|| request.url(&format!("{here}/{}", change.revision))),
        }
    };
    let rows: Vec<VersionRow> = found.items.iter().enumerate().map(row).collect();
    let count = t.say_count("channel_history.one", "channel_history.count", u64::try_from(rows.len()).unwrap_or(u64::MAX));
    let template = HistoryPage {
        layout: request.layout(channel.name.clone()).below("/channels", t.say("nav.channels")).wide(),
        t,
        tabs: tabs(&request, &channel.name, Section::History),
        rows,
        pager: request.pager(&here, count, found.next.as_deref()),
    };
    PageReply::ok(&template)
}

/// The version that the change of this revision made.
async fn version(request: &PageRequest) -> Result<ChangeObject, ApiError> {
    let missing = || ApiError::not_found("version");
    let revision: u64 = request.path_param("revision").parse().map_err(|_| missing())?;
    // Lists changes from the next revision downwards, so that this one comes first.
    let after = format!("{}-0", revision.checked_add(1).filter(|next| i64::try_from(*next).is_ok()).ok_or_else(missing)?);
    let call = ApiCall { path: call_of(request).path, ..get(&[("limit", "1"), ("after", &after)]) };
    let found = request.read::<ApiPage<ChangeObject>>(operations::LIST_CHANNEL_CHANGES, call).await?;
    let is_it = |change: &ChangeObject| change.revision == revision && change.after.is_object();
    found.items.into_iter().find(is_it).ok_or_else(missing)
}

async fn row(request: &PageRequest) -> Result<Map<String, Value>, ApiError> {
    request.read(operations::GET_CHANNEL, call_of(request)).await
}

/// The fields of a version that differ from the present row, as a body for the admin API.
fn changes(present: &Map<String, Value>, version: &Value) -> Map<String, Value> {
    let fields = version.as_object().into_iter().flatten();
    let differs = |(field, value): &(&String, &Value)| field.as_str() != "name" && present.get(*field) != Some(*value);
    fields.filter(differs).map(|(field, value)| (field.clone(), value.clone())).collect()
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let present = row(&request).await?;
    version_page(&request, &present, &FormState::default()).await
}

async fn version_page(request: &PageRequest, present: &Map<String, Value>, state: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let (channel, version) = tokio::try_join!(one(request), version(request))?;
    let changes = changes(present, &version.after);
    let before: Map<String, Value> =
        changes.keys().filter_map(|field| Some((field.clone(), present.get(field)?.clone()))).collect();
    let here = format!("{}/history/{}", path(&channel.name), version.revision);
    let form = (!changes.is_empty() && !channel.is_of_file()).then(|| {
        let revision = present.get("revision").and_then(Value::as_u64).unwrap_or_default();
        FormView::new(request.url(&here), Vec::new(), t.say("channel_history.restore"))
            .at_revision(state, revision)
            .cancel(request.url(&format!("{}/history", path(&channel.name))))
    });
    let template = VersionPage {
        layout: request.layout(channel.name.clone()).below("/channels", t.say("nav.channels")),
        t,
        tabs: tabs(request, &channel.name, Section::History),
        banner: state.banner(),
        at: format::time(t, &version.at),
        actor: audit_action::shown_author(t, &version.actor).to_owned(),
        differences: differences(t, "channel", &json!({"before": before, "after": changes})),
        is_of_file: channel.is_of_file(),
        form,
    };
    PageReply::page(state.status(), &template)
}

pub(super) async fn restore(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (present, version) = tokio::try_join!(row(&request), version(&request))?;
    let call = ApiCall { body: changes(&present, &version.after), ..call_of(&request) };
    match request.call_at_revision(operations::CHANGE_CHANNEL, call).await {
        Ok(_) => Ok(PageReply::redirect(&request.url(&path(request.path_param("name")))).toast(Toast::Saved)),
        Err(error) => {
            let state = FormState::refused(request.t(), &request.form, &error, &[])?;
            version_page(&request, &present, &state).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_differ_are_sent() {
        let present = json!({"id": "chn_1", "name": "a", "weight": 1, "proxy": null, "revision": 7});
        let version = json!({"name": "b", "weight": 3, "proxy": null});
        let changes = changes(present.as_object().unwrap(), &version);
        assert_eq!(Value::from(changes), json!({"weight": 3}), "a channel keeps its name, and what is the same is not sent");
    }
}
