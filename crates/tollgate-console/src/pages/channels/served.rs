//! The models that a channel serves, with their names and costs at the provider, and the models that the provider lists.

use std::{collections::HashSet, sync::Arc};

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::state::{ServedObject, call_of, one, path};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::Control,
        form::{FormData, FormState, REVISION},
        layout::{Layout, Script},
        locale::Locale,
        operations,
        preferences::Toast,
        price_text,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get},
        set_up::{self, SetUpStep},
    },
};

/// Largest form: of many models, with several fields each.
pub(in crate::pages) const MAX_BYTES: usize = 512 << 10;
/// Models whose fields are shown at once; the others are found by their name.
const MAX_ROWS: usize = 150;
/// Models of the provider that are shown at once.
pub(super) const MAX_LISTED: usize = 400;

#[derive(Debug, Template)]
#[template(path = "channel_models.html")]
struct ServedPage {
    layout: Layout,
    t: Locale,
    /// The steps of the set-up, if the page is one of them.
    steps: Vec<SetUpStep>,
    banner: Option<String>,
    name: String,
    /// The revision that the form of the served models is for.
    revision: String,
    here: String,
    back: String,
    search: String,
    rows: Vec<ServedRow>,
    count: String,
    is_cut: bool,
    is_of_file: bool,
    is_built_in: bool,
    listed: Option<Listed>,
    model: Control,
    upstream: Control,
}

#[derive(Debug)]
struct ServedRow {
    model: String,
    upstream: String,
    input: String,
    output: String,
    /// Whether the cost has further figures, which stay as they are.
    has_more: bool,
    /// Whether it is chosen to be removed.
    is_removed: bool,
    /// The field that was refused: `upstream`, `input` or `output`.
    wrong: &'static str,
}

impl ServedRow {
    /// Shows the values of a refused form for this model.
    fn keep_typed(&mut self, form: &FormState) {
        self.is_removed = form.all("remove").any(|removed| removed == self.model);
        let Some(index) = form.all("shown").position(|shown| shown == self.model) else { return };
        for (kept, column) in [(&mut self.upstream, "upstreams"), (&mut self.input, "input"), (&mut self.output, "output")] {
            if let Some(typed) = form.all(column).nth(index) {
                typed.clone_into(kept);
            }
        }
    }
}

/// The provider's list of models.
#[derive(Debug)]
struct Listed {
    models: Vec<ListedModel>,
    count: String,
    is_cut: bool,
    search: String,
}

