//! One pass over the records in order of arrival, in three concurrent stages. The first reads slices of records, the second checks
//! each record by itself and adds it to the sums of its day, and the third compares the sums of each day with the stored ones. The
//! first has a task of its own: values of PostgreSQL are decoded in it, which takes most of the time. A stage is at most one slice or
//! one day ahead of the next, so that memory is bounded by the sums of a few days.

use std::{iter::Peekable, sync::Arc};

use tokio::sync::mpsc;
use tollgate_core::{RequestId, Timestamp, UsageRecord};

use super::{
    VERIFY,
    removed::RecordsLeft,
    settled::{Sales, SettledCheck},
    sums,
};
use crate::{
    StoreError,
    rollup::{DAY, MINUTE},
    sql::{
        append::BatchSums,
        columns::{ATTEMPTS, column_list},
        dialect::Dialect,
        own_task::on_own_task,
        shared_snapshot::SnapshotReader,
        store::SqlStore,
        usage_rows::{
            RecordRefs,
            stored::{AttemptRow, UsageRow, usage_numbers},
        },
    },
    verify::{ConsistencyRule, VerifyReport},
};

/// Records read at once. Few in tests, so that few records make several slices.
const RECORDS_AT_ONCE: usize = if cfg!(test) { 2 } else { 4_000 };

/// Records in order, and the attempts between them that have rows of their own, also in order.
struct Slice {
    rows: Vec<UsageRow>,
    attempts: Vec<AttemptRow>,
}

/// Sums of the records of a time.
struct FinishedDays {
    /// The time in minutes: [from, to).
    minutes: (i64, i64),
    sums: BatchSums,
    sales: Sales,
}

/// Facts read before the pass begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct PassFacts {
    pub(super) pruned_until: i64,
    /// The number of the reason `overflow`, with which costs cannot be added up.
    pub(super) overflow: Option<i64>,
}

impl SqlStore {
    /// Checks all records and sums. Returns how many records there are of days that are removed.
    pub(super) async fn verify_records(
        &self,
        [records, sums]: [SnapshotReader; 2],
        facts: PassFacts,
        report: &mut VerifyReport,
    ) -> Result<RecordsLeft, StoreError> {
        let (slices, sliced) = mpsc::channel(1);
        let (days, finished) = mpsc::channel(1);
        let ((), pass, compared) = tokio::try_join!(
            on_own_task(read_slices(records, slices)),
            self.check_slices(facts, sliced, days),
            compare_days(sums, (self.dialect, facts.pruned_until), finished)
        )?;
        for part in [compared.settled, pass.report, compared.sums] {
            report.append(part);
        }
        Ok(pass.left)
    }

    async fn check_slices(
        &self,
        facts: PassFacts,
        mut slices: mpsc::Receiver<Slice>,
        days: mpsc::Sender<FinishedDays>,
    ) -> Result<RecordPass, StoreError> {
        let mut pass = RecordPass::new(facts);
        while let Some(Slice { rows, attempts }) = slices.recv().await {
            let mut attempts = attempts.into_iter().peekable();
            for row in rows {
                pass.orphans(&mut attempts, Some(row.id));
                if let Some(day) = pass.day_before(&row) {
                    // It fails if the next stage failed, which ends this one too.
                    let _ = days.send(day).await;
                }
                let id = row.id;
                let others = std::iter::from_fn(|| attempts.next_if(|attempt| attempt.request == id)).collect();
                pass.record(row, others).map_err(|error| self.failed(VERIFY, error))?;
            }
            pass.orphans(&mut attempts, None);
        }
        let _ = days.send(pass.finish(i64::from(i32::MAX) * MINUTE)).await;
        Ok(pass)
    }
}

/// Reads all records and attempts. As long as a slice is full, the next one is looked for on the same day: PostgreSQL opens every
/// partition that a range may touch.
async fn read_slices(mut reader: SnapshotReader, slices: mpsc::Sender<Slice>) -> Result<(), StoreError> {
    let rows = |conditions: &str| {
        let columns = usage_numbers();
        Arc::<str>::from(format!("SELECT {columns} FROM usage WHERE {conditions} ORDER BY id LIMIT {RECORDS_AT_ONCE}"))
    };
    let attempts = |conditions: &str| {
        let columns = column_list(ATTEMPTS);
        Arc::<str>::from(format!("SELECT {columns} FROM attempts WHERE {conditions} ORDER BY request, position"))
    };
    let (rows_after, rows_of_day) = (rows("id > $1"), rows("id > $1 AND id < $2"));
    let (attempts_after, attempts_until) = (attempts("request > $1"), attempts("request > $1 AND request <= $2"));
    let (mut last, mut next_day) = (RequestId::first_at(Timestamp(0)), None);
    loop {
        let rows: Vec<UsageRow> = match next_day {
            None => reader.rows(VERIFY, &rows_after, vec![last]).await?,
            Some(next_day) => reader.rows(VERIFY, &rows_of_day, vec![last, next_day]).await?,
        };
        if rows.is_empty() && next_day.take().is_some() {
            continue;
        }
        let until = rows.last().map(|row| row.id);
        next_day = until.filter(|_| rows.len() == RECORDS_AT_ONCE).map(day_after);
        let attempts = match until {
            None => reader.rows(VERIFY, &attempts_after, vec![last]).await?,
            Some(until) => reader.rows(VERIFY, &attempts_until, vec![last, until]).await?,
        };
        // It fails if the next stage failed, which ends this one too.
        let _ = slices.send(Slice { rows, attempts }).await;
        match until {
            Some(until) => last = until,
            None => return Ok(()),
        }
    }
}

