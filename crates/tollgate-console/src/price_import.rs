//! Import of a price list: reading it, the difference to the catalog, and the changes that write it. The admin API imports the rows that
//! are picked; a job imports all that may be written.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};
use tollgate_core::{
    Catalog, Glob, ImportPlan, ImportRow, ImportScope, PriceEffects, PriceList, PriceListFault, PriceListFormat, PriceSchedule,
    SkippedPrice, Timestamp, plan_price_import,
};
use tollgate_store::{
    Actor, Change, ChangeRefusal, ChangeRefused, ImportedPrice, Store, StoreError, WorkControl, catalog_file::FileError,
    fields::FieldValue as _,
};

use crate::{
    api::{previews, request_context::InputFields},
    api_error::ApiError,
};

/// Entries that are listed by name among those that are not served, and among those that are skipped.
pub(crate) const MAX_NAMED: usize = 1_000;
/// Faults of a list that are listed in the message; the error object lists all of them.
const MAX_FAULTS: usize = 20;
/// Attempts of a job whose catalog is changed meanwhile.
const MAX_ATTEMPTS: u32 = 3;

/// Bytes of the lists in a job's result, as JSON. Together with the rest they stay below the maximum size of a result.
const ROW_BYTES: usize = 512 << 10;
const NAME_BYTES: usize = 64 << 10;
const SKIPPED_BYTES: usize = 128 << 10;
const EFFECT_BYTES: usize = 128 << 10;
const ABOUT_BYTES: usize = 32 << 10;

/// A list as it was sent.
#[derive(Debug)]
pub(crate) struct ListInput {
    content: ListContent,
    /// Source of the prices; `None`: the source that the list states.
    source: Option<String>,
}

#[derive(Debug)]
enum ListContent {
    BuiltIn,
    File { format: PriceListFormat, text: String },
}

/// Why a list cannot be imported.
#[derive(Debug)]
pub(crate) enum ListFault {
    Faults(Vec<PriceListFault>),
    /// Neither the request nor the list names the source of the prices.
    NoSource,
}

impl ListInput {
    /// The list of a request: `file` and `format`, or `built_in`.
    pub(crate) fn of(body: &InputFields) -> Result<Self, ApiError> {
        let built_in = body.flag("built_in");
        let content = match (body.text("file"), built_in) {
            (None, true) => ListContent::BuiltIn,
            (Some(file), false) => {
                let format = if body.text("format") == Some("litellm") { PriceListFormat::LiteLlm } else { PriceListFormat::Csv };
                ListContent::File { format, text: file.to_owned() }
            }
            _ => return Err(ApiError::invalid("missing_required_parameter", "file", "Send either 'file' or 'built_in'.")),
        };
        Ok(Self { content, source: body.text("source").map(str::to_owned) })
    }

    fn bytes(&self) -> u64 {
        match &self.content {
            ListContent::BuiltIn => 0,
            ListContent::File { text, .. } => text.len() as u64,
        }
    }

    /// Reads the list. Takes a second for the largest ones.
    pub(crate) fn read(self) -> Result<PriceList, ListFault> {
        let mut list = match self.content {
            ListContent::BuiltIn => PriceList::built_in(),
            ListContent::File { format, text } => PriceList::read(format, &text).map_err(ListFault::Faults)?,
        };
        if let Some(source) = self.source {
            list.source = source;
        }
        if list.source.is_empty() { Err(ListFault::NoSource) } else { Ok(list) }
    }
}

impl ListFault {
    /// The faults in one sentence.
    pub(crate) fn message(&self) -> String {
        let Self::Faults(faults) = self else {
            return "Say in 'source' where the prices come from, such as 'LiteLLM 1.109.1' or 'contract of May'.".to_owned();
        };
        let shown = |fault: &PriceListFault| {
            if fault.line == 0 {
                fault.message.clone()
            } else {
                format!("line {}, column {}: {}", fault.line, fault.column, fault.message)
            }
        };
        let listed: Vec<String> = faults.iter().take(MAX_FAULTS).map(shown).collect();
        let more = faults.len().saturating_sub(MAX_FAULTS);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        format!("{}{more}", listed.join("; "))
    }

    /// The faults that have a position.
    pub(crate) fn positioned(&self) -> Vec<FileError> {
        let Self::Faults(faults) = self else { return Vec::new() };
        let fault = |fault: &PriceListFault| FileError {
            line: usize::try_from(fault.line).unwrap_or(usize::MAX),
            column: usize::try_from(fault.column).unwrap_or(usize::MAX),
            message: fault.message.clone(),
        };
        faults.iter().filter(|fault| fault.line > 0).map(fault).collect()
    }
}

impl From<ListFault> for ApiError {
    fn from(fault: ListFault) -> Self {
        match &fault {
            ListFault::Faults(_) => Self::value("file", format_args!("{}", fault.message())).with_faults(&fault.positioned()),
            ListFault::NoSource => Self::invalid("missing_required_parameter", "source", fault.message()),
        }
    }
}

