//! Import of a price list: first a comparison with the catalog, then writing the picked rows. Prices that were set by hand are kept.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Section, import_text, tabs};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{self, Control, ControlSection, FaultPlace, FormView, Tab, names},
        form::{FormData, FormState, REVISION},
        format,
        layout::{Layout, Script},
        locale::Locale,
        operations,
        preferences::Toast,
        price_text::{self, ComparedFigure},
        reply::{PageFailure, PageReply},
        request::PageRequest,
        sentences::Said,
    },
};

/// Largest form: a list of 4 MiB, of which every third character is written as three.
pub(super) const MAX_BYTES: usize = 8 << 20;
/// Characters of a list that is pasted.
const MAX_LIST: usize = 4 << 20;
/// Rows of the difference that are shown; a narrower selection of models shows others.
const MAX_ROWS: usize = 1_000;
/// Entries that could not be imported, as shown.
const MAX_SKIPPED: usize = 50;
/// Source of the prices if none is given.
const PASTED: &str = "pasted list";

const PLACES: &[FaultPlace] = &[
    ("file", "file", ""),
    ("built_in", "file", ""),
    ("format", "source", ""),
    ("source", "origin", ""),
    ("models", "models", "model_pattern"),
    ("nothing_left", "confirm", "nothing_left"),
    ("apply", "models", ""),
];

#[derive(Debug, Template)]
#[template(path = "pricing_import.html")]
struct ImportPage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    banner: Option<String>,
    form: FormView,
    difference: Option<Difference>,
}

