//! Checks the consistency of usage records, ledger and sums in one snapshot. What a query can tell is a query for its violations: an
//! id or a position, the expected value, the found value. One pass over the records in order of arrival checks each of them and
//! recomputes all sums ([`records`]). Of records removed by retention, the ledger entries and sums are compared with each other.

mod records;
mod removed;

use sqlx::{Any, Row as _, Transaction};
use tollgate_core::Timestamp;

use super::{dialect::Dialect, store::SqlStore};
use crate::{
    StoreError, WorkControl,
    verify::{ConsistencyRule, VerifyReport},
};

const VERIFY: &str = "verify the usage log and the ledger";

const QUERIES: &[(ConsistencyRule, &str)] = &[
    (
        ConsistencyRule::Balance,
        "SELECT member_id, CAST(SUM(summed) AS BIGINT), CAST(SUM(noted) AS BIGINT) FROM ( \
           SELECT member_id, amount AS summed, 0 AS noted FROM ledger UNION ALL SELECT member_id, 0, balance FROM balances \
         ) AS both_sides GROUP BY member_id HAVING SUM(summed) <> SUM(noted) ORDER BY member_id",
    ),
    (
        ConsistencyRule::Running,
        "SELECT CAST(seq AS TEXT), CAST(expected AS BIGINT), balance FROM ( \
           SELECT seq, balance, amount + COALESCE(LAG(balance) OVER (PARTITION BY member_id ORDER BY seq), 0) AS expected FROM ledger \
         ) AS entries WHERE balance <> expected ORDER BY seq",
    ),
    (
        // Exactly the entries of batches are of the kind `settle`.
        ConsistencyRule::EntryKind,
        "SELECT CAST(seq AS TEXT) || ' (' || kind || ')', CAST(0 AS BIGINT), amount FROM ledger \
         WHERE (kind = 'settle') <> (batch IS NOT NULL) ORDER BY seq",
    ),
    (
        ConsistencyRule::Positions,
        "SELECT 'ledger', value, there FROM counters, (SELECT CAST(COUNT(*) AS BIGINT) AS there, \
           CAST(COALESCE(MAX(seq), 0) AS BIGINT) AS last FROM ledger) AS entries \
         WHERE name = 'ledger' AND (value <> there OR value <> last)",
    ),
];

/// Batches and members whose records do not have the price or the number that the ledger has: prices and numbers of both sides, and
/// the first arrival.
const SETTLED: &str = "SELECT batch, member_id, CAST(SUM(due) AS BIGINT), CAST(SUM(due_count) AS BIGINT), CAST(SUM(there) AS BIGINT), \
       CAST(SUM(there_count) AS BIGINT), CAST(COALESCE(MIN(first_at), -1) AS BIGINT) FROM ( \
       SELECT u.booked AS batch, n.id AS member_id, u.sale AS due, 1 AS due_count, 0 AS there, 0 AS there_count, \
         CAST(NULL AS BIGINT) AS first_at FROM usage u JOIN names n ON n.ref = u.member WHERE u.sale <> 0 UNION ALL \
       SELECT batch, member_id, 0, 0, -amount, requests, first_at FROM ledger WHERE kind = 'settle' \
     ) AS both_sides GROUP BY batch, member_id HAVING SUM(due) <> SUM(there) OR SUM(due_count) <> SUM(there_count) ORDER BY 1, 2";

const COUNTS: &str = "SELECT (SELECT COUNT(*) FROM balances), (SELECT COUNT(*) FROM ledger)";
const PRUNED_UNTIL: &str = "SELECT value FROM counters WHERE name = 'pruned_until'";

/// Step of the work that the checks are.
const STEP: &str = "database";

impl SqlStore {
    /// Ends as soon as the work is cancelled. A query that runs then is ended on PostgreSQL; on SQLite its connection is busy until the
    /// query ends by itself.
    pub(super) async fn verify_all(&self, now: Timestamp, control: &WorkControl) -> Result<VerifyReport, StoreError> {
        let mut snapshot = self.snapshot(VERIFY).await?;
        if self.dialect == Dialect::Postgres {
            // Before the snapshot is taken: retention could drop a partition that it still counts.
            let lock = sqlx::raw_sql("LOCK TABLE usage, attempts IN ACCESS SHARE MODE").execute(&mut *snapshot).await;
            lock.map_err(|error| self.failed(VERIFY, error))?;
        }
        let process = self.server_process(&mut snapshot).await?;
        tokio::select! {
            biased;
            () = control.cancelled() => {
                if let Some(process) = process {
                    self.end_query(process).await?;
                }
                Err(StoreError::Cancelled)
            }
            verified = self.verify_steps(&mut snapshot, now, control) => verified,
        }
    }

