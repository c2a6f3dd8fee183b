//! The audit log: who changed what, newest first.

use serde_json::{Value, json};
use tollgate_core::Revision;
use tollgate_store::{AdminScope, AuditEvent, AuditFilter, AuditPlace, Kind};

use super::{
    ask::Ask,
    handler, paging,
    route::{AFTER, Gives, LIMIT, Method, Route, Takes},
    serve::shown_time,
    shape::{COUNT, NAME, Object, Shape, TEXT, both, read},
};
use crate::{answer::Answer, problem::Problem};

static EVENT: Object = Object {
    name: "AuditEvent",
    fields: &[
        read("revision", COUNT, "With which revision."),
        read("at", Shape::Time, "When."),
        read("door", Shape::Word(&["file", "cli", "console", "api", "gateway"]), "Through which door."),
        read("actor", TEXT, "Who."),
        read("action", TEXT, "put, remove, switch, revoke and so on."),
        read("kind", TEXT, "What kind of row."),
        read("id", TEXT, "Its id."),
        read("name", TEXT, "Its name at that time."),
        read("detail", Shape::Any, "Before and after, without secrets."),
    ],
};

const KINDS: &[&str] = &["channel", "account", "model", "group", "member", "key", "admin_key"];

pub(super) static ROUTES: &[Route] = &[Route {
    method: Method::Get,
    path: "/admin/v1/audit",
    resource: "audit",
    needs: AdminScope::Admin,
    id: "list_audit_events",
    doc: "Who changed what, newest first.",
    query: &[
        LIMIT,
        AFTER,
        both("kind", Shape::Word(KINDS), "About this kind of row."),
        both("id", NAME, "About the row with this id."),
    ],
    takes: Takes::Nothing,
    gives: Gives::Page(&EVENT),
    handler: handler!(list),
}];

fn show(event: &AuditEvent) -> Value {
    let AuditEvent { revision, at, door, actor, action, kind, id, name, detail } = event;
    json!({
        "revision": revision.0, "at": shown_time(*at), "door": door, "actor": actor, "action": action, "kind": kind, "id": id, "name": name,
        "detail": serde_json::from_str::<Value>(detail).unwrap_or_else(|_| json!({"text": detail})),
    })
}

/// `<revision>-<position>`: where a page ends.
fn place(text: &str) -> Result<AuditPlace, Problem> {
    let read = text.split_once('-').and_then(|(revision, position)| {
        Some(AuditPlace { revision: Revision(revision.parse().ok()?), position: position.parse().ok()? })
    });
    read.ok_or_else(|| Problem::value("after", "expected the 'next' of a page"))
}

async fn list(ask: Ask) -> Result<Answer, Problem> {
    let filter = AuditFilter {
        kind: ask.query.text("kind").and_then(Kind::parse),
        id: ask.query.text("id").map(str::to_owned),
        before: ask.query.text("after").map(place).transpose()?,
        limit: ask.limit() + 1,
    };
    let lines = ask.within(ask.site.store.listing.audit_page(&filter)).await?;
    let end = |(AuditPlace { revision, position }, _): &(AuditPlace, AuditEvent)| format!("{}-{position}", revision.0);
    Ok(paging::page(lines, ask.limit(), end, |(_, event)| show(event)))
}
