//! What was spent with keys and how often they were used since a time, from the sums of usage.

use std::collections::HashMap;

use serde_json::{Value, json};
use tollgate_core::{MemberId, NanoUsd, Timestamp};
use tollgate_store::{
    SummaryBy, UsageFilter,
    fields::{Access, FieldShape, Kind, Object},
};

use crate::{
    api::{
        request_context::RequestContext,
        schema::{COUNT, USD, read},
    },
    api_error::ApiError,
};

static USE: Object =
    Object::of("KeyUse", &[read("requests", COUNT, "Requests."), read("sale", USD, "What the key's member was charged for them.")]);

/// A key's use in this UTC month.
pub(super) const MONTH: FieldShape =
    read("month", Kind::Object(&USE), "Use in this UTC month; only in a list that is asked for it with `use`.")
        .with(Access::ShownOnce);

/// Sums by the id of the key; keys without requests have none.
#[derive(Debug, Default)]
pub(super) struct KeyUse(HashMap<String, (NanoUsd, u64)>);

impl KeyUse {
    pub(super) async fn since(context: &RequestContext, member: Option<MemberId>, since: Timestamp) -> Result<Self, ApiError> {
        let filter = UsageFilter { member: context.only_member(member)?, since: Some(since), ..UsageFilter::default() };
        let _permit = context.acquire_heavy_permit().await?;
        let sums = context.with_query_timeout(context.state.store.usage.summary(&filter, SummaryBy::Key.into())).await?;
        Ok(Self(sums.into_iter().map(|sum| (sum.of, (sum.sale, sum.requests))).collect()))
    }

    pub(super) async fn of_month(context: &RequestContext, member: Option<MemberId>) -> Result<Self, ApiError> {
        Self::since(context, member, Timestamp::of_month(context.now().month())).await
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// What was spent, and the requests.
    pub(super) fn of(&self, key: &str) -> (NanoUsd, u64) {
        self.0.get(key).copied().unwrap_or_default()
    }

    /// As the field [`MONTH`] has it.
    pub(super) fn shown(&self, key: &str) -> Value {
        let (spent, requests) = self.of(key);
        json!({"requests": requests, "sale": spent.to_usd_string()})
    }
}
