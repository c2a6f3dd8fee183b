//! Checks the consistency of usage records, ledger and sums in one snapshot. Rules that SQL can express are queries for their
//! violations: an id or a position, the expected value, the found value. One pass over the records in order of arrival checks each of
//! them, and recomputes all sums and the expected ledger entries ([`records`]). Of records removed by retention, the ledger entries
//! and sums are compared with each other.

mod records;
mod removed;
mod settled;
mod sums;
mod texts;

use records::PassFacts;
use sqlx::{Any, Row as _, Transaction};
use tollgate_core::Timestamp;

use super::{
    shared_snapshot::{SharedSnapshot, SnapshotReader},
    store::SqlStore,
};
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
        // Entries of batches, and no others, are of the kind `settle`.
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

const COUNTS: &str = "SELECT (SELECT COUNT(*) FROM balances), (SELECT COUNT(*) FROM ledger)";
const PRUNED_UNTIL: &str = "SELECT value FROM counters WHERE name = 'pruned_until'";

/// The number of the reason `overflow`, of records whose costs overflow when added up.
const OVERFLOW: &str = "SELECT ref FROM names WHERE kind = 8 AND id = '' AND name = 'overflow'";

/// The checks' step in the progress of the work.
const STEP: &str = "database";

impl SqlStore {
    /// Ends as soon as the work is cancelled. Running queries are ended, except those of [`QUERIES`] on SQLite, whose connection is
    /// busy until they end by themselves.
    pub(super) async fn verify_all(&self, now: Timestamp, control: &WorkControl) -> Result<VerifyReport, StoreError> {
        let SharedSnapshot { mut queries, readers, processes } = self.shared_snapshot(VERIFY).await?;
        tokio::select! {
            biased;
            () = control.cancelled() => {
                for process in processes {
                    self.end_query(process).await?;
                }
                Err(StoreError::Cancelled)
            }
            verified = self.verify_steps(&mut queries, readers, now, control) => verified,
        }
    }

    /// Ends the query that a process of the server runs.
    async fn end_query(&self, process: i64) -> Result<(), StoreError> {
        let ended = sqlx::query("SELECT pg_cancel_backend(CAST($1 AS INT))").bind(process).execute(self.pools.reader()).await;
        ended.map(drop).map_err(|error| self.failed(VERIFY, error))
    }

    async fn verify_steps(
        &self,
        snapshot: &mut Transaction<'static, Any>,
        readers: [SnapshotReader; 2],
        now: Timestamp,
        control: &WorkControl,
    ) -> Result<VerifyReport, StoreError> {
        let mut steps = 0..;
        let mut next = || control.report(STEP, steps.next().unwrap_or(0), u64::try_from(QUERIES.len() + 4).ok());
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
        let row = sqlx::query(OVERFLOW).fetch_optional(&mut **snapshot).await.map_err(failed)?;
        let overflow = row.map(|row| row.try_get(0)).transpose().map_err(failed)?;
        let left = self.verify_records(readers, PassFacts { pruned_until, overflow }, &mut report).await?;
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

#[cfg(test)]
mod tests;
