//! Sums over the usage log. Whole months, days, hours and five minutes come from the roll-ups, and only the incomplete five minutes at
//! both ends from the records. So a sum over a year costs little more than one over a day, and one over the busiest hour little more than
//! over a quiet one. Filter and grouping decide which roll-up is used ([`tables`]); those over all keys also have percentiles. If no
//! roll-up has the needed columns, a bounded number of records is summed ([`matching`]).

mod key_use;
pub(super) mod labels;
mod largest;
mod last_requests;
#[cfg(test)]
mod many_groups;
mod matching;
mod packed;
mod ranges;
mod rows;
mod tables;

use std::{collections::BTreeMap, fmt::Write as _};

use sqlx::{AssertSqlSafe, any::AnyRow};
use tollgate_core::{NanoUsd, RequestId, Timestamp};

use super::{
    columns::{Column, ColumnKind},
    dialect::{Dialect, read_joined_numbers},
    group_sums::{GroupFigures, GroupRefs, LEFT},
    names::NameKind,
    store::SqlStore,
    sum_tables::SumTable,
    tags::OTHER_VALUES,
    usage_filter::{ArrivalRange, RefFilter, bind_ids},
};
use crate::{
    Grouping, StoreError, Summary, SummaryBy, SummaryFigure, SummaryRow, UsageFilter, UsageStore as _,
    rollup::{MINUTE, MONTH, bucket},
    sampled_times::{add_sampled_times, sample_of},
    usage::has_times,
};
pub(super) use key_use::KeysByNumber;
use labels::Labels;
use ranges::{EndParts, SummarySource, TimeRange, cut_buckets, minutes, split_range, widen_to_pruned_hours};
use rows::{EncodedTimes, TimesByGroup, merged};

const SUMMARY: &str = "sum up the usage log";
const MAX_ROWS: usize = 10_000;

/// The figures of a summary, as sums over rows of a roll-up, and of a record.
const FIGURES: [(&str, &str); 14] = [
    ("SUM(requests)", "1"),
    ("SUM(CASE WHEN outcome = 0 THEN requests ELSE 0 END)", "CASE WHEN outcome = 0 THEN 1 ELSE 0 END"),
    ("SUM(tokens_input)", "tokens_input + tokens_cache_read + tokens_cache_write + tokens_image + tokens_audio"),
    ("SUM(tokens_output)", "tokens_output + tokens_thinking"),
    ("SUM(tokens_cache_read)", "tokens_cache_read"),
    ("SUM(tokens_cache_write)", "tokens_cache_write"),
    ("SUM(tokens_cache_write_1h)", "tokens_cache_write_1h"),
    ("SUM(tokens_thinking)", "tokens_thinking"),
    ("SUM(tokens_image)", "tokens_image"),
    ("SUM(tokens_audio)", "tokens_audio"),
    ("SUM(sale)", "COALESCE(sale, 0)"),
    ("SUM(cost)", "COALESCE(cost, 0)"),
    ("SUM(unpriced)", "CASE WHEN sale IS NULL THEN 1 ELSE 0 END"),
    ("SUM(CASE WHEN outcome IN (1, 4) THEN requests ELSE 0 END)", "CASE WHEN outcome IN (1, 4) THEN 1 ELSE 0 END"),
];

/// A summary to compute.
struct SummaryQuery<'a> {
    dialect: Dialect,
    filter: &'a RefFilter,
    by: Grouping,
    /// The table that has the sums; `None` if only the records have them.
    table: Option<&'static SumTable>,
    /// The numbers of the tags that are grouped by first and second; 0 for one that no sums have.
    tags: [i64; 2],
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    /// The times with matches, if the sums are read from records.
    matching: Vec<TimeRange>,
    /// Maximum number of groups, of packed sums.
    most: usize,
}

