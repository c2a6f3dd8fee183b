//! Compares the sums of records with the stored ones, in both directions. Sums of months are compared with those of their days.

mod derived;
mod months;
mod packed;

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::Timestamp;

use super::{VERIFY, texts::texts};
use crate::{
    StoreError,
    rollup::{AttemptSums, DAY, HOUR, Histogram, MINUTE, MONTH, Sums, TimedSums, UsageSums, widen},
    sql::{
        append::BatchSums,
        cells::{Cells, FromCells},
        columns::{Column, column_list},
        dialect::Dialect,
        shared_snapshot::SnapshotReader,
        sum_tables::{ACCOUNT_SUMS, ATTEMPT_SUMS, KEY_DAYS, KEY_SUMS, KEY_TAG_SUMS, KEY_TOTALS, SumTable, TAG_SUMS, USAGE_SUMS},
    },
    verify::{ConsistencyRule, MAX_DIFFERENCES, VerifyReport},
};

impl SumTable {
    /// The rule that differences violate.
    fn rule(&self) -> ConsistencyRule {
        if self.name == ATTEMPT_SUMS.name { ConsistencyRule::AttemptRollup } else { ConsistencyRule::Rollup }
    }
}

/// The figures of a row of sums in the order of its columns: `F` numbers, then `T` histograms.
trait Figures<const F: usize, const T: usize>: Sums {
    fn numbers(&self) -> [i64; F];

    fn times(&self) -> [&Histogram; T];
}

impl Figures<12, 0> for UsageSums {
    fn numbers(&self) -> [i64; 12] {
        self.0
    }

    fn times(&self) -> [&Histogram; 0] {
        []
    }
}

impl Figures<4, 0> for AttemptSums {
    fn numbers(&self) -> [i64; 4] {
        self.figures()
    }

    fn times(&self) -> [&Histogram; 0] {
        []
    }
}

impl Figures<15, 3> for TimedSums {
    fn numbers(&self) -> [i64; 15] {
        self.figures()
    }

    fn times(&self) -> [&Histogram; 3] {
        self.times.each()
    }
}

/// A stored row of sums: its key without the width, and its figures.
struct StoredSums<const N: usize, const F: usize, const T: usize> {
    key: [i64; N],
    numbers: [i64; F],
    times: [Vec<u8>; T],
}

impl<const N: usize, const F: usize, const T: usize> StoredSums<N, F, T> {
    /// Sums that are not there.
    const fn none(key: [i64; N]) -> Self {
        Self { key, numbers: [0; F], times: [const { Vec::new() }; T] }
    }
}

impl<const N: usize, const F: usize, const T: usize> FromCells for StoredSums<N, F, T> {
    fn from_cells(c: &mut impl Cells) -> Result<Self, sqlx::Error> {
        let mut sums = Self::none([0; N]);
        for number in sums.key.iter_mut().chain(&mut sums.numbers) {
            *number = c.number()?;
        }
        for bytes in &mut sums.times {
            *bytes = c.bytes()?.to_vec();
        }
        Ok(sums)
    }
}

/// A figure that differs.
struct Difference<const N: usize> {
    key: [i64; N],
    figure: &'static str,
    due: i64,
    stored: i64,
}

/// Compares the sums of the records of a time, in minutes, with those stored for it. The time begins and ends with a day.
pub(super) async fn compare(
    reader: &mut SnapshotReader,
    sums: BatchSums,
    minutes: (i64, i64),
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let BatchSums { usage, keys, totals, accounts, tags, key_tags, attempts } = sums;
    let totals = totals.sorted();
    compare_widths(reader, &USAGE_SUMS, usage.sorted(), (minutes, report)).await?;
    compare_widths(reader, &KEY_SUMS, keys.sorted(), (minutes, report)).await?;
    compare_widths(reader, &KEY_DAYS, totals.clone(), (minutes, report)).await?;
    compare_widths(reader, &KEY_TOTALS, totals, (minutes, report)).await?;
    compare_widths(reader, &ACCOUNT_SUMS, accounts.sorted(), (minutes, report)).await?;
    compare_widths(reader, &TAG_SUMS, tags.sorted(), (minutes, report)).await?;
    compare_widths(reader, &KEY_TAG_SUMS, key_tags.sorted(), (minutes, report)).await?;
    compare_widths(reader, &ATTEMPT_SUMS, attempts.sorted(), (minutes, report)).await
}

/// Compares sums of all widths up to days. Wider ones are compared with those of days.
async fn compare_widths<const N: usize, const F: usize, const T: usize, S: Figures<F, T>>(
    reader: &mut SnapshotReader,
    table: &SumTable,
    mut due: BTreeMap<[i64; N], S>,
    (minutes, report): ((i64, i64), &mut VerifyReport),
) -> Result<(), StoreError> {
    for width in table.widths.iter().copied().filter(|width| *width <= DAY) {
        due = widen(&due, width);
        compare_table(reader, table, width, minutes, &due, report).await?;
    }
    Ok(())
}

