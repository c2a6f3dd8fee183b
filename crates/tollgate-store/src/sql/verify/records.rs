//! One pass over the records in order of arrival: each is checked by itself, and the sums of each day are recomputed and compared
//! with the stored ones, in both directions. Memory is bounded by the sums of one day.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::{Any, AssertSqlSafe, Row as _, Transaction, any::AnyRow};
use tollgate_core::{RequestId, Timestamp, UsageRecord};

use super::removed::RecordsLeft;
use crate::{
    rollup::{ATTEMPT_WIDTHS, AttemptSums, DAY, HOUR, Histogram, MINUTE, Sums, TimedSums, USAGE_WIDTHS, UsageSums, widen},
    sql::{
        append::BatchSums,
        columns::{self, ATTEMPTS, Column, USAGE, column_list},
        dialect::Dialect,
        usage::names_on,
        usage_filter::bind_ids,
        usage_rows::{AttemptRow, RecordRefs, UsageRow, attempt_row, usage_numbers},
    },
    verify::{ConsistencyRule, VerifyReport},
};

/// Records read at once.
const RECORDS_AT_ONCE: usize = 2_000;

/// Checks all records and sums. Returns how many records there are of days that are removed.
pub(super) async fn verify(
    snapshot: &mut Transaction<'static, Any>,
    dialect: Dialect,
    pruned_until: i64,
    report: &mut VerifyReport,
) -> Result<RecordsLeft, sqlx::Error> {
    let mut pass = RecordPass {
        pruned_until,
        day: pruned_until.div_euclid(DAY),
        compared: pruned_until,
        sums: BatchSums::default(),
        left: RecordsLeft::new(),
        overflow: overflow(snapshot).await?,
    };
    let mut last = RequestId::first_at(Timestamp(0));
    let slice = format!("SELECT * FROM usage WHERE id > $1 ORDER BY id LIMIT {RECORDS_AT_ONCE}");
    let sql = format!("SELECT {} FROM ({slice}) AS slice", dialect.packed_rows(USAGE));
    loop {
        let row = bind_ids(sqlx::query(AssertSqlSafe(sql.clone())), &[last]).fetch_one(&mut **snapshot).await?;
        let rows: Option<&str> = row.try_get(0)?;
        let rows = rows.map(usage_numbers).transpose()?.unwrap_or_default();
        let until = rows.last().map(|row| row.id);
        let mut attempts = attempts_between(snapshot, last, until).await?;
        for row in rows {
            let others = attempts.remove(&row.id).unwrap_or_default();
            pass.record(snapshot, row, others, report).await?;
        }
        for (request, attempts) in attempts {
            let count = attempts.len();
            report.attempts += count as u64;
            report.differs(ConsistencyRule::Attempts, request.to_string(), 0, narrow(count));
        }
        match until {
            Some(until) => last = until,
            None => break,
        }
    }
    pass.compare(snapshot, i64::from(i32::MAX) * MINUTE, report).await?;
    Ok(pass.left)
}

/// The attempts of the requests behind `after` up to `until`.
async fn attempts_between(
    snapshot: &mut Transaction<'static, Any>,
    after: RequestId,
    until: Option<RequestId>,
) -> Result<BTreeMap<RequestId, Vec<AttemptRow>>, sqlx::Error> {
    let end = if until.is_some() { " AND request <= $2" } else { "" };
    let sql = format!("SELECT {} FROM attempts WHERE request > $1{end}", column_list(ATTEMPTS));
    let ids: Vec<RequestId> = [after].into_iter().chain(until).collect();
    let mut attempts: BTreeMap<RequestId, Vec<AttemptRow>> = BTreeMap::new();
    for row in bind_ids(sqlx::query(AssertSqlSafe(sql)), &ids).fetch_all(&mut **snapshot).await? {
        let row = attempt_row(&row)?;
        attempts.entry(row.request).or_default().push(row);
    }
    Ok(attempts)
}

struct RecordPass {
    pruned_until: i64,
    /// The day whose sums are computed.
    day: i64,
    /// The time in microseconds up to which stored sums were compared.
    compared: i64,
    sums: BatchSums,
    left: RecordsLeft,
    /// The number of the reason `overflow`, with which costs cannot be added up.
    overflow: Option<i64>,
}

