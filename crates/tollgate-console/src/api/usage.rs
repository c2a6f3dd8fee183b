//! The usage log: pages, one record, sums, and everything as lines.

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;
use tollgate_core::{GroupId, MemberId, Outcome, RequestId, Timestamp, UsageRecord};
use tollgate_store::{AdminScope, Page, RowKind, SortOrder, StoreError, SummaryBy, SummaryRow, UsageCursor, UsageFilter};

use super::{
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, RequestSchema, ResponseSchema, Route, handler},
    rows,
    schema::{COUNT, FieldSchema, MODEL_NAME, NAME, NANO_USD, ObjectSchema, TEXT, USD, ValueSchema, both, read},
};
use crate::{api_error::ApiError, response::ApiResponse, usage_format};

static TOKENS: ObjectSchema = ObjectSchema {
    name: "Tokens",
    fields: &[
        read("input", COUNT, "Input tokens that are of no other kind."),
        read("output", COUNT, "Output tokens that are of no other kind."),
        read("cache_read", COUNT, "Read from the provider's cache."),
        read("cache_write", COUNT, "Written to the provider's cache."),
        read("thinking", COUNT, "Thinking."),
        read("image", COUNT, "Of images."),
        read("audio", COUNT, "Of audio."),
        read("source", ValueSchema::Enum(&["none", "provider", "counted", "estimated"]), "Where the counts come from."),
    ],
};
static ATTEMPT: ObjectSchema = ObjectSchema {
    name: "Attempt",
    fields: &[
        read("channel", TEXT, "Channel."),
        read("account", TEXT, "Account."),
        read("protocol", TEXT, "Spoken upstream."),
        read("upstream_model", TEXT, "Name sent upstream."),
        read("at", ValueSchema::Time, "When it began."),
        read("status", COUNT, "Status that came back.").or_null(),
        read("result", TEXT, "What became of it."),
        read("error", TEXT, "What went wrong.").or_null(),
        read("tokens", ValueSchema::Object(&TOKENS), "Tokens."),
        read("cost_nano_usd", NANO_USD, "What the provider charges.").or_null(),
        read("cost_usd", USD, "The same in USD.").or_null(),
        read("first_byte_us", COUNT, "Microseconds to the first byte.").or_null(),
        read("duration_us", COUNT, "Microseconds in all."),
        read("upstream_request_id", TEXT, "The provider's id.").or_null(),
        read("beside", ValueSchema::Boolean, "Whether it ran beside the attempt that went on, and lost."),
    ],
};
static TRACE: ObjectSchema = ObjectSchema {
    name: "TraceEntry",
    fields: &[
        read("channel", TEXT, "Channel."),
        read("account", TEXT, "Account.").or_null(),
        read("code", TEXT, "planned, or why not."),
        read("detail", TEXT, "More about it.").or_null(),
    ],
};
static RECORD: ObjectSchema = ObjectSchema {
    name: "UsageRecord",
    fields: &[
        read("id", ValueSchema::Id("req_"), "The request's id."),
        read("at", ValueSchema::Time, "When it arrived."),
        read("outcome", ValueSchema::Enum(OUTCOMES), "How it ended."),
        read("reason", TEXT, "Error id or exclusion.").or_null(),
        read("detail", TEXT, "What the caller was told.").or_null(),
        read("status", COUNT, "HTTP status."),
        read("key", ValueSchema::Id("key_"), "Key."),
        read("key_name", TEXT, "Its name."),
        read("member", ValueSchema::Id("mbr_"), "Member."),
        read("group", TEXT, "Group that served it.").or_null(),
        read("protocol_in", TEXT, "The caller's protocol."),
        read("protocol_out", TEXT, "The upstream's.").or_null(),
        read("method", TEXT, "What was asked for."),
        read("model", TEXT, "Model as asked.").or_null(),
        read("stream", ValueSchema::Boolean, "Whether it was streamed."),
        read("tokens", ValueSchema::Object(&TOKENS), "Tokens."),
        read("sale_nano_usd", NANO_USD, "What the caller pays; null: not priced.").or_null(),
        read("sale_usd", USD, "The same in USD.").or_null(),
        read("cost_nano_usd", NANO_USD, "What providers charge.").or_null(),
        read("cost_usd", USD, "The same in USD.").or_null(),
        read("price_version", COUNT, "Catalog revision of the prices."),
        read("ttft_us", COUNT, "Microseconds to the first content.").or_null(),
        read("duration_us", COUNT, "Microseconds in all."),
        read("address", TEXT, "From where.").or_null(),
        read("client_request_id", TEXT, "The caller's own id.").or_null(),
        read("dropped", ValueSchema::List { of: &TEXT, most: 10_000 }, "What was left out or adjusted."),
        read("trace", ValueSchema::List { of: &ValueSchema::Object(&TRACE), most: 10_000 }, "How accounts were chosen."),
        read("attempts", ValueSchema::List { of: &ValueSchema::Object(&ATTEMPT), most: 100 }, "Every try."),
    ],
};
static SUMMARY: ObjectSchema = ObjectSchema {
    name: "UsageSummary",
    fields: &[
        read("of", TEXT, "What the row is about; empty where the records have nothing there."),
        read("requests", COUNT, "Records."),
        read("completed", COUNT, "Of those, completed."),
        read("tokens_input", COUNT, "Input tokens of every kind."),
        read("tokens_output", COUNT, "Output and thinking tokens."),
        read("sale_nano_usd", NANO_USD, "What callers pay."),
        read("sale_usd", USD, "The same in USD."),
        read("cost_nano_usd", NANO_USD, "What providers charge."),
        read("cost_usd", USD, "The same in USD."),
        read("unpriced", COUNT, "Records without a sale price."),
    ],
};

