//! The catalog as a file: pull, preview and apply. Secrets must be literal: references to environment variables and files are
//! rejected, because a client of the admin API must not read those of the gateway's machine.

use std::{collections::HashSet, io, sync::Arc};

use serde_json::{Value, json};
use tollgate_core::{PriceEffects, catalog_warnings, price_effects};
use tollgate_store::{
    AdminScope, Change, ChannelRow, KeyScope, PreviewError, RandomSource, RowKind,
    catalog_file::{self, ApplyMode, CatalogFile, CatalogPlan, FileError, PlanAction, PlanLine, UnreadableFile},
    fields::{Access, Kind, Object, WriteMode},
    preview,
};

use super::{
    previews,
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::{COUNT, TEXT, both, needed, read},
};
use crate::{api_error::ApiError, response::ApiResponse};

/// Faults of a file listed in the message; the error object lists all of them.
const MAX_FAULTS: usize = 20;

const FILE: Kind = Kind::Text { min: 0, max: 64_000_000 };
/// Enough for the ids of 250 channels.
const NAMES: Kind = Kind::Text { min: 1, max: 8_000 };

static CATALOG: Object = Object::of(
    "Catalog",
    &[read("revision", COUNT, "Catalog revision."), read("file", TEXT, "The catalog as a file, without secrets.")],
);
static SENT: Object = Object::of(
    "CatalogFile",
    &[
        needed("file", FILE, "The catalog file (TOML).").with(Access::Required),
        both("prune", Kind::Flag, "Remove rows that the file does not contain.").with(Access::WriteOnly),
    ],
);
static LINE: Object = Object::of(
    "PlanLine",
    &[
        read("action", Kind::Word(&["add", "change", "remove", "take"]), "Change to the row; take: the file becomes its owner."),
        read("kind", TEXT, "Kind of the row."),
        read("name", TEXT, "Name of the row."),
        read("detail", TEXT, "Changed fields."),
    ],
);
/// The lines of a plan.
pub(super) const LINES: Kind = Kind::List { of: &Kind::Object(&LINE), max: 1_000_000 };
static PLAN: Object = Object::of(
    "CatalogPlan",
    &[
        read("revision", COUNT, "Catalog revision: before the change in a preview, after it when applied."),
        read("changes", COUNT, "Number of changes."),
        read("lines", LINES, "Changes by row."),
        read("effects", previews::EFFECTS, "Accounts that price limits would exclude."),
        previews::CUT,
        read("warnings", Kind::List { of: &TEXT, max: 1_000 }, "Probable mistakes in the resulting catalog."),
    ],
);

const READ: Resource = Resource { tag: "catalog", needs: Needs::Scope(AdminScope::Operator) };
const WRITE: Resource = Resource { needs: Needs::Scope(AdminScope::Admin), ..READ };

pub(super) static ROUTES: &[Route] = &[
    READ.route(Method::Get, "/admin/v1/catalog", "pull_catalog", "The whole catalog as a file, without secrets.", handler!(pull))
        .query(&[both("channels", NAMES, "Only these channels with their accounts: names or ids, separated by commas.")])
        .returns(ResponseSchema::Object(&CATALOG)),
    WRITE
        .route(
            Method::Post,
            "/admin/v1/catalog/preview",
            "preview_catalog",
            "Shows what a file would change, without changing it.",
            handler!(preview_file),
        )
        .takes(&SENT, WriteMode::Create)
        .returns(ResponseSchema::Object(&PLAN)),
    WRITE
        .route(Method::Post, "/admin/v1/catalog/apply", "apply_catalog", "Applies a file as a whole.", handler!(apply_file))
        .takes(&SENT, WriteMode::Create)
        .at_revision()
        .returns(ResponseSchema::Object(&PLAN)),
];

async fn pull(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let _permit = context.acquire_heavy_permit().await?;
    let scope = match context.query.text("channels") {
        Some(_) => KeyScope::Limited { names: HashSet::new(), max: 0 },
        None => KeyScope::All,
    };
    let current = context.with_query_timeout(context.state.store.catalog.live_rows(&scope)).await?;
    let file = match context.query.text("channels") {
        Some(names) => catalog_file::render_channels(chosen(&current.channels, names)?.into_iter()),
        None => catalog_file::render(&current),
    };
    Ok(ApiResponse::ok(json!({"revision": current.revision, "file": file})).revision(current.revision))
}

/// The channels with these names or ids, separated by commas.
fn chosen<'a>(channels: &'a [ChannelRow], names: &str) -> Result<Vec<&'a ChannelRow>, ApiError> {
    let names: HashSet<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let is_known = |name: &&str| channels.iter().any(|channel| channel.spec.name == **name || channel.id == **name);
    if !names.iter().all(is_known) {
        return Err(ApiError::not_found(RowKind::Channel).about("channels"));
    }
    let is_chosen = |channel: &&ChannelRow| names.contains(channel.spec.name.as_str()) || names.contains(channel.id.as_str());
    Ok(channels.iter().filter(is_chosen).collect())
}

/// Planned changes of a file and their effect through price limits.
struct CatalogPreview {
    plan: CatalogPlan,
    effects: PriceEffects,
    warnings: Vec<String>,
    revision: tollgate_core::Revision,
}

