//! The [`CatalogStore`] of the database.

use std::collections::HashSet;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Row as _, any::AnyRow};
use tollgate_core::{Catalog, Revision, Timestamp};

use super::{
    change_signal::NOTIFY,
    change_transaction::SqlChangeTransaction,
    dialect::Dialect,
    rows::{AUDIT_COLUMNS, audit_event, select},
    store::SqlStore,
};
use crate::{
    Actor, AuditEvent, CatalogRows, CatalogStore, Change, ChangedRow, KeyScope, RowKind, StoreError, apply::apply, assemble,
    rows::CatalogRow,
};

const LOAD: &str = "load the catalog";

impl SqlStore {
    /// The live rows except keys, and their revision. The revision is read first, so rows can be newer than it but not older; the
    /// next change of the revision then reloads them.
    async fn catalog_rows(&self) -> Result<(Revision, Vec<CatalogRow>), StoreError> {
        let revision = CatalogStore::revision(self).await?;
        Ok((revision, self.fetch_rows(LOAD, select(RowKind::Channel, "WHERE removed_at IS NULL ORDER BY kind, name")).await?))
    }

    /// The live rows except keys, and the removed groups, with their revision.
    pub(crate) async fn all_rows(&self) -> Result<(Revision, Vec<CatalogRow>), StoreError> {
        let revision = CatalogStore::revision(self).await?;
        let query = select(RowKind::Channel, "WHERE removed_at IS NULL OR kind = 'group' ORDER BY kind, name");
        Ok((revision, self.fetch_rows(LOAD, query).await?))
    }

    async fn live_keys(&self, scope: &KeyScope) -> Result<Vec<CatalogRow>, StoreError> {
        const NAMES_AT_ONCE: usize = 200;
        match scope {
            KeyScope::All => self.fetch_rows(LOAD, select(RowKind::Key, "WHERE removed_at IS NULL ORDER BY name")).await,
            KeyScope::FileAnd(names) | KeyScope::Limited { names, .. } => {
                let query = select(RowKind::Key, "WHERE removed_at IS NULL AND owner = 'file'");
                let mut keys = self.fetch_rows(LOAD, query).await?;
                let names: Vec<&String> = names.iter().collect();
                for names in names.chunks(NAMES_AT_ONCE) {
                    let list = self.dialect.list("WHERE removed_at IS NULL AND owner <> 'file' AND name IN (", names.len(), ")");
                    let query = select(RowKind::Key, &list.0);
                    keys.extend(self.fetch_rows(LOAD, names.iter().fold(query, |query, name| query.bind((*name).clone()))).await?);
                }
                Ok(keys)
            }
        }
    }

    /// Up to `max` keys that have a price limit, oldest first, except keys owned by a file and those in `excluded`. Also
    /// returns whether there are more.
    async fn limited_keys(&self, max: u32, excluded: &HashSet<&str>) -> Result<(Vec<CatalogRow>, bool), StoreError> {
        // The condition of the index `service_keys_limited`.
        let sql = "WHERE removed_at IS NULL AND spec LIKE '%\"price_limit\":{%' AND owner <> 'file' ORDER BY id LIMIT $1";
        let limit = i64::from(max).saturating_add(1).saturating_add(i64::try_from(excluded.len()).unwrap_or(i64::MAX));
        let mut keys = self.fetch_rows(LOAD, select(RowKind::Key, sql).bind(limit)).await?;
        keys.retain(|key| !excluded.contains(key.id.as_str()));
        let has_more = keys.len() > max as usize;
        keys.truncate(max as usize);
        Ok((keys, has_more))
    }
}

#[async_trait]
impl CatalogStore for SqlStore {
    async fn load(&self) -> Result<Catalog, StoreError> {
        let (revision, rows) = self.catalog_rows().await?;
        match assemble::catalog(revision, &rows, &self.sealer) {
            // The data key was replaced.
            Err(StoreError::Sealed { .. }) => {
                self.reload_keys().await?;
                assemble::catalog(revision, &rows, &self.sealer)
            }
            loaded => loaded,
        }
    }

    async fn apply(&self, changes: &[Change], actor: &Actor, now: Timestamp) -> Result<Revision, StoreError> {
        const OPERATION: &str = "change the catalog";
        let mut transaction = self.begin(OPERATION).await?;
        self.lock_sealed_rows(&mut transaction).await?;
        let mut rows = SqlChangeTransaction { connection: &mut transaction, database: &self.database, chain: &self.books.chain };
        // On error the transaction is dropped, which rolls it back.
        let revision = apply(&mut rows, &self.sealer, &self.random, changes, actor, now).await?;
        if self.dialect == Dialect::Postgres {
            let notified = sqlx::query(NOTIFY).execute(&mut *transaction).await;
            notified.map_err(|error| self.failed(OPERATION, error))?;
        }
        self.commit(OPERATION, transaction).await?;
        self.change_signal.notify();
        Ok(revision)
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        let row = sqlx::query("SELECT value FROM counters WHERE name = 'revision'").fetch_one(self.pools.reader()).await;
        row.and_then(|row| row.try_get(0)).map(Revision).map_err(|error| self.failed("read the revision", error))
    }

    async fn changed_since(&self, known: Revision) -> Result<Vec<ChangedRow>, StoreError> {
        let sql = "SELECT revision, kind, id FROM changes WHERE revision > $1 ORDER BY revision, position";
        let read = |row: &AnyRow| {
            let kind: String = row.try_get(1)?;
            let kind = RowKind::parse(&kind).ok_or_else(|| sqlx::Error::Decode(format!("kind '{kind}' is not known").into()))?;
            Ok(ChangedRow { revision: Revision(row.try_get(0)?), kind, id: row.try_get(2)? })
        };
        self.fetch_as("read what changed", sqlx::query(sql).bind(known.0), read).await
    }

    async fn wait_for_change(&self, known: Revision) -> Result<Revision, StoreError> {
        loop {
            let now = CatalogStore::revision(self).await?;
            if now != known {
                return Ok(now);
            }
            self.change_signal.wait().await;
        }
    }

    async fn audit(&self, below: Option<Revision>, limit: u32) -> Result<Vec<AuditEvent>, StoreError> {
        let sql = format!("SELECT {AUDIT_COLUMNS} FROM audit WHERE revision < $1 ORDER BY revision DESC, position DESC LIMIT $2");
        let below = below.map_or(i64::MAX, |below| below.0);
        let query = sqlx::query(AssertSqlSafe(sql)).bind(below).bind(i64::from(limit.min(1_000)));
        self.fetch_as("read the audit log", query, audit_event).await
    }

    async fn live_rows(&self, scope: &KeyScope) -> Result<CatalogRows, StoreError> {
        let (revision, mut rows) = self.catalog_rows().await?;
        let mut keys = self.live_keys(scope).await?;
        let mut keys_cut = false;
        if let KeyScope::Limited { max, .. } = scope {
            let selected: HashSet<&str> = keys.iter().map(|key| key.id.as_str()).collect();
            let (limited, has_more) = self.limited_keys(*max, &selected).await?;
            keys_cut = has_more;
            keys.extend(limited);
        }
        rows.extend(keys);
        let live = match CatalogRows::from_rows(revision, &rows, &self.sealer, self.hasher.clone()) {
            Err(StoreError::Sealed { .. }) => {
                self.reload_keys().await?;
                CatalogRows::from_rows(revision, &rows, &self.sealer, self.hasher.clone())
            }
            live => live,
        }?;
        Ok(CatalogRows { keys_cut, ..live })
    }
}
