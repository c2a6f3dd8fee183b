//! Sums over the usage log. Whole months, days, hours and five minutes come from the roll-ups, only the incomplete five minutes at both
//! ends from the records, so that a sum over a year costs little more than one over a day, and the busiest hour little more than a quiet
//! one. Sums of keys and members come from the sums of each key, sums of accounts from those of each account, all others from those
//! over all keys, which also have percentiles. What no roll-up tells is summed from the records, of which there is a bound.

mod labels;
mod ranges;

use std::{collections::BTreeMap, fmt::Write as _};

use futures_util::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Row as _, any::AnyRow};
use tollgate_core::{NanoUsd, RequestId, Timestamp};

use super::{
    dialect::Dialect,
    store::SqlStore,
    usage_filter::{ArrivalRange, RefFilter, bind_ids},
};
use crate::{
    Grouping, StoreError, SummaryBy, SummaryRow, UsageFilter,
    rollup::{FIVE_MINUTES, MINUTE, MONTH, RequestTimes, bucket, next_bucket},
    usage::{MAX_SUMMED_RECORDS, SumsOf},
};
use labels::Labels;
use ranges::{SummarySource, TimeRange, cut_buckets, minutes, split_range, widen_to_pruned_hours};

const SUMMARY: &str = "sum up the usage log";
const MAX_ROWS: usize = 10_000;

/// The figures of a summary, as sums over rows of a roll-up and over records.
const FIGURES: [(&str, &str); 13] = [
    ("SUM(requests)", "COUNT(*)"),
    ("SUM(CASE WHEN outcome = 0 THEN requests ELSE 0 END)", "SUM(CASE WHEN outcome = 0 THEN 1 ELSE 0 END)"),
    ("SUM(tokens_input)", "SUM(tokens_input + tokens_cache_read + tokens_cache_write + tokens_image + tokens_audio)"),
    ("SUM(tokens_output)", "SUM(tokens_output + tokens_thinking)"),
    ("SUM(tokens_cache_read)", "SUM(tokens_cache_read)"),
    ("SUM(tokens_cache_write)", "SUM(tokens_cache_write)"),
    ("SUM(tokens_cache_write_1h)", "SUM(tokens_cache_write_1h)"),
    ("SUM(tokens_thinking)", "SUM(tokens_thinking)"),
    ("SUM(tokens_image)", "SUM(tokens_image)"),
    ("SUM(tokens_audio)", "SUM(tokens_audio)"),
    ("SUM(sale)", "SUM(COALESCE(sale, 0))"),
    ("SUM(cost)", "SUM(COALESCE(cost, 0))"),
    ("SUM(unpriced)", "SUM(CASE WHEN sale IS NULL THEN 1 ELSE 0 END)"),
];

/// A summary to compute.
struct SummaryQuery<'a> {
    dialect: Dialect,
    filter: &'a RefFilter,
    by: Grouping,
    of: SumsOf,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

/// Numbers of the groups of a row.
type GroupRefs = (i64, i64);

impl SqlStore {
    pub(super) async fn summarise_usage(&self, filter: &UsageFilter, by: Grouping) -> Result<Vec<SummaryRow>, StoreError> {
        let refs = self.ref_filter(SUMMARY, filter).await?;
        if refs.selects_nothing() {
            return Ok(Vec::new());
        }
        let (since, until) = widen_to_pruned_hours(filter.since, filter.until, self.pruned_until().await?);
        let mut query = SummaryQuery {
            dialect: self.dialect,
            filter: &refs,
            by: without_wider_time(by),
            of: SumsOf::of(filter, by),
            since,
            until,
        };
        if query.of == SumsOf::Records && !self.bound_records(&mut query).await? {
            return Ok(Vec::new());
        }
        let (sql, ids) = query.sums();
        let statement = bind_ids(sqlx::query(AssertSqlSafe(sql)), &ids);
        let rows = self.fetch_as(SUMMARY, statement, sum).await?;
        let mut times = if query.of == SumsOf::AllKeys { self.times(&query).await? } else { BTreeMap::new() };
        // The groups as the query has them, and as they were asked for.
        let rows: Vec<(GroupRefs, GroupRefs, SummaryRow)> =
            rows.into_iter().map(|(groups, row)| (groups, with_wider_time(by, groups), row)).collect();
        let first = self.labels(by.first, rows.iter().map(|(_, (first, _), _)| *first).collect()).await?;
        let second = self.labels(by.second, rows.iter().map(|(_, (_, second), _)| *second).collect()).await?;
        // Names of one key that was renamed have one id.
        let mut sums: BTreeMap<(String, String), (SummaryRow, RequestTimes)> = BTreeMap::new();
        let label = |labels: &Labels, group: i64| labels.get(&group).cloned().unwrap_or_default();
        for (groups, wanted, row) in rows {
            let (sum, sum_times) = sums.entry((label(&first, wanted.0), label(&second, wanted.1))).or_default();
            sum.add(&row);
            if let Some(more) = times.remove(&groups) {
                sum_times.merge(&more);
            }
        }
        let done = |((of, and), (sum, times)): ((String, String), (SummaryRow, RequestTimes))| {
            SummaryRow { of, and, ..sum }.with_times(&times)
        };
        Ok(sums.into_iter().map(done).collect())
    }

