//! The usage log: list, get, summary and export.

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;
use tollgate_core::{GroupId, MemberId, Outcome, RequestId, Timestamp, UsageRecord};
use tollgate_store::{
    AdminScope, Page, RowKind, SortOrder, StoreError, SummaryBy, SummaryRow, UsageCursor, UsageFilter,
    fields::{FieldShape, Kind, Object},
};

use super::{
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, RequestSchema, ResponseSchema, Route, handler},
    rows,
    schema::{COUNT, MODEL_NAME, NAME, TEXT, USD, both, read},
};
use crate::{api_error::ApiError, response::ApiResponse, usage_format};

static TOKENS: Object = Object::of(
    "Tokens",
    &[
        read("input", COUNT, "Input tokens that are of no other kind."),
        read("output", COUNT, "Output tokens that are of no other kind."),
        read("cache_read", COUNT, "Read from the provider's cache."),
        read("cache_write", COUNT, "Written to the provider's cache."),
        read("thinking", COUNT, "Thinking."),
        read("image", COUNT, "Of images."),
        read("audio", COUNT, "Of audio."),
        read("source", Kind::Word(&["none", "provider", "counted", "estimated"]), "Where the counts come from."),
    ],
);
static ATTEMPT: Object = Object::of(
    "Attempt",
    &[
        read("channel", TEXT, "Channel."),
        read("account", TEXT, "Account."),
        read("protocol", TEXT, "Spoken upstream."),
        read("upstream_model", TEXT, "Name sent upstream."),
        read("at", Kind::Time, "When it began."),
        read("status", COUNT, "Status that came back.").or_null(),
        read("result", TEXT, "What became of it."),
        read("error", TEXT, "What went wrong.").or_null(),
        read("tokens", Kind::Object(&TOKENS), "Tokens."),
        read("cost", USD, "What the provider charges, in USD.").or_null(),
        read("first_byte_us", COUNT, "Microseconds to the first byte.").or_null(),
        read("duration_us", COUNT, "Microseconds in all."),
        read("upstream_request_id", TEXT, "The provider's id.").or_null(),
        read("beside", Kind::Flag, "Whether it ran beside the attempt that went on, and lost."),
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
        read("id", Kind::Id("req_"), "The request's id."),
        read("at", Kind::Time, "When it arrived."),
        read("outcome", Kind::Word(OUTCOMES), "How it ended."),
        read("reason", TEXT, "Error id or exclusion.").or_null(),
        read("detail", TEXT, "What the caller was told.").or_null(),
        read("status", COUNT, "HTTP status."),
        read("key", Kind::Id("key_"), "Key."),
        read("key_name", TEXT, "Its name."),
        read("member", Kind::Id("mbr_"), "Member."),
        read("group", TEXT, "Group that served it.").or_null(),
        read("protocol_in", TEXT, "The caller's protocol."),
        read("protocol_out", TEXT, "The upstream's.").or_null(),
        read("method", TEXT, "What was asked for."),
        read("model", TEXT, "Model as asked.").or_null(),
        read("stream", Kind::Flag, "Whether it was streamed."),
        read("tokens", Kind::Object(&TOKENS), "Tokens."),
        read("sale", USD, "What the caller pays, in USD; null: not priced.").or_null(),
        read("cost", USD, "What providers charge, in USD.").or_null(),
        read("price_version", COUNT, "Catalog revision of the prices."),
        read("ttft_us", COUNT, "Microseconds to the first content.").or_null(),
        read("duration_us", COUNT, "Microseconds in all."),
        read("address", TEXT, "From where.").or_null(),
        read("client_request_id", TEXT, "The caller's own id.").or_null(),
        read("dropped", Kind::List { of: &TEXT, most: 10_000 }, "What was left out or adjusted."),
        read("trace", Kind::List { of: &Kind::Object(&TRACE), most: 10_000 }, "How accounts were chosen."),
        read("attempts", Kind::List { of: &Kind::Object(&ATTEMPT), most: 100 }, "Every try."),
    ],
);
static SUMMARY: Object = Object::of(
    "UsageSummary",
    &[
        read("of", TEXT, "What the row is about; empty where the records have nothing there."),
        read("requests", COUNT, "Records."),
        read("completed", COUNT, "Of those, completed."),
        read("tokens_input", COUNT, "Input tokens of every kind."),
        read("tokens_output", COUNT, "Output and thinking tokens."),
        read("sale", USD, "What callers pay, in USD."),
        read("cost", USD, "What providers charge, in USD."),
        read("unpriced", COUNT, "Records without a sale price."),
    ],
);

/// Longest range of a summary by hour: 31 days.
const MAX_HOURLY_RANGE_US: i64 = 31 * 86_400_000_000;
const OUTCOMES: &[&str] = &["completed", "caller_left", "upstream_broke", "refused", "gateway_stopped"];
const KEY: FieldShape = both("key", NAME, "Of this key, by id, or by name where only one has it.");
const MEMBER: FieldShape = both("member", NAME, "Of this member, by name or id.");
const GROUP: FieldShape = both("group", NAME, "Served by this group, by name or id.");
const MODEL: FieldShape = both("model", MODEL_NAME, "For this model, as asked.");
const OUTCOME: FieldShape = both("outcome", Kind::Word(OUTCOMES), "Ended like this.");
const SINCE: FieldShape = both("since", Kind::Time, "Arrived at or after.");
const UNTIL: FieldShape = both("until", Kind::Time, "Arrived before.");

const fn route(path: &'static str, id: &'static str, doc: &'static str) -> Route {
    Route {
        method: Method::Get,
        path,
        resource: "usage",
        needs: AdminScope::Operator,
        id,
        doc,
        query: &[],
        request: RequestSchema::Empty,
        response: ResponseSchema::Object(&RECORD),
        handler: handler!(one),
    }
}

