//! The usage log in memory.

use std::collections::{BTreeMap, HashMap};

use tollgate_core::{NanoUsd, Outcome, RequestId, Timestamp, UsageRecord};

use crate::{
    Page, SortOrder, SummaryBy, SummaryRow, UsageCursor, UsageFilter,
    usage::{day, hour},
};

const MAX_RECORDS: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct MemoryUsageLog {
    records: BTreeMap<UsageCursor, UsageRecord>,
    arrivals: HashMap<RequestId, Timestamp>,
    /// Records that arrived before this time were pruned.
    pruned_until: Timestamp,
    /// The time of the log, see [`UsageStore::log_time`](crate::UsageStore::log_time).
    pub(super) time: Option<Timestamp>,
}

fn cursor(record: &UsageRecord) -> UsageCursor {
    UsageCursor { at: record.at, id: record.id }
}

impl MemoryUsageLog {
    /// Adds records and returns the new ones. A record of a pruned time is added only if it has a price and is not settled.
    pub(super) fn append<'a>(
        &mut self,
        records: &'a [UsageRecord],
        is_settled: impl Fn(&UsageRecord) -> bool,
    ) -> Vec<&'a UsageRecord> {
        let mut added = Vec::new();
        let has_price = |record: &UsageRecord| record.sale.is_some_and(|sale| sale != NanoUsd::ZERO);
        for record in records {
            if record.at < self.pruned_until && (!has_price(record) || is_settled(record)) {
                continue;
            }
            if self.arrivals.insert(record.id, record.at).is_none() {
                self.records.insert(cursor(record), record.clone());
                added.push(record);
            }
        }
        while self.records.len() > MAX_RECORDS {
            if let Some((first, _)) = self.records.pop_first() {
                self.arrivals.remove(&first.id);
            }
        }
        added
    }

    /// Removes the records that arrived before the UTC day of `before`.
    pub(super) fn prune(&mut self, before: Timestamp) -> u64 {
        let before = Timestamp::of_day(before.day());
        let first = UsageCursor { at: before, id: RequestId::from_parts(Timestamp::default(), [0; 10]) };
        let kept = self.records.split_off(&first);
        let old = std::mem::replace(&mut self.records, kept);
        for cursor in old.keys() {
            self.arrivals.remove(&cursor.id);
        }
        if !old.is_empty() {
            self.pruned_until = self.pruned_until.max(before);
        }
        old.len() as u64
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &UsageRecord> {
        self.records.values()
    }

    pub(super) fn find(&self, id: RequestId) -> Option<UsageRecord> {
        let at = *self.arrivals.get(&id)?;
        self.records.get(&UsageCursor { at, id }).cloned()
    }

    pub(super) fn has(&self, id: RequestId) -> bool {
        self.arrivals.contains_key(&id)
    }

    pub(super) fn page(&self, filter: &UsageFilter) -> Page<UsageRecord> {
        let size = filter.page_size() as usize;
        let is_after = |cursor: UsageCursor| match (filter.order, filter.after) {
            (_, None) => true,
            (SortOrder::Newest, Some(after)) => cursor < after,
            (SortOrder::Oldest, Some(after)) => cursor > after,
        };
        let wanted = |(cursor, record): &(&UsageCursor, &UsageRecord)| is_after(**cursor) && filter.matches(record);
        let items: Vec<UsageRecord> = match filter.order {
            SortOrder::Newest => {
                self.records.iter().rev().filter(wanted).take(size + 1).map(|(_, record)| record.clone()).collect()
            }
            SortOrder::Oldest => self.records.iter().filter(wanted).take(size + 1).map(|(_, record)| record.clone()).collect(),
        };
        Page::cut(items, size, cursor)
    }

    pub(super) fn summary(&self, filter: &UsageFilter, by: SummaryBy) -> Vec<SummaryRow> {
        let mut sums: BTreeMap<String, SummaryRow> = BTreeMap::new();
        // A filter names an existing model; a requested model that does not exist has no row of its own.
        let is_offered = |record: &&UsageRecord| filter.model.is_none() || record.group.is_some();
        for record in self.records.values().filter(|record| filter.matches(record)).filter(is_offered) {
            let of = match by {
                SummaryBy::Nothing => String::new(),
                SummaryBy::Day => day(record.at),
                SummaryBy::Hour => hour(record.at),
                SummaryBy::Model => record.group.and(record.model.clone()).unwrap_or_default(),
                SummaryBy::Key => record.key.to_string(),
                SummaryBy::Member => record.member.to_string(),
                SummaryBy::Group => record.group_name.clone().unwrap_or_default(),
                SummaryBy::Outcome => record.outcome.as_str().to_owned(),
            };
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
        sums.into_values().collect()
    }
}
