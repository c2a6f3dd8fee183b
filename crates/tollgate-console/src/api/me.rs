//! `/admin/v1/me`: who sends the request.

use serde_json::json;
use tollgate_store::{
    AdminScope,
    fields::{Kind, Object},
};

use super::{
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::{NAME, TEXT, read},
};
use crate::{api_error::ApiError, principal::Principal, response::ApiResponse, time::time_value};

static ME: Object = Object::of(
    "Me",
    &[
        read("id", TEXT, "Id of the admin key or session."),
        read("name", NAME, "Name of the admin key or member."),
        read("scope", Kind::Word(&["member", "operator", "admin"]), "Scope of the admin key, or the member's role."),
        read("member", NAME, "Member that signed in or that the admin key belongs to.").or_null(),
        read("expires_at", Kind::Time, "End of the session, or expiry of the admin key; null: never.").or_null(),
        read("csrf_token", TEXT, "The value that writes of a session send in the header `x-csrf-token`; null for an admin key.")
            .or_null(),
        read("version", TEXT, "Version of the gateway."),
    ],
);

const RESOURCE: Resource = Resource { tag: "session", needs: Needs::Scope(AdminScope::Member) };

pub(super) static ROUTES: &[Route] = &[RESOURCE
    .route(Method::Get, "/admin/v1/me", "who_am_i", "The admin key or session of this request.", handler!(show))
    .returns(ResponseSchema::Object(&ME))];

async fn show(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (id, name, expires_at, csrf_token) = match &context.principal {
        Principal::Key(key) => (key.id.to_string(), key.name.as_str(), key.expires_at, None),
        Principal::Session(signed_in) => {
            let session = &signed_in.session;
            (session.id.to_string(), signed_in.member.name.as_str(), Some(session.ends_at), Some(&signed_in.csrf_token))
        }
        Principal::LocalOperator(_) | Principal::Anonymous => return Err(ApiError::no_path()),
    };
    Ok(ApiResponse::ok(json!({
        "id": id, "name": name, "scope": context.principal.scope(), "member": context.principal.member().map(|(_, name)| name),
        "expires_at": expires_at.map(time_value), "csrf_token": csrf_token, "version": env!("CARGO_PKG_VERSION"),
    })))
}
