//! The catalog as a file: pulled, previewed and applied. Secrets stand in the file itself: names of environment variables
//! and files of the gateway's machine are not followed, since whoever may send a file may not read those.

use std::{io, sync::Arc};

use serde_json::{Value, json};
use tollgate_core::{PriceEffects, price_effects};
use tollgate_store::{
    AdminScope, Change, KeyScope, PreviewError, RandomSource, RowKind,
    catalog_file::{self, ApplyMode, CatalogFile, CatalogPlan, FileError},
    preview,
};

use super::{
    previews,
    request_context::RequestContext,
    route::{Method, RequestSchema, ResponseSchema, Route, handler},
    schema::{COUNT, FieldAccess, ObjectSchema, TEXT, ValueSchema, WriteMode, both, needed, read},
};
use crate::{api_error::ApiError, response::ApiResponse};

/// Faults of a file that the message names; all of them stand beside it.
const MAX_FAULTS: usize = 20;

const FILE: ValueSchema = ValueSchema::String { least: 0, most: 64_000_000 };

static CATALOG: ObjectSchema = ObjectSchema {
    name: "Catalog",
    fields: &[read("revision", COUNT, "The last change."), read("file", TEXT, "The catalog as a file, without secrets.")],
};
static SENT: ObjectSchema = ObjectSchema {
    name: "CatalogFile",
    fields: &[
        needed("file", FILE, "The catalog file (TOML).").with(FieldAccess::Needed),
        both("prune", ValueSchema::Boolean, "Whether rows of the database that it does not name are removed.")
            .with(FieldAccess::Write),
    ],
};
static LINE: ObjectSchema = ObjectSchema {
    name: "PlanLine",
    fields: &[
        read("action", ValueSchema::Enum(&["add", "change", "remove", "take"]), "What happens to it."),
        read("kind", TEXT, "What kind of row."),
        read("name", TEXT, "Its name."),
        read("detail", TEXT, "Which fields change."),
    ],
};
static PLAN: ObjectSchema = ObjectSchema {
    name: "CatalogPlan",
    fields: &[
        read("revision", COUNT, "The last change: before it is applied, or afterwards."),
        read("changes", COUNT, "How many changes."),
        read("lines", ValueSchema::List { of: &ValueSchema::Object(&LINE), most: 1_000_000 }, "Row by row."),
        read("effects", previews::EFFECTS, "What price limits would exclude after it."),
        previews::CUT,
    ],
};

const fn route(method: Method, path: &'static str, needs: AdminScope, id: &'static str, doc: &'static str) -> Route {
    Route {
        method,
        path,
        resource: "catalog",
        needs,
        id,
        doc,
        query: &[],
        request: RequestSchema::Empty,
        response: ResponseSchema::Object(&CATALOG),
        handler: handler!(pull),
    }
}

pub(super) static ROUTES: &[Route] = &[
    route(Method::Get, "/admin/v1/catalog", AdminScope::Operator, "pull_catalog", "The whole catalog as a file, without secrets."),
    Route {
        request: RequestSchema::Body(&SENT, WriteMode::Create),
        response: ResponseSchema::Object(&PLAN),
        handler: handler!(preview_file),
        ..route(
            Method::Post,
            "/admin/v1/catalog/preview",
            AdminScope::Admin,
            "preview_catalog",
            "What a file would change. Nothing is written.",
        )
    },
    Route {
        request: RequestSchema::Body(&SENT, WriteMode::Create),
        response: ResponseSchema::Object(&PLAN),
        handler: handler!(apply_file),
        ..route(
            Method::Post,
            "/admin/v1/catalog/apply",
            AdminScope::Admin,
            "apply_catalog",
            "Applies a file: all of it or nothing.",
        )
    },
];

async fn pull(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let _turn = context.acquire_heavy_permit().await?;
    let current = context.with_query_timeout(context.state.store.catalog.current(&KeyScope::All)).await?;
    let file = catalog_file::render(&current);
    let answer = ApiResponse::ok(json!({"revision": current.revision, "file": file}));
    Ok(answer.revision(current.revision))
}

/// A file with its plan and its effects.
struct CatalogPreview {
    plan: CatalogPlan,
    effects: PriceEffects,
    revision: tollgate_core::Revision,
}

