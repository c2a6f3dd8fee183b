//! Sums over usage records by one or two groupings, with the names of rows, and those of the period before.

mod names;
pub(crate) mod previous;

use serde_json::{Map, Value, json};
use tollgate_core::{NanoUsd, TagName, Timestamp};
use tollgate_store::{
    Grouping, Percentiles, Summary, SummaryBy, SummaryFigure, SummaryRow,
    fields::{FieldShape, Kind, Object},
};

use super::{filter::filter, view::UsageView};
use crate::{
    api::{
        member_ids::{self, MEMBERS},
        request_context::RequestContext,
        schema::{COUNT, TEXT, USD, both, read},
    },
    api_error::ApiError,
    response::ApiResponse,
};
pub(super) use names::GroupNames;

static PERCENTILES: Object = Object::of(
    "Percentiles",
    &[
        read("p50_us", COUNT, "Half of the requests took at most so many microseconds; at most an eighth too high."),
        read("p95_us", COUNT, "95 % of the requests did."),
        read("p99_us", COUNT, "99 % of the requests did."),
    ],
);

/// The figures of sums.
const FIGURES: [FieldShape; 20] = [
    read("requests", COUNT, "Number of records."),
    read("completed", COUNT, "Completed requests."),
    read("left", COUNT, "Requests that ended without an answer and without a fault: the caller left, or the gateway stopped."),
    read("failed", COUNT, "All others: requests that were refused, or that the upstream failed."),
    read("tokens_input", COUNT, "Input tokens of every kind."),
    read("tokens_output", COUNT, "Output and thinking tokens."),
    read("tokens_cache_read", COUNT, "Of the input tokens, those read from the provider's cache."),
    read("tokens_cache_write", COUNT, "Of the input tokens, those written to the provider's cache."),
    read("tokens_cache_write_1h", COUNT, "Of `tokens_cache_write`, those kept for an hour."),
    read("tokens_thinking", COUNT, "Of the output tokens, thinking tokens."),
    read("tokens_image", COUNT, "Of the input tokens, image tokens."),
    read("tokens_audio", COUNT, "Of the input tokens, audio tokens."),
    read("sale", USD, "Sum of sale amounts, in USD."),
    read("cost", USD, "Cost of all attempts, in USD; null for members.").or_null(),
    read("margin", USD, "`sale` minus `cost`, in USD; null for members.").or_null(),
    read("unpriced", COUNT, "Records without a sale amount."),
    read(
        "ttft",
        Kind::Object(&PERCENTILES),
        "Times to the first content; null without any.",
    )
    .or_null(),
    read("duration", Kind::Object(&PERCENTILES), "Times to the end.").or_null(),
    read("overhead", Kind::Object(&PERCENTILES), "Times in which no attempt was in progress.").or_null(),
    read(
        "sampled",
        COUNT,
        "Of how many records the percentiles are, for sums of or by keys, members, accounts and tags and for those that are read from \
         records: those of the row among the latest 1,000 of all rows. Null: of all.",
    )
    .or_null(),
];
static PREVIOUS: Object = Object::of("UsageSums", &FIGURES);
pub(super) static ROW: Object = Object::of(
    "UsageSummary",
    &crate::api::schema::join::<{ FIGURES.len() + 7 }>(&[
        &[
            read("of", TEXT, "Value of the grouping; empty if the records have none."),
            read("name", TEXT, "Name of the key, member, group, channel or account; null for other groupings.").or_null(),
            read("member", TEXT, "Member of the key; null for other groupings.").or_null(),
            read("and", TEXT, "Value of the second grouping; empty if there is none.").or_null(),
            read("and_name", TEXT, "Its name, as `name`.").or_null(),
            read("and_member", TEXT, "Its member, as `member`.").or_null(),
        ],
        &FIGURES,
        &[read("previous", Kind::Object(&PREVIOUS), "Sums of the period before, with `previous`.").or_null()],
    ]),
);

/// Longest ranges of summaries by hour and by five minutes, in days.
const MAX_HOURLY_DAYS: i64 = 31;
const MAX_FIVE_MINUTES_DAYS: i64 = 5;
const DAY_US: i64 = 86_400_000_000;
/// The groupings and their words.
const GROUPINGS: [(&str, SummaryBy); 14] = [
    ("nothing", SummaryBy::Nothing),
    ("month", SummaryBy::Month),
    ("day", SummaryBy::Day),
    ("hour", SummaryBy::Hour),
    ("five_minutes", SummaryBy::FiveMinutes),
    ("model", SummaryBy::Model),
    ("key", SummaryBy::Key),
    ("member", SummaryBy::Member),
    ("group", SummaryBy::Group),
    ("channel", SummaryBy::Channel),
    ("account", SummaryBy::Account),
    ("protocol", SummaryBy::Protocol),
    ("outcome", SummaryBy::Outcome),
    ("error", SummaryBy::Reason),
];
pub(super) const PARAMETERS: [FieldShape; 6] = [
    both(
        "by",
        Kind::Text { min: 1, max: 100 },
        "One or two groupings, separated by a comma: nothing, month, day, hour, five_minutes, model, key, member, group, channel, \
         account, protocol, outcome, error, or tag:NAME with the name of a tag; default day. `hour` requires `since` and a range of at \
         most 31 days, `five_minutes` of at most 5 days. Times are UTC.",
    ),
    both("previous", Kind::Flag, "Also the sums of the previous period of the same length, beside each row."),
    both(
        "sort",
        Kind::Word(&["of", "requests", "errors", "tokens", "sale", "cost"]),
        "Order of the rows: by their groups (default), else the largest first.",
    ),
    both("rows", Kind::Integer { min: 1, max: 10_000 }, "Maximum number of rows; default 10000."),
    both(
        "percentiles",
        Kind::Flag,
        "Whether rows have `ttft`, `duration` and `overhead`; default true. Without, sums take half the time.",
    ),
    MEMBERS,
];

