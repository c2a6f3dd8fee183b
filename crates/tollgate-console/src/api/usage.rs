//! The usage log: list, get, sums, histogram, live tail and export.

mod attempts;
mod contents;
mod export;
mod filter;
pub(crate) mod histogram;
mod pricing;
pub(crate) mod summary;
mod tail;
mod translation;
mod view;

use serde_json::json;
use tollgate_core::{MAX_TAGS, RequestId, UsageRecord};
use tollgate_store::{
    AdminScope, Page, RowKind, SortOrder, UsageCursor, UsageFilter,
    fields::{FieldShape, Kind, Object},
};

use super::{
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
    row_names::names_by_id,
    schema::{COUNT, TEXT, USD, both, read},
};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value, usage_format};
pub(super) use filter::outcomes;
pub(crate) use filter::tags;
use filter::{FILTER, filter};
pub use filter::{parse_outcomes, parse_status, parse_tags};
pub(crate) use summary::tag_grouping;
use view::UsageView;

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
        read("web_searches", COUNT, "Web searches by the provider, which are charged separately."),
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
        read("sent_us", COUNT, "Time until the request was sent, in microseconds; null: nothing was sent.").or_null(),
        read("first_byte_us", COUNT, "Time to the first byte, in microseconds.").or_null(),
        read("duration_us", COUNT, "Total duration in microseconds."),
        read("upstream_request_id", TEXT, "Request id of the provider.").or_null(),
        read("beside", Kind::Flag, "Whether this was the losing attempt of a hedged request."),
        read("cost_multiplier", Kind::Factor { max: i64::MAX }, "Factor of the account on the cost."),
        read("message", TEXT, "What went wrong: the text of the upstream's error without secrets and hosts, or a class.").or_null(),
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
const TRACE_ENTRY: Kind = Kind::Object(&TRACE);
const ATTEMPT_ENTRY: Kind = Kind::Object(&ATTEMPT);
const RECORD_FIELDS: &[FieldShape] = &[
    read("id", Kind::Id("req_"), "Request id."),
    read("at", Kind::Time, "Arrival of the request."),
    read("outcome", Kind::Word(filter::OUTCOMES), "Outcome."),
    read("reason", TEXT, "Error id or exclusion code.").or_null(),
    read("detail", TEXT, "Error message sent to the caller.").or_null(),
    read("status", COUNT, "HTTP status sent to the caller."),
    read("key", Kind::Id("key_"), "Key id."),
    read("key_name", TEXT, "Key name."),
    read("member", Kind::Id("mbr_"), "Member id."),
    read("group", TEXT, "Group that served it or refused it.").or_null(),
    read("protocol_in", TEXT, "Protocol of the caller."),
    read("protocol_out", TEXT, "Protocol of the channel.").or_null(),
    read("method", TEXT, "API method."),
    read("model", TEXT, "Requested model name.").or_null(),
    read("stream", Kind::Flag, "Whether a stream was requested."),
    read(
        "finish",
        Kind::Word(filter::FINISHES),
        "Why the answer ended, as its provider said: `stop` by itself, `length` at the limit of tokens, `tool` with a tool call, `filter` \
         because of a filter, `fail` because it was unusable, `other`; null: no answer began, or nothing was said.",
    )
    .or_null(),
    read("tokens", Kind::Object(&TOKENS), "Token counts."),
    read("sale", USD, "Sale amount in USD; null: not priced.").or_null(),
    read("cost", USD, "Cost of all attempts, in USD.").or_null(),
    read("price_version", COUNT, "Catalog revision of the prices used."),
    read("sale_multiplier", Kind::Factor { max: i64::MAX }, "Factor of the group on the sale price of the model."),
    read("ttft_us", COUNT, "Time to the first content, in microseconds.").or_null(),
    read("duration_us", COUNT, "Total duration in microseconds."),
    read("overhead_us", COUNT, "Time in which no attempt was in progress, in microseconds; null without an attempt.").or_null(),
    read("address", TEXT, "Address of the caller.").or_null(),
    read("client_request_id", TEXT, "Request id sent by the caller.").or_null(),
    read("client", TEXT, "The caller's `user-agent`, at most 64 characters.").or_null(),
    read("request_bytes", COUNT, "Size of the request's body in bytes; 0: not read completely."),
    read("tags", Kind::TextMap { max: MAX_TAGS }, "Tags that the caller gave it, by name."),
    read("dropped", Kind::List { of: &TEXT, max: 10_000 }, "Request fields that were dropped or adjusted."),
    read("trace", Kind::List { of: &TRACE_ENTRY, max: 10_000 }, "Routing decision for each account considered."),
    read("attempts", Kind::List { of: &ATTEMPT_ENTRY, max: 100 }, "Attempts, in order."),
];
const MEMBER_NAME: FieldShape =
    read("member_name", TEXT, "Name of the member, or its last one if it was removed; null: unknown.").or_null();
