//! The usage log in memory.

use std::collections::{BTreeMap, HashMap, HashSet, btree_map::Entry};

use tollgate_core::{NanoUsd, Outcome, RequestId, Timestamp, UsageRecord};

use crate::{
    LedgerPosition, Page, Percentiles, SortOrder, SummaryBy, SummaryRow, UsageCursor, UsageFilter,
    rollup::{FIVE_MINUTES, Histogram, bucket},
    usage::{day, hour, with_time_of_id},
};

const MAX_RECORDS: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct MemoryUsageLog {
    records: BTreeMap<RequestId, UsageRecord>,
    /// The position that the ledger had reached with each record.
    booked: HashMap<RequestId, LedgerPosition>,
    /// Records that arrived before this time were pruned.
    pruned_until: Timestamp,
    /// Pruned records that had a price.
    removed: HashSet<RequestId>,
    /// The time of the log, see [`UsageStore::log_time`](crate::UsageStore::log_time).
    pub(super) time: Option<Timestamp>,
}

fn has_price(record: &UsageRecord) -> bool {
    record.sale.is_some_and(|sale| sale != NanoUsd::ZERO)
}

impl MemoryUsageLog {
    /// Adds records and returns the new ones. A record of a pruned time is added only if it has a price and was not there before.
    pub(super) fn append(&mut self, records: &[UsageRecord]) -> Vec<UsageRecord> {
        let mut added = Vec::new();
        for record in records.iter().map(with_time_of_id) {
            if record.at < self.pruned_until && (!has_price(&record) || self.removed.contains(&record.id)) {
                continue;
            }
            if let Entry::Vacant(place) = self.records.entry(record.id) {
                place.insert(record.clone().into_owned());
                added.push(record.into_owned());
            }
        }
        while self.records.len() > MAX_RECORDS {
            if let Some((first, _)) = self.records.pop_first() {
                self.booked.remove(&first);
            }
        }
        added
    }

    /// Notes the ledger's position after records were entered.
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

    pub(super) fn summary(&self, filter: &UsageFilter, by: SummaryBy) -> Vec<SummaryRow> {
        let mut sums: BTreeMap<String, SummaryRow> = BTreeMap::new();
        for record in self.records.values().filter(|record| filter.matches(record)) {
            let of = group(record, by);
            let sum = sums.entry(of.clone()).or_insert_with(|| SummaryRow { of, ..SummaryRow::default() });
            let tokens = &record.tokens;
            sum.requests += 1;
            sum.completed += u64::from(record.outcome == Outcome::Completed);
            sum.tokens_input += tokens.input + tokens.cache_read + tokens.cache_write + tokens.image + tokens.audio;
            sum.tokens_output += tokens.output + tokens.thinking;
            sum.sale = NanoUsd(sum.sale.0.saturating_add(record.sale.map_or(0, |sale| sale.0)));
            sum.cost = NanoUsd(sum.cost.0.saturating_add(record.cost.map_or(0, |cost| cost.0)));
            sum.unpriced += u64::from(record.sale.is_none());
        }
        if filter.key.is_none() && filter.member.is_none() && !matches!(by, SummaryBy::Key | SummaryBy::Member) {
            self.add_times(filter, by, &mut sums);
        }
        sums.into_values().collect()
    }

    /// Adds percentiles. As in databases, the five minutes at the ends of the range count as a whole.
    fn add_times(&self, filter: &UsageFilter, by: SummaryBy, sums: &mut BTreeMap<String, SummaryRow>) {
        let five_minutes = |at: i64| Timestamp(bucket(Timestamp(at), FIVE_MINUTES));
        let since = filter.since.map(|at| five_minutes(at.0));
        let until = filter.until.map(|at| five_minutes(at.0.saturating_add(FIVE_MINUTES - 1)));
        let filter = UsageFilter { since, until, ..filter.clone() };
        let mut times: HashMap<String, (Histogram, Histogram)> = HashMap::new();
        for record in self.records.values().filter(|record| filter.matches(record)) {
            let (ttft, duration) = times.entry(group(record, by)).or_default();
            duration.add(record.duration_us);
            if let Some(micros) = record.ttft_us {
                ttft.add(micros);
            }
        }
        for (of, sum) in sums {
            if let Some((ttft, duration)) = times.get(of) {
                (sum.ttft, sum.duration) = (Percentiles::of(ttft), Percentiles::of(duration));
            }
        }
    }
}

/// Dimensions under which a record is counted.
fn group(record: &UsageRecord, by: SummaryBy) -> String {
    match by {
        SummaryBy::Nothing => String::new(),
        SummaryBy::Day => day(record.at),
        SummaryBy::Hour => hour(record.at),
        SummaryBy::Model => record.group.and(record.model.clone()).unwrap_or_default(),
        SummaryBy::Key => record.key.to_string(),
        SummaryBy::Member => record.member.to_string(),
        SummaryBy::Group => record.group_name.clone().unwrap_or_default(),
        SummaryBy::Outcome => record.outcome.as_str().to_owned(),
    }
}
