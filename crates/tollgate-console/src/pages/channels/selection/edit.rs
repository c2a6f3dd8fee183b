//! The form for several channels. Filled fields are written to each of them; empty ones stay unchanged.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{PLACES, Selection, page, send};
use crate::{
    api_error::ApiError,
    pages::{
        budgets,
        channels::form::{NUMBERS, number_or_text, statuses, statuses_control, tags, tags_control},
        control::{self, Control, ControlSection, decimal},
        form::{FormData, FormState},
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::PageRequest,
    },
};

/// Switches of a channel.
const SWITCHES: [&str; 4] = ["cooling", "empty_answer_is_failure", "retry_uncertain", "learn_unsupported"];
/// Limits of each account.
const LIMITS: [&str; 3] = ["rpm", "tpm", "concurrency"];
/// Limits of each channel: field of the form, and of the admin API.
const CHANNEL_LIMITS: [(&str, &str); 3] = [("channel_rpm", "rpm"), ("channel_tpm", "tpm"), ("channel_concurrency", "concurrency")];

pub(in crate::pages::channels) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let selection = Selection::of(&request, &request.query).await?;
    edit_page(&request, &selection, &FormState::default(), None)
}

pub(in crate::pages::channels) async fn save(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let selection = Selection::of(&request, &request.form).await?;
    if selection.channels.is_empty() {
        return Ok(super::back(&request, Toast::NothingChosen));
    }
    match send(&request, &selection, body(&request.form, request.is_admin())).await {
        Ok(()) => Ok(super::back(&request, Toast::Saved)),
        Err(error) => {
            let state = control::refused(request.t(), &request.form, error.clone(), PLACES)?;
            edit_page(&request, &selection, &state, Some(&error))
        }
    }
}

/// The filled fields as the admin API takes them.
fn body(form: &FormData, is_admin: bool) -> Map<String, Value> {
    let (mut body, mut account) = (Map::new(), Map::new());
    for field in NUMBERS.into_iter().filter(|field| form.filled(field).is_some()) {
        body.insert(field.to_owned(), number_or_text(form, field));
    }
    for field in SWITCHES {
        body.extend(form.filled(field).map(|value| (field.to_owned(), Value::from(value == "true"))));
    }
    body.extend(form.filled("pausing_statuses").map(|text| ("pausing_statuses".to_owned(), statuses(text))));
    body.extend(form.filled("tags").map(|text| ("tags".to_owned(), tags(text))));
    body.extend(budgets::filled_body(form).map(|budget| ("budget".to_owned(), budget)));
    if is_admin {
        body.extend(form.filled("proxy").map(|proxy| ("proxy".to_owned(), proxy.into())));
    }
    for (field, name) in CHANNEL_LIMITS.into_iter().filter(|(field, _)| form.filled(field).is_some()) {
        body.insert(name.to_owned(), number_or_text(form, field));
    }
    for field in LIMITS.into_iter().filter(|field| form.filled(field).is_some()) {
        account.insert(field.to_owned(), number_or_text(form, field));
    }
    account.extend(form.filled("cost_multiplier").map(|factor| ("cost_multiplier".to_owned(), decimal(factor).into())));
    if !account.is_empty() {
        body.insert("account".to_owned(), account.into());
    }
    body
}

fn edit_page(
    request: &PageRequest,
    selection: &Selection,
    state: &FormState,
    error: Option<&ApiError>,
) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let form = selection.form(request, "edit", sections(request, state), t.say("form.save"));
    page(request, selection, (t.say("selection.edit_title"), Some(form)), state, error)
}