impl SqlStore {
    pub(super) async fn summarise_usage(&self, filter: &UsageFilter, by: Grouping) -> Result<Summary, StoreError> {
        let refs = self.ref_filter(SUMMARY, filter).await?;
        if refs.selects_nothing() {
            return Ok(Summary::default());
        }
        let pruned_until = self.pruned_until().await?;
        let (since, until) = widen_to_pruned_hours(filter.since, filter.until, pruned_until);
        let mut query = SummaryQuery {
            dialect: self.dialect,
            filter: &refs,
            by: without_wider_time(by),
            table: tables::choose(&refs, by, &filter.tags),
            tags: [self.tag_number(by.first).await?, self.tag_number(by.second).await?],
            since,
            until,
            matching: Vec::new(),
            most: MAX_ROWS,
        };
        if !refs.tags.is_empty() && query.table.is_some() && self.has_values_without_sums(&query).await? {
            query.table = None;
        }
        if query.table.is_none() && !self.find_matching_times(&mut query, pruned_until).await? {
            return Ok(Summary::default());
        }
        let times = async { if has_times(filter, by) { self.times(&query).await } else { Ok(TimesByGroup::default()) } };
        let (rows, mut times) = tokio::try_join!(self.sums(&query), times)?;
        let all = rows.len();
        let rows = self.possibly_largest(by, rows).await?;
        let left_out = all - rows.len();
        let rows = rows.into_iter().map(|(groups, figures)| (groups, summary_row(&figures)));
        // The groups of the query, and those of the request.
        let rows: Vec<(GroupRefs, GroupRefs, SummaryRow)> =
            rows.map(|(groups, row)| (groups, with_wider_time(by, groups), row)).collect();
        let first = self.labels(by.first, rows.iter().map(|(_, (first, _), _)| *first).collect()).await?;
        let second = self.labels(by.second, rows.iter().map(|(_, (_, second), _)| *second).collect()).await?;
        // Names of one key that was renamed have one id.
        let mut sums: BTreeMap<(String, String), (SummaryRow, Vec<EncodedTimes>)> = BTreeMap::new();
        let label = |labels: &Labels, group: i64| labels.get(&group).cloned().unwrap_or_default();
        for (groups, wanted, row) in rows {
            let (sum, sum_times) = sums.entry((label(&first, wanted.0), label(&second, wanted.1))).or_default();
            sum.add(&row);
            sum_times.extend(times.remove(&groups));
        }
        let done = |((of, and), (sum, times)): ((String, String), (SummaryRow, Vec<EncodedTimes>))| {
            SummaryRow { of, and, ..sum }.with_times(&merged(&times))
        };
        let mut rows: Vec<SummaryRow> = sums.into_iter().map(done).collect();
        if let Some(sample) = sample_of(filter, by).filter(|_| !rows.is_empty()) {
            add_sampled_times(&mut rows, &self.page(&sample).await?.items, by);
        }
        // Several names of one key were counted above, but none of them was left out.
        Ok(Summary { groups: rows.len() + left_out, rows })
    }

    /// The largest groups of a query.
    async fn sums(&self, query: &SummaryQuery<'_>) -> Result<Vec<(GroupRefs, GroupFigures)>, StoreError> {
        match query.table {
            Some(table) if table.is_packed() => self.sums_of_cells(query).await,
            // PostgreSQL groups without sorting, and sending a row takes it longer than adding it up.
            Some(table) if query.has_many_groups() => match self.dialect {
                Dialect::Sqlite => self.sums_of_rows(query, table).await,
                Dialect::Postgres => self.sums_of_halves(query).await,
            },
            Some(_) | None => self.sums_of_ranges(query, &query.ranges()).await,
        }
    }

    /// The largest groups of ranges, grouped by the database.
    async fn sums_of_ranges(
        &self,
        query: &SummaryQuery<'_>,
        ranges: &[TimeRange],
    ) -> Result<Vec<(GroupRefs, GroupFigures)>, StoreError> {
        let (sql, ids) = query.sums(ranges);
        let sql = query.largest_of(&sql);
        self.fetch_as(SUMMARY, bind_ids(sqlx::query(AssertSqlSafe(sql)), &ids), sums_of_row).await
    }

