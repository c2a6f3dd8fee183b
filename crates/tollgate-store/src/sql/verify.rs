//! Whether the books agree, asked of the database in one snapshot. Each rule is a query for what breaks it: an id or a
//! place, what should be there, what is there. Where records were removed for their age, their ledger entries and sums
//! stand alone and are not asked for them.

use sqlx::{Any, Row as _, Transaction};

use super::SqlStore;
use crate::{
    StoreError,
    verify::{Rule, Verified},
};

const VERIFY: &str = "verify the books";

/// Compares sums over records with a roll-up: `$detail` are the rows to be summed up (bucket, subject, count, sale, cost,
/// tokens), `$rolled` the same columns of the roll-up.
macro_rules! rollup_rule {
    ($name:literal, $detail:expr, $rolled:expr) => {
        concat!(
            "SELECT '",
            $name,
            " ' || CAST(bucket AS TEXT) || ' of ' || subject || CASE WHEN n <> rolled_n THEN ': count' \
             WHEN sale <> rolled_sale THEN ': sale' WHEN cost <> rolled_cost THEN ': cost' ELSE ': tokens' END, \
             CAST(CASE WHEN n <> rolled_n THEN n WHEN sale <> rolled_sale THEN sale WHEN cost <> rolled_cost THEN cost \
             ELSE tokens END AS BIGINT), \
             CAST(CASE WHEN n <> rolled_n THEN rolled_n WHEN sale <> rolled_sale THEN rolled_sale \
             WHEN cost <> rolled_cost THEN rolled_cost ELSE rolled_tokens END AS BIGINT) FROM ( \
             SELECT bucket, subject, SUM(n) AS n, SUM(rolled_n) AS rolled_n, SUM(sale) AS sale, SUM(rolled_sale) AS rolled_sale, \
             SUM(cost) AS cost, SUM(rolled_cost) AS rolled_cost, SUM(tokens) AS tokens, SUM(rolled_tokens) AS rolled_tokens FROM ( \
             SELECT bucket, subject, n, 0 AS rolled_n, sale, 0 AS rolled_sale, cost, 0 AS rolled_cost, tokens, 0 AS rolled_tokens FROM (",
            $detail,
            ") AS detail UNION ALL SELECT bucket, subject, 0, n, 0, sale, 0, cost, 0, tokens FROM (",
            $rolled,
            ") AS rolled) AS both_sides GROUP BY bucket, subject) AS sums \
             WHERE n <> rolled_n OR sale <> rolled_sale OR cost <> rolled_cost OR tokens <> rolled_tokens ORDER BY bucket, subject"
        )
    };
}

macro_rules! usage_rollup {
    ($name:literal, $table:literal, $width:literal) => {
        rollup_rule!(
            $name,
            concat!(
                "SELECT at / ",
                $width,
                " * ",
                $width,
                " AS bucket, key_id || ' ' || member_id AS subject, 1 AS n, COALESCE(sale, 0) AS sale, COALESCE(cost, 0) AS cost, \
                 tokens_input + tokens_cache_read + tokens_cache_write + tokens_image + tokens_audio + tokens_output + tokens_thinking \
                 AS tokens FROM usage WHERE at >= (SELECT value FROM counters WHERE name = 'pruned_until')"
            ),
            concat!(
                "SELECT bucket, key_id || ' ' || member_id AS subject, requests AS n, sale, cost, tokens_input + tokens_output AS tokens \
                 FROM ",
                $table,
                " WHERE bucket >= (SELECT value FROM counters WHERE name = 'pruned_until')"
            )
        )
    };
}

macro_rules! attempt_rollup {
    ($name:literal, $table:literal, $width:literal) => {
        rollup_rule!(
            $name,
            concat!(
                "SELECT u.at / ",
                $width,
                " * ",
                $width,
                " AS bucket, a.channel_id || ' ' || a.account_id AS subject, 1 AS n, 0 AS sale, COALESCE(a.cost, 0) AS cost, \
                 a.tokens_input + a.tokens_cache_read + a.tokens_cache_write + a.tokens_image + a.tokens_audio + a.tokens_output \
                 + a.tokens_thinking AS tokens FROM attempts a JOIN usage u ON u.id = a.request_id \
                 WHERE u.at >= (SELECT value FROM counters WHERE name = 'pruned_until')"
            ),
            concat!(
                "SELECT bucket, channel_id || ' ' || account_id AS subject, attempts AS n, 0 AS sale, cost, \
                 tokens_input + tokens_output AS tokens FROM ",
                $table,
                " WHERE bucket >= (SELECT value FROM counters WHERE name = 'pruned_until')"
            )
        )
    };
}

