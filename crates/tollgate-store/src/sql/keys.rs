//! The [`KeyStore`] of the database.

use std::collections::HashMap;

use async_trait::async_trait;
use sqlx::Row as _;
use tollgate_core::{GroupId, Key};

use super::{
    rows::{catalog_row, key_row, select_key, select_row},
    store::SqlStore,
};
use crate::{
    KeyHash, KeyStore, StoreError,
    assemble::{self, GroupIds},
    rows::{CatalogRow, RowSecret},
};

const FIND: &str = "find a key";
const LIST: &str = "list the keys";

impl SqlStore {
    /// Completes a key's row with its member and its groups.
    pub(super) async fn with_member(&self, row: CatalogRow, operation: &'static str) -> Result<Key, StoreError> {
        let member = sqlx::query(select_row!("WHERE id = $1")).bind(row.parent.clone()).fetch_optional(&self.reader).await;
        let member = member.map_err(|error| self.failed(operation, error))?;
        let member = member.ok_or_else(|| row.broken("its member does not exist"))?;
        let groups = self.group_ids(operation).await?;
        assemble::key(&row, &catalog_row(&member)?, &groups)
    }

    /// Ids of all groups by name, including removed ones. Groups are few, and this runs only when a key is not cached.
    async fn group_ids(&self, operation: &'static str) -> Result<GroupIds, StoreError> {
        let failed = |error| self.failed(operation, error);
        let sql = "SELECT id, name, CASE WHEN removed_at IS NULL THEN 1 ELSE 0 END FROM catalog_rows WHERE kind = 'group'";
        let mut ids = GroupIds::default();
        for row in sqlx::query(sql).fetch_all(&self.reader).await.map_err(failed)? {
            let id: String = row.try_get(0).map_err(failed)?;
            let name: String = row.try_get(1).map_err(failed)?;
            let live: i64 = row.try_get::<i32, _>(2).map(i64::from).or_else(|_| row.try_get(2)).map_err(failed)?;
            if let Some(id) = GroupId::parse(&id) {
                ids.add(name, id, live == 1);
            }
        }
        Ok(ids)
    }

    pub(crate) async fn find_row(&self, hash: &KeyHash) -> Result<Option<(CatalogRow, Key)>, StoreError> {
        let failed = |error| self.failed(FIND, error);
        // A secret can be imported again after its key was revoked: prefer the live key.
        let sql = select_key!("WHERE hash = $1 ORDER BY CASE WHEN removed_at IS NULL THEN 0 ELSE 1 END, created_at DESC LIMIT 1");
        let found = sqlx::query(sql).bind(hash.0.to_vec()).fetch_optional(&self.reader).await.map_err(failed)?;
        let Some(row) = found.as_ref().map(key_row).transpose()? else { return Ok(None) };
        let key = self.with_member(row.clone(), FIND).await?;
        Ok(Some((row, key)))
    }

    /// Rows of the keys with these ids, and their hashes.
    pub(crate) async fn key_rows(&self, ids: &[String]) -> Result<Vec<([u8; 32], CatalogRow)>, StoreError> {
        const IDS_AT_ONCE: usize = 500;
        let failed = |error| self.failed(LIST, error);
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(IDS_AT_ONCE) {
            let sql = self.dialect.list(select_key!("WHERE id IN ("), ids.len(), ")");
            let query = ids.iter().fold(sqlx::query(sql), |query, id| query.bind(id.clone()));
            for row in query.fetch_all(&self.reader).await.map_err(failed)? {
                let row = key_row(&row)?;
                if let RowSecret::Key(secret) = &row.secret {
                    found.push((secret.hash.0, row));
                }
            }
        }
        Ok(found)
    }
}

#[async_trait]
impl KeyStore for SqlStore {
    async fn find(&self, hash: &KeyHash) -> Result<Option<Key>, StoreError> {
        Ok(self.find_row(hash).await?.map(|(_, key)| key))
    }

    async fn list(&self) -> Result<Vec<Key>, StoreError> {
        let failed = |error| self.failed(LIST, error);
        let members = sqlx::query(select_row!("WHERE kind = 'member'")).fetch_all(&self.reader).await.map_err(failed)?;
        let members = members.iter().map(catalog_row).collect::<Result<Vec<_>, _>>()?;
        let members: HashMap<&str, &CatalogRow> = members.iter().map(|row| (row.id.as_str(), row)).collect();
        let groups = self.group_ids(LIST).await?;
        let rows = sqlx::query(select_key!("")).fetch_all(&self.reader).await.map_err(failed)?;
        let mut keys = Vec::with_capacity(rows.len());
        for row in &rows {
            let row = key_row(row)?;
            let member = members.get(row.parent.as_str()).ok_or_else(|| row.broken("its member does not exist"))?;
            keys.push(assemble::key(&row, member, &groups)?);
        }
        keys.sort_by(|a, b| (&a.member.name, &a.name, a.id).cmp(&(&b.member.name, &b.name, b.id)));
        Ok(keys)
    }
}
