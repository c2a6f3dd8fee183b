//! Filters, pages and sums of the usage log.

use std::borrow::Cow;

use tollgate_core::{
    AccountId, AttemptRecord, AttemptResult, ChannelId, GroupId, KeyId, MemberId, NanoUsd, Outcome, RequestId, TagName, Timestamp,
    UsageRecord,
};
use tollgate_protocol::{FinishReason, Protocol};

use crate::{
    attempts::REJECTED,
    rollup::{Histogram, RequestTimes},
};

/// Selects usage records. All conditions that are set must be met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageFilter {
    pub key: Option<KeyId>,
    pub member: Option<MemberId>,
    /// Only requests charged to one of these members; to any if it is empty.
    pub members: Vec<MemberId>,
    pub group: Option<GroupId>,
    /// Only requests for this model, which a group offers.
    pub model: Option<String>,
    /// Only requests that this channel answered, or was the last to be tried for.
    pub channel: Option<ChannelId>,
    /// As `channel`, for an account.
    pub account: Option<AccountId>,
    /// Only requests that callers sent in this protocol.
    pub protocol: Option<Protocol>,
    /// Only requests with one of these outcomes; with any if it is empty.
    pub outcomes: Vec<Outcome>,
    /// Only requests with this error id, exclusion code or other code.
    pub reason: Option<String>,
    /// Only requests with all of these tags.
    pub tags: Vec<TagCondition>,
    pub conditions: RecordConditions,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub order: SortOrder,
    pub after: Option<UsageCursor>,
    /// Maximum number of records; 0 means 50; capped at 1,000.
    pub limit: u32,
}

/// A tag of a request: its name and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagCondition {
    pub name: TagName,
    pub value: String,
}

/// Conditions that sums cannot answer: records are read to find those that meet them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordConditions {
    /// First and last HTTP status sent to the caller.
    pub status: Option<(u16, u16)>,
    pub stream: Option<bool>,
    pub finish: Option<FinishReason>,
    pub min_sale: Option<NanoUsd>,
    pub min_cost: Option<NanoUsd>,
    /// Minimum number of tokens of all kinds together.
    pub min_tokens: Option<u64>,
    pub min_ttft_us: Option<u64>,
    pub min_duration_us: Option<u64>,
    /// The caller's own request id.
    pub client_request_id: Option<String>,
    pub address: Option<String>,
    /// A channel with an attempt of the request, even if another channel answered it.
    pub tried_channel: Option<ChannelId>,
    /// An account with an attempt of the request, even if another account answered it.
    pub tried_account: Option<AccountId>,
    /// Whether the attempt of `tried_channel` or `tried_account` must have failed. That of the record ([`UsageRecord::subject`])
    /// failed if the request did, any other one by its own result. An attempt that was cancelled did not fail, nor one whose request the
    /// provider rejected (E52): that is the caller's fault.
    pub tried_failed: bool,
    /// The requested model of a request that was refused because no group of its key offers that model. Such names are the
    /// caller's, so that [`UsageFilter::model`] does not find them.
    pub unknown_model: Option<String>,
    /// Whether more than one account was tried.
    pub failed_over: Option<bool>,
    /// Whether it was answered without any content.
    pub empty: Option<bool>,
}

impl RecordConditions {
    /// Whether there are no conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn meets(&self, record: &UsageRecord) -> bool {
        let least = |least: Option<u64>, value: Option<u64>| least.is_none_or(|least| value.is_some_and(|value| value >= least));
        let tokens = record.tokens.prompt().saturating_add(record.tokens.completion());
        self.status.is_none_or(|(first, last)| (first..=last).contains(&record.status))
            && self.stream.is_none_or(|stream| record.stream == stream)
            && self.finish.is_none_or(|finish| record.finish == Some(finish))
            && self.min_sale.is_none_or(|least| record.sale.is_some_and(|sale| sale >= least))
            && self.min_cost.is_none_or(|least| record.cost.is_some_and(|cost| cost >= least))
            && least(self.min_tokens, Some(tokens))
            && least(self.min_ttft_us, record.ttft_us)
            && least(self.min_duration_us, Some(record.duration_us))
            && self.client_request_id.as_ref().is_none_or(|id| record.client_request_id.as_deref() == Some(id))
            && self.address.as_ref().is_none_or(|address| record.address.as_deref() == Some(address))
            && self.tried_channel.is_none_or(|channel| self.tried(record, |attempt| attempt.channel == channel))
            && self.tried_account.is_none_or(|account| self.tried(record, |attempt| attempt.account == account))
            && self
                .unknown_model
                .as_ref()
                .is_none_or(|model| record.offered_model().is_none() && record.model.as_deref() == Some(model))
            && self.failed_over.is_none_or(|failed_over| (record.attempts.len() > 1) == failed_over)
            && self.empty.is_none_or(|empty| record.is_empty_answer() == empty)
    }

    /// Whether the record has an attempt like this, and a failed one if only these are selected.
    fn tried(&self, record: &UsageRecord, is_meant: impl Fn(&AttemptRecord) -> bool) -> bool {
        let subject = record.subject();
        let failed = |(at, attempt): &(usize, &AttemptRecord)| {
            if subject == Some(*at) {
                FAILED_OUTCOMES.contains(&record.outcome) && record.reason.as_deref() != Some(REJECTED)
            } else {
                !matches!(attempt.result, AttemptResult::Answered | AttemptResult::Cancelled)
                    && attempt.error.as_deref() != Some(REJECTED)
            }
        };
        let mut meant = record.attempts.iter().enumerate().filter(|(_, attempt)| is_meant(attempt));
        meant.any(|attempt| !self.tried_failed || failed(&attempt))
    }
}

