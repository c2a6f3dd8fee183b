//! The usage log: list, get, summary and export.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use axum::body::Body;
use serde_json::{Value, json};
use tollgate_core::{GroupId, MemberId, Outcome, RequestId, Timestamp, UsageRecord};
use tollgate_store::{
    AdminScope, Page, Percentiles, RowKind, SortOrder, StoreError, StoredRow, SummaryBy, SummaryRow, UsageCursor, UsageFilter,
    fields::{FieldShape, Kind, Object},
};

use super::{
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, Resource, ResponseSchema, Route, handler},
    row_names::rows_by_id,
    rows,
    schema::{COUNT, MODEL_NAME, NAME, TEXT, USD, both, read},
};
use crate::{
    api_error::ApiError,
    response::ApiResponse,
    state::ConsoleState,
    time::time_value,
    usage_format,
    usage_lines::{LineFormat, usage_lines},
};

static TOKENS: Object = Object::of(
    "Tokens",
    &[
        read("input", COUNT, "Input tokens not counted below."),
        read("output", COUNT, "Output tokens not counted below."),
        read("cache_read", COUNT, "Input tokens read from the provider's cache."),
        read("cache_write", COUNT, "Input tokens written to the provider's cache."),
        read("cache_write_1h", COUNT, "Of `cache_write`, the tokens kept for an hour."),
        read("thinking", COUNT, "Thinking tokens."),
        read("image", COUNT, "Image tokens."),
        read("audio", COUNT, "Audio tokens."),
        read("source", Kind::Word(&["none", "provider", "counted", "estimated"]), "Source of the counts."),
    ],
);
static ATTEMPT: Object = Object::of(
    "Attempt",
    &[
        read("channel", TEXT, "Channel."),
        read("account", TEXT, "Account."),
        read("protocol", TEXT, "Protocol of the channel."),
        read("upstream_model", TEXT, "Model name sent upstream."),
        read("at", Kind::Time, "Start of the attempt."),
        read("status", COUNT, "HTTP status of the upstream.").or_null(),
        read("result", TEXT, "Result of the attempt."),
        read("error", TEXT, "Error text.").or_null(),
        read("tokens", Kind::Object(&TOKENS), "Token counts."),
        read("cost", USD, "Cost in USD.").or_null(),
        read("first_byte_us", COUNT, "Time to the first byte, in microseconds.").or_null(),
        read("duration_us", COUNT, "Total duration in microseconds."),
        read("upstream_request_id", TEXT, "Request id of the provider.").or_null(),
        read("beside", Kind::Flag, "Whether this was the losing attempt of a hedged request."),
    ],
);
static TRACE: Object = Object::of(
    "TraceEntry",
    &[
        read("channel", TEXT, "Channel."),
        read("account", TEXT, "Account.").or_null(),
        read("code", TEXT, "`planned`, or the exclusion code."),
        read("detail", TEXT, "Details.").or_null(),
    ],
);
static RECORD: Object = Object::of(
    "UsageRecord",
    &[
        read("id", Kind::Id("req_"), "Request id."),
        read("at", Kind::Time, "Arrival of the request."),
        read("outcome", Kind::Word(OUTCOMES), "Outcome."),
        read("reason", TEXT, "Error id or exclusion code.").or_null(),
        read("detail", TEXT, "Error message sent to the caller.").or_null(),
        read("status", COUNT, "HTTP status sent to the caller."),
        read("key", Kind::Id("key_"), "Key id."),
        read("key_name", TEXT, "Key name."),
        read("member", Kind::Id("mbr_"), "Member id."),
        read("group", TEXT, "Group that served it.").or_null(),
        read("protocol_in", TEXT, "Protocol of the caller."),
        read("protocol_out", TEXT, "Protocol of the channel.").or_null(),
        read("method", TEXT, "API method."),
        read("model", TEXT, "Requested model name.").or_null(),
        read("stream", Kind::Flag, "Whether a stream was requested."),
        read("tokens", Kind::Object(&TOKENS), "Token counts."),
        read("sale", USD, "Sale amount in USD; null: not priced.").or_null(),
        read("cost", USD, "Cost of all attempts, in USD.").or_null(),
        read("price_version", COUNT, "Catalog revision of the prices used."),
        read("ttft_us", COUNT, "Time to the first content, in microseconds.").or_null(),
        read("duration_us", COUNT, "Total duration in microseconds."),
        read("address", TEXT, "Address of the caller.").or_null(),
        read("client_request_id", TEXT, "Request id sent by the caller.").or_null(),
        read("dropped", Kind::List { of: &TEXT, max: 10_000 }, "Request fields that were dropped or adjusted."),
        read("trace", Kind::List { of: &Kind::Object(&TRACE), max: 10_000 }, "Routing decision for each account considered."),
        read("attempts", Kind::List { of: &Kind::Object(&ATTEMPT), max: 100 }, "Attempts, in order."),
    ],
);
static PERCENTILES: Object = Object::of(
    "Percentiles",
    &[
        read("p50_us", COUNT, "Half of the requests took at most so many microseconds; at most an eighth too high."),
        read("p95_us", COUNT, "95 % of the requests did."),
        read("p99_us", COUNT, "99 % of the requests did."),
    ],
);
static SUMMARY: Object = Object::of(
    "UsageSummary",
    &[
        read("of", TEXT, "Value of the grouping; empty if the records have none."),
        read("name", TEXT, "Name of the key, member or group; null for other groupings.").or_null(),
        read("member", TEXT, "Member of the key; null for other groupings.").or_null(),
        read("requests", COUNT, "Number of records."),
        read("completed", COUNT, "Completed requests."),
        read("tokens_input", COUNT, "Input tokens of every kind."),
        read("tokens_output", COUNT, "Output and thinking tokens."),
        read("sale", USD, "Sum of sale amounts, in USD."),
        read("cost", USD, "Cost of all attempts, in USD."),
        read("unpriced", COUNT, "Records without a sale amount."),
        read("ttft", Kind::Object(&PERCENTILES), "Times to the first content; null for sums of or by keys and members.").or_null(),
        read("duration", Kind::Object(&PERCENTILES), "Times to the end; null for sums of or by keys and members.").or_null(),
    ],
);

