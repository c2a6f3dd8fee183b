//! Requests over a range of time in equal buckets, by outcome, from the sums.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate_core::{NanoUsd, Timestamp};
use tollgate_store::{
    Grouping, SummaryBy, SummaryRow, UsageFilter,
    fields::{FieldShape, Kind, Object},
};

use super::{
    filter::{OUTCOMES, filter},
    view::UsageView,
};
use crate::{
    api::{
        request_context::RequestContext,
        schema::{COUNT, USD, both, read},
    },
    api_error::ApiError,
    response::ApiResponse,
    time::{parse_rfc3339, time_value},
};

const MINUTE: i64 = 60_000_000;
const DAY: i64 = 1_440 * MINUTE;
/// Widths of buckets in minutes.
const WIDTHS: [i64; 11] = [5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440, 10_080];
/// Longest ranges read from sums by five minutes and by hour; longer ones would have more than 10,000 rows by outcome.
const MAX_FIVE_MINUTES: i64 = 5 * DAY;
const MAX_HOURS: i64 = 60 * DAY;

pub(super) const BUCKETS: FieldShape =
    both("buckets", Kind::Integer { min: 1, max: 500 }, "Maximum number of buckets; default 60.");
/// Widths that can be chosen, and their lengths in microseconds.
const CHOSEN: [(&str, i64); 2] = [("hour", 60 * MINUTE), ("day", DAY)];
const CHOSEN_WORDS: &[&str] = &[CHOSEN[0].0, CHOSEN[1].0];
const MAX_BUCKETS: i64 = 500;
pub(super) const WIDTH: FieldShape =
    both("width", Kind::Word(CHOSEN_WORDS), "Width of the buckets, instead of their number: at most 500. Days are those of UTC.");
pub(super) static BUCKET: Object = Object::of(
    "UsageBucket",
    &[
        read("at", Kind::Time, "Its beginning."),
        read("width_s", COUNT, "Its length in seconds: five minutes, an hour, a day, or several of these."),
        read("requests", COUNT, "Number of records."),
        read("completed", COUNT, "Completed requests."),
        read("caller_left", COUNT, "Requests whose caller closed the connection first."),
        read("upstream_broke", COUNT, "Requests whose upstream failed."),
        read("refused", COUNT, "Refused requests."),
        read("gateway_stopped", COUNT, "Requests that ended because their gateway stopped."),
        read("tokens", COUNT, "Tokens of all kinds."),
        read("sale", USD, "Sum of sale amounts, in USD."),
        read("cost", USD, "Cost of all attempts, in USD; null for members.").or_null(),
    ],
);

/// The range of a histogram and the width of its buckets, in microseconds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) begin: i64,
    pub(crate) end: i64,
    pub(crate) width: i64,
}

impl Axis {
    /// The narrowest buckets of which there are at most `count`.
    pub(crate) fn of(since: i64, until: i64, count: i64) -> Self {
        let length = until.saturating_sub(since).max(1);
        let narrowest = if length > MAX_HOURS {
            1_440
        } else if length > MAX_FIVE_MINUTES {
            60
        } else {
            5
        };
        let fits = |width: &i64| {
            let (first, last) = (since.div_euclid(*width), (until - 1).max(since).div_euclid(*width));
            last - first < count
        };
        let widths = WIDTHS.iter().filter(|width| **width >= narrowest).map(|width| width * MINUTE);
        // Longer ranges have buckets of as many weeks as needed.
        let weeks = (1..).map(|weeks| weeks * 7 * DAY);
        let width = widths.chain(weeks).find(fits).unwrap_or(7 * DAY);
        Self::in_steps(since, until, width)
    }

    /// Buckets of a chosen width; `None` for an unknown word.
    pub(crate) fn of_width(since: i64, until: i64, word: &str) -> Option<Self> {
        let (_, width) = CHOSEN.into_iter().find(|(known, _)| *known == word)?;
        Some(Self::in_steps(since, until, width))
    }

    fn in_steps(since: i64, until: i64, width: i64) -> Self {
        let end = (until - 1).max(since).div_euclid(width) * width + width;
        Self { begin: since.div_euclid(width) * width, end, width }
    }

    /// The number of buckets.
    pub(crate) const fn count(&self) -> i64 {
        (self.end - self.begin) / self.width
    }

    /// The grouping by time whose buckets these buckets consist of.
    pub(crate) const fn grouping(&self) -> SummaryBy {
        if self.width % DAY == 0 {
            SummaryBy::Day
        } else if self.width % (60 * MINUTE) == 0 {
            SummaryBy::Hour
        } else {
            SummaryBy::FiveMinutes
        }
    }
}

