//! Queries for admin keys inside a transaction.

use sqlx::{AnyConnection, any::AnyRow};

use super::rows::key_row;
use crate::{KeySecret, RowKind, StoreError, rows::CatalogRow};

/// Columns of admin keys, in the order of [`key_row`]: they have no parent, and the database owns them.
macro_rules! select_admin_key {
    ($rest:literal) => {
        concat!(
            "SELECT id, '' AS parent, name, 'database' AS owner, spec, hash, prefix, suffix, created_at, removed_at FROM admin_keys ",
            $rest
        )
    };
}
pub(super) use select_admin_key;

pub(super) fn admin_key_row(row: &AnyRow) -> Result<CatalogRow, StoreError> {
    Ok(CatalogRow { kind: RowKind::AdminKey, ..key_row(row)? })
}

pub(super) async fn by_name(connection: &mut AnyConnection, name: &str) -> Result<Option<CatalogRow>, AdminKeyError> {
    let sql = select_admin_key!("WHERE name = $1 AND removed_at IS NULL");
    let row = sqlx::query(sql).bind(name.to_owned()).fetch_optional(connection).await?;
    Ok(row.as_ref().map(admin_key_row).transpose()?)
}

pub(super) async fn by_id(connection: &mut AnyConnection, id: &str) -> Result<Option<CatalogRow>, AdminKeyError> {
    let row = sqlx::query(select_admin_key!("WHERE id = $1")).bind(id.to_owned()).fetch_optional(connection).await?;
    Ok(row.as_ref().map(admin_key_row).transpose()?)
}

pub(super) async fn list(connection: &mut AnyConnection) -> Result<Vec<CatalogRow>, AdminKeyError> {
    let rows = sqlx::query(select_admin_key!("WHERE removed_at IS NULL ORDER BY name")).fetch_all(connection).await?;
    Ok(rows.iter().map(admin_key_row).collect::<Result<_, _>>()?)
}

pub(super) async fn put(connection: &mut AnyConnection, row: &CatalogRow, secret: &KeySecret) -> Result<(), sqlx::Error> {
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

/// The query failed, or a row cannot be decoded.
pub(super) enum AdminKeyError {
    Sql(sqlx::Error),
    Row(StoreError),
}

impl From<sqlx::Error> for AdminKeyError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for AdminKeyError {
    fn from(error: StoreError) -> Self {
        Self::Row(error)
    }
}

impl AdminKeyError {
    pub(super) fn or_else(self, failed: impl FnOnce(sqlx::Error) -> StoreError) -> StoreError {
        match self {
            Self::Sql(error) => failed(error),
            Self::Row(error) => error,
        }
    }
}
