//! `/admin/v1/me`: lets a client check its admin key and scope.

use serde_json::json;
use tollgate_store::{
    AdminScope,
    fields::{Kind, Object},
};

use super::{
    request_context::RequestContext,
    route::{Method, Resource, ResponseSchema, Route, handler},
    schema::{NAME, TEXT, read},
};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value};

static ME: Object = Object::of(
    "Me",
    &[
        read("id", Kind::Id("adm_"), "The admin key's id."),
        read("name", NAME, "Name of the admin key."),
        read("scope", Kind::Word(&["operator", "admin"]), "Scope of the admin key."),
        read("expires_at", Kind::Time, "Expiry; null: never.").or_null(),
        read("version", TEXT, "Version of the gateway."),
    ],
);

const ADMIN_KEYS: Resource = Resource { tag: "admin keys", needs: AdminScope::Operator };

pub(super) static ROUTES: &[Route] = &[ADMIN_KEYS
    .route(Method::Get, "/admin/v1/me", "who_am_i", "The admin key of this request.", handler!(show))
    .returns(ResponseSchema::Object(&ME))];

async fn show(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let Some(key) = context.principal.key() else { return Err(ApiError::no_path()) };
    Ok(ApiResponse::ok(json!({
        "id": key.id, "name": key.name, "scope": key.scope, "expires_at": key.expires_at.map(time_value), "version": env!("CARGO_PKG_VERSION"),
    })))
}
