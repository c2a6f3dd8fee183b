//! Sums by a short time, and histograms. Both are read row by row and added up here, because by hour there are more rows than a
//! database sorts in a fraction of a second. The groups of a time are complete when its last row is read, so few groups are open at
//! a time.

use std::{collections::HashMap, fmt::Write as _};

use foldhash::fast::RandomState;
use tollgate_core::{RequestId, Timestamp};

use super::{
    FIGURES, MAX_ROWS, SUMMARY, SummaryQuery,
    packed::figure_of,
    ranges::{EndParts, SummarySource, TimeRange, cut_buckets, minutes, split_range, width_of},
};
use crate::{
    StoreError,
    rollup::{FIVE_MINUTES, Histogram, PartSpan, RequestTimes, bucket, keys_of_parts, next_bucket},
    sql::{
        cells::Cells,
        columns::column_list,
        group_sums::{GroupFigures, GroupRefs, GroupSums, LEFT, MAX_GROUPS, set_requests},
        store::SqlStore,
        sum_tables::{SumTable, USAGE_SUMS},
        usage_filter::ArrivalRange,
        usage_reader::FoldRows,
    },
};

/// Histograms of the times to the first content and to the end, and of own times, as they are stored.
pub(super) type EncodedTimes = [Vec<u8>; 3];
pub(super) type TimesByGroup = HashMap<GroupRefs, EncodedTimes, RandomState>;

/// Adds up rows of sums: their minute, two groups, the outcome, and the figures.
struct SumFold {
    sums: GroupSums,
    /// True if all rows of a group have the same minute.
    is_complete: bool,
    minute: i64,
}

impl FoldRows for SumFold {
    fn row(&mut self, cells: &mut impl Cells) -> Result<(), sqlx::Error> {
        let minute = cells.number()?;
        if self.is_complete && minute != self.minute {
            self.sums.complete();
        }
        self.minute = minute;
        let (groups, outcome, requests) = ((cells.number()?, cells.number()?), cells.number()?, cells.number()?);
        let mut figures = GroupFigures::default();
        for figure in &mut figures[2..LEFT] {
            *figure = cells.number()?;
        }
        set_requests(&mut figures, requests, outcome);
        self.sums.add(groups, &figures);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.sums.is_full()
    }
}

/// Adds up records: two groups, and the figures.
struct RecordFold {
    sums: GroupSums,
    sign: i64,
}

impl FoldRows for RecordFold {
    fn row(&mut self, cells: &mut impl Cells) -> Result<(), sqlx::Error> {
        let groups = (cells.number()?, cells.number()?);
        let mut figures = GroupFigures::default();
        for figure in &mut figures {
            *figure = cells.number()?.wrapping_mul(self.sign);
        }
        self.sums.add(groups, &figures);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.sums.is_full()
    }
}

/// Groups whose histograms are ready to be added to: some 4 KB each.
const MAX_OPEN_TIMES: usize = 10_000;

/// Merges the histograms of rows: their minute, two groups, and the histograms.
struct TimesFold {
    open: HashMap<GroupRefs, RequestTimes, RandomState>,
    done: TimesByGroup,
    is_complete: bool,
    minute: i64,
}

impl TimesFold {
    /// Encodes the histograms that are open.
    fn complete(&mut self) {
        for (groups, mut times) in self.open.drain() {
            let done = self.done.entry(groups).or_default();
            for (histogram, more) in times.each_mut().into_iter().zip(done.iter()) {
                histogram.merge_encoded(more);
            }
            *done = times.each().map(Histogram::encode);
        }
    }
}

