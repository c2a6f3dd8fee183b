//! Sums over the usage log. Whole days, hours and five minutes come from the roll-ups, only the incomplete five minutes at both ends
//! from the records, so that a sum over a year costs little more than one over a day, and the busiest hour little more than a quiet
//! one.

use std::{collections::HashMap, fmt::Write as _};

use sqlx::{AssertSqlSafe, Row as _, any::AnyRow};
use tollgate_core::{NanoUsd, Timestamp};

use super::{
    store::SqlStore,
    usage::{IDS_AT_ONCE, WhereClause},
};
use crate::{
    StoreError, SummaryBy, SummaryRow, UsageFilter,
    rollup::{DAY, FIVE_MINUTES, HOUR, bucket},
    usage::{day, hour},
};

const SUMMARY: &str = "sum up the usage log";
const MAX_ROWS: i64 = 10_000;

/// The table that a range of time is summed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SummarySource {
    Records,
    FiveMinutes,
    Hours,
    Days,
}

impl SummarySource {
    /// Microseconds of its buckets.
    const fn width(self) -> i64 {
        match self {
            Self::Records => 1,
            Self::FiveMinutes => FIVE_MINUTES,
            Self::Hours => HOUR,
            Self::Days => DAY,
        }
    }
}

const BY_HOUR: &[SummarySource] = &[SummarySource::Hours, SummarySource::FiveMinutes, SummarySource::Records];
const BY_DAY: &[SummarySource] = &[SummarySource::Days, SummarySource::Hours, SummarySource::FiveMinutes, SummarySource::Records];

/// A range of time [from, to) in microseconds and its source; `None` is unbounded.
type TimeRange = (SummarySource, Option<i64>, Option<i64>);

impl SqlStore {
    pub(super) async fn summarise_usage(&self, filter: &UsageFilter, by: SummaryBy) -> Result<Vec<SummaryRow>, StoreError> {
        let failed = |error| self.failed(SUMMARY, error);
        let (sql, conditions) = summary_query(filter, by, self.pruned_until().await?);
        let rows = conditions.bind(sqlx::query(AssertSqlSafe(sql))).fetch_all(&self.reader).await.map_err(failed)?;
        let mut sums = rows.iter().map(|row| sum(row, by)).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        if by == SummaryBy::Group {
            self.name_groups(&mut sums).await?;
        }
        sums.sort_by(|a, b| a.of.cmp(&b.of));
        Ok(sums)
    }

