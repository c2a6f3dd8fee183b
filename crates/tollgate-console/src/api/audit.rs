//! The audit log.

use serde_json::{Value, json};
use tollgate_core::Revision;
use tollgate_store::{
    AdminScope, AuditEvent, AuditFilter, AuditPosition, RowKind,
    fields::{Kind, Object},
};

use super::{
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{COUNT, NAME, TEXT, both, read},
};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value};

static EVENT: Object = Object::of(
    "AuditEvent",
    &[
        read("revision", COUNT, "Catalog revision of the change."),
        read("at", Kind::Time, "Time of the change."),
        read("door", Kind::Word(&["file", "cli", "console", "api", "gateway"]), "Origin of the change."),
        read("actor", TEXT, "Author of the change."),
        read("action", TEXT, "put, remove, switch, revoke and others."),
        read("kind", TEXT, "Kind of the row."),
        read("id", TEXT, "Id of the row."),
        read("name", TEXT, "Name of the row at that time."),
        read("detail", Kind::Any, "State before and after, without secrets."),
    ],
);

const KINDS: &[&str] = &["channel", "account", "model", "group", "member", "key", "admin_key"];

const AUDIT: Resource = Resource { tag: "audit", needs: AdminScope::Admin };

pub(super) static ROUTES: &[Route] = &[AUDIT
    .route(Method::Get, "/admin/v1/audit", "list_audit_events", "Changes to the catalog, newest first.", handler!(list))
    .query(&[
        LIMIT,
        AFTER,
        both("kind", Kind::Word(KINDS), "Only changes of this kind of row."),
        both("id", NAME, "Only changes of the row with this id."),
    ])
    .returns(ResponseSchema::Page(&EVENT))];

fn show(event: &AuditEvent) -> Value {
    let AuditEvent { revision, at, origin, actor, action, kind, id, name, detail } = event;
    json!({
        "revision": revision.0, "at": time_value(*at), "door": origin, "actor": actor, "action": action, "kind": kind, "id": id, "name": name,
        "detail": serde_json::from_str::<Value>(detail).unwrap_or_else(|_| json!({"text": detail})),
    })
}

/// Parses a page cursor: `<revision>-<position>`.
fn cursor(text: &str) -> Result<AuditPosition, ApiError> {
    let read = text.split_once('-').and_then(|(revision, position)| {
        Some(AuditPosition { revision: Revision(revision.parse().ok()?), position: position.parse().ok()? })
    });
    read.ok_or_else(|| ApiError::value("after", "expected the 'next' of a page"))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let filter = AuditFilter {
        kind: context.query.text("kind").and_then(RowKind::parse),
        id: context.query.text("id").map(str::to_owned),
        before: context.query.text("after").map(cursor).transpose()?,
        limit: context.limit() + 1,
    };
    let lines = context.with_query_timeout(context.state.store.listing.audit_page(&filter)).await?;
    let end = |(AuditPosition { revision, position }, _): &(AuditPosition, AuditEvent)| format!("{}-{position}", revision.0);
    Ok(rows::page(lines, context.limit(), end, |(_, event)| show(event)))
}
