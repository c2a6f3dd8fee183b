//! Export of all entries of a filter, newest first.

use std::collections::HashMap;

use serde_json::Value;
use tollgate_core::MemberId;
use tollgate_store::LedgerFilter;

use super::{entries_of, filter};
use crate::{
    api::{
        request_context::RequestContext,
        text_export::{self, ExportedRows, PAGE},
    },
    api_error::ApiError,
    response::ApiResponse,
};

pub(super) const DOC: &str =
    "Entries of the filter as text, newest first: up to 100,000; `after` continues after the last `position`. Amounts are in USD.";

struct Entries {
    context: RequestContext,
    /// `None`: there are no more.
    next: Option<LedgerFilter>,
    names: HashMap<MemberId, String>,
}

pub(super) async fn export(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let format = context.query.text("format").map(str::to_owned);
    let first = LedgerFilter { limit: PAGE, ..filter(&context).await? };
    text_export::answer(format.as_deref(), Entries { context, next: Some(first), names: HashMap::new() }).await
}

impl ExportedRows for Entries {
    const NAME: &'static str = "ledger";
    const COLUMNS: &'static [&'static str] = &[
        "position",
        "at",
        "member",
        "member_name",
        "kind",
        "amount",
        "balance",
        "covers",
        "idempotency_key",
        "note",
        "actor",
        "address",
    ];

    async fn next(&mut self) -> Result<Option<Vec<Value>>, ApiError> {
        let Some(wanted) = self.next.take() else { return Ok(None) };
        let permit = self.context.acquire_heavy_permit().await?;
        let (entries, next) = entries_of(&self.context, &wanted, &mut self.names).await?;
        drop(permit);
        self.next = next.map(|before| LedgerFilter { before: Some(before), ..wanted });
        Ok(Some(entries))
    }
}
