//! The model square as callers of a group see it.

use tollgate_store::{AdminScope, fields::FieldShape};

use super::{
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::{NAME, needed},
};
use crate::{
    api_error::ApiError,
    response::ApiResponse,
    square::{SQUARE, document_of_group},
};

const RESOURCE: Resource = Resource { tag: "models", needs: Needs::Scope(AdminScope::Operator) };
const GROUP: FieldShape = needed("group", NAME, "Group name.");

pub(super) static ROUTES: &[Route] = &[RESOURCE
    .route(Method::Get, "/admin/v1/square", "show_square", "The model square as callers of one group see it.", handler!(show))
    .query(&[GROUP])
    .returns(ResponseSchema::Object(&SQUARE))];

async fn show(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let group = context.query.text("group").unwrap_or_default();
    Ok(ApiResponse::ok(document_of_group(&context.state, group).await?))
}
