//! `/v1/usage`: sums and records of a key, in the caller view.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate_core::{NanoUsd, RequestId, Timestamp, Tokens, UsageRecord};
use tollgate_store::{
    Grouping, SummaryBy, SummaryRow, UsageCursor, UsageFilter,
    fields::{FieldShape, Kind},
};

use super::CallerRequest;
use crate::{
    api::{
        route::{AFTER, LIMIT},
        schema::{MODEL_NAME, both},
        usage::{tag_grouping, tags},
    },
    api_error::ApiError,
    time::time_value,
};

/// Longest time that sums by hour cover, and the time that sums cover without `since`, in microseconds.
const MAX_HOURLY_RANGE_US: i64 = 31 * 86_400_000_000;
const MODEL: FieldShape = both("model", MODEL_NAME, "Requested model name.");
const TAGS: FieldShape = both("tags", Kind::Text { min: 1, max: 2_000 }, "Tags, as `name=value`, separated by commas.");
const SINCE: FieldShape = both("since", Kind::Time, "Arrival at or after this time.");
const UNTIL: FieldShape = both("until", Kind::Time, "Arrival before this time.");
pub(super) const SUMS: &[FieldShape] = &[both("by", Kind::Text { min: 1, max: 60 }, "Grouping."), MODEL, TAGS, SINCE, UNTIL];
pub(super) const RECORDS: &[FieldShape] = &[LIMIT, AFTER, MODEL, TAGS, SINCE, UNTIL];

fn filter(request: &CallerRequest) -> Result<UsageFilter, ApiError> {
    let query = &request.query;
    Ok(UsageFilter {
        key: Some(request.key.id),
        model: query.text("model").map(str::to_owned),
        tags: query.text("tags").map(tags).transpose()?.unwrap_or_default(),
        since: query.time("since"),
        until: query.time("until"),
        ..UsageFilter::default()
    })
}

fn grouping(word: &str) -> Result<SummaryBy, ApiError> {
    let by = match word {
        "nothing" => Some(SummaryBy::Nothing),
        "month" => Some(SummaryBy::Month),
        "day" => Some(SummaryBy::Day),
        "hour" => Some(SummaryBy::Hour),
        "model" => Some(SummaryBy::Model),
        "outcome" => Some(SummaryBy::Outcome),
        tag => tag_grouping(tag),
    };
    by.ok_or_else(|| ApiError::value("by", "expected one of nothing, month, day, hour, model, outcome, tag:NAME"))
}

pub(super) async fn sums(request: &CallerRequest) -> Result<Value, ApiError> {
    let by = grouping(request.query.text("by").unwrap_or("day"))?;
    let mut filter = filter(request)?;
    let now = request.state.gateway.now();
    if by == SummaryBy::Hour {
        let since = filter.since.unwrap_or(Timestamp(now.0.saturating_sub(MAX_HOURLY_RANGE_US)));
        if filter.until.unwrap_or(now).0.saturating_sub(since.0) > MAX_HOURLY_RANGE_US {
            return Err(ApiError::value("since", "sums by hour are over at most 31 days"));
        }
        filter.since = Some(since);
    }
    let rows = request.read(request.state.store.usage.summary(&filter, Grouping::from(by).without_times())).await?;
    Ok(json!({"object": "list", "data": rows.iter().map(sum).collect::<Vec<_>>()}))
}

fn sum(row: &SummaryRow) -> Value {
    json!({
        "of": row.of, "requests": row.requests, "completed": row.completed, "tokens_input": row.tokens_input,
        "tokens_output": row.tokens_output, "tokens_cache_read": row.tokens_cache_read, "tokens_thinking": row.tokens_thinking,
        "amount": row.sale.to_usd_string(), "unpriced": row.unpriced,
    })
}

pub(super) async fn records(request: &CallerRequest) -> Result<Value, ApiError> {
    let after = request.query.text("after").map(|text| {
        RequestId::parse(text).map(UsageCursor).ok_or_else(|| ApiError::value("after", "expected the 'next' of a page"))
    });
    let limit = request.query.whole("limit").and_then(|limit| u32::try_from(limit).ok()).unwrap_or(50);
    let filter = UsageFilter { after: after.transpose()?, limit, ..filter(request)? };
    let page = request.read(request.state.store.usage.page(&filter)).await?;
    Ok(json!({
        "object": "list", "data": page.items.iter().map(caller_view).collect::<Vec<_>>(),
        "next": page.next.map(|UsageCursor(id)| id.to_string()), "searched_until": page.searched_until.map(time_value),
    }))
}

/// The members of a record that a caller may see.
fn caller_view(record: &UsageRecord) -> Value {
    let Tokens { input, output, cache_read, cache_write, thinking, image, audio, .. } = record.tokens;
    json!({
        "id": record.id, "at": time_value(record.at), "model": record.model, "group": record.group_name,
        "protocol": record.protocol_in, "stream": record.stream, "status": record.status, "outcome": record.outcome,
        "error": record.reason, "message": record.detail,
        "tokens": {
            "input": input, "output": output, "cache_read": cache_read, "cache_write": cache_write, "thinking": thinking,
            "image": image, "audio": audio,
        },
        "amount": record.sale.map(NanoUsd::to_usd_string), "ttft_us": record.ttft_us, "duration_us": record.duration_us,
        "client_request_id": record.client_request_id, "client": record.client, "request_bytes": record.request_bytes, "tags": record.tags.iter().collect::<BTreeMap<_, _>>(),
        "dropped": record.dropped,
    })
}