/// The part of a list to import.
#[derive(Debug)]
pub(crate) struct ImportSelection {
    sale: bool,
    cost: bool,
    models: Vec<Glob>,
    overwrite: Vec<String>,
}

impl ImportSelection {
    /// The selection of a request: `to`, `models`, `overwrite`.
    pub(crate) fn of(body: &InputFields) -> Self {
        let texts = |name: &str| -> Vec<String> {
            let list = body.list(name).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut models: Vec<Glob> = texts("models").into_iter().map(Glob).collect();
        if models.is_empty() {
            models.push(Glob("*".to_owned()));
        }
        let to = body.text("to").unwrap_or("sale");
        Self { sale: to != "cost", cost: to != "sale", models, overwrite: texts("overwrite") }
    }

    /// The difference of a list to the catalog. `imported` are the prices that were imported and not set by hand since.
    pub(crate) fn plan(&self, list: &PriceList, catalog: &Catalog, imported: &[ImportedPrice]) -> ImportPlan {
        let imported: HashSet<(&str, Option<&str>)> =
            imported.iter().map(|it| (it.model.as_str(), it.channel.as_deref())).collect();
        let scope = ImportScope {
            sale: self.sale,
            cost: self.cost,
            models: &self.models,
            overwrite: &self.overwrite,
            is_imported: &|model, channel| imported.contains(&(model, channel)),
        };
        plan_price_import(list, catalog, &scope)
    }
}

/// `sale:gpt-5`, `cost:main:gpt-5`.
pub(crate) fn row_id(row: &ImportRow) -> String {
    match &row.channel {
        None => format!("sale:{}", row.model),
        Some(channel) => format!("cost:{channel}:{}", row.model),
    }
}

/// The changes that write these rows: one for each model, and one for all costs of a channel.
pub(crate) fn changes(rows: &[&ImportRow], source: &str) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut costs: BTreeMap<&str, Vec<(String, Option<PriceSchedule>)>> = BTreeMap::new();
    for row in rows {
        match &row.channel {
            None => {
                let source = Some(source.to_owned());
                changes.push(Change::SetPrice { model: row.model.clone(), price: row.after.clone(), source });
            }
            Some(channel) => costs.entry(channel).or_default().push((row.model.clone(), row.after.clone())),
        }
    }
    changes.extend(costs.into_iter().map(|(channel, costs)| Change::SetCosts {
        channel: channel.to_owned(),
        costs,
        source: Some(source.to_owned()),
    }));
    changes
}

/// A row as an object of the API.
pub(crate) fn show_row(row: &ImportRow) -> Value {
    json!({
        "id": row_id(row), "model": row.model, "channel": row.channel, "state": row.state.as_str(),
        "reason": row.state.reason(), "entry": row.entry, "before": row.before.show(), "after": row.after.show(),
        "notes": row.notes,
    })
}

pub(crate) fn show_skipped(skipped: &SkippedPrice) -> Value {
    let provider = skipped.provider.as_ref().map_or_else(String::new, |provider| format!("{provider}/"));
    json!({"entry": format!("{provider}{}", skipped.model), "reason": skipped.reason})
}

/// An import as a job: it writes every price that is new or changed, or only shows the difference.
#[derive(Debug)]
pub struct ImportRequest {
    pub(crate) list: ListInput,
    pub(crate) selection: ImportSelection,
    /// Write nothing.
    pub(crate) dry_run: bool,
    /// Write although price limits leave a model without any account.
    pub(crate) confirmed: bool,
    /// Author of the changes.
    pub(crate) actor: Actor,
}

/// Why an import wrote nothing.
#[derive(Debug)]
pub enum ImportFailure {
    /// The list cannot be imported.
    List {
        message: String,
        faults: Vec<FileError>,
    },
    /// The state of the catalog prevents it.
    Refused(String),
    Store(StoreError),
}

impl From<StoreError> for ImportFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ListFault> for ImportFailure {
    fn from(fault: ListFault) -> Self {
        Self::List { message: fault.message(), faults: fault.positioned() }
    }
}

