//! Checks the days whose records were removed by retention. The retention setting at that time is unknown, but no setting removes
//! records of the last day, and the removed records are still in the roll-ups and the ledger, which are kept forever.

use sqlx::{Any, Row as _, Transaction};
use tollgate_core::Timestamp;

use super::{super::store::SqlStore, VERIFY};
use crate::{
    StoreError,
    rollup::{DAY, bucket},
    verify::{ConsistencyRule, VerifyReport},
};

const PRUNED_UNTIL: &str = "SELECT value FROM counters WHERE name = 'pruned_until'";

/// Days and members whose sales differ between the daily roll-up and the ledger.
const SOLD: &str = "SELECT bucket, member_id, CAST(SUM(due) AS BIGINT), CAST(SUM(there) AS BIGINT) FROM ( \
       SELECT bucket, member_id, sale AS due, 0 AS there FROM usage_days WHERE bucket < $1 UNION ALL \
       SELECT at / 86400000000 * 86400000000, member_id, 0, -amount FROM ledger WHERE kind = 'settle' AND at < $1 \
     ) AS both_sides GROUP BY bucket, member_id HAVING SUM(due) <> SUM(there) ORDER BY 1, 2";

/// Days and members with more records than the daily roll-up counts. Fewer are expected: removal may be in progress, and records
/// that arrive late are kept until the next removal.
const LEFT: &str = "SELECT bucket, member_id, CAST(SUM(due) AS BIGINT), CAST(SUM(there) AS BIGINT) FROM ( \
       SELECT bucket, member_id, requests AS due, 0 AS there FROM usage_days WHERE bucket < $1 UNION ALL \
       SELECT at / 86400000000 * 86400000000, member_id, 0, 1 FROM usage WHERE at < $1 \
     ) AS both_sides GROUP BY bucket, member_id HAVING SUM(due) < SUM(there) ORDER BY 1, 2";

/// The latest possible value of `pruned_until`: retention keeps at least one whole day.
fn max_pruned_until(now: Timestamp) -> i64 {
    bucket(now, DAY).saturating_sub(DAY)
}

impl SqlStore {
    pub(super) async fn verify_removed(
        &self,
        snapshot: &mut Transaction<'static, Any>,
        now: Timestamp,
        report: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        let failed = |error| self.failed(VERIFY, error);
        let row = sqlx::query(PRUNED_UNTIL).fetch_one(&mut **snapshot).await.map_err(failed)?;
        let until: i64 = row.try_get(0).map_err(failed)?;
        if until == 0 {
            return Ok(());
        }
        report.removed_before = Some(Timestamp(until));
        let max = max_pruned_until(now);
        if until < 0 || until > max || until % DAY != 0 {
            let expected = if until > max { max } else { until.max(0) / DAY * DAY };
            report.differs(ConsistencyRule::Removed, "pruned_until".to_owned(), expected, until);
        }
        for (figure, sql) in [("sale in nano-USD", SOLD), ("requests", LEFT)] {
            for row in sqlx::query(sql).bind(until).fetch_all(&mut **snapshot).await.map_err(failed)? {
                let day = Timestamp(row.try_get(0).map_err(failed)?);
                let member: String = row.try_get(1).map_err(failed)?;
                let (expected, found) = (row.try_get(2).map_err(failed)?, row.try_get(3).map_err(failed)?);
                report.differs(ConsistencyRule::RemovedDays, format!("day {day} of {member}, {figure}"), expected, found);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::broken_by, *};
    use crate::samples::NOON;

    /// Sets `pruned_until` to a number of days from today.
    fn set_pruned_until(days: i64) -> String {
        format!("UPDATE counters SET value = {} WHERE name = 'pruned_until';", bucket(NOON, DAY) + days * DAY)
    }

    #[test]
    fn last_day_is_always_kept() {
        assert_eq!(max_pruned_until(Timestamp::of_day(100)), Timestamp::of_day(99).0);
        assert_eq!(max_pruned_until(Timestamp(Timestamp::of_day(101).0 - 1)), Timestamp::of_day(99).0);
    }

    #[tokio::test]
    async fn impossible_pruning_limit_is_detected() {
        let lost = "DELETE FROM attempts WHERE request_id = 'SECOND'; DELETE FROM usage WHERE id = 'SECOND';";
        let today = bucket(NOON, DAY);
        assert_eq!(
            broken_by(&format!("{lost} {}", set_pruned_until(1))).await,
            [(ConsistencyRule::Removed, today - DAY, today + DAY)]
        );
        assert_eq!(broken_by(&set_pruned_until(0)).await[0], (ConsistencyRule::Removed, today - DAY, today));
        let within_a_day = format!("{} UPDATE counters SET value = value + 1 WHERE name = 'pruned_until'", set_pruned_until(-3));
        assert_eq!(broken_by(&within_a_day).await[0], (ConsistencyRule::Removed, today - 3 * DAY, today - 3 * DAY + 1));
        assert_eq!(broken_by(&set_pruned_until(-1)).await, [], "a setting may have been shorter");
    }

    #[tokio::test]
    async fn sales_of_removed_records_are_compared_with_the_rollups() {
        // A database whose records of a week ago were removed.
        let before = "UPDATE usage SET at = at - 604800000000; UPDATE ledger SET at = at - 604800000000; \
             UPDATE usage_days SET bucket = bucket - 604800000000; DELETE FROM usage_hours; DELETE FROM attempt_hours; \
             DELETE FROM attempt_days; DELETE FROM attempts; DELETE FROM usage;";
        let pruned = format!("{before} {}", set_pruned_until(-3));
        assert_eq!(broken_by(&pruned).await, []);
        let rules = |found: Vec<(ConsistencyRule, i64, i64)>| found.into_iter().map(|(rule, ..)| rule).collect::<Vec<_>>();
        let entry = "UPDATE ledger SET amount = amount + 1 WHERE seq = 1; UPDATE balances SET balance = balance + 1";
        assert!(rules(broken_by(&format!("{pruned} {entry}")).await).contains(&ConsistencyRule::RemovedDays));
        let day = "UPDATE usage_days SET sale = sale + 1 WHERE rowid = 1";
        assert_eq!(rules(broken_by(&format!("{pruned} {day}")).await), [ConsistencyRule::RemovedDays]);
        let more = pruned.replace("DELETE FROM usage;", "").replace("DELETE FROM attempts;", "");
        assert_eq!(broken_by(&more).await, [], "some may be left");
        let fewer = format!("{more} UPDATE usage_days SET requests = 0 WHERE rowid = 1");
        assert_eq!(rules(broken_by(&fewer).await), [ConsistencyRule::RemovedDays]);
    }
}
