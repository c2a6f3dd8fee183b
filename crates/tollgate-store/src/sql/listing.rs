//! Rows page by page, and admin keys, in the database.

use async_trait::async_trait;
use sqlx::{AnyConnection, Row as _, any::AnyRow};
use tollgate_core::{Key, KeyId, Revision, Timestamp};

use super::{
    SqlStore,
    catalog::audit_event,
    rows::{catalog_row, key_row, select_key},
};
use crate::{
    AdminKey, AuditEvent, AuditFilter, AuditPosition, KeyHash, KeySecret, ListingStore, RowFilter, RowKind, StoreError, StoredRow,
    rows::Row,
};

const LIST: &str = "list rows";

/// Columns of admin keys, in the order of [`key_row`].
macro_rules! select_admin_key {
    ($rest:literal) => {
        concat!(
            "SELECT id, '' AS parent, name, 'database' AS owner, spec, hash, prefix, suffix, created_at, removed_at FROM admin_keys ",
            $rest
        )
    };
}

/// One statement for each table: its columns as [`catalog_row`] or [`key_row`] reads them, and the row's last change
/// behind them. Binds: kind, id or lower bound of ids, parent, name, 1 for removed ones too, limit.
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

/// A row with its last change.
fn stored(kind: RowKind, row: &AnyRow) -> Result<StoredRow, StoreError> {
    let (read, last) = match kind {
        RowKind::Key | RowKind::AdminKey => (Row { kind, ..key_row(row)? }, 10),
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
                   AND (CAST($4 AS TEXT) IS NULL OR id = $4) ORDER BY revision DESC, position DESC LIMIT $5";
        let before = filter.before.unwrap_or(AuditPosition { revision: Revision(i64::MAX), position: 0 });
        let query = sqlx::query(sql)
            .bind(before.revision.0)
            .bind(before.position)
            .bind(filter.kind.map(RowKind::as_str))
            .bind(filter.id.clone())
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
        Ok(key.filter(|key| key.works(now)))
    }
}

fn admin_key_row(row: &AnyRow) -> Result<Row, StoreError> {
    Ok(Row { kind: RowKind::AdminKey, ..key_row(row)? })
}

// === inside a transaction ===

pub(super) async fn admin_key_by_name(connection: &mut AnyConnection, name: &str) -> Result<Option<Row>, RowError> {
    let sql = select_admin_key!("WHERE name = $1 AND removed_at IS NULL");
    let row = sqlx::query(sql).bind(name.to_owned()).fetch_optional(connection).await?;
    Ok(row.as_ref().map(admin_key_row).transpose()?)
}

pub(super) async fn admin_key_by_id(connection: &mut AnyConnection, id: &str) -> Result<Option<Row>, RowError> {
    let row = sqlx::query(select_admin_key!("WHERE id = $1")).bind(id.to_owned()).fetch_optional(connection).await?;
    Ok(row.as_ref().map(admin_key_row).transpose()?)
}

pub(super) async fn admin_keys(connection: &mut AnyConnection) -> Result<Vec<Row>, RowError> {
    let rows = sqlx::query(select_admin_key!("WHERE removed_at IS NULL ORDER BY name")).fetch_all(connection).await?;
    Ok(rows.iter().map(admin_key_row).collect::<Result<_, _>>()?)
}

pub(super) async fn put_admin_key(connection: &mut AnyConnection, row: &Row, secret: &KeySecret) -> Result<(), sqlx::Error> {
    const SQL: &str = "INSERT INTO admin_keys (id, name, spec, hash, prefix, suffix, created_at, removed_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO UPDATE SET spec = $3, removed_at = $8";
    let query = sqlx::query(SQL)
        .bind(row.id.clone())
        .bind(row.name.clone())
        .bind(row.spec.clone())
        .bind(secret.hash.0.to_vec())
        .bind(secret.prefix.clone())
        .bind(secret.suffix.clone())
        .bind(row.created_at.0)
        .bind(row.removed_at.map(|at| at.0));
    query.execute(connection).await.map(|_| ())
}

/// What can go wrong with a row: the database, or what it holds.
pub(super) enum RowError {
    Sql(sqlx::Error),
    Row(StoreError),
}

impl From<sqlx::Error> for RowError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for RowError {
    fn from(error: StoreError) -> Self {
        Self::Row(error)
    }
}

impl RowError {
    pub(super) fn or(self, failed: impl FnOnce(sqlx::Error) -> StoreError) -> StoreError {
        match self {
            Self::Sql(error) => failed(error),
            Self::Row(error) => error,
        }
    }
}
