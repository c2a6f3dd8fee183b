//! `/admin/v1/explain`: how a request would be routed and why; the same object as `tollgate explain --json`.

use tollgate_core::{GroupId, Key, parse_max_price, plain_key};
use tollgate_protocol::Protocol;
use tollgate_store::{AdminScope, RowKind, fields::Kind};

use super::{
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{MODEL_NAME, NAME, both, needed},
};
use crate::{api_error::ApiError, gateway_handle::ExplainRequest, response::ApiResponse};

/// Largest accepted number of tokens.
const MAX_TOKENS: i64 = 1_000_000_000;

const RESOURCE: Resource = Resource { tag: "explain", needs: Needs::Scope(AdminScope::Operator) };
const DOC: &str =
    "Explains the routing of a request: limits of the caller, the accounts it would use in order, and why others are excluded.";

pub(super) static ROUTES: &[Route] = &[RESOURCE
    .route(Method::Get, "/admin/v1/explain", "explain", DOC, handler!(explain))
    .query(&[
        needed("model", MODEL_NAME, "Model name as sent by a caller."),
        both("key", NAME, "Key id, or key name if it is unambiguous."),
        both("group", NAME, "Instead of a key: any caller of this group without limits, by name or id."),
        both("protocol", Kind::Word(&Protocol::WORDS), "Protocol of the caller; default openai."),
        both("fields", Kind::Text { min: 1, max: 1_000 }, "Optional fields of the request, separated by commas."),
        both("max_price", Kind::Text { min: 1, max: 200 }, "Value of the header `x-tollgate-max-price`."),
        both("input_tokens", Kind::Integer { min: 0, max: MAX_TOKENS }, "Estimated input tokens; default 1000."),
        both(
            "output_tokens",
            Kind::Integer { min: 1, max: MAX_TOKENS },
            "Requested output limit; default: the limit of the model, else 16384.",
        ),
    ])
    .returns(ResponseSchema::Document)];

/// The key of the request, or a hypothetical key of its group without limits.
async fn caller(context: &RequestContext) -> Result<Key, ApiError> {
    match (context.query.text("key"), context.query.text("group")) {
        (Some(key), None) => {
            let id = rows::key_id(context, key).await?;
            context.state.store.listing.key(id).await?.ok_or_else(|| ApiError::not_found(RowKind::Key))
        }
        (None, Some(name)) => {
            let row = rows::find(context, RowKind::Group, None, name).await?;
            let group = GroupId::parse(&row.id).ok_or_else(ApiError::internal)?;
            Ok(plain_key(vec![group], context.now()))
        }
        (Some(_), Some(_)) => Err(ApiError::value("group", "send a key or a group, not both")),
        (None, None) => {
            Err(ApiError::invalid("missing_required_parameter", "key", "Missing required parameter: 'key'. Send a key or a group."))
        }
    }
}

async fn explain(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let key = caller(&context).await?;
    let max_price = context.query.text("max_price").map(parse_max_price).transpose();
    let request = ExplainRequest {
        key,
        model: context.query.text("model").unwrap_or_default().to_owned(),
        protocol: context.query.text("protocol").and_then(Protocol::parse).unwrap_or(Protocol::OpenAi),
        fields: context
            .query
            .text("fields")
            .map(|text| text.split(',').map(|field| field.trim().to_owned()).collect())
            .unwrap_or_default(),
        input_tokens: context.query.whole("input_tokens").and_then(|tokens| u64::try_from(tokens).ok()),
        output_tokens: context.query.whole("output_tokens").and_then(|tokens| u64::try_from(tokens).ok()),
        max_price: max_price.map_err(|fault| ApiError::value("max_price", fault))?,
    };
    let explained = context
        .with_query_timeout(context.state.gateway.explain(&request))
        .await?
        .map_err(|fault| ApiError::value("model", fault))?;
    Ok(ApiResponse::ok(explained))
}
