//! The list of keys as a file: all keys of the filter, in its order, without secrets.

use std::{io, sync::Arc};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};

use super::{PageRequest, filter::KeyFilter, found, view::KeyObject};
use crate::{
    api_error::ApiError,
    pages::{
        reply::{PageFailure, PageReply},
        request::ApiPage,
    },
    usage_format::escape_formula,
};

/// Keys that are read at once.
const PAGE: &str = "1000";
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
    // A fault of the filter is shown as a page. A later fault aborts the transfer, so that the client does not take a part for the
    // whole file.
    let first = page(&request, &filter, None).await?;
    let head = Bytes::from(lines(&first.items, true));
    let rest = stream::try_unfold((request, filter, first.next), |(request, filter, after)| async move {
        let Some(after) = after else { return Ok(None) };
        let page = page(&request, &filter, Some(&after)).await.map_err(|error| io::Error::other(error.message().to_owned()))?;
        Ok::<_, io::Error>(Some((Bytes::from(lines(&page.items, false)), (request, filter, page.next))))
    });
    let parts = stream::once(async { Ok(head) }).chain(rest);
    Ok(PageReply::streamed_file("keys.csv", "text/csv; charset=utf-8", Body::from_stream(parts)))
}

async fn page(request: &PageRequest, filter: &KeyFilter, after: Option<&str>) -> Result<ApiPage<KeyObject>, ApiError> {
    let mut pairs = filter.pairs();
    pairs.push(("limit", PAGE));
    pairs.extend(after.map(|after| ("after", after)));
    found(request, pairs).await
}

fn lines(keys: &[KeyObject], with_head: bool) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory does not fail.
    if with_head {
        let _ = writer.write_record(HEAD);
    }
    for key in keys {
        let _ = writer.write_record(row(key));
    }
    writer.into_inner().unwrap_or_default()
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
