//! Sums over the usage log. Whole days, hours and five minutes come from the roll-ups, only the incomplete five minutes at both ends
//! from the records, so that a sum over a year costs little more than one over a day, and the busiest hour little more than a quiet
//! one. Sums of keys and members come from the sums of each key, all others from those over all keys, which also have percentiles.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
};

use futures_util::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Row as _, any::AnyRow};
use tollgate_core::{NanoUsd, Outcome, RequestId, Timestamp};

use super::{
    codes::Coded as _,
    dialect::Dialect,
    store::SqlStore,
    usage::IDS_AT_ONCE,
    usage_filter::{ArrivalRange, RefFilter, bind_ids},
};
use crate::{
    Percentiles, StoreError, SummaryBy, SummaryRow, UsageFilter,
    rollup::{DAY, FIVE_MINUTES, HOUR, Histogram, MINUTE, bucket},
    usage::{day, hour},
};

const SUMMARY: &str = "sum up the usage log";
const MAX_ROWS: usize = 10_000;

/// Tables from which a range of time is summed.
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

/// A summary to compute.
struct SummaryQuery<'a> {
    filter: &'a RefFilter,
    by: SummaryBy,
    /// The roll-up: `usage_sums` or `key_sums`.
    table: &'static str,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

/// Times to the first content and to the end, by group of a summary.
type TimesByGroup = HashMap<i64, (Histogram, Histogram)>;

impl SqlStore {
    pub(super) async fn summarise_usage(&self, filter: &UsageFilter, by: SummaryBy) -> Result<Vec<SummaryRow>, StoreError> {
        let refs = self.ref_filter(SUMMARY, filter).await?;
        if refs.selects_nothing() {
            return Ok(Vec::new());
        }
        let (since, until) = widen_to_pruned_hours(filter.since, filter.until, self.pruned_until().await?);
        let of_keys = refs.is_of_keys() || matches!(by, SummaryBy::Key | SummaryBy::Member);
        let table = if of_keys { "key_sums" } else { "usage_sums" };
        let query = SummaryQuery { filter: &refs, by, table, since, until };
        let (sql, ids) = query.sums();
        let rows = self.fetch_as(SUMMARY, bind_ids(sqlx::query(AssertSqlSafe(sql)), &ids), sum).await?;
        let mut times = if of_keys { TimesByGroup::new() } else { self.times(&query).await? };
        let labels = self.labels(by, rows.iter().map(|(group, _)| *group).collect()).await?;
        // Names of one key that was renamed have one id.
        let mut sums: BTreeMap<String, (SummaryRow, Histogram, Histogram)> = BTreeMap::new();
        for (group, row) in rows {
            let label = labels.get(&group).cloned().unwrap_or_default();
            let (sum, ttft, duration) = sums.entry(label).or_default();
            merge(sum, &row);
            if let Some((more_ttft, more_duration)) = times.remove(&group) {
                ttft.merge(&more_ttft);
                duration.merge(&more_duration);
            }
        }
        let done = |(of, (sum, ttft, duration)): (String, (SummaryRow, Histogram, Histogram))| SummaryRow {
            of,
            ttft: Percentiles::of(&ttft),
            duration: Percentiles::of(&duration),
            ..sum
        };
        Ok(sums.into_iter().map(done).collect())
    }

    /// The histograms of each group.
    async fn times(&self, query: &SummaryQuery<'_>) -> Result<TimesByGroup, StoreError> {
        let failed = |error| self.failed(SUMMARY, error);
        let mut times = TimesByGroup::new();
        for sql in query.times(self.dialect) {
            let mut rows = sqlx::query(AssertSqlSafe(sql)).fetch(&self.reader);
            while let Some(row) = rows.try_next().await.map_err(failed)? {
                let group: i64 = row.try_get(0).map_err(failed)?;
                let (ttft, duration) = times.entry(group).or_default();
                for (histogram, at) in [(ttft, 1), (duration, 2)] {
                    let list: Option<&str> = row.try_get(at).map_err(failed)?;
                    merge_list(histogram, list.unwrap_or_default());
                }
            }
        }
        Ok(times)
    }