    /// The number of a tag that is grouped by.
    async fn tag_number(&self, by: SummaryBy) -> Result<i64, StoreError> {
        let SummaryBy::Tag(name) = by else { return Ok(0) };
        let found = self.refs_of(SUMMARY, NameKind::TagName, "id = '' AND name", name.as_str()).await?;
        Ok(found.first().copied().unwrap_or(0))
    }
}

impl SummaryQuery<'_> {
    fn sources(&self) -> &'static [SummarySource] {
        let has = |by| self.by.has(|it| it == by);
        if self.table.is_none() {
            return SummarySource::BY_RECORD;
        }
        if has(SummaryBy::FiveMinutes) {
            SummarySource::BY_FIVE_MINUTES
        } else if has(SummaryBy::Hour) {
            SummarySource::BY_HOUR
        } else if has(SummaryBy::Day) {
            SummarySource::BY_DAY
        } else {
            SummarySource::BY_MONTH
        }
    }

    /// The ranges to sum up: each of one bucket of the grouping by time where that is wider than the source.
    fn ranges(&self) -> Vec<TimeRange> {
        if self.table.is_none() {
            return self.matching.iter().flat_map(|range| cut_buckets(*range, self.by, true)).collect();
        }
        let ends = if self.by.has(SummaryBy::is_time) { EndParts::Added } else { EndParts::Shortest };
        let ranges = split_range(self.since, self.until, self.sources(), ends);
        ranges.into_iter().flat_map(|range| cut_buckets(range, self.by, false)).collect()
    }

    /// The query for the sums of ranges by group, and the ids to bind. A row is one text, which takes less time to read than fifteen
    /// numbers.
    fn sums(&self, ranges: &[TimeRange]) -> (String, Vec<RequestId>) {
        let outer: Vec<String> = (0..FIGURES.len()).map(|at| format!("SUM(f{at})")).collect();
        let columns: Vec<&str> = ["k", "l"].into_iter().chain(outer.iter().map(String::as_str)).collect();
        let mut sql = format!("SELECT {} FROM (", self.dialect.joined_numbers(&columns));
        let mut ids = Vec::new();
        let mut parts = Vec::new();
        for range in ranges {
            self.push_parts(&mut parts, &mut ids, *range);
        }
        sql.push_str(&parts.join(" UNION ALL "));
        sql.push_str(") AS parts GROUP BY k, l");
        (sql, ids)
    }

    /// Whether it groups by a short time, and by something other than time or tags.
    fn has_many_groups(&self) -> bool {
        let is_short = |by: SummaryBy| matches!(by, SummaryBy::Hour | SummaryBy::FiveMinutes);
        self.by.has(is_short) && self.by.has(|by| by != SummaryBy::Nothing && !by.is_time()) && !self.by.has(is_tag)
    }

    /// A query for sums, with the largest first.
    fn largest_of(&self, sums: &str) -> String {
        let largest = match self.by.largest {
            SummaryFigure::Requests => "SUM(f0)",
            SummaryFigure::Errors => "SUM(f0) - SUM(f1) - SUM(f13)",
            SummaryFigure::Tokens => "SUM(f2) + SUM(f3)",
            SummaryFigure::Sale => "SUM(f10)",
            SummaryFigure::Cost => "SUM(f11)",
        };
        format!("{sums} HAVING SUM(f0) > 0 ORDER BY {largest} DESC, k, l LIMIT {MAX_ROWS}")
    }

    /// Appends the `SELECT`s whose rows together are the sums of a range.
    fn push_parts(&self, parts: &mut Vec<String>, ids: &mut Vec<RequestId>, range: TimeRange) {
        if range.source == SummarySource::Records {
            return parts.push(self.of_records(ids, range));
        }
        let Some(table) = self.table else { return };
        let times = minutes(range);
        let groups = self.groups(range);
        let sign = if range.is_subtracted { "-" } else { "" };
        if !self.by.has(is_tag) {
            let conditions = self.filter.sql_of_columns(table) + &self.filter.sql_of_tag(table);
            let grouped = self.grouped(table, range);
            return parts.push(select(
                &groups,
                sign,
                FIGURES.map(|(of_sums, _)| of_sums),
                &format!("{} WHERE {times}{conditions}{grouped}", table.name),
            ));
        }
        // Requests without the tag are all requests minus those with it.
        let tagged = format!(
            "{} WHERE {times}{} AND tag = {}",
            table.name,
            self.filter.sql_of_columns(table),
            self.tags[0].max(self.tags[1])
        );
        let mut part = |groups: &[String; 2], sign: &str, from: &str| {
            parts.push(select(groups, sign, FIGURES.map(|(of_sums, _)| of_sums), &format!("{from} GROUP BY 1, 2")));
        };
        part(&groups, sign, &format!("{tagged}{}", self.filter.sql_of_tag(table)));
        if self.filter.tags.is_empty() {
            let all = tables::without_tags(table);
            let untagged =
                [self.by.first, self.by.second].map(|by| if is_tag(by) { "0".to_owned() } else { self.group(by, range) });
            part(&untagged, sign, &format!("{} WHERE {times}{}", all.name, self.filter.sql_of_columns(all)));
            part(&untagged, if range.is_subtracted { "" } else { "-" }, &tagged);
        }
    }

    /// The `SELECT` of a range from the records.
    fn of_records(&self, ids: &mut Vec<RequestId>, range: TimeRange) -> String {
        let (times, bound) = ArrivalRange { from: range.from, to: range.to }.sql(ids.len() + 1);
        ids.extend(bound);
        let groups = self.groups(range);
        let sign = if range.is_subtracted { "-" } else { "" };
        let is_constant = |by: SummaryBy, group: &str| (by == SummaryBy::Nothing || by.is_time()) && group.parse::<i64>().is_ok();
        let is_one = is_constant(self.by.first, &groups[0]) && is_constant(self.by.second, &groups[1]);
        // Grouping by a constant would sort every row.
        let grouped = if is_one { "" } else { " GROUP BY 1, 2" };
        let from = format!("usage WHERE 1 = 1{times}{}{grouped}", self.filter.sql());
        let figures = FIGURES.map(|(_, of_record)| format!("SUM({of_record})"));
        select(&groups, sign, figures.each_ref().map(String::as_str), &from)
    }

    /// The numbers that the rows of a range are grouped by.
    fn groups(&self, range: TimeRange) -> [String; 2] {
        let is_of_records = range.source == SummarySource::Records;
        let groups = [(self.by.first, self.tags[0]), (self.by.second, self.tags[1])];
        groups.map(|(by, tag)| if is_tag(by) && is_of_records { self.tag_of_record(tag) } else { self.group(by, range) })
    }

    /// The number of a grouping, other than the tag of a record; of a time its beginning, in minutes since 1970.
    fn group(&self, by: SummaryBy, range: TimeRange) -> String {
        if by == SummaryBy::Nothing {
            return "0".to_owned();
        }
        let is_of_records = range.source == SummarySource::Records;
        let Some(width) = ranges::width_of(by) else {
            let column = column_of(by);
            return if is_of_records { format!("COALESCE({column}, 0)") } else { column.to_owned() };
        };
        let minute = match range.source {
            // A range that is read from records lies within one bucket.
            SummarySource::Records if self.table.is_some() => return literal(width, range),
            SummarySource::Months => return "minute".to_owned(),
            _ if width == MONTH => return literal(width, range),
            SummarySource::Records => self.dialect.arrival_minute(),
            SummarySource::FiveMinutes | SummarySource::Hours | SummarySource::Days => "minute".to_owned(),
        };
        if range.source.width() == width { minute } else { format!("({minute} - {minute} % {})", width / MINUTE) }
    }

    /// The value of a tag in the text of a record: [`OTHER_VALUES`] if the value has no separate sums, 0 if the record lacks the tag.
    fn tag_of_record(&self, tag: i64) -> String {
        let (own, other) = (format!("\n{tag}="), format!("\n~{tag}="));
        format!(
            "CASE WHEN {} THEN {} WHEN {} THEN {OTHER_VALUES} ELSE 0 END",
            self.dialect.contains("tags", &own),
            self.dialect.number_behind("tags", &own),
            self.dialect.contains("tags", &other)
        )
    }

    /// The grouping of a range's rows. Grouping in the order of the primary key avoids a sort, but the same `k` and `l` may then occur in
    /// several groups.
    fn grouped(&self, table: &SumTable, range: TimeRange) -> String {
        let constant = |by: SummaryBy| (by == SummaryBy::Nothing || by.is_time()) && self.group(by, range).parse::<i64>().is_ok();
        if constant(self.by.first) && constant(self.by.second) {
            // Grouping by a constant would sort every row.
            return String::new();
        }
        // Code columns come last in the key; grouping in key order up to one of them would leave almost as many groups
        // as rows.
        let is_word = |column: &Column| column.kind == ColumnKind::Small;
        let columns = table.columns[1..table.key].iter().take_while(|column| !is_word(column));
        let columns: Vec<&str> = columns.map(|column| column.name).collect();
        let index = |by: SummaryBy| {
            if constant(by) || by.is_time() { Some(0) } else { columns.iter().position(|column| *column == column_of(by)) }
        };
        match (index(self.by.first), index(self.by.second)) {
            (Some(one), Some(other)) => {
                format!(" GROUP BY {}", columns[..=one.max(other)].join(", "))
            }
            _ => " GROUP BY 1, 2".to_owned(),
        }
    }
}

