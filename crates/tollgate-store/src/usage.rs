//! What is asked of the usage log: filters, pages, sums.

use tollgate_core::{GroupId, KeyId, MemberId, NanoUsd, Outcome, RequestId, Timestamp};

/// Which usage records, in which order, from where on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageFilter {
    /// Of this key.
    pub key: Option<KeyId>,
    /// Of this member.
    pub member: Option<MemberId>,
    /// Served by this group.
    pub group: Option<GroupId>,
    /// For this model, as asked.
    pub model: Option<String>,
    /// Ended like this.
    pub outcome: Option<Outcome>,
    /// Arrived at or after.
    pub since: Option<Timestamp>,
    /// Arrived before.
    pub until: Option<Timestamp>,
    /// Direction.
    pub order: SortOrder,
    /// Continue behind this record.
    pub after: Option<UsageCursor>,
    /// At most so many; 0 means 50; never more than 1,000.
    pub limit: u32,
}

impl UsageFilter {
    /// The page size asked for, within its bounds.
    #[must_use]
    pub const fn page_size(&self) -> u32 {
        match self.limit {
            0 => 50,
            asked if asked > 1_000 => 1_000,
            asked => asked,
        }
    }
}

/// Direction of a listing, by arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortOrder {
    /// Newest first: the page.
    #[default]
    Newest,
    /// Oldest first: the export.
    Oldest,
}

/// The place of a record in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageCursor {
    /// Arrival.
    pub at: Timestamp,
    /// Id.
    pub id: RequestId,
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<UsageCursor>,
}

impl<T> Page<T> {
    /// A page of at most `size` items out of up to one more, which tells whether there is a next page.
    pub(crate) fn cut(mut items: Vec<T>, size: usize, place: impl Fn(&T) -> UsageCursor) -> Self {
        let more = items.len() > size;
        items.truncate(size);
        let next = if more { items.last().map(place) } else { None };
        Self { items, next }
    }
}

/// The UTC day of a point in time, as `2026-11-30`.
pub(crate) fn day(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_microsecond(at.0).unwrap_or(jiff::Timestamp::MAX);
    time.to_zoned(jiff::tz::TimeZone::UTC).date().to_string()
}

/// The beginning of the UTC hour of a point in time, as `2026-11-30T12:00:00Z`.
pub(crate) fn hour(at: Timestamp) -> String {
    let begins = jiff::Timestamp::from_microsecond(crate::rollup::bucket(at, crate::rollup::HOUR));
    begins.unwrap_or(jiff::Timestamp::MAX).to_string()
}

/// By what a summary groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SummaryBy {
    /// One row for everything.
    #[default]
    Nothing,
    /// By UTC day (`2026-11-30`).
    Day,
    /// By UTC hour (`2026-11-30T12:00:00Z`, when it begins).
    Hour,
    /// By model as asked.
    Model,
    /// By key id.
    Key,
    /// By member id.
    Member,
    /// By group name.
    Group,
    /// By outcome.
    Outcome,
}

/// Sums over usage records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SummaryRow {
    /// What the row is about; empty where the records have nothing there.
    pub of: String,
    /// Records.
    pub requests: u64,
    /// Of those, completed.
    pub completed: u64,
    /// Input tokens of every kind.
    pub tokens_input: u64,
    /// Output and thinking tokens.
    pub tokens_output: u64,
    /// What callers pay.
    pub sale: NanoUsd,
    /// What providers charge.
    pub cost: NanoUsd,
    /// Records without a sale price.
    pub unpriced: u64,
}
