//! Comparisons of sums. Every column of every roll-up row is compared with the records or attempts it sums up, in both
//! directions. Of days whose records were removed by retention, the roll-ups are compared with the ledger: both are kept forever.
//! The retention setting at that time is unknown, but no setting removes records of the last day.

use std::fmt::Write as _;

use tollgate_core::Timestamp;

use super::{Snapshot, SnapshotRow};
use crate::{
    StoreError,
    rollup::{DAY, FIVE_MINUTES, HOUR, bucket},
    sql::append::Bind,
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

pub(super) async fn verify_removed(
    snapshot: &mut Snapshot<'_>,
    now: Timestamp,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let mut until = 0;
    let read = |row: &SnapshotRow<'_>| {
        until = row.number(0)?;
        Ok(())
    };
    snapshot.each(PRUNED_UNTIL, &[], read).await?;
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
        let differs = |row: &SnapshotRow<'_>| {
            let what = format!("day {} of {}, {figure}", Timestamp(row.number(0)?), row.text(1)?);
            report.differs(ConsistencyRule::RemovedDays, what, row.number(2)?, row.number(3)?);
            Ok(())
        };
        snapshot.each(sql, &[Bind::Number(until)], differs).await?;
    }
    Ok(())
}

/// A roll-up table and the SQL expressions over its source rows that it must equal.
pub(super) struct Rollup {
    rule: ConsistencyRule,
    table: &'static str,
    /// Width of a bucket in microseconds, and its name.
    width: (i64, &'static str),
    source: &'static str,
    /// The time of a source row, which determines its bucket.
    at: &'static str,
    /// Key columns besides the bucket: source expression, column.
    keys: &'static [(&'static str, &'static str)],
    /// Summed columns: source expression, column.
    sums: &'static [(&'static str, &'static str)],
}

const USAGE_KEYS: &[(&str, &str)] = &[
    ("key_id", "key_id"),
    ("member_id", "member_id"),
    ("COALESCE(group_id, '')", "group_id"),
    // Requests refused before a group was chosen have no model.
    ("CASE WHEN group_id IS NULL THEN '' ELSE COALESCE(model, '') END", "model"),
    ("outcome", "outcome"),
];
const USAGE_SUMS: &[(&str, &str)] = &[
    ("1", "requests"),
    ("tokens_input + tokens_cache_read + tokens_cache_write + tokens_image + tokens_audio", "tokens_input"),
    ("tokens_output + tokens_thinking", "tokens_output"),
    ("COALESCE(sale, 0)", "sale"),
    ("COALESCE(cost, 0)", "cost"),
    ("CASE WHEN sale IS NULL THEN 1 ELSE 0 END", "unpriced"),
];
const ATTEMPT_KEYS: &[(&str, &str)] = &[("channel_id", "channel_id"), ("account_id", "account_id")];
const ATTEMPT_SOURCE: &str = "(SELECT a.*, u.at AS arrived FROM attempts a JOIN usage u ON u.id = a.request_id) AS joined";
const ATTEMPT_SUMS: &[(&str, &str)] = &[
    ("1", "attempts"),
    ("CASE WHEN result = 'answered' THEN 1 ELSE 0 END", "answered"),
    ("tokens_input + tokens_cache_read + tokens_cache_write + tokens_image + tokens_audio", "tokens_input"),
    ("tokens_output + tokens_thinking", "tokens_output"),
    ("COALESCE(cost, 0)", "cost"),
];

const fn usage(table: &'static str, width: (i64, &'static str)) -> Rollup {
    let (keys, sums) = (USAGE_KEYS, USAGE_SUMS);
    Rollup { rule: ConsistencyRule::Rollup, table, width, source: "usage", at: "at", keys, sums }
}

const fn attempts(table: &'static str, width: (i64, &'static str)) -> Rollup {
    let (keys, sums) = (ATTEMPT_KEYS, ATTEMPT_SUMS);
    Rollup { rule: ConsistencyRule::AttemptRollup, table, width, source: ATTEMPT_SOURCE, at: "arrived", keys, sums }
}

pub(super) const ROLLUPS: &[Rollup] = &[
    usage("usage_five_minutes", (FIVE_MINUTES, "five minutes")),
    usage("usage_hours", (HOUR, "hour")),
    usage("usage_days", (DAY, "day")),
    attempts("attempt_hours", (HOUR, "hour")),
    attempts("attempt_days", (DAY, "day")),
];

