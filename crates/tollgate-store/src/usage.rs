//! Filters, pages and sums of the usage log.

use tollgate_core::{GroupId, KeyId, MemberId, NanoUsd, Outcome, RequestId, Timestamp, UsageRecord};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageFilter {
    pub key: Option<KeyId>,
    pub member: Option<MemberId>,
    pub group: Option<GroupId>,
    /// Only requests for this model, as named by the caller.
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
            && self.model.as_ref().is_none_or(|model| record.model.as_ref() == Some(model))
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageCursor {
    pub at: Timestamp,
    pub id: RequestId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Cursor of the next page; `None` on the last one.
    pub next: Option<UsageCursor>,
}

impl<T> Page<T> {
    /// A page of at most `size` items. `items` has one more if there is a next page.
    pub(crate) fn cut(mut items: Vec<T>, size: usize, cursor: impl Fn(&T) -> UsageCursor) -> Self {
        let has_more = items.len() > size;
        items.truncate(size);
        let next = if has_more { items.last().map(cursor) } else { None };
        Self { items, next }
    }
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
}
