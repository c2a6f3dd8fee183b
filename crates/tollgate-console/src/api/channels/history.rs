//! The versions of a channel: its state after each change.

use serde_json::{Value, json};
use tollgate_core::Revision;
use tollgate_store::{
    AdminScope, AuditEvent, AuditFilter, AuditKind, AuditPosition, RowKind,
    fields::{Kind, Object},
};

use crate::{
    api::{
        audit::{detail_of, position_of},
        request_context::RequestContext,
        route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
        rows,
        schema::{COUNT, ORIGIN, TEXT, read},
    },
    api_error::ApiError,
    response::ApiResponse,
    time::time_value,
};

static CHANGE: Object = Object::of(
    "ChannelVersion",
    &[
        read("revision", COUNT, "Catalog revision of the change."),
        read("at", Kind::Time, "Time of the change."),
        ORIGIN,
        read("actor", TEXT, "Author of the change."),
        read("action", TEXT, "put, switch and others."),
        read("before", Kind::Any, "The channel before the change, without secrets; null: it was made.").or_null(),
        read("after", Kind::Any, "The channel after it; null: it was removed.").or_null(),
    ],
);

const RESOURCE: Resource = Resource { tag: "channels", needs: Needs::Scope(AdminScope::Operator) };

pub(in crate::api) static ROUTES: &[Route] = &[RESOURCE
    .route(
        Method::Get,
        "/admin/v1/channels/{name}/history",
        "list_channel_changes",
        "Changes of a channel without those of its accounts, newest first.",
        handler!(list),
    )
    .query(&[LIMIT, AFTER])
    .returns(ResponseSchema::Page(&CHANGE))];

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let channel = rows::find(&context, RowKind::Channel, None, context.path_param("name")).await?;
    let filter = AuditFilter {
        kind: Some(AuditKind::Row(RowKind::Channel)),
        id: Some(channel.id),
        before: context.query.text("after").map(cursor).transpose()?,
        limit: context.limit() + 1,
        ..AuditFilter::default()
    };
    let found = context.with_query_timeout(context.state.store.listing.audit_page(&filter)).await?;
    Ok(rows::page(found, context.limit(), |(at, _)| format!("{}-{}", at.revision.0, at.position), |(_, event)| show(event)))
}

/// Parses the `next` of a page: `<revision>-<position>`.
fn cursor(text: &str) -> Result<AuditPosition, ApiError> {
    let position = text.split_once('-').and_then(|(revision, position)| position_of(revision, position));
    position.ok_or_else(|| ApiError::value("after", "expected the 'next' of a page"))
}

fn show(event: &AuditEvent) -> Value {
    let mut detail = detail_of(event);
    let Revision(revision) = event.revision;
    json!({
        "revision": revision, "at": time_value(event.at), "origin": event.origin, "actor": event.actor, "action": event.action,
        "before": detail["before"].take(), "after": detail["after"].take(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_parsed_and_malformed_cursors_are_refused() {
        assert_eq!(cursor("7-2").unwrap(), AuditPosition { revision: Revision(7), position: 2 });
        for bad in ["", "7", "7-", "-", "x-1"] {
            assert!(cursor(bad).is_err(), "{bad}");
        }
    }
}
