//! Admin keys: create, list, revoke. The key itself appears only in the response that creates it.

use serde_json::{Map, Value, json};
use tollgate_core::AdminKeyId;
use tollgate_store::{
    AdminKeySpec, AdminScope, Change, NewKey, RandomSource, RowFilter, RowKind, StoredRow,
    fields::{Access, Kind, Object, WriteMode, whole},
};

use super::{
    check,
    request_context::{ApplyOutcome, RequestContext},
    route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{CREATED_AT, REVISION, TEXT, both, read, row_object},
    sign_in::{OWN_PASSWORD, prove_presence},
};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value};

static ADMIN_KEY: Object = row_object!(
    AdminKeySpec,
    [read("id", Kind::Id("adm_"), "Id.")],
    [
        read("prefix", TEXT, "The first characters of the key."),
        read("suffix", TEXT, "The last characters of the key."),
        CREATED_AT,
        read("revoked_at", Kind::Time, "When it was revoked.").or_null(),
        REVISION,
        read("key", TEXT, "The key itself, shown only once.").with(Access::ShownOnce),
        OWN_PASSWORD,
    ]
);

const RESOURCE: Resource = Resource { tag: "admin keys", needs: Needs::Scope(AdminScope::Admin) };

pub(super) static ROUTES: &[Route] = &[
    RESOURCE
        .route(Method::Get, "/admin/v1/admin-keys", "list_admin_keys", "Admin keys, oldest first.", handler!(list))
        .query(&[LIMIT, AFTER, both("revoked", Kind::Flag, "Revoked ones too.")])
        .returns(ResponseSchema::Page(&ADMIN_KEY)),
    RESOURCE
        .route(
            Method::Post,
            "/admin/v1/admin-keys",
            "make_admin_key",
            "Creates an admin key; only this response contains the key itself.",
            handler!(make),
        )
        .takes(&ADMIN_KEY, WriteMode::Create)
        .once()
        .returns(ResponseSchema::Created(&ADMIN_KEY)),
    RESOURCE
        .route(Method::Get, "/admin/v1/admin-keys/{admin_key}", "get_admin_key", "One admin key.", handler!(one))
        .returns(ResponseSchema::Object(&ADMIN_KEY)),
    RESOURCE
        .route(
            Method::Delete,
            "/admin/v1/admin-keys/{admin_key}",
            "revoke_admin_key",
            "Revokes an admin key permanently.",
            handler!(revoke),
        )
        .returns(ResponseSchema::Object(&ADMIN_KEY)),
];

fn show(row: &StoredRow, spec: &AdminKeySpec) -> Map<String, Value> {
    let (prefix, suffix) = row.shown.clone().unwrap_or_default();
    let mut members = Map::new();
    members.insert("id".to_owned(), row.id.clone().into());
    members.extend(whole(spec));
    for (name, value) in [
        ("prefix", json!(prefix)),
        ("suffix", json!(suffix)),
        ("created_at", time_value(row.created_at)),
        ("revoked_at", json!(row.removed_at.map(time_value))),
        ("revision", json!(row.revision.0)),
    ] {
        members.insert(name.to_owned(), value);
    }
    members
}

fn shown(row: &StoredRow) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok(show(row, &row.read()?)).revision(row.revision))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let filter = RowFilter {
        removed: context.query.0.get("revoked").is_some_and(|revoked| revoked == true),
        ..rows::filter(&context, RowKind::AdminKey)?
    };
    rows::list(&context, &filter, |row, spec| show(row, spec).into()).await
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    shown(&rows::find(&context, RowKind::AdminKey, None, context.path_param("admin_key")).await?)
}

async fn make(context: RequestContext) -> Result<ApiResponse, ApiError> {
    prove_presence(&context).await?;
    rows::require_future(&context, "expires_at")?;
    let mut spec = AdminKeySpec::default();
    check::write(&context.body.0, &mut spec)?;
    let new = NewKey::generate_admin(&RandomSource::system());
    let secret = new.secret(&context.state.store.hasher);
    let name = spec.name.clone();
    let mut changes = Vec::from_iter(context.idempotency_change()?);
    changes.push(Change::MakeAdminKey { key: Box::new(spec), secret });
    if let ApplyOutcome::Replayed(id) = context.apply(&changes).await? {
        let row = rows::find(&context, RowKind::AdminKey, None, &id).await?;
        return Ok(ApiResponse::ok(show(&row, &row.read()?)).header("idempotent-replayed", "true"));
    }
    let row = rows::written(&context, RowKind::AdminKey, None, &name).await?;
    let mut shown = show(&row, &row.read()?);
    shown.insert("key".to_owned(), new.expose_once().into());
    Ok(ApiResponse::created(shown).revision(row.revision))
}

async fn revoke(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let id = context.path_param("admin_key");
    let Some(key) = AdminKeyId::parse(id) else { return Err(ApiError::not_found(RowKind::AdminKey)) };
    context.apply(&[Change::RevokeAdminKey { key }]).await?;
    shown(&rows::find(&context, RowKind::AdminKey, None, id).await?)
}
