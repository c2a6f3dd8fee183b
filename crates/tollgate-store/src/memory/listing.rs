//! Rows page by page, out of memory.

use async_trait::async_trait;
use tollgate_core::Timestamp;

use super::{MemoryStore, State};
use crate::{
    AdminKey, KeyHash, Kind, Listing, RowFilter, StoreError, StoredRow,
    rows::{Row, RowSecret},
};

impl State {
    fn stored(&self, row: &Row) -> StoredRow {
        StoredRow::of(row, self.last_change(&row.id))
    }
}

#[async_trait]
impl Listing for MemoryStore {
    async fn page(&self, filter: &RowFilter) -> Result<Vec<StoredRow>, StoreError> {
        let state = self.catalog.lock().await;
        let wanted = |row: &&Row| {
            row.kind == filter.kind
                && (filter.removed || row.removed_at.is_none())
                && filter.parent.as_ref().is_none_or(|parent| row.parent == *parent)
                && filter.name.as_ref().is_none_or(|name| row.name == *name)
                && filter.after.as_ref().is_none_or(|after| row.id > *after)
        };
        Ok(state.rows.values().filter(wanted).take(filter.size()).map(|row| state.stored(row)).collect())
    }

    async fn row(&self, kind: Kind, id: &str) -> Result<Option<StoredRow>, StoreError> {
        let state = self.catalog.lock().await;
        Ok(state.rows.get(id).filter(|row| row.kind == kind).map(|row| state.stored(row)))
    }

    async fn admin_key(&self, hash: &KeyHash, now: Timestamp) -> Result<Option<AdminKey>, StoreError> {
        let state = self.catalog.lock().await;
        let has_hash =
            |row: &&Row| row.kind == Kind::AdminKey && matches!(&row.secret, RowSecret::Key(secret) if secret.hash == *hash);
        let found = state.live().find(has_hash).map(AdminKey::of).transpose()?;
        Ok(found.filter(|key| key.works(now)))
    }
}
