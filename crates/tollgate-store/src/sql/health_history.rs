//! The [`HealthHistoryStore`] of the database.

use std::ops::RangeInclusive;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Row as _, any::AnyRow};
use tollgate_core::{AccountId, ChannelId, HealthReason, HealthTransition, ImpairedState, Impairment, Timestamp, TransitionCause};

use super::store::SqlStore;
use crate::{
    HealthHistoryStore, LastTest, NodeRun, RecordedTransition, StoreError, TransitionFilter, TransitionSubject,
    health_history::{NODE_GONE_MS, PRUNED_AT_ONCE, TransitionPosition, account_text},
};

const RECORD: &str = "record health transitions";
const READ: &str = "read the history of health";
const SAVE_TESTS: &str = "save the last tests of accounts";
const READ_TESTS: &str = "read the last tests of accounts";
const PRUNE: &str = "remove old health transitions";
const COLUMNS: &str = "t.channel, t.account, t.node, t.since, t.state, t.reason, t.cause, t.until, t.ended_at";
const ROWS_AT_ONCE: usize = 50;

fn transition(row: &AnyRow) -> Result<(String, HealthTransition), sqlx::Error> {
    let unreadable = |what: &str| sqlx::Error::Decode(format!("a health transition has no {what} that is known").into());
    let (channel, account): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let (state, reason, cause): (String, String, String) = (row.try_get(4)?, row.try_get(5)?, row.try_get(6)?);
    let account = if account.is_empty() { None } else { Some(AccountId::parse(&account).ok_or_else(|| unreadable("account"))?) };
    let time = |column: usize| row.try_get::<Option<i64>, _>(column).map(|time| time.map(Timestamp));
    let impairment = Impairment {
        state: ImpairedState::parse(&state).ok_or_else(|| unreadable("state"))?,
        reason: HealthReason::parse(&reason).ok_or_else(|| unreadable("reason"))?,
        since: Timestamp(row.try_get(3)?),
        until: time(7)?,
    };
    let transition = HealthTransition {
        channel: ChannelId::parse(&channel).ok_or_else(|| unreadable("channel"))?,
        account,
        impairment,
        cause: TransitionCause::parse(&cause).ok_or_else(|| unreadable("cause"))?,
        ended_at: time(8)?,
    };
    Ok((row.try_get(2)?, transition))
}

fn recorded(row: &AnyRow) -> Result<RecordedTransition, sqlx::Error> {
    let (node, transition) = transition(row)?;
    let (channel_name, account_name): (Option<String>, Option<String>) = (row.try_get(9)?, row.try_get(10)?);
    Ok(RecordedTransition {
        node,
        channel_name: channel_name.unwrap_or_else(|| transition.channel.to_string()),
        account_name: transition.account.map(|account| account_name.unwrap_or_else(|| account.to_string())),
        transition,
    })
}

/// An account and its last test; `None` for an invalid id.
fn last_test(row: &AnyRow) -> Result<Option<(AccountId, LastTest)>, sqlx::Error> {
    let (account, took_ms): (String, i64) = (row.try_get(0)?, row.try_get(3)?);
    let test = LastTest {
        at: Timestamp(row.try_get(1)?),
        model: row.try_get(2)?,
        took_ms: u64::try_from(took_ms).unwrap_or(0),
        error: row.try_get(4)?,
    };
    Ok(AccountId::parse(&account).map(|account| (account, test)))
}