/// Longest range of a summary by hour: 31 days.
const MAX_HOURLY_RANGE_US: i64 = 31 * 86_400_000_000;
pub(super) const OUTCOMES: &[&str] = &["completed", "caller_left", "upstream_broke", "refused", "gateway_stopped"];
const KEY: FieldShape = both("key", NAME, "Key id, or key name if it is unambiguous.");
const MEMBER: FieldShape = both("member", NAME, "Member, by name or id.");
const GROUP: FieldShape = both("group", NAME, "Group that served the request, by name or id.");
const MODEL: FieldShape = both("model", MODEL_NAME, "Requested model name; one that a group offers.");
const OUTCOME: FieldShape = both("outcome", Kind::Word(OUTCOMES), "Outcome of the request.");
const SINCE: FieldShape = both("since", Kind::Time, "Arrival at or after this time.");
const UNTIL: FieldShape = both("until", Kind::Time, "Arrival before this time.");

const RESOURCE: Resource = Resource { tag: "usage", needs: AdminScope::Operator };
const BY: FieldShape = both(
    "by",
    Kind::Word(&["nothing", "day", "hour", "model", "key", "member", "group", "outcome"]),
    "Grouping; default day. `hour` requires `since` and a range of at most 31 days.",
);
const FORMAT: FieldShape = both("format", Kind::Word(&["csv", "jsonl"]), "Default csv.");

pub(super) static ROUTES: &[Route] = &[
    RESOURCE
        .route(Method::Get, "/admin/v1/usage", "list_usage", "Usage records, newest first.", handler!(list))
        .query(&[LIMIT, AFTER, KEY, MEMBER, GROUP, MODEL, OUTCOME, SINCE, UNTIL])
        .returns(ResponseSchema::SearchPage(&RECORD)),
    RESOURCE
        .route(Method::Get, "/admin/v1/usage/{record}", "get_usage", "One usage record, by request id.", handler!(one))
        .returns(ResponseSchema::Object(&RECORD)),
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/usage/summary",
            "sum_usage",
            "Sums over usage records, grouped, on one page.",
            handler!(summary),
        )
        .query(&[BY, KEY, MEMBER, GROUP, MODEL, OUTCOME, SINCE, UNTIL])
        .returns(ResponseSchema::Page(&SUMMARY)),
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/usage/export",
            "export_usage",
            "All matching usage records, oldest first, as CSV or JSON lines.",
            handler!(export),
        )
        .query(&[FORMAT, KEY, MEMBER, GROUP, MODEL, OUTCOME, SINCE, UNTIL])
        .returns(ResponseSchema::TextLines),
];