    /// Names of a summary's groups.
    async fn labels(&self, by: SummaryBy, groups: BTreeSet<i64>) -> Result<HashMap<i64, String>, StoreError> {
        let computed = |label: fn(i64) -> String| groups.iter().map(|group| (*group, label(*group))).collect();
        match by {
            SummaryBy::Nothing => return Ok(HashMap::new()),
            SummaryBy::Day => return Ok(computed(|days| day(Timestamp(days.saturating_mul(DAY))))),
            SummaryBy::Hour => return Ok(computed(|hours| hour(Timestamp(hours.saturating_mul(HOUR))))),
            SummaryBy::Outcome => {
                return Ok(computed(|code| Outcome::of_code(code).map_or_else(String::new, |it| it.as_str().to_owned())));
            }
            SummaryBy::Model | SummaryBy::Key | SummaryBy::Member | SummaryBy::Group => {}
        }
        let names = self.names(SUMMARY, &groups).await?;
        if by == SummaryBy::Group {
            let ids = names.values().map(|(id, _)| id.clone()).collect();
            let current = self.group_names(ids).await?;
            let name = |(id, name): (String, String)| current.get(&id).cloned().unwrap_or(name);
            return Ok(names.into_iter().map(|(number, text)| (number, name(text))).collect());
        }
        let label = |(id, name): (String, String)| if by == SummaryBy::Model { name } else { id };
        Ok(names.into_iter().map(|(number, text)| (number, label(text))).collect())
    }

    /// The names of groups, including removed ones, by id.
    async fn group_names(&self, ids: BTreeSet<String>) -> Result<HashMap<String, String>, StoreError> {
        let ids: Vec<String> = ids.into_iter().collect();
        let mut names = HashMap::new();
        for ids in ids.chunks(IDS_AT_ONCE) {
            let sql = self.dialect.list("SELECT id, name FROM catalog_rows WHERE id IN (", ids.len(), ")");
            let query = ids.iter().fold(sqlx::query(sql), |query, id| query.bind(id.clone()));
            names.extend(self.fetch_as(SUMMARY, query, |row| Ok((row.try_get(0)?, row.try_get(1)?))).await?);
        }
        Ok(names)
    }
}

