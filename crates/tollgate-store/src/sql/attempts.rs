//! Sums over attempts from their roll-ups: whole days from the roll-up by days, the hours at both ends from the one by
//! hours.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{AssertSqlSafe, Row as _};
use tollgate_core::{AttemptResult, NanoUsd};

use super::{
    codes::Coded,
    names::NameKind,
    store::SqlStore,
    sum_tables::ATTEMPT_SUMS,
    summary::labels::Labels,
    usage_filter::{list, push},
};
use crate::{
    StoreError, SummaryBy,
    attempts::{AttemptFilter, AttemptsBy, AttemptsRow, REJECTED},
    rollup::{DAY, HOUR, MINUTE, bucket, next_bucket},
};

const ATTEMPTS: &str = "sum up attempts";
const MAX_ROWS: usize = 10_000;

impl SqlStore {
    pub(super) async fn summarise_attempts(
        &self,
        filter: &AttemptFilter,
        by: (AttemptsBy, AttemptsBy),
    ) -> Result<Vec<AttemptsRow>, StoreError> {
        let Some(conditions) = self.conditions_on_attempts(filter).await? else { return Ok(Vec::new()) };
        let (first, second) = (column(by.0), column(by.1));
        let (answered, cancelled) = (AttemptResult::Answered.code(), AttemptResult::Cancelled.code());
        let rejected = self.refs_of(ATTEMPTS, NameKind::Code, "id = '' AND name", REJECTED).await?;
        let rejected = if rejected.is_empty() { "NULL".to_owned() } else { list(&rejected) };
        let is_hourly = by.0 == AttemptsBy::Hour || by.1 == AttemptsBy::Hour;
        let sql = format!(
            "SELECT {first}, {second}, CAST(SUM(attempts) AS BIGINT), \
             CAST(SUM(CASE WHEN result = {answered} THEN attempts ELSE 0 END) AS BIGINT), \
             CAST(SUM(CASE WHEN result <> {answered} AND (result = {cancelled} OR error IN ({rejected})) THEN attempts ELSE 0 END) \
             AS BIGINT), CAST(SUM(tokens_input) AS BIGINT), \
             CAST(SUM(tokens_output) AS BIGINT), CAST(SUM(cost) AS BIGINT) FROM {} WHERE ({}){conditions} GROUP BY 1, 2 \
             ORDER BY 3 DESC, 1, 2 LIMIT {MAX_ROWS}",
            ATTEMPT_SUMS.name,
            times(filter.hours(), is_hourly)
        );
        let read = |row: &sqlx::any::AnyRow| {
            let number = |at: usize| row.try_get::<i64, _>(at);
            let count = |at: usize| number(at).map(|count| u64::try_from(count).unwrap_or(0));
            let sums = AttemptsRow {
                attempts: count(2)?,
                answered: count(3)?,
                excused: count(4)?,
                tokens_input: count(5)?,
                tokens_output: count(6)?,
                cost: NanoUsd(number(7)?),
                ..AttemptsRow::default()
            };
            Ok((number(0)?, number(1)?, sums))
        };
        let rows: Vec<(i64, i64, AttemptsRow)> = self.fetch_as(ATTEMPTS, sqlx::query(AssertSqlSafe(sql)), read).await?;
        let firsts = self.labels_of_attempts(by.0, rows.iter().map(|(first, _, _)| *first).collect()).await?;
        let seconds = self.labels_of_attempts(by.1, rows.iter().map(|(_, second, _)| *second).collect()).await?;
        // An account that was renamed has several numbers and one id.
        let mut sums: BTreeMap<(String, String), AttemptsRow> = BTreeMap::new();
        let label = |labels: &Labels, group: i64| labels.get(&group).cloned().unwrap_or_default();
        for (first, second, row) in rows {
            let (of, and) = (label(&firsts, first), label(&seconds, second));
            let sum = sums.entry((of.clone(), and.clone())).or_insert_with(|| AttemptsRow { of, and, ..AttemptsRow::default() });
            sum.attempts = sum.attempts.saturating_add(row.attempts);
            sum.answered = sum.answered.saturating_add(row.answered);
            sum.excused = sum.excused.saturating_add(row.excused);
            sum.tokens_input = sum.tokens_input.saturating_add(row.tokens_input);
            sum.tokens_output = sum.tokens_output.saturating_add(row.tokens_output);
            sum.cost = NanoUsd(sum.cost.0.saturating_add(row.cost.0));
        }
        Ok(sums.into_values().collect())
    }