/// The changes that an import would make.
#[derive(Debug)]
struct Difference {
    source: String,
    about: Vec<String>,
    rows: Vec<ImportRow>,
    /// Rows that change nothing.
    same: Vec<ImportRow>,
    is_cut: bool,
    /// Whether there is a row that can be picked.
    may_import: bool,
    /// Whether any row would lose a figure that its price has now.
    loses_figures: bool,
    new_count: String,
    kept_count: String,
    same_count: String,
    not_served: String,
    skipped: Vec<(String, Said)>,
    skipped_count: String,
    /// Hidden fields with the list and the revision of the catalog, for importing the picked rows.
    hidden: Vec<(&'static str, String)>,
    file: String,
    /// Price limits would leave a model without an account, so the import must be confirmed.
    must_confirm: bool,
}

#[derive(Debug)]
pub(in crate::pages) struct ImportRow {
    id: String,
    pub(in crate::pages) model: String,
    pub(in crate::pages) channel: Option<String>,
    tone: &'static str,
    icon: &'static str,
    pub(in crate::pages) state: &'static str,
    is_written: bool,
    /// Whether the price has figures now that the list lacks. Such a row is not preselected.
    loses_figures: bool,
    is_same: bool,
    pub(in crate::pages) before: String,
    /// The figures of the list beside the current ones; empty for a price without figures.
    figures: Vec<ComparedFigure>,
    pub(in crate::pages) after: String,
    /// Why it is kept or skipped, and the notes of the list.
    pub(in crate::pages) remarks: Vec<Said>,
}

#[derive(Debug, Deserialize)]
struct ImportAnswer {
    source: String,
    #[serde(default)]
    about: Vec<String>,
    /// That of the catalog with which the list was compared.
    revision: u64,
    rows: Vec<RowObject>,
    not_served_count: u64,
    skipped: Vec<SkippedObject>,
    skipped_count: u64,
}

#[derive(Debug, Deserialize)]
pub(in crate::pages) struct RowObject {
    id: String,
    model: String,
    channel: Option<String>,
    state: String,
    reason: Option<String>,
    before: Value,
    after: Value,
    notes: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct SkippedObject {
    entry: String,
    reason: String,
}

impl ImportRow {
    pub(in crate::pages) fn of(t: Locale, row: &RowObject) -> Self {
        let (tone, icon, state) = match row.state.as_str() {
            "new" => ("ok", "plus", t.say("pricing.state_new")),
            "changed" => ("info", "edit", t.say("pricing.state_changed")),
            "same" => ("off", "check", t.say("pricing.state_same")),
            "kept" => ("warn", "pin", t.say("pricing.state_kept")),
            _ => ("off", "out", t.say("pricing.state_skipped")),
        };
        let is_written = matches!(row.state.as_str(), "new" | "changed");
        let (last_before, last_after) = (price_text::entries(&row.before).pop(), price_text::entries(&row.after).pop());
        let figures = match (&last_before, &last_after) {
            (Some(before), Some(after)) if is_written => price_text::compared(t, after, before),
            _ => Vec::new(),
        };
        let price = |price: &Value| match price_text::entries(price).last() {
            Some(entry) => price_text::sentence(t, entry),
            None => "–".to_owned(),
        };
        Self {
            id: row.id.clone(),
            model: row.model.clone(),
            channel: row.channel.clone(),
            tone,
            icon,
            state,
            is_written,
            loses_figures: figures.iter().any(|figure| figure.is_missing),
            is_same: row.state == "same",
            before: price(&row.before),
            figures,
            after: price(&row.after),
            remarks: row.reason.iter().chain(&row.notes).map(|text| import_text::say(t, text)).collect(),
        }
    }
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let state = FormState::of(FormData::of(&[("source", "built_in"), ("to", "both")]));
    import_page(&request, &state, None)
}

/// The fields of a price list and of the selection from it. The list's own field has this many lines.
pub(in crate::pages) fn list_controls(t: Locale, state: &FormState, lines: usize) -> Vec<Control> {
    let sources = [
        ("built_in", t.say("pricing.list_built_in")),
        ("litellm", t.say("pricing.list_litellm")),
        ("csv", t.say("pricing.list_csv")),
    ];
    let targets = [("both", t.say("pricing.to_both")), ("sale", t.say("pricing.to_sale")), ("cost", t.say("pricing.to_cost"))];
    vec![
        state.choice("source", t.say("pricing.list"), sources),
        state.choice("to", t.say("pricing.to"), targets),
        state.text("models", t.say("groups.models")).hint(t.say("pricing.import_models_hint")).max(2_000),
        state.text("origin", t.say("pricing.origin")).hint(t.say("pricing.origin_hint")).max(200),
        state.area("file", t.say("pricing.file"), lines).hint(t.say("pricing.file_hint")).max(MAX_LIST),
    ]
}

fn import_page(request: &PageRequest, state: &FormState, difference: Option<Difference>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let controls = list_controls(t, state, 5);
    let sections = vec![ControlSection::new("", controls).about(t.say("pricing.import_about"))];
    let template = ImportPage {
        layout: request.layout(t.say("nav.pricing")).wide().with(Script::Operators),
        t,
        tabs: tabs(request, Section::Import),
        banner: state.banner(),
        form: FormView::new(request.url("/pricing/import"), sections, t.say("pricing.compare")),
        difference,
    };
    PageReply::page(state.status(), &template)
}

/// The list and the selection from it, as parameters of the admin API.
pub(in crate::pages) fn list_body(form: &FormData) -> Result<Map<String, Value>, ApiError> {
    let mut body = Map::new();
    match form.value("source") {
        "built_in" => drop(body.insert("built_in".to_owned(), true.into())),
        format => {
            if form.value("file").trim().is_empty() {
                return Err(ApiError::value("file", "expected a list").because("no_list"));
            }
            body.insert("file".to_owned(), form.value("file").into());
            body.insert("format".to_owned(), if format == "litellm" { "litellm" } else { "csv" }.into());
            body.insert("source".to_owned(), form.filled("origin").unwrap_or(PASTED).into());
        }
    }
    body.insert("to".to_owned(), form.filled("to").unwrap_or("sale").into());
    let models = names(form, "models");
    if !models.is_empty() {
        body.insert("models".to_owned(), models.into_iter().collect());
    }
    Ok(body)
}

pub(super) async fn compare(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    match difference(&request, false).await {
        Ok(difference) => import_page(&request, &FormState::of(request.form.clone()), Some(difference)),
        Err(error) => refuse(&request, error),
    }
}

async fn difference(request: &PageRequest, must_confirm: bool) -> Result<Difference, ApiError> {
    let (t, form) = (request.t(), &request.form);
    let call = ApiCall { body: list_body(form)?, ..ApiCall::default() };
    let answer: ImportAnswer = request.read(operations::IMPORT_PRICES, call).await?;
    let count = |states: &[&str]| {
        let found = answer.rows.iter().filter(|row| states.contains(&row.state.as_str())).count();
        u64::try_from(found).unwrap_or(u64::MAX)
    };
    let mut rows: Vec<ImportRow> = answer.rows.iter().map(|row| ImportRow::of(t, row)).collect();
    // Rows that can be picked come first.
    rows.sort_by_key(|row| !row.is_written);
    let is_cut = rows.len() > MAX_ROWS;
    rows.truncate(MAX_ROWS);
    let (same, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.is_same);
    let mut hidden: Vec<_> = ["source", "to", "models", "origin"].map(|name| (name, form.value(name).to_owned())).into();
    hidden.push((REVISION, answer.revision.to_string()));
    Ok(Difference {
        source: answer.source,
        about: answer.about,
        is_cut,
        may_import: rows.iter().any(|row| row.is_written),
        loses_figures: rows.iter().any(|row| row.loses_figures),
        same_count: format::integer(count(&["same"])),
        rows,
        same,
        new_count: format::integer(count(&["new", "changed"])),
        kept_count: format::integer(count(&["kept"])),
        not_served: format::integer(answer.not_served_count),
        skipped: answer.skipped.into_iter().take(MAX_SKIPPED).map(|it| (it.entry, import_text::say(t, &it.reason))).collect(),
        skipped_count: format::integer(answer.skipped_count),
        hidden,
        file: form.value("file").to_owned(),
        must_confirm,
    })
}

pub(super) async fn apply(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let picked: Vec<Value> = form.all("apply").map(Value::from).collect();
    if picked.is_empty() {
        let error = ApiError::value("models", "expected rows").because("nothing_picked");
        return refuse_apply(&request, error, false).await;
    }
    let sent = match list_body(form) {
        Ok(mut body) => {
            body.insert("apply".to_owned(), picked.into());
            let query = if form.value("confirm") == "true" { "confirm=true".to_owned() } else { String::new() };
            request.call_at_revision(operations::IMPORT_PRICES, ApiCall { query, body, ..ApiCall::default() }).await
        }
        Err(error) => Err(error),
    };
    match sent {
        Ok(_) => Ok(PageReply::redirect(&request.url("/pricing")).toast(Toast::Saved)),
        Err(error) => {
            let must_confirm = error.code() == "nothing_left";
            refuse_apply(&request, error, must_confirm).await
        }
    }
}

/// Shows the difference again, with the fault above it.
async fn refuse_apply(request: &PageRequest, error: ApiError, must_confirm: bool) -> Result<PageReply, PageFailure> {
    match difference(request, must_confirm).await {
        Ok(difference) => {
            let state = control::refused(request.t(), &request.form, error, PLACES)?;
            import_page(request, &state, Some(difference))
        }
        Err(error) => refuse(request, error),
    }
}

fn refuse(request: &PageRequest, error: ApiError) -> Result<PageReply, PageFailure> {
    import_page(request, &control::refused(request.t(), &request.form, error, PLACES)?, None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn row_marks_figures_that_the_import_removes() {
        let row: RowObject = serde_json::from_value(json!({
            "id": "sale:m", "model": "m", "channel": null, "state": "changed", "reason": null, "notes": [],
            "before": {"input": "1", "output": "2", "cache_read": "0.1"}, "after": {"input": "1", "output": "3"},
        }))
        .unwrap();
        let row = ImportRow::of(Locale::EN, &row);
        let shown: Vec<_> = row.figures.iter().map(|it| (it.amount.as_str(), it.is_changed, it.is_missing)).collect();
        assert_eq!(shown, [("$1.00", false, false), ("$3.00", true, false), ("$0.10", true, true)]);
        assert!(row.is_written && row.loses_figures && !row.is_same);
    }

    #[test]
    fn list_and_selection_are_sent_in_the_body() {
        let form = FormData::parse(b"source=litellm&file=%7B%7D&to=cost&models=gpt-*,+cl*");
        let expected = json!({"file": "{}", "format": "litellm", "source": PASTED, "to": "cost", "models": ["gpt-*", "cl*"]});
        assert_eq!(Value::Object(list_body(&form).unwrap()), expected);
        assert_eq!(
            Value::Object(list_body(&FormData::parse(b"source=built_in&to=both")).unwrap()),
            json!({"built_in": true, "to": "both"})
        );
        assert_eq!(list_body(&FormData::parse(b"source=csv&file=+")).unwrap_err().param(), Some("file"));
    }
}
