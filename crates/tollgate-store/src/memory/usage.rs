//! The usage log in memory.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque, btree_map::Entry};

use tollgate_core::{KeyId, MemberId, NanoUsd, Outcome, RequestId, Timestamp, UsageRecord};

use crate::{
    AttemptFilter, AttemptsBy, AttemptsRow, BookedRecords, Grouping, KeyUse, KeyUseFilter, LastUse, LedgerPosition, LogPosition,
    Page, SortOrder, SummaryBy, SummaryRow, UsageCursor, UsageFilter, attempts,
    rollup::{FIVE_MINUTES, RequestTimes, bucket, next_bucket},
    sampled_times::{add_sampled_times, sample_of},
    usage::{day, five_minutes, has_times, hour, month, with_time_of_id},
};

const MAX_RECORDS: usize = 100_000;
/// Records whose order is known.
const MAX_LATEST: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct MemoryUsageLog {
    records: BTreeMap<RequestId, UsageRecord>,
    /// The position that the ledger had reached with each record.
    booked: HashMap<RequestId, LedgerPosition>,
    /// Records that arrived before this time were pruned.
    pruned_until: Timestamp,
    /// Pruned records that had a price.
    removed: HashSet<RequestId>,
    /// The latest records in the order in which they were added, and the number of earlier ones.
    latest: VecDeque<RequestId>,
    forgotten: i64,
    /// The time of the log, see [`UsageStore::log_time`](crate::UsageStore::log_time).
    pub(super) time: Option<Timestamp>,
}

fn has_price(record: &UsageRecord) -> bool {
    record.sale.is_some_and(|sale| sale != NanoUsd::ZERO)
}

impl MemoryUsageLog {
    /// Adds records and returns the new ones. A record of a pruned time is added only if it has a price and was not stored
    /// before.
    pub(super) fn append(&mut self, records: &[UsageRecord]) -> Vec<UsageRecord> {
        let mut added = Vec::new();
        for record in records.iter().map(with_time_of_id) {
            if record.at < self.pruned_until && (!has_price(&record) || self.removed.contains(&record.id)) {
                continue;
            }
            if let Entry::Vacant(place) = self.records.entry(record.id) {
                place.insert(record.clone().into_owned());
                self.latest.push_back(record.id);
                added.push(record.into_owned());
            }
        }
        while self.latest.len() > MAX_LATEST {
            self.latest.pop_front();
            self.forgotten += 1;
        }
        while self.records.len() > MAX_RECORDS {
            if let Some((first, _)) = self.records.pop_first() {
                self.booked.remove(&first);
            }
        }
        added
    }

    /// Stores the ledger's position after records were entered.
    pub(super) fn set_booked(&mut self, records: &[UsageRecord], position: LedgerPosition) {
        let stored = records.iter().filter(|record| self.records.contains_key(&record.id));
        self.booked.extend(stored.map(|record| (record.id, position)));
    }

    pub(super) fn booked(&self, id: RequestId) -> Option<LedgerPosition> {
        self.booked.get(&id).copied()
    }

    /// Removes the records that arrived before the UTC day of `before`.
    pub(super) fn prune(&mut self, before: Timestamp) -> u64 {
        let before = Timestamp::of_day(before.day());
        let kept = self.records.split_off(&RequestId::first_at(before));
        let old = std::mem::replace(&mut self.records, kept);
        for id in old.keys() {
            self.booked.remove(id);
        }
        self.removed.extend(old.values().filter(|record| has_price(record)).map(|record| record.id));
        if !old.is_empty() {
            self.pruned_until = self.pruned_until.max(before);
        }
        old.len() as u64
    }

