//! Summaries that need records: the hours or days with matches are found in the roll-ups, and only records of these are read.

use sqlx::{AssertSqlSafe, Row as _, any::AnyRow};
use tollgate_core::Timestamp;

use super::{
    SUMMARY, SummaryQuery,
    ranges::{EndParts, SummarySource, TimeRange, minutes, split_range},
};
use crate::{
    StoreError,
    rollup::{MINUTE, bucket, next_bucket},
    sql::{
        packed_sums::CellTimes,
        store::SqlStore,
        sum_tables::{SumTable, USAGE_SUMS},
        tags::OTHER_VALUES,
        usage_filter::RefFilter,
    },
    usage::MAX_SUMMED_RECORDS,
};

/// Maximum number of times that are read separately. With more, everything between the first and the last is read.
const MAX_TIMES: usize = 50;

impl SqlStore {
    /// Finds the times with matches of a summary that reads records, and refuses it if these have too many records. False if there are
    /// none.
    pub(super) async fn find_matching_times(&self, query: &mut SummaryQuery<'_>, pruned_until: i64) -> Result<bool, StoreError> {
        // Of removed records only the sums are left.
        query.since = Some(query.since.map_or(Timestamp(pruned_until), |since| since.max(Timestamp(pruned_until))));
        // A day has few records of a key.
        let source = if query.filter.is_of_keys() { SummarySource::Days } else { SummarySource::Hours };
        let table = query.filter.times_table();
        let matching = self.requests_by_time(query, source, table, query.filter).await?;
        // Records of a key are found by an index; those of other filters are searched among all records of their time.
        let of_key = query.filter.keys.is_some();
        let all = if of_key {
            matching.clone()
        } else {
            self.requests_by_time(query, source, &USAGE_SUMS, &RefFilter::default()).await?
        };
        let mut times = joined(matching.iter().map(|(minute, _)| *minute), source.width() / MINUTE);
        if times.len() > MAX_TIMES || of_key {
            times = times.first().zip(times.last()).map(|((first, _), (_, end))| (*first, *end)).into_iter().collect();
        }
        let is_read = |minute: i64| times.iter().any(|(from, to)| (*from..*to).contains(&minute));
        let records: i64 = all.iter().filter(|(minute, _)| is_read(*minute)).map(|(_, requests)| requests).sum();
        if records > MAX_SUMMED_RECORDS {
            return Err(StoreError::TooManyRecords { records: records.unsigned_abs(), max: MAX_SUMMED_RECORDS.unsigned_abs() });
        }
        let within = |(from, to): &(i64, i64)| TimeRange {
            source: SummarySource::Records,
            from: Some(query.since.map_or(from * MINUTE, |since| since.0.max(from * MINUTE))),
            to: Some(query.until.map_or(to * MINUTE, |until| until.0.min(to * MINUTE))),
            is_subtracted: false,
        };
        query.matching = times.iter().map(within).collect();
        Ok(!times.is_empty())
    }

    /// The buckets in the range that have matches, with the number of these, in order.
    async fn requests_by_time(
        &self,
        query: &SummaryQuery<'_>,
        source: SummarySource,
        table: &'static SumTable,
        filter: &RefFilter,
    ) -> Result<Vec<(i64, i64)>, StoreError> {
        let range = TimeRange {
            source,
            from: query.since.map(|at| bucket(at, source.width())),
            to: query.until.map(|at| next_bucket(at.0, source.width())),
            is_subtracted: false,
        };
        if table.is_packed() {
            let times = CellTimes { width: source.width(), from: range.from.map(in_minutes), to: range.to.map(in_minutes) };
            return self.cells_by_time(SUMMARY, table, times, filter).await;
        }
        let sql = AssertSqlSafe(format!(
            "SELECT minute, CAST(SUM(requests) AS BIGINT) FROM {} WHERE {}{} GROUP BY minute ORDER BY minute",
            table.name,
            minutes(range),
            filter.sql_of_times(table)
        ));
        self.fetch_as(SUMMARY, sqlx::query(sql), |row: &AnyRow| Ok((row.try_get(0)?, row.try_get(1)?))).await
    }

    /// Whether requests in the range may have the filter's tag with a value that has no separate sums.
    pub(super) async fn has_values_without_sums(&self, query: &SummaryQuery<'_>) -> Result<bool, StoreError> {
        let Some(table) = query.table else { return Ok(false) };
        let tags: Vec<i64> = query.filter.tags.iter().filter_map(|tag| tag.tag).collect();
        // Records of less than five minutes count with these.
        let widened = |range: TimeRange| if range.source == SummarySource::Records { five_minutes_of(range) } else { range };
        let ranges = split_range(query.since, query.until, SummarySource::BY_MONTH, EndParts::Added).into_iter().map(widened);
        if table.is_packed() {
            let conditions = [("tag", [&[0], &*tags].concat()), ("value", vec![OTHER_VALUES])];
            let found = self.sums_that_meet(query, ranges.collect(), &conditions).await?;
            return Ok(found.iter().any(|(_, figures)| figures[0] > 0));
        }
        let columns = query.filter.sql_of_columns(table);
        let tags: Vec<String> = tags.iter().map(i64::to_string).collect();
        let part = |range: TimeRange| {
            format!(
                "SELECT CAST(1 AS BIGINT) AS found FROM {} WHERE {}{columns} AND tag IN (0, {}) AND value = {OTHER_VALUES}",
                table.name,
                minutes(range),
                tags.join(", ")
            )
        };
        let parts: Vec<String> = ranges.map(part).collect();
        let sql = AssertSqlSafe(format!("SELECT found FROM ({}) AS parts LIMIT 1", parts.join(" UNION ALL ")));
        let found: Vec<i64> = self.fetch_as(SUMMARY, sqlx::query(sql), |row| row.try_get(0)).await?;
        Ok(!found.is_empty())
    }
}

const fn in_minutes(at: i64) -> i64 {
    at / MINUTE
}

fn five_minutes_of(range: TimeRange) -> TimeRange {
    let width = SummarySource::FiveMinutes.width();
    TimeRange {
        source: SummarySource::FiveMinutes,
        from: range.from.map(|at| bucket(Timestamp(at), width)),
        to: range.to.map(|at| next_bucket(at, width)),
        ..range
    }
}

/// Buckets of a width in minutes, as ranges without gaps.
fn joined(begins: impl Iterator<Item = i64>, width: i64) -> Vec<(i64, i64)> {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for minute in begins {
        match ranges.last_mut() {
            Some((_, end)) if *end == minute => *end += width,
            _ => ranges.push((minute, minute + width)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_hours_are_one_range() {
        assert_eq!(joined([60, 120, 240, 300, 360].into_iter(), 60), [(60, 180), (240, 420)]);
        assert_eq!(joined(std::iter::empty(), 60), []);
    }
}
