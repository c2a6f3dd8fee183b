//! Percentiles of sums that no roll-up has them for, from the latest of their records.

use std::collections::HashMap;

use tollgate_core::UsageRecord;

use crate::{Grouping, SortOrder, SummaryRow, UsageFilter, memory::groups_of, rollup::RequestTimes, usage::has_times};

/// The latest records that are read for percentiles.
const SAMPLED_RECORDS: u32 = 1_000;

/// The records to read for the percentiles of a summary; `None` if none are requested or roll-ups have them.
pub(crate) fn sample_of(filter: &UsageFilter, by: Grouping) -> Option<UsageFilter> {
    let is_wanted = !by.without_times && !has_times(filter, by);
    is_wanted.then(|| UsageFilter { order: SortOrder::Newest, after: None, limit: SAMPLED_RECORDS, ..filter.clone() })
}

/// Adds the percentiles of these records to the sums of their groups.
pub(crate) fn add_sampled_times(rows: &mut [SummaryRow], records: &[UsageRecord], by: Grouping) {
    let mut times: HashMap<(String, String), (RequestTimes, u64)> = HashMap::new();
    for record in records {
        let (times, count) = times.entry(groups_of(record, by)).or_default();
        times.add(record);
        *count += 1;
    }
    for row in rows {
        if let Some((times, sampled)) = times.get(&(row.of.clone(), row.and.clone())) {
            *row = SummaryRow { sampled: *sampled, ..std::mem::take(row).with_times(times) };
        }
    }
}