    /// Conditions, each beginning with ` AND `; `None` if no attempt meets them.
    async fn conditions_on_attempts(&self, filter: &AttemptFilter) -> Result<Option<String>, StoreError> {
        let channel = filter.channel.map(|id| (NameKind::Channel, "id", id.to_string()));
        let account = filter.account.map(|id| (NameKind::Account, "id", id.to_string()));
        let model = filter.model.clone().map(|name| (NameKind::Model, "id = '' AND name", name));
        let mut sql = filter.result.map(|result| format!(" AND result = {}", result.code())).unwrap_or_default();
        for (column, wanted) in [("channel", channel), ("account", account), ("model", model)] {
            let Some((kind, found_by, text)) = wanted else { continue };
            let numbers = self.refs_of(ATTEMPTS, kind, found_by, &text).await?;
            if numbers.is_empty() {
                return Ok(None);
            }
            push(&mut sql, format_args!(" AND {column} IN ({})", list(&numbers)));
        }
        Ok(Some(sql))
    }

    async fn labels_of_attempts(&self, by: AttemptsBy, groups: BTreeSet<i64>) -> Result<Labels, StoreError> {
        let by = match by {
            AttemptsBy::Nothing => SummaryBy::Nothing,
            AttemptsBy::Day => SummaryBy::Day,
            AttemptsBy::Hour => SummaryBy::Hour,
            AttemptsBy::Channel => SummaryBy::Channel,
            AttemptsBy::Account => SummaryBy::Account,
            AttemptsBy::Model => SummaryBy::Model,
            AttemptsBy::Error => SummaryBy::Reason,
            AttemptsBy::Result => {
                let word = |code: i64| AttemptResult::of_code(code).map_or_else(String::new, |result| result.as_str().to_owned());
                return Ok(groups.into_iter().map(|code| (code, word(code))).collect());
            }
        };
        self.labels(by, groups).await
    }
}

/// The SQL expression that rows are grouped by. Its value is a number.
fn column(by: AttemptsBy) -> String {
    let column = match by {
        AttemptsBy::Nothing => "0",
        AttemptsBy::Day => return format!("CAST(minute - minute % {} AS BIGINT)", DAY / MINUTE),
        AttemptsBy::Hour => "minute",
        AttemptsBy::Channel => "channel",
        AttemptsBy::Account => "account",
        AttemptsBy::Model => "model",
        AttemptsBy::Result => "result",
        AttemptsBy::Error => "error",
    };
    format!("CAST({column} AS BIGINT)")
}

/// The condition on the buckets of a range of whole hours: those by days within it and those by hours at its ends, or by hours alone.
fn times((since, until): (Option<i64>, Option<i64>), is_hourly: bool) -> String {
    let buckets = |width: i64, from: Option<i64>, to: Option<i64>| {
        let mut sql = format!("width = {}", width / MINUTE);
        for (comparison, at) in [(">=", from), ("<", to)] {
            if let Some(at) = at {
                push(&mut sql, format_args!(" AND minute {comparison} {}", at / MINUTE));
            }
        }
        sql
    };
    let begin = since.map(|since| next_bucket(since, DAY));
    let end = until.map(|until| bucket(tollgate_core::Timestamp(until), DAY));
    let has_days = begin.zip(end).is_none_or(|(begin, end)| begin < end);
    if is_hourly || !has_days {
        return buckets(HOUR, since, until);
    }
    let mut parts = vec![buckets(DAY, begin, end)];
    if since.is_some() {
        parts.push(buckets(HOUR, since, begin));
    }
    if until.is_some() {
        parts.push(buckets(HOUR, end, until));
    }
    parts.join(" OR ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_days_are_read_from_day_rows_and_the_ends_from_hour_rows() {
        let hours = |hours: i64| Some(hours * HOUR);
        assert_eq!(
            times((hours(20), hours(75)), false),
            "width = 1440 AND minute >= 1440 AND minute < 4320 OR width = 60 AND minute >= 1200 AND minute < 1440 OR width = 60 AND \
             minute >= 4320 AND minute < 4500"
        );
        assert_eq!(times((hours(20), hours(30)), false), "width = 60 AND minute >= 1200 AND minute < 1800");
        assert_eq!(times((hours(20), hours(75)), true), "width = 60 AND minute >= 1200 AND minute < 4500");
        assert_eq!(times((None, None), false), "width = 1440");
    }
}
