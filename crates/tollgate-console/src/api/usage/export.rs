//! Export of all records of a filter.

use std::sync::Arc;

use axum::body::Body;
use tollgate_core::UsageRecord;
use tollgate_store::{Page, StoreError, UsageFilter};

use super::{filter::filter, view::UsageView};
use crate::{
    api::request_context::RequestContext,
    api_error::ApiError,
    response::ApiResponse,
    state::ConsoleState,
    usage_lines::{LineFormat, usage_lines},
};

pub(super) async fn export(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (format, content_type, name) = match context.query.text("format") {
        Some("jsonl") => (LineFormat::Json, "application/jsonl; charset=utf-8", "usage.jsonl"),
        Some(_) | None => (LineFormat::Csv, "text/csv; charset=utf-8", "usage.csv"),
    };
    let filter = filter(&context).await?;
    let (state, view) = (Arc::clone(&context.state), UsageView::of(&context));
    let lines = usage_lines(filter, format, move |filter| export_page(Arc::clone(&state), view, filter));
    let answer = ApiResponse::streamed(content_type, Body::from_stream(lines));
    Ok(answer.header("content-disposition", &format!("attachment; filename=\"{name}\"")))
}

/// Reads a page of an export. Each page acquires its own permit, so that a long export does not block other requests.
async fn export_page(state: Arc<ConsoleState>, view: UsageView, filter: UsageFilter) -> Result<Page<UsageRecord>, StoreError> {
    let permit = state.heavy_permits.acquire(view.reader()).await;
    let page = state.store.usage.page(&filter).await;
    drop(permit);
    let page = page.inspect_err(|error| tracing::warn!(%error, "usage export failed"))?;
    Ok(Page { items: page.items.into_iter().map(|record| view.record(record)).collect(), ..page })
}