impl RecordPass {
    async fn record(
        &mut self,
        snapshot: &mut Transaction<'static, Any>,
        row: UsageRow,
        others: Vec<AttemptRow>,
        report: &mut VerifyReport,
    ) -> Result<(), sqlx::Error> {
        let expected = row.attempts;
        let mut positions: Vec<usize> = others.iter().map(|other| other.position).chain(row.inline).collect();
        positions.sort_unstable();
        let (record, refs) = row.into_numbers(others)?;
        report.records += 1;
        report.attempts += positions.len() as u64;
        self.check_cost(&record, &refs, report);
        if !positions.iter().copied().eq(0..expected) {
            report.differs(ConsistencyRule::Attempts, record.id.to_string(), narrow(expected), narrow(positions.len()));
        }
        if record.at.0 < self.pruned_until {
            *self.left.entry((record.at.day(), refs.member)).or_default() += 1;
            return Ok(());
        }
        if record.at.day() > self.day {
            self.compare(snapshot, Timestamp::of_day(record.at.day()).0, report).await?;
            self.day = record.at.day();
        }
        self.sums.add(&record, &refs);
        Ok(())
    }

    /// If the cost of one attempt is unknown, so is the cost of the record.
    fn check_cost(&self, record: &UsageRecord, refs: &RecordRefs, report: &mut VerifyReport) {
        let costs: Option<i64> = record.attempts.iter().map(|attempt| attempt.cost.map(|cost| cost.0)).sum();
        if costs != record.cost.map(|cost| cost.0) && (refs.reason.is_none() || refs.reason != self.overflow) {
            let known = record.attempts.iter().filter_map(|attempt| attempt.cost).map(|cost| cost.0).sum();
            report.differs(ConsistencyRule::Cost, record.id.to_string(), known, record.cost.map_or(0, |cost| cost.0));
        }
    }

    /// Compares the computed sums with those stored up to a time, which is the end of a day.
    async fn compare(
        &mut self,
        snapshot: &mut Transaction<'static, Any>,
        until: i64,
        report: &mut VerifyReport,
    ) -> Result<(), sqlx::Error> {
        let BatchSums { usage, keys, attempts } = std::mem::take(&mut self.sums);
        let (mut usage, mut keys, mut attempts) = (usage.sorted(), keys.sorted(), attempts.sorted());
        let minutes = (self.compared / MINUTE, until / MINUTE);
        for width in USAGE_WIDTHS {
            usage = widen(&usage, width);
            compare_table(snapshot, &USAGE_SUMS, width, minutes, &usage, report).await?;
            keys = widen(&keys, width);
            compare_table(snapshot, &KEY_SUMS, width, minutes, &keys, report).await?;
        }
        for width in ATTEMPT_WIDTHS {
            attempts = widen(&attempts, width);
            compare_table(snapshot, &ATTEMPT_SUMS, width, minutes, &attempts, report).await?;
        }
        self.compared = until;
        Ok(())
    }
}

async fn overflow(snapshot: &mut Transaction<'static, Any>) -> Result<Option<i64>, sqlx::Error> {
    let sql = "SELECT ref FROM names WHERE kind = 8 AND id = '' AND name = 'overflow'";
    sqlx::query(sql).fetch_optional(&mut **snapshot).await?.map(|row| row.try_get(0)).transpose()
}

fn narrow(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

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
    texts: &["key", "member", "grp", "model"],
};
const ATTEMPT_SUMS: SumTable = SumTable {
    name: "attempt_sums",
    rule: ConsistencyRule::AttemptRollup,
    columns: columns::ATTEMPT_SUMS,
    key: columns::ATTEMPT_SUMS_KEY,
    texts: &["channel", "account", "model", "error"],
};

/// The figures of a row of sums, in the order of its columns.
trait Figures {
    fn values(&self) -> Vec<i64>;

    fn times(&self) -> Option<[&Histogram; 2]> {
        None
    }
}

impl Figures for UsageSums {
    fn values(&self) -> Vec<i64> {
        self.figures().to_vec()
    }
}

impl Figures for AttemptSums {
    fn values(&self) -> Vec<i64> {
        self.figures().to_vec()
    }
}

impl Figures for TimedSums {
    fn values(&self) -> Vec<i64> {
        self.sums.values()
    }

    fn times(&self) -> Option<[&Histogram; 2]> {
        Some([&self.ttft, &self.duration])
    }
}