impl FoldRows for TimesFold {
    fn row(&mut self, cells: &mut impl Cells) -> Result<(), sqlx::Error> {
        let minute = cells.number()?;
        if (self.is_complete && minute != self.minute) || self.open.len() >= MAX_OPEN_TIMES {
            self.complete();
        }
        self.minute = minute;
        let groups = (cells.number()?, cells.number()?);
        for histogram in self.open.entry(groups).or_default().each_mut() {
            // Damaged histograms are skipped here; `verify` reports them.
            histogram.merge_encoded(cells.bytes()?);
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.done.len() > MAX_GROUPS
    }
}

/// The histograms of several groups.
pub(super) fn merged(all: &[EncodedTimes]) -> RequestTimes {
    let mut times = RequestTimes::default();
    for encoded in all {
        for (histogram, more) in times.each_mut().into_iter().zip(encoded) {
            histogram.merge_encoded(more);
        }
    }
    times
}

/// Ranges in the order of their times, cut in the middle of the range whose buckets have this width. The second half is empty if there
/// is no such range, or it has no end.
fn halves(mut ranges: Vec<TimeRange>, width: i64) -> (Vec<TimeRange>, Vec<TimeRange>) {
    let whole = ranges.iter().position(|range| range.source.width() == width);
    let ends = whole.and_then(|at| Some((at, ranges[at].from?, ranges[at].to?)));
    let Some((at, from, to)) = ends else { return (ranges, Vec::new()) };
    let middle = bucket(Timestamp(from.midpoint(to)), width);
    if middle <= from {
        return (ranges, Vec::new());
    }
    let mut second = vec![TimeRange { from: Some(middle), ..ranges[at] }];
    second.extend(ranges.drain(at + 1..));
    ranges[at].to = Some(middle);
    (ranges, second)
}

impl SqlStore {
    /// The largest groups of a query by a short time, from a table with a row for each sum. Two connections read one half of the time
    /// each. No group is in both halves.
    pub(super) async fn sums_of_rows(
        &self,
        query: &SummaryQuery<'_>,
        table: &'static SumTable,
    ) -> Result<Vec<(GroupRefs, GroupFigures)>, StoreError> {
        let (first, second) = query.halves();
        let (mut sums, more) = tokio::try_join!(self.added_rows(query, table, first), self.added_rows(query, table, second))?;
        sums.merge(more);
        Ok(sums.check()?.finish())
    }

    /// The sums of ranges, from a table with a row for each sum.
    async fn added_rows(
        &self,
        query: &SummaryQuery<'_>,
        table: &'static SumTable,
        ranges: Vec<TimeRange>,
    ) -> Result<GroupSums, StoreError> {
        let (of_records, of_sums): (Vec<TimeRange>, Vec<TimeRange>) =
            ranges.into_iter().partition(|range| range.source == SummarySource::Records);
        let mut sums = GroupSums::new(figure_of(query.by.largest), MAX_ROWS);
        for range in of_sums {
            let is_complete = query.is_bucket_of_group(range);
            let fold = SumFold { sums: sums.empty(), is_complete, minute: i64::MIN };
            let mut added = self.usage_reader.fold(SUMMARY, (query.rows_of_sums(table, range), Vec::new()), fold).await?.sums;
            if is_complete {
                added.complete();
            }
            sums.merge(added);
            sums = sums.check()?;
        }
        if !of_records.is_empty() {
            for (groups, figures) in self.sums_of_ranges(query, &of_records).await? {
                sums.add(groups, &figures);
            }
        }
        Ok(sums)
    }

    /// The same, grouped by the database.
    pub(super) async fn sums_of_halves(&self, query: &SummaryQuery<'_>) -> Result<Vec<(GroupRefs, GroupFigures)>, StoreError> {
        let (first, second) = query.halves();
        if second.is_empty() {
            return self.sums_of_ranges(query, &first).await;
        }
        let (first, second) = tokio::try_join!(self.sums_of_ranges(query, &first), self.sums_of_ranges(query, &second))?;
        let mut sums = GroupSums::new(figure_of(query.by.largest), MAX_ROWS);
        for (groups, figures) in first.into_iter().chain(second) {
            sums.add(groups, &figures);
        }
        Ok(sums.finish())
    }

    /// Adds the records of ranges to sums, of all keys or those of some parts. The records are grouped here, because with many groups,
    /// such as keys, the database would sort all of them.
    pub(super) async fn sums_of_records(
        &self,
        query: &SummaryQuery<'_>,
        ranges: &[TimeRange],
        span: Option<&PartSpan>,
        mut sums: GroupSums,
    ) -> Result<GroupSums, StoreError> {
        for range in ranges {
            let (mut sql, ids) = query.rows_of_records(*range);
            if let Some(span) = span {
                let keys = keys_of_parts(span);
                write!(sql, " AND key >= {} AND key < {}", keys.start, keys.end).expect("writing to a String cannot fail");
            }
            let fold = RecordFold { sums, sign: if range.is_subtracted { -1 } else { 1 } };
            sums = self.usage_reader.fold(SUMMARY, (sql, ids), fold).await?.sums.check()?;
        }
        Ok(sums)
    }

