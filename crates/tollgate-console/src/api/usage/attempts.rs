//! Sums over attempts: the requests sent to each account and their results, including requests that another account answered.

use serde_json::{Value, json};
use tollgate_core::AttemptResult;
use tollgate_store::{
    AttemptFilter, AttemptsBy, AttemptsRow, SummaryBy,
    fields::{FieldShape, Kind, Object},
};

use super::{
    filter::channel_filter,
    summary::{GroupNames, check_range},
};
use crate::{
    api::{
        recorded_rows,
        request_context::RequestContext,
        schema::{COUNT, MODEL_NAME, NAME, TEXT, USD, both, read},
    },
    api_error::ApiError,
    response::ApiResponse,
};

/// Longest range of sums by hours, in days.
const MAX_HOURLY_DAYS: i64 = 31;
const RESULTS: &[&str] = &[
    AttemptResult::Answered.as_str(),
    AttemptResult::NotSent.as_str(),
    AttemptResult::Refused.as_str(),
    AttemptResult::Failed.as_str(),
    AttemptResult::Broke.as_str(),
    AttemptResult::Cancelled.as_str(),
];
const GROUPINGS: [(&str, AttemptsBy); 8] = [
    ("nothing", AttemptsBy::Nothing),
    ("day", AttemptsBy::Day),
    ("hour", AttemptsBy::Hour),
    ("channel", AttemptsBy::Channel),
    ("account", AttemptsBy::Account),
    ("model", AttemptsBy::Model),
    ("result", AttemptsBy::Result),
    ("error", AttemptsBy::Error),
];
pub(super) static ROW: Object = Object::of(
    "AttemptSums",
    &[
        read("of", TEXT, "Value of the grouping; empty if the attempts have none."),
        read("name", TEXT, "Name of the channel or account; null for other groupings.").or_null(),
        read("and", TEXT, "Value of the second grouping; empty if there is none."),
        read("and_name", TEXT, "Its name, as `name`.").or_null(),
        read("attempts", COUNT, "Number of attempts."),
        read("answered", COUNT, "Attempts that answered."),
        read("failed", COUNT, "Attempts that the account failed."),
        read(
            "excused",
            COUNT,
            "Attempts that did not answer through no fault of the account: the caller left, the other of two attempts at once answered, \
             or the provider rejected the request (E52).",
        ),
        read("tokens_input", COUNT, "Input tokens of every kind."),
        read("tokens_output", COUNT, "Output and thinking tokens."),
        read("cost", USD, "Cost of the attempts, in USD."),
    ],
);
pub(super) const PARAMETERS: [FieldShape; 9] = [
    both(
        "by",
        Kind::Text { min: 1, max: 100 },
        "One or two groupings, separated by a comma: nothing, day, hour, channel, account, model, result, error; default account. \
         `hour` requires `since` and a range of at most 31 days. Times are UTC.",
    ),
    both("channel", NAME, "Channel, by name or id."),
    both("account", Kind::Text { min: 1, max: 201 }, "Account, as `channel/account` or by id."),
    both("model", MODEL_NAME, "Requested model name; one that a group offers."),
    both("result", Kind::Word(RESULTS), "How the attempts ended."),
    both("since", Kind::Time, "Requests that arrived in the hour of this time or later."),
    both("until", Kind::Time, "Requests that arrived before the end of the hour in which this time lies."),
    both(
        "sort",
        Kind::Word(&["of", "attempts", "failed", "cost"]),
        "Order of the rows: by their groups (default), else the largest first.",
    ),
    both("rows", Kind::Integer { min: 1, max: 10_000 }, "Maximum number of rows; default 10000."),
];

pub(super) async fn attempts(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let query = &context.query;
    let by = groupings(query.text("by").unwrap_or("account"))?;
    let filter = AttemptFilter {
        channel: channel_filter(&context, "channel").await?,
        account: recorded_rows::account(&context, "account").await?,
        model: query.text("model").map(str::to_owned),
        result: query.0.get("result").and_then(|word| serde_json::from_value(word.clone()).ok()),
        since: query.time("since"),
        until: query.time("until"),
    };
    if by.0 == AttemptsBy::Hour || by.1 == AttemptsBy::Hour {
        check_range((filter.since, filter.until), context.now(), MAX_HOURLY_DAYS)?;
    }
    let permit = context.acquire_heavy_permit().await?;
    let mut rows = context.with_query_timeout(context.state.store.usage.attempts(&filter, by)).await?;
    drop(permit);
    match query.text("sort") {
        Some("attempts") => rows.sort_by_key(|row| std::cmp::Reverse(row.attempts)),
        Some("failed") => rows.sort_by_key(|row| std::cmp::Reverse(row.failed())),
        Some("cost") => rows.sort_by_key(|row| std::cmp::Reverse(row.cost.0)),
        Some(_) | None => {}
    }
    rows.truncate(query.whole("rows").and_then(|rows| usize::try_from(rows).ok()).unwrap_or(usize::MAX));
    let first = GroupNames::find(&context, named(by.0), rows.iter().map(|row| row.of.as_str())).await?;
    let second = GroupNames::find(&context, named(by.1), rows.iter().map(|row| row.and.as_str())).await?;
    let show = |row: &AttemptsRow| {
        let AttemptsRow { of, and, attempts, answered, excused, tokens_input, tokens_output, cost } = row;
        json!({
            "of": of, "name": first.of(of).0, "and": and, "and_name": second.of(and).0, "attempts": attempts, "answered": answered,
            "failed": row.failed(), "excused": excused, "tokens_input": tokens_input, "tokens_output": tokens_output,
            "cost": cost.to_usd_string(),
        })
    };
    let items: Vec<Value> = rows.iter().map(show).collect();
    Ok(ApiResponse::ok(json!({"items": items, "next": null})))
}

/// Parses `by`.
fn groupings(text: &str) -> Result<(AttemptsBy, AttemptsBy), ApiError> {
    let of = |word: &str| {
        let found = GROUPINGS.iter().find(|(known, _)| *known == word).map(|(_, by)| *by);
        found.ok_or_else(|| ApiError::value("by", format!("expected one or two of {}", GROUPINGS.map(|(word, _)| word).join(", "))))
    };
    match *text.split(',').map(str::trim).collect::<Vec<_>>() {
        [first] => Ok((of(first)?, AttemptsBy::Nothing)),
        [first, second] if first != second => Ok((of(first)?, of(second)?)),
        _ => Err(ApiError::value("by", "expected one grouping, or two different ones separated by a comma")),
    }
}

/// The grouping of records that has the same group names.
const fn named(by: AttemptsBy) -> SummaryBy {
    match by {
        AttemptsBy::Channel => SummaryBy::Channel,
        AttemptsBy::Account => SummaryBy::Account,
        AttemptsBy::Nothing | AttemptsBy::Day | AttemptsBy::Hour | AttemptsBy::Model | AttemptsBy::Result | AttemptsBy::Error => {
            SummaryBy::Nothing
        }
    }
}