pub(super) async fn summary(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let view = UsageView::of(&context);
    let by = grouping(context.query.text("by").unwrap_or("day"), view)?;
    let sorted_by = context.query.text("sort").unwrap_or("of");
    view.allow_order(sorted_by)?;
    let without_times = context.query.0.get("percentiles").and_then(Value::as_bool) == Some(false);
    let by = Grouping { largest: figure(sorted_by), without_times, ..by };
    let mut filter = filter(&context).await?;
    filter.members = member_ids::read(&context)?.into_iter().collect();
    for (grouping, days) in [(SummaryBy::Hour, MAX_HOURLY_DAYS), (SummaryBy::FiveMinutes, MAX_FIVE_MINUTES_DAYS)] {
        if by.first == grouping || by.second == grouping {
            check_range((filter.since, filter.until), context.now(), days)?;
        }
    }
    let has_previous = context.query.0.get("previous").and_then(Value::as_bool) == Some(true);
    let before = if has_previous { Some(previous::period(&filter, context.now())?) } else { None };
    let most = context.query.whole("rows").and_then(|rows| u32::try_from(rows).ok());
    // A group that is large in the period before may be small in this one, so no group may be left out.
    let by = Grouping { wanted: most.filter(|_| sorted_by != "of" && !has_previous), ..by };
    let permit = context.acquire_heavy_permit().await?;
    let Summary { rows, groups } = context.with_query_timeout(context.state.store.usage.counted_summary(&filter, by)).await?;
    let earlier = match &before {
        Some(period) => context.with_query_timeout(context.state.store.usage.summary(&period.filter, by)).await?,
        None => Vec::new(),
    };
    drop(permit);
    let mut rows = previous::side_by_side(rows, earlier, by, before.as_ref());
    if sorted_by != "of" {
        // The rows are in the order of their groups.
        rows.sort_by_key(|(row, _)| std::cmp::Reverse(size(row, by.largest)));
    }
    rows.truncate(most.map_or(usize::MAX, |most| most as usize));
    let first = GroupNames::find(&context, by.first, rows.iter().map(|(row, _)| row.of.as_str())).await?;
    let second = GroupNames::find(&context, by.second, rows.iter().map(|(row, _)| row.and.as_str())).await?;
    let show = |(row, earlier): &(SummaryRow, Option<SummaryRow>)| {
        let ((name, member), (and_name, and_member)) = (first.of(&row.of), second.of(&row.and));
        let mut item = figures(row, view);
        let more = [
            ("of", row.of.as_str().into()),
            ("name", name),
            ("member", member),
            ("and", row.and.as_str().into()),
            ("and_name", and_name),
            ("and_member", and_member),
            ("previous", earlier.as_ref().map(|earlier| figures(earlier, view)).map_or(Value::Null, Value::Object)),
        ];
        item.extend(more.map(|(field, value)| (field.to_owned(), value)));
        Value::Object(item)
    };
    let items: Vec<Value> = rows.iter().map(show).collect();
    Ok(ApiResponse::ok(json!({"items": items, "next": null, "groups": groups})))
}

/// Parses `by`.
fn grouping(text: &str, view: UsageView) -> Result<Grouping, ApiError> {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let of = |word: &str| {
        let found = GROUPINGS.iter().find(|(known, _)| *known == word).map(|(_, by)| *by);
        let by = found.or_else(|| tag_grouping(word)).ok_or_else(|| {
            let known: Vec<&str> = GROUPINGS.iter().map(|(word, _)| *word).collect();
            ApiError::value("by", format!("expected one or two of {}, tag:NAME", known.join(", ")))
        })?;
        view.allow_grouping(by, word).map(|()| by)
    };
    match *words {
        [first] => Ok(of(first)?.into()),
        [first, second] if first != second => Ok(Grouping::pair(of(first)?, of(second)?)),
        _ => Err(ApiError::value("by", "expected one grouping, or two different ones separated by a comma")),
    }
}

