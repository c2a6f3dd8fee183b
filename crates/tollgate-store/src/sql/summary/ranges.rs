//! The ranges of time that a summary adds up, and the tables that they come from.

use std::fmt::Write as _;

use tollgate_core::Timestamp;

use crate::{
    Grouping, SummaryBy,
    rollup::{DAY, FIVE_MINUTES, HOUR, MINUTE, MONTH, bucket, bucket_end, next_bucket},
};

/// Tables from which a range of time is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SummarySource {
    Records,
    FiveMinutes,
    Hours,
    Days,
    Months,
}

impl SummarySource {
    /// The sources of sums by time, the widest first. The last one is the records.
    pub(super) const BY_RECORD: &'static [Self] = &[Self::Records];
    pub(super) const BY_FIVE_MINUTES: &'static [Self] = &[Self::FiveMinutes, Self::Records];
    pub(super) const BY_HOUR: &'static [Self] = &[Self::Hours, Self::FiveMinutes, Self::Records];
    pub(super) const BY_DAY: &'static [Self] = &[Self::Days, Self::Hours, Self::FiveMinutes, Self::Records];
    pub(super) const BY_MONTH: &'static [Self] = &[Self::Months, Self::Days, Self::Hours, Self::FiveMinutes, Self::Records];

    /// Microseconds of its buckets.
    pub(super) const fn width(self) -> i64 {
        match self {
            Self::Records => 1,
            Self::FiveMinutes => FIVE_MINUTES,
            Self::Hours => HOUR,
            Self::Days => DAY,
            Self::Months => MONTH,
        }
    }
}

/// A range of time [from, to) in microseconds and its source; `None` is unbounded.
pub(super) type TimeRange = (SummarySource, Option<i64>, Option<i64>);

/// Microseconds of the buckets of a grouping by time.
pub(super) const fn width_of(by: SummaryBy) -> Option<i64> {
    match by {
        SummaryBy::Month => Some(MONTH),
        SummaryBy::Day => Some(DAY),
        SummaryBy::Hour => Some(HOUR),
        SummaryBy::FiveMinutes => Some(FIVE_MINUTES),
        SummaryBy::Nothing
        | SummaryBy::Model
        | SummaryBy::Key
        | SummaryBy::Member
        | SummaryBy::Group
        | SummaryBy::Channel
        | SummaryBy::Account
        | SummaryBy::Protocol
        | SummaryBy::Outcome
        | SummaryBy::Reason => None,
    }
}

/// The condition for the buckets of a range.
pub(super) fn minutes(source: SummarySource, from: Option<i64>, to: Option<i64>) -> String {
    let mut sql = format!("width = {}", source.width() / MINUTE);
    for (at, than) in [(from, ">="), (to, "<")] {
        if let Some(at) = at {
            write!(sql, " AND minute {than} {}", at / MINUTE).expect("writing to a String cannot fail");
        }
    }
    sql
}

/// A range cut into the buckets of a grouping by time of which its rows do not tell the bucket: months, and the five minutes of the
/// records at the ends, unless all is summed from records.
pub(super) fn cut_buckets(range: TimeRange, by: Grouping, all_records: bool) -> Vec<TimeRange> {
    let (source, from, to) = range;
    let width = match source {
        SummarySource::Months => None,
        SummarySource::Records if !all_records => Some(FIVE_MINUTES),
        SummarySource::Records | SummarySource::FiveMinutes | SummarySource::Hours | SummarySource::Days => {
            by.has(|by| by == SummaryBy::Month).then_some(MONTH)
        }
    };
    let (Some(width), Some(mut begin), Some(end)) = (width, from, to) else { return vec![range] };
    let mut parts = Vec::new();
    while begin < end {
        let next = bucket_end(Timestamp(begin), width).min(end);
        parts.push((source, Some(begin), Some(next)));
        begin = next;
    }
    // An empty range stays, so that the query has a part.
    if parts.is_empty() { vec![range] } else { parts }
}

/// Widens ends before `pruned_until` to whole hours: of pruned records only the sums by hour are left.
pub(super) fn widen_to_pruned_hours(
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    pruned_until: i64,
) -> (Option<Timestamp>, Option<Timestamp>) {
    let removed = |at: &Timestamp| at.0 < pruned_until;
    let widened = |at: Timestamp, to: i64| Timestamp((at.0 + to).div_euclid(HOUR) * HOUR);
    let since = since.map(|at| if removed(&at) { widened(at, 0) } else { at });
    let until = until.map(|at| if removed(&at) { widened(at, HOUR - 1) } else { at });
    (since, until)
}

/// Splits a range into whole buckets of the sources, which are ordered from the widest to the narrowest and end with the records.
pub(super) fn split_range(since: Option<Timestamp>, until: Option<Timestamp>, sources: &[SummarySource]) -> Vec<TimeRange> {
    let mut ranges = Vec::new();
    push_ranges(&mut ranges, since.map(|at| at.0), until.map(|at| at.0), sources);
    ranges
}

/// Appends the whole buckets of the first source and, before and after them, the ranges of the others.
fn push_ranges(ranges: &mut Vec<TimeRange>, from: Option<i64>, to: Option<i64>, sources: &[SummarySource]) {
    let Some((source, narrower)) = sources.split_first() else { return };
    let width = source.width();
    let first = from.map(|from| next_bucket(from, width));
    let last = to.map(|to| bucket(Timestamp(to), width));
    let is_empty = first.is_some_and(|first| last.is_some_and(|last| first >= last));
    if is_empty && !narrower.is_empty() {
        return push_ranges(ranges, from, to, narrower);
    }
    if first != from {
        push_ranges(ranges, from, first, narrower);
    }
    ranges.push((*source, first, last));
    if last != to {
        push_ranges(ranges, last, to, narrower);
    }
}