#[async_trait]
impl HealthHistoryStore for SqlStore {
    async fn record_transitions(&self, node: &str, transitions: &[HealthTransition]) -> Result<(), StoreError> {
        let head = "INSERT INTO health_transitions (channel, account, node, since, state, reason, cause, until, ended_at) VALUES";
        let tail = " ON CONFLICT (channel, account, node, since) DO UPDATE SET state = excluded.state, reason = excluded.reason, \
                    cause = excluded.cause, until = excluded.until, ended_at = excluded.ended_at";
        let mut transaction = self.begin(RECORD).await?;
        for rows in transitions.chunks(ROWS_AT_ONCE) {
            // One statement cannot write a row twice, so only the last of several states of a transition is written.
            let position = |row: &HealthTransition| (row.channel, row.account, row.impairment.since);
            let last: Vec<&HealthTransition> = rows
                .iter()
                .enumerate()
                .filter(|(at, row)| !rows[at + 1..].iter().any(|later| position(later) == position(row)))
                .map(|(_, row)| row)
                .collect();
            let mut query = sqlx::query(self.dialect.values(head, last.len(), 9, tail));
            for row in last {
                let Impairment { state, reason, since, until } = row.impairment;
                query = query
                    .bind(row.channel.to_string())
                    .bind(account_text(row.account))
                    .bind(node.to_owned())
                    .bind(since.0)
                    .bind(state.as_str())
                    .bind(reason.as_str())
                    .bind(row.cause.as_str())
                    .bind(until.map(|until| until.0))
                    .bind(row.ended_at.map(|ended| ended.0));
            }
            query.execute(&mut *transaction).await.map_err(|error| self.failed(RECORD, error))?;
        }
        self.commit(RECORD, transaction).await
    }

