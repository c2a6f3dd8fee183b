//! Retention: old usage records and their attempts are removed in small slices, so that appends never wait long. Ledger, balances
//! and roll-ups are kept forever.
//!
//! The counter `pruned_until` is advanced before the first record before it is removed. From then on `verify` does not expect those
//! records, and appending one from the journal again does not restore it. The counter `log_time` holds the time of the usage log,
//! which retention uses instead of the clock.

use sqlx::Row as _;
use tollgate_core::Timestamp;

use super::{statement, store::SqlStore};
use crate::{
    StoreError,
    rollup::{DAY, bucket},
};

const LOG_TIME: &str = "keep the usage log's time";
const PRUNE: &str = "remove old usage records";
const SLICE: i64 = 500;

impl SqlStore {
    /// Time before which records may have been removed, in microseconds since 1970; 0 if none were.
    pub(super) async fn pruned_until(&self) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT value FROM counters WHERE name = 'pruned_until'").fetch_one(&self.reader).await;
        row.and_then(|row| row.try_get(0)).map_err(|error| self.failed(PRUNE, error))
    }

    /// Removes up to one slice of the records that arrived before the UTC day of `before`. Returns how many; 0 if none is left.
    pub(super) async fn prune_slice(&self, before: Timestamp) -> Result<u64, StoreError> {
        let failed = |error| self.failed(PRUNE, error);
        // Whole days, so that each roll-up by day covers either all or none of its records.
        let before = bucket(before, DAY);
        let sql = "SELECT id FROM usage WHERE at < $1 ORDER BY at, id LIMIT $2";
        let old = sqlx::query(sql).bind(before).bind(SLICE).fetch_all(&self.reader).await.map_err(failed)?;
        if old.is_empty() {
            return Ok(0);
        }
        let ids = old.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>().map_err(failed)?;
        let mut transaction = self.begin(PRUNE).await?;
        let mark = "UPDATE counters SET value = $1 WHERE name = 'pruned_until' AND value < $1";
        sqlx::query(mark).bind(before).execute(&mut *transaction).await.map_err(failed)?;
        for (head, tail) in [("DELETE FROM attempts WHERE request_id IN (", ")"), ("DELETE FROM usage WHERE id IN (", ")")] {
            let sql = statement::list(self.dialect, head, ids.len(), tail);
            let query = ids.iter().fold(sqlx::query(sql), |query, id| query.bind(id.clone()));
            query.execute(&mut *transaction).await.map_err(failed)?;
        }
        self.commit(PRUNE, transaction).await?;
        Ok(ids.len() as u64)
    }

    pub(super) async fn read_log_time(&self) -> Result<Option<Timestamp>, StoreError> {
        let row = sqlx::query("SELECT value FROM counters WHERE name = 'log_time'").fetch_optional(&self.reader).await;
        let time = row.and_then(|row| row.map(|row| row.try_get(0)).transpose());
        time.map(|time| time.map(Timestamp)).map_err(|error| self.failed(LOG_TIME, error))
    }

    pub(super) async fn write_log_time(&self, expected: Option<Timestamp>, time: Timestamp) -> Result<bool, StoreError> {
        let failed = |error| self.failed(LOG_TIME, error);
        let query = match expected {
            None => sqlx::query("INSERT INTO counters (name, value) VALUES ('log_time', $1) ON CONFLICT (name) DO NOTHING"),
            Some(_) => sqlx::query("UPDATE counters SET value = $1 WHERE name = 'log_time' AND value = $2"),
        };
        let query = query.bind(time.0);
        let query = if let Some(expected) = expected { query.bind(expected.0) } else { query };
        let mut transaction = self.begin(LOG_TIME).await?;
        let changed = query.execute(&mut *transaction).await.map_err(failed)?.rows_affected();
        self.commit(LOG_TIME, transaction).await?;
        Ok(changed > 0)
    }
}