static RECORD: Object =
    Object::of("UsageRecord", &super::schema::join::<{ RECORD_FIELDS.len() + 1 }>(&[RECORD_FIELDS, &[MEMBER_NAME]]));
/// A record with the lines of its amounts.
static RECORD_DETAIL: Object = Object::of(
    "UsageRecordDetail",
    &super::schema::join::<{ RECORD_FIELDS.len() + 4 }>(&[
        RECORD_FIELDS,
        &[
            MEMBER_NAME,
            read("member_removed", Kind::Flag, "Whether the member was removed."),
            read("pricing", Kind::Object(&pricing::PRICING), "The lines of the amounts."),
            read("contents", Kind::Flag, "Whether its body and answer are stored and the caller may read them."),
        ],
    ]),
);
const RESOURCE: Resource = Resource { tag: "usage", needs: Needs::Own { all: AdminScope::Operator } };
/// Routes that are for operators only.
const OPERATORS: Resource = Resource { tag: "usage", needs: Needs::Scope(AdminScope::Operator) };
const FORMAT: FieldShape = both("format", Kind::Word(&["csv", "jsonl", "parquet"]), "Default csv.");

/// The parameters of a list, of sums, of a histogram and of an export: those of the filter, and more.
const LIST: &[FieldShape] = &with_filter::<{ FILTER.len() + 2 }>(&[LIMIT, AFTER]);
const SUMMARY: &[FieldShape] = &with_filter::<{ FILTER.len() + summary::PARAMETERS.len() }>(&summary::PARAMETERS);
const HISTOGRAM: &[FieldShape] = &with_filter::<{ FILTER.len() + 2 }>(&[histogram::BUCKETS, histogram::WIDTH]);
const TAIL: &[FieldShape] = &with_filter::<{ FILTER.len() + 1 }>(&[tail::AFTER]);
const EXPORT: &[FieldShape] = &with_filter::<{ FILTER.len() + 1 }>(&[FORMAT]);

const fn with_filter<const N: usize>(more: &[FieldShape]) -> [FieldShape; N] {
    super::schema::join(&[more, FILTER])
}

