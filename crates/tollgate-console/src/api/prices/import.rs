//! Import of price lists: the difference to the catalog, and the rows of it that are to be written.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};
use tollgate_core::{
    Catalog, Glob, ImportPlan, ImportRow, ImportScope, MAX_PRICE_LIST_BYTES, PriceEffects, PriceList, PriceListFault,
    PriceListFormat, PriceSchedule, plan_price_import,
};
use tollgate_store::{
    AdminScope, Change, ImportedPrice,
    catalog_file::FileError,
    fields::{Access, FieldShape, FieldValue as _, Kind, Object, WriteMode, price},
};

use crate::{
    api::{
        previews,
        request_context::{ApplyOutcome, RequestContext},
        route::{Method, Needs, Resource, ResponseSchema, Route, handler},
        schema::{COUNT, MODEL_NAME, NAME, TEXT, both, read},
    },
    api_error::ApiError,
    response::ApiResponse,
};

/// Entries that are listed by name among those that are not served, and among those that are skipped.
const MAX_NAMED: usize = 1_000;
/// Faults of a list that are listed in the message; the error object lists all of them.
const MAX_FAULTS: usize = 20;
/// Largest body: a list whose every byte is escaped, and the other fields.
const BODY_BYTES: usize = 2 * MAX_PRICE_LIST_BYTES + (1 << 20);
const ROW_ID: Kind = Kind::Text { min: 1, max: 400 };
const FILE: Kind = Kind::Text { min: 1, max: MAX_PRICE_LIST_BYTES };

/// A field of the request.
const fn sent(name: &'static str, kind: Kind, doc: &'static str) -> FieldShape {
    both(name, kind, doc).with(Access::WriteOnly)
}

static ROW: Object = Object::of(
    "PriceImportRow",
    &[
        read("id", ROW_ID, "What `apply` takes."),
        read("model", MODEL_NAME, "Model name used by callers."),
        read("channel", NAME, "Channel whose cost it is; null: the sale price.").or_null(),
        read(
            "state",
            Kind::Word(&["new", "changed", "same", "kept", "skipped"]),
            "new and changed are written; kept: set by hand, or owned by the served catalog file; skipped: a price cannot express it.",
        ),
        read("reason", TEXT, "Why it is kept or skipped.").or_null(),
        read("entry", TEXT, "Entry of the list, with its provider.").or_null(),
        price("before", "Price in the catalog; null: there is none.").with(Access::ReadOnly),
        price("after", "Price in the list; null: none that could be imported.").with(Access::ReadOnly),
        read("notes", Kind::List { of: &TEXT, max: 100 }, "What was rounded or left out."),
    ],
);
static SKIPPED: Object = Object::of(
    "SkippedPrice",
    &[read("entry", TEXT, "Entry of the list, with its provider."), read("reason", TEXT, "Why it cannot be imported.")],
);
static IMPORT: Object = Object::of(
    "PriceImport",
    &[
        sent("file", FILE, "The list; or else `built_in`."),
        sent("built_in", Kind::Flag, "true: the list that is built into the program."),
        sent("format", Kind::Word(&["litellm", "csv"]), "Format of the file; default csv."),
        both("source", Kind::Text { min: 1, max: 200 }, "Where the prices come from; default: what the list says itself."),
        sent(
            "to",
            Kind::Word(&["sale", "cost", "both"]),
            "Prices that are imported: sale prices of models (the default), costs of channels.",
        ),
        sent("models", Kind::List { of: &MODEL_NAME, max: 1_000 }, "Only models with these public names; `*` and `?` allowed."),
        sent(
            "overwrite",
            Kind::List { of: &MODEL_NAME, max: 10_000 },
            "Models whose prices are replaced although they were set by hand.",
        ),
        sent(
            "apply",
            Kind::List { of: &ROW_ID, max: 100_000 },
            "Ids of the rows to write; absent: none, only show the difference.",
        ),
        read("revision", COUNT, "Catalog revision: before the import in a dry run, after it when applied."),
        read("written", COUNT, "Number of prices that were written."),
        read("about", Kind::List { of: &TEXT, max: 1_000 }, "Notes of the list about itself, such as pricing pages."),
        read(
            "rows",
            Kind::List { of: &Kind::Object(&ROW), max: 1_000_000 },
            "Prices of served models that the list has entries for.",
        ),
        read("not_served", Kind::List { of: &TEXT, max: MAX_NAMED }, "Entries for which no model is served; the first 1,000."),
        read("not_served_count", COUNT, "Number of these entries."),
        read(
            "skipped",
            Kind::List { of: &Kind::Object(&SKIPPED), max: MAX_NAMED },
            "Entries that cannot be imported; the first 1,000.",
        ),
        read("skipped_count", COUNT, "Number of these entries."),
        read("effects", previews::EFFECTS, "Accounts that price limits would newly exclude."),
        previews::CUT,
    ],
);