impl Rollup {
    pub(super) async fn verify(&self, snapshot: &mut Snapshot<'_>, report: &mut VerifyReport) -> Result<(), StoreError> {
        let differs = |row: &SnapshotRow<'_>| {
            let what = format!("{} {} of {}, {}", self.width.1, Timestamp(row.number(1)?), row.text(2)?, row.text(0)?);
            report.differs(self.rule, what, row.number(3)?, row.number(4)?);
            Ok(())
        };
        snapshot.each(&self.differences(), &[], differs).await
    }

    /// A query for the sums that differ: column, bucket, key, expected and found value.
    fn differences(&self) -> String {
        const SINCE: &str = "(SELECT value FROM counters WHERE name = 'pruned_until')";
        let Self { table, width: (width, _), source, at, keys, sums, .. } = self;
        let subject =
            |side: fn(&(&'static str, &'static str)) -> &'static str| keys.iter().map(side).collect::<Vec<_>>().join(" || ' ' || ");
        let columns = |write: &dyn Fn(usize, &str, &str) -> String| {
            let columns = sums.iter().enumerate().map(|(i, (detail, column))| write(i, detail, column));
            columns.collect::<Vec<_>>().join(", ")
        };
        let mut sql = format!(
            "WITH both_sides AS (SELECT {at} / {width} * {width} AS bucket, {} AS subject, {} FROM {source} WHERE {at} >= {SINCE} \
             UNION ALL SELECT bucket, {}, {} FROM {table} WHERE bucket >= {SINCE}), \
             sums AS (SELECT bucket, subject, {} FROM both_sides GROUP BY bucket, subject)",
            subject(|key| key.0),
            columns(&|i, detail, _| format!("{detail} AS d{i}, 0 AS r{i}")),
            subject(|key| key.1),
            columns(&|_, _, column| format!("0, {column}")),
            columns(&|i, _, _| format!("CAST(SUM(d{i}) AS BIGINT) AS d{i}, CAST(SUM(r{i}) AS BIGINT) AS r{i}")),
        );
        for (i, (_, column)) in sums.iter().enumerate() {
            sql.push_str(if i == 0 { " " } else { " UNION ALL " });
            write!(
                sql,
                "SELECT '{column}' AS figure, bucket, subject, d{i} AS is_due, r{i} AS is_there FROM sums WHERE d{i} <> r{i}"
            )
            .expect("writing to a String cannot fail");
        }
        sql.push_str(" ORDER BY 2, 3, 1");
        sql
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::broken_by, *};
    use crate::samples::MIDNIGHT;

    /// Sets `pruned_until` to a number of days from today.
    fn set_pruned_until(days: i64) -> String {
        format!("UPDATE counters SET value = {} WHERE name = 'pruned_until';", bucket(MIDNIGHT, DAY) + days * DAY)
    }

    #[test]
    fn last_day_is_always_kept() {
        assert_eq!(max_pruned_until(Timestamp::of_day(100)), Timestamp::of_day(99).0);
        assert_eq!(max_pruned_until(Timestamp(Timestamp::of_day(101).0 - 1)), Timestamp::of_day(99).0);
    }

    #[tokio::test]
    async fn impossible_pruning_limit_is_detected() {
        let lost = "DELETE FROM attempts WHERE request_id = 'SECOND'; DELETE FROM usage WHERE id = 'SECOND';";
        let today = bucket(MIDNIGHT, DAY);
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
             UPDATE usage_days SET bucket = bucket - 604800000000; DELETE FROM usage_five_minutes; DELETE FROM usage_hours; \
             DELETE FROM attempt_hours; \
             DELETE FROM attempt_days; DELETE FROM attempts; DELETE FROM usage;";
        let pruned = format!("{before} {}", set_pruned_until(-3));
        let rules = |found: Vec<(ConsistencyRule, i64, i64)>| found.into_iter().map(|(rule, ..)| rule).collect::<Vec<_>>();
        // Making the entries older breaks the ledger's chain; what the other rules say is compared here.
        let broken_by = async |tampering: &str| {
            let found = broken_by(tampering).await;
            let (chain, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|(rule, ..)| *rule == ConsistencyRule::Chain);
            assert_eq!(chain, [(ConsistencyRule::Chain, 1, 5)]);
            others
        };
        assert_eq!(broken_by(&pruned).await, []);
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
