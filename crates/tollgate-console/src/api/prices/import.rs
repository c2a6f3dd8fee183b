//! Import of price lists: the difference to the catalog, and the rows of it that are to be written.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate_core::{ImportPlan, ImportRow, MAX_PRICE_LIST_BYTES, PriceEffects, PriceList};
use tollgate_store::{
    AdminScope, Change,
    fields::{Access, FieldShape, Kind, Object, WriteMode, price},
};

use crate::{
    api::{
        previews,
        request_context::{ApplyOutcome, RequestContext},
        route::{Method, Needs, Resource, ResponseSchema, Route, handler},
        schema::{COUNT, MODEL_NAME, NAME, TEXT, both, read},
    },
    api_error::ApiError,
    price_import::{ImportSelection, ListInput, MAX_NAMED, changes, row_id, show_row, show_skipped},
    response::ApiResponse,
};

/// Largest body: a list whose every byte is escaped, and the other fields.
pub(in crate::api) const BODY_BYTES: usize = 2 * MAX_PRICE_LIST_BYTES + (1 << 20);
const ROW_ID: Kind = Kind::Text { min: 1, max: 400 };
pub(in crate::api) const FILE: Kind = Kind::Text { min: 1, max: MAX_PRICE_LIST_BYTES };

/// Formats of a list.
pub(in crate::api) const FORMAT: Kind = Kind::Word(&["litellm", "csv"]);
/// Prices that are imported.
pub(in crate::api) const TARGET: Kind = Kind::Word(&["sale", "cost", "both"]);
pub(in crate::api) const SOURCE: Kind = Kind::Text { min: 1, max: 200 };
pub(in crate::api) const MODELS: Kind = Kind::List { of: &MODEL_NAME, max: 1_000 };
pub(in crate::api) const OVERWRITE: Kind = Kind::List { of: &MODEL_NAME, max: 10_000 };

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
        price("after", "Price in the list; null: no price that can be imported.").with(Access::ReadOnly),
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
        sent("format", FORMAT, "Format of the file; default csv."),
        both("source", SOURCE, "Where the prices come from; default: the source that the list states."),
        sent("to", TARGET, "Prices that are imported: sale prices of models (the default), costs of channels."),
        sent("models", MODELS, "Only models with these public names; `*` and `?` allowed."),
        sent("overwrite", OVERWRITE, "Models whose prices are replaced although they were set by hand."),
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
            "Prices of served models for which the list has entries.",
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
    .once()
    .at_revision()
    .returns(ResponseSchema::Object(&IMPORT))];

async fn run(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let _permit = context.acquire_heavy_permit().await?;
    let list = read_list(&context).await?;
    let catalog = context.with_query_timeout(context.state.store.catalog.load()).await?;
    if let Some(expected) = context.if_match()?
        && expected != catalog.revision
    {
        return Err(ApiError::conflict("revision_conflict", "The catalog was changed concurrently; request the difference again."));
    }
    let imported = context.with_query_timeout(context.state.store.listing.imported_prices()).await?;
    let plan = ImportSelection::of(&context.body).plan(&list, &catalog, &imported);
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
    let input = ListInput::of(&context.body)?;
    let read = tokio::task::spawn_blocking(move || input.read()).await;
    Ok(read.map_err(|_| ApiError::internal())??)
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

fn show(list: &PriceList, plan: &ImportPlan, effects: &PriceEffects) -> Value {
    json!({
        "source": list.source, "about": list.about, "rows": plan.rows.iter().map(show_row).collect::<Vec<_>>(),
        "not_served": plan.not_served.iter().take(MAX_NAMED).collect::<Vec<_>>(), "not_served_count": plan.not_served.len(),
        "skipped": list.skipped.iter().take(MAX_NAMED).map(show_skipped).collect::<Vec<_>>(), "skipped_count": list.skipped.len(),
        "effects": previews::show(&effects.effects), "effects_cut": effects.truncated,
    })
}

#[cfg(test)]
mod tests {
    use tollgate_core::{ImportState, KeptReason, Price, PriceSchedule};

    use super::*;

    fn row(model: &str, channel: Option<&str>, state: ImportState) -> ImportRow {
        let price = Price { input: Some(1), ..Price::default() };
        let after = Some(PriceSchedule::constant(price));
        let channel = channel.map(str::to_owned);
        ImportRow { model: model.to_owned(), channel, state, entry: None, before: None, after, notes: Vec::new() }
    }

    #[test]
    fn only_picked_rows_are_written_and_rows_that_cannot_be_are_refused() {
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