/// The grouping of `tag:NAME`.
pub(crate) fn tag_grouping(word: &str) -> Option<SummaryBy> {
    TagName::parse(word.strip_prefix("tag:")?).map(SummaryBy::Tag)
}

/// Bounds the range of a summary by hour or by five minutes.
pub(super) fn check_range(
    (since, until): (Option<Timestamp>, Option<Timestamp>),
    now: Timestamp,
    days: i64,
) -> Result<(), ApiError> {
    let Some(since) = since else {
        let message = format!(
            "Missing required parameter: 'since'. Sums by hour or five minutes cover at most {days} days; send where they begin."
        );
        return Err(ApiError::invalid("missing_required_parameter", "since", message));
    };
    let until = until.unwrap_or(now);
    if until.0.saturating_sub(since.0) > days * DAY_US {
        let message = format!("such sums are over at most {days} days; take a later 'since', set 'until', or sum by longer times");
        return Err(ApiError::value("since", message));
    }
    Ok(())
}

/// The figure of a word of `sort`.
fn figure(word: &str) -> SummaryFigure {
    match word {
        "errors" => SummaryFigure::Errors,
        "tokens" => SummaryFigure::Tokens,
        "sale" => SummaryFigure::Sale,
        "cost" => SummaryFigure::Cost,
        _ => SummaryFigure::Requests,
    }
}

fn size(row: &SummaryRow, figure: SummaryFigure) -> u64 {
    match figure {
        SummaryFigure::Requests => row.requests,
        SummaryFigure::Errors => row.failed(),
        SummaryFigure::Tokens => row.tokens_input.saturating_add(row.tokens_output),
        SummaryFigure::Sale => row.sale.0.max(0).unsigned_abs(),
        SummaryFigure::Cost => row.cost.0.max(0).unsigned_abs(),
    }
}

fn figures(row: &SummaryRow, view: UsageView) -> Map<String, Value> {
    let usd = |amount: NanoUsd| Value::from(amount.to_usd_string());
    let figures = json!({
        "requests": row.requests, "completed": row.completed, "left": row.left, "failed": row.failed(),
        "tokens_input": row.tokens_input, "tokens_output": row.tokens_output,
        "tokens_cache_read": row.tokens_cache_read, "tokens_cache_write": row.tokens_cache_write,
        "tokens_cache_write_1h": row.tokens_cache_write_1h, "tokens_thinking": row.tokens_thinking,
        "tokens_image": row.tokens_image, "tokens_audio": row.tokens_audio,
        "sale": usd(row.sale), "cost": view.cost(row.cost), "margin": view.cost(NanoUsd(row.sale.0.saturating_sub(row.cost.0))),
        "unpriced": row.unpriced,
        "ttft": row.ttft.map(percentiles), "duration": row.duration.map(percentiles), "overhead": row.overhead.map(percentiles),
        "sampled": (row.sampled > 0).then_some(row.sampled),
    });
    match figures {
        Value::Object(figures) => figures,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

fn percentiles(times: Percentiles) -> Value {
    json!({"p50_us": times.p50_us, "p95_us": times.p95_us, "p99_us": times.p99_us})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_by_short_times_requires_a_range() {
        let now = Timestamp(40 * 86_400_000_000);
        let of = |since: Option<i64>, until: Option<i64>| {
            let at = |days: i64| Timestamp(days * 86_400_000_000);
            check_range((since.map(at), until.map(at)), now, MAX_HOURLY_DAYS).is_ok()
        };
        assert!(of(Some(9), None) && of(Some(0), Some(31)) && of(Some(5), Some(5)));
        assert!(!of(None, None) && !of(None, Some(3)) && !of(Some(8), None) && !of(Some(0), Some(32)));
    }

    #[test]
    fn grouping_is_one_or_two_distinct_dimensions() {
        assert_eq!(grouping("model, day", UsageView::Member).unwrap(), Grouping::pair(SummaryBy::Model, SummaryBy::Day));
        assert_eq!(grouping("error", UsageView::Member).unwrap(), SummaryBy::Reason.into());
        let project = TagName::parse("project").unwrap();
        let by_project = Grouping::pair(SummaryBy::Tag(project), SummaryBy::Day);
        assert_eq!(grouping("tag:project,day", UsageView::Member).unwrap(), by_project);
        for wrong in ["", "models", "day,day", "day,model,key", "day,", "tag:", "tag:a b", "tag:project,tag:project"] {
            assert!(grouping(wrong, UsageView::Operator).is_err(), "{wrong}");
        }
        assert!(grouping("day,channel", UsageView::Operator).is_ok() && grouping("day,channel", UsageView::Member).is_err());
    }

    #[test]
    fn row_size_is_the_requested_figure() {
        let row =
            SummaryRow { requests: 9, completed: 7, tokens_input: 3, sale: NanoUsd(5), cost: NanoUsd(-1), ..SummaryRow::default() };
        let sizes = ["requests", "errors", "tokens", "sale", "cost"].map(|word| size(&row, figure(word)));
        assert_eq!(sizes, [9, 2, 3, 5, 0]);
    }
}