/// Outcomes of requests whose last attempt failed.
pub(crate) const FAILED_OUTCOMES: [Outcome; 2] = [Outcome::UpstreamBroke, Outcome::Refused];

impl UsageFilter {
    /// Whether the filter selects a record. Order, cursor and limit are not considered.
    #[must_use]
    pub fn matches(&self, record: &UsageRecord) -> bool {
        let subject = || record.subject().map(|at| &record.attempts[at]);
        self.key.is_none_or(|key| record.key == key)
            && self.member.is_none_or(|member| record.member == member)
            && (self.members.is_empty() || self.members.contains(&record.member))
            && self.group.is_none_or(|group| record.group == Some(group))
            && self.model.as_ref().is_none_or(|model| record.offered_model() == Some(model))
            && self.channel.is_none_or(|channel| subject().is_some_and(|attempt| attempt.channel == channel))
            && self.account.is_none_or(|account| subject().is_some_and(|attempt| attempt.account == account))
            && self.protocol.is_none_or(|protocol| record.protocol_in == protocol)
            && (self.outcomes.is_empty() || self.outcomes.contains(&record.outcome))
            && self.reason.as_ref().is_none_or(|reason| record.reason.as_ref() == Some(reason))
            && self.tags.iter().all(|tag| record.tags.get(tag.name.as_str()) == Some(&tag.value))
            && self.conditions.meets(record)
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

/// The order of usage records, by arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortOrder {
    #[default]
    Newest,
    Oldest,
}

/// A position between records. Request ids begin with the time of arrival, so they order the records; a cursor need not be the id
/// of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageCursor(pub RequestId);

/// A page of items with the cursor of the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Cursor of the next page; `None` on the last one.
    pub next: Option<UsageCursor>,
    /// Set if the page has fewer items than requested although more may follow: the search had read its maximum number of
    /// records and stopped at this time. `next` continues there.
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

/// A position in the order in which records were booked: a batch, and the number of its records before the position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    pub batch: i64,
    pub records: u32,
}

/// Records in the order in which they were booked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BookedRecords {
    /// The records, each with the position behind it.
    pub items: Vec<(LogPosition, UsageRecord)>,
    /// Position of the next records.
    pub until: LogPosition,
    /// True if records after the position were skipped, because the order of records booked so long ago is no longer stored.
    pub missed: bool,
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

/// The UTC month of a time, as `2026-11`.
pub(crate) fn month(at: Timestamp) -> String {
    let mut day = day(at);
    day.truncate(day.len() - 3);
    day
}

/// The beginning of a time's five minutes, as `2026-11-30T12:05:00Z`.
pub(crate) fn five_minutes(at: Timestamp) -> String {
    let begins = jiff::Timestamp::from_microsecond(crate::rollup::bucket(at, crate::rollup::FIVE_MINUTES));
    begins.unwrap_or(jiff::Timestamp::MAX).to_string()
}

/// The dimension by which records are grouped. Channel and account are those of the attempt that answered, else of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SummaryBy {
    #[default]
    Nothing,
    /// By UTC month (`2026-11`).
    Month,
    /// By UTC day (`2026-11-30`).
    Day,
    /// By UTC hour (`2026-11-30T12:00:00Z`, its beginning).
    Hour,
    /// By five minutes (`2026-11-30T12:05:00Z`, their beginning). Those of removed records have no sums.
    FiveMinutes,
    /// By model, as named by the caller.
    Model,
    Key,
    Member,
    /// By group name.
    Group,
    Channel,
    Account,
    /// By protocol of the caller.
    Protocol,
    Outcome,
    /// By error id, exclusion code or other code.
    Reason,
    /// By the value of a tag; empty for requests without it. Of a tag with many values, some are summed up as [`OTHER_VALUES_LABEL`].
    Tag(TagName),
}

/// The label under which values of a tag without separate sums are summed.
pub const OTHER_VALUES_LABEL: &str = "other";

impl SummaryBy {
    pub(crate) const fn is_time(self) -> bool {
        matches!(self, Self::Month | Self::Day | Self::Hour | Self::FiveMinutes)
    }
}

/// A figure of a summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SummaryFigure {
    #[default]
    Requests,
    /// Requests that failed: neither completed nor left by the caller.
    Errors,
    /// Tokens of every kind.
    Tokens,
    Sale,
    Cost,
}

