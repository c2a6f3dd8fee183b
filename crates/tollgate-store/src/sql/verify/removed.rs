//! Days whose records were removed for their age. Nothing in the database proves which setting removed them, and a setting may
//! have been changed since; but no setting removes records of the last day, and what was removed is still counted by the
//! roll-ups and paid for in the ledger, which are kept for good.

use sqlx::{Any, Row as _, Transaction};
use tollgate_core::Timestamp;

use super::{SqlStore, VERIFY};
use crate::{
    StoreError,
    rollup::{DAY, bucket},
    verify::{ConsistencyRule, VerifyReport},
};

const UNTIL: &str = "SELECT value FROM counters WHERE name = 'pruned_until'";

/// What was sold to each member on each of these days: by the roll-ups, and by the ledger. Members have no request without a
/// key, so that both name the same ones.
const SOLD: &str = "SELECT bucket, member_id, CAST(SUM(due) AS BIGINT), CAST(SUM(there) AS BIGINT) FROM ( \
       SELECT bucket, member_id, sale AS due, 0 AS there FROM usage_days WHERE bucket < $1 UNION ALL \
       SELECT at / 86400000000 * 86400000000, member_id, 0, -amount FROM ledger WHERE kind = 'settle' AND at < $1 \
     ) AS both_sides GROUP BY bucket, member_id HAVING SUM(due) <> SUM(there) ORDER BY 1, 2";

/// Records that are left of these days, where they are more than were ever counted. Fewer are left while they are being
/// removed, and of requests that were booked late.
const LEFT: &str = "SELECT bucket, member_id, CAST(SUM(due) AS BIGINT), CAST(SUM(there) AS BIGINT) FROM ( \
       SELECT bucket, member_id, requests AS due, 0 AS there FROM usage_days WHERE bucket < $1 UNION ALL \
       SELECT at / 86400000000 * 86400000000, member_id, 0, 1 FROM usage WHERE at < $1 \
     ) AS both_sides GROUP BY bucket, member_id HAVING SUM(due) < SUM(there) ORDER BY 1, 2";

/// The last day before which records can have been removed: at least a whole day is kept.
fn most(now: Timestamp) -> i64 {
    bucket(now, DAY).saturating_sub(DAY)
}

impl SqlStore {
    pub(super) async fn verify_removed(
        &self,
        snapshot: &mut Transaction<'static, Any>,
        now: Timestamp,
        verified: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        let failed = |error| self.failed(VERIFY, error);
        let row = sqlx::query(UNTIL).fetch_one(&mut **snapshot).await.map_err(failed)?;
        let until: i64 = row.try_get(0).map_err(failed)?;
        if until == 0 {
            return Ok(());
        }
        verified.removed_before = Some(Timestamp(until));
        let most = most(now);
        if until < 0 || until > most || until % DAY != 0 {
            let expected = if until > most { most } else { until.max(0) / DAY * DAY };
            verified.differs(ConsistencyRule::Removed, "pruned_until".to_owned(), expected, until);
        }
        for (figure, sql) in [("sale in nano-USD", SOLD), ("requests", LEFT)] {
            for row in sqlx::query(sql).bind(until).fetch_all(&mut **snapshot).await.map_err(failed)? {
                let day = Timestamp(row.try_get(0).map_err(failed)?);
                let member: String = row.try_get(1).map_err(failed)?;
                let (expected, found) = (row.try_get(2).map_err(failed)?, row.try_get(3).map_err(failed)?);
                verified.differs(ConsistencyRule::RemovedDays, format!("day {day} of {member}, {figure}"), expected, found);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::broken_by, *};
    use crate::samples::NOON;

    /// Sets the mark so many days from today.
    fn mark(days: i64) -> String {
        format!("UPDATE counters SET value = {} WHERE name = 'pruned_until';", bucket(NOON, DAY) + days * DAY)
    }

    #[test]
    fn the_last_day_is_kept_whatever_the_setting() {
        assert_eq!(most(Timestamp::of_day(100)), Timestamp::of_day(99).0);
        assert_eq!(most(Timestamp(Timestamp::of_day(101).0 - 1)), Timestamp::of_day(99).0);
    }

    #[tokio::test]
    async fn a_mark_that_no_setting_can_have_made_is_found() {
        let lost = "DELETE FROM attempts WHERE request_id = 'SECOND'; DELETE FROM usage WHERE id = 'SECOND';";
        let today = bucket(NOON, DAY);
        assert_eq!(broken_by(&format!("{lost} {}", mark(1))).await, [(ConsistencyRule::Removed, today - DAY, today + DAY)]);
        assert_eq!(broken_by(&mark(0)).await[0], (ConsistencyRule::Removed, today - DAY, today));
        let within_a_day = format!("{} UPDATE counters SET value = value + 1 WHERE name = 'pruned_until'", mark(-3));
        assert_eq!(broken_by(&within_a_day).await[0], (ConsistencyRule::Removed, today - 3 * DAY, today - 3 * DAY + 1));
        assert_eq!(broken_by(&mark(-1)).await, [], "a setting may have been shorter");
    }

    #[tokio::test]
    async fn what_was_removed_is_still_paid_for_as_it_was_counted() {
        // The books of somebody whose records of a week ago were removed.
        let before = "UPDATE usage SET at = at - 604800000000; UPDATE ledger SET at = at - 604800000000; \
             UPDATE usage_days SET bucket = bucket - 604800000000; DELETE FROM usage_hours; DELETE FROM attempt_hours; \
             DELETE FROM attempt_days; DELETE FROM attempts; DELETE FROM usage;";
        let books = format!("{before} {}", mark(-3));
        assert_eq!(broken_by(&books).await, []);
        let rules = |found: Vec<(ConsistencyRule, i64, i64)>| found.into_iter().map(|(rule, ..)| rule).collect::<Vec<_>>();
        let entry = "UPDATE ledger SET amount = amount + 1 WHERE seq = 1; UPDATE balances SET balance = balance + 1";
        assert!(rules(broken_by(&format!("{books} {entry}")).await).contains(&ConsistencyRule::RemovedDays));
        let day = "UPDATE usage_days SET sale = sale + 1 WHERE rowid = 1";
        assert_eq!(rules(broken_by(&format!("{books} {day}")).await), [ConsistencyRule::RemovedDays]);
        let more = books.replace("DELETE FROM usage;", "").replace("DELETE FROM attempts;", "");
        assert_eq!(broken_by(&more).await, [], "some may be left");
        let fewer = format!("{more} UPDATE usage_days SET requests = 0 WHERE rowid = 1");
        assert_eq!(rules(broken_by(&fewer).await), [ConsistencyRule::RemovedDays]);
    }
}