fn sections(request: &PageRequest, state: &FormState) -> Vec<ControlSection> {
    let t = request.t();
    let switch = |name, label| {
        state.choice(name, label, [("", t.say("selection.keep")), ("true", t.say("codes.on")), ("false", t.say("codes.off"))])
    };
    let mut routing: Vec<Control> = vec![
        state.number("priority", t.say("channels.priority")).hint(t.say("channels.priority_hint")),
        state.number("weight", t.say("channels.weight")).hint(t.say("channels.weight_hint")),
        tags_control(t, state),
        switch("retry_uncertain", t.say("channels.retry")),
        switch("learn_unsupported", t.say("channels.learn")),
    ];
    if request.is_admin() {
        let proxy = state.text("proxy", t.say("channels.proxy")).hint(t.say("selection.proxy_hint")).max(2_000).holds_secrets();
        routing.push(proxy);
    }
    let times = vec![
        state.number("connect_timeout_ms", t.say("channels.connect_timeout")).hint(t.say("channels.connect_timeout_hint")),
        state.number("first_byte_timeout_ms", t.say("channels.first_byte_timeout")).hint(t.say("channels.first_byte_timeout_hint")),
        state.number("idle_timeout_ms", t.say("channels.idle_timeout")).hint(t.say("channels.idle_timeout_hint")),
        state.number("total_timeout_ms", t.say("channels.total_timeout")).hint(t.say("channels.total_timeout_hint")),
    ];
    let health = vec![
        state.number("failures_to_cool", t.say("channels.failures_to_cool")).hint(t.say("channels.failures_to_cool_hint")),
        state.number("cool_down_s", t.say("channels.cool_down")).hint(t.say("channels.cool_down_hint")),
        statuses_control(t, state),
        state.number("probe_interval_s", t.say("channels.probe_interval")).hint(t.say("channels.probe_interval_hint")),
        switch("cooling", t.say("channels.cooling")),
        switch("empty_answer_is_failure", t.say("channels.empty_answer")),
    ];
    let limits = vec![
        state.number("rpm", t.say("keys.rpm")),
        state.number("tpm", t.say("keys.tpm")),
        state.number("concurrency", t.say("keys.concurrency")),
        state.number("cost_multiplier", t.say("channels.multiplier")).hint(t.say("channels.multiplier_hint")),
    ];
    let channel_limits = vec![
        state.number("channel_rpm", t.say("keys.rpm")),
        state.number("channel_tpm", t.say("keys.tpm")),
        state.number("channel_concurrency", t.say("keys.concurrency")),
    ];
    let budget = vec![Control { hint: None, ..budgets::control(t, state) }];
    vec![
        ControlSection::new(t.say("channels.routing"), routing).about(t.say("selection.edit_about")),
        ControlSection::new(t.say("channels.health"), health),
        ControlSection::new(t.say("channels.times"), times),
        ControlSection::new(t.say("keys.limits_of_key"), channel_limits).about(t.say("selection.own_limits_about")),
        ControlSection::new(t.say("channels.accounts"), limits).about(t.say("selection.limits_about")),
        ControlSection::new(t.say("home.budgets"), budget).about(t.say("selection.budget_about")),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_filled_fields_are_sent() {
        let form = FormData::parse(
            b"priority=&weight=+3+&cooling=&retry_uncertain=false&budget_month_block=&budget_day_block=5&budget_day_alert=4&rpm=1,000&channel_rpm=2,000&cost_multiplier=&proxy=http://p:1&tags=eu,+us",
        );
        let budget = |amount: &str, action: &str| json!({"amount": amount, "window": "day", "action": action});
        let expected = json!({
            "weight": 3, "retry_uncertain": false, "tags": ["eu", "us"], "rpm": 2_000, "account": {"rpm": 1_000},
            "budget": [budget("5", "block"), budget("4", "alert")],
        });
        assert_eq!(Value::Object(body(&form, false)), expected);
        assert_eq!(body(&form, true)["proxy"], "http://p:1");
        assert!(body(&FormData::parse(b"budget_day_block=&priority=+"), true).is_empty());
        assert_eq!(
            body(&FormData::parse(b"rpm=x&weight=y"), true),
            json!({"weight": "y", "account": {"rpm": "x"}}).as_object().unwrap().clone()
        );
    }

    #[test]
    fn zero_is_sent_as_a_value() {
        let sent = body(&FormData::parse(b"priority=0&tpm=0"), true);
        assert_eq!(Value::Object(sent), json!({"priority": 0, "account": {"tpm": 0}}));
    }
}
