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

/// A range of time [from, to) in microseconds, unbounded where `None`, and the source of its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeRange {
    pub(super) source: SummarySource,
    pub(super) from: Option<i64>,
    pub(super) to: Option<i64>,
    /// True if its sums are subtracted, because those of a wider range include them.
    pub(super) is_subtracted: bool,
}

/// How the ends of a range are covered if only a part of a bucket lies in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndParts {
    /// Narrower buckets within the range.
    Added,
    /// Like `Added`, or the whole bucket minus the narrower buckets outside the range, whichever reads the shorter
    /// time.
    Shortest,
}

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
        | SummaryBy::Reason
        | SummaryBy::Tag(_) => None,
    }
}

/// The condition for the buckets of a range.
pub(super) fn minutes(range: TimeRange) -> String {
    let mut sql = format!("width = {}", range.source.width() / MINUTE);
    for (at, than) in [(range.from, ">="), (range.to, "<")] {
        if let Some(at) = at {
            write!(sql, " AND minute {than} {}", at / MINUTE).expect("writing to a String cannot fail");
        }
    }
    sql
}

/// Cuts a range into the buckets of a grouping by time where its rows do not contain the bucket: for months, and for the five
/// minutes of the records at the ends, unless all is summed from records.
pub(super) fn cut_buckets(range: TimeRange, by: Grouping, all_records: bool) -> Vec<TimeRange> {
    let width = match range.source {
        SummarySource::Months => None,
        SummarySource::Records if !all_records => Some(FIVE_MINUTES),
        SummarySource::Records | SummarySource::FiveMinutes | SummarySource::Hours | SummarySource::Days => {
            by.has(|by| by == SummaryBy::Month).then_some(MONTH)
        }
    };
    let (Some(width), Some(mut begin), Some(end)) = (width, range.from, range.to) else { return vec![range] };
    let mut parts = Vec::new();
    while begin < end {
        let next = bucket_end(Timestamp(begin), width).min(end);
        parts.push(TimeRange { from: Some(begin), to: Some(next), ..range });
        begin = next;
    }
    // An empty range is kept, because the query needs at least one part.
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
pub(super) fn split_range(
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    sources: &[SummarySource],
    ends: EndParts,
) -> Vec<TimeRange> {
    let mut split = RangeSplit { ends, ranges: Vec::new() };
    let (from, to) = (since.map(|at| at.0), until.map(|at| at.0));
    split.push(from, to, sources, false);
    if split.ranges.is_empty() {
        // The query needs at least one part.
        split.ranges.push(TimeRange { source: SummarySource::Records, from, to, is_subtracted: false });
    }
    split.ranges
}

struct RangeSplit {
    ends: EndParts,
    ranges: Vec<TimeRange>,
}

impl RangeSplit {
    /// Appends the whole buckets of the first source and, before and after them, the ranges of the others.
    fn push(&mut self, from: Option<i64>, to: Option<i64>, sources: &[SummarySource], is_subtracted: bool) {
        let Some((source, narrower)) = sources.split_first() else { return };
        if narrower.is_empty() {
            return self.ranges.push(TimeRange { source: *source, from, to, is_subtracted });
        }
        let width = source.width();
        // The first and the last start of a bucket within the range, and whether the buckets around its ends are read as a whole.
        let (first, last) = (from.map(|from| next_bucket(from, width)), to.map(|to| bucket(Timestamp(to), width)));
        let begins_whole =
            from.zip(first).is_some_and(|(from, first)| self.is_shorter(from - bucket(Timestamp(from), width), first - from));
        let ends_whole = to.zip(last).is_some_and(|(to, last)| self.is_shorter(bucket_end(Timestamp(last), width) - to, to - last));
        if let (Some(first), Some(last)) = (first, last)
            && (first > last || (first == last && !begins_whole && !ends_whole))
        {
            return self.push(from, to, narrower, is_subtracted);
        }
        let (mut begin, mut end, mut after) = (first, last, None);
        if let (Some(from), Some(first)) = (from, first)
            && from != first
        {
            if begins_whole {
                begin = Some(bucket(Timestamp(from), width));
                self.push(begin, Some(from), narrower, !is_subtracted);
            } else {
                self.push(Some(from), begin, narrower, is_subtracted);
            }
        }
        if let (Some(to), Some(last)) = (to, last)
            && to != last
        {
            if ends_whole {
                end = Some(bucket_end(Timestamp(last), width));
                after = Some((to, end, !is_subtracted));
            } else {
                after = Some((last, Some(to), is_subtracted));
            }
        }
        if begin.is_none() || begin != end {
            self.ranges.push(TimeRange { source: *source, from: begin, to: end, is_subtracted });
        }
        if let Some((from, to, is_subtracted)) = after {
            self.push(Some(from), to, narrower, is_subtracted);
        }
    }

    fn is_shorter(&self, outside: i64, inside: i64) -> bool {
        self.ends == EndParts::Shortest && outside < inside
    }
}