    /// Narrows a summary that reads records to the times that have matches, and refuses it if these have too many. False if there are
    /// none.
    async fn bound_records(&self, query: &mut SummaryQuery<'_>) -> Result<bool, StoreError> {
        let table = query.filter.times_table();
        let conditions = query.filter.sql_of_sums(table);
        let since = query.since.map(|at| Timestamp(bucket(at, FIVE_MINUTES)));
        let until = query.until.map(|at| Timestamp(next_bucket(at.0, FIVE_MINUTES)));
        let (mut records, mut first, mut end) = (0_i64, i64::MAX, i64::MIN);
        for (source, from, to) in split_range(since, until, SummarySource::BY_DAY) {
            if source == SummarySource::Records {
                continue;
            }
            let times = minutes(source, from, to);
            let sql = format!(
                "SELECT CAST(SUM(requests) AS BIGINT), CAST(MIN(minute) AS BIGINT), CAST(MAX(minute) AS BIGINT) FROM {table} \
                 WHERE {times}{conditions} HAVING COUNT(*) > 0"
            );
            let read = |row: &AnyRow| Ok((row.try_get::<i64, _>(0)?, row.try_get::<i64, _>(1)?, row.try_get::<i64, _>(2)?));
            for (count, from, to) in self.fetch_as(SUMMARY, sqlx::query(AssertSqlSafe(sql)), read).await? {
                records = records.saturating_add(count);
                (first, end) = (first.min(from * MINUTE), end.max(to * MINUTE + source.width()));
            }
        }
        if records > MAX_SUMMED_RECORDS {
            return Err(StoreError::TooManyRecords { records: records.unsigned_abs(), max: MAX_SUMMED_RECORDS.unsigned_abs() });
        }
        query.since = Some(query.since.map_or(Timestamp(first), |since| since.max(Timestamp(first))));
        query.until = Some(query.until.map_or(Timestamp(end), |until| until.min(Timestamp(end))));
        Ok(records > 0)
    }

    /// The histograms of each group.
    async fn times(&self, query: &SummaryQuery<'_>) -> Result<BTreeMap<GroupRefs, RequestTimes>, StoreError> {
        let failed = |error| self.failed(SUMMARY, error);
        let mut times: BTreeMap<GroupRefs, RequestTimes> = BTreeMap::new();
        for sql in query.times() {
            let mut rows = sqlx::query(AssertSqlSafe(sql)).fetch(&self.reader);
            while let Some(row) = rows.try_next().await.map_err(failed)? {
                let groups = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
                for (at, histogram) in (2..).zip(times.entry(groups).or_default().each_mut()) {
                    let list: Option<&str> = row.try_get(at).map_err(failed)?;
                    histogram.merge_hex_list(list.unwrap_or_default());
                }
            }
        }
        Ok(times)
    }
}

