//! The transaction that applies a batch of changes.

use async_trait::async_trait;
use sqlx::{AnyConnection, Row as _, any::AnyRow};
use tollgate_core::{Revision, Timestamp};

use super::{
    admin_keys,
    driver_error::failed,
    rows::{catalog_row, key_row, select_key, select_row},
};
use crate::{
    AuditEvent, ChangedRow, KeyHash, KeySecret, RowKind, StoreError,
    rows::{CatalogRow, ChangeTransaction, IdempotentBatch, RowSecret, owner_word},
};

pub(super) struct SqlChangeTransaction<'a> {
    pub(super) connection: &'a mut AnyConnection,
    pub(super) database: &'a str,
}

const READ: &str = "read the catalog";
const WRITE: &str = "write the catalog";

impl SqlChangeTransaction<'_> {
    fn read_failed(&self) -> impl FnOnce(sqlx::Error) -> StoreError + use<> {
        let database = self.database.to_owned();
        move |error| failed(&database, READ, error)
    }

    fn write_failed(&self) -> impl FnOnce(sqlx::Error) -> StoreError + use<> {
        let database = self.database.to_owned();
        move |error| failed(&database, WRITE, error)
    }

    async fn put_key(&mut self, row: &CatalogRow, secret: &KeySecret) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO service_keys (id, parent, name, owner, spec, hash, prefix, suffix, created_at, removed_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
             ON CONFLICT (id) DO UPDATE SET owner = $4, spec = $5, hash = $6, prefix = $7, suffix = $8, removed_at = $10";
        let query = sqlx::query(SQL)
            .bind(row.id.clone())
            .bind(row.parent.clone())
            .bind(row.name.clone())
            .bind(owner_word(row.owner))
            .bind(row.spec.clone())
            .bind(secret.hash.0.to_vec())
            .bind(secret.prefix.clone())
            .bind(secret.suffix.clone())
            .bind(row.created_at.0)
            .bind(row.removed_at.map(|at| at.0));
        let failed = self.write_failed();
        query.execute(&mut *self.connection).await.map(|_| ()).map_err(failed)
    }

    async fn put_row(&mut self, row: &CatalogRow) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO catalog_rows (id, kind, parent, name, owner, spec, credential, created_at, removed_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
             ON CONFLICT (id) DO UPDATE SET owner = $5, spec = $6, credential = $7, removed_at = $9";
        let credential = match &row.secret {
            RowSecret::Sealed(sealed) => Some(sealed.clone()),
            RowSecret::None | RowSecret::Key(_) => None,
        };
        let query = sqlx::query(SQL)
            .bind(row.id.clone())
            .bind(row.kind.as_str())
            .bind(row.parent.clone())
            .bind(row.name.clone())
            .bind(owner_word(row.owner))
            .bind(row.spec.clone())
            .bind(credential)
            .bind(row.created_at.0)
            .bind(row.removed_at.map(|at| at.0));
        let failed = self.write_failed();
        query.execute(&mut *self.connection).await.map(|_| ()).map_err(failed)
    }
}

