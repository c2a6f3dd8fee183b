//! The [`ExportStore`] of the database.

use async_trait::async_trait;
use sqlx::{Row as _, any::AnyRow};
use tollgate_core::Timestamp;

use super::{
    rows::{AnyQuery, unsigned},
    store::SqlStore,
};
use crate::{ExportFailure, ExportStore, ExportedDay, StoreError};

const CLAIM: &str = "claim the export of usage records";
const READ: &str = "read the exported days";
const WRITE: &str = "store an exported day";

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn exported_day(row: &AnyRow) -> Result<ExportedDay, sqlx::Error> {
    Ok(ExportedDay {
        day: row.try_get(0)?,
        records: unsigned(row.try_get(1)?),
        files: unsigned(row.try_get(2)?),
        bytes: unsigned(row.try_get(3)?),
        at: Timestamp(row.try_get(4)?),
    })
}

fn export_failure(row: &AnyRow) -> Result<ExportFailure, sqlx::Error> {
    let (since, at): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
    Ok(ExportFailure { day: row.try_get(0)?, since: Timestamp(since), at: Timestamp(at), message: row.try_get(3)? })
}

impl SqlStore {
    async fn write_export(&self, operation: &'static str, queries: Vec<AnyQuery<'_>>) -> Result<(), StoreError> {
        let mut transaction = self.begin(operation).await?;
        for query in queries {
            query.execute(&mut *transaction).await.map_err(|error| self.failed(operation, error))?;
        }
        self.commit(operation, transaction).await
    }
}

#[async_trait]
impl ExportStore for SqlStore {
    async fn claim_export(&self, holder: &str, now: Timestamp, lease_ms: i64) -> Result<bool, StoreError> {
        // A claim far in the future was made by a node with a wrong clock, and is ignored.
        let sql = "INSERT INTO usage_export_state (id, holder, claimed_at) VALUES (1, $1, $2) ON CONFLICT (id) DO UPDATE \
                   SET holder = excluded.holder, claimed_at = excluded.claimed_at WHERE usage_export_state.holder = excluded.holder \
                   OR usage_export_state.holder = '' OR usage_export_state.claimed_at <= $3 OR usage_export_state.claimed_at > $4 \
                   RETURNING holder";
        let query = sqlx::query(sql).bind(holder.to_owned()).bind(now.0);
        let query = query.bind(now.plus_ms(-lease_ms).0).bind(now.plus_ms(lease_ms).0);
        let row = query.fetch_optional(self.pools.writer()).await.map_err(|error| self.failed(CLAIM, error))?;
        Ok(row.is_some())
    }

    async fn release_export(&self, holder: &str) -> Result<(), StoreError> {
        let sql = "UPDATE usage_export_state SET holder = '' WHERE holder = $1";
        self.write_export(CLAIM, vec![sqlx::query(sql).bind(holder.to_owned())]).await
    }

    async fn exported_days(&self, since: i64) -> Result<Vec<ExportedDay>, StoreError> {
        let sql = "SELECT day, records, files, bytes, exported_at FROM usage_exports WHERE day >= $1 ORDER BY day";
        self.fetch_as(READ, sqlx::query(sql).bind(since), exported_day).await
    }

    async fn put_exported_day(&self, day: &ExportedDay) -> Result<(), StoreError> {
        let put = "INSERT INTO usage_exports (day, records, files, bytes, exported_at) VALUES ($1, $2, $3, $4, $5) \
                   ON CONFLICT (day) DO UPDATE SET records = excluded.records, files = excluded.files, bytes = excluded.bytes, \
                   exported_at = excluded.exported_at";
        let put = sqlx::query(put).bind(day.day).bind(signed(day.records)).bind(signed(day.files));
        let put = put.bind(signed(day.bytes)).bind(day.at.0);
        let forget =
            "UPDATE usage_export_state SET failed_day = NULL, failing_since = NULL, failed_at = NULL, failure = NULL WHERE id = 1";
        self.write_export(WRITE, vec![put, sqlx::query(forget)]).await
    }

    async fn export_failure(&self) -> Result<Option<ExportFailure>, StoreError> {
        let sql = "SELECT failed_day, failing_since, failed_at, failure FROM usage_export_state WHERE failure IS NOT NULL";
        Ok(self.fetch_as(READ, sqlx::query(sql), export_failure).await?.into_iter().next())
    }

    async fn put_export_failure(&self, day: i64, message: &str, now: Timestamp) -> Result<(), StoreError> {
        let sql = "INSERT INTO usage_export_state (id, holder, claimed_at, failed_day, failing_since, failed_at, failure) \
                   VALUES (1, '', 0, $1, $2, $2, $3) ON CONFLICT (id) DO UPDATE SET failed_day = excluded.failed_day, \
                   failing_since = COALESCE(usage_export_state.failing_since, excluded.failing_since), \
                   failed_at = excluded.failed_at, failure = excluded.failure";
        self.write_export(WRITE, vec![sqlx::query(sql).bind(day).bind(now.0).bind(message.to_owned())]).await
    }
}
