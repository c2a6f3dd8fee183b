//! Compares the sums of records with the stored ones, in both directions. Sums of months are compared with those of their days.

mod months;

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::Timestamp;

use super::{VERIFY, texts::texts};
use crate::{
    StoreError,
    rollup::{ATTEMPT_WIDTHS, AttemptSums, DAY, HOUR, Histogram, MINUTE, MONTH, Sums, TimedSums, USAGE_WIDTHS, UsageSums, widen},
    sql::{
        append::BatchSums,
        cells::{Cells, FromCells},
        columns::{self, Column, column_list},
        dialect::Dialect,
        shared_snapshot::SnapshotReader,
    },
    verify::{ConsistencyRule, MAX_DIFFERENCES, VerifyReport},
};

/// A table of sums.
struct SumTable {
    name: &'static str,
    rule: ConsistencyRule,
    columns: &'static [Column],
    /// Number of the first columns, which are the key.
    key: usize,
    /// The columns of the key that are numbers of the dictionary.
    texts: &'static [&'static str],
}

const USAGE_SUMS: SumTable = SumTable {
    name: "usage_sums",
    rule: ConsistencyRule::Rollup,
    columns: columns::USAGE_SUMS,
    key: columns::USAGE_SUMS_KEY,
    texts: &["grp", "model", "channel", "reason"],
};
const KEY_SUMS: SumTable = SumTable {
    name: "key_sums",
    rule: ConsistencyRule::Rollup,
    columns: columns::KEY_SUMS,
    key: columns::KEY_SUMS_KEY,
    texts: &["key", "member", "grp", "model", "channel", "reason"],
};
const ACCOUNT_SUMS: SumTable = SumTable {
    name: "account_sums",
    rule: ConsistencyRule::Rollup,
    columns: columns::ACCOUNT_SUMS,
    key: columns::ACCOUNT_SUMS_KEY,
    texts: &["account", "grp", "model", "channel", "reason"],
};
const ATTEMPT_SUMS: SumTable = SumTable {
    name: "attempt_sums",
    rule: ConsistencyRule::AttemptRollup,
    columns: columns::ATTEMPT_SUMS,
    key: columns::ATTEMPT_SUMS_KEY,
    texts: &["channel", "account", "model", "error"],
};

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
    let BatchSums { usage, keys, accounts, attempts } = sums;
    let (mut usage, mut keys) = (usage.sorted(), keys.sorted());
    let (mut accounts, mut attempts) = (accounts.sorted(), attempts.sorted());
    // Months are compared with their days.
    for width in USAGE_WIDTHS.into_iter().filter(|width| *width < MONTH) {
        usage = widen(&usage, width);
        compare_table(reader, &USAGE_SUMS, width, minutes, &usage, report).await?;
        keys = widen(&keys, width);
        compare_table(reader, &KEY_SUMS, width, minutes, &keys, report).await?;
        accounts = widen(&accounts, width);
        compare_table(reader, &ACCOUNT_SUMS, width, minutes, &accounts, report).await?;
    }
    for width in ATTEMPT_WIDTHS {
        attempts = widen(&attempts, width);
        compare_table(reader, &ATTEMPT_SUMS, width, minutes, &attempts, report).await?;
    }
    Ok(())
}

/// Compares the sums of months with those of their days.
pub(super) async fn compare_months(
    reader: &mut SnapshotReader,
    dialect: Dialect,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    months::compare_numbers::<7, 15>(reader, &USAGE_SUMS, report).await?;
    months::compare_numbers::<9, 12>(reader, &KEY_SUMS, report).await?;
    months::compare_numbers::<8, 12>(reader, &ACCOUNT_SUMS, report).await?;
    months::compare_times::<7, 15>(reader, dialect, &USAGE_SUMS, report).await
}

/// Compares the rows of a table whose times lie between two minutes.
async fn compare_table<const N: usize, const F: usize, const T: usize, S: Figures<F, T>>(
    reader: &mut SnapshotReader,
    table: &SumTable,
    width: i64,
    (from, to): (i64, i64),
    due: &BTreeMap<[i64; N], S>,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let sql = format!(
        "SELECT {} FROM {} WHERE width = {} AND minute >= {from} AND minute < {to} ORDER BY {}",
        column_list(&table.columns[1..]),
        table.name,
        width / MINUTE,
        column_list(&table.columns[1..table.key])
    );
    let stored: Vec<StoredSums<N, F, T>> = reader.rows(VERIFY, &sql.into(), Vec::new()).await?;
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
    tell(reader, table, width, differences, report).await
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

async fn tell<const N: usize>(
    reader: &mut SnapshotReader,
    table: &SumTable,
    width: i64,
    differences: Vec<Difference<N>>,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let columns = || table.columns[2..table.key].iter();
    let is_text = |column: &Column| table.texts.contains(&column.name);
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
        report.differs(table.rule, format!("{name} {begin} of {subject}, {figure}"), due, stored);
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
