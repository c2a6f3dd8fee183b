//! The transaction that applies a batch of changes.

use async_trait::async_trait;
use sqlx::{AnyConnection, Row as _, any::AnyRow};
use tollgate_core::{Revision, Timestamp};

use super::{
    chains::add_link,
    driver_error::failed,
    price_history,
    rows::{AnyQuery, catalog_row, select},
    square,
};
use crate::{
    KeyHash, KeySecret, RowKind, StoreError,
    chain::{self, ChainKey},
    rows::{BatchRecord, CatalogRow, ChangeTransaction, IdempotentBatch, RowSecret, owner_word},
};

pub(super) struct SqlChangeTransaction<'a> {
    pub(super) connection: &'a mut AnyConnection,
    pub(super) database: &'a str,
    pub(super) chain: &'a ChainKey,
}

const READ: &str = "read the catalog";
const WRITE: &str = "write the catalog";

impl SqlChangeTransaction<'_> {
    pub(super) fn read_failed(&self) -> impl FnOnce(sqlx::Error) -> StoreError + use<> {
        let database = self.database.to_owned();
        move |error| failed(&database, READ, error)
    }

    async fn row(&mut self, query: AnyQuery<'_>) -> Result<Option<CatalogRow>, StoreError> {
        let failed = self.read_failed();
        query.fetch_optional(&mut *self.connection).await.map_err(failed)?.as_ref().map(catalog_row).transpose()
    }

    async fn rows(&mut self, query: AnyQuery<'_>) -> Result<Vec<CatalogRow>, StoreError> {
        let failed = self.read_failed();
        query.fetch_all(&mut *self.connection).await.map_err(failed)?.iter().map(catalog_row).collect()
    }

    pub(super) async fn execute(&mut self, query: AnyQuery<'_>) -> Result<(), StoreError> {
        let done = query.execute(&mut *self.connection).await;
        done.map(|_| ()).map_err(|error| failed(self.database, WRITE, error))
    }
}