#[derive(Debug)]
struct ListedModel {
    id: String,
    served: bool,
    /// The list price of input and output.
    price: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct UpstreamModel {
    pub(super) id: String,
    pub(super) served: bool,
    list_price: Value,
}

impl ListedModel {
    fn of(t: Locale, model: UpstreamModel) -> Self {
        let lines = price_text::main_lines(t, &model.list_price).into_iter().map(|line| format!("{} {}", line.label, line.amount));
        let price = lines.collect::<Vec<_>>().join(" · ");
        let price = if price.is_empty() { t.say("price.none").to_owned() } else { price.trim_end().to_owned() };
        Self { id: model.id, served: model.served, price }
    }
}

/// Whether the page is a step of the set-up.
fn is_set_up(request: &PageRequest) -> bool {
    request.address.starts_with("/setup/")
}

/// The address of the page: that of a channel, or that of a step of the set-up.
fn address(request: &PageRequest) -> String {
    let channel = path(request.path_param("name"));
    if is_set_up(request) {
        request.url(&channel.replacen("/channels/", "/setup/channel/", 1))
    } else {
        request.url(&format!("{channel}/models"))
    }
}

/// The cost of input and output, and whether there are further figures.
fn cost_texts(cost: &Value) -> (String, String, bool) {
    let text = |price: &Map<String, Value>, kind: &str| match price.get(kind) {
        Some(Value::String(text)) => text.clone(),
        Some(number @ Value::Number(_)) => number.to_string(),
        _ => String::new(),
    };
    match cost {
        Value::Object(price) => {
            let has_more = price
                .iter()
                .any(|(kind, value)| !matches!(kind.as_str(), "input" | "output") && !value.is_null() && *value != false);
            (text(price, "input"), text(price, "output"), has_more)
        }
        Value::Array(list) => (String::new(), String::new(), !list.is_empty()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (String::new(), String::new(), false),
    }
}

fn served_row(served: &ServedObject) -> ServedRow {
    let (input, output, has_more) = cost_texts(&served.cost);
    ServedRow {
        model: served.model.clone(),
        upstream: served.upstream.clone(),
        input,
        output,
        has_more,
        is_removed: false,
        wrong: "",
    }
}

pub(in crate::pages) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    page(&request, &FormState::default(), None).await
}

/// Asks the provider.
pub(in crate::pages) async fn fetch(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let search = request.form.value("q").trim().to_lowercase();
    let call = ApiCall { path: call_of(&request).path, ..get(&[]) };
    match request.read::<ApiPage<UpstreamModel>>(operations::LIST_UPSTREAM_MODELS, call).await {
        Ok(found) => {
            let all = found.items.len().to_string();
            let mut models: Vec<UpstreamModel> = found.items;
            models.retain(|model| search.is_empty() || model.id.to_lowercase().contains(&search));
            let is_cut = models.len() > MAX_LISTED;
            models.truncate(MAX_LISTED);
            let count = request.t().say_with("channels.listed", &[("count", &all)]);
            let models = models.into_iter().map(|model| ListedModel::of(request.t(), model)).collect();
            let listed = Listed { models, count, is_cut, search: request.form.value("q").to_owned() };
            page(&request, &FormState::default(), Some(listed)).await
        }
        // The provider's message is shown.
        Err(error) if error.code() == "upstream_failed" || error.code() == "built_in" => {
            let form = FormState::about(request.t(), &request.form, &error);
            page(&request, &form, None).await
        }
        Err(error) => Err(error.into()),
    }
}

/// Serves the chosen models of the provider, or a typed one.
pub(in crate::pages) async fn add(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let mut added: Vec<(String, String)> = form.all("pick").map(same_name).collect();
    if let Some(model) = form.filled("model") {
        added.push((model.to_owned(), form.filled("upstream").unwrap_or(model).to_owned()));
    }
    let saved = match add_models(&request, &added, &HashSet::new()).await {
        Ok(()) if form.has("prices") => import_prices(&request, &added).await,
        other => other,
    };
    match saved {
        Ok(()) => Ok(PageReply::redirect(&address(&request)).toast(Toast::Saved)),
        Err(error) => {
            // The last one is the typed one.
            let is_typed = form.filled("model").is_some() && error.param().is_some_and(|param| param.ends_with("].upstream"));
            let error = if is_typed { error.about("upstream") } else { error };
            page(&request, &refused(request.t(), form, &error)?, None).await
        }
    }
}

/// A model with the provider's name as its public one.
pub(super) fn same_name(model: &str) -> (String, String) {
    (model.to_owned(), model.to_owned())
}

/// Serves further models, by public name and name at the provider, and no longer the `removed` ones.
pub(super) async fn add_models(request: &PageRequest, added: &[(String, String)], removed: &HashSet<&str>) -> Result<(), ApiError> {
    let (mut serves, revision) = serves(request).await?;
    serves.retain(|served| !removed.contains(model_of(served)));
    let known: HashSet<String> = serves.iter().map(|served| model_of(served).to_owned()).collect();
    serves.extend(
        added
            .iter()
            .filter(|(model, _)| !known.contains(model))
            .map(|(model, upstream)| json!({"model": model, "upstream": upstream})),
    );
    put(request, serves, &revision.to_string()).await
}

/// Puts the list prices of the built-in list on these models and their costs here, if it has them. Prices set by hand are kept.
pub(super) async fn import_prices(request: &PageRequest, added: &[(String, String)]) -> Result<(), ApiError> {
    #[derive(Deserialize)]
    struct Import {
        rows: Vec<ImportRow>,
    }
    #[derive(Deserialize)]
    struct ImportRow {
        id: String,
        channel: Option<String>,
        state: String,
    }
    let models: Vec<&str> = added.iter().map(|(model, _)| model.as_str()).take(1_000).collect();
    let body = |apply: Option<Vec<String>>| {
        let mut body = json!({"built_in": true, "to": "both", "models": models});
        if let Some(apply) = apply {
            body["apply"] = json!(apply);
        }
        body.as_object().cloned().unwrap_or_default()
    };
    let found: Import = request.read(operations::IMPORT_PRICES, ApiCall { body: body(None), ..ApiCall::default() }).await?;
    let is_ours = |row: &ImportRow| row.channel.as_deref().is_none_or(|channel| channel == request.path_param("name"));
    let is_written = |row: &ImportRow| matches!(row.state.as_str(), "new" | "changed") && is_ours(row);
    let apply: Vec<String> = found.rows.into_iter().filter(|row| is_written(row)).map(|row| row.id).collect();
    if !apply.is_empty() {
        request.call(operations::IMPORT_PRICES, ApiCall { body: body(Some(apply)), ..ApiCall::default() }).await?;
    }
    Ok(())
}

/// The public name of an entry of `serves`.
fn model_of(served: &Value) -> &str {
    served.get("model").and_then(Value::as_str).unwrap_or_default()
}

/// The channel's field `serves` from the admin API, and the revision of the channel.
async fn serves(request: &PageRequest) -> Result<(Vec<Value>, u64), ApiError> {
    #[derive(Deserialize)]
    struct Channel {
        serves: Vec<Value>,
        revision: u64,
    }
    let channel: Channel = request.read(operations::GET_CHANNEL, call_of(request)).await?;
    Ok((channel.serves, channel.revision))
}

/// Writes `serves` to the channel if it still has this revision.
async fn put(request: &PageRequest, serves: Vec<Value>, revision: &str) -> Result<(), ApiError> {
    let body = [("serves".to_owned(), Value::Array(serves))].into_iter().collect();
    let call = ApiCall { body, ..call_of(request) };
    request.call_with(operations::CHANGE_CHANNEL, call, &[("if-match", revision)]).await.map(|_| ())
}

/// Saves the fields of the models that were shown; other models are unchanged.
pub(in crate::pages) async fn change(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let changed = changed(&request.form, serves(&request).await?.0);
    let models: Vec<String> = changed.iter().map(|served| model_of(served).to_owned()).collect();
    let sent = put(&request, changed, request.form.value(REVISION)).await;
    // In the set-up, the next step follows once the typed values are saved.
    let goes_on = is_set_up(&request) && request.form.has("go_on");
    match sent {
        Ok(()) if goes_on => Ok(PageReply::redirect(&request.url(set_up::KEY))),
        Ok(()) => Ok(PageReply::redirect(&address(&request)).toast(Toast::Saved)),
        Err(error) => {
            let wrong = error.param().and_then(wrong_field);
            let wrong = wrong.and_then(|(index, field)| models.get(index).map(|model| (model.as_str(), field)));
            page_of(&request, &refused(request.t(), &request.form, &error)?, None, wrong).await
        }
    }
}

/// The position in the list of models and the column that a parameter such as `serves[2].cost.input` is about.
fn wrong_field(param: &str) -> Option<(usize, &'static str)> {
    let (index, field) = param.strip_prefix("serves[")?.split_once("].")?;
    let column = match field {
        "upstream" => "upstream",
        "cost.output" => "output",
        _ if field.starts_with("cost") => "input",
        _ => return None,
    };
    Some((index.parse().ok()?, column))
}

/// The field `serves` after applying the form, which changes the names at the provider and two costs, and removes models.
fn changed(form: &FormData, serves: Vec<Value>) -> Vec<Value> {
    let removed: HashSet<&str> = form.all("remove").collect();
    let shown: Vec<&str> = form.all("shown").collect();
    let columns = ["upstreams", "input", "output"].map(|column| form.all(column).collect::<Vec<_>>());
    let change = |mut served: Value| {
        let model = model_of(&served).to_owned();
        if removed.contains(model.as_str()) {
            return None;
        }
        let Some(index) = shown.iter().position(|shown| *shown == model) else { return Some(served) };
        let [upstream, input, output] = columns.each_ref().map(|column| column.get(index).map_or("", |value| value.trim()));
        if !upstream.is_empty() {
            served["upstream"] = upstream.into();
        }
        let (known_input, known_output, _) = cost_texts(&served["cost"]);
        if (input, output) != (known_input.as_str(), known_output.as_str()) {
            set_cost(&mut served, input, output);
        }
        Some(served)
    };
    serves.into_iter().filter_map(change).collect()
}

fn set_cost(served: &mut Value, input: &str, output: &str) {
    if !served["cost"].is_object() {
        served["cost"] = json!({});
    }
    for (kind, text) in [("input", input), ("output", output)] {
        served["cost"][kind] = if text.is_empty() { Value::Null } else { text.trim_start_matches('$').into() };
    }
    let is_empty = served["cost"].as_object().is_some_and(|cost| cost.values().all(Value::is_null));
    if is_empty {
        served["cost"] = Value::Null;
    }
}

fn refused(t: Locale, form: &FormData, error: &ApiError) -> Result<FormState, PageFailure> {
    // The position of a model is not a field of the form; the sentence has its name.
    let is_about_list = error.param().is_some_and(|param| param.starts_with("serves"));
    if is_about_list {
        return Ok(FormState::about(t, form, error));
    }
    FormState::refused(t, form, error, &["model", "upstream"])
}

async fn page(request: &PageRequest, form: &FormState, listed: Option<Listed>) -> Result<PageReply, PageFailure> {
    page_of(request, form, listed, None).await
}

/// The page with the typed values of the models; `wrong` is the refused model and column.
async fn page_of(
    request: &PageRequest,
    form: &FormState,
    listed: Option<Listed>,
    wrong: Option<(&str, &'static str)>,
) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let channel = one(request).await?;
    let search = request.query.value("q").trim().to_lowercase();
    let mut rows: Vec<ServedRow> = channel.serves.iter().map(served_row).collect();
    let all = u64::try_from(rows.len()).unwrap_or(u64::MAX);
    rows.retain(|row| {
        search.is_empty() || row.model.to_lowercase().contains(&search) || row.upstream.to_lowercase().contains(&search)
    });
    let is_cut = rows.len() > MAX_ROWS;
    rows.truncate(MAX_ROWS);
    for row in &mut rows {
        row.keep_typed(form);
        row.wrong = wrong.filter(|(model, _)| *model == row.model).map_or("", |(_, field)| field);
    }
    let layout = request.layout(t.say_with("channels.models_title", &[("channel", &channel.name)])).with(Script::Stages);
    let template = ServedPage {
        layout: if is_set_up(request) {
            layout.public_shell()
        } else {
            layout.below("/channels", t.say("nav.channels")).below(path(&channel.name), &channel.name)
        },
        t,
        steps: if is_set_up(request) { set_up::steps(t, 2) } else { Vec::new() },
        here: address(request),
        banner: form.banner(),
        revision: form.revision(channel.revision),
        back: request.url(&path(&channel.name)),
        search: request.query.value("q").to_owned(),
        count: t.say_count("channels.models_one", "channels.models_count", all),
        rows,
        is_cut,
        is_of_file: channel.is_of_file(),
        is_built_in: channel.is_built_in(),
        listed,
        model: form.text("model", t.say("channels.public_name")).hint(t.say("channels.public_name_hint")).required(),
        upstream: form.text("upstream", t.say("channels.upstream_name")).hint(t.say("channels.upstream_name_hint")),
        name: channel.name,
    };
    PageReply::page(form.status(), &template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_not_shown_in_the_form_are_unchanged() {
        let serves = vec![
            json!({"model": "a", "upstream": "a", "cost": {"input": "1.00", "output": "2.00", "cache_read": "0.10"}}),
            json!({"model": "b", "upstream": "b", "cost": null}),
            json!({"model": "c", "upstream": "c", "cost": [{"from": "2026-01-01T00:00:00Z"}]}),
            json!({"model": "d", "upstream": "d", "cost": null}),
        ];
        let form = FormData::parse(
            b"shown=a&shown=b&shown=c&upstreams=a-2&upstreams=b&upstreams=c&input=1.00&input=0.5&input=&output=3&output=&output=&remove=d",
        );
        let found = changed(&form, serves.clone());
        assert_eq!(found.len(), 3);
        assert_eq!(
            found[0],
            json!({"model": "a", "upstream": "a-2", "cost": {"input": "1.00", "output": "3", "cache_read": "0.10"}})
        );
        assert_eq!(found[1]["cost"], json!({"input": "0.5", "output": null}));
        assert_eq!(found[2], serves[2], "price schedules are unchanged");
    }

    #[test]
    fn emptied_cost_fields_remove_the_cost() {
        let served = vec![json!({"model": "a", "upstream": "a", "cost": {"input": "1.00", "output": "2.00"}})];
        let form = FormData::parse(b"shown=a&upstreams=a&input=&output=");
        assert_eq!(changed(&form, served)[0]["cost"], Value::Null);
    }
}
