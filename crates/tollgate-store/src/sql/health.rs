//! The [`HealthStore`] of the database.

use async_trait::async_trait;
use sqlx::Row as _;
use tollgate_core::{AccountHealth, AccountId, Timestamp};

use super::store::SqlStore;
use crate::{HealthStore, StoreError};

const ROWS_AT_ONCE: usize = 20;

#[async_trait]
impl HealthStore for SqlStore {
    async fn load_health(&self) -> Result<Vec<(AccountId, AccountHealth)>, StoreError> {
        let failed = |error| self.failed("load account health", error);
        let sql = "SELECT h.account_id, h.health FROM account_health h JOIN catalog_rows r ON r.id = h.account_id \
                   WHERE r.removed_at IS NULL ORDER BY h.account_id";
        let mut known = Vec::new();
        for row in sqlx::query(sql).fetch_all(self.pools.reader()).await.map_err(failed)? {
            let id: String = row.try_get(0).map_err(failed)?;
            let text: String = row.try_get(1).map_err(failed)?;
            // Losing health is harmless: new requests rebuild it.
            match (AccountId::parse(&id), serde_json::from_str(&text)) {
                (Some(id), Ok(health)) => known.push((id, health)),
                (_, Err(error)) => {
                    tracing::warn!(account.id = id, %error, "stored account health is unreadable; treating the account as healthy");
                }
                (None, Ok(_)) => {}
            }
        }
        Ok(known)
    }

    async fn save_health(&self, health: &[(AccountId, AccountHealth)], now: Timestamp) -> Result<(), StoreError> {
        const OPERATION: &str = "save account health";
        const CONFLICT: &str = " ON CONFLICT (account_id) DO UPDATE SET health = excluded.health, updated_at = excluded.updated_at";
        if health.is_empty() {
            return Ok(());
        }
        let mut transaction = self.begin(OPERATION).await?;
        for rows in health.chunks(ROWS_AT_ONCE) {
            let sql =
                self.dialect.values("INSERT INTO account_health (account_id, health, updated_at) VALUES", rows.len(), 3, CONFLICT);
            let mut query = sqlx::query(sql);
            for (id, health) in rows {
                let text = serde_json::to_string(health).expect("health has string keys only");
                query = query.bind(id.to_string()).bind(text).bind(now.0);
            }
            query.execute(&mut *transaction).await.map_err(|error| self.failed(OPERATION, error))?;
        }
        self.commit(OPERATION, transaction).await
    }

    async fn save_test(&self, account: AccountId, now: Timestamp) -> Result<(), StoreError> {
        const OPERATION: &str = "save a passed test";
        const SQL: &str = "INSERT INTO account_health (account_id, health, updated_at, passed_at) VALUES ($1, $2, $3, $3) \
             ON CONFLICT (account_id) DO UPDATE SET passed_at = excluded.passed_at";
        let unknown = serde_json::to_string(&AccountHealth::default()).expect("health has string keys only");
        let mut transaction = self.begin(OPERATION).await?;
        let query = sqlx::query(SQL).bind(account.to_string()).bind(unknown).bind(now.0);
        query.execute(&mut *transaction).await.map_err(|error| self.failed(OPERATION, error))?;
        self.commit(OPERATION, transaction).await
    }

    async fn load_tests(&self) -> Result<Vec<(AccountId, Timestamp)>, StoreError> {
        let failed = |error| self.failed("load passed tests", error);
        let rows = sqlx::query("SELECT account_id, passed_at FROM account_health WHERE passed_at IS NOT NULL ORDER BY account_id");
        let mut passed = Vec::new();
        for row in rows.fetch_all(self.pools.reader()).await.map_err(failed)? {
            let id: String = row.try_get(0).map_err(failed)?;
            let at: i64 = row.try_get(1).map_err(failed)?;
            passed.extend(AccountId::parse(&id).map(|id| (id, Timestamp(at))));
        }
        Ok(passed)
    }
}