impl ImportRequest {
    /// Imports the list and returns the result. All prices are written, or none. The sent list is freed once it is parsed.
    pub async fn run(self, store: &Store, now: fn() -> Timestamp, control: &WorkControl) -> Result<Value, ImportFailure> {
        let Self { list, selection, dry_run, confirmed, actor } = self;
        let bytes = list.bytes();
        control.report("list", 0, Some(bytes));
        let list = list.read()?;
        control.report("list", bytes, Some(bytes));
        let mut attempt = 1;
        loop {
            control.check()?;
            let difference = Difference::of(store, &list, &selection, now(), control).await?;
            if dry_run || difference.changes.is_empty() {
                return Ok(difference.result(&list, dry_run, 0));
            }
            if let Some(emptied) = previews::nothing_left(&difference.effects).filter(|_| !confirmed) {
                let message = format!(
                    "{emptied} Nothing was saved: check the effects with 'dry_run', and start it with 'confirm' to save anyway."
                );
                return Err(ImportFailure::Refused(message));
            }
            let (changes, prices) = (difference.changes.len() as u64, difference.written());
            control.check()?;
            control.report("write", 0, Some(changes));
            let batch: Vec<Change> =
                std::iter::once(Change::Expect(difference.catalog.revision)).chain(difference.changes.iter().cloned()).collect();
            // From here on it cannot be cancelled, because it would be unknown whether an interrupted transaction was committed.
            match store.catalog.apply(&batch, &actor, now()).await {
                Ok(_) => {
                    control.report("write", changes, Some(changes));
                    let revision = store.catalog.revision().await?;
                    let mut result = difference.result(&list, dry_run, prices);
                    result["revision"] = json!(revision);
                    return Ok(result);
                }
                Err(StoreError::Refused(ChangeRefused { reason: ChangeRefusal::Stale { .. }, .. })) if attempt < MAX_ATTEMPTS => {
                    attempt += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The difference of a list to the catalog, and the changes that would write it.
struct Difference {
    catalog: Catalog,
    plan: ImportPlan,
    changes: Vec<Change>,
    effects: PriceEffects,
}

impl Difference {
    async fn of(
        store: &Store,
        list: &PriceList,
        selection: &ImportSelection,
        now: Timestamp,
        control: &WorkControl,
    ) -> Result<Self, ImportFailure> {
        control.report("difference", 0, None);
        let catalog = cancellable(control, store.catalog.load()).await?;
        let imported = cancellable(control, store.listing.imported_prices()).await?;
        let plan = selection.plan(list, &catalog, &imported);
        let rows: Vec<&ImportRow> = plan.rows.iter().filter(|row| row.state.is_written()).collect();
        let compared = plan.rows.len() as u64;
        control.report("difference", compared, Some(compared));
        let changes = changes(&rows, &list.source);
        let effects = if changes.is_empty() {
            PriceEffects::default()
        } else {
            control.report("effects", 0, None);
            let current = cancellable(control, store.catalog.live_rows(&previews::rows_of(&changes))).await?;
            cancellable(control, previews::effects_of(&current, &changes, true, now)).await?
        };
        Ok(Self { catalog, plan, changes, effects })
    }

    fn written(&self) -> usize {
        self.plan.rows.iter().filter(|row| row.state.is_written()).count()
    }

    /// The result of the job. Long lists are cut; the counts are those of all.
    fn result(&self, list: &PriceList, dry_run: bool, written: usize) -> Value {
        let Self { catalog, plan, effects, .. } = self;
        let mut counts = BTreeMap::from(["new", "changed", "same", "kept", "skipped"].map(|state| (state, 0_u64)));
        for row in &plan.rows {
            *counts.entry(row.state.as_str()).or_default() += 1;
        }
        let rows = plan.rows.iter().filter(|row| row.state.as_str() != "same");
        let (rows, rows_cut) = within(ROW_BYTES, rows.map(show_row));
        let (not_served, _) = within(NAME_BYTES, plan.not_served.iter().take(MAX_NAMED).map(|name| json!(name)));
        let (skipped, _) = within(SKIPPED_BYTES, list.skipped.iter().take(MAX_NAMED).map(show_skipped));
        let (shown, effects_cut) = within(EFFECT_BYTES, effects.effects.iter().map(previews::show_effect));
        let (about, _) = within(ABOUT_BYTES, list.about.iter().map(|note| json!(note)));
        json!({
            "source": list.source, "about": about, "dry_run": dry_run, "revision": catalog.revision, "written": written,
            "counts": counts, "rows": rows, "rows_cut": rows_cut,
            "not_served": not_served, "not_served_count": plan.not_served.len(),
            "skipped": skipped, "skipped_count": list.skipped.len(),
            "effects": shown, "effects_cut": effects.truncated || effects_cut,
        })
    }
}

/// The first values that have no more than so many bytes as JSON, and whether there are more.
fn within(bytes: usize, values: impl Iterator<Item = Value>) -> (Vec<Value>, bool) {
    let (mut kept, mut left) = (Vec::new(), bytes);
    for value in values {
        let Some(rest) = left.checked_sub(value.to_string().len() + 1) else { return (kept, true) };
        left = rest;
        kept.push(value);
    }
    (kept, false)
}

/// Ends a query when the work is cancelled.
async fn cancellable<T>(control: &WorkControl, query: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::select! {
        biased;
        () = control.cancelled() => Err(StoreError::Cancelled),
        result = query => result,
    }
}

#[cfg(test)]
mod tests;
