//! Export of all records of a filter.

use std::sync::Arc;

use axum::body::Body;
use futures_util::StreamExt as _;
use tollgate_core::UsageRecord;
use tollgate_store::{Page, StoreError, UsageFilter};

use super::{filter::filter, view::UsageView};
use crate::{
    api::request_context::RequestContext,
    api_error::ApiError,
    response::ApiResponse,
    state::ConsoleState,
    usage_export::{ExportFormat, export_usage},
};

pub(super) async fn export(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (format, content_type, name) = match context.query.text("format") {
        Some("jsonl") => (ExportFormat::JsonLines, "application/jsonl; charset=utf-8", "usage.jsonl"),
        Some("parquet") => (ExportFormat::Parquet, "application/vnd.apache.parquet", "usage.parquet"),
        Some(_) | None => (ExportFormat::Csv, "text/csv; charset=utf-8", "usage.csv"),
    };
    let filter = filter(&context).await?;
    let (state, view) = (Arc::clone(&context.state), UsageView::of(&context));
    let member = context.principal.member().filter(|_| view == UsageView::Member).map(|(member, _)| member);
    let permit = if format == ExportFormat::Parquet { Some(state.file_permits.claim(member)?) } else { None };
    let bytes = export_usage(filter, format, view.columns(), move |filter| export_page(Arc::clone(&state), view, filter));
    let bytes = bytes.map(move |bytes| {
        // Until the last one.
        let _held = &permit;
        bytes
    });
    let answer = ApiResponse::streamed(content_type, Body::from_stream(bytes));
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
