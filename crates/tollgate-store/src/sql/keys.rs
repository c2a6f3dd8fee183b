//! The [`KeyStore`] of the database.

use std::collections::HashMap;

use async_trait::async_trait;
use sqlx::Row as _;
use tollgate_core::{GroupId, Key};

use super::{rows::select, store::SqlStore};
use crate::{
    KeyHash, KeyStore, RowKind, StoreError,
    assemble::{self, GroupIds},
    rows::{CatalogRow, RowSecret},
};

const FIND: &str = "find a key";
const LIST: &str = "list the keys";

impl SqlStore {
    /// Completes a key's row with its member and its groups.
    pub(super) async fn with_member(&self, row: CatalogRow, operation: &'static str) -> Result<Key, StoreError> {
        let query = select(RowKind::Member, "WHERE id = $1").bind(row.parent.clone());
        let member = self.fetch_rows(operation, query).await?.pop();
        let member = member.ok_or_else(|| row.broken("its member does not exist"))?;
        let groups = self.group_ids(operation).await?;
        assemble::key(&row, &member, &groups)
    }

    /// Ids of all groups by name, including removed ones. Groups are few, and this runs only when a key is not cached.
    async fn group_ids(&self, operation: &'static str) -> Result<GroupIds, StoreError> {
        let failed = |error| self.failed(operation, error);
        let sql = "SELECT id, name, CASE WHEN removed_at IS NULL THEN 1 ELSE 0 END FROM catalog_rows WHERE kind = 'group'";
        let mut ids = GroupIds::default();
        for row in sqlx::query(sql).fetch_all(self.pools.reader()).await.map_err(failed)? {
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
        // A secret can be imported again after its key was revoked: prefer the live key.
        let sql = "WHERE hash = $1 OR previous_hash = $1 \
                   ORDER BY CASE WHEN removed_at IS NULL THEN 0 ELSE 1 END, created_at DESC LIMIT 1";
        let query = select(RowKind::Key, sql).bind(hash.0.to_vec());
        let Some(row) = self.fetch_rows(FIND, query).await?.pop() else { return Ok(None) };
        let key = assemble::as_presented(self.with_member(row.clone(), FIND).await?, &row, hash);
        Ok(Some((row, key)))
    }

    /// Rows of the keys with these ids, one for each of their hashes.
    pub(crate) async fn key_rows(&self, ids: &[String]) -> Result<Vec<([u8; 32], CatalogRow)>, StoreError> {
        const IDS_AT_ONCE: usize = 500;
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(IDS_AT_ONCE) {
            let query = select(RowKind::Key, &self.dialect.list("WHERE id IN (", ids.len(), ")").0);
            let query = ids.iter().fold(query, |query, id| query.bind(id.clone()));
            for row in self.fetch_rows(LIST, query).await? {
                if let RowSecret::Key(secret) = &row.secret {
                    found.extend(secret.hashes().map(|hash| (hash.0, row.clone())));
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
        let members = self.fetch_rows(LIST, select(RowKind::Member, "WHERE kind = 'member'")).await?;
        let members: HashMap<&str, &CatalogRow> = members.iter().map(|row| (row.id.as_str(), row)).collect();
        let groups = self.group_ids(LIST).await?;
        let rows = self.fetch_rows(LIST, select(RowKind::Key, "")).await?;
        let mut keys = Vec::with_capacity(rows.len());
        for row in rows {
            let member = members.get(row.parent.as_str()).ok_or_else(|| row.broken("its member does not exist"))?;
            keys.push(assemble::key(&row, member, &groups)?);
        }
        keys.sort_by(|a, b| (&a.member.name, &a.name, a.id).cmp(&(&b.member.name, &b.name, b.id)));
        Ok(keys)
    }
}
