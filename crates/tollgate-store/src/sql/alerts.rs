//! The [`AlertStore`] of the database.

use async_trait::async_trait;
use sqlx::{Row as _, any::AnyRow};
use tollgate_core::{AlertCondition, AlertDestinationId, AlertId, AlertRule, ExpiringKey, Timestamp};

use super::{dialect::Dialect, rows::select, store::SqlStore};
use crate::{
    Alert, AlertDestination, AlertDestinationSpec, AlertFilter, AlertMessage, AlertStore, ClaimedMessage, DestinationSecrets,
    MessageKind, MessageResult, MessageState, NotifiedDestination, PLAYGROUND_KEY_NAME, RowKind, StoreError,
    alerts::{ALERT_LIFE_MS, EVENT_LIFE_MS, MAX_ENDED_ALERTS, MAX_OPEN_ALERTS, detail_text},
    rows::CatalogRow,
};

const RAISE: &str = "store an alert";
const END: &str = "end an alert";
const LIST: &str = "list alerts";
const MESSAGES: &str = "read the messages of alerts";

const COLUMNS: &str = "SELECT id, rule, subject, node, text, detail, raised_at, ended_at FROM alerts";

fn decoded(detail: &str) -> sqlx::Error {
    sqlx::Error::Decode(detail.to_owned().into())
}

fn rule(word: &str) -> Result<AlertRule, sqlx::Error> {
    AlertRule::parse(word).ok_or_else(|| decoded("the rule of an alert is not known"))
}

fn alert(row: &AnyRow) -> Result<Alert, sqlx::Error> {
    let id: String = row.try_get(0)?;
    Ok(Alert {
        id: AlertId::parse(&id).ok_or_else(|| decoded("the id of an alert has another form"))?,
        rule: rule(&row.try_get::<String, _>(1)?)?,
        subject: row.try_get(2)?,
        node: row.try_get(3)?,
        text: row.try_get(4)?,
        detail: row.try_get(5)?,
        raised_at: Timestamp(row.try_get(6)?),
        ended_at: row.try_get::<Option<i64>, _>(7)?.map(Timestamp),
        messages: Vec::new(),
    })
}

fn kind(word: &str) -> Result<MessageKind, sqlx::Error> {
    MessageKind::parse(word).ok_or_else(|| decoded("the kind of a message is not known"))
}

fn message(row: &AnyRow) -> Result<(String, AlertMessage), sqlx::Error> {
    let state: String = row.try_get(3)?;
    let message = AlertMessage {
        destination: row.try_get(1)?,
        kind: kind(&row.try_get::<String, _>(2)?)?,
        state: MessageState::parse(&state).ok_or_else(|| decoded("the state of a message is not known"))?,
        attempts: row.try_get(4)?,
        fault: row.try_get(5)?,
    };
    Ok((row.try_get(0)?, message))
}

fn open_alert(row: &AnyRow) -> Result<(AlertRule, String), sqlx::Error> {
    Ok((rule(&row.try_get::<String, _>(0)?)?, row.try_get(1)?))
}

fn claimed(row: &AnyRow) -> Result<ClaimedMessage, sqlx::Error> {
    let id: String = row.try_get(0)?;
    Ok(ClaimedMessage {
        alert: AlertId::parse(&id).ok_or_else(|| decoded("the id of an alert has another form"))?,
        destination: row.try_get(1)?,
        kind: kind(&row.try_get::<String, _>(2)?)?,
        attempts: row.try_get(3)?,
    })
}

impl SqlStore {
    /// Adds the messages of these alerts, which are in descending order of their ids.
    async fn with_messages(&self, mut alerts: Vec<Alert>) -> Result<Vec<Alert>, StoreError> {
        let (Some(newest), Some(oldest)) = (alerts.first(), alerts.last()) else { return Ok(alerts) };
        let sql = "SELECT alert, destination, kind, state, attempts, fault FROM alert_messages WHERE alert >= $1 AND alert <= $2 \
                   ORDER BY alert, kind DESC, destination";
        let query = sqlx::query(sql).bind(oldest.id.to_string()).bind(newest.id.to_string());
        for (id, message) in self.fetch_as(MESSAGES, query, message).await? {
            if let Some(alert) = alerts.iter_mut().find(|alert| alert.id.to_string() == id) {
                alert.messages.push(message);
            }
        }
        Ok(alerts)
    }