/// Compares the rows of a table whose times lie between two minutes.
async fn compare_table<const N: usize, S: Sums + Figures>(
    snapshot: &mut Transaction<'static, Any>,
    table: &SumTable,
    width: i64,
    (from, to): (i64, i64),
    expected: &BTreeMap<[i64; N], S>,
    report: &mut VerifyReport,
) -> Result<(), sqlx::Error> {
    let mut expected: HashMap<&[i64], &S> = expected.iter().map(|(key, sums)| (key.as_slice(), sums)).collect();
    let sql = format!(
        "SELECT {} FROM {} WHERE width = {} AND minute >= {from} AND minute < {to} ORDER BY {}",
        column_list(&table.columns[1..]),
        table.name,
        width / MINUTE,
        column_list(&table.columns[1..table.key])
    );
    let none = S::default();
    for row in sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut **snapshot).await? {
        let key: Vec<i64> = (0..table.key - 1).map(|at| row.try_get(at)).collect::<Result<_, _>>()?;
        let due = expected.remove(key.as_slice()).unwrap_or(&none);
        let stored = StoredSums::read(&row, table)?;
        compare_row(snapshot, table, width, &key, due, &stored, report).await?;
    }
    let mut missing: Vec<_> = expected.into_iter().collect();
    missing.sort_unstable_by_key(|(key, _)| *key);
    for (key, due) in missing {
        compare_row(snapshot, table, width, key, due, &StoredSums::none(table), report).await?;
    }
    Ok(())
}

struct StoredSums {
    values: Vec<i64>,
    times: Vec<Option<Histogram>>,
}

impl StoredSums {
    fn read(row: &AnyRow, table: &SumTable) -> Result<Self, sqlx::Error> {
        let (mut values, mut times) = (Vec::new(), Vec::new());
        for (at, column) in table.columns.iter().enumerate().skip(table.key) {
            if column.kind.is_number() {
                values.push(row.try_get(at - 1)?);
            } else {
                times.push(Histogram::decode(&row.try_get::<Vec<u8>, _>(at - 1)?));
            }
        }
        Ok(Self { values, times })
    }

    fn none(table: &SumTable) -> Self {
        let figures = table.columns.iter().skip(table.key);
        let (values, times): (Vec<&Column>, Vec<&Column>) = figures.partition(|column| column.kind.is_number());
        Self { values: vec![0; values.len()], times: vec![Some(Histogram::default()); times.len()] }
    }
}

async fn compare_row<S: Figures>(
    snapshot: &mut Transaction<'static, Any>,
    table: &SumTable,
    width: i64,
    key: &[i64],
    due: &S,
    stored: &StoredSums,
    report: &mut VerifyReport,
) -> Result<(), sqlx::Error> {
    let figures = table.columns[table.key..].iter();
    let values = figures.clone().zip(due.values().into_iter().zip(&stored.values));
    let mut differences: Vec<(&str, i64, i64)> =
        values.filter(|(_, (due, stored))| due != *stored).map(|(column, (due, stored))| (column.name, due, *stored)).collect();
    let times = figures.filter(|column| !column.kind.is_number());
    for ((column, due), stored) in times.zip(due.times().into_iter().flatten()).zip(&stored.times) {
        if stored.as_ref() != Some(due) {
            let count = |times: &Histogram| i64::try_from(times.count()).unwrap_or(i64::MAX);
            differences.push((column.name, count(due), stored.as_ref().map_or(0, count)));
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    let subject = subject(snapshot, table, key).await?;
    let (name, begin) = (width_name(width), Timestamp(key[0] * MINUTE));
    for (figure, due, stored) in differences {
        report.differs(table.rule, format!("{name} {begin} of {subject}, {figure}"), due, stored);
    }
    Ok(())
}

const fn width_name(width: i64) -> &'static str {
    match width {
        DAY => "day",
        HOUR => "hour",
        _ => "five minutes",
    }
}

/// Key of a row of sums, with texts instead of numbers.
async fn subject(snapshot: &mut Transaction<'static, Any>, table: &SumTable, key: &[i64]) -> Result<String, sqlx::Error> {
    let columns = || table.columns[1..table.key].iter().zip(key).skip(1);
    let is_text = |column: &Column| table.texts.contains(&column.name);
    let refs: BTreeSet<i64> = columns().filter(|(column, _)| is_text(column)).map(|(_, number)| *number).collect();
    let names = names_on(snapshot, &refs).await?;
    let show = |(column, number): (&Column, &i64)| match names.get(number).filter(|_| is_text(column)) {
        Some((id, name)) if id.is_empty() => format!("{} {name}", column.name),
        Some((id, _)) => format!("{} {id}", column.name),
        None => format!("{} {number}", column.name),
    };
    Ok(columns().map(show).collect::<Vec<_>>().join(", "))
}