    async fn last_transitions(&self, node: &str) -> Result<Vec<HealthTransition>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM health_transitions t WHERE t.node = $1 AND t.ended_at IS NULL UNION ALL \
             SELECT {COLUMNS} FROM health_transitions t JOIN (SELECT channel, account, MAX(since) AS since FROM health_transitions \
             WHERE node = $1 AND ended_at IS NOT NULL AND account <> '' GROUP BY channel, account) AS last \
             ON last.channel = t.channel AND last.account = t.account AND last.since = t.since WHERE t.node = $1"
        );
        let rows = self.fetch_as(READ, sqlx::query(AssertSqlSafe(sql)).bind(node.to_owned()), transition).await?;
        Ok(rows.into_iter().map(|(_, transition)| transition).collect())
    }

    async fn transitions(&self, filter: &TransitionFilter) -> Result<Vec<RecordedTransition>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, c.name, a.name FROM health_transitions t LEFT JOIN catalog_rows c ON c.id = t.channel \
             LEFT JOIN catalog_rows a ON a.id = t.account WHERE (t.ended_at IS NULL OR t.ended_at > $1) AND t.since < $2 \
             AND (CAST($3 AS TEXT) IS NULL OR t.channel = $3) AND (CAST($4 AS TEXT) IS NULL OR t.account = $4) \
             AND (CAST($5 AS TEXT) IS NULL OR t.node = $5) AND (t.since, t.channel, t.account, t.node) < ($6, $7, $8, $9) \
             ORDER BY t.since DESC, t.channel DESC, t.account DESC, t.node DESC LIMIT $10"
        );
        let account = match filter.subject {
            TransitionSubject::All => None,
            TransitionSubject::Channels => Some(String::new()),
            TransitionSubject::Account(account) => Some(account.to_string()),
        };
        let (since, channel, of_account, node) =
            filter.before.as_ref().map_or((i64::MAX, String::new(), String::new(), ""), TransitionPosition::key);
        let query = sqlx::query(AssertSqlSafe(sql))
            .bind(filter.since.map_or(i64::MIN, |since| since.0))
            .bind(filter.until.map_or(i64::MAX, |until| until.0))
            .bind(filter.channel.map(|channel| channel.to_string()))
            .bind(account)
            .bind(filter.node.clone())
            .bind(since)
            .bind(channel)
            .bind(of_account)
            .bind(node.to_owned())
            .bind(i64::try_from(filter.size()).unwrap_or(i64::MAX));
        self.fetch_as(READ, query, recorded).await
    }

    async fn note_node(&self, node: &str, now: Timestamp) -> Result<(), StoreError> {
        let failed = |error| self.failed(RECORD, error);
        let goes_on = "UPDATE health_nodes SET seen_at = $2 WHERE node = $1 AND seen_at >= $3";
        let begins = "INSERT INTO health_nodes (node, since, seen_at) VALUES ($1, $2, $2)";
        let mut transaction = self.begin(RECORD).await?;
        let update = sqlx::query(goes_on).bind(node.to_owned()).bind(now.0).bind(now.plus_ms(-NODE_GONE_MS).0);
        if update.execute(&mut *transaction).await.map_err(failed)?.rows_affected() == 0 {
            sqlx::query(begins).bind(node.to_owned()).bind(now.0).execute(&mut *transaction).await.map_err(failed)?;
        }
        self.commit(RECORD, transaction).await
    }

    async fn node_runs(&self) -> Result<Vec<NodeRun>, StoreError> {
        let read = |row: &AnyRow| {
            Ok(NodeRun { node: row.try_get(0)?, since: Timestamp(row.try_get(1)?), seen_at: Timestamp(row.try_get(2)?) })
        };
        self.fetch_as(READ, sqlx::query("SELECT node, since, seen_at FROM health_nodes ORDER BY node, since"), read).await
    }

    async fn prune_transitions(&self, before: Timestamp, max: u64) -> Result<u64, StoreError> {
        let failed = |error| self.failed(PRUNE, error);
        let row = sqlx::query("SELECT COUNT(*) FROM health_transitions").fetch_one(self.pools.reader()).await.map_err(failed)?;
        let count = u64::try_from(row.try_get::<i64, _>(0).map_err(failed)?).unwrap_or(0);
        let excess = i64::try_from(count.saturating_sub(max).min(PRUNED_AT_ONCE)).unwrap_or(0);
        let delete = |condition: &str, limit: &str| {
            AssertSqlSafe(format!(
                "DELETE FROM health_transitions WHERE (channel, account, node, since) IN (SELECT channel, account, node, since \
                 FROM health_transitions WHERE {condition} ORDER BY ended_at LIMIT {limit})"
            ))
        };
        let mut transaction = self.begin(PRUNE).await?;
        let old = sqlx::query(delete("ended_at < $1", &PRUNED_AT_ONCE.to_string())).bind(before.0);
        let mut removed = old.execute(&mut *transaction).await.map_err(failed)?.rows_affected();
        let left = excess.saturating_sub(i64::try_from(removed).unwrap_or(i64::MAX));
        if left > 0 {
            let oldest = sqlx::query(delete("ended_at IS NOT NULL", "$1")).bind(left);
            removed += oldest.execute(&mut *transaction).await.map_err(failed)?.rows_affected();
        }
        // A transition that a vanished node left open ended when the node was last seen.
        let gone = "DELETE FROM health_transitions WHERE ended_at IS NULL AND since < $1 \
                    AND node IN (SELECT node FROM health_nodes GROUP BY node HAVING MAX(seen_at) < $1)";
        for sql in [gone, "DELETE FROM health_nodes WHERE seen_at < $1"] {
            sqlx::query(sql).bind(before.0).execute(&mut *transaction).await.map_err(failed)?;
        }
        self.commit(PRUNE, transaction).await?;
        Ok(removed)
    }

    async fn save_last_tests(&self, tests: &[(AccountId, LastTest)]) -> Result<(), StoreError> {
        // Nodes may test at the same time; the later test is kept.
        let sql = "INSERT INTO account_tests (account_id, tested_at, model, took_ms, error) VALUES ($1, $2, $3, $4, $5) \
                   ON CONFLICT (account_id) DO UPDATE SET tested_at = excluded.tested_at, model = excluded.model, \
                   took_ms = excluded.took_ms, error = excluded.error WHERE excluded.tested_at >= account_tests.tested_at";
        if tests.is_empty() {
            return Ok(());
        }
        let mut transaction = self.begin(SAVE_TESTS).await?;
        for (account, test) in tests {
            let query = sqlx::query(sql)
                .bind(account.to_string())
                .bind(test.at.0)
                .bind(test.model.clone())
                .bind(i64::try_from(test.took_ms).unwrap_or(i64::MAX))
                .bind(test.stored_error());
            query.execute(&mut *transaction).await.map_err(|error| self.failed(SAVE_TESTS, error))?;
        }
        self.commit(SAVE_TESTS, transaction).await
    }

    async fn last_tests(&self, accounts: RangeInclusive<AccountId>) -> Result<Vec<(AccountId, LastTest)>, StoreError> {
        let sql = "SELECT account_id, tested_at, model, took_ms, error FROM account_tests \
                   WHERE account_id >= $1 AND account_id <= $2 ORDER BY account_id";
        let query = sqlx::query(sql).bind(accounts.start().to_string()).bind(accounts.end().to_string());
        Ok(self.fetch_as(READ_TESTS, query, last_test).await?.into_iter().flatten().collect())
    }
}