    /// The histograms of each group. The ends are widened to five minutes.
    pub(super) async fn times(&self, query: &SummaryQuery<'_>) -> Result<TimesByGroup, StoreError> {
        let since = query.since.map(|at| Timestamp(bucket(at, FIVE_MINUTES)));
        let until = query.until.map(|at| Timestamp(next_bucket(at.0, FIVE_MINUTES)));
        let ranges = split_range(since, until, query.sources(), EndParts::Added).into_iter();
        let ranges = ranges.flat_map(|range| cut_buckets(range, query.by, false));
        let mut open = HashMap::default();
        let mut times = TimesByGroup::default();
        for range in ranges.filter(|range| range.source != SummarySource::Records) {
            let is_complete = query.is_bucket_of_group(range);
            let before = if is_complete { HashMap::default() } else { std::mem::take(&mut open) };
            let fold = TimesFold { open: before, done: times, is_complete, minute: i64::MIN };
            let mut fold = self.usage_reader.fold(SUMMARY, (query.rows_of_times(range), Vec::new()), fold).await?;
            if is_complete {
                fold.complete();
            } else {
                open = fold.open;
            }
            times = fold.done;
            if times.len() > MAX_GROUPS {
                return Err(StoreError::TooManyGroups { max: MAX_GROUPS });
            }
        }
        let mut rest = TimesFold { open, done: times, is_complete: false, minute: 0 };
        rest.complete();
        Ok(rest.done)
    }
}

impl SummaryQuery<'_> {
    /// The ranges to sum up, cut in the middle between two buckets of the grouping by time.
    fn halves(&self) -> (Vec<TimeRange>, Vec<TimeRange>) {
        let width = [self.by.first, self.by.second].into_iter().filter_map(width_of).min().unwrap_or(0);
        halves(self.ranges(), width)
    }

    /// Whether the buckets of a range are as wide as those of the grouping by time.
    fn is_bucket_of_group(&self, range: TimeRange) -> bool {
        [self.by.first, self.by.second].into_iter().filter_map(width_of).any(|width| width == range.source.width())
    }

    /// The rows of a range, in the order of their minutes.
    fn rows(&self, table: &SumTable, range: TimeRange, columns: &str) -> String {
        let (first, second) = (self.group(self.by.first, range), self.group(self.by.second, range));
        let (times, conditions) = (minutes(range), self.filter.sql_of_columns(table) + &self.filter.sql_of_tag(table));
        format!("SELECT minute, {first}, {second}, {columns} FROM {} WHERE {times}{conditions} ORDER BY minute", table.name)
    }

    /// The groups and the figures of the records of a range, and the ids to bind.
    pub(super) fn rows_of_records(&self, range: TimeRange) -> (String, Vec<RequestId>) {
        let (times, ids) = ArrivalRange { from: range.from, to: range.to }.sql(1);
        let [first, second] = self.groups(range);
        let figures = FIGURES.map(|(_, of_record)| of_record).join(", ");
        (format!("SELECT {first}, {second}, {figures} FROM usage WHERE 1 = 1{times}{}", self.filter.sql()), ids)
    }

    pub(super) fn rows_of_sums(&self, table: &SumTable, range: TimeRange) -> String {
        let figures = &table.columns[table.key..][..LEFT - 1];
        self.rows(table, range, &format!("outcome, {}", column_list(figures)))
    }

    pub(super) fn rows_of_times(&self, range: TimeRange) -> String {
        self.rows(&USAGE_SUMS, range, "ttft, duration, overhead")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollup::{DAY, HOUR};

    #[test]
    fn ranges_are_halved_at_bucket_boundaries() {
        let range = |source, from: i64, to: i64| TimeRange { source, from: Some(from), to: Some(to), is_subtracted: false };
        let (ends, hours) =
            (range(SummarySource::FiveMinutes, HOUR - FIVE_MINUTES, HOUR), range(SummarySource::Hours, HOUR, 8 * HOUR));
        let after = range(SummarySource::Records, 8 * HOUR, 8 * HOUR + 7);
        let (first, second) = halves(vec![ends, hours, after], HOUR);
        assert_eq!(first, [ends, range(SummarySource::Hours, HOUR, 4 * HOUR)]);
        assert_eq!(second, [range(SummarySource::Hours, 4 * HOUR, 8 * HOUR), after]);
        for (ranges, width) in [
            (vec![ends, after], HOUR),
            (vec![ends, range(SummarySource::Hours, HOUR, 2 * HOUR), after], HOUR),
            (vec![TimeRange { to: None, ..hours }], HOUR),
            (vec![ends, hours], DAY),
        ] {
            assert_eq!(halves(ranges.clone(), width), (ranges, Vec::new()), "nothing to cut");
        }
    }
}