const RESOURCE: Resource = Resource { tag: "prices", needs: Needs::Scope(AdminScope::Operator) };

pub(in crate::api) static ROUTES: &[Route] = &[RESOURCE
    .route(
        Method::Post,
        "/admin/v1/prices/import",
        "import_prices",
        "Compares a price list with the catalog, and writes the rows named in `apply`. A price that was set by hand is kept unless its \
         model is in `overwrite`.",
        handler!(run),
    )
    .query(&[previews::CONFIRM])
    .takes(&IMPORT, WriteMode::Create)
    .takes_bytes(BODY_BYTES)
    .returns(ResponseSchema::Object(&IMPORT))];

async fn run(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let _permit = context.acquire_heavy_permit().await?;
    let list = read_list(&context).await?;
    let catalog = context.with_query_timeout(context.state.store.catalog.load()).await?;
    if let Some(expected) = context.if_match()?
        && expected != catalog.revision
    {
        return Err(ApiError::conflict("revision_conflict", "The catalog was changed concurrently; look at the difference again."));
    }
    let imported = context.with_query_timeout(context.state.store.listing.imported_prices()).await?;
    let plan = plan(&context, &list, &catalog, &imported);
    let picked = match context.body.list("apply") {
        Some(ids) => Some(picked(&plan, ids)?),
        None => None,
    };
    let rows: Vec<&ImportRow> = match &picked {
        Some(picked) => picked.clone(),
        None => plan.rows.iter().filter(|row| row.state.is_written()).collect(),
    };
    let changes = changes(&rows, &list.source);
    let effects = if changes.is_empty() {
        PriceEffects::default()
    } else {
        previews::preview_effects_of(&context, &changes, picked.is_none()).await?
    };
    let mut answer = show(&list, &plan, &effects);
    let (mut revision, mut written) = (catalog.revision, 0);
    if picked.is_some() && !changes.is_empty() {
        let mut batch = Vec::from_iter(context.idempotency_change()?);
        batch.push(Change::Expect(catalog.revision));
        batch.extend(changes);
        if let ApplyOutcome::Applied = context.apply(&batch).await? {
            written = rows.len();
        }
        revision = context.state.store.catalog.revision().await?;
    }
    (answer["revision"], answer["written"]) = (json!(revision), written.into());
    Ok(ApiResponse::ok(answer).revision(revision))
}

/// Reads the list that was sent, off the thread that answers requests.
async fn read_list(context: &RequestContext) -> Result<PriceList, ApiError> {
    let body = &context.body;
    let built_in = body.0.get("built_in").is_some_and(|flag| flag == true);
    let mut list = match (body.text("file"), built_in) {
        (None, true) => PriceList::built_in(),
        (Some(file), false) => {
            let format = if body.text("format") == Some("litellm") { PriceListFormat::LiteLlm } else { PriceListFormat::Csv };
            let file = file.to_owned();
            let read = tokio::task::spawn_blocking(move || PriceList::read(format, &file)).await;
            read.map_err(|_| ApiError::internal())?.map_err(|faults| list_error(&faults))?
        }
        _ => return Err(ApiError::invalid("missing_required_parameter", "file", "Send either 'file' or 'built_in'.")),
    };
    if let Some(source) = body.text("source") {
        source.clone_into(&mut list.source);
    }
    if list.source.is_empty() {
        let message = "Say in 'source' where the prices come from, such as 'LiteLLM 1.109.1' or 'contract of May'.";
        return Err(ApiError::invalid("missing_required_parameter", "source", message));
    }
    Ok(list)
}

