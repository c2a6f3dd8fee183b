//! The catalog in the database.

use std::collections::HashSet;

use async_trait::async_trait;
use sqlx::{Row as _, any::AnyRow};
use tollgate_core::{Catalog, Revision, Timestamp};

use super::{
    Dialect, SqlStore,
    change_signal::NOTIFY,
    rows::{SqlChangeTransaction, catalog_row, key_row, select_key, select_row},
};
use crate::{
    Actor, AuditEvent, CatalogRows, CatalogStore, Change, ChangedRow, KeyScope, RowKind, StoreError, apply::apply, assemble,
    rows::Row,
};

const LOAD: &str = "load the catalog";

/// A line of the audit log, from its columns in their order.
pub(super) fn audit_event(row: &AnyRow) -> Result<AuditEvent, sqlx::Error> {
    let kind: String = row.try_get(5)?;
    let kind = RowKind::parse(&kind).ok_or_else(|| sqlx::Error::Decode(format!("kind '{kind}' is not known").into()))?;
    Ok(AuditEvent {
        revision: Revision(row.try_get(0)?),
        at: Timestamp(row.try_get(1)?),
        door: row.try_get(2)?,
        actor: row.try_get(3)?,
        action: row.try_get(4)?,
        kind,
        id: row.try_get(6)?,
        name: row.try_get(7)?,
        detail: row.try_get(8)?,
    })
}

impl SqlStore {
    /// The live rows and the revision they belong to. The revision is read first: rows may be newer than it says,
    /// which the next look at the revision mends, but never older.
    async fn live_rows(&self) -> Result<(Revision, Vec<Row>), StoreError> {
        let revision = CatalogStore::revision(self).await?;
        let rows = sqlx::query(select_row!("WHERE removed_at IS NULL ORDER BY kind, name")).fetch_all(&self.reader).await;
        let rows = rows.map_err(|error| self.failed(LOAD, error))?;
        Ok((revision, rows.iter().map(catalog_row).collect::<Result<_, _>>()?))
    }

    /// The live rows and the groups that were removed, with the revision they belong to.
    pub(crate) async fn all_rows(&self) -> Result<(Revision, Vec<Row>), StoreError> {
        let revision = CatalogStore::revision(self).await?;
        let sql = select_row!("WHERE removed_at IS NULL OR kind = 'group' ORDER BY kind, name");
        let rows = sqlx::query(sql).fetch_all(&self.reader).await.map_err(|error| self.failed(LOAD, error))?;
        Ok((revision, rows.iter().map(catalog_row).collect::<Result<_, _>>()?))
    }

    async fn live_keys(&self, scope: &KeyScope) -> Result<Vec<Row>, StoreError> {
        const NAMES_AT_ONCE: usize = 200;
        let failed = |error| self.failed(LOAD, error);
        match scope {
            KeyScope::All => {
                let rows = sqlx::query(select_key!("WHERE removed_at IS NULL ORDER BY name")).fetch_all(&self.reader).await;
                rows.map_err(failed)?.iter().map(key_row).collect()
            }
            KeyScope::FileAnd(names) | KeyScope::Limited { names, .. } => {
                let sql = select_key!("WHERE removed_at IS NULL AND owner = 'file'");
                let rows = sqlx::query(sql).fetch_all(&self.reader).await.map_err(failed)?;
                let mut keys = rows.iter().map(key_row).collect::<Result<Vec<_>, _>>()?;
                let names: Vec<&String> = names.iter().collect();
                for names in names.chunks(NAMES_AT_ONCE) {
                    let select = select_key!("WHERE removed_at IS NULL AND owner <> 'file' AND name IN (");
                    let sql = super::statement::list(self.dialect, select, names.len(), ")");
                    let query = names.iter().fold(sqlx::query(sql), |query, name| query.bind((*name).clone()));
                    let rows = query.fetch_all(&self.reader).await.map_err(failed)?;
                    keys.extend(rows.iter().map(key_row).collect::<Result<Vec<_>, _>>()?);
                }
                Ok(keys)
            }
        }
    }