/// Reads a file that was sent. References to variables and files of the gateway's machine are faults.
pub(super) fn parse_sent(text: &str) -> Result<CatalogFile, Box<UnreadableFile>> {
    let reject_file =
        |_: &std::path::Path| Err(io::Error::other("a file of the gateway's machine cannot be named here; send the secret itself"));
    catalog_file::parse(text, &|_| None, &reject_file)
}

/// The error for the faults of a file that was sent.
pub(super) fn sent_file_error(faults: Vec<FileError>) -> ApiError {
    file_error(&explain_references(faults))
}

async fn plan_file(context: &RequestContext) -> Result<CatalogPreview, ApiError> {
    let file = parse_sent(context.body.text("file").unwrap_or_default());
    let prune = context.body.0.get("prune").is_some_and(|prune| prune == true);
    let mode = ApplyMode::Apply { prune };
    let names = match &file {
        Ok(file) => file.key_names(),
        Err(unreadable) => unreadable.key_names(),
    };
    let scope = if prune { KeyScope::All } else { KeyScope::Limited { names, max: previews::MAX_LIMITED_KEYS } };
    let current = context.with_query_timeout(context.state.store.catalog.live_rows(&scope)).await?;
    let file = file.map_err(|unreadable| sent_file_error(unreadable.faults_beside(&current, mode)))?;
    let plan = catalog_file::plan(&file, &current, mode).map_err(|faults| file_error(&faults))?;
    let (mut effects, warnings) = effects(context, &current, &file, mode).await?;
    effects.truncated |= current.keys_cut;
    Ok(CatalogPreview { plan, effects, warnings, revision: current.revision })
}

async fn effects(
    context: &RequestContext,
    current: &tollgate_store::CatalogRows,
    file: &CatalogFile,
    mode: ApplyMode,
) -> Result<(PriceEffects, Vec<String>), ApiError> {
    let preview = preview(current, file, mode, RandomSource::system(), context.now()).await.map_err(|error| match error {
        PreviewError::File(faults) => file_error(&faults),
        PreviewError::Store(error) => ApiError::store(&error, context.state.catalog_file.as_deref()),
    })?;
    let keys: Vec<_> = preview.changed.into_iter().map(|(before, key)| (before.map(Arc::new), Arc::new(key))).collect();
    let after: Vec<_> = keys.iter().map(|(_, key)| Arc::clone(key)).collect();
    let warnings = catalog_warnings(&preview.after, &after, context.now());
    Ok((price_effects(&preview.before, &preview.after, &keys, context.now()), warnings))
}

/// Rewords faults of environment references: "not set" would be misleading, because variables are never read here.
fn explain_references(mut faults: Vec<FileError>) -> Vec<FileError> {
    for fault in &mut faults {
        if fault.message.contains("the environment variable ") && fault.message.ends_with(" is not set") {
            let at = fault.message.find("the environment variable ").unwrap_or_default();
            fault.message.truncate(at);
            fault.message.push_str("a variable of the gateway's machine cannot be named here; send the secret itself");
        }
    }
    faults
}

/// Error that lists the faults of a file.
pub(super) fn file_error(faults: &[FileError]) -> ApiError {
    let listed: Vec<String> = faults
        .iter()
        .take(MAX_FAULTS)
        .map(|fault| format!("line {}, column {}: {}", fault.line, fault.column, fault.message))
        .collect();
    let more = faults.len().saturating_sub(MAX_FAULTS);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    ApiError::value("file", format_args!("{}{more}", listed.join("; "))).with_faults(faults)
}

/// The lines of a plan as objects.
pub(super) fn show_lines(plan: &CatalogPlan) -> Vec<Value> {
    let action = |sign: PlanAction| match sign {
        PlanAction::Add => "add",
        PlanAction::Change => "change",
        PlanAction::Remove => "remove",
        PlanAction::Take => "take",
    };
    let show = |line: &PlanLine| json!({"action": action(line.sign), "kind": line.kind.as_str(), "name": line.name, "detail": line.detail});
    plan.lines.iter().map(show).collect()
}

fn show(preview: &CatalogPreview, revision: tollgate_core::Revision) -> Value {
    let count = preview.plan.changes.iter().filter(|change| !matches!(change, Change::Expect(_))).count();
    let lines = show_lines(&preview.plan);
    let effects = previews::show(&preview.effects.effects);
    json!({
        "revision": revision, "changes": count, "lines": lines, "effects": effects, "effects_cut": preview.effects.truncated,
        "warnings": preview.warnings,
    })
}

async fn preview_file(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let preview = plan_file(&context).await?;
    Ok(ApiResponse::ok(show(&preview, preview.revision)).revision(preview.revision))
}

async fn apply_file(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let preview = plan_file(&context).await?;
    if let Some(expected) = context.if_match()?
        && expected != preview.revision
    {
        return Err(ApiError::conflict("revision_conflict", "The catalog was changed concurrently; preview the file again."));
    }
    if !preview.plan.is_empty() {
        context.apply(&preview.plan.changes).await?;
    }
    let revision = context.state.store.catalog.revision().await?;
    Ok(ApiResponse::ok(show(&preview, revision)).revision(revision))
}
