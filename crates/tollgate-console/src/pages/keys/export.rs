//! The list of keys as a file: all keys of the filter, in its order, without secrets.

use std::sync::Arc;

use super::{PageRequest, filter::KeyFilter, found, view::KeyObject};
use crate::{
    pages::reply::{PageFailure, PageReply},
    usage_format::escape_formula,
};

/// Keys that are read at once, and that a file has at most.
const PAGE: &str = "1000";
const MAX_KEYS: usize = 20_000;
const HEAD: [&str; 16] = [
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

pub(super) async fn csv(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let filter = KeyFilter::of(&request.query, request.is_operator());
    let (mut writer, mut after, mut count) = (csv::Writer::from_writer(Vec::new()), None::<String>, 0);
    // Writing to memory does not fail.
    let _ = writer.write_record(HEAD);
    loop {
        let mut pairs = filter.pairs();
        pairs.push(("limit", PAGE));
        pairs.extend(after.as_deref().map(|after| ("after", after)));
        let page = found(&request, pairs).await?;
        count += page.items.len();
        for key in &page.items {
            let _ = writer.write_record(row(key));
        }
        after = page.next.filter(|_| count < MAX_KEYS);
        if after.is_none() {
            break;
        }
    }
    let text = writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    Ok(PageReply::file("keys.csv", "text/csv; charset=utf-8", text))
}

fn row(key: &KeyObject) -> [String; 16] {
    let used = |used: Option<&super::view::PeriodUse>| {
        used.map_or_else(Default::default, |used| (used.requests.to_string(), used.sale.clone()))
    };
    let ((month, month_usd), (today, today_usd)) = (used(key.month.as_ref()), used(key.today.as_ref()));
    let text = |value: &str| escape_formula(value).into_owned();
    let time = |at: &Option<String>| at.clone().unwrap_or_default();
    [
        key.id.clone(),
        text(&key.name),
        text(&key.member),
        key.state.clone(),
        text(&key.prefix),
        text(&key.suffix),
        text(&key.groups.join(" ")),
        text(&key.models.join(" ")),
        month,
        month_usd,
        today,
        today_usd,
        time(&key.last_used_at),
        key.last_address.clone().unwrap_or_default(),
        time(&key.expires_at),
        key.created_at.clone(),
    ]
}
