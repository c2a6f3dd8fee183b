//! The list of keys as a file: all keys of the filter, in its order, without secrets.

use std::sync::Arc;

use super::{PageRequest, filter::KeyFilter, found, view::KeyObject};
use crate::{
    api_error::ApiError,
    pages::{
        csv_file::{self, CsvLine, CsvList, optional, text, texts},
        reply::{PageFailure, PageReply},
        request::ApiPage,
    },
};

/// Keys that are read at once.
const PAGE: &str = "1000";

struct KeyList(KeyFilter);

pub(super) async fn csv(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let list = KeyList(KeyFilter::of(&request.query, request.is_operator()));
    csv_file::answer(request, list).await
}

impl CsvList for KeyList {
    const FILE: &'static str = "keys.csv";
    const HEAD: &'static [&'static str] = &[
        "id",
        "name",
        "member",
        "state",
        "prefix",
        "suffix",
        "groups",
        "models",
        "requests_month",
        "usd_month",
        "requests_today",
        "usd_today",
        "last_used_at",
        "last_address",
        "expires_at",
        "created_at",
    ];

    async fn page(&self, request: &PageRequest, after: Option<&str>) -> Result<ApiPage<CsvLine>, ApiError> {
        let mut pairs = self.0.pairs();
        pairs.push(("limit", PAGE));
        pairs.extend(after.map(|after| ("after", after)));
        let found = found(request, pairs).await?;
        Ok(ApiPage { items: found.items.iter().map(line).collect(), next: found.next })
    }
}

fn line(key: &KeyObject) -> CsvLine {
    let used = |used: Option<&super::view::PeriodUse>| {
        used.map_or_else(Default::default, |used| (used.requests.to_string(), used.sale.clone()))
    };
    let ((month, month_usd), (today, today_usd)) = (used(key.month.as_ref()), used(key.today.as_ref()));
    vec![
        key.id.clone(),
        text(&key.name),
        text(&key.member),
        key.state.clone(),
        text(&key.prefix),
        text(&key.suffix),
        texts(&key.groups),
        texts(&key.models),
        month,
        month_usd,
        today,
        today_usd,
        optional(key.last_used_at.as_ref()),
        optional(key.last_address.as_ref()),
        optional(key.expires_at.as_ref()),
        key.created_at.clone(),
    ]
}