#[async_trait]
impl ChangeTransaction for SqlChangeTransaction<'_> {
    async fn by_name(&mut self, kind: RowKind, parent: &str, name: &str) -> Result<Option<CatalogRow>, StoreError> {
        let failed = self.read_failed();
        if kind == RowKind::AdminKey {
            return admin_keys::by_name(self.connection, name).await.map_err(|error| error.or_else(failed));
        }
        if kind == RowKind::Key {
            let sql = select_key!("WHERE parent = $1 AND name = $2 AND removed_at IS NULL");
            let row = sqlx::query(sql).bind(parent.to_owned()).bind(name.to_owned()).fetch_optional(&mut *self.connection).await;
            return row.map_err(failed)?.as_ref().map(key_row).transpose();
        }
        let sql = select_row!("WHERE kind = $1 AND parent = $2 AND name = $3 AND removed_at IS NULL");
        let query = sqlx::query(sql).bind(kind.as_str()).bind(parent.to_owned()).bind(name.to_owned());
        query.fetch_optional(&mut *self.connection).await.map_err(failed)?.as_ref().map(catalog_row).transpose()
    }

    async fn by_id(&mut self, kind: RowKind, id: &str) -> Result<Option<CatalogRow>, StoreError> {
        let failed = self.read_failed();
        if kind == RowKind::AdminKey {
            return admin_keys::by_id(self.connection, id).await.map_err(|error| error.or_else(failed));
        }
        if kind == RowKind::Key {
            let row = sqlx::query(select_key!("WHERE id = $1")).bind(id.to_owned()).fetch_optional(&mut *self.connection).await;
            return row.map_err(failed)?.as_ref().map(key_row).transpose();
        }
        let query = sqlx::query(select_row!("WHERE id = $1 AND kind = $2")).bind(id.to_owned()).bind(kind.as_str());
        query.fetch_optional(&mut *self.connection).await.map_err(failed)?.as_ref().map(catalog_row).transpose()
    }

    async fn by_hash(&mut self, hash: &KeyHash) -> Result<Option<CatalogRow>, StoreError> {
        let failed = self.read_failed();
        let query = sqlx::query(select_key!("WHERE hash = $1 AND removed_at IS NULL")).bind(hash.0.to_vec());
        query.fetch_optional(&mut *self.connection).await.map_err(failed)?.as_ref().map(key_row).transpose()
    }

    async fn list(&mut self, kind: RowKind, parent: Option<&str>) -> Result<Vec<CatalogRow>, StoreError> {
        let failed = self.read_failed();
        if kind == RowKind::AdminKey {
            return admin_keys::list(self.connection).await.map_err(|error| error.or_else(failed));
        }
        let parent = parent.map(str::to_owned);
        if kind == RowKind::Key {
            let sql = select_key!("WHERE removed_at IS NULL AND (CAST($1 AS TEXT) IS NULL OR parent = $1) ORDER BY name");
            let rows = sqlx::query(sql).bind(parent).fetch_all(&mut *self.connection).await.map_err(failed)?;
            return rows.iter().map(key_row).collect();
        }
        let sql = select_row!("WHERE kind = $1 AND removed_at IS NULL AND (CAST($2 AS TEXT) IS NULL OR parent = $2) ORDER BY name");
        let rows = sqlx::query(sql).bind(kind.as_str()).bind(parent).fetch_all(&mut *self.connection).await.map_err(failed)?;
        rows.iter().map(catalog_row).collect()
    }

    async fn of_file(&mut self, kind: RowKind) -> Result<Vec<CatalogRow>, StoreError> {
        let failed = self.read_failed();
        if kind == RowKind::Key {
            let sql = select_key!("WHERE owner = 'file' AND removed_at IS NULL ORDER BY name");
            let rows = sqlx::query(sql).fetch_all(&mut *self.connection).await.map_err(failed)?;
            return rows.iter().map(key_row).collect();
        }
        let sql = select_row!("WHERE kind = $1 AND owner = 'file' AND removed_at IS NULL ORDER BY name");
        let rows = sqlx::query(sql).bind(kind.as_str()).fetch_all(&mut *self.connection).await.map_err(failed)?;
        rows.iter().map(catalog_row).collect()
    }

    async fn row_revision(&mut self, id: &str) -> Result<Revision, StoreError> {
        let failed = self.read_failed();
        let sql = "SELECT COALESCE(MAX(revision), 0) FROM changes WHERE id = $1";
        let row = sqlx::query(sql).bind(id.to_owned()).fetch_one(&mut *self.connection).await;
        row.and_then(|row| row.try_get(0)).map(Revision).map_err(failed)
    }

    async fn idempotent_batch(&mut self, key: &str) -> Result<Option<IdempotentBatch>, StoreError> {
        let failed = self.read_failed();
        let sql = "SELECT fingerprint, at, kind, id FROM once WHERE key = $1";
        let found = sqlx::query(sql).bind(key.to_owned()).fetch_optional(&mut *self.connection).await;
        let read = |row: AnyRow| -> Result<IdempotentBatch, sqlx::Error> {
            let (fingerprint, kind): (Vec<u8>, String) = (row.try_get(0)?, row.try_get(2)?);
            let unreadable = || sqlx::Error::Decode(format!("the batch of idempotency key '{key}' cannot be read").into());
            Ok(IdempotentBatch {
                key: key.to_owned(),
                fingerprint: fingerprint.try_into().map_err(|_| unreadable())?,
                at: Timestamp(row.try_get(1)?),
                kind: RowKind::parse(&kind).ok_or_else(unreadable)?,
                id: row.try_get(3)?,
            })
        };
        found.and_then(|row| row.map(read).transpose()).map_err(failed)
    }

    async fn put_idempotent_batch(&mut self, batch: &IdempotentBatch) -> Result<(), StoreError> {
        let old = batch.at.plus_ms(-IdempotentBatch::LIFE_MS);
        let delete = sqlx::query("DELETE FROM once WHERE at <= $1").bind(old.0);
        delete.execute(&mut *self.connection).await.map_err(self.write_failed())?;
        let insert = sqlx::query("INSERT INTO once (key, fingerprint, at, kind, id) VALUES ($1, $2, $3, $4, $5)")
            .bind(batch.key.clone())
            .bind(batch.fingerprint.to_vec())
            .bind(batch.at.0)
            .bind(batch.kind.as_str())
            .bind(batch.id.clone());
        insert.execute(&mut *self.connection).await.map(|_| ()).map_err(self.write_failed())
    }

    async fn put(&mut self, row: &CatalogRow) -> Result<(), StoreError> {
        match &row.secret {
            RowSecret::Key(secret) if row.kind == RowKind::AdminKey => {
                let failed = self.write_failed();
                admin_keys::put(self.connection, row, secret).await.map_err(failed)
            }
            RowSecret::Key(secret) => self.put_key(row, secret).await,
            RowSecret::None | RowSecret::Sealed(_) => self.put_row(row).await,
        }
    }

    async fn revision(&mut self) -> Result<Revision, StoreError> {
        // The update locks the row, so that concurrent batches wait for each other on PostgreSQL too.
        let failed = self.read_failed();
        let sql = "UPDATE counters SET value = value WHERE name = 'revision' RETURNING value";
        let row = sqlx::query(sql).fetch_one(&mut *self.connection).await;
        row.and_then(|row| row.try_get(0)).map(Revision).map_err(failed)
    }

    async fn record(&mut self, revision: Revision, changed: &[ChangedRow], audit: &[AuditEvent]) -> Result<(), StoreError> {
        const CHANGE: &str = "INSERT INTO changes (revision, position, kind, id) VALUES ($1, $2, $3, $4)";
        const AUDIT: &str = "INSERT INTO audit (revision, position, at, door, actor, action, kind, id, name, detail) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        let update = sqlx::query("UPDATE counters SET value = $1 WHERE name = 'revision'").bind(revision.0);
        update.execute(&mut *self.connection).await.map_err(self.write_failed())?;
        for (position, row) in (0_i64..).zip(changed) {
            let insert = sqlx::query(CHANGE).bind(revision.0).bind(position).bind(row.kind.as_str()).bind(row.id.clone());
            insert.execute(&mut *self.connection).await.map_err(self.write_failed())?;
        }
        for (position, event) in (0_i64..).zip(audit) {
            let insert = sqlx::query(AUDIT)
                .bind(revision.0)
                .bind(position)
                .bind(event.at.0)
                .bind(event.origin.clone())
                .bind(event.actor.clone())
                .bind(event.action.clone())
                .bind(event.kind.as_str())
                .bind(event.id.clone())
                .bind(event.name.clone())
                .bind(event.detail.clone());
            insert.execute(&mut *self.connection).await.map_err(self.write_failed())?;
        }
        Ok(())
    }
}