/// Before all requests of the days after the one of a request, and behind those of its day.
fn day_after(id: RequestId) -> RequestId {
    RequestId::first_at(Timestamp::of_day(id.time().day() + 1))
}

/// Result of the comparison with the stored sums and the ledger.
struct Compared {
    sums: VerifyReport,
    settled: VerifyReport,
}

async fn compare_days(
    mut reader: SnapshotReader,
    (dialect, pruned_until): (Dialect, i64),
    mut days: mpsc::Receiver<FinishedDays>,
) -> Result<Compared, StoreError> {
    let (mut sums, mut settled) = (VerifyReport::default(), SettledCheck::new(pruned_until));
    while let Some(FinishedDays { minutes, sums: due, sales }) = days.recv().await {
        sums::compare(&mut reader, due, minutes, &mut sums).await?;
        settled.add(&mut reader, sales, minutes.1 * MINUTE).await?;
    }
    sums::compare_stored(&mut reader, (dialect, pruned_until), &mut sums).await?;
    let settled = settled.finish(&mut reader).await?;
    Ok(Compared { sums, settled })
}

struct RecordPass {
    facts: PassFacts,
    /// The day whose sums are computed.
    day: i64,
    /// The time in microseconds up to which sums were handed over.
    finished: i64,
    sums: BatchSums,
    sales: Sales,
    left: RecordsLeft,
    report: VerifyReport,
}

impl RecordPass {
    fn new(facts: PassFacts) -> Self {
        Self {
            facts,
            day: facts.pruned_until.div_euclid(DAY),
            finished: facts.pruned_until,
            sums: BatchSums::default(),
            sales: Sales::default(),
            left: RecordsLeft::new(),
            report: VerifyReport::default(),
        }
    }

    /// If this record is the first of its day: the sums of the records before that day.
    fn day_before(&mut self, row: &UsageRow) -> Option<FinishedDays> {
        let day = row.at().day();
        if day <= self.day {
            return None;
        }
        self.day = day;
        Some(self.finish(Timestamp::of_day(day).0))
    }

    /// Takes the sums of the records before `until`, which is the end of a day.
    fn finish(&mut self, until: i64) -> FinishedDays {
        let minutes = (self.finished / MINUTE, until / MINUTE);
        self.finished = until;
        FinishedDays { minutes, sums: std::mem::take(&mut self.sums), sales: std::mem::take(&mut self.sales) }
    }

    fn record(&mut self, row: UsageRow, others: Vec<AttemptRow>) -> Result<(), sqlx::Error> {
        let (expected, booked) = (row.attempts, row.booked);
        let is_numbered = if others.is_empty() {
            row.inline.into_iter().eq(0..expected)
        } else {
            let mut positions: Vec<usize> = others.iter().map(|other| other.position).chain(row.inline).collect();
            positions.sort_unstable();
            positions.into_iter().eq(0..expected)
        };
        let (record, refs) = row.into_numbers(others)?;
        self.report.records += 1;
        self.report.attempts += record.attempts.len() as u64;
        self.check_cost(&record, &refs);
        if !is_numbered {
            let what = record.id.to_string();
            self.report.differs(ConsistencyRule::Attempts, what, narrow(expected), narrow(record.attempts.len()));
        }
        if let Some(sale) = record.sale {
            self.sales.add(booked, refs.member, sale);
        }
        if record.at.0 < self.facts.pruned_until {
            *self.left.entry((record.at.day(), refs.member)).or_default() += 1;
        } else {
            self.sums.add(&record, &refs);
        }
        Ok(())
    }

    /// Takes attempts that have no record: those before the one of this id, or all.
    fn orphans(&mut self, attempts: &mut Peekable<impl Iterator<Item = AttemptRow>>, before: Option<RequestId>) {
        while let Some(orphan) = attempts.next_if(|attempt| before.is_none_or(|id| attempt.request < id)) {
            let others = std::iter::from_fn(|| attempts.next_if(|attempt| attempt.request == orphan.request)).count();
            self.report.attempts += others as u64 + 1;
            self.report.differs(ConsistencyRule::Attempts, orphan.request.to_string(), 0, narrow(others + 1));
        }
    }

    /// If the cost of one attempt is unknown, so is the cost of the record.
    fn check_cost(&mut self, record: &UsageRecord, refs: &RecordRefs) {
        let costs: Option<i64> = record.attempts.iter().map(|attempt| attempt.cost.map(|cost| cost.0)).sum();
        let overflow = self.facts.overflow;
        if costs != record.cost.map(|cost| cost.0) && (refs.reason.is_none() || refs.reason != overflow) {
            let known = record.attempts.iter().filter_map(|attempt| attempt.cost).map(|cost| cost.0).sum();
            self.report.differs(ConsistencyRule::Cost, record.id.to_string(), known, record.cost.map_or(0, |cost| cost.0));
        }
    }
}

fn narrow(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
