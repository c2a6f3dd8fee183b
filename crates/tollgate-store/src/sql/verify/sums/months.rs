//! Compares the sums of months with those of their days, which are kept as long: the database compares numbers, this
//! module histograms.

use std::collections::BTreeMap;

use tollgate_core::Timestamp;

use super::{Difference, report_differences};
use crate::{
    StoreError,
    rollup::{DAY, Histogram, MINUTE, MONTH, bucket, bucket_end},
    sql::{
        cells::{Cells, FromCells},
        columns::{Column, column_list},
        dialect::Dialect,
        shared_snapshot::SnapshotReader,
        sum_tables::SumTable,
        verify::VERIFY,
    },
    verify::VerifyReport,
};

/// Histograms of sums over all keys.
const TIMES: usize = 3;

/// The first and the last minute of stored days and months.
struct Ends(i64, i64);

impl FromCells for Ends {
    fn from_cells(c: &mut impl Cells) -> Result<Self, sqlx::Error> {
        Ok(Self(c.number()?, c.number()?))
    }
}

/// A row whose figures differ: its key without the width, and each figure of the days and of the month.
struct DifferentRow<const K: usize, const F: usize> {
    key: [i64; K],
    figures: [(i64, i64); F],
}

impl<const K: usize, const F: usize> FromCells for DifferentRow<K, F> {
    fn from_cells(c: &mut impl Cells) -> Result<Self, sqlx::Error> {
        let mut row = Self { key: [0; K], figures: [(0, 0); F] };
        for number in &mut row.key {
            *number = c.number()?;
        }
        for (due, stored) in &mut row.figures {
            (*due, *stored) = (c.number()?, c.number()?);
        }
        Ok(row)
    }
}

/// The histograms of a row, or of the rows of its days.
struct TimesRow<const K: usize> {
    width: i64,
    /// The columns of the key besides the width.
    key: [i64; K],
    lists: [String; TIMES],
}

impl<const K: usize> FromCells for TimesRow<K> {
    fn from_cells(c: &mut impl Cells) -> Result<Self, sqlx::Error> {
        let mut row = Self { width: c.number()?, key: [0; K], lists: Default::default() };
        for number in &mut row.key {
            *number = c.number()?;
        }
        for list in &mut row.lists {
            c.text()?.clone_into(list);
        }
        Ok(row)
    }
}

/// The months of which a table has days or rows, in minutes: [begin, end).
pub(super) async fn buckets(reader: &mut SnapshotReader, table: &SumTable) -> Result<Vec<(i64, i64)>, StoreError> {
    let sql = format!(
        "SELECT CAST(MIN(minute) AS BIGINT), CAST(MAX(minute) AS BIGINT) FROM {} WHERE width IN ({}, {}) HAVING COUNT(*) > 0",
        table.name,
        DAY / MINUTE,
        MONTH / MINUTE
    );
    let found: Vec<Ends> = reader.rows(VERIFY, &sql.into(), Vec::new()).await?;
    let mut buckets = Vec::new();
    for Ends(first, last) in found {
        let mut begin = bucket(Timestamp(first * MINUTE), MONTH);
        while begin <= last * MINUTE {
            let end = bucket_end(Timestamp(begin), MONTH);
            buckets.push((begin / MINUTE, end / MINUTE));
            begin = end;
        }
    }
    Ok(buckets)
}

/// The rows of a month and of its days.
pub(super) fn rows((begin, end): (i64, i64)) -> String {
    format!("(width = {} OR width = {}) AND minute >= {begin} AND minute < {end}", DAY / MINUTE, MONTH / MINUTE)
}

/// Compares the `F` numbers of a table with `K` columns in its key, without the width.
pub(super) async fn compare_numbers<const K: usize, const F: usize>(
    reader: &mut SnapshotReader,
    table: &SumTable,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let (key, figures) = (column_list(&table.columns[2..table.key]), &table.columns[table.key..][..F]);
    let of = |width: i64, column: &Column| format!("SUM(CASE WHEN width = {} THEN {} ELSE 0 END)", width / MINUTE, column.name);
    let pairs: Vec<(String, String)> = figures.iter().map(|column| (of(DAY, column), of(MONTH, column))).collect();
    let sums = pairs.iter().flat_map(|(due, stored)| [due, stored]).map(|sum| format!("CAST({sum} AS BIGINT)"));
    let sums = sums.collect::<Vec<_>>().join(", ");
    let differ = pairs.iter().map(|(due, stored)| format!("{due} <> {stored}")).collect::<Vec<_>>().join(" OR ");
    for bucket in buckets(reader, table).await? {
        let sql = format!(
            "SELECT CAST({} AS BIGINT), {key}, {sums} FROM {} WHERE {} GROUP BY {key} HAVING {differ} ORDER BY {key}",
            bucket.0,
            table.name,
            rows(bucket)
        );
        let found: Vec<DifferentRow<K, F>> = reader.rows(VERIFY, &sql.into(), Vec::new()).await?;
        let mut differences = Vec::new();
        for row in found {
            for (column, (due, stored)) in figures.iter().zip(row.figures).filter(|(_, (due, stored))| due != stored) {
                differences.push(Difference { key: row.key, figure: column.name, due, stored });
            }
        }
        report_differences(reader, table, MONTH, differences, report).await?;
    }
    Ok(())
}

/// Compares the histograms of a table with `K` columns in its key, without the width, and `F` numbers.
pub(super) async fn compare_times<const K: usize, const F: usize>(
    reader: &mut SnapshotReader,
    dialect: Dialect,
    table: &SumTable,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let (key, times) = (column_list(&table.columns[2..table.key]), &table.columns[table.key..][F..]);
    let lists = times.iter().map(|column| dialect.hex_list(column.name)).collect::<Vec<_>>().join(", ");
    for month in buckets(reader, table).await? {
        let sql = format!(
            "SELECT width, CAST({} AS BIGINT), {key}, {lists} FROM {} WHERE {} GROUP BY width, {key}",
            month.0,
            table.name,
            rows(month)
        );
        let found: Vec<TimesRow<K>> = reader.rows(VERIFY, &sql.into(), Vec::new()).await?;
        let mut sums: BTreeMap<[i64; K], [[Histogram; TIMES]; 2]> = BTreeMap::new();
        for row in found {
            let histograms = &mut sums.entry(row.key).or_default()[usize::from(row.width == MONTH / MINUTE)];
            for (histogram, list) in histograms.iter_mut().zip(&row.lists) {
                histogram.merge_hex_list(list);
            }
        }
        let count = |times: &Histogram| i64::try_from(times.count()).unwrap_or(i64::MAX);
        let mut differences = Vec::new();
        for (key, [due, stored]) in sums {
            for ((column, due), stored) in times.iter().zip(&due).zip(&stored).filter(|((_, due), stored)| due != stored) {
                differences.push(Difference { key, figure: column.name, due: count(due), stored: count(stored) });
            }
        }
        report_differences(reader, table, MONTH, differences, report).await?;
    }
    Ok(())
}