pub(super) async fn histogram(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let filter = filter(&context).await?;
    let until = filter.until.unwrap_or_else(|| context.now());
    let since = filter.since.unwrap_or(Timestamp(until.0.saturating_sub(DAY)));
    if since >= until {
        return Err(ApiError::value("since", "it is not before 'until'"));
    }
    let axis = match context.query.text("width").and_then(|width| Axis::of_width(since.0, until.0, width)) {
        Some(axis) if axis.count() > MAX_BUCKETS => return Err(ApiError::value("width", "the time has more than 500 of them")),
        Some(axis) => axis,
        None => Axis::of(since.0, until.0, context.query.whole("buckets").unwrap_or(60)),
    };
    // A range until now has no end, so that its last bucket is read from sums and not from records.
    let filter = UsageFilter { since: Some(since), ..filter };
    let permit = context.acquire_heavy_permit().await?;
    let by = Grouping::pair(axis.grouping(), SummaryBy::Outcome).without_times();
    let rows = context.with_query_timeout(context.state.store.usage.summary(&filter, by)).await?;
    drop(permit);
    let view = UsageView::of(&context);
    let items: Vec<Value> = buckets(&axis, rows).iter().map(|(at, sums)| show(*at, &axis, sums, view)).collect();
    Ok(ApiResponse::ok(json!({"items": items, "next": null})))
}

/// The sums of each bucket by outcome, and of all of them.
fn buckets(axis: &Axis, rows: Vec<SummaryRow>) -> BTreeMap<i64, (BTreeMap<String, u64>, SummaryRow)> {
    let steps = (0..(axis.end - axis.begin) / axis.width).map(|step| axis.begin + step * axis.width);
    let mut buckets: BTreeMap<i64, (BTreeMap<String, u64>, SummaryRow)> = steps.map(|at| (at, Default::default())).collect();
    for row in rows {
        let begins = if row.of.len() == 10 { format!("{}T00:00:00Z", row.of) } else { row.of.clone() };
        let Some(at) = parse_rfc3339(&begins) else { continue };
        if let Some((outcomes, all)) = buckets.get_mut(&(at.0.div_euclid(axis.width) * axis.width)) {
            *outcomes.entry(row.and.clone()).or_default() += row.requests;
            all.add(&row);
        }
    }
    buckets
}

fn show(at: i64, axis: &Axis, (outcomes, all): &(BTreeMap<String, u64>, SummaryRow), view: UsageView) -> Value {
    let mut item = json!({
        "at": time_value(Timestamp(at)), "width_s": axis.width / 1_000_000, "requests": all.requests,
        "tokens": all.tokens_input.saturating_add(all.tokens_output), "sale": NanoUsd::to_usd_string(all.sale),
        "cost": view.cost(all.cost),
    });
    for outcome in OUTCOMES {
        item[*outcome] = outcomes.get(*outcome).copied().unwrap_or(0).into();
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_uses_the_narrowest_bucket_width_that_fits() {
        let of = |since: i64, length: i64, count: i64| {
            let axis = Axis::of(since * MINUTE, (since + length) * MINUTE, count);
            (axis.begin / MINUTE, axis.end / MINUTE, axis.width / MINUTE)
        };
        assert_eq!(of(0, 60, 60), (0, 60, 5));
        assert_eq!(of(3, 60, 60), (0, 65, 5));
        assert_eq!(of(0, 1_440, 60), (0, 1_440, 30));
        assert_eq!(of(0, 7 * 1_440, 60), (0, 7 * 1_440, 180));
        assert_eq!(of(0, 90 * 1_440, 60), (0, 90 * 1_440 / 10_080 * 10_080 + 10_080, 10_080));
        assert_eq!(of(0, 90 * 1_440, 90), (0, 90 * 1_440, 1_440));
        assert_eq!(of(0, 3_650 * 1_440, 10).2, 53 * 10_080);
        assert_eq!(of(7, 0, 1), (5, 10, 5), "an empty range is one bucket");
    }

    #[test]
    fn axis_uses_the_requested_bucket_width() {
        let axis = Axis::of_width(90 * MINUTE, 24 * 60 * MINUTE + 1, "hour").unwrap();
        assert_eq!((axis.begin / MINUTE, axis.end / MINUTE, axis.count()), (60, 25 * 60, 24));
        assert_eq!(Axis::of_width(90 * MINUTE, 2 * DAY, "day"), Some(Axis { begin: 0, end: 2 * DAY, width: DAY }));
        assert_eq!(Axis::of_width(0, DAY, "minute"), None);
    }

    #[test]
    fn every_bucket_is_returned_with_its_sums() {
        let row = |of: &str, and: &str, requests: u64| SummaryRow {
            of: of.to_owned(),
            and: and.to_owned(),
            requests,
            ..SummaryRow::default()
        };
        let axis = Axis { begin: 0, end: 3 * DAY, width: DAY };
        let found = buckets(
            &axis,
            vec![row("1970-01-02", "completed", 3), row("1970-01-02", "refused", 1), row("1971-01-01", "refused", 9)],
        );
        let requests: Vec<u64> = found.values().map(|(_, all)| all.requests).collect();
        assert_eq!(requests, [0, 4, 0]);
        assert_eq!(show(DAY, &axis, &found[&DAY], UsageView::Member)["refused"], 1);
    }
}