    /// The process of the server behind a connection; none on SQLite.
    async fn server_process(&self, connection: &mut Transaction<'static, Any>) -> Result<Option<i64>, StoreError> {
        if self.dialect == Dialect::Sqlite {
            return Ok(None);
        }
        let row = sqlx::query("SELECT CAST(pg_backend_pid() AS BIGINT)").fetch_one(&mut **connection).await;
        row.and_then(|row| row.try_get(0)).map(Some).map_err(|error| self.failed(VERIFY, error))
    }

    /// Ends the query that a process of the server runs.
    async fn end_query(&self, process: i64) -> Result<(), StoreError> {
        let ended = sqlx::query("SELECT pg_cancel_backend(CAST($1 AS INT))").bind(process).execute(&self.reader).await;
        ended.map(drop).map_err(|error| self.failed(VERIFY, error))
    }

    async fn verify_steps(
        &self,
        snapshot: &mut Transaction<'static, Any>,
        now: Timestamp,
        control: &WorkControl,
    ) -> Result<VerifyReport, StoreError> {
        let mut steps = 0..;
        let mut next = || control.report(STEP, steps.next().unwrap_or(0), u64::try_from(QUERIES.len() + 5).ok());
        next();
        let failed = |error| self.failed(VERIFY, error);
        let row = sqlx::query(COUNTS).fetch_one(&mut **snapshot).await.map_err(failed)?;
        let count = |at: usize| row.try_get::<i64, _>(at).map(|count| u64::try_from(count).unwrap_or(0)).map_err(failed);
        let mut report = VerifyReport { members: count(0)?, entries: count(1)?, ..VerifyReport::default() };
        let row = sqlx::query(PRUNED_UNTIL).fetch_one(&mut **snapshot).await.map_err(failed)?;
        let pruned_until: i64 = row.try_get(0).map_err(failed)?;
        for (rule, sql) in QUERIES {
            next();
            self.verify_rule(snapshot, *rule, sql, &mut report).await?;
        }
        next();
        verify_settled(snapshot, pruned_until, &mut report).await.map_err(failed)?;
        next();
        let left = records::verify(snapshot, self.dialect, pruned_until, &mut report).await.map_err(failed)?;
        next();
        removed::verify(snapshot, pruned_until, now, &left, &mut report).await.map_err(failed)?;
        next();
        self.verify_chains(snapshot, &mut report).await?;
        next();
        Ok(report)
    }

    async fn verify_rule(
        &self,
        snapshot: &mut Transaction<'static, Any>,
        rule: ConsistencyRule,
        sql: &'static str,
        report: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        use futures_util::TryStreamExt as _;
        let failed = |error| self.failed(VERIFY, error);
        let mut rows = sqlx::query(sql).fetch(&mut **snapshot);
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            let what = row.try_get(0).map_err(failed)?;
            report.differs(rule, what, row.try_get(1).map_err(failed)?, row.try_get(2).map_err(failed)?);
        }
        Ok(())
    }
}

/// Compares the prices of each batch and member with the ledger.
async fn verify_settled(
    snapshot: &mut Transaction<'static, Any>,
    pruned_until: i64,
    report: &mut VerifyReport,
) -> Result<(), sqlx::Error> {
    use futures_util::TryStreamExt as _;
    let mut rows = sqlx::query(SETTLED).fetch(&mut **snapshot);
    while let Some(row) = rows.try_next().await? {
        let (batch, member): (Option<i64>, String) = (row.try_get(0)?, row.try_get(1)?);
        let number = |at: usize| row.try_get::<i64, _>(at);
        let (due, due_count, there, there_count, first_at) = (number(2)?, number(3)?, number(4)?, number(5)?, number(6)?);
        // Records of the entry may have been removed.
        let may_lack_records = (0..pruned_until).contains(&first_at) && due_count <= there_count;
        if may_lack_records {
            continue;
        }
        let what = format!("{} of {member}", batch.unwrap_or(0));
        match (due_count, due == there) {
            (0, _) => report.differs(ConsistencyRule::Settles, what, 0, -there),
            (_, false) => report.differs(ConsistencyRule::Settled, what, -due, -there),
            (_, true) => report.differs(ConsistencyRule::SettledCount, what, due_count, there_count),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