impl SummaryQuery<'_> {
    const fn sources(&self) -> &'static [SummarySource] {
        if matches!(self.by, SummaryBy::Hour) { BY_HOUR } else { BY_DAY }
    }

    /// The query for the sums by group, largest first, and the ids to bind.
    fn sums(&self) -> (String, Vec<RequestId>) {
        let mut sql = String::from(
            "SELECT CAST(k AS BIGINT), CAST(SUM(n) AS BIGINT), CAST(SUM(done) AS BIGINT), CAST(SUM(i) AS BIGINT), \
             CAST(SUM(o) AS BIGINT), CAST(SUM(s) AS BIGINT), CAST(SUM(c) AS BIGINT), CAST(SUM(u) AS BIGINT) FROM (",
        );
        let mut ids = Vec::new();
        let ranges = split_range(self.since, self.until, self.sources());
        for (index, range) in ranges.into_iter().flat_map(by_five_minutes).enumerate() {
            sql.push_str(if index == 0 { "" } else { " UNION ALL " });
            self.push_select(&mut sql, &mut ids, range);
        }
        write!(sql, ") AS parts GROUP BY 1 HAVING SUM(n) > 0 ORDER BY 2 DESC, 1 LIMIT {MAX_ROWS}")
            .expect("writing to a String cannot fail");
        (sql, ids)
    }

    /// Appends the `SELECT` of one range.
    fn push_select(&self, sql: &mut String, ids: &mut Vec<RequestId>, (source, from, to): TimeRange) {
        let conditions = self.filter.sql();
        if source == SummarySource::Records {
            let (range, bound) = ArrivalRange { from, to }.sql(ids.len() + 1);
            ids.extend(bound);
            let of = match self.by {
                // A range of records lies within five minutes.
                SummaryBy::Day | SummaryBy::Hour => {
                    let width = if self.by == SummaryBy::Day { DAY } else { HOUR };
                    from.or(to).map_or(0, |at| at.div_euclid(width)).to_string()
                }
                SummaryBy::Model => "COALESCE(model, 0)".to_owned(),
                SummaryBy::Group => "COALESCE(grp, 0)".to_owned(),
                SummaryBy::Nothing | SummaryBy::Key | SummaryBy::Member | SummaryBy::Outcome => self.group().to_owned(),
            };
            let sums = "COUNT(*) AS n, SUM(CASE WHEN outcome = 0 THEN 1 ELSE 0 END) AS done, \
                 SUM(tokens_input + tokens_cache_read + tokens_cache_write + tokens_image + tokens_audio) AS i, \
                 SUM(tokens_output + tokens_thinking) AS o, SUM(COALESCE(sale, 0)) AS s, SUM(COALESCE(cost, 0)) AS c, \
                 SUM(CASE WHEN sale IS NULL THEN 1 ELSE 0 END) AS u";
            let grouped = if matches!(self.by, SummaryBy::Nothing | SummaryBy::Day | SummaryBy::Hour) { "" } else { " GROUP BY 1" };
            write!(sql, "SELECT {of} AS k, {sums} FROM usage WHERE 1 = 1{range}{conditions}{grouped}")
        } else {
            let sums = "SUM(requests) AS n, SUM(CASE WHEN outcome = 0 THEN requests ELSE 0 END) AS done, SUM(tokens_input) AS i, \
                 SUM(tokens_output) AS o, SUM(sale) AS s, SUM(cost) AS c, SUM(unpriced) AS u";
            let grouped = self.grouped();
            let (of, table, times) = (self.group(), self.table, minutes(source, from, to));
            write!(sql, "SELECT {of} AS k, {sums} FROM {table} WHERE {times}{conditions}{grouped}")
        }
        .expect("writing to a String cannot fail");
    }

    /// The number that the rows of a roll-up are grouped by.
    const fn group(&self) -> &'static str {
        match self.by {
            SummaryBy::Nothing => "0",
            SummaryBy::Day => "minute / 1440",
            SummaryBy::Hour => "minute / 60",
            SummaryBy::Model => "model",
            SummaryBy::Key => "key",
            SummaryBy::Member => "member",
            SummaryBy::Group => "grp",
            SummaryBy::Outcome => "outcome",
        }
    }

    /// How the rows of a roll-up are grouped.
    const fn grouped(&self) -> &'static str {
        match self.by {
            // Grouping by a constant would sort every row.
            SummaryBy::Nothing => "",
            // In the order of the primary key, so that no row is sorted. Days and hours may have several minutes.
            SummaryBy::Day | SummaryBy::Hour => " GROUP BY minute",
            SummaryBy::Model | SummaryBy::Key | SummaryBy::Member | SummaryBy::Group | SummaryBy::Outcome => " GROUP BY 1",
        }
    }

    /// The queries for the histograms: group, times to the first content, times to the end. The ends are widened to five minutes.
    ///
    /// The histograms of a group are one list: a row for each takes longer to read than to sum up.
    fn times(&self, dialect: Dialect) -> Vec<String> {
        let since = self.since.map(|at| Timestamp(bucket(at, FIVE_MINUTES)));
        let until = self.until.map(|at| Timestamp(bucket(Timestamp(at.0.saturating_add(FIVE_MINUTES - 1)), FIVE_MINUTES)));
        let ranges = split_range(since, until, self.sources()).into_iter();
        let select = |(source, from, to): TimeRange| {
            let (of, times, conditions) = (self.group(), minutes(source, from, to), self.filter.sql());
            let (ttft, duration) = (dialect.hex_list("ttft"), dialect.hex_list("duration"));
            let grouped = self.grouped();
            format!("SELECT CAST({of} AS BIGINT), {ttft}, {duration} FROM usage_sums WHERE {times}{conditions}{grouped}")
        };
        ranges.filter(|(source, ..)| *source != SummarySource::Records).map(select).collect()
    }
}