    fn destination(&self, row: &CatalogRow) -> Result<AlertDestination, StoreError> {
        let id = AlertDestinationId::parse(&row.id).ok_or_else(|| row.broken("its id has another form"))?;
        let spec = row.read::<AlertDestinationSpec>()?;
        Ok(AlertDestination { id, spec, secrets: DestinationSecrets::open(row, &self.sealer)? })
    }
}

#[async_trait]
impl AlertStore for SqlStore {
    async fn claim_evaluation(&self, node: &str, now: Timestamp, lease_ms: i64) -> Result<bool, StoreError> {
        // A claim far in the future was made by a node with a wrong clock, and is ignored.
        let sql = "INSERT INTO alert_evaluator (id, node, claimed_at) VALUES (1, $1, $2) ON CONFLICT (id) DO UPDATE \
                   SET node = excluded.node, claimed_at = excluded.claimed_at WHERE alert_evaluator.node = excluded.node \
                   OR alert_evaluator.claimed_at <= $3 OR alert_evaluator.claimed_at > $4 RETURNING node";
        let query = sqlx::query(sql).bind(node.to_owned()).bind(now.0);
        let query = query.bind(now.plus_ms(-lease_ms).0).bind(now.plus_ms(lease_ms).0);
        let row = query
            .fetch_optional(self.pools.writer())
            .await
            .map_err(|error| self.failed("claim the evaluation of alerts", error))?;
        Ok(row.is_some())
    }

    async fn raise(
        &self,
        condition: &AlertCondition,
        node: &str,
        notified: &[NotifiedDestination],
        now: Timestamp,
    ) -> Result<Option<AlertId>, StoreError> {
        let failed = |error| self.failed(RAISE, error);
        let id = AlertId::from_parts(now, self.random.bytes());
        let mut transaction = self.begin(RAISE).await?;
        if condition.rule.is_event() {
            let sql = "UPDATE alerts SET ended_at = $3 WHERE rule = $1 AND subject = $2 AND ended_at IS NULL AND raised_at <= $4";
            let query = sqlx::query(sql).bind(condition.rule.as_str()).bind(condition.subject.clone());
            let query = query.bind(now.0).bind(now.plus_ms(-EVENT_LIFE_MS).0);
            query.execute(&mut *transaction).await.map_err(failed)?;
        }
        let count = sqlx::query("SELECT COUNT(*) FROM alerts WHERE rule = $1 AND ended_at IS NULL").bind(condition.rule.as_str());
        let open: i64 = count.fetch_one(&mut *transaction).await.and_then(|row| row.try_get(0)).map_err(failed)?;
        if open >= MAX_OPEN_ALERTS {
            return Ok(None);
        }
        let sql = "INSERT INTO alerts (id, rule, subject, node, text, detail, raised_at, ended_at) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, NULL) ON CONFLICT DO NOTHING";
        let query = sqlx::query(sql)
            .bind(id.to_string())
            .bind(condition.rule.as_str())
            .bind(condition.subject.clone())
            .bind(node.to_owned())
            .bind(condition.text.clone())
            .bind(detail_text(condition))
            .bind(now.0);
        if query.execute(&mut *transaction).await.map_err(failed)?.rows_affected() == 0 {
            return Ok(None);
        }
        let sql = "INSERT INTO alert_messages (alert, destination, kind, state, attempts, due_at, fault) \
                   VALUES ($1, $2, $3, $4, 0, $5, '') ON CONFLICT DO NOTHING";
        for (destination, state) in notified {
            let query = sqlx::query(sql).bind(id.to_string()).bind(destination.to_string()).bind(MessageKind::Raised.as_str());
            query.bind(state.as_str()).bind(now.0).execute(&mut *transaction).await.map_err(failed)?;
        }
        self.commit(RAISE, transaction).await?;
        Ok(Some(id))
    }

