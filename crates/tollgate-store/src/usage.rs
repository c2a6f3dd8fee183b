//! Filters, pages and sums of the usage log.

use std::borrow::Cow;

use tollgate_core::{GroupId, KeyId, MemberId, NanoUsd, Outcome, RequestId, Timestamp, UsageRecord};

use crate::rollup::Histogram;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageFilter {
    pub key: Option<KeyId>,
    pub member: Option<MemberId>,
    pub group: Option<GroupId>,
    /// Only requests for this model, which a group offers.
    pub model: Option<String>,
    pub outcome: Option<Outcome>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub order: SortOrder,
    pub after: Option<UsageCursor>,
    /// Maximum number of records; 0 means 50; capped at 1,000.
    pub limit: u32,
}

impl UsageFilter {
    /// Whether the filter selects a record. Order, cursor and limit are not considered.
    #[must_use]
    pub fn matches(&self, record: &UsageRecord) -> bool {
        self.key.is_none_or(|key| record.key == key)
            && self.member.is_none_or(|member| record.member == member)
            && self.group.is_none_or(|group| record.group == Some(group))
            && self.model.as_ref().is_none_or(|model| record.group.is_some() && record.model.as_ref() == Some(model))
            && self.outcome.is_none_or(|outcome| record.outcome == outcome)
            && self.since.is_none_or(|since| record.at >= since)
            && self.until.is_none_or(|until| record.at < until)
    }

    pub const fn page_size(&self) -> u32 {
        match self.limit {
            0 => 50,
            limit if limit > 1_000 => 1_000,
            limit => limit,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortOrder {
    #[default]
    Newest,
    Oldest,
}

/// A place between records. Request ids begin with the time of arrival, so their order is that of the records; a cursor need not be
/// the id of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageCursor(pub RequestId);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Cursor of the next page; `None` on the last one.
    pub next: Option<UsageCursor>,
    /// Set on a page that has fewer items than asked for although more may follow: so many records were read that the search stopped
    /// at this time. `next` continues there.
    pub searched_until: Option<Timestamp>,
}

impl<T> Page<T> {
    /// A page of at most `size` items. `items` has one more if there is a next page.
    pub(crate) fn cut(mut items: Vec<T>, size: usize, cursor: impl Fn(&T) -> UsageCursor) -> Self {
        let has_more = items.len() > size;
        items.truncate(size);
        let next = if has_more { items.last().map(cursor) } else { None };
        Self { items, next, searched_until: None }
    }
}

/// The record with the arrival time of its id, if they are not of the same millisecond: records are ordered and kept by their ids.
pub(crate) fn with_time_of_id(record: &UsageRecord) -> Cow<'_, UsageRecord> {
    let time = record.id.time();
    if record.at.0.div_euclid(1_000) * 1_000 == time.0 {
        return Cow::Borrowed(record);
    }
    Cow::Owned(UsageRecord { at: time, ..record.clone() })
}

/// The UTC day of a time, as `2026-11-30`.
pub(crate) fn day(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_microsecond(at.0).unwrap_or(jiff::Timestamp::MAX);
    time.to_zoned(jiff::tz::TimeZone::UTC).date().to_string()
}

/// The beginning of a time's UTC hour, as `2026-11-30T12:00:00Z`.
pub(crate) fn hour(at: Timestamp) -> String {
    let begins = jiff::Timestamp::from_microsecond(crate::rollup::bucket(at, crate::rollup::HOUR));
    begins.unwrap_or(jiff::Timestamp::MAX).to_string()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SummaryBy {
    #[default]
    Nothing,
    /// By UTC day (`2026-11-30`).
    Day,
    /// By UTC hour (`2026-11-30T12:00:00Z`, its beginning).
    Hour,
    /// By model, as named by the caller.
    Model,
    Key,
    Member,
    /// By group name.
    Group,
    Outcome,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SummaryRow {
    /// Value of the grouping; empty for records without one.
    pub of: String,
    pub requests: u64,
    pub completed: u64,
    /// Input tokens of every kind.
    pub tokens_input: u64,
    /// Output and thinking tokens.
    pub tokens_output: u64,
    /// Total price charged to callers.
    pub sale: NanoUsd,
    /// Total cost charged by providers.
    pub cost: NanoUsd,
    pub unpriced: u64,
    /// Times to the first content; `None` if the sums are of one key or member, or by them.
    pub ttft: Option<Percentiles>,
    /// Times to the end.
    pub duration: Option<Percentiles>,
}

/// Microseconds that 50, 95 and 99 % of the requests did not exceed, at most an eighth too high. Of the five minutes at the ends of
/// a range all requests count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentiles {
    pub p50_us: u64,
    pub p95_us: u64,
    pub p99_us: u64,
}

impl Percentiles {
    pub(crate) fn of(histogram: &Histogram) -> Option<Self> {
        let [p50_us, p95_us, p99_us] = [50, 95, 99].map(|percent| histogram.percentile(percent));
        Some(Self { p50_us: p50_us?, p95_us: p95_us?, p99_us: p99_us? })
    }
}