impl SummaryQuery<'_> {
    const fn table(&self) -> &'static str {
        match self.of {
            SumsOf::AllKeys => "usage_sums",
            SumsOf::EachKey => "key_sums",
            SumsOf::EachAccount => "account_sums",
            SumsOf::Records => "usage",
        }
    }

    /// The columns of the roll-up's primary key behind the width, as far as grouping in their order saves sorting its rows.
    const fn key_columns(&self) -> &'static [&'static str] {
        match self.of {
            SumsOf::AllKeys => &["minute", "grp", "model", "channel"],
            SumsOf::EachKey => &["minute", "key", "member", "grp", "model", "channel"],
            SumsOf::EachAccount => &["minute", "account", "grp", "model", "channel"],
            SumsOf::Records => &[],
        }
    }

    fn sources(&self) -> &'static [SummarySource] {
        let has = |by| self.by.has(|it| it == by);
        if self.of == SumsOf::Records {
            SummarySource::BY_RECORD
        } else if has(SummaryBy::FiveMinutes) {
            SummarySource::BY_FIVE_MINUTES
        } else if has(SummaryBy::Hour) {
            SummarySource::BY_HOUR
        } else if has(SummaryBy::Day) || (self.filter.is_of_keys() && !has(SummaryBy::Month)) {
            // The sums of one key by days have an index.
            SummarySource::BY_DAY
        } else {
            SummarySource::BY_MONTH
        }
    }

    /// The ranges to sum up: each of one bucket of the grouping by time where that is wider than the source.
    fn ranges(&self, since: Option<Timestamp>, until: Option<Timestamp>) -> Vec<TimeRange> {
        let cut = |range| cut_buckets(range, self.by, self.of == SumsOf::Records);
        split_range(since, until, self.sources()).into_iter().flat_map(cut).collect()
    }

    /// The query for the sums by group, largest first, and the ids to bind. A row is one text, which takes less time to read than
    /// fifteen numbers.
    fn sums(&self) -> (String, Vec<RequestId>) {
        let outer: Vec<String> = (0..FIGURES.len()).map(|at| format!("SUM(f{at})")).collect();
        let columns: Vec<&str> = ["k", "l"].into_iter().chain(outer.iter().map(String::as_str)).collect();
        let mut sql = format!("SELECT {} FROM (", self.dialect.joined_numbers(&columns));
        let mut ids = Vec::new();
        for (index, range) in self.ranges(self.since, self.until).into_iter().enumerate() {
            sql.push_str(if index == 0 { "" } else { " UNION ALL " });
            self.push_select(&mut sql, &mut ids, range);
        }
        write!(sql, ") AS parts GROUP BY k, l HAVING SUM(f0) > 0 ORDER BY SUM(f0) DESC, k, l LIMIT {MAX_ROWS}")
            .expect("writing to a String cannot fail");
        (sql, ids)
    }

    /// Appends the `SELECT` of one range.
    fn push_select(&self, sql: &mut String, ids: &mut Vec<RequestId>, range: TimeRange) {
        let (source, from, to) = range;
        let is_of_records = source == SummarySource::Records;
        let (first, second) = (self.group(self.by.first, range), self.group(self.by.second, range));
        write!(sql, "SELECT {first} AS k, {second} AS l").expect("writing to a String cannot fail");
        for (at, (of_sums, of_records)) in FIGURES.iter().enumerate() {
            let figure = if is_of_records { of_records } else { of_sums };
            write!(sql, ", {figure} AS f{at}").expect("writing to a String cannot fail");
        }
        if is_of_records {
            let (times, bound) = ArrivalRange { from, to }.sql(ids.len() + 1);
            ids.extend(bound);
            write!(sql, " FROM usage WHERE 1 = 1{times}{}{}", self.filter.sql(), self.grouped(range, true))
        } else {
            let (table, times) = (self.table(), minutes(source, from, to));
            write!(sql, " FROM {table} WHERE {times}{}{}", self.filter.sql_of_sums(table), self.grouped(range, true))
        }
        .expect("writing to a String cannot fail");
    }

    /// The number that the rows of a range are grouped by; of a time its beginning, in minutes since 1970.
    fn group(&self, by: SummaryBy, (source, from, to): TimeRange) -> String {
        if by == SummaryBy::Nothing {
            return "0".to_owned();
        }
        let is_of_records = source == SummarySource::Records;
        let Some(width) = ranges::width_of(by) else {
            let column = column_of(by);
            return if is_of_records { format!("COALESCE({column}, 0)") } else { column.to_owned() };
        };
        let minute = match source {
            // Such a range lies within one bucket.
            SummarySource::Records if self.of != SumsOf::Records => return literal(width, from, to),
            SummarySource::Months => return "minute".to_owned(),
            _ if width == MONTH => return literal(width, from, to),
            SummarySource::Records => self.dialect.arrival_minute(),
            SummarySource::FiveMinutes | SummarySource::Hours | SummarySource::Days => "minute".to_owned(),
        };
        if source.width() == width { minute } else { format!("({minute} - {minute} % {})", width / MINUTE) }
    }

    /// How the rows of a range are grouped. In the order of the primary key no row is sorted; `k` and `l` may then have several groups.
    fn grouped(&self, range: TimeRange, in_order: bool) -> String {
        let constant = |by: SummaryBy| (by == SummaryBy::Nothing || by.is_time()) && self.group(by, range).parse::<i64>().is_ok();
        if constant(self.by.first) && constant(self.by.second) {
            // Grouping by a constant would sort every row.
            return String::new();
        }
        let columns = self.key_columns();
        let place = |by: SummaryBy| {
            if constant(by) {
                Some(0)
            } else if by.is_time() {
                columns.first().map(|_| 0)
            } else {
                columns.iter().position(|column| *column == column_of(by))
            }
        };
        match (place(self.by.first), place(self.by.second)) {
            (Some(one), Some(other)) if in_order && range.0 != SummarySource::Records => {
                format!(" GROUP BY {}", columns[..=one.max(other)].join(", "))
            }
            _ => " GROUP BY 1, 2".to_owned(),
        }
    }

    /// The queries for the histograms: groups, times to the first content, times to the end, own times. The ends are widened to five
    /// minutes.
    ///
    /// The histograms of a group are one list: a row for each takes longer to read than to sum up.
    fn times(&self) -> Vec<String> {
        let since = self.since.map(|at| Timestamp(bucket(at, FIVE_MINUTES)));
        let until = self.until.map(|at| Timestamp(next_bucket(at.0, FIVE_MINUTES)));
        let select = |range: TimeRange| {
            let (source, from, to) = range;
            let (first, second) = (self.group(self.by.first, range), self.group(self.by.second, range));
            let (times, conditions) = (minutes(source, from, to), self.filter.sql_of_sums(self.table()));
            let lists = ["ttft", "duration", "overhead"].map(|column| self.dialect.hex_list(column)).join(", ");
            let grouped = self.grouped(range, self.by.has(SummaryBy::is_time));
            format!(
                "SELECT CAST({first} AS BIGINT), CAST({second} AS BIGINT), {lists} FROM usage_sums WHERE {times}{conditions}{grouped}"
            )
        };
        self.ranges(since, until).into_iter().filter(|(source, ..)| *source != SummarySource::Records).map(select).collect()
    }
}

