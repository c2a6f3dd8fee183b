//! Sums over the usage log. Whole days and hours come from the roll-ups, only the incomplete hours at both ends from the records, so
//! that a sum over a year costs little more than one over a day.

use std::{collections::HashMap, fmt::Write as _};

use sqlx::{AssertSqlSafe, Row as _, any::AnyRow};
use tollgate_core::{NanoUsd, Timestamp};

use super::{
    store::SqlStore,
    usage::{IDS_AT_ONCE, WhereClause},
};
use crate::{
    StoreError, SummaryBy, SummaryRow, UsageFilter,
    rollup::{DAY, HOUR},
    usage::{day, hour},
};

const SUMMARY: &str = "sum up the usage log";
const MAX_ROWS: i64 = 10_000;

/// The table that a range of time is summed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SummarySource {
    Records,
    Hours,
    Days,
}

/// A range of time [from, to) in microseconds and its source; `None` is unbounded.
type TimeRange = (SummarySource, Option<i64>, Option<i64>);

impl SqlStore {
    pub(super) async fn summarise_usage(&self, filter: &UsageFilter, by: SummaryBy) -> Result<Vec<SummaryRow>, StoreError> {
        let failed = |error| self.failed(SUMMARY, error);
        let conditions = WhereClause::of(&UsageFilter { since: None, until: None, ..filter.clone() });
        let mut sql = String::from(
            "SELECT CAST(k AS TEXT), CAST(SUM(n) AS BIGINT), CAST(SUM(done) AS BIGINT), CAST(SUM(i) AS BIGINT), \
             CAST(SUM(o) AS BIGINT), CAST(SUM(s) AS BIGINT), CAST(SUM(c) AS BIGINT), CAST(SUM(u) AS BIGINT) FROM (",
        );
        let widest = if by == SummaryBy::Hour { SummarySource::Hours } else { SummarySource::Days };
        let (since, until) = widen_to_pruned_hours(filter.since, filter.until, self.pruned_until().await?);
        for (index, range) in split_range(since, until, widest).into_iter().enumerate() {
            sql.push_str(if index == 0 { "" } else { " UNION ALL " });
            push_select(&mut sql, range, by, filter, conditions.sql());
        }
        write!(sql, ") AS parts GROUP BY 1 HAVING SUM(n) > 0 ORDER BY 2 DESC, 1 LIMIT {MAX_ROWS}")
            .expect("writing to a String cannot fail");
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

/// Appends the `SELECT` of one range. Times are numbers in the text; texts are bound.
fn push_select(sql: &mut String, (source, from, to): TimeRange, by: SummaryBy, filter: &UsageFilter, conditions: &str) {
    let (table, at) = match source {
        SummarySource::Records => ("usage", "at"),
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
        SummarySource::Hours | SummarySource::Days => {
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
    write!(sql, "SELECT {of} AS k, {sums} FROM {table}{narrowed} GROUP BY 1").expect("writing to a String cannot fail");
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

/// Splits a range into whole days, whole hours and the incomplete hours at both ends. Uses no source wider than `widest`.
fn split_range(since: Option<Timestamp>, until: Option<Timestamp>, widest: SummarySource) -> Vec<TimeRange> {
    let (from, to) = (since.map(|at| at.0), until.map(|at| at.0));
    let up = |at: i64, width: i64| at.div_euclid(width).saturating_add(i64::from(at.rem_euclid(width) > 0)).saturating_mul(width);
    let down = |at: i64, width: i64| at.div_euclid(width) * width;
    let within = |from: Option<i64>, to: Option<i64>| from.is_none_or(|from| to.is_none_or(|to| from < to));
    let (first_hour, last_hour) = (from.map(|at| up(at, HOUR)), to.map(|at| down(at, HOUR)));
    if !within(first_hour, last_hour) {
        return vec![(SummarySource::Records, from, to)];
    }
    let (first_day, last_day) = (first_hour.map(|at| up(at, DAY)), last_hour.map(|at| down(at, DAY)));
    let mut ranges = Vec::new();
    let mut add = |source, from: Option<i64>, to: Option<i64>| {
        if from != to || from.is_none() {
            ranges.push((source, from, to));
        }
    };
    if from.is_some() {
        add(SummarySource::Records, from, first_hour);
    }
    if widest == SummarySource::Days && within(first_day, last_day) {
        if from.is_some() {
            add(SummarySource::Hours, first_hour, first_day);
        }
        add(SummarySource::Days, first_day, last_day);
        if to.is_some() {
            add(SummarySource::Hours, last_day, last_hour);
        }
    } else {
        add(SummarySource::Hours, first_hour, last_hour);
    }
    if to.is_some() {
        add(SummarySource::Records, last_hour, to);
    }
    ranges
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
    fn whole_days_and_hours_come_from_the_rollups() {
        let at = |days: i64, hours: i64, micros: i64| Some(Timestamp(days * DAY + hours * HOUR + micros));
        let cut = |since, until| {
            split_range(since, until, SummarySource::Days).into_iter().map(|(source, ..)| source).collect::<Vec<_>>()
        };
        assert_eq!(cut(None, None), [SummarySource::Days]);
        assert_eq!(cut(at(1, 0, 0), at(3, 0, 0)), [SummarySource::Days]);
        assert_eq!(cut(at(1, 2, 0), at(1, 5, 0)), [SummarySource::Hours]);
        assert_eq!(cut(at(1, 2, 7), at(1, 2, 9)), [SummarySource::Records]);
        assert_eq!(cut(at(1, 2, 7), None), [SummarySource::Records, SummarySource::Hours, SummarySource::Days]);
        let all = [SummarySource::Records, SummarySource::Hours, SummarySource::Days, SummarySource::Hours, SummarySource::Records];
        assert_eq!(cut(at(1, 2, 7), at(4, 5, 6)), all);
        let hours = split_range(at(1, 2, 7), at(4, 5, 6), SummarySource::Hours);
        assert_eq!(
            hours.iter().map(|(source, ..)| *source).collect::<Vec<_>>(),
            [SummarySource::Records, SummarySource::Hours, SummarySource::Records]
        );
        assert_eq!(split_range(None, None, SummarySource::Hours), [(SummarySource::Hours, None, None)]);
    }

    proptest! {
        /// Ranges of roll-ups also consist of whole buckets.
        #[test]
        fn split_ranges_cover_each_moment_once(since in 0..5 * DAY, length in 1..5 * DAY, by_hours: bool) {
            let until = since + length;
            let mut covered = since;
            let widest = if by_hours { SummarySource::Hours } else { SummarySource::Days };
            for (source, from, to) in split_range(Some(Timestamp(since)), Some(Timestamp(until)), widest) {
                prop_assert!(!by_hours || source != SummarySource::Days);
                let (from, to) = (from.unwrap(), to.unwrap());
                prop_assert_eq!(from, covered);
                prop_assert!(from < to);
                let width = match source { SummarySource::Records => 1, SummarySource::Hours => HOUR, SummarySource::Days => DAY };
                prop_assert!(from % width == 0 && to % width == 0);
                prop_assert!(source != SummarySource::Records || to - from < 2 * HOUR);
                covered = to;
            }
            prop_assert_eq!(covered, until);
        }
    }
}
