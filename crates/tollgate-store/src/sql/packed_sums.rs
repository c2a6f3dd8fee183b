//! Adds up packed sums: reads the values of a time range and of the selected keys, and groups their cells. Two workers read at the
//! same time, each on its own connection.

use std::{collections::BTreeSet, fmt::Write as _, sync::Mutex};

use sqlx::{AssertSqlSafe, Row as _, any::AnyRow};
use tollgate_core::Timestamp;

use super::{
    cells::{Cells, broken},
    dialect::Dialect,
    group_sums::{FIGURES, GroupFigures, GroupSums, LEFT, set_requests},
    store::SqlStore,
    sum_tables::{KEY_TOTALS, SumTable},
    usage_filter::{RefFilter, list},
    usage_reader::FoldRows,
};
use crate::{
    StoreError,
    rollup::{CellReader, HOUR, MINUTE, MONTH, PartSpan, VALUE_END, bucket, bucket_end, part_of},
};

/// Workers that read at the same time.
const WORKERS: usize = 2;
/// Members whose keys are looked up.
const MAX_MEMBERS: usize = 8;
/// Parts whose values of an hour and less PostgreSQL joins into one row: these are so short that a row takes longer than the cells in it.
/// Values of days are longer, and joining them takes longer than rows do.
const PARTS_IN_A_ROW: i64 = 64;
/// Buckets of a range of time that one worker reads.
const BUCKETS_AT_ONCE: i64 = 8;

/// Source of the number of a cell's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellGroup {
    Constant(i64),
    /// The number in this column.
    Column(usize),
    /// The minute in which the cell's bucket of this width begins.
    Time(i64),
}

/// Cells to add up: those of a range of time, in minutes, that meet all conditions.
#[derive(Clone, Debug)]
pub(super) struct CellRange {
    pub(super) table: &'static SumTable,
    /// Microseconds of the buckets.
    pub(super) width: i64,
    pub(super) from: Option<i64>,
    pub(super) to: Option<i64>,
    /// Columns with the numbers that they may have.
    pub(super) conditions: Vec<(usize, Vec<i64>)>,
    /// The parts that have the keys in question; all if `None`.
    pub(super) parts: Option<Vec<i64>>,
    /// The parts to read, if not all of these.
    pub(super) span: Option<PartSpan>,
    pub(super) groups: [CellGroup; 2],
    pub(super) is_subtracted: bool,
    /// True if the groups of a bucket are complete once its cells are read, because the query groups by time with the same width.
    pub(super) is_complete: bool,
}

/// Times of a width in microseconds, between two minutes.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellTimes {
    pub(super) width: i64,
    pub(super) from: Option<i64>,
    pub(super) to: Option<i64>,
}

impl SumTable {
    /// The index of a dimension in a cell.
    pub(super) fn dimension_index(&self, dimension: &str) -> Option<usize> {
        self.dimensions().iter().position(|column| column.name == dimension)
    }
}

impl CellRange {
    /// Cuts a long range, so that the workers can share it.
    fn cut(self) -> Vec<Self> {
        let (Some(mut from), Some(to)) = (self.from, self.to) else { return vec![self] };
        let end = |from: i64| match self.width {
            MONTH => bucket_end(Timestamp(from * MINUTE), MONTH) / MINUTE,
            width => from + BUCKETS_AT_ONCE * width / MINUTE,
        };
        let mut pieces = Vec::new();
        while from < to {
            let next = end(from).min(to);
            pieces.push(Self { from: Some(from), to: Some(next), ..self.clone() });
            from = next;
        }
        pieces
    }

    pub(super) fn sql(&self, dialect: Dialect) -> String {
        let (sums, joined) = match dialect {
            Dialect::Postgres if self.width <= HOUR => {
                (format!("string_agg(sums, '\\x{VALUE_END:02x}')"), format!(" GROUP BY minute, part / {PARTS_IN_A_ROW}"))
            }
            Dialect::Sqlite | Dialect::Postgres => ("sums".to_owned(), String::new()),
        };
        let mut sql = format!("SELECT minute, {sums} FROM {} WHERE width = {}", self.table.name, self.width / MINUTE);
        for (at, than) in [(self.from, ">="), (self.to, "<")] {
            if let Some(at) = at {
                write!(sql, " AND minute {than} {at}").expect("writing to a String cannot fail");
            }
        }
        if let Some(parts) = &self.parts {
            write!(sql, " AND part IN ({})", list(parts)).expect("writing to a String cannot fail");
        }
        if let Some(PartSpan { start, end }) = &self.span {
            write!(sql, " AND part >= {start} AND part < {end}").expect("writing to a String cannot fail");
        }
        sql + &joined + " ORDER BY minute"
    }
}