/// Of two groupings by time the narrower one, which tells the other.
fn without_wider_time(by: Grouping) -> Grouping {
    match (ranges::width_of(by.first), ranges::width_of(by.second)) {
        (Some(first), Some(second)) if first > second => Grouping { first: SummaryBy::Nothing, ..by },
        (Some(_), Some(_)) => Grouping { second: SummaryBy::Nothing, ..by },
        _ => by,
    }
}

/// The groups of a row of a query [`without_wider_time`].
fn with_wider_time(by: Grouping, groups: GroupRefs) -> GroupRefs {
    let begin = |minute: i64, width: i64| bucket(Timestamp(minute.saturating_mul(MINUTE)), width) / MINUTE;
    match (ranges::width_of(by.first), ranges::width_of(by.second)) {
        (Some(first), Some(second)) if first > second => (begin(groups.1, first), groups.1),
        (Some(_), Some(second)) => (groups.0, begin(groups.0, second)),
        _ => groups,
    }
}

/// The column of a grouping that is none by time.
const fn column_of(by: SummaryBy) -> &'static str {
    match by {
        SummaryBy::Nothing | SummaryBy::Month | SummaryBy::Day | SummaryBy::Hour | SummaryBy::FiveMinutes => "minute",
        SummaryBy::Model => "model",
        SummaryBy::Key => "key",
        SummaryBy::Member => "member",
        SummaryBy::Group => "grp",
        SummaryBy::Channel => "channel",
        SummaryBy::Account => "account",
        SummaryBy::Protocol => "protocol_in",
        SummaryBy::Outcome => "outcome",
        SummaryBy::Reason => "reason",
    }
}

fn literal(width: i64, from: Option<i64>, to: Option<i64>) -> String {
    let at = from.or(to.map(|to| to - 1)).unwrap_or(0);
    (bucket(Timestamp(at), width) / MINUTE).to_string()
}

/// The groups and their sums.
fn sum(row: &AnyRow) -> Result<(GroupRefs, SummaryRow), sqlx::Error> {
    let text: &str = row.try_get(0)?;
    let mut numbers = text.split(',').map(str::parse::<i64>);
    let mut number = || match numbers.next() {
        Some(Ok(number)) => Ok(number),
        Some(Err(error)) => Err(sqlx::Error::Decode(error.into())),
        None => Err(sqlx::Error::Decode("the sums have too few numbers".into())),
    };
    let groups = (number()?, number()?);
    let mut count = || number().map(|value| u64::try_from(value).unwrap_or(0));
    let mut sums = SummaryRow {
        requests: count()?,
        completed: count()?,
        tokens_input: count()?,
        tokens_output: count()?,
        tokens_cache_read: count()?,
        tokens_cache_write: count()?,
        tokens_cache_write_1h: count()?,
        tokens_thinking: count()?,
        tokens_image: count()?,
        tokens_audio: count()?,
        ..SummaryRow::default()
    };
    (sums.sale, sums.cost) = (NanoUsd(number()?), NanoUsd(number()?));
    sums.unpriced = number().map(|value| u64::try_from(value).unwrap_or(0))?;
    Ok((groups, sums))
}

#[cfg(test)]
mod tests;
