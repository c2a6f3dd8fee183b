//! Compares packed sums: their rows, and those of months with those of their days.

use std::collections::BTreeMap;

use tollgate_core::Timestamp;

use super::{Difference, SumTable, months, report_differences, width_name};
use crate::{
    StoreError,
    rollup::{CellReader, MINUTE, MONTH, Sums as _, UsageSums, part_of},
    sql::{
        cells::{Cells, FromCells},
        shared_snapshot::SnapshotReader,
        verify::VERIFY,
    },
    verify::VerifyReport,
};

/// Parts of a month that are compared at once.
const PARTS_AT_ONCE: i64 = 256;

/// The packed sums of a part.
struct PackedRow {
    width: i64,
    minute: i64,
    part: i64,
    sums: Vec<u8>,
}

impl FromCells for PackedRow {
    fn from_cells(c: &mut impl Cells) -> Result<Self, sqlx::Error> {
        Ok(Self { width: c.number()?, minute: c.number()?, part: c.number()?, sums: c.bytes()?.to_vec() })
    }
}

impl PackedRow {
    /// Calls a function with the key, which begins with `minute`, and the sums of each cell. Damage is a difference.
    fn each<const N: usize>(
        &self,
        table: &SumTable,
        minute: i64,
        report: &mut VerifyReport,
        mut cell: impl FnMut([i64; N], UsageSums),
    ) {
        let mut cells = CellReader::new(&self.sums, N - 1);
        let is_damaged = loop {
            match cells.next() {
                Ok(None) => break false,
                Ok(Some((columns, sums))) if part_of(columns[0]) == self.part => {
                    let mut key = [minute; N];
                    key[1..].copy_from_slice(columns);
                    cell(key, sums);
                }
                Ok(Some(_)) | Err(_) => break true,
            }
        };
        if is_damaged {
            let (name, begin) = (width_name(self.width * MINUTE), Timestamp(self.minute * MINUTE));
            report.differs(table.rule(), format!("{name} {begin} in {}, readable values of part {}", table.name, self.part), 1, 0);
        }
    }
}

/// The sums of a width whose times lie between two minutes, in the order of their keys.
pub(super) async fn rows<const N: usize>(
    reader: &mut SnapshotReader,
    table: &SumTable,
    (width, (from, to)): (i64, (i64, i64)),
    report: &mut VerifyReport,
) -> Result<Vec<([i64; N], UsageSums)>, StoreError> {
    let sql = format!(
        "SELECT width, minute, part, sums FROM {} WHERE width = {} AND minute >= {from} AND minute < {to} ORDER BY minute, part",
        table.name,
        width / MINUTE
    );
    let packed: Vec<PackedRow> = reader.rows(VERIFY, &sql.into(), Vec::new()).await?;
    let mut rows = Vec::new();
    for row in packed {
        row.each(table, row.minute, report, |key, sums| rows.push((key, sums)));
    }
    Ok(rows)
}

/// The last part of a month.
struct LastPart(i64);

impl FromCells for LastPart {
    fn from_cells(c: &mut impl Cells) -> Result<Self, sqlx::Error> {
        c.number().map(Self)
    }
}

/// Compares the sums of months with those of their days. `N`: the columns of the key without the width.
pub(super) async fn compare_months<const N: usize>(
    reader: &mut SnapshotReader,
    table: &SumTable,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    for month in months::buckets(reader, table).await? {
        let times = months::rows(month);
        let last = format!("SELECT CAST(COALESCE(MAX(part), -1) AS BIGINT) FROM {} WHERE {times}", table.name);
        let last: Vec<LastPart> = reader.rows(VERIFY, &last.into(), Vec::new()).await?;
        let last = last.first().map_or(-1, |last| last.0);
        for first in (0..=last).step_by(usize::try_from(PARTS_AT_ONCE).unwrap_or(1)) {
            let parts = format!("part >= {first} AND part < {}", first + PARTS_AT_ONCE);
            let sql = format!("SELECT width, minute, part, sums FROM {} WHERE {times} AND {parts}", table.name);
            let packed: Vec<PackedRow> = reader.rows(VERIFY, &sql.into(), Vec::new()).await?;
            let mut sums: BTreeMap<[i64; N], [UsageSums; 2]> = BTreeMap::new();
            for row in packed {
                let side = usize::from(row.width == MONTH / MINUTE);
                row.each(table, month.0, report, |key, more| sums.entry(key).or_default()[side].merge(&more));
            }
            let differences = differences(table, sums);
            report_differences(reader, table, MONTH, differences, report).await?;
        }
    }
    Ok(())
}

fn differences<const N: usize>(table: &SumTable, sums: BTreeMap<[i64; N], [UsageSums; 2]>) -> Vec<Difference<N>> {
    let figures = &table.columns[table.key..];
    let of_key = |(key, [due, stored]): ([i64; N], [UsageSums; 2])| {
        let pairs = figures.iter().zip(due.0.into_iter().zip(stored.0)).filter(|(_, (due, stored))| due != stored);
        pairs.map(move |(column, (due, stored))| Difference { key, figure: column.name, due, stored }).collect::<Vec<_>>()
    };
    sums.into_iter().flat_map(of_key).collect()
}