#[async_trait]
impl ChangeTransaction for SqlChangeTransaction<'_> {
    async fn by_name(&mut self, kind: RowKind, parent: &str, name: &str) -> Result<Option<CatalogRow>, StoreError> {
        let query = select(kind, "WHERE kind = $1 AND parent = $2 AND name = $3 AND removed_at IS NULL");
        self.row(query.bind(kind.as_str()).bind(parent.to_owned()).bind(name.to_owned())).await
    }

    async fn by_id(&mut self, kind: RowKind, id: &str) -> Result<Option<CatalogRow>, StoreError> {
        self.row(select(kind, "WHERE id = $1 AND kind = $2").bind(id.to_owned()).bind(kind.as_str())).await
    }

    async fn by_hash(&mut self, hash: &KeyHash) -> Result<Option<CatalogRow>, StoreError> {
        self.row(select(RowKind::Key, "WHERE (hash = $1 OR previous_hash = $1) AND removed_at IS NULL").bind(hash.0.to_vec())).await
    }

    async fn list(&mut self, kind: RowKind, parent: Option<&str>) -> Result<Vec<CatalogRow>, StoreError> {
        let sql = "WHERE kind = $1 AND removed_at IS NULL AND (CAST($2 AS TEXT) IS NULL OR parent = $2) ORDER BY name";
        self.rows(select(kind, sql).bind(kind.as_str()).bind(parent.map(str::to_owned))).await
    }

    async fn of_file(&mut self, kind: RowKind) -> Result<Vec<CatalogRow>, StoreError> {
        let sql = "WHERE kind = $1 AND owner = 'file' AND removed_at IS NULL ORDER BY name";
        self.rows(select(kind, sql).bind(kind.as_str())).await
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
        self.execute(sqlx::query("DELETE FROM once WHERE at <= $1").bind(old.0)).await?;
        let insert = sqlx::query("INSERT INTO once (key, fingerprint, at, kind, id) VALUES ($1, $2, $3, $4, $5)")
            .bind(batch.key.clone())
            .bind(batch.fingerprint.to_vec())
            .bind(batch.at.0)
            .bind(batch.kind.as_str())
            .bind(batch.id.clone());
        self.execute(insert).await
    }

    async fn put(&mut self, row: &CatalogRow) -> Result<(), StoreError> {
        const ADMIN_KEY: &str = "INSERT INTO admin_keys (id, name, spec, created_at, removed_at, hash, prefix, suffix, parent) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO UPDATE SET spec = $3, removed_at = $5";
        const KEY: &str = "INSERT INTO service_keys (id, name, spec, created_at, removed_at, hash, prefix, suffix, parent, owner, \
             previous_hash, previous_until) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
             ON CONFLICT (id) DO UPDATE SET owner = $10, spec = $3, hash = $6, prefix = $7, suffix = $8, removed_at = $5, \
             previous_hash = $11, previous_until = $12";
        const ROW: &str = "INSERT INTO catalog_rows (id, name, spec, created_at, removed_at, parent, owner, kind, credential) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
             ON CONFLICT (id) DO UPDATE SET owner = $7, spec = $3, credential = $9, removed_at = $5";
        let insert = |sql: &'static str| {
            let query = sqlx::query(sql).bind(row.id.clone()).bind(row.name.clone()).bind(row.spec.clone());
            query.bind(row.created_at.0).bind(row.removed_at.map(|at| at.0))
        };
        let with_key = |sql, secret: &KeySecret| {
            insert(sql).bind(secret.hash.0.to_vec()).bind(secret.prefix.clone()).bind(secret.suffix.clone())
        };
        let placed = |query: AnyQuery<'static>| query.bind(row.parent.clone()).bind(owner_word(row.owner));
        let query = match &row.secret {
            RowSecret::Key(secret) if row.kind == RowKind::AdminKey => with_key(ADMIN_KEY, secret).bind(row.parent.clone()),
            RowSecret::Key(secret) => placed(with_key(KEY, secret))
                .bind(secret.previous.map(|previous| previous.hash.0.to_vec()))
                .bind(secret.previous.map(|previous| previous.until.0)),
            RowSecret::Sealed(sealed) => placed(insert(ROW)).bind(row.kind.as_str()).bind(Some(sealed.clone())),
            RowSecret::None => placed(insert(ROW)).bind(row.kind.as_str()).bind(None::<Vec<u8>>),
        };
        self.execute(query).await
    }

    async fn revision(&mut self) -> Result<Revision, StoreError> {
        // The update locks the row, so that concurrent batches wait for each other on PostgreSQL too.
        let failed = self.read_failed();
        let sql = "UPDATE counters SET value = value WHERE name = 'revision' RETURNING value";
        let row = sqlx::query(sql).fetch_one(&mut *self.connection).await;
        row.and_then(|row| row.try_get(0)).map(Revision).map_err(failed)
    }

    async fn imported_from(&mut self, model: &str, channel: Option<&str>) -> Result<Option<String>, StoreError> {
        let failed = self.read_failed();
        let query = price_history::last_source(model, channel);
        let found = query.fetch_optional(&mut *self.connection).await;
        found.and_then(|row| row.map_or(Ok(None), |row| row.try_get(0))).map_err(failed)
    }

    async fn record(&mut self, revision: Revision, batch: &BatchRecord<'_>) -> Result<(), StoreError> {
        let BatchRecord { changed, audit, prices, offers } = *batch;
        const CHANGE: &str = "INSERT INTO changes (revision, position, kind, id) VALUES ($1, $2, $3, $4)";
        const AUDIT: &str = "INSERT INTO audit (revision, position, at, origin, actor, action, kind, id, name, detail, address) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
        self.execute(sqlx::query("UPDATE counters SET value = $1 WHERE name = 'revision'").bind(revision.0)).await?;
        for (position, row) in (0_i64..).zip(changed) {
            let insert = sqlx::query(CHANGE).bind(revision.0).bind(position).bind(row.kind.as_str()).bind(row.id.clone());
            self.execute(insert).await?;
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
                .bind(event.detail.clone())
                .bind(event.address.clone());
            self.execute(insert).await?;
        }
        for (position, price) in (0_i64..).zip(prices) {
            self.execute(price_history::insert(position, price)).await?;
        }
        for (position, offer) in (0_i64..).zip(offers) {
            self.execute(square::insert_offer_change(position, offer)).await?;
        }
        if audit.is_empty() {
            return Ok(());
        }
        let add_rows = |mac: &mut chain::RowMac| {
            (0..).zip(audit).for_each(|(position, event)| chain::add_audit(mac, revision, position, event));
        };
        let linked = add_link(self.connection, self.chain, chain::AUDIT, (revision.0, revision.0), add_rows).await;
        linked.map_err(|error| failed(self.database, WRITE, error))
    }
}
