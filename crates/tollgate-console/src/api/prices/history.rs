//! The history of prices: of a model, and the latest changes of all.

use serde_json::{Value, json};
use tollgate_core::Revision;
use tollgate_store::{
    AdminScope, PriceChange, PriceHistoryFilter, PriceHistoryPosition,
    fields::{Access, FieldShape, FieldValue as _, Kind, Object, price},
};

use crate::{
    api::{
        request_context::RequestContext,
        route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
        rows,
        schema::{COUNT, MODEL_NAME, NAME, ORIGIN, TEXT, both, read},
    },
    api_error::ApiError,
    response::ApiResponse,
    time::time_value,
};

static CHANGE: Object = Object::of(
    "PriceChange",
    &[
        read("revision", COUNT, "Catalog revision of the change."),
        read("at", Kind::Time, "Time of the change."),
        ORIGIN,
        read("actor", TEXT, "Author of the change."),
        read("model", MODEL_NAME, "Model whose price changed."),
        read("channel", NAME, "Channel whose cost changed; null: the sale price changed.").or_null(),
        read("source", TEXT, "What the price was imported from; null: set by hand.").or_null(),
        price("before", "Price before the change; null: there was none.").with(Access::ReadOnly),
        price("after", "Price after it; the same as before if only the source changed.").with(Access::ReadOnly),
    ],
);

const RESOURCE: Resource = Resource { tag: "prices", needs: Needs::Scope(AdminScope::Operator) };

const QUERY: &[FieldShape] = &[LIMIT, AFTER, both("channel", NAME, "Only what this channel's provider charges.")];

pub(in crate::api) static ROUTES: &[Route] = &[
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/prices/{model}/history",
            "list_price_changes",
            "Changes of the sale price of a model and of its channels' costs, newest first.",
            handler!(of_model),
        )
        .query(QUERY)
        .returns(ResponseSchema::Page(&CHANGE)),
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/price-changes",
            "list_all_price_changes",
            "Changes of the sale prices of all models and of their channels' costs, newest first.",
            handler!(of_all),
        )
        .query(QUERY)
        .returns(ResponseSchema::Page(&CHANGE)),
];

async fn of_model(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let model = super::model_name(&context).await?;
    list(&context, Some(model)).await
}

async fn of_all(context: RequestContext) -> Result<ApiResponse, ApiError> {
    list(&context, None).await
}

async fn list(context: &RequestContext, model: Option<String>) -> Result<ApiResponse, ApiError> {
    let after = context.query.text("after").map(cursor).transpose()?;
    let filter = PriceHistoryFilter {
        model,
        channel: context.query.text("channel").map(str::to_owned),
        before: after,
        limit: context.limit() + 1,
    };
    let found = context.with_query_timeout(context.state.store.listing.price_history(&filter)).await?;
    let position = |(at, _): &(PriceHistoryPosition, PriceChange)| format!("{}-{}", at.revision.0, at.position);
    Ok(rows::page(found, context.limit(), position, |(_, change)| show(change)))
}

/// Parses the `next` of a page: `<revision>-<position>`.
fn cursor(text: &str) -> Result<PriceHistoryPosition, ApiError> {
    let parts = text.split_once('-').and_then(|(revision, position)| Some((revision.parse().ok()?, position.parse().ok()?)));
    let (revision, position) = parts.ok_or_else(|| ApiError::value("after", "expected the 'next' of a page"))?;
    Ok(PriceHistoryPosition { revision: Revision(revision), position })
}

fn show(change: &PriceChange) -> Value {
    json!({
        "revision": change.revision.0, "at": time_value(change.at), "origin": change.origin, "actor": change.actor,
        "model": change.model, "channel": change.channel, "source": change.source, "before": change.before.show(), "after": change.after.show(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_parsed_and_malformed_cursors_are_refused() {
        assert_eq!(cursor("7-2").unwrap(), PriceHistoryPosition { revision: Revision(7), position: 2 });
        for bad in ["", "7", "7-", "-2-", "x-1"] {
            assert!(cursor(bad).is_err(), "{bad}");
        }
    }
}
