//! The [`ListingStore`] of the database.

use async_trait::async_trait;
use sqlx::{Row as _, any::AnyRow};
use tollgate_core::{Key, KeyId, Revision, Timestamp};

use super::{
    admin_keys::{admin_key_row, select_admin_key},
    rows::{audit_event, catalog_row, key_row, select_key},
    store::SqlStore,
};
use crate::{
    AdminKey, AuditEvent, AuditFilter, AuditPosition, KeyHash, ListingStore, RowFilter, RowKind, StoreError, StoredRow,
    rows::CatalogRow,
};

const LIST: &str = "list rows";

/// Selects a page of one table: the columns read by [`catalog_row`] or [`key_row`], followed by the revision of the row's last
/// change. Binds: kind, id or lower bound of ids, parent, name, 1 to include removed rows, limit.
macro_rules! page_of {
    ($columns:literal, $table:literal, $parent:literal, $where:literal) => {
        concat!(
            "SELECT ",
            $columns,
            ", COALESCE((SELECT MAX(revision) FROM changes WHERE changes.id = t.id), 0) FROM ",
            $table,
            " t WHERE (",
            $where,
            ") AND (CAST($3 AS TEXT) IS NULL OR ",
            $parent,
            " = $3) AND (CAST($4 AS TEXT) IS NULL OR name = $4) AND (removed_at IS NULL OR CAST($5 AS BIGINT) = 1) ORDER BY id LIMIT $6"
        )
    };
}
macro_rules! rows_where {
    ($where:literal) => {
        page_of!("id, kind, parent, name, owner, spec, credential, created_at, removed_at", "catalog_rows", "parent", $where)
    };
}
macro_rules! keys_where {
    ($where:literal) => {
        page_of!("id, parent, name, owner, spec, hash, prefix, suffix, created_at, removed_at", "service_keys", "parent", $where)
    };
}
macro_rules! admin_keys_where {
    ($where:literal) => {
        page_of!(
            "id, '' AS parent, name, 'database' AS owner, spec, hash, prefix, suffix, created_at, removed_at",
            "admin_keys",
            "''",
            $where
        )
    };
}

/// Decodes a row and the revision after its columns.
fn stored(kind: RowKind, row: &AnyRow) -> Result<StoredRow, StoreError> {
    let (read, last) = match kind {
        RowKind::Key | RowKind::AdminKey => (CatalogRow { kind, ..key_row(row)? }, 10),
        RowKind::Channel | RowKind::Account | RowKind::Model | RowKind::Group | RowKind::Member => (catalog_row(row)?, 9),
    };
    let revision = row.try_get::<i64, _>(last).map_err(|error| read.broken(&error.to_string()))?;
    Ok(StoredRow::of(&read, Revision(revision)))
}

#[async_trait]
impl ListingStore for SqlStore {
    async fn page(&self, filter: &RowFilter) -> Result<Vec<StoredRow>, StoreError> {
        let sql = match filter.kind {
            RowKind::Key => keys_where!("'key' = $1 AND id > $2"),
            RowKind::AdminKey => admin_keys_where!("'admin_key' = $1 AND id > $2"),
            RowKind::Channel | RowKind::Account | RowKind::Model | RowKind::Group | RowKind::Member => {
                rows_where!("kind = $1 AND id > $2")
            }
        };
        let query = sqlx::query(sql)
            .bind(filter.kind.as_str())
            .bind(filter.after.clone().unwrap_or_default())
            .bind(filter.parent.clone())
            .bind(filter.name.clone())
            .bind(i64::from(filter.removed))
            .bind(i64::try_from(filter.size()).unwrap_or(1_001));
        let rows = query.fetch_all(&self.reader).await.map_err(|error| self.failed(LIST, error))?;
        rows.iter().map(|row| stored(filter.kind, row)).collect()
    }

    async fn row(&self, kind: RowKind, id: &str) -> Result<Option<StoredRow>, StoreError> {
        let sql = match kind {
            RowKind::Key => keys_where!("'key' = $1 AND id = $2"),
            RowKind::AdminKey => admin_keys_where!("'admin_key' = $1 AND id = $2"),
            RowKind::Channel | RowKind::Account | RowKind::Model | RowKind::Group | RowKind::Member => {
                rows_where!("kind = $1 AND id = $2")
            }
        };
        let none = None::<String>;
        let query = sqlx::query(sql).bind(kind.as_str()).bind(id.to_owned()).bind(none.clone()).bind(none).bind(1_i64).bind(1_i64);
        let found = query.fetch_optional(&self.reader).await.map_err(|error| self.failed(LIST, error))?;
        found.as_ref().map(|row| stored(kind, row)).transpose()
    }

    async fn key(&self, id: KeyId) -> Result<Option<Key>, StoreError> {
        let sql = select_key!("WHERE id = $1");
        let found = sqlx::query(sql).bind(id.to_string()).fetch_optional(&self.reader).await;
        match found.map_err(|error| self.failed(LIST, error))? {
            Some(row) => self.with_member(key_row(&row)?, LIST).await.map(Some),
            None => Ok(None),
        }
    }

    async fn audit_page(&self, filter: &AuditFilter) -> Result<Vec<(AuditPosition, AuditEvent)>, StoreError> {
        const OPERATION: &str = "read the audit log";
        let sql = "SELECT revision, at, door, actor, action, kind, id, name, detail, position FROM audit \
                   WHERE (revision < $1 OR (revision = $1 AND position < $2)) AND (CAST($3 AS TEXT) IS NULL OR kind = $3) \
                   AND (CAST($4 AS TEXT) IS NULL OR id = $4) AND (CAST($5 AS TEXT) IS NULL OR name = $5) \
                   AND (CAST($6 AS TEXT) IS NULL OR actor = $6 OR SUBSTR(actor, 1, LENGTH($6) + 2) = $6 || ' (') \
                   AND at >= $7 AND at < $8 ORDER BY revision DESC, position DESC LIMIT $9";
        let before = filter.before.unwrap_or(AuditPosition { revision: Revision(i64::MAX), position: 0 });
        let query = sqlx::query(sql)
            .bind(before.revision.0)
            .bind(before.position)
            .bind(filter.kind.map(RowKind::as_str))
            .bind(filter.id.clone())
            .bind(filter.name.clone())
            .bind(filter.actor.clone())
            .bind(filter.since.map_or(i64::MIN, |since| since.0))
            .bind(filter.until.map_or(i64::MAX, |until| until.0))
            .bind(i64::from(filter.limit.min(1_001)));
        let rows = query.fetch_all(&self.reader).await.map_err(|error| self.failed(OPERATION, error))?;
        let read = |row: &AnyRow| -> Result<(AuditPosition, AuditEvent), sqlx::Error> {
            let event = audit_event(row)?;
            Ok((AuditPosition { revision: event.revision, position: row.try_get(9)? }, event))
        };
        rows.iter().map(read).collect::<Result<_, _>>().map_err(|error| self.failed(OPERATION, error))
    }

    async fn admin_key(&self, hash: &KeyHash, now: Timestamp) -> Result<Option<AdminKey>, StoreError> {
        let sql = select_admin_key!("WHERE hash = $1 AND removed_at IS NULL");
        let found = sqlx::query(sql).bind(hash.0.to_vec()).fetch_optional(&self.reader).await;
        let found = found.map_err(|error| self.failed("find an admin key", error))?;
        let key = found.as_ref().map(|row| AdminKey::of(&admin_key_row(row)?)).transpose()?;
        Ok(key.filter(|key| key.is_valid(now)))
    }
}
