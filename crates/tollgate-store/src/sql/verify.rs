//! Checks the consistency of usage records, ledger and sums in one snapshot. Each rule is a query for its violations: an id or a
//! position, the expected value, the found value. Roll-ups are compared column by column ([`sums`]). Of records removed by
//! retention, the ledger entries and sums are compared with each other.

mod snapshot;
mod sums;

use tollgate_core::Timestamp;

use super::store::SqlStore;
use crate::{
    StoreError, WorkControl,
    verify::{ConsistencyRule, VerifyReport},
};

pub(super) use snapshot::{Snapshot, SnapshotRow};

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
        ConsistencyRule::Settled,
        "SELECT u.id, -COALESCE(u.sale, 0), COALESCE(l.amount, 0) FROM usage u LEFT JOIN ledger l ON l.request_id = u.id \
         AND l.member_id = u.member_id AND l.kind = 'settle' WHERE -COALESCE(u.sale, 0) <> COALESCE(l.amount, 0) ORDER BY u.id",
    ),
    (
        ConsistencyRule::Settles,
        "SELECT CAST(l.seq AS TEXT), CAST(0 AS BIGINT), l.amount FROM ledger l WHERE l.kind = 'settle' \
         AND l.at >= (SELECT value FROM counters WHERE name = 'pruned_until') AND NOT EXISTS (SELECT 1 FROM usage u WHERE u.id = l.request_id) ORDER BY l.seq",
    ),
    (
        // Exactly the entries of requests are of the kind `settle`.
        ConsistencyRule::EntryKind,
        "SELECT CAST(seq AS TEXT) || ' (' || kind || ')', CAST(0 AS BIGINT), amount FROM ledger \
         WHERE (kind = 'settle') <> (request_id IS NOT NULL) ORDER BY seq",
    ),
    (
        ConsistencyRule::Positions,
        "SELECT 'ledger', value, there FROM counters, (SELECT CAST(COUNT(*) AS BIGINT) AS there, \
           CAST(COALESCE(MAX(seq), 0) AS BIGINT) AS last FROM ledger) AS entries \
         WHERE name = 'ledger' AND (value <> there OR value <> last)",
    ),
    (
        // If the cost of one attempt is unknown, so is the cost of the record.
        ConsistencyRule::Cost,
        "SELECT u.id, COALESCE(a.summed, 0), COALESCE(u.cost, 0) FROM usage u LEFT JOIN ( \
           SELECT request_id, CAST(SUM(cost) AS BIGINT) AS summed, SUM(CASE WHEN cost IS NULL THEN 1 ELSE 0 END) AS unknown \
           FROM attempts GROUP BY request_id \
         ) AS a ON a.request_id = u.id WHERE COALESCE(u.reason, '') <> 'overflow' AND ( \
           (COALESCE(a.unknown, 0) > 0 AND u.cost IS NOT NULL) \
           OR (COALESCE(a.unknown, 0) = 0 AND (u.cost IS NULL OR u.cost <> COALESCE(a.summed, 0))) \
         ) ORDER BY u.id",
    ),
    (
        ConsistencyRule::Attempts,
        "SELECT request_id, CAST(MAX(position) + 1 AS BIGINT), CAST(COUNT(*) AS BIGINT) FROM attempts GROUP BY request_id \
         HAVING MAX(position) + 1 <> COUNT(*) UNION ALL \
         SELECT a.request_id, CAST(0 AS BIGINT), CAST(COUNT(*) AS BIGINT) FROM attempts a \
         WHERE NOT EXISTS (SELECT 1 FROM usage u WHERE u.id = a.request_id) GROUP BY a.request_id ORDER BY 1",
    ),
];

const COUNTS: &str = "SELECT (SELECT COUNT(*) FROM balances), (SELECT COUNT(*) FROM ledger), (SELECT COUNT(*) FROM usage), \
     (SELECT COUNT(*) FROM attempts)";

/// Step of the work that the checks are.
const STEP: &str = "database";