/// Adds up the cells of a range.
struct CellFold {
    range: CellRange,
    outcome: usize,
    minute: i64,
    sums: GroupSums,
}

impl CellFold {
    fn new(mut range: CellRange, sums: GroupSums) -> Self {
        for (_, numbers) in &mut range.conditions {
            numbers.sort_unstable();
        }
        let outcome = range.table.dimension_index("outcome").expect("sums of keys have the outcome as a dimension");
        Self { range, outcome, minute: i64::MIN, sums }
    }

    /// The amounts that a cell adds to its group.
    fn figures(&self, columns: &[i64], sums: &[i64; LEFT - 1]) -> GroupFigures {
        let sign = if self.range.is_subtracted { -1 } else { 1 };
        let mut figures = [0; FIGURES];
        set_requests(&mut figures, sums[0] * sign, columns[self.outcome]);
        for (figure, sum) in figures[2..LEFT].iter_mut().zip(&sums[1..]) {
            *figure = sum.wrapping_mul(sign);
        }
        figures
    }
}

impl FoldRows for CellFold {
    fn row(&mut self, cells: &mut impl Cells) -> Result<(), sqlx::Error> {
        let minute = cells.number()?;
        if self.range.is_complete && minute != self.minute {
            self.sums.complete();
        }
        self.minute = minute;
        let groups = self.range.groups.map(|group| match group {
            CellGroup::Time(width) => CellGroup::Constant(bucket(Timestamp(minute * MINUTE), width) / MINUTE),
            CellGroup::Constant(_) | CellGroup::Column(_) => group,
        });
        let mut packed = CellReader::new(cells.bytes()?, self.range.table.dimensions().len());
        while let Some((columns, sums)) = packed.next().map_err(broken)? {
            let meets = |(index, numbers): &(usize, Vec<i64>)| numbers.binary_search(&columns[*index]).is_ok();
            if self.range.conditions.iter().all(meets) {
                let [first, second] = groups.map(|group| match group {
                    CellGroup::Constant(number) | CellGroup::Time(number) => number,
                    CellGroup::Column(index) => columns[index],
                });
                let figures = self.figures(columns, &sums.0);
                self.sums.add((first, second), &figures);
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.sums.is_full()
    }
}

impl SqlStore {
    /// Adds the cells of ranges to sums.
    pub(super) async fn add_up_cells(
        &self,
        operation: &'static str,
        ranges: Vec<CellRange>,
        mut sums: GroupSums,
    ) -> Result<GroupSums, StoreError> {
        let mut bounded = Vec::new();
        for range in ranges {
            bounded.extend(self.bounded(operation, range).await?.into_iter().flat_map(CellRange::cut));
        }
        let queue = Mutex::new(bounded);
        let next = || queue.lock().expect("nothing panics while it holds this lock").pop();
        let work = async |mut sums: GroupSums| {
            while let Some(range) = next() {
                let is_complete = range.is_complete;
                let sql = range.sql(self.dialect);
                let open = is_complete.then(|| sums.take_open());
                let fold = self.usage_reader.fold(operation, (sql, Vec::new()), CellFold::new(range, sums)).await?;
                sums = fold.sums.check()?;
                if let Some(open) = open {
                    sums.complete_and_restore(open);
                }
            }
            Ok::<_, StoreError>(sums)
        };
        let workers: [_; WORKERS] = std::array::from_fn(|_| work(sums.empty()));
        for done in futures_util::future::try_join_all(workers).await? {
            sums.merge(done);
        }
        sums.check()
    }

    /// The minutes of the buckets with cells that meet a filter, with the number of their requests, in order.
    pub(super) async fn cells_by_time(
        &self,
        operation: &'static str,
        table: &'static SumTable,
        CellTimes { width, from, to }: CellTimes,
        filter: &RefFilter,
    ) -> Result<Vec<(i64, i64)>, StoreError> {
        let range = CellRange {
            table,
            width,
            from,
            to,
            conditions: filter.conditions_on_cells(table),
            parts: self.parts_of(operation, filter).await?,
            span: None,
            groups: [CellGroup::Time(width), CellGroup::Constant(0)],
            is_subtracted: false,
            is_complete: false,
        };
        let sums = GroupSums::new(|figures| figures[0], usize::MAX / 4);
        let found = self.add_up_cells(operation, vec![range], sums).await?.finish();
        let mut times: Vec<(i64, i64)> = found.into_iter().map(|((minute, _), figures)| (minute, figures[0])).collect();
        times.sort_unstable();
        Ok(times)
    }

    /// A range with both ends, limited to the times of its table; `None` if it has no cells.
    async fn bounded(&self, operation: &'static str, range: CellRange) -> Result<Option<CellRange>, StoreError> {
        let length = range.from.zip(range.to).map(|(from, to)| (to - from) * MINUTE);
        if length.is_some_and(|length| length <= 8 * BUCKETS_AT_ONCE * range.width) {
            return Ok(Some(range));
        }
        let (table, width) = (range.table.name, range.width / MINUTE);
        let end = |aggregate: &str| format!("(SELECT CAST({aggregate}(minute) AS BIGINT) FROM {table} WHERE width = {width})");
        let sql = AssertSqlSafe(format!("SELECT {}, {}", end("MIN"), end("MAX")));
        type Ends = (Option<i64>, Option<i64>);
        let read = |row: &AnyRow| -> Result<Ends, sqlx::Error> { Ok((row.try_get(0)?, row.try_get(1)?)) };
        let ends = self.fetch_as(operation, sqlx::query(sql), read).await?;
        let Some((Some(first), Some(last))) = ends.first() else { return Ok(None) };
        let end = last + range.width / MINUTE;
        let (from, to) = (range.from.map_or(*first, |from| from.max(*first)), range.to.map_or(end, |to| to.min(end)));
        Ok((from < to).then_some(CellRange { from: Some(from), to: Some(to), ..range }))
    }

    /// One more than the number of the last part with sums.
    pub(super) async fn end_of_parts(&self, operation: &'static str) -> Result<i64, StoreError> {
        let sql = format!("SELECT CAST(MAX(part) AS BIGINT) FROM {} WHERE width = {}", KEY_TOTALS.name, MONTH / MINUTE);
        let read = |row: &AnyRow| -> Result<Option<i64>, sqlx::Error> { row.try_get(0) };
        let last = self.fetch_as(operation, sqlx::query(AssertSqlSafe(sql)), read).await?;
        Ok(last.first().copied().flatten().map_or(0, |last| last + 1))
    }

    /// The parts that contain the keys of a filter, or the keys of its members. `None` if it names neither, or so many members
    /// that finding their keys takes longer than reading all parts.
    pub(super) async fn parts_of(&self, operation: &'static str, refs: &RefFilter) -> Result<Option<Vec<i64>>, StoreError> {
        let keys = match (&refs.keys, &refs.members) {
            (None, None) => return Ok(None),
            (Some(keys), _) => keys.clone(),
            (None, Some(members)) if members.len() > MAX_MEMBERS => return Ok(None),
            (None, Some(members)) => {
                let sql = AssertSqlSafe(format!("SELECT DISTINCT key FROM key_days WHERE member IN ({})", list(members)));
                self.fetch_as(operation, sqlx::query(sql), |row| row.try_get(0)).await?
            }
        };
        let parts: BTreeSet<i64> = keys.into_iter().map(part_of).collect();
        Ok(Some(parts.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_range_is_split_at_bucket_boundaries() {
        let range = CellRange {
            table: &super::super::sum_tables::KEY_SUMS,
            width: crate::rollup::DAY,
            from: Some(0),
            to: Some(20 * 1_440),
            conditions: Vec::new(),
            parts: Some(vec![3, 4]),
            span: Some(4..9),
            groups: [CellGroup::Constant(0); 2],
            is_subtracted: false,
            is_complete: true,
        };
        let ranges: Vec<_> = range.clone().cut().into_iter().map(|it| (it.from.unwrap(), it.to.unwrap())).collect();
        assert_eq!(ranges, [(0, 8 * 1_440), (8 * 1_440, 16 * 1_440), (16 * 1_440, 20 * 1_440)]);
        assert_eq!(
            range.sql(Dialect::Sqlite),
            "SELECT minute, sums FROM key_sums WHERE width = 1440 AND minute >= 0 AND minute < 28800 AND part IN (3, 4) AND part >= 4 AND part < 9 ORDER BY minute"
        );
        assert_eq!(
            CellRange { width: HOUR, parts: None, span: None, ..range }.sql(Dialect::Postgres),
            "SELECT minute, string_agg(sums, '\\x7f') FROM key_sums WHERE width = 60 AND minute >= 0 AND minute < 28800 GROUP BY \
             minute, part / 64 ORDER BY minute"
        );
    }
}