/// Compares the sums of months with those of their days, and sums of removed records with each other.
pub(super) async fn compare_stored(
    reader: &mut SnapshotReader,
    (dialect, pruned_until): (Dialect, i64),
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    derived::compare::<10, 4>(reader, (&KEY_SUMS, &KEY_TOTALS), pruned_until, report).await?;
    derived::compare::<10, 4>(reader, (&KEY_SUMS, &KEY_DAYS), pruned_until, report).await?;
    derived::compare::<12, 6>(reader, (&KEY_TAG_SUMS, &TAG_SUMS), pruned_until, report).await?;
    months::compare_numbers::<7, 15>(reader, &USAGE_SUMS, report).await?;
    packed::compare_months::<10>(reader, &KEY_SUMS, report).await?;
    packed::compare_months::<4>(reader, &KEY_TOTALS, report).await?;
    months::compare_numbers::<8, 12>(reader, &ACCOUNT_SUMS, report).await?;
    months::compare_numbers::<6, 12>(reader, &TAG_SUMS, report).await?;
    packed::compare_months::<12>(reader, &KEY_TAG_SUMS, report).await?;
    months::compare_times::<7, 15>(reader, dialect, &USAGE_SUMS, report).await
}

/// The stored sums of a width whose times lie between two minutes, in the order of their keys.
async fn stored_sums<const N: usize, const F: usize, const T: usize>(
    reader: &mut SnapshotReader,
    table: &SumTable,
    width: i64,
    (from, to): (i64, i64),
    report: &mut VerifyReport,
) -> Result<Vec<StoredSums<N, F, T>>, StoreError> {
    if table.is_packed() {
        let rows = packed::rows::<N>(reader, table, (width, (from, to)), report).await?;
        let stored = |(key, sums): ([i64; N], UsageSums)| {
            let mut stored = StoredSums::none(key);
            stored.numbers.iter_mut().zip(sums.0).for_each(|(number, sum)| *number = sum);
            stored
        };
        return Ok(rows.into_iter().map(stored).collect());
    }
    let sql = format!(
        "SELECT {} FROM {} WHERE width = {} AND minute >= {from} AND minute < {to} ORDER BY {}",
        column_list(&table.columns[1..]),
        table.name,
        width / MINUTE,
        column_list(&table.columns[1..table.key])
    );
    reader.rows(VERIFY, &sql.into(), Vec::new()).await
}

/// Compares the sums of a table whose times lie between two minutes.
async fn compare_table<const N: usize, const F: usize, const T: usize, S: Figures<F, T>>(
    reader: &mut SnapshotReader,
    table: &SumTable,
    width: i64,
    minutes: (i64, i64),
    due: &BTreeMap<[i64; N], S>,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let stored: Vec<StoredSums<N, F, T>> = stored_sums(reader, table, width, minutes, report).await?;
    let mut differences = Vec::new();
    let mut due = due.iter().peekable();
    let nothing = S::default();
    for stored in stored {
        while let Some((key, missing)) = due.next_if(|(key, _)| **key < stored.key) {
            compare_row(table, missing, &StoredSums::none(*key), &mut differences);
        }
        let due = due.next_if(|(key, _)| **key == stored.key).map_or(&nothing, |(_, due)| due);
        compare_row(table, due, &stored, &mut differences);
    }
    for (key, missing) in due {
        compare_row(table, missing, &StoredSums::none(*key), &mut differences);
    }
    report_differences(reader, table, width, differences, report).await
}

fn compare_row<const N: usize, const F: usize, const T: usize>(
    table: &SumTable,
    due: &impl Figures<F, T>,
    stored: &StoredSums<N, F, T>,
    differences: &mut Vec<Difference<N>>,
) {
    let (numbers, times) = table.columns[table.key..].split_at(F);
    let mut differs =
        |column: &Column, due, found| differences.push(Difference { key: stored.key, figure: column.name, due, stored: found });
    for (column, (due, found)) in numbers.iter().zip(due.numbers().into_iter().zip(stored.numbers)) {
        if due != found {
            differs(column, due, found);
        }
    }
    for (column, (due, found)) in times.iter().zip(due.times().into_iter().zip(&stored.times)) {
        let found = Histogram::decode(found);
        if found.as_ref() != Some(due) {
            let count = |times: &Histogram| i64::try_from(times.count()).unwrap_or(i64::MAX);
            differs(column, count(due), found.as_ref().map_or(0, count));
        }
    }
}

async fn report_differences<const N: usize>(
    reader: &mut SnapshotReader,
    table: &SumTable,
    width: i64,
    differences: Vec<Difference<N>>,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let columns = || table.dimensions().iter();
    let is_text = |column: &Column| column.is_text_number();
    let refs = differences.iter().take(MAX_DIFFERENCES).flat_map(|difference| columns().zip(&difference.key[1..]));
    let refs: BTreeSet<i64> = refs.filter(|(column, _)| is_text(column)).map(|(_, number)| *number).collect();
    let texts = texts(reader, refs).await?;
    let show = |(column, number): (&Column, &i64)| match texts.get(number).filter(|_| is_text(column)) {
        Some((id, name)) if id.is_empty() => format!("{} {name}", column.name),
        Some((id, _)) => format!("{} {id}", column.name),
        None => format!("{} {number}", column.name),
    };
    let name = width_name(width);
    for Difference { key, figure, due, stored } in differences {
        let subject = columns().zip(&key[1..]).map(show).collect::<Vec<_>>().join(", ");
        let begin = Timestamp(key[0] * MINUTE);
        report.differs(table.rule(), format!("{name} {begin} of {subject}, {figure}"), due, stored);
    }
    Ok(())
}

const fn width_name(width: i64) -> &'static str {
    match width {
        MONTH => "month",
        DAY => "day",
        HOUR => "hour",
        _ => "five minutes",
    }
}