    async fn end(&self, rule: AlertRule, subject: &str, now: Timestamp) -> Result<bool, StoreError> {
        let failed = |error| self.failed(END, error);
        let mut transaction = self.begin(END).await?;
        let sql = "UPDATE alerts SET ended_at = $3 WHERE rule = $1 AND subject = $2 AND ended_at IS NULL RETURNING id";
        let query = sqlx::query(sql).bind(rule.as_str()).bind(subject.to_owned()).bind(now.0);
        let Some(row) = query.fetch_optional(&mut *transaction).await.map_err(failed)? else { return Ok(false) };
        let id: String = row.try_get(0).map_err(failed)?;
        let sql = "INSERT INTO alert_messages (alert, destination, kind, state, attempts, due_at, fault) \
                   SELECT alert, destination, 'ended', 'waiting', 0, $2, '' FROM alert_messages WHERE alert = $1 AND kind = 'raised' \
                   ON CONFLICT DO NOTHING";
        sqlx::query(sql).bind(id).bind(now.0).execute(&mut *transaction).await.map_err(failed)?;
        self.commit(END, transaction).await?;
        Ok(true)
    }

    async fn end_events(&self, now: Timestamp) -> Result<(), StoreError> {
        let sql = "UPDATE alerts SET ended_at = $2 WHERE rule = $1 AND ended_at IS NULL AND raised_at <= $3";
        for rule in AlertRule::ALL.into_iter().filter(|rule| rule.is_event()) {
            let query = sqlx::query(sql).bind(rule.as_str()).bind(now.0).bind(now.plus_ms(-EVENT_LIFE_MS).0);
            query.execute(self.pools.writer()).await.map_err(|error| self.failed(END, error))?;
        }
        Ok(())
    }

    async fn alerts(&self, filter: &AlertFilter) -> Result<Vec<Alert>, StoreError> {
        let rest = "WHERE (CAST($1 AS TEXT) IS NULL OR rule = $1) AND (CAST($2 AS TEXT) IS NULL OR id < $2) \
                    AND (CAST($3 AS BIGINT) IS NULL OR ($3 = 1 AND ended_at IS NULL) OR ($3 = 0 AND ended_at IS NOT NULL)) \
                    ORDER BY id DESC LIMIT $4";
        let query = sqlx::query(sqlx::AssertSqlSafe(format!("{COLUMNS} {rest}")))
            .bind(filter.rule.map(AlertRule::as_str))
            .bind(filter.before.map(|id| id.to_string()))
            .bind(filter.is_open.map(i64::from))
            .bind(i64::from(filter.limit.min(1_001)));
        let found = self.fetch_as(LIST, query, alert).await?;
        self.with_messages(found).await
    }

    async fn alert(&self, id: AlertId) -> Result<Option<Alert>, StoreError> {
        let query = sqlx::query(sqlx::AssertSqlSafe(format!("{COLUMNS} WHERE id = $1"))).bind(id.to_string());
        let found = self.fetch_as(LIST, query, alert).await?;
        Ok(self.with_messages(found).await?.pop())
    }

    async fn open_alerts(&self, node: Option<&str>) -> Result<Vec<(AlertRule, String)>, StoreError> {
        let sql = "SELECT rule, subject FROM alerts WHERE ended_at IS NULL AND (CAST($1 AS TEXT) IS NULL OR node = $1) ORDER BY id";
        self.fetch_as(LIST, sqlx::query(sql).bind(node.map(str::to_owned)), open_alert).await
    }

    async fn claim_messages(&self, now: Timestamp, until: Timestamp, limit: u32) -> Result<Vec<ClaimedMessage>, StoreError> {
        let due = "SELECT m.alert, m.destination, m.kind FROM alert_messages m WHERE m.state = 'waiting' AND m.due_at <= $1 \
                   AND (m.kind = 'raised' OR NOT EXISTS (SELECT 1 FROM alert_messages r WHERE r.alert = m.alert \
                   AND r.destination = m.destination AND r.kind = 'raised' AND r.state = 'waiting')) \
                   ORDER BY m.due_at, m.alert LIMIT $2";
        let due = sqlx::query(due).bind(now.0).bind(i64::from(limit));
        let due = self.fetch(MESSAGES, due).await?;
        let mut found = Vec::new();
        for row in due {
            let text = |at: usize| row.try_get::<String, _>(at).map_err(|error| self.failed(MESSAGES, error));
            // Another node may have claimed it since.
            let sql = "UPDATE alert_messages SET due_at = $5, attempts = attempts + 1 WHERE alert = $1 AND destination = $2 AND kind = $3 \
                       AND state = 'waiting' AND due_at <= $4 RETURNING alert, destination, kind, attempts";
            let query = sqlx::query(sql).bind(text(0)?).bind(text(1)?).bind(text(2)?).bind(now.0).bind(until.0);
            let row = query.fetch_optional(self.pools.writer()).await.map_err(|error| self.failed(MESSAGES, error))?;
            if let Some(row) = row {
                found.push(claimed(&row).map_err(|error| self.failed(MESSAGES, error))?);
            }
        }
        Ok(found)
    }