/// One or two groupings of a summary, which are not the same unless both are [`SummaryBy::Nothing`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grouping {
    pub first: SummaryBy,
    pub second: SummaryBy,
    /// The figure by which rows are chosen if there are more than 10,000.
    pub largest: SummaryFigure,
    /// Number of the largest rows that are needed. Smaller rows may be left out, which saves reading their texts.
    pub wanted: Option<u32>,
    /// True if percentiles are not needed.
    pub without_times: bool,
}

impl Grouping {
    pub const fn pair(first: SummaryBy, second: SummaryBy) -> Self {
        Self { first, second, largest: SummaryFigure::Requests, wanted: None, without_times: false }
    }

    /// This grouping without percentiles, which take as long as all other figures.
    #[must_use]
    pub const fn without_times(self) -> Self {
        Self { without_times: true, ..self }
    }

    pub(crate) fn has(self, is: impl Fn(SummaryBy) -> bool) -> bool {
        is(self.first) || is(self.second)
    }
}

impl From<SummaryBy> for Grouping {
    fn from(first: SummaryBy) -> Self {
        Self::pair(first, SummaryBy::Nothing)
    }
}

/// Sums by group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub rows: Vec<SummaryRow>,
    /// Groups with requests, those included that [`Grouping::wanted`] leaves out; at most 10,000.
    pub groups: usize,
}

/// Sums over the records of a group. Money in nano-USD, times in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SummaryRow {
    /// Values of the first and of the second grouping; empty for records without one.
    pub of: String,
    pub and: String,
    pub requests: u64,
    pub completed: u64,
    /// Requests that ended without an answer and without a fault: the caller left, or the gateway stopped.
    pub left: u64,
    /// Input tokens of every kind.
    pub tokens_input: u64,
    /// Output and thinking tokens.
    pub tokens_output: u64,
    pub tokens_cache_read: u64,
    pub tokens_cache_write: u64,
    /// The part of `tokens_cache_write` that is kept for an hour.
    pub tokens_cache_write_1h: u64,
    pub tokens_thinking: u64,
    pub tokens_image: u64,
    pub tokens_audio: u64,
    /// Total price charged to callers.
    pub sale: NanoUsd,
    /// Total cost charged by providers.
    pub cost: NanoUsd,
    pub unpriced: u64,
    /// Number of records that the percentiles are computed from: 0 for all records. They come from the latest records for sums of
    /// or by keys, members, accounts or tags, and for sums that are read from records.
    pub sampled: u64,
    /// Times to the first content; `None` without any.
    pub ttft: Option<Percentiles>,
    /// Times to the end.
    pub duration: Option<Percentiles>,
    /// Times in which no attempt was in progress.
    pub overhead: Option<Percentiles>,
}

impl SummaryRow {
    /// Requests that were neither completed nor left by the caller.
    #[must_use]
    pub const fn failed(&self) -> u64 {
        self.requests.saturating_sub(self.completed).saturating_sub(self.left)
    }

    /// Adds the sums of another row; the percentiles are unchanged.
    pub fn add(&mut self, other: &Self) {
        let counts = [
            (&mut self.requests, other.requests),
            (&mut self.completed, other.completed),
            (&mut self.left, other.left),
            (&mut self.tokens_input, other.tokens_input),
            (&mut self.tokens_output, other.tokens_output),
            (&mut self.tokens_cache_read, other.tokens_cache_read),
            (&mut self.tokens_cache_write, other.tokens_cache_write),
            (&mut self.tokens_cache_write_1h, other.tokens_cache_write_1h),
            (&mut self.tokens_thinking, other.tokens_thinking),
            (&mut self.tokens_image, other.tokens_image),
            (&mut self.tokens_audio, other.tokens_audio),
            (&mut self.unpriced, other.unpriced),
        ];
        for (sum, more) in counts {
            *sum = sum.saturating_add(more);
        }
        for (sum, more) in [(&mut self.sale, other.sale), (&mut self.cost, other.cost)] {
            sum.0 = sum.0.saturating_add(more.0);
        }
    }

    pub(crate) fn with_times(self, times: &RequestTimes) -> Self {
        let [ttft, duration, overhead] = times.each().map(Percentiles::of);
        Self { ttft, duration, overhead, ..self }
    }
}

/// Whether roll-ups have the percentiles for a filter and a grouping. Only those over all keys have percentiles.
pub(crate) fn has_times(filter: &UsageFilter, by: Grouping) -> bool {
    let UsageFilter { key, member, members, account, tags, conditions, .. } = filter;
    let groups = [SummaryBy::Key, SummaryBy::Member, SummaryBy::Account];
    !by.without_times
        && key.is_none()
        && members.is_empty()
        && member.is_none()
        && account.is_none()
        && tags.is_empty()
        && conditions.is_empty()
        && !by.has(|by| groups.contains(&by) || matches!(by, SummaryBy::Tag(_)))
}

/// Maximum number of records that are read for a sum that no roll-up has.
pub(crate) const MAX_SUMMED_RECORDS: i64 = 500_000;

/// Microseconds that 50, 95 and 99 % of the requests did not exceed, at most an eighth too high. The five minutes at each end of a
/// range count as a whole.
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
