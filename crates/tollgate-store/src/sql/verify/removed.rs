//! Of days whose records were removed by retention, the roll-ups are compared with the ledger: both are kept forever. The retention
//! setting at that time is unknown, but no setting removes records of the last day.

use std::collections::BTreeMap;

use sqlx::{Any, Row as _, Transaction};
use tollgate_core::Timestamp;

use crate::{
    rollup::{DAY, MINUTE, bucket},
    sql::usage::names_on,
    verify::{ConsistencyRule, VerifyReport},
};

/// Members whose sales differ between the daily roll-up and the ledger.
const SOLD: &str = "SELECT member_id, CAST(SUM(due) AS BIGINT), CAST(SUM(there) AS BIGINT) FROM ( \
       SELECT n.id AS member_id, s.sale AS due, 0 AS there FROM key_days s JOIN names n ON n.ref = s.member WHERE s.width = 1440 \
       UNION ALL SELECT member_id, 0, -amount FROM ledger WHERE kind = 'settle' \
     ) AS both_sides GROUP BY member_id HAVING SUM(due) <> SUM(there) ORDER BY 1";

/// Records of days that are removed, by day and member.
pub(super) type RecordsLeft = BTreeMap<(i64, i64), i64>;

/// The latest possible value of `pruned_until`: retention keeps at least one whole day.
fn max_pruned_until(now: Timestamp) -> i64 {
    bucket(now, DAY).saturating_sub(DAY)
}

pub(super) async fn verify(
    snapshot: &mut Transaction<'static, Any>,
    until: i64,
    now: Timestamp,
    left: &RecordsLeft,
    report: &mut VerifyReport,
) -> Result<(), sqlx::Error> {
    if until == 0 {
        return Ok(());
    }
    report.removed_before = Some(Timestamp(until));
    let max = max_pruned_until(now);
    if until < 0 || until > max || until % DAY != 0 {
        let expected = if until > max { max } else { until.max(0) / DAY * DAY };
        report.differs(ConsistencyRule::Removed, "pruned_until".to_owned(), expected, until);
    }
    for row in sqlx::query(SOLD).fetch_all(&mut **snapshot).await? {
        let member: String = row.try_get(0)?;
        report.differs(ConsistencyRule::RemovedDays, format!("{member}, sale in nano-USD"), row.try_get(1)?, row.try_get(2)?);
    }
    // Fewer records than the roll-up counts are expected: removal may be in progress, and records that arrive late are kept until
    // the next removal.
    for ((day, member), stored) in left {
        let sql =
            "SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT) FROM key_days WHERE width = 1440 AND minute = $1 AND member = $2";
        let row = sqlx::query(sql).bind(day * (DAY / MINUTE)).bind(*member).fetch_one(&mut **snapshot).await?;
        let due: i64 = row.try_get(0)?;
        if due < *stored {
            let names = names_on(snapshot, &[*member].into()).await?;
            let member = names.get(member).map_or("", |(id, _)| id);
            let what = format!("day {} of {member}, requests", Timestamp::of_day(*day));
            report.differs(ConsistencyRule::RemovedDays, what, due, *stored);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pruning_limit_keeps_the_last_day() {
        assert_eq!(max_pruned_until(Timestamp::of_day(100)), Timestamp::of_day(99).0);
        assert_eq!(max_pruned_until(Timestamp(Timestamp::of_day(101).0 - 1)), Timestamp::of_day(99).0);
    }
}