/// The condition for the buckets of a range.
fn minutes(source: SummarySource, from: Option<i64>, to: Option<i64>) -> String {
    let mut sql = format!("width = {}", source.width() / MINUTE);
    for (at, than) in [(from, ">="), (to, "<")] {
        if let Some(at) = at {
            write!(sql, " AND minute {than} {}", at / MINUTE).expect("writing to a String cannot fail");
        }
    }
    sql
}

/// A range of records cut where five minutes end.
fn by_five_minutes((source, from, to): TimeRange) -> Vec<TimeRange> {
    if let (SummarySource::Records, Some(first), Some(last)) = (source, from, to) {
        let cut = bucket(Timestamp(last - 1), FIVE_MINUTES);
        if cut > first {
            return vec![(source, from, Some(cut)), (source, Some(cut), to)];
        }
    }
    vec![(source, from, to)]
}

/// Adds a list of histograms in hexadecimal digits. `verify` tells of damaged ones.
fn merge_list(histogram: &mut Histogram, list: &str) {
    let mut bytes = Vec::new();
    for digits in list.split(',') {
        bytes.resize(digits.len() / 2, 0);
        if hex::decode_to_slice(digits, &mut bytes).is_ok() {
            histogram.merge_encoded(&bytes);
        }
    }
}

fn merge(sum: &mut SummaryRow, more: &SummaryRow) {
    sum.requests += more.requests;
    sum.completed += more.completed;
    sum.tokens_input = sum.tokens_input.saturating_add(more.tokens_input);
    sum.tokens_output = sum.tokens_output.saturating_add(more.tokens_output);
    sum.sale = NanoUsd(sum.sale.0.saturating_add(more.sale.0));
    sum.cost = NanoUsd(sum.cost.0.saturating_add(more.cost.0));
    sum.unpriced += more.unpriced;
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

/// The group and its sums.
fn sum(row: &AnyRow) -> Result<(i64, SummaryRow), sqlx::Error> {
    let number = |at: usize| row.try_get::<i64, _>(at);
    let count = |at: usize| number(at).map(|value| u64::try_from(value).unwrap_or(0));
    let sums = SummaryRow {
        requests: count(1)?,
        completed: count(2)?,
        tokens_input: count(3)?,
        tokens_output: count(4)?,
        sale: NanoUsd(number(5)?),
        cost: NanoUsd(number(6)?),
        unpriced: count(7)?,
        ..SummaryRow::default()
    };
    Ok((number(0)?, sums))
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
        let (since, until) = (Some(Timestamp(7)), Some(Timestamp(3 * DAY + 5 * HOUR - 9)));
        let one = || Some(vec![1]);
        let filters = [
            RefFilter::default(),
            RefFilter { keys: one(), ..RefFilter::default() },
            RefFilter { members: one(), ..RefFilter::default() },
            RefFilter { groups: one(), ..RefFilter::default() },
            RefFilter { models: one(), ..RefFilter::default() },
            RefFilter { outcome: Some(0), ..RefFilter::default() },
            RefFilter { outcome: Some(3), ..RefFilter::default() },
        ];
        for filter in &filters {
            for by in [SummaryBy::Nothing, SummaryBy::Day, SummaryBy::Hour, SummaryBy::Key, SummaryBy::Group] {
                let of_keys = filter.is_of_keys() || by == SummaryBy::Key;
                let table = if of_keys { "key_sums" } else { "usage_sums" };
                let query = SummaryQuery { filter, by, table, since, until };
                let mut parts = 0;
                let times = if of_keys { Vec::new() } else { query.times(Dialect::Sqlite) };
                for sql in times.into_iter().chain([query.sums().0]) {
                    let mut statement = database.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
                    let mut rows = statement.raw_query();
                    while let Some(row) = rows.next().unwrap() {
                        let step: String = row.get(3).unwrap();
                        if step.contains("usage") || step.contains("key_sums") {
                            parts += 1;
                            let narrowed = step.contains("id>? AND id<?") || step.contains("minute>? AND minute<?");
                            assert!(step.starts_with("SEARCH ") && narrowed, "{filter:?} {by:?}: {step}");
                        }
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