/// Longest stretch that is summed up by hour: 31 days.
const MAX_HOURLY_RANGE_US: i64 = 31 * 86_400_000_000;
const OUTCOMES: &[&str] = &["completed", "caller_left", "upstream_broke", "refused", "gateway_stopped"];
const KEY: FieldSchema = both("key", NAME, "Of this key, by id, or by name where only one has it.");
const MEMBER: FieldSchema = both("member", NAME, "Of this member, by name or id.");
const GROUP: FieldSchema = both("group", NAME, "Served by this group, by name or id.");
const MODEL: FieldSchema = both("model", MODEL_NAME, "For this model, as asked.");
const OUTCOME: FieldSchema = both("outcome", ValueSchema::Enum(OUTCOMES), "Ended like this.");
const SINCE: FieldSchema = both("since", ValueSchema::Time, "Arrived at or after.");
const UNTIL: FieldSchema = both("until", ValueSchema::Time, "Arrived before.");

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
    route("/admin/v1/usage/{record}", "get_usage", "One usage record, by the request's id."),
    Route {
        query: &[
            both(
                "by",
                ValueSchema::Enum(&["nothing", "day", "hour", "model", "key", "member", "group", "outcome"]),
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
        ..route("/admin/v1/usage/summary", "sum_usage", "Sums over usage records, on one page.")
    },
    Route {
        query: &[
            both("format", ValueSchema::Enum(&["csv", "jsonl"]), "csv where it is left out."),
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
        ..route(
            "/admin/v1/usage/export",
            "export_usage",
            "Every record of the filter, oldest first, as CSV or one JSON object a line.",
        )
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

/// `<microseconds>-<id>`: where a page ends.
fn cursor(text: &str) -> Result<UsageCursor, ApiError> {
    let read =
        text.split_once('-').and_then(|(at, id)| Some(UsageCursor { at: Timestamp(at.parse().ok()?), id: RequestId::parse(id)? }));
    read.ok_or_else(|| ApiError::value("after", "expected the 'next' of a page"))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let after = context.query.text("after").map(cursor).transpose()?;
    let filter = UsageFilter { after, limit: context.limit(), order: SortOrder::Newest, ..filter(&context).await? };
    let _turn = context.acquire_heavy_permit().await?;
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
        few_hours(&filter, context.now())?;
    }
    let _turn = context.acquire_heavy_permit().await?;
    let rows = context.with_query_timeout(context.state.store.usage.summary(&filter, by)).await?;
    let show = |row: &SummaryRow| {
        let SummaryRow { of, requests, completed, tokens_input, tokens_output, sale, cost, unpriced } = row;
        json!({
            "of": of, "requests": requests, "completed": completed, "tokens_input": tokens_input, "tokens_output": tokens_output,
            "sale_nano_usd": sale, "sale_usd": sale.to_usd_string(), "cost_nano_usd": cost, "cost_usd": cost.to_usd_string(),
            "unpriced": unpriced,
        })
    };
    Ok(ApiResponse::ok(json!({"items": rows.iter().map(show).collect::<Vec<_>>(), "next": null})))
}

/// A chart of years by the hour is no chart.
fn few_hours(filter: &UsageFilter, now: Timestamp) -> Result<(), ApiError> {
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

/// How far an export has come.
struct Export {
    context: RequestContext,
    filter: UsageFilter,
    csv: bool,
    begun: bool,
    ended: bool,
}

async fn export(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let csv = context.query.text("format") != Some("jsonl");
    let filter = UsageFilter { order: SortOrder::Oldest, limit: 1_000, ..filter(&context).await? };
    let lines = stream::try_unfold(Export { context, filter, csv, begun: false, ended: false }, |mut export| async move {
        if export.ended {
            return Ok::<_, StoreError>(None);
        }
        let page = export.page().await?;
        export.filter.after = page.next;
        export.ended = page.next.is_none();
        let lines = if export.csv { csv_lines(&page.items, !export.begun) } else { json_lines(&page.items) };
        export.begun = true;
        Ok(Some((Bytes::from(lines), export)))
    });
    let content_type = if csv { "text/csv; charset=utf-8" } else { "application/jsonl; charset=utf-8" };
    let name = if csv { "usage.csv" } else { "usage.jsonl" };
    let answer = ApiResponse::streamed(content_type, Body::from_stream(lines));
    Ok(answer.header("content-disposition", &format!("attachment; filename=\"{name}\"")))
}

impl Export {
    /// The next page. A turn is taken for each, so that a long export does not keep others waiting for its end.
    async fn page(&self) -> Result<Page<UsageRecord>, StoreError> {
        let turn = self.context.state.heavy_permits.acquire().await;
        let page = self.context.state.store.usage.page(&self.filter).await;
        drop(turn);
        page.inspect_err(|error| tracing::warn!(%error, "an export broke off"))
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

fn csv_lines(records: &[UsageRecord], with_head: bool) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let head = with_head.then(|| usage_format::COLUMNS.map(str::to_owned).to_vec());
    for row in head.into_iter().chain(records.iter().map(usage_format::row)) {
        writer.write_record(&row).expect("a vector takes every row");
    }
    writer.into_inner().expect("a vector takes everything")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn outcomes_are_the_words_of_the_records() {
        for word in OUTCOMES {
            assert_eq!(serde_json::from_value::<Outcome>(Value::from(*word)).unwrap().as_str(), *word);
        }
    }

    #[test]
    fn sums_by_hour_need_a_beginning_and_an_end_within_31_days() {
        let now = Timestamp(40 * 86_400_000_000);
        let of = |since: Option<i64>, until: Option<i64>| {
            let at = |days: i64| Timestamp(days * 86_400_000_000);
            let filter = UsageFilter { since: since.map(at), until: until.map(at), ..UsageFilter::default() };
            few_hours(&filter, now).is_ok()
        };
        assert!(of(Some(9), None) && of(Some(0), Some(31)) && of(Some(5), Some(5)));
        assert!(!of(None, None) && !of(None, Some(3)) && !of(Some(8), None) && !of(Some(0), Some(32)));
    }

    #[test]
    fn a_cursor_is_read_as_it_is_written() {
        let id = RequestId::from_parts(Timestamp(5_000), [1; 10]);
        assert_eq!(cursor(&format!("5000-{id}")).unwrap(), UsageCursor { at: Timestamp(5_000), id });
        for bad in ["", "5000", "x-req_1", "5000-key_00000000000000000000000000"] {
            assert!(cursor(bad).is_err(), "{bad}");
        }
    }
}