/// Error that lists the faults of a list.
fn list_error(faults: &[PriceListFault]) -> ApiError {
    let fault = |fault: &PriceListFault| FileError {
        line: usize::try_from(fault.line).unwrap_or(usize::MAX),
        column: usize::try_from(fault.column).unwrap_or(usize::MAX),
        message: fault.message.clone(),
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
    let positioned: Vec<FileError> = faults.iter().filter(|fault| fault.line > 0).map(fault).collect();
    ApiError::value("file", format_args!("{}{more}", listed.join("; "))).with_faults(&positioned)
}

fn plan(context: &RequestContext, list: &PriceList, catalog: &Catalog, imported: &[ImportedPrice]) -> ImportPlan {
    let texts = |name: &str| -> Vec<String> {
        let list = context.body.list(name).into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let imported: HashSet<(&str, Option<&str>)> = imported.iter().map(|it| (it.model.as_str(), it.channel.as_deref())).collect();
    let mut models: Vec<Glob> = texts("models").into_iter().map(Glob).collect();
    if models.is_empty() {
        models.push(Glob("*".to_owned()));
    }
    let to = context.body.text("to").unwrap_or("sale");
    let scope = ImportScope {
        sale: to != "cost",
        cost: to != "sale",
        models: &models,
        overwrite: &texts("overwrite"),
        is_imported: &|model, channel| imported.contains(&(model, channel)),
    };
    plan_price_import(list, catalog, &scope)
}

/// `sale:gpt-5`, `cost:main:gpt-5`.
fn row_id(row: &ImportRow) -> String {
    match &row.channel {
        None => format!("sale:{}", row.model),
        Some(channel) => format!("cost:{channel}:{}", row.model),
    }
}

/// The rows with these ids that are written. A row that is the same already needs nothing.
fn picked<'a>(plan: &'a ImportPlan, ids: &[Value]) -> Result<Vec<&'a ImportRow>, ApiError> {
    let by_id: BTreeMap<String, &ImportRow> = plan.rows.iter().map(|row| (row_id(row), row)).collect();
    let mut rows = BTreeMap::new();
    for id in ids.iter().filter_map(Value::as_str) {
        let row = by_id.get(id).ok_or_else(|| ApiError::value("apply", format_args!("the difference has no row '{id}'")))?;
        if let Some(reason) = row.state.reason() {
            let hint =
                if row.after.is_some() { "; name its model in 'overwrite' to replace a price that was set by hand" } else { "" };
            return Err(ApiError::value("apply", format_args!("'{id}' is {}: {reason}{hint}", row.state.as_str())));
        }
        if row.state.is_written() {
            rows.insert(id, *row);
        }
    }
    Ok(rows.into_values().collect())
}

/// The changes that write these rows: one for each model, and one for all costs of a channel.
fn changes(rows: &[&ImportRow], source: &str) -> Vec<Change> {
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

fn show(list: &PriceList, plan: &ImportPlan, effects: &PriceEffects) -> Value {
    let row = |row: &ImportRow| {
        json!({
            "id": row_id(row), "model": row.model, "channel": row.channel, "state": row.state.as_str(),
            "reason": row.state.reason(), "entry": row.entry, "before": row.before.show(), "after": row.after.show(),
            "notes": row.notes,
        })
    };
    let skipped = |skipped: &tollgate_core::SkippedPrice| {
        let provider = skipped.provider.as_ref().map_or_else(String::new, |provider| format!("{provider}/"));
        json!({"entry": format!("{provider}{}", skipped.model), "reason": skipped.reason})
    };
    json!({
        "source": list.source, "about": list.about, "rows": plan.rows.iter().map(row).collect::<Vec<_>>(),
        "not_served": plan.not_served.iter().take(MAX_NAMED).collect::<Vec<_>>(), "not_served_count": plan.not_served.len(),
        "skipped": list.skipped.iter().take(MAX_NAMED).map(skipped).collect::<Vec<_>>(), "skipped_count": list.skipped.len(),
        "effects": previews::show(&effects.effects), "effects_cut": effects.truncated,
    })
}

#[cfg(test)]
mod tests {
    use tollgate_core::{ImportState, KeptReason, Price, ScheduledPrice};

    use super::*;

    fn row(model: &str, channel: Option<&str>, state: ImportState) -> ImportRow {
        let price = Price { input: Some(1), ..Price::default() };
        let after = Some(PriceSchedule(vec![ScheduledPrice { valid_from: None, price }]));
        let channel = channel.map(str::to_owned);
        ImportRow { model: model.to_owned(), channel, state, entry: None, before: None, after, notes: Vec::new() }
    }

    #[test]
    fn picked_rows_are_those_that_are_written() {
        let rows = vec![
            row("a", None, ImportState::New),
            row("a", Some("main"), ImportState::Changed),
            row("b", Some("main"), ImportState::New),
            row("c", None, ImportState::Same),
            row("d", None, ImportState::Kept(KeptReason::SetByHand)),
            row("e", None, ImportState::Skipped("per second".to_owned())),
        ];
        let plan = ImportPlan { rows, not_served: Vec::new() };
        let pick = |ids: &[&str]| picked(&plan, &ids.iter().map(|id| Value::from(*id)).collect::<Vec<_>>());
        let found = pick(&["cost:main:b", "sale:a", "sale:a", "sale:c", "cost:main:a"]).unwrap();
        let changes = changes(&found, "a list");
        assert_eq!(changes.len(), 2, "{changes:?}");
        assert!(matches!(&changes[0], Change::SetPrice { model, source: Some(source), .. } if model == "a" && source == "a list"));
        assert!(matches!(&changes[1], Change::SetCosts { channel, costs, .. } if channel == "main" && costs.len() == 2));
        let refused = |id: &str| pick(&[id]).unwrap_err().message().to_owned();
        assert!(refused("sale:d").contains("set by hand; name its model in 'overwrite'"), "{}", refused("sale:d"));
        assert!(refused("sale:e").contains("per second") && refused("sale:x").contains("no row 'sale:x'"));
    }
}