    pub(super) const fn pruned_until(&self) -> Timestamp {
        self.pruned_until
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &UsageRecord> {
        self.records.values()
    }

    pub(super) fn find(&self, id: RequestId) -> Option<UsageRecord> {
        self.records.get(&id).cloned()
    }

    pub(super) fn has(&self, id: RequestId) -> bool {
        self.records.contains_key(&id)
    }

    /// Every record is a separate batch.
    pub(super) fn booked_after(&self, after: Option<LogPosition>, limit: usize) -> BookedRecords {
        let end = self.forgotten + i64::try_from(self.latest.len()).unwrap_or(i64::MAX);
        let at = |batch: i64| LogPosition { batch, records: u32::MAX };
        let Some(after) = after else { return BookedRecords { until: at(end), ..BookedRecords::default() } };
        if after.batch > end {
            return BookedRecords { until: at(end), missed: true, ..BookedRecords::default() };
        }
        let places = (self.forgotten + 1..).zip(&self.latest).filter(|(place, _)| *place > after.batch).take(limit);
        let found: Vec<(i64, RequestId)> = places.map(|(place, id)| (place, *id)).collect();
        let until = found.last().map_or(after, |(place, _)| at(*place));
        let items = found.into_iter().filter_map(|(place, id)| Some((at(place), self.find(id)?))).collect();
        BookedRecords { items, until, missed: after.batch < self.forgotten }
    }

    pub(super) fn page(&self, filter: &UsageFilter) -> Page<UsageRecord> {
        let size = filter.page_size() as usize;
        let is_after = |id: RequestId| match (filter.order, filter.after) {
            (_, None) => true,
            (SortOrder::Newest, Some(UsageCursor(after))) => id < after,
            (SortOrder::Oldest, Some(UsageCursor(after))) => id > after,
        };
        let wanted = |(id, record): &(&RequestId, &UsageRecord)| is_after(**id) && filter.matches(record);
        let items: Vec<UsageRecord> = match filter.order {
            SortOrder::Newest => {
                self.records.iter().rev().filter(wanted).take(size + 1).map(|(_, record)| record.clone()).collect()
            }
            SortOrder::Oldest => self.records.iter().filter(wanted).take(size + 1).map(|(_, record)| record.clone()).collect(),
        };
        Page::cut(items, size, |record| UsageCursor(record.id))
    }

    pub(super) fn summary(&self, filter: &UsageFilter, by: Grouping) -> Vec<SummaryRow> {
        let mut sums: BTreeMap<(String, String), SummaryRow> = BTreeMap::new();
        for record in self.records.values().filter(|record| filter.matches(record)) {
            let key = groups_of(record, by);
            let sum = sums.entry(key.clone()).or_insert_with(|| SummaryRow { of: key.0, and: key.1, ..SummaryRow::default() });
            let tokens = &record.tokens;
            sum.add(&SummaryRow {
                requests: 1,
                completed: u64::from(record.outcome == Outcome::Completed),
                left: u64::from(matches!(record.outcome, Outcome::CallerLeft | Outcome::GatewayStopped)),
                tokens_input: tokens.input + tokens.cache_read + tokens.cache_write + tokens.image + tokens.audio,
                tokens_output: tokens.output + tokens.thinking,
                tokens_cache_read: tokens.cache_read,
                tokens_cache_write: tokens.cache_write,
                tokens_cache_write_1h: tokens.cache_write_1h,
                tokens_thinking: tokens.thinking,
                tokens_image: tokens.image,
                tokens_audio: tokens.audio,
                sale: record.sale.unwrap_or(NanoUsd::ZERO),
                cost: record.cost.unwrap_or(NanoUsd::ZERO),
                unpriced: u64::from(record.sale.is_none()),
                ..SummaryRow::default()
            });
        }
        if has_times(filter, by) {
            self.add_times(filter, by, &mut sums);
        }
        let mut rows: Vec<SummaryRow> = sums.into_values().collect();
        if let Some(sample) = sample_of(filter, by) {
            add_sampled_times(&mut rows, &self.page(&sample).items, by);
        }
        rows
    }

    pub(super) fn attempts(&self, filter: &AttemptFilter, by: (AttemptsBy, AttemptsBy)) -> Vec<AttemptsRow> {
        attempts::summary(self.records.values(), filter, by)
    }

    /// Usage of each key.
    pub(super) fn key_use(&self, filter: KeyUseFilter) -> BTreeMap<KeyId, KeyUse> {
        let is_selected =
            |record: &&UsageRecord| record.at >= filter.since && filter.member.is_none_or(|member| record.member == member);
        let mut used: BTreeMap<KeyId, KeyUse> = BTreeMap::new();
        for record in self.records.values().filter(is_selected) {
            used.entry(record.key).or_default().add(KeyUse { requests: 1, sale: record.sale.unwrap_or(NanoUsd::ZERO) });
        }
        used
    }

    /// The last request of each key.
    pub(super) fn last_use(&self) -> BTreeMap<KeyId, LastUse> {
        let last = self.records.values().map(|record| (record.key, record.id)).collect::<BTreeMap<KeyId, RequestId>>();
        let of = |id: RequestId| LastUse { at: id.time(), address: self.records[&id].address.as_deref().map(ToOwned::to_owned) };
        last.into_iter().map(|(key, id)| (key, of(id))).collect()
    }

    pub(super) fn last_use_by_member(&self) -> BTreeMap<MemberId, Timestamp> {
        // Records are in the order of their ids, and with them of their times.
        self.records.values().map(|record| (record.member, record.id.time())).collect()
    }

    /// Adds percentiles. As in databases, the five minutes at the ends of the range count as a whole.
    fn add_times(&self, filter: &UsageFilter, by: Grouping, sums: &mut BTreeMap<(String, String), SummaryRow>) {
        let since = filter.since.map(|at| Timestamp(bucket(at, FIVE_MINUTES)));
        let until = filter.until.map(|at| Timestamp(next_bucket(at.0, FIVE_MINUTES)));
        let filter = UsageFilter { since, until, ..filter.clone() };
        let mut times: HashMap<(String, String), RequestTimes> = HashMap::new();
        for record in self.records.values().filter(|record| filter.matches(record)) {
            times.entry(groups_of(record, by)).or_default().add(record);
        }
        for (key, sum) in sums {
            if let Some(times) = times.get(key) {
                *sum = std::mem::take(sum).with_times(times);
            }
        }
    }
}

/// The values of both groupings under which a record is counted.
pub(crate) fn groups_of(record: &UsageRecord, by: Grouping) -> (String, String) {
    (group(record, by.first), group(record, by.second))
}

/// The value under which a record is counted.
fn group(record: &UsageRecord, by: SummaryBy) -> String {
    let subject = || record.subject().map(|at| &record.attempts[at]);
    match by {
        SummaryBy::Nothing => String::new(),
        SummaryBy::Month => month(record.at),
        SummaryBy::Day => day(record.at),
        SummaryBy::Hour => hour(record.at),
        SummaryBy::FiveMinutes => five_minutes(record.at),
        SummaryBy::Model => record.offered_model().unwrap_or_default().to_owned(),
        SummaryBy::Key => record.key.to_string(),
        SummaryBy::Member => record.member.to_string(),
        SummaryBy::Group => record.group_name.as_deref().unwrap_or_default().to_owned(),
        SummaryBy::Channel => subject().map_or_else(String::new, |attempt| attempt.channel.to_string()),
        SummaryBy::Account => subject().map_or_else(String::new, |attempt| attempt.account.to_string()),
        SummaryBy::Protocol => record.protocol_in.as_str().to_owned(),
        SummaryBy::Outcome => record.outcome.as_str().to_owned(),
        SummaryBy::Reason => record.reason.clone().unwrap_or_default(),
        SummaryBy::Tag(name) => record.tags.get(name.as_str()).unwrap_or_default().to_owned(),
    }
}