pub(super) static ROUTES: &[Route] = &[
    Route {
        query: &[LIMIT, AFTER, KEY, MEMBER, GROUP, MODEL, OUTCOME, SINCE, UNTIL],
        response: ResponseSchema::Page(&RECORD),
        handler: handler!(list),
        ..route("/admin/v1/usage", "list_usage", "Usage records, newest first.")
    },
    route("/admin/v1/usage/{record}", "get_usage", "One usage record, by request id."),
    Route {
        query: &[
            both(
                "by",
                Kind::Word(&["nothing", "day", "hour", "model", "key", "member", "group", "outcome"]),
                "One row each; else by day. `hour` needs `since` and takes at most 31 days.",
            ),
            KEY,
            MEMBER,
            GROUP,
            MODEL,
            OUTCOME,
            SINCE,
            UNTIL,
        ],
        response: ResponseSchema::Page(&SUMMARY),
        handler: handler!(summary),
        ..route("/admin/v1/usage/summary", "sum_usage", "Sums over usage records, grouped, on one page.")
    },
    Route {
        query: &[
            both("format", Kind::Word(&["csv", "jsonl"]), "csv where it is left out."),
            KEY,
            MEMBER,
            GROUP,
            MODEL,
            OUTCOME,
            SINCE,
            UNTIL,
        ],
        response: ResponseSchema::TextLines,
        handler: handler!(export),
        ..route("/admin/v1/usage/export", "export_usage", "All matching usage records, oldest first, as CSV or JSON lines.")
    },
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

/// Parses a page cursor: `<microseconds>-<request id>`.
fn cursor(text: &str) -> Result<UsageCursor, ApiError> {
    let read =
        text.split_once('-').and_then(|(at, id)| Some(UsageCursor { at: Timestamp(at.parse().ok()?), id: RequestId::parse(id)? }));
    read.ok_or_else(|| ApiError::value("after", "expected the 'next' of a page"))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let after = context.query.text("after").map(cursor).transpose()?;
    let filter = UsageFilter { after, limit: context.limit(), order: SortOrder::Newest, ..filter(&context).await? };
    let _permit = context.acquire_heavy_permit().await?;
    let page = context.with_query_timeout(context.state.store.usage.page(&filter)).await?;
    let next = page.next.map(|UsageCursor { at, id }| format!("{}-{id}", at.0));
    Ok(ApiResponse::ok(json!({"items": page.items.iter().map(usage_format::json).collect::<Vec<_>>(), "next": next})))
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let text = context.path_param("record");
    let missing = || ApiError::not_found("usage record", text);
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
    let show = |row: &SummaryRow| {
        let SummaryRow { of, requests, completed, tokens_input, tokens_output, sale, cost, unpriced } = row;
        json!({
            "of": of, "requests": requests, "completed": completed, "tokens_input": tokens_input, "tokens_output": tokens_output,
            "sale": sale.to_usd_string(), "cost": cost.to_usd_string(), "unpriced": unpriced,
        })
    };
    Ok(ApiResponse::ok(json!({"items": rows.iter().map(show).collect::<Vec<_>>(), "next": null})))
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

/// State of a running export.
struct Export {
    context: RequestContext,
    filter: UsageFilter,
    csv: bool,
    started: bool,
    finished: bool,
}

async fn export(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let csv = context.query.text("format") != Some("jsonl");
    let filter = UsageFilter { order: SortOrder::Oldest, limit: 1_000, ..filter(&context).await? };
    let lines = stream::try_unfold(Export { context, filter, csv, started: false, finished: false }, |mut export| async move {
        if export.finished {
            return Ok::<_, StoreError>(None);
        }
        let page = export.page().await?;
        export.filter.after = page.next;
        export.finished = page.next.is_none();
        let lines = if export.csv { csv_lines(&page.items, !export.started) } else { json_lines(&page.items) };
        export.started = true;
        Ok(Some((Bytes::from(lines), export)))
    });
    let content_type = if csv { "text/csv; charset=utf-8" } else { "application/jsonl; charset=utf-8" };
    let name = if csv { "usage.csv" } else { "usage.jsonl" };
    let answer = ApiResponse::streamed(content_type, Body::from_stream(lines));
    Ok(answer.header("content-disposition", &format!("attachment; filename=\"{name}\"")))
}

impl Export {
    /// Reads the next page. Each page acquires its own permit, so that a long export does not block other requests.
    async fn page(&self) -> Result<Page<UsageRecord>, StoreError> {
        let permit = self.context.state.heavy_permits.acquire().await;
        let page = self.context.state.store.usage.page(&self.filter).await;
        drop(permit);
        page.inspect_err(|error| tracing::warn!(%error, "usage export failed"))
    }
}

fn json_lines(records: &[UsageRecord]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        out.extend_from_slice(usage_format::json(record).to_string().as_bytes());
        out.push(b'\n');
    }
    out
}

fn csv_lines(records: &[UsageRecord], with_header: bool) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = with_header.then(|| usage_format::COLUMNS.map(str::to_owned).to_vec());
    for row in header.into_iter().chain(records.iter().map(usage_format::row)) {
        writer.write_record(&row).expect("writing to a Vec cannot fail");
    }
    writer.into_inner().expect("writing to a Vec cannot fail")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

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
        assert_eq!(cursor(&format!("5000-{id}")).unwrap(), UsageCursor { at: Timestamp(5_000), id });
        for bad in ["", "5000", "x-req_1", "5000-key_00000000000000000000000000"] {
            assert!(cursor(bad).is_err(), "{bad}");
        }
    }
}
