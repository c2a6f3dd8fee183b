//! One channel in the form of the catalog file: read, compared and written as a whole.

use std::collections::HashSet;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tollgate_store::{
    AdminScope, CatalogRows, KeyScope, RowKind,
    catalog_file::{edit_channel, show_channel},
    fields::{Access, Kind, Object, WriteMode},
};

use crate::{
    api::{
        catalog::{LINES, file_error, parse_sent, sent_file_error, show_lines},
        request_context::RequestContext,
        route::{Method, Needs, Resource, ResponseSchema, Route, handler},
        rows,
        schema::{NAME, both, needed, read},
    },
    api_error::ApiError,
    response::ApiResponse,
};

/// Longest file of one channel, in bytes.
const MAX_FILE: usize = 1_000_000;
const FILE: Kind = Kind::Text { min: 0, max: MAX_FILE };
const VERSION: Kind = Kind::Text { min: 1, max: 64 };

static SHOWN: Object = Object::of(
    "ChannelFile",
    &[
        read("channel", NAME, "Name of the channel."),
        read("version", VERSION, "Version of the file, which a change of it may send."),
        read("file", FILE, "The channel with its accounts as a catalog file, without secrets."),
    ],
);
static SENT: Object = Object::of(
    "ChannelFileChange",
    &[
        needed("file", FILE, "The whole channel as a catalog file (TOML): accounts and models that it does not name are removed.")
            .with(Access::Required),
        both("version", VERSION, "Version of the file that was edited: another one is refused.").with(Access::WriteOnly),
    ],
);
static CHANGED: Object = Object::of(
    "ChannelFilePlan",
    &[
        read("channel", NAME, "Name of the channel."),
        read("version", VERSION, "Version of the file below."),
        read("file", FILE, "The channel after the change, without secrets."),
        read("lines", LINES, "Changes by row; empty: the file equals the channel."),
    ],
);

const PATH: &str = "/admin/v1/channels/{name}/file";
const READ: Resource = Resource { tag: "channels", needs: Needs::Scope(AdminScope::Operator) };
const WRITE: Resource = Resource { needs: Needs::Scope(AdminScope::Admin), ..READ };

pub(in crate::api) static ROUTES: &[Route] = &[
    READ.route(Method::Get, PATH, "get_channel_file", "One channel as a catalog file, without secrets.", handler!(show))
        .returns(ResponseSchema::Object(&SHOWN)),
    WRITE
        .route(
            Method::Put,
            PATH,
            "set_channel_file",
            "Replaces a channel and its accounts by those of a file. Credentials that the file does not give are kept.",
            handler!(set),
        )
        .query(&[both("dry_run", Kind::Flag, "Return what would change without saving.")])
        .takes(&SENT, WriteMode::Create)
        .returns(ResponseSchema::Object(&CHANGED)),
];

/// The catalog's rows without keys, and the name of the channel.
async fn current(context: &RequestContext) -> Result<(CatalogRows, String), ApiError> {
    let name = rows::find(context, RowKind::Channel, None, context.path_param("name")).await?.name;
    let scope = KeyScope::Limited { names: HashSet::new(), max: 0 };
    Ok((context.with_query_timeout(context.state.store.catalog.live_rows(&scope)).await?, name))
}

async fn show(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (rows, name) = current(&context).await?;
    let file = show_channel(&rows, &name).ok_or_else(|| ApiError::not_found(RowKind::Channel))?;
    Ok(ApiResponse::ok(json!({"channel": name, "version": version(&file), "file": file})))
}

async fn set(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (rows, name) = current(&context).await?;
    let before = show_channel(&rows, &name).ok_or_else(|| ApiError::not_found(RowKind::Channel))?;
    if context.body.text("version").is_some_and(|edited| edited != version(&before)) {
        return Err(ApiError::conflict("revision_conflict", "The channel was changed concurrently; read its file again."));
    }
    let file = parse_sent(context.body.text("file").unwrap_or_default());
    let file = file.map_err(|unreadable| sent_file_error(unreadable.faults))?;
    let edit = edit_channel(&file, &rows, &name).map_err(|faults| file_error(&faults))?;
    if !context.query.flag("dry_run") && !edit.plan.is_empty() {
        context.apply(&edit.plan.changes).await?;
    }
    let lines = show_lines(&edit.plan);
    Ok(ApiResponse::ok(json!({"channel": name, "version": version(&edit.after), "file": edit.after, "lines": lines})))
}

/// A tag that distinguishes the states of a channel.
fn version(file: &str) -> String {
    hex::encode(&Sha256::digest(file)[..16])
}