    /// Replaces group ids by names, including those of removed groups.
    async fn name_groups(&self, sums: &mut [SummaryRow]) -> Result<(), StoreError> {
        let failed = |error| self.failed(SUMMARY, error);
        let mut names: HashMap<String, String> = HashMap::new();
        for sums in sums.chunks(IDS_AT_ONCE) {
            let sql = self.dialect.list("SELECT id, name FROM catalog_rows WHERE id IN (", sums.len(), ")");
            let query = sums.iter().fold(sqlx::query(sql), |query, sum| query.bind(sum.of.clone()));
            for row in query.fetch_all(&self.reader).await.map_err(failed)? {
                names.insert(row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
            }
        }
        for sum in sums {
            if let Some(name) = names.remove(&sum.of) {
                sum.of = name;
            }
        }
        Ok(())
    }
}

/// The query for a summary, and the conditions to bind to it.
fn summary_query(filter: &UsageFilter, by: SummaryBy, pruned_until: i64) -> (String, WhereClause) {
    let conditions = WhereClause::of(&UsageFilter { since: None, until: None, ..filter.clone() });
    let mut sql = String::from(
        "SELECT CAST(k AS TEXT), CAST(SUM(n) AS BIGINT), CAST(SUM(done) AS BIGINT), CAST(SUM(i) AS BIGINT), \
         CAST(SUM(o) AS BIGINT), CAST(SUM(s) AS BIGINT), CAST(SUM(c) AS BIGINT), CAST(SUM(u) AS BIGINT) FROM (",
    );
    let sources = if by == SummaryBy::Hour { BY_HOUR } else { BY_DAY };
    let (since, until) = widen_to_pruned_hours(filter.since, filter.until, pruned_until);
    for (index, range) in split_range(since, until, sources).into_iter().enumerate() {
        sql.push_str(if index == 0 { "" } else { " UNION ALL " });
        push_select(&mut sql, range, by, filter, conditions.sql());
    }
    write!(sql, ") AS parts GROUP BY 1 HAVING SUM(n) > 0 ORDER BY 2 DESC, 1 LIMIT {MAX_ROWS}")
        .expect("writing to a String cannot fail");
    (sql, conditions)
}

/// Appends the `SELECT` of one range. Times are numbers in the text; texts are bound.
fn push_select(sql: &mut String, (source, from, to): TimeRange, by: SummaryBy, filter: &UsageFilter, conditions: &str) {
    let (table, at) = match source {
        SummarySource::Records => ("usage", "at"),
        SummarySource::FiveMinutes => ("usage_five_minutes", "bucket"),
        SummarySource::Hours => ("usage_hours", "bucket"),
        SummarySource::Days => ("usage_days", "bucket"),
    };
    let of = match (by, source) {
        (SummaryBy::Nothing, _) => "''",
        (SummaryBy::Day, SummarySource::Records) => "at / 86400000000",
        (SummaryBy::Day, _) => "bucket / 86400000000",
        (SummaryBy::Hour, SummarySource::Records) => "at / 3600000000",
        (SummaryBy::Hour, _) => "bucket / 3600000000",
        // As in the roll-ups: requests refused before a group was chosen have no model.
        (SummaryBy::Model, SummarySource::Records) => "CASE WHEN group_id IS NULL THEN '' ELSE COALESCE(model, '') END",
        (SummaryBy::Model, _) => "model",
        (SummaryBy::Key, _) => "key_id",
        (SummaryBy::Member, _) => "member_id",
        (SummaryBy::Group, SummarySource::Records) => "COALESCE(group_id, '')",
        (SummaryBy::Group, _) => "group_id",
        (SummaryBy::Outcome, _) => "outcome",
    };
    let sums = match source {
        SummarySource::Records => {
            "COUNT(*) AS n, SUM(CASE WHEN outcome = 'completed' THEN 1 ELSE 0 END) AS done, \
             SUM(tokens_input + tokens_cache_read + tokens_cache_write + tokens_image + tokens_audio) AS i, \
             SUM(tokens_output + tokens_thinking) AS o, SUM(COALESCE(sale, 0)) AS s, SUM(COALESCE(cost, 0)) AS c, \
             SUM(CASE WHEN sale IS NULL THEN 1 ELSE 0 END) AS u"
        }
        SummarySource::FiveMinutes | SummarySource::Hours | SummarySource::Days => {
            "SUM(requests) AS n, SUM(CASE WHEN outcome = 'completed' THEN requests ELSE 0 END) AS done, SUM(tokens_input) AS i, \
             SUM(tokens_output) AS o, SUM(sale) AS s, SUM(cost) AS c, SUM(unpriced) AS u"
        }
    };
    let mut narrowed = conditions.to_owned();
    let mut narrow = |fragment: String| {
        narrowed.push_str(if narrowed.is_empty() { " WHERE " } else { " AND " });
        narrowed.push_str(&fragment);
    };
    if let Some(from) = from {
        narrow(format!("{at} >= {from}"));
    }
    if let Some(to) = to {
        narrow(format!("{at} < {to}"));
    }
    if source == SummarySource::Records && filter.model.is_some() {
        narrow("group_id IS NOT NULL".to_owned());
    }
    let grouped = match (by, source) {
        // Grouping by a constant would sort every row.
        (SummaryBy::Nothing, _) => "",
        // In the order of the primary key, which needs no sorting.
        (SummaryBy::Day, SummarySource::Days) | (SummaryBy::Hour, SummarySource::Hours) => " GROUP BY bucket",
        _ => " GROUP BY 1",
    };
    write!(sql, "SELECT {of} AS k, {sums} FROM {table}{narrowed}{grouped}").expect("writing to a String cannot fail");
}

/// Widens ends before `pruned_until` to whole hours: of pruned records only the sums by hour are left.
fn widen_to_pruned_hours(
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    pruned_until: i64,
) -> (Option<Timestamp>, Option<Timestamp>) {
    let removed = |at: &Timestamp| at.0 < pruned_until;
    let widened = |at: Timestamp, to: i64| Timestamp((at.0 + to).div_euclid(HOUR) * HOUR);
    let since = since.map(|at| if removed(&at) { widened(at, 0) } else { at });
    let until = until.map(|at| if removed(&at) { widened(at, HOUR - 1) } else { at });
    (since, until)
}

/// Splits a range into whole buckets of the sources, which are ordered from the widest to the narrowest and end with the records.
fn split_range(since: Option<Timestamp>, until: Option<Timestamp>, sources: &[SummarySource]) -> Vec<TimeRange> {
    let mut ranges = Vec::new();
    push_ranges(&mut ranges, since.map(|at| at.0), until.map(|at| at.0), sources);
    ranges
}

/// Appends the whole buckets of the first source and, before and after them, the ranges of the others.
fn push_ranges(ranges: &mut Vec<TimeRange>, from: Option<i64>, to: Option<i64>, sources: &[SummarySource]) {
    let Some((source, narrower)) = sources.split_first() else { return };
    let width = source.width();
    let first = from.map(|from| bucket(Timestamp(from.saturating_add(width - 1)), width));
    let last = to.map(|to| bucket(Timestamp(to), width));
    let is_empty = first.is_some_and(|first| last.is_some_and(|last| first >= last));
    if is_empty && !narrower.is_empty() {
        return push_ranges(ranges, from, to, narrower);
    }
    if first != from {
        push_ranges(ranges, from, first, narrower);
    }
    ranges.push((*source, first, last));
    if last != to {
        push_ranges(ranges, last, to, narrower);
    }
}

fn sum(row: &AnyRow, by: SummaryBy) -> Result<SummaryRow, sqlx::Error> {
    let number = |i: usize| row.try_get::<i64, _>(i);
    let count = |i: usize| number(i).map(|value| u64::try_from(value).unwrap_or(0));
    let mut of: String = row.try_get(0)?;
    if matches!(by, SummaryBy::Day | SummaryBy::Hour) {
        let buckets: i64 = of.parse().map_err(|error: std::num::ParseIntError| sqlx::Error::Decode(error.into()))?;
        let begins = |width: i64| Timestamp(buckets.saturating_mul(width));
        of = if by == SummaryBy::Day { day(begins(DAY)) } else { hour(begins(HOUR)) };
    }
    Ok(SummaryRow {
        of,
        requests: count(1)?,
        completed: count(2)?,
        tokens_input: count(3)?,
        tokens_output: count(4)?,
        sale: NanoUsd(number(5)?),
        cost: NanoUsd(number(6)?),
        unpriced: count(7)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollgate_core::Outcome;

    use super::*;

    #[test]
    fn ends_before_the_pruning_limit_are_widened_to_whole_hours() {
        let at = |hours: i64, micros: i64| Some(Timestamp(hours * HOUR + micros));
        assert_eq!(widen_to_pruned_hours(at(5, 7), at(9, 7), 24 * HOUR), (at(5, 0), at(10, 0)));
        assert_eq!(widen_to_pruned_hours(at(5, 0), at(9, 0), 24 * HOUR), (at(5, 0), at(9, 0)));
        assert_eq!(widen_to_pruned_hours(at(5, 7), at(30, 7), 24 * HOUR), (at(5, 0), at(30, 7)));
        assert_eq!(widen_to_pruned_hours(at(25, 7), None, 24 * HOUR), (at(25, 7), None));
    }

    #[test]
    fn whole_days_hours_and_five_minutes_come_from_the_rollups() {
        use SummarySource::{Days, FiveMinutes, Hours, Records};
        let at = |days: i64, hours: i64, micros: i64| Some(Timestamp(days * DAY + hours * HOUR + micros));
        let cut = |since, until| split_range(since, until, BY_DAY).into_iter().map(|(source, ..)| source).collect::<Vec<_>>();
        assert_eq!(cut(None, None), [Days]);
        assert_eq!(cut(at(1, 0, 0), at(3, 0, 0)), [Days]);
        assert_eq!(cut(at(1, 2, 0), at(1, 5, 0)), [Hours]);
        assert_eq!(cut(at(1, 2, FIVE_MINUTES), at(1, 4, 5 * FIVE_MINUTES)), [FiveMinutes, Hours, FiveMinutes]);
        assert_eq!(cut(at(1, 2, 11 * FIVE_MINUTES), at(1, 3, FIVE_MINUTES)), [FiveMinutes], "across an hour");
        assert_eq!(cut(at(1, 2, 7), at(1, 2, 9)), [Records]);
        assert_eq!(cut(at(1, 2, 7), at(1, 2, FIVE_MINUTES + 9)), [Records], "two incomplete five minutes");
        assert_eq!(cut(at(1, 2, 7), None), [Records, FiveMinutes, Hours, Days]);
        assert_eq!(cut(at(1, 2, 7), at(4, 5, HOUR - 6)), [Records, FiveMinutes, Hours, Days, Hours, FiveMinutes, Records]);
        let hours = split_range(at(1, 2, 7), at(4, 5, 6), BY_HOUR);
        assert_eq!(hours.iter().map(|(source, ..)| *source).collect::<Vec<_>>(), [Records, FiveMinutes, Hours, Records]);
        assert_eq!(split_range(None, None, BY_HOUR), [(Hours, None, None)]);
        assert_eq!(cut(at(1, 2, 9), at(1, 2, 7)), [Records], "nothing, and a valid query");
    }

    #[test]
    fn every_part_of_a_range_is_found_by_an_index_with_its_time() {
        let database = rusqlite::Connection::open_in_memory().unwrap();
        for tables in [include_str!("../../migrations/0001_schema.sql"), include_str!("../../migrations/0001_usage.sqlite.sql")] {
            database.execute_batch(tables).unwrap();
        }
        let sample = crate::samples::record(1);
        let range =
            UsageFilter { since: Some(Timestamp(7)), until: Some(Timestamp(3 * DAY + 5 * HOUR - 9)), ..UsageFilter::default() };
        let filters = [
            range.clone(),
            UsageFilter { key: Some(sample.key), ..range.clone() },
            UsageFilter { member: Some(sample.member), ..range.clone() },
            UsageFilter { group: sample.group, ..range.clone() },
            UsageFilter { model: sample.model, ..range.clone() },
            UsageFilter { outcome: Some(Outcome::Completed), ..range.clone() },
            UsageFilter { outcome: Some(Outcome::Refused), ..range },
        ];
        for filter in filters {
            for by in [SummaryBy::Nothing, SummaryBy::Day, SummaryBy::Hour, SummaryBy::Key, SummaryBy::Group] {
                let (sql, _) = summary_query(&filter, by, 0);
                let mut statement = database.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
                let mut rows = statement.raw_query();
                let mut parts = 0;
                while let Some(row) = rows.next().unwrap() {
                    let step: String = row.get(3).unwrap();
                    if step.contains(" usage") {
                        parts += 1;
                        let narrowed = step.contains("at>? AND at<?") || step.contains("bucket>? AND bucket<?");
                        assert!(step.starts_with("SEARCH ") && narrowed, "{filter:?} {by:?}: {step}");
                    }
                }
                assert!(parts >= 5, "{parts} parts");
            }
        }
    }

    proptest! {
        /// Ranges of roll-ups also consist of whole buckets, and less than ten minutes are read from records.
        #[test]
        fn split_ranges_cover_each_moment_once(since in 0..5 * DAY, length in 1..5 * DAY, by_hours: bool) {
            let until = since + length;
            let (mut covered, mut records) = (since, 0);
            let sources = if by_hours { BY_HOUR } else { BY_DAY };
            for (source, from, to) in split_range(Some(Timestamp(since)), Some(Timestamp(until)), sources) {
                prop_assert!(!by_hours || source != SummarySource::Days);
                let (from, to) = (from.unwrap(), to.unwrap());
                prop_assert_eq!(from, covered);
                prop_assert!(from < to);
                prop_assert!(from % source.width() == 0 && to % source.width() == 0);
                records += if source == SummarySource::Records { to - from } else { 0 };
                covered = to;
            }
            prop_assert_eq!(covered, until);
            prop_assert!(records < 2 * FIVE_MINUTES);
        }
    }
}