impl SqlStore {
    /// Blocks the thread on SQLite.
    pub(super) async fn verify_all(&self, now: Timestamp, control: &WorkControl) -> Result<VerifyReport, StoreError> {
        let mut report = VerifyReport::default();
        let mut snapshot = Snapshot::begin(self, control).await?;
        let checks = QUERIES.len() + sums::ROLLUPS.len() + 3;
        let mut done = 0;
        let mut next = || {
            control.report(STEP, done, u64::try_from(checks).ok());
            done += 1;
        };
        next();
        let count = |row: &SnapshotRow<'_>, at: usize| row.number(at).map(|count| u64::try_from(count).unwrap_or(0));
        let read = |row: &SnapshotRow<'_>| {
            (report.members, report.entries) = (count(row, 0)?, count(row, 1)?);
            (report.records, report.attempts) = (count(row, 2)?, count(row, 3)?);
            Ok(())
        };
        snapshot.each(COUNTS, &[], read).await?;
        for (rule, sql) in QUERIES {
            next();
            let differs = |row: &SnapshotRow<'_>| {
                report.differs(*rule, row.text(0)?.to_owned(), row.number(1)?, row.number(2)?);
                Ok(())
            };
            snapshot.each(sql, &[], differs).await?;
        }
        for rollup in sums::ROLLUPS {
            next();
            rollup.verify(&mut snapshot, &mut report).await?;
        }
        next();
        sums::verify_removed(&mut snapshot, now, &mut report).await?;
        next();
        self.verify_chains(&mut snapshot, &mut report).await?;
        next();
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, any::AnyConnectOptions};
    use tempfile::TempDir;
    use tollgate_core::NanoUsd;

    use crate::{
        WorkControl,
        conformance::{options, sqlite},
        open,
        samples::{MIDNIGHT, record},
        verify::ConsistencyRule,
    };

    /// Runs SQL on a consistent database and returns the violations that [`LedgerStore::verify`](crate::LedgerStore::verify) finds.
    pub(super) async fn broken_by(tampering: &str) -> Vec<(ConsistencyRule, i64, i64)> {
        let dir = TempDir::new().unwrap();
        let store = open(options(sqlite(&dir), &dir)).await.unwrap();
        let mut records: Vec<_> = (1..6).map(record).collect();
        for record in &mut records {
            record.cost = Some(NanoUsd(14));
        }
        records[0].attempts[0].cost = None;
        records[0].cost = None;
        store.usage.append(&records).await.unwrap();
        let path = dir.path().join("tollgate.db");
        let url = format!("sqlite:{}?mode=rw", path.display());
        let mut connection = AnyConnection::connect_with(&AnyConnectOptions::from_str(&url).unwrap()).await.unwrap();
        let tampering = tampering.replace("FIRST", &records[0].id.to_string()).replace("SECOND", &records[1].id.to_string());
        sqlx::raw_sql(AssertSqlSafe(tampering)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let verified = store.ledger.verify(MIDNIGHT, &WorkControl::unattended()).await.unwrap();
        assert_eq!((verified.records, verified.members), (verified.records, 2));
        verified.differences.into_iter().map(|it| (it.rule, it.expected, it.found)).collect()
    }

    #[tokio::test]
    async fn consistent_database_has_no_mismatch() {
        assert_eq!(broken_by("SELECT 1").await, []);
    }

    #[tokio::test]
    async fn every_kind_of_tampering_is_detected() {
        let rules = |found: Vec<(ConsistencyRule, i64, i64)>| found.into_iter().map(|(rule, ..)| rule).collect::<Vec<_>>();
        assert_eq!(
            broken_by("UPDATE balances SET balance = balance + 1 WHERE balance = -4000").await,
            [(ConsistencyRule::Balance, -4_000, -3_999)]
        );
        assert_eq!(broken_by("UPDATE ledger SET balance = -1 WHERE seq = 1").await[0], (ConsistencyRule::Running, -2_000, -1));
        assert_eq!(
            broken_by("UPDATE ledger SET kind = 'adjust' WHERE request_id = 'FIRST'").await,
            [(ConsistencyRule::Settled, -2_000, 0), (ConsistencyRule::EntryKind, 0, -2_000), (ConsistencyRule::Chain, 1, 5)]
        );
        let newest = "DELETE FROM ledger WHERE seq = (SELECT MAX(seq) FROM ledger)";
        assert!(broken_by(newest).await.iter().any(|found| matches!(found, (ConsistencyRule::Positions, 5, 4))));
        assert_eq!(
            broken_by("UPDATE usage SET sale = 2500 WHERE id = 'FIRST'").await,
            [
                (ConsistencyRule::Settled, -2_500, -2_000),
                (ConsistencyRule::Rollup, 2_500, 2_000),
                (ConsistencyRule::Rollup, 2_500, 2_000),
                (ConsistencyRule::Rollup, 2_500, 2_000)
            ]
        );
        assert_eq!(broken_by("UPDATE usage SET cost = 15 WHERE id = 'SECOND'").await[0], (ConsistencyRule::Cost, 14, 15));
        assert_eq!(broken_by("UPDATE usage SET cost = 14 WHERE id = 'FIRST'").await[0], (ConsistencyRule::Cost, 7, 14));
        assert_eq!(
            broken_by("DELETE FROM attempts WHERE request_id = 'SECOND' AND position = 0").await[..2],
            [(ConsistencyRule::Cost, 7, 14), (ConsistencyRule::Attempts, 2, 1)]
        );
        let lost = rules(broken_by("DELETE FROM usage WHERE id = 'SECOND'").await);
        assert!(lost.starts_with(&[ConsistencyRule::Settles, ConsistencyRule::Attempts, ConsistencyRule::Rollup]), "{lost:?}");
        let moved = rules(broken_by("UPDATE ledger SET member_id = 'mbr_x' WHERE request_id = 'SECOND'").await);
        assert!(moved.contains(&ConsistencyRule::Settled) && moved.contains(&ConsistencyRule::Balance), "{moved:?}");
        assert_eq!(
            rules(broken_by("UPDATE usage_days SET requests = requests + 1 WHERE requests = 1").await)[..1],
            [ConsistencyRule::Rollup]
        );
        assert_eq!(rules(broken_by("UPDATE attempt_hours SET cost = cost + 1").await), [ConsistencyRule::AttemptRollup; 2]);
    }

    #[tokio::test]
    async fn every_column_of_a_rollup_is_compared_with_the_records() {
        let usage = ["key_id", "member_id", "group_id", "model", "outcome"].map(|column| format!("{column} = 'x'"));
        let sums = ["requests", "tokens_input", "tokens_output", "sale", "cost", "unpriced"].map(|it| format!("{it} = {it} + 1"));
        for change in usage.iter().chain(&sums) {
            for table in ["usage_five_minutes", "usage_hours", "usage_days"] {
                let found = broken_by(&format!("UPDATE {table} SET {change} WHERE rowid = 1")).await;
                assert!(
                    !found.is_empty() && found.iter().all(|(rule, ..)| *rule == ConsistencyRule::Rollup),
                    "{table} {change}: {found:?}"
                );
            }
        }
        let attempts =
            ["channel_id = 'x'", "account_id = 'x'", "attempts = 9", "answered = 9", "tokens_input = 70", "tokens_output = 70"];
        for change in attempts.iter().chain(&["cost = cost + 1"]) {
            for table in ["attempt_hours", "attempt_days"] {
                let found = broken_by(&format!("UPDATE {table} SET {change} WHERE rowid = 1")).await;
                assert!(
                    !found.is_empty() && found.iter().all(|(rule, ..)| *rule == ConsistencyRule::AttemptRollup),
                    "{change}: {found:?}"
                );
            }
        }
        // Two changes that would cancel each other out in one sum.
        let moved =
            broken_by("UPDATE usage_days SET tokens_input = tokens_input + 5, tokens_output = tokens_output - 5 WHERE rowid = 1");
        assert_eq!(moved.await.len(), 2);
        // Removing the price of a record changes no count.
        assert!(!broken_by("UPDATE usage SET sale = NULL, model = 'zzz' WHERE id = 'FIRST'").await.is_empty());
    }
}
