//! `/admin/v1/storage`: the disk space of the database and the journal, and the version of the schema.

use serde_json::{Value, json};
use tollgate_store::{
    AdminScope,
    fields::{Kind, Object},
};

use super::{
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::{COUNT, read},
};
use crate::{api_error::ApiError, gateway_handle::JournalUse, response::ApiResponse};

static DATABASE: Object = Object::of(
    "DatabaseSize",
    &[
        read("kind", Kind::Word(&["sqlite", "postgresql", "memory"]), "Which database."),
        read("bytes", COUNT, "Bytes on disk, with the write-ahead log of SQLite; of PostgreSQL, those of the database."),
        read("log_bytes", COUNT, "Bytes of them in the write-ahead log; null: not known here.").or_null(),
        read("schema", COUNT, "Version of the schema."),
    ],
);
static JOURNAL: Object = Object::of(
    "JournalSize",
    &[
        read("bytes", COUNT, "Bytes on the disk of this node."),
        read("unbooked", COUNT, "Requests that are not booked yet, those in progress included."),
    ],
);
static STORAGE: Object = Object::of(
    "Storage",
    &[
        read("database", Kind::Object(&DATABASE), "The database."),
        read("journal", Kind::Object(&JOURNAL), "The journal of this node; null without a running gateway.").or_null(),
    ],
);

const RESOURCE: Resource = Resource { tag: "health", needs: Needs::Scope(AdminScope::Operator) };

pub(super) static ROUTES: &[Route] = &[RESOURCE
    .route(
        Method::Get,
        "/admin/v1/storage",
        "get_storage",
        "The disk space of the database and of this node's journal.",
        handler!(show),
    )
    .returns(ResponseSchema::Object(&STORAGE))];

async fn show(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let database = context.with_query_timeout(context.state.store.listing.database_size()).await?;
    let journal = |JournalUse { bytes, unbooked }: JournalUse| json!({"bytes": bytes, "unbooked": unbooked});
    let journal: Option<Value> = context.state.gateway.journal().map(journal);
    Ok(ApiResponse::ok(json!({
        "database": {
            "kind": database.kind, "bytes": database.bytes, "log_bytes": database.log_bytes, "schema": database.schema,
        },
        "journal": journal,
    })))
}
