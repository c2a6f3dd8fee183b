//! Days that are finished but not exported, or exported without some of their records.
//!
//! A record can be booked long after its request arrived, because its node could not reach the database, or was off. So the number of
//! exported records of a day is compared with the number booked now, which the sums by day contain.

use std::collections::BTreeMap;

use tollgate_core::Timestamp;
use tollgate_store::{ExportedDay, Grouping, SortOrder, Store, StoreError, SummaryBy, UsageFilter};

use crate::time::parse_day;

const MINUTE_MS: i64 = 60_000;
/// Least time between two exports of a day for records that were booked late: a node that books a backlog of hours must not cause one
/// every minute.
const LATE_PAUSE_MS: i64 = 60 * MINUTE_MS;

/// A day with records that are not exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnexportedDay {
    /// UTC day, counted from 1970-01-01.
    pub day: i64,
    /// Records that are booked.
    pub booked: u64,
    /// Its latest export.
    pub exported: Option<ExportedDay>,
}

impl UnexportedDay {
    /// Whether the export waits for further late records.
    pub fn waits(&self, now: Timestamp) -> bool {
        // The clock of the node that exported it may be a little ahead.
        self.exported.is_some_and(|exported| now.ms_since(exported.at).abs() < LATE_PAUSE_MS)
    }
}

/// The first unfinished day. A day is finished so many minutes after its end.
pub fn first_unfinished(now: Timestamp, delay_minutes: u64) -> i64 {
    now.plus_ms(-i64::try_from(delay_minutes).unwrap_or(i64::MAX).saturating_mul(MINUTE_MS)).day()
}

/// The days before this one with records that are not exported, in order.
pub async fn unexported(store: &Store, until: i64) -> Result<Vec<UnexportedDay>, StoreError> {
    let oldest = UsageFilter { limit: 1, order: SortOrder::Oldest, ..UsageFilter::default() };
    let Some(first) = store.usage.page(&oldest).await?.items.first().map(|record| record.at.day()) else { return Ok(Vec::new()) };
    let mut days = of(store, first, until).await?;
    days.retain(|day| day.exported.is_none_or(|exported| exported.records < day.booked));
    Ok(days)
}

/// The days from `first` until before `until` with records that are or were in the log, in order, whether or not they are exported.
pub async fn of(store: &Store, first: i64, until: i64) -> Result<Vec<UnexportedDay>, StoreError> {
    if first >= until {
        return Ok(Vec::new());
    }
    let (since, before) = (Timestamp::of_day(first), Timestamp::of_day(until));
    let filter = UsageFilter { since: Some(since), until: Some(before), ..UsageFilter::default() };
    let sums = store.usage.summary(&filter, Grouping::from(SummaryBy::Day).without_times()).await?;
    let booked: BTreeMap<i64, u64> = sums.iter().filter_map(|row| Some((parse_day(&row.of)?, row.requests))).collect();
    let exported: BTreeMap<i64, ExportedDay> =
        store.exports.exported_days(first).await?.into_iter().map(|day| (day.day, day)).collect();
    let of = |(day, booked)| UnexportedDay { day, booked, exported: exported.get(&day).copied() };
    Ok(booked.into_iter().filter(|(_, booked)| *booked > 0).map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_is_finished_after_the_configured_delay() {
        let midnight = Timestamp::of_day(100);
        assert_eq!(first_unfinished(midnight, 0), 100);
        assert_eq!(first_unfinished(Timestamp(midnight.0 - 1), 0), 99);
        assert_eq!(first_unfinished(midnight.plus_ms(59 * MINUTE_MS), 60), 99);
        assert_eq!(first_unfinished(midnight.plus_ms(60 * MINUTE_MS), 60), 100);
        assert!(first_unfinished(midnight, u64::MAX) < 0, "no record is as old as the longest delay");
    }

    #[test]
    fn day_with_late_records_is_exported_again_after_a_pause() {
        let at = Timestamp::of_day(101);
        let exported = Some(ExportedDay { day: 100, records: 5, files: 1, bytes: 9, at });
        let day = UnexportedDay { day: 100, booked: 6, exported };
        assert!(day.waits(at) && day.waits(at.plus_ms(LATE_PAUSE_MS - 1)) && !day.waits(at.plus_ms(LATE_PAUSE_MS)));
        assert!(day.waits(at.plus_ms(-1)), "another clock is a little ahead");
        assert!(!day.waits(at.plus_ms(-LATE_PAUSE_MS)), "a clock was wrong");
        assert!(!UnexportedDay { exported: None, ..day }.waits(at));
    }
}