    async fn settle_message(&self, message: &ClaimedMessage, result: &MessageResult) -> Result<(), StoreError> {
        let (state, due, fault) = match result {
            MessageResult::Sent => (MessageState::Sent, 0, ""),
            MessageResult::Retry(at, fault) => (MessageState::Waiting, at.0, fault.as_str()),
            MessageResult::Failed(fault) => (MessageState::Failed, 0, fault.as_str()),
        };
        let sql = "UPDATE alert_messages SET state = $4, due_at = $5, fault = $6 WHERE alert = $1 AND destination = $2 AND kind = $3 \
             AND attempts = $7";
        let query = sqlx::query(sql)
            .bind(message.alert.to_string())
            .bind(message.destination.clone())
            .bind(message.kind.as_str())
            .bind(state.as_str())
            .bind(due)
            .bind(fault.to_owned())
            .bind(message.attempts);
        query.execute(self.pools.writer()).await.map(drop).map_err(|error| self.failed(MESSAGES, error))
    }

    async fn prune_alerts(&self, now: Timestamp) -> Result<(), StoreError> {
        const PRUNE: &str = "remove old alerts";
        let failed = |error| self.failed(PRUNE, error);
        let mut transaction = self.begin(PRUNE).await?;
        let sql = "DELETE FROM alerts WHERE ended_at IS NOT NULL AND (ended_at < $1 OR id <= COALESCE((SELECT id FROM alerts \
                   WHERE ended_at IS NOT NULL ORDER BY id DESC LIMIT 1 OFFSET $2), ''))";
        let query = sqlx::query(sql).bind(now.plus_ms(-ALERT_LIFE_MS).0).bind(MAX_ENDED_ALERTS);
        query.execute(&mut *transaction).await.map_err(failed)?;
        let orphans = "DELETE FROM alert_messages WHERE alert NOT IN (SELECT id FROM alerts)";
        sqlx::query(orphans).execute(&mut *transaction).await.map_err(failed)?;
        self.commit(PRUNE, transaction).await
    }

    async fn destinations(&self) -> Result<Vec<AlertDestination>, StoreError> {
        let rows = || async {
            let query = select(RowKind::AlertDestination, "WHERE kind = $1 AND removed_at IS NULL ORDER BY id");
            self.fetch_rows("read the destinations of alerts", query.bind(RowKind::AlertDestination.as_str())).await
        };
        let open = |rows: Vec<CatalogRow>| rows.iter().map(|row| self.destination(row)).collect::<Result<Vec<_>, _>>();
        match open(rows().await?) {
            Err(StoreError::Sealed { .. }) if self.reload_keys().await? => open(rows().await?),
            opened => opened,
        }
    }

    async fn expiring_keys(&self, now: Timestamp, before: Timestamp) -> Result<Vec<ExpiringKey>, StoreError> {
        let expires = match self.dialect {
            Dialect::Sqlite => "CAST(json_extract(spec, '$.expires_at') AS BIGINT)",
            Dialect::Postgres => "CAST(CAST(spec AS JSON) ->> 'expires_at' AS BIGINT)",
        };
        let rest = format!(
            "WHERE removed_at IS NULL AND name <> '{PLAYGROUND_KEY_NAME}' AND spec NOT LIKE '%\"status\":\"disabled\"%' AND {expires} > $1 AND {expires} < $2 \
             ORDER BY {expires} LIMIT 1001"
        );
        let mut found = Vec::new();
        for kind in [RowKind::Key, RowKind::AdminKey] {
            let query = select(kind, &rest).bind(now.0).bind(before.0);
            for row in self.fetch_rows("find keys that expire", query).await? {
                let expires_at = row.read::<ExpiringSpec>()?.expires_at;
                found.extend(expires_at.map(|expires_at| ExpiringKey { id: row.id, name: row.name, expires_at }));
            }
        }
        found.sort_by_key(|key| key.expires_at);
        found.truncate(1_001);
        Ok(found)
    }
}

/// The expiry in a key's spec.
#[derive(serde::Deserialize)]
struct ExpiringSpec {
    expires_at: Option<Timestamp>,
}