    /// Keys of the database with price limits of their own, the oldest first, but those of these ids. At most so many, and
    /// whether there are more.
    async fn limited_keys(&self, most: u32, but: &HashSet<&str>) -> Result<(Vec<Row>, bool), StoreError> {
        // As the index `service_keys_limited` has it.
        let sql =
            select_key!("WHERE removed_at IS NULL AND spec LIKE '%\"price_limit\":{%' AND owner <> 'file' ORDER BY id LIMIT $1");
        let wanted = i64::from(most).saturating_add(1).saturating_add(i64::try_from(but.len()).unwrap_or(i64::MAX));
        let rows = sqlx::query(sql).bind(wanted).fetch_all(&self.reader).await.map_err(|error| self.failed(LOAD, error))?;
        let mut keys = rows.iter().map(key_row).collect::<Result<Vec<_>, _>>()?;
        keys.retain(|key| !but.contains(key.id.as_str()));
        let cut = keys.len() > most as usize;
        keys.truncate(most as usize);
        Ok((keys, cut))
    }
}

#[async_trait]
impl CatalogStore for SqlStore {
    async fn load(&self) -> Result<Catalog, StoreError> {
        let (revision, rows) = self.live_rows().await?;
        assemble::catalog(revision, &rows, &self.sealer)
    }

    async fn apply(&self, changes: &[Change], actor: &Actor, now: Timestamp) -> Result<Revision, StoreError> {
        const OPERATION: &str = "change the catalog";
        let mut transaction = self.begin(OPERATION).await?;
        let mut rows = SqlChangeTransaction { connection: &mut transaction, place: &self.place };
        // An error rolls the transaction back when it is dropped.
        let revision = apply(&mut rows, &self.sealer, &self.random, changes, actor, now).await?;
        if self.dialect == Dialect::Postgres {
            let told = sqlx::query(NOTIFY).execute(&mut *transaction).await;
            told.map_err(|error| self.failed(OPERATION, error))?;
        }
        self.commit(OPERATION, transaction).await?;
        Ok(revision)
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        let row = sqlx::query("SELECT value FROM counters WHERE name = 'revision'").fetch_one(&self.reader).await;
        row.and_then(|row| row.try_get(0)).map(Revision).map_err(|error| self.failed("read the revision", error))
    }

    async fn changed_since(&self, known: Revision) -> Result<Vec<ChangedRow>, StoreError> {
        const OPERATION: &str = "read what changed";
        let sql = "SELECT revision, kind, id FROM changes WHERE revision > $1 ORDER BY revision, position";
        let rows = sqlx::query(sql).bind(known.0).fetch_all(&self.reader).await.map_err(|error| self.failed(OPERATION, error))?;
        let read = |row: &AnyRow| -> Result<ChangedRow, sqlx::Error> {
            let kind: String = row.try_get(1)?;
            let kind = RowKind::parse(&kind).ok_or_else(|| sqlx::Error::Decode(format!("kind '{kind}' is not known").into()))?;
            Ok(ChangedRow { revision: Revision(row.try_get(0)?), kind, id: row.try_get(2)? })
        };
        rows.iter().map(read).collect::<Result<_, _>>().map_err(|error| self.failed(OPERATION, error))
    }

    async fn wait_for_change(&self, known: Revision) -> Result<Revision, StoreError> {
        loop {
            let now = CatalogStore::revision(self).await?;
            if now != known {
                return Ok(now);
            }
            self.news.wait().await;
        }
    }

    async fn audit(&self, below: Option<Revision>, limit: u32) -> Result<Vec<AuditEvent>, StoreError> {
        const OPERATION: &str = "read the audit log";
        let sql = "SELECT revision, at, door, actor, action, kind, id, name, detail FROM audit WHERE revision < $1 \
                   ORDER BY revision DESC, position DESC LIMIT $2";
        let below = below.map_or(i64::MAX, |below| below.0);
        let query = sqlx::query(sql).bind(below).bind(i64::from(limit.min(1_000)));
        let rows = query.fetch_all(&self.reader).await.map_err(|error| self.failed(OPERATION, error))?;
        rows.iter().map(audit_event).collect::<Result<_, _>>().map_err(|error| self.failed(OPERATION, error))
    }

    async fn current(&self, scope: &KeyScope) -> Result<CatalogRows, StoreError> {
        let (revision, mut rows) = self.live_rows().await?;
        let mut keys = self.live_keys(scope).await?;
        let mut keys_cut = false;
        if let KeyScope::Limited { most, .. } = scope {
            let known: HashSet<&str> = keys.iter().map(|key| key.id.as_str()).collect();
            let (limited, cut) = self.limited_keys(*most, &known).await?;
            keys_cut = cut;
            keys.extend(limited);
        }
        rows.extend(keys);
        let current = CatalogRows::from_rows(revision, &rows, &self.sealer, self.hasher.clone())?;
        Ok(CatalogRows { keys_cut, ..current })
    }
}