async fn filter(context: &RequestContext) -> Result<UsageFilter, ApiError> {
    let query = &context.query;
    let member = match query.text("member") {
        None => None,
        Some(text) => match MemberId::parse(text) {
            Some(id) => Some(id),
            None => MemberId::parse(&rows::find(context, RowKind::Member, None, text).await?.id),
        },
    };
    let group = match query.text("group") {
        None => None,
        Some(text) => match GroupId::parse(text) {
            Some(id) => Some(id),
            None => GroupId::parse(&rows::find(context, RowKind::Group, None, text).await?.id),
        },
    };
    let key = match query.text("key") {
        None => None,
        Some(text) => Some(rows::key_id(context, text).await?),
    };
    let outcome = query.0.get("outcome").and_then(|word| serde_json::from_value::<Outcome>(word.clone()).ok());
    Ok(UsageFilter {
        key,
        member,
        group,
        model: query.text("model").map(str::to_owned),
        outcome,
        since: query.time("since"),
        until: query.time("until"),
        ..UsageFilter::default()
    })
}

/// Parses a page cursor: a place between request ids.
fn cursor(text: &str) -> Result<UsageCursor, ApiError> {
    RequestId::parse(text).map(UsageCursor).ok_or_else(|| ApiError::value("after", "expected the 'next' of a page"))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let after = context.query.text("after").map(cursor).transpose()?;
    let filter = UsageFilter { after, limit: context.limit(), order: SortOrder::Newest, ..filter(&context).await? };
    let _permit = context.acquire_heavy_permit().await?;
    let Page { items, next, searched_until } = context.with_query_timeout(context.state.store.usage.page(&filter)).await?;
    Ok(ApiResponse::ok(json!({
        "items": items.iter().map(usage_format::json).collect::<Vec<_>>(),
        "next": next.map(|UsageCursor(id)| id.to_string()),
        "searched_until": searched_until.map(time_value),
    })))
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let text = context.path_param("record");
    let missing = || ApiError::not_found("usage record");
    let id = RequestId::parse(text).ok_or_else(missing)?;
    let record = context.with_query_timeout(context.state.store.usage.find(id)).await?.ok_or_else(missing)?;
    Ok(ApiResponse::ok(usage_format::json(&record)))
}

async fn summary(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let by = match context.query.text("by") {
        Some("nothing") => SummaryBy::Nothing,
        Some("hour") => SummaryBy::Hour,
        Some("model") => SummaryBy::Model,
        Some("key") => SummaryBy::Key,
        Some("member") => SummaryBy::Member,
        Some("group") => SummaryBy::Group,
        Some("outcome") => SummaryBy::Outcome,
        Some(_) | None => SummaryBy::Day,
    };
    let filter = filter(&context).await?;
    if by == SummaryBy::Hour {
        check_hourly_range(&filter, context.now())?;
    }
    let _permit = context.acquire_heavy_permit().await?;
    let rows = context.with_query_timeout(context.state.store.usage.summary(&filter, by)).await?;
    let names = names(&context, by, &rows).await?;
    let show = |row: &SummaryRow| {
        let SummaryRow { of, requests, completed, tokens_input, tokens_output, sale, cost, unpriced, ttft, duration } = row;
        json!({
            "of": of, "name": names.get(of).map(|(name, _)| name), "member": names.get(of).and_then(|(_, member)| member.as_ref()),
            "requests": requests, "completed": completed, "tokens_input": tokens_input, "tokens_output": tokens_output,
            "sale": sale.to_usd_string(), "cost": cost.to_usd_string(), "unpriced": unpriced,
            "ttft": ttft.map(percentiles), "duration": duration.map(percentiles),
        })
    };
    Ok(ApiResponse::ok(json!({"items": rows.iter().map(show).collect::<Vec<_>>(), "next": null})))
}

fn percentiles(times: Percentiles) -> Value {
    json!({"p50_us": times.p50_us, "p95_us": times.p95_us, "p99_us": times.p99_us})
}

