//! Compares every column of every roll-up row with the records or attempts it sums up, in both directions.

use std::fmt::Write as _;

use sqlx::{Any, AssertSqlSafe, Row as _, Transaction};
use tollgate_core::Timestamp;

use super::{super::store::SqlStore, VERIFY};
use crate::{
    StoreError,
    rollup::{DAY, HOUR},
    verify::{ConsistencyRule, VerifyReport},
};

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

pub(super) const ALL: &[Rollup] = &[
    usage("usage_hours", (HOUR, "hour")),
    usage("usage_days", (DAY, "day")),
    attempts("attempt_hours", (HOUR, "hour")),
    attempts("attempt_days", (DAY, "day")),
];

impl Rollup {
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

impl SqlStore {
    pub(super) async fn verify_rollup(
        &self,
        snapshot: &mut Transaction<'static, Any>,
        rollup: &Rollup,
        report: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        use futures_util::TryStreamExt as _;
        let failed = |error| self.failed(VERIFY, error);
        let mut rows = sqlx::query(AssertSqlSafe(rollup.differences())).fetch(&mut **snapshot);
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            let text = |at: usize| row.try_get::<String, _>(at).map_err(failed);
            let number = |at: usize| row.try_get::<i64, _>(at).map_err(failed);
            let what = format!("{} {} of {}, {}", rollup.width.1, Timestamp(number(1)?), text(2)?, text(0)?);
            report.differs(rollup.rule, what, number(3)?, number(4)?);
        }
        Ok(())
    }
}
