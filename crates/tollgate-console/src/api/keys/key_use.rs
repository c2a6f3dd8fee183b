//! What was spent with keys and how often they were used in this month, and which were not used, from the sums of usage.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use tollgate_core::{IdHash, KeyId, MemberId, NanoUsd, Timestamp};
use tollgate_store::{
    self as store, KeyUseFilter,
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

/// The keys of ids.
pub(super) fn ids<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<KeyId> {
    ids.filter_map(KeyId::parse).collect()
}

/// The keys of these without a request since a time.
pub(super) async fn unused(
    context: &RequestContext,
    member: Option<MemberId>,
    since: Timestamp,
    keys: Vec<KeyId>,
) -> Result<HashSet<KeyId, IdHash>, ApiError> {
    let filter = KeyUseFilter { member: context.only_member(member)?, since };
    let _permit = context.acquire_heavy_permit().await?;
    let unused = context.with_query_timeout(context.state.store.usage.unused_keys(filter, keys)).await?;
    Ok(unused.into_iter().collect())
}

/// What was used in this UTC month by key; keys without requests are not in it.
#[derive(Debug)]
pub(super) struct KeyUse(HashMap<KeyId, store::KeyUse, IdHash>);

impl KeyUse {
    /// Of these keys, or of all.
    pub(super) async fn of_month(
        context: &RequestContext,
        member: Option<MemberId>,
        keys: Option<Vec<KeyId>>,
    ) -> Result<Self, ApiError> {
        let filter = KeyUseFilter { member: context.only_member(member)?, since: Timestamp::of_month(context.now().month()) };
        let _permit = context.acquire_heavy_permit().await?;
        let used = context.with_query_timeout(context.state.store.usage.key_use(filter, keys)).await?;
        Ok(Self(used.into_iter().collect()))
    }

    /// What was spent, and the requests.
    pub(super) fn of(&self, key: &str) -> (NanoUsd, u64) {
        let used = KeyId::parse(key).and_then(|key| self.0.get(&key)).copied().unwrap_or_default();
        (used.sale, used.requests)
    }

    /// As the field [`MONTH`] has it.
    pub(super) fn shown(&self, key: &str) -> Value {
        let (spent, requests) = self.of(key);
        json!({"requests": requests, "sale": spent.to_usd_string()})
    }
}