/// Rules and the queries for what breaks them.
const QUERIES: &[(Rule, &str)] = &[
    (
        Rule::Balance,
        "SELECT member_id, CAST(SUM(summed) AS BIGINT), CAST(SUM(noted) AS BIGINT) FROM ( \
           SELECT member_id, amount AS summed, 0 AS noted FROM ledger UNION ALL SELECT member_id, 0, balance FROM balances \
         ) AS both_sides GROUP BY member_id HAVING SUM(summed) <> SUM(noted) ORDER BY member_id",
    ),
    (
        Rule::Running,
        "SELECT CAST(seq AS TEXT), CAST(expected AS BIGINT), balance FROM ( \
           SELECT seq, balance, amount + COALESCE(LAG(balance) OVER (PARTITION BY member_id ORDER BY seq), 0) AS expected FROM ledger \
         ) AS entries WHERE balance <> expected ORDER BY seq",
    ),
    (
        Rule::Settled,
        "SELECT u.id, -COALESCE(u.sale, 0), COALESCE(l.amount, 0) FROM usage u LEFT JOIN ledger l ON l.request_id = u.id \
         AND l.member_id = u.member_id WHERE -COALESCE(u.sale, 0) <> COALESCE(l.amount, 0) ORDER BY u.id",
    ),
    (
        Rule::Settles,
        "SELECT CAST(l.seq AS TEXT), CAST(0 AS BIGINT), l.amount FROM ledger l WHERE l.kind = 'settle' \
         AND l.at >= (SELECT value FROM counters WHERE name = 'pruned_until') AND NOT EXISTS (SELECT 1 FROM usage u WHERE u.id = l.request_id) ORDER BY l.seq",
    ),
    (
        // A cost that is not known of one attempt is not known of the record.
        Rule::Cost,
        "SELECT u.id, COALESCE(a.summed, 0), COALESCE(u.cost, 0) FROM usage u LEFT JOIN ( \
           SELECT request_id, CAST(SUM(cost) AS BIGINT) AS summed, SUM(CASE WHEN cost IS NULL THEN 1 ELSE 0 END) AS unknown \
           FROM attempts GROUP BY request_id \
         ) AS a ON a.request_id = u.id WHERE COALESCE(u.reason, '') <> 'overflow' AND ( \
           (COALESCE(a.unknown, 0) > 0 AND u.cost IS NOT NULL) \
           OR (COALESCE(a.unknown, 0) = 0 AND (u.cost IS NULL OR u.cost <> COALESCE(a.summed, 0))) \
         ) ORDER BY u.id",
    ),
    (
        Rule::Attempts,
        "SELECT request_id, CAST(MAX(position) + 1 AS BIGINT), CAST(COUNT(*) AS BIGINT) FROM attempts GROUP BY request_id \
         HAVING MAX(position) + 1 <> COUNT(*) UNION ALL \
         SELECT a.request_id, CAST(0 AS BIGINT), CAST(COUNT(*) AS BIGINT) FROM attempts a \
         WHERE NOT EXISTS (SELECT 1 FROM usage u WHERE u.id = a.request_id) GROUP BY a.request_id ORDER BY 1",
    ),
    (Rule::Rollup, usage_rollup!("hour", "usage_hours", "3600000000")),
    (Rule::Rollup, usage_rollup!("day", "usage_days", "86400000000")),
    (Rule::AttemptRollup, attempt_rollup!("hour", "attempt_hours", "3600000000")),
    (Rule::AttemptRollup, attempt_rollup!("day", "attempt_days", "86400000000")),
];

const COUNTS: &str = "SELECT (SELECT COUNT(*) FROM balances), (SELECT COUNT(*) FROM ledger), (SELECT COUNT(*) FROM usage), \
     (SELECT COUNT(*) FROM attempts)";

impl SqlStore {
    pub(super) async fn verify_books(&self) -> Result<Verified, StoreError> {
        let failed = |error| self.failed(VERIFY, error);
        let mut snapshot = self.snapshot(VERIFY).await?;
        let row = sqlx::query(COUNTS).fetch_one(&mut *snapshot).await.map_err(failed)?;
        let count = |at: usize| row.try_get::<i64, _>(at).map(|count| u64::try_from(count).unwrap_or(0)).map_err(failed);
        let mut verified =
            Verified { members: count(0)?, entries: count(1)?, records: count(2)?, attempts: count(3)?, ..Verified::default() };
        for (rule, sql) in QUERIES {
            self.verify_rule(&mut snapshot, *rule, sql, &mut verified).await?;
        }
        Ok(verified)
    }

