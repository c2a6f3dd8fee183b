//! Admin keys: create, list, revoke. The key itself appears only in the response that creates it.

use serde_json::{Map, Value, json};
use tollgate_core::AdminKeyId;
use tollgate_store::{AdminKeySpec, AdminScope, Change, NewKey, RandomSource, RowFilter, RowKind, StoredRow};

use super::{
    paging,
    request_context::{ApplyOutcome, RequestContext},
    route::{AFTER, LIMIT, Method, RequestSchema, ResponseSchema, Route, handler},
    rows,
    schema::{CREATED_AT, FieldAccess, NAME, ObjectSchema, REVISION, TEXT, ValueSchema, WriteMode, both, fixed, read},
    shared_fields,
};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value};

static ADMIN_KEY: ObjectSchema = ObjectSchema {
    name: "AdminKey",
    fields: &[
        read("id", ValueSchema::Id("adm_"), "Id."),
        fixed("name", NAME, "Unique among keys that are not revoked."),
        fixed(
            "scope",
            ValueSchema::Enum(&["operator", "admin"]),
            "operator: channels, groups, models, keys, usage; admin: everything.",
        ),
        both("expires_at", ValueSchema::Time, "Expiry; null: never.").or_null().with(FieldAccess::AtFirst),
        read("prefix", TEXT, "The first characters of the key."),
        read("suffix", TEXT, "The last characters of the key."),
        CREATED_AT,
        read("revoked_at", ValueSchema::Time, "Time of revocation; null: not revoked.").or_null(),
        REVISION,
        read("key", TEXT, "The key itself, only in the response that creates it.").with(FieldAccess::Once),
    ],
};

const fn route(method: Method, path: &'static str, id: &'static str, doc: &'static str) -> Route {
    Route {
        method,
        path,
        resource: "admin keys",
        needs: AdminScope::Admin,
        id,
        doc,
        query: &[],
        request: RequestSchema::Empty,
        response: ResponseSchema::Empty,
        handler: handler!(list),
    }
}

pub(super) static ROUTES: &[Route] = &[
    Route {
        query: &[LIMIT, AFTER, both("revoked", ValueSchema::Boolean, "Include revoked keys.")],
        response: ResponseSchema::Page(&ADMIN_KEY),
        ..route(Method::Get, "/admin/v1/admin-keys", "list_admin_keys", "Admin keys, oldest first.")
    },
    Route {
        request: RequestSchema::Body(&ADMIN_KEY, WriteMode::Create),
        response: ResponseSchema::Created(&ADMIN_KEY),
        handler: handler!(make),
        ..route(
            Method::Post,
            "/admin/v1/admin-keys",
            "make_admin_key",
            "Creates an admin key; only this response contains the key itself.",
        )
    },
    Route {
        response: ResponseSchema::Object(&ADMIN_KEY),
        handler: handler!(one),
        ..route(Method::Get, "/admin/v1/admin-keys/{admin_key}", "get_admin_key", "One admin key.")
    },
    Route {
        response: ResponseSchema::Object(&ADMIN_KEY),
        handler: handler!(revoke),
        ..route(Method::Delete, "/admin/v1/admin-keys/{admin_key}", "revoke_admin_key", "Revokes an admin key permanently.")
    },
];

fn show(row: &StoredRow, spec: &AdminKeySpec) -> Map<String, Value> {
    let AdminKeySpec { name, scope, expires_at } = spec;
    let (prefix, suffix) = row.shown.clone().unwrap_or_default();
    let shown = json!({
        "id": row.id, "name": name, "scope": scope, "expires_at": expires_at.map(time_value), "prefix": prefix, "suffix": suffix,
        "created_at": time_value(row.created_at), "revoked_at": row.removed_at.map(time_value), "revision": row.revision.0,
    });
    if let Value::Object(members) = shown { members } else { Map::new() }
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let filter = RowFilter {
        removed: context.query.0.get("revoked").is_some_and(|revoked| revoked == true),
        ..rows::filter(&context, RowKind::AdminKey)?
    };
    let rows = context.state.store.listing.page(&filter).await?;
    let rows = rows.into_iter().map(|row| Ok((row.read()?, row))).collect::<Result<Vec<(AdminKeySpec, StoredRow)>, ApiError>>()?;
    Ok(paging::page(rows, context.limit(), |(_, row)| row.id.clone(), |(spec, row)| show(row, spec).into()))
}

async fn find(context: &RequestContext, id: &str) -> Result<StoredRow, ApiError> {
    let found = context.state.store.listing.row(RowKind::AdminKey, id).await?;
    found.ok_or_else(|| ApiError::missing(RowKind::AdminKey, id))
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let row = find(&context, context.path_param("admin_key")).await?;
    Ok(ApiResponse::ok(show(&row, &row.read()?)).revision(row.revision))
}

async fn make(context: RequestContext) -> Result<ApiResponse, ApiError> {
    shared_fields::require_future(&context, "expires_at")?;
    let mut spec = AdminKeySpec { expires_at: context.body.time("expires_at"), ..AdminKeySpec::default() };
    context.body.set_text("name", &mut spec.name);
    context.body.set_word("scope", &mut spec.scope);
    let new = NewKey::draw_admin(&RandomSource::system());
    let secret = new.secret(&context.state.store.hasher);
    let name = spec.name.clone();
    let mut changes = Vec::from_iter(context.idempotency_change()?);
    changes.push(Change::MakeAdminKey { key: Box::new(spec), secret });
    let applied = context.apply(&changes).await?;
    if let ApplyOutcome::Replayed(id) = applied {
        let row = find(&context, &id).await?;
        return Ok(ApiResponse::ok(show(&row, &row.read()?)).header("idempotent-replayed", "true"));
    }
    let filter = RowFilter { name: Some(name.clone()), ..RowFilter::of(RowKind::AdminKey, 1) };
    let row = context.state.store.listing.page(&filter).await?.pop().ok_or_else(|| ApiError::missing(RowKind::AdminKey, &name))?;
    let mut shown = show(&row, &row.read()?);
    shown.insert("key".to_owned(), new.expose_once().into());
    Ok(ApiResponse::created(shown).revision(row.revision))
}

async fn revoke(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let id = context.path_param("admin_key");
    let Some(key) = AdminKeyId::parse(id) else { return Err(ApiError::missing(RowKind::AdminKey, id)) };
    context.apply(&[Change::RevokeAdminKey { key }]).await?;
    let row = find(&context, id).await?;
    Ok(ApiResponse::ok(show(&row, &row.read()?)).revision(row.revision))
}