/// Names for the ids of a summary by key or member, and the members of keys. A summary by group contains names already.
async fn names(
    context: &RequestContext,
    by: SummaryBy,
    sums: &[SummaryRow],
) -> Result<HashMap<String, (String, Option<String>)>, ApiError> {
    let ids = sums.iter().map(|sum| sum.of.clone()).filter(|id| !id.is_empty()).collect::<HashSet<_>>();
    Ok(match by {
        SummaryBy::Member => {
            rows_by_id(context, RowKind::Member, ids).await?.into_iter().map(|(id, row)| (id, (row.name, None))).collect()
        }
        SummaryBy::Key => {
            let keys = rows_by_id(context, RowKind::Key, ids).await?;
            let members = rows_by_id(context, RowKind::Member, keys.values().map(|key| key.parent.clone()).collect()).await?;
            let member = |key: &StoredRow| members.get(&key.parent).map(|member| member.name.clone());
            keys.into_iter().map(|(id, key)| (id, (key.name.clone(), member(&key)))).collect()
        }
        SummaryBy::Group => ids.into_iter().map(|name| (name.clone(), (name, None))).collect(),
        SummaryBy::Nothing | SummaryBy::Day | SummaryBy::Hour | SummaryBy::Model | SummaryBy::Outcome => HashMap::new(),
    })
}

/// Bounds the range of a summary by hour.
fn check_hourly_range(filter: &UsageFilter, now: Timestamp) -> Result<(), ApiError> {
    let Some(since) = filter.since else {
        let message = "Missing required parameter: 'since'. Sums by hour are over at most 31 days; say where they begin.";
        return Err(ApiError::invalid("missing_required_parameter", "since", message));
    };
    let until = filter.until.unwrap_or(now);
    if until.0.saturating_sub(since.0) > MAX_HOURLY_RANGE_US {
        let message = "sums by hour are over at most 31 days; take a later 'since', set 'until', or sum by day";
        return Err(ApiError::value("since", message));
    }
    Ok(())
}

async fn export(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (format, content_type, name) = match context.query.text("format") {
        Some("jsonl") => (LineFormat::Json, "application/jsonl; charset=utf-8", "usage.jsonl"),
        Some(_) | None => (LineFormat::Csv, "text/csv; charset=utf-8", "usage.csv"),
    };
    let filter = filter(&context).await?;
    let state = Arc::clone(&context.state);
    let lines = usage_lines(filter, format, move |filter| export_page(Arc::clone(&state), filter));
    let answer = ApiResponse::streamed(content_type, Body::from_stream(lines));
    Ok(answer.header("content-disposition", &format!("attachment; filename=\"{name}\"")))
}

/// Reads a page of an export. Each page acquires its own permit, so that a long export does not block other requests.
async fn export_page(state: Arc<ConsoleState>, filter: UsageFilter) -> Result<Page<UsageRecord>, StoreError> {
    let permit = state.heavy_permits.acquire().await;
    let page = state.store.usage.page(&filter).await;
    drop(permit);
    page.inspect_err(|error| tracing::warn!(%error, "usage export failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_names_match_the_records() {
        for word in OUTCOMES {
            assert_eq!(serde_json::from_value::<Outcome>(Value::from(*word)).unwrap().as_str(), *word);
        }
    }

    #[test]
    fn hourly_summary_requires_a_range_of_at_most_31_days() {
        let now = Timestamp(40 * 86_400_000_000);
        let of = |since: Option<i64>, until: Option<i64>| {
            let at = |days: i64| Timestamp(days * 86_400_000_000);
            let filter = UsageFilter { since: since.map(at), until: until.map(at), ..UsageFilter::default() };
            check_hourly_range(&filter, now).is_ok()
        };
        assert!(of(Some(9), None) && of(Some(0), Some(31)) && of(Some(5), Some(5)));
        assert!(!of(None, None) && !of(None, Some(3)) && !of(Some(8), None) && !of(Some(0), Some(32)));
    }

    #[test]
    fn cursor_round_trips() {
        let id = RequestId::from_parts(Timestamp(5_000), [1; 10]);
        assert_eq!(cursor(&id.to_string()).unwrap(), UsageCursor(id));
        for bad in ["", "5000", "req_1", "key_00000000000000000000000000"] {
            assert!(cursor(bad).is_err(), "{bad}");
        }
    }
}