    async fn verify_rule(
        &self,
        snapshot: &mut Transaction<'static, Any>,
        rule: Rule,
        sql: &'static str,
        verified: &mut Verified,
    ) -> Result<(), StoreError> {
        use futures_util::TryStreamExt as _;
        let failed = |error| self.failed(VERIFY, error);
        let mut rows = sqlx::query(sql).fetch(&mut **snapshot);
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            let what = row.try_get(0).map_err(failed)?;
            verified.differs(rule, what, row.try_get(1).map_err(failed)?, row.try_get(2).map_err(failed)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, any::AnyConnectOptions};
    use tempfile::TempDir;
    use tollgate_core::NanoUsd;

    use crate::{
        conformance::{options, sqlite},
        open,
        samples::record,
        verify::Rule,
    };

    /// Does this to sound books, and tells which rules it broke.
    async fn broken_by(tampering: &str) -> Vec<(Rule, i64, i64)> {
        let dir = TempDir::new().unwrap();
        let store = open(options(sqlite(&dir), &dir)).await.unwrap();
        let mut records: Vec<_> = (1..6).map(record).collect();
        for record in &mut records {
            record.cost = Some(NanoUsd(14));
        }
        records[0].attempts[0].cost = None;
        records[0].cost = None;
        store.usage.append(&records).await.unwrap();
        let place = dir.path().join("tollgate.db");
        let url = format!("sqlite:{}?mode=rw", place.display());
        let mut connection = AnyConnection::connect_with(&AnyConnectOptions::from_str(&url).unwrap()).await.unwrap();
        let tampering = tampering.replace("FIRST", &records[0].id.to_string()).replace("SECOND", &records[1].id.to_string());
        sqlx::raw_sql(AssertSqlSafe(tampering)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let verified = store.ledger.verify().await.unwrap();
        assert_eq!((verified.records, verified.members), (verified.records, 2));
        verified.differences.into_iter().map(|it| (it.rule, it.expected, it.found)).collect()
    }

    #[tokio::test]
    async fn sound_books_agree() {
        assert_eq!(broken_by("SELECT 1").await, []);
    }

    #[tokio::test]
    async fn every_kind_of_tampering_is_found() {
        let rules = |found: Vec<(Rule, i64, i64)>| found.into_iter().map(|(rule, ..)| rule).collect::<Vec<_>>();
        assert_eq!(
            broken_by("UPDATE balances SET balance = balance + 1 WHERE balance = -4000").await,
            [(Rule::Balance, -4_000, -3_999)]
        );
        assert_eq!(broken_by("UPDATE ledger SET balance = -1 WHERE seq = 1").await[0], (Rule::Running, -2_000, -1));
        assert_eq!(
            broken_by("UPDATE usage SET sale = 2500 WHERE id = 'FIRST'").await,
            [(Rule::Settled, -2_500, -2_000), (Rule::Rollup, 2_500, 2_000), (Rule::Rollup, 2_500, 2_000)]
        );
        assert_eq!(broken_by("UPDATE usage SET cost = 15 WHERE id = 'SECOND'").await[0], (Rule::Cost, 14, 15));
        assert_eq!(broken_by("UPDATE usage SET cost = 14 WHERE id = 'FIRST'").await[0], (Rule::Cost, 7, 14));
        assert_eq!(
            broken_by("DELETE FROM attempts WHERE request_id = 'SECOND' AND position = 0").await[..2],
            [(Rule::Cost, 7, 14), (Rule::Attempts, 2, 1)]
        );
        let lost = rules(broken_by("DELETE FROM usage WHERE id = 'SECOND'").await);
        assert!(lost.starts_with(&[Rule::Settles, Rule::Attempts, Rule::Rollup]), "{lost:?}");
        let moved = rules(broken_by("UPDATE ledger SET member_id = 'mbr_x' WHERE request_id = 'SECOND'").await);
        assert!(moved.contains(&Rule::Settled) && moved.contains(&Rule::Balance), "{moved:?}");
        assert_eq!(rules(broken_by("UPDATE usage_days SET requests = requests + 1 WHERE requests = 1").await)[..1], [Rule::Rollup]);
        assert_eq!(rules(broken_by("UPDATE attempt_hours SET cost = cost + 1").await), [Rule::AttemptRollup; 2]);
    }
}
