//! Spending and requests of each key in this month and today, and keys without requests, from the sums of usage; the time of
//! the last use of each key, from the log.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};
use tollgate_core::{IdHash, KeyId, MemberId, NanoUsd, Timestamp};
use tollgate_store::{
    self as store, KeyUseFilter, LastUse,
    fields::{Access, FieldShape, Kind, Object},
};

use crate::{
    api::{
        request_context::RequestContext,
        schema::{COUNT, TEXT, USD, read},
    },
    api_error::ApiError,
    time::time_value,
};

const DAY_US: i64 = 86_400_000_000;

static USE: Object =
    Object::of("KeyUse", &[read("requests", COUNT, "Requests."), read("sale", USD, "What the key's member was charged for them.")]);

/// A key's use in this UTC month.
pub(super) const MONTH: FieldShape =
    read("month", Kind::Object(&USE), "Usage in this UTC month; only in a list that is requested with `use`.")
        .with(Access::ShownOnce);

/// A key's use on this UTC day.
pub(super) const TODAY: FieldShape = read("today", Kind::Object(&USE), "The same of this UTC day.").with(Access::ShownOnce);
/// When and from where a key was used last.
pub(super) const LAST_USED_AT: FieldShape =
    read("last_used_at", Kind::Time, "The last request in the usage log, also with `use`; null: there is none.")
        .or_null()
        .with(Access::ShownOnce);
pub(super) const LAST_ADDRESS: FieldShape =
    read("last_address", TEXT, "Where it came from; null: not known.").or_null().with(Access::ShownOnce);

/// The use of several keys together.
pub(super) static SUMMARY: Object = Object::of(
    "KeysUse",
    &[
        read("keys", COUNT, "How many keys are selected."),
        read("month", Kind::Object(&USE), "Their usage in this UTC month."),
        read("today", Kind::Object(&USE), "The same of this UTC day."),
    ],
);

/// Up to this many keys, only their sums are read; with more keys, the sums of all keys.
const NAMED_KEYS: usize = 1_000;

/// The use of these keys together.
pub(super) async fn summary(context: &RequestContext, member: Option<MemberId>, keys: Vec<KeyId>) -> Result<Value, ApiError> {
    let named = (keys.len() <= NAMED_KEYS).then(|| keys.clone());
    let month = KeyUse::of_month(context, member, named.clone()).await?;
    let today = KeyUse::since(context, member, named, begin_of_day(context)).await?;
    let (month, today) = (month.of_all(&keys), today.of_all(&keys));
    Ok(json!({"keys": keys.len(), "month": month, "today": today}))
}

fn begin_of_day(context: &RequestContext) -> Timestamp {
    Timestamp(context.now().0.div_euclid(DAY_US) * DAY_US)
}

/// The keys of ids.
pub(in crate::api) fn ids<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<KeyId> {
    ids.filter_map(KeyId::parse).collect()
}

/// The keys, of these, that had no request since a time.
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

/// The times of the last requests of these keys, at least of the `most` that were used last. Keys without requests are missing.
pub(in crate::api) async fn last_requests(
    context: &RequestContext,
    keys: Vec<KeyId>,
    most: usize,
) -> Result<HashMap<KeyId, Timestamp, IdHash>, ApiError> {
    let _permit = context.acquire_heavy_permit().await?;
    Ok(context.with_query_timeout(context.state.store.usage.last_requests(keys, most)).await?.into_iter().collect())
}

/// Usage since a time, by key. Keys without requests are missing.
#[derive(Debug)]
pub(super) struct KeyUse(HashMap<KeyId, store::KeyUse, IdHash>);

impl KeyUse {
    /// In this UTC month, of these keys or of all.
    pub(super) async fn of_month(
        context: &RequestContext,
        member: Option<MemberId>,
        keys: Option<Vec<KeyId>>,
    ) -> Result<Self, ApiError> {
        Self::since(context, member, keys, Timestamp::of_month(context.now().month())).await
    }

    async fn since(
        context: &RequestContext,
        member: Option<MemberId>,
        keys: Option<Vec<KeyId>>,
        since: Timestamp,
    ) -> Result<Self, ApiError> {
        let filter = KeyUseFilter { member: context.only_member(member)?, since };
        let _permit = context.acquire_heavy_permit().await?;
        let used = context.with_query_timeout(context.state.store.usage.key_use(filter, keys)).await?;
        Ok(Self(used.into_iter().collect()))
    }

    /// The amount spent and the number of requests.
    pub(super) fn of(&self, key: &str) -> (NanoUsd, u64) {
        let used = KeyId::parse(key).and_then(|key| self.0.get(&key)).copied().unwrap_or_default();
        (used.sale, used.requests)
    }

    /// Of these keys together.
    fn of_all(&self, keys: &[KeyId]) -> Value {
        let used = keys.iter().filter_map(|key| self.0.get(key));
        let (requests, sale) = used.fold((0_u64, NanoUsd(0)), |(requests, sale), used| {
            (requests.saturating_add(used.requests), NanoUsd(sale.0.saturating_add(used.sale.0)))
        });
        json!({"requests": requests, "sale": sale.to_usd_string()})
    }

    /// In the form of the fields [`MONTH`] and [`TODAY`].
    fn shown(&self, key: &str) -> Value {
        let (spent, requests) = self.of(key);
        json!({"requests": requests, "sale": spent.to_usd_string()})
    }
}

/// The usage of the keys of a page.
#[derive(Debug)]
pub(super) struct ShownUse {
    month: KeyUse,
    today: KeyUse,
    last: HashMap<KeyId, LastUse, IdHash>,
}

impl ShownUse {
    /// The usage of these keys. `month`: their usage in this month if it is known already.
    pub(super) async fn of(
        context: &RequestContext,
        member: Option<MemberId>,
        keys: Vec<KeyId>,
        month: Option<KeyUse>,
    ) -> Result<Self, ApiError> {
        let month = match month {
            Some(month) => month,
            None => KeyUse::of_month(context, member, Some(keys.clone())).await?,
        };
        let today = KeyUse::since(context, member, Some(keys.clone()), begin_of_day(context)).await?;
        let last = context.with_query_timeout(context.state.store.usage.last_use(keys)).await?;
        Ok(Self { month, today, last: last.into_iter().collect() })
    }

    /// Adds the fields of a key.
    pub(super) fn add_to(&self, shown: &mut Map<String, Value>, key: &str) {
        let last = KeyId::parse(key).and_then(|key| self.last.get(&key));
        shown.insert(MONTH.name.to_owned(), self.month.shown(key));
        shown.insert(TODAY.name.to_owned(), self.today.shown(key));
        shown.insert(LAST_USED_AT.name.to_owned(), json!(last.map(|last| time_value(last.at))));
        shown.insert(LAST_ADDRESS.name.to_owned(), json!(last.and_then(|last| last.address.as_deref())));
    }
}