const fn is_tag(by: SummaryBy) -> bool {
    matches!(by, SummaryBy::Tag(_))
}

/// A `SELECT` of groups and figures.
fn select(groups: &[String; 2], sign: &str, figures: [&str; FIGURES.len()], from: &str) -> String {
    let mut sql = format!("SELECT {} AS k, {} AS l", groups[0], groups[1]);
    for (at, figure) in figures.iter().enumerate() {
        write!(sql, ", {sign}{figure} AS f{at}").expect("writing to a String cannot fail");
    }
    sql.push_str(" FROM ");
    sql + from
}

/// Drops the wider of two groupings by time, because the narrower one determines it.
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

/// The column of a grouping that is not by time.
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
        SummaryBy::Tag(_) => "value",
    }
}

fn literal(width: i64, range: TimeRange) -> String {
    let at = range.from.or(range.to.map(|to| to - 1)).unwrap_or(0);
    (bucket(Timestamp(at), width) / MINUTE).to_string()
}

/// The groups and their sums.
fn sums_of_row(row: &AnyRow) -> Result<(GroupRefs, GroupFigures), sqlx::Error> {
    let mut number = read_joined_numbers(row)?;
    let groups = (number()?, number()?);
    let mut figures = GroupFigures::default();
    for figure in &mut figures {
        *figure = number()?;
    }
    Ok((groups, figures))
}

/// The figures in the order of [`FIGURES`].
fn summary_row(figures: &GroupFigures) -> SummaryRow {
    let count = |at: usize| u64::try_from(figures[at]).unwrap_or(0);
    SummaryRow {
        requests: count(0),
        completed: count(1),
        tokens_input: count(2),
        tokens_output: count(3),
        tokens_cache_read: count(4),
        tokens_cache_write: count(5),
        tokens_cache_write_1h: count(6),
        tokens_thinking: count(7),
        tokens_image: count(8),
        tokens_audio: count(9),
        sale: NanoUsd(figures[10]),
        cost: NanoUsd(figures[11]),
        unpriced: count(12),
        left: count(LEFT),
        ..SummaryRow::default()
    }
}

#[cfg(test)]
mod tests;