async fn planned(context: &RequestContext) -> Result<CatalogPreview, ApiError> {
    let text = context.body.text("file").unwrap_or_default();
    let refused =
        |_: &std::path::Path| Err(io::Error::other("a file of the gateway's machine cannot be named here; send the secret itself"));
    let file = catalog_file::parse(text, &|_| None, &refused).map_err(|faults| in_file(&as_sent(faults)))?;
    let prune = context.body.0.get("prune").is_some_and(|prune| prune == true);
    let mode = ApplyMode::Apply { prune };
    let limited = || KeyScope::Limited { names: file.key_names(), most: previews::MAX_LIMITED_KEYS };
    let scope = if prune { KeyScope::All } else { limited() };
    let current = context.with_query_timeout(context.state.store.catalog.current(&scope)).await?;
    let plan = catalog_file::plan(&file, &current, mode).map_err(|faults| in_file(&faults))?;
    let mut effects = effects(context, &current, &file, mode).await?;
    effects.truncated |= current.keys_cut;
    Ok(CatalogPreview { plan, effects, revision: current.revision })
}

async fn effects(
    context: &RequestContext,
    current: &tollgate_store::CatalogRows,
    file: &CatalogFile,
    mode: ApplyMode,
) -> Result<PriceEffects, ApiError> {
    let preview = preview(current, file, mode, RandomSource::system(), context.now()).await.map_err(|error| match error {
        PreviewError::File(faults) => in_file(&faults),
        PreviewError::Store(error) => ApiError::store(&error, context.state.catalog_file.as_deref()),
    })?;
    let keys: Vec<_> = preview.changed.into_iter().map(|(was, key)| (was.map(Arc::new), Arc::new(key))).collect();
    Ok(price_effects(&preview.before, &preview.after, &keys, context.now()))
}

/// No variable of the gateway's machine is looked at: that it is not set there would be no help.
fn as_sent(mut faults: Vec<FileError>) -> Vec<FileError> {
    for fault in &mut faults {
        if fault.message.contains("the environment variable ") && fault.message.ends_with(" is not set") {
            let at = fault.message.find("the environment variable ").unwrap_or_default();
            fault.message.truncate(at);
            fault.message.push_str("a variable of the gateway's machine cannot be named here; send the secret itself");
        }
    }
    faults
}

/// The faults of a file, each with its place.
fn in_file(faults: &[FileError]) -> ApiError {
    let shown: Vec<String> =
        faults.iter().take(MAX_FAULTS).map(|it| format!("line {}, column {}: {}", it.line, it.column, it.message)).collect();
    let more = faults.len().saturating_sub(MAX_FAULTS);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    ApiError::value("file", format_args!("{}{more}", shown.join("; "))).with_faults(faults)
}

fn show(planned: &CatalogPreview, revision: tollgate_core::Revision) -> Value {
    use tollgate_store::catalog_file::PlanAction;
    let count = planned.plan.changes.iter().filter(|change| !matches!(change, Change::Expect(_))).count();
    let lines: Vec<Value> = planned
        .plan
        .lines
        .iter()
        .map(|line| {
            let action = match line.sign {
                PlanAction::Add => "add",
                PlanAction::Change => "change",
                PlanAction::Remove => "remove",
                PlanAction::Take => "take",
            };
            json!({"action": action, "kind": RowKind::as_str(line.kind), "name": line.name, "detail": line.detail})
        })
        .collect();
    let effects = previews::show(&planned.effects.effects);
    json!({"revision": revision, "changes": count, "lines": lines, "effects": effects, "effects_cut": planned.effects.truncated})
}

async fn preview_file(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let planned = planned(&context).await?;
    Ok(ApiResponse::ok(show(&planned, planned.revision)).revision(planned.revision))
}

async fn apply_file(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let planned = planned(&context).await?;
    if let Some(expected) = context.if_match()?
        && expected != planned.revision
    {
        return Err(ApiError::conflict("revision_conflict", "The catalog was changed meanwhile; preview the file again."));
    }
    if !planned.plan.is_empty() {
        context.apply(&planned.plan.changes).await?;
    }
    let revision = context.state.store.catalog.revision().await?;
    Ok(ApiResponse::ok(show(&planned, revision)).revision(revision))
}