pub(super) static ROUTES: &[Route] = &[
    RESOURCE
        .route(Method::Get, "/admin/v1/usage", "list_usage", "Usage records, newest first.", handler!(list))
        .query(LIST)
        .returns(ResponseSchema::SearchPage(&RECORD)),
    RESOURCE
        .route(Method::Get, "/admin/v1/usage/{record}", "get_usage", "One usage record, by request id.", handler!(one))
        .returns(ResponseSchema::Object(&RECORD_DETAIL)),
    contents::RESOURCE
        .route(
            Method::Get,
            "/admin/v1/usage/{record}/contents",
            "get_contents",
            "The stored body and answer of a request.",
            handler!(contents::show),
        )
        .returns(ResponseSchema::Object(&contents::CONTENTS)),
    OPERATORS
        .route(
            Method::Get,
            "/admin/v1/usage/{record}/translation",
            "get_translation",
            "The stored body of a request, if the reader may read it, beside the one for its upstream, and the answer in both protocols.",
            handler!(translation::show),
        )
        .returns(ResponseSchema::Object(&translation::TRANSLATION)),
    contents::RESOURCE.route(
        Method::Delete,
        "/admin/v1/usage/{record}/contents",
        "remove_contents",
        "Removes the stored body and answer of a request.",
        handler!(contents::remove),
    ),
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/usage/summary",
            "sum_usage",
            "Sums over usage records, by one or two groupings, on one page.",
            handler!(summary::summary),
        )
        .query(SUMMARY)
        .returns(ResponseSchema::SumsPage(&summary::ROW)),
    OPERATORS
        .route(
            Method::Get,
            "/admin/v1/usage/attempts",
            "sum_attempts",
            "Sums over attempts, by one or two groupings, on one page, including attempts after which another account served the request.",
            handler!(attempts::attempts),
        )
        .query(&attempts::PARAMETERS)
        .returns(ResponseSchema::Page(&attempts::ROW)),
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/usage/histogram",
            "draw_usage",
            "Requests over a range of time in equal buckets, by outcome.",
            handler!(histogram::histogram),
        )
        .query(HISTOGRAM)
        .returns(ResponseSchema::Page(&histogram::BUCKET)),
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/usage/tail",
            "follow_usage",
            "New usage records as server-sent events, in the order in which they are booked.",
            handler!(tail::tail),
        )
        .query(TAIL)
        .returns(ResponseSchema::Events),
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/usage/export",
            "export_usage",
            "All matching usage records, oldest first, as CSV, JSON lines or a Parquet file.",
            handler!(export::export),
        )
        .query(EXPORT)
        .returns(ResponseSchema::TextLines),
];

/// Parses a page cursor, a position between request ids.
fn cursor(text: &str) -> Result<UsageCursor, ApiError> {
    RequestId::parse(text).map(UsageCursor).ok_or_else(|| ApiError::value("after", "expected the 'next' of a page"))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let after = context.query.text("after").map(cursor).transpose()?;
    let filter = UsageFilter { after, limit: context.limit(), order: SortOrder::Newest, ..filter(&context).await? };
    let view = UsageView::of(&context);
    let _permit = context.acquire_heavy_permit().await?;
    let Page { items, next, searched_until } = context.with_query_timeout(context.state.store.usage.page(&filter)).await?;
    let members = items.iter().map(|record| record.member.to_string()).collect();
    let members = names_by_id(&context, RowKind::Member, members).await?;
    let row = |record: UsageRecord| {
        let member = members.get(&record.member.to_string()).map(|member| member.name.as_str());
        let mut row = usage_format::json(&view.record(record));
        row["member_name"] = member.into();
        row
    };
    Ok(ApiResponse::ok(json!({
        "items": items.into_iter().map(row).collect::<Vec<_>>(),
        "next": next.map(|UsageCursor(id)| id.to_string()),
        "searched_until": searched_until.map(time_value),
    })))
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let text = context.path_param("record");
    let missing = || ApiError::not_found("usage record");
    let id = RequestId::parse(text).ok_or_else(missing)?;
    let found = context.with_query_timeout(context.state.store.usage.find(id)).await?;
    let record = found.filter(|record| context.objects.contains(record.member)).ok_or_else(missing)?;
    let record = UsageView::of(&context).record(record);
    let mut detail = usage_format::json(&record);
    let member = context.state.store.listing.row(RowKind::Member, &record.member.to_string(), context.objects).await?;
    detail["member_removed"] = member.as_ref().is_none_or(|member| member.removed_at.is_some()).into();
    detail["member_name"] = member.map(|member| member.name).into();
    detail["pricing"] = pricing::pricing(&context, &record).await?;
    detail["contents"] = contents::is_readable(&context, id, record.member).await?;
    Ok(ApiResponse::ok(detail))
}

#[cfg(test)]
mod tests {
    use tollgate_core::Timestamp;

    use super::*;

    #[test]
    fn cursor_round_trips() {
        let id = RequestId::from_parts(Timestamp(5_000), [1; 10]);
        assert_eq!(cursor(&id.to_string()).unwrap(), UsageCursor(id));
        for bad in ["", "5000", "req_1", "key_00000000000000000000000000"] {
            assert!(cursor(bad).is_err(), "{bad}");
        }
    }
}
