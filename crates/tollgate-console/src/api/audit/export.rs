//! Export of all events of a filter, newest first.

use serde_json::Value;

use super::{AuditEntry, Cursor, find};
use crate::{
    api::{
        request_context::RequestContext,
        text_export::{self, ExportedRows, PAGE},
    },
    api_error::ApiError,
    response::ApiResponse,
};

pub(super) const DOC: &str = "Events of the filter as text, newest first: up to 100,000. CSV has the detail as JSON in one column.";

struct Events {
    context: RequestContext,
    /// `None`: there are no more.
    next: Option<Cursor>,
}

pub(super) async fn export(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let format = context.query.text("format").map(str::to_owned);
    text_export::answer(format.as_deref(), Events { context, next: Some(Cursor::default()) }).await
}

impl ExportedRows for Events {
    const NAME: &'static str = "audit";
    const COLUMNS: &'static [&'static str] =
        &["at", "origin", "actor", "address", "action", "kind", "name", "id", "revision", "detail"];

    async fn next(&mut self) -> Result<Option<Vec<Value>>, ApiError> {
        let Some(after) = self.next else { return Ok(None) };
        let permit = self.context.acquire_heavy_permit().await?;
        let (entries, next) = find(&self.context, after, PAGE).await?;
        drop(permit);
        self.next = next;
        Ok(Some(entries.iter().map(AuditEntry::show).collect()))
    }
}
