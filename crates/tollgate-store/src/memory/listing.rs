//! [`ListingStore`] of the memory backend.

use async_trait::async_trait;
use tollgate_core::{Key, KeyId, Timestamp};

use super::{MemoryStore, State};
use crate::{
    AdminKey, AuditEvent, AuditFilter, AuditPosition, KeyHash, ListingStore, RowFilter, RowKind, StoreError, StoredRow,
    rows::{CatalogRow, RowSecret},
};

impl State {
    fn stored(&self, row: &CatalogRow) -> StoredRow {
        StoredRow::of(row, self.last_change(&row.id))
    }
}

#[async_trait]
impl ListingStore for MemoryStore {
    async fn page(&self, filter: &RowFilter) -> Result<Vec<StoredRow>, StoreError> {
        let state = self.catalog.lock().await;
        let wanted = |row: &&CatalogRow| {
            row.kind == filter.kind
                && (filter.removed || row.removed_at.is_none())
                && filter.parent.as_ref().is_none_or(|parent| row.parent == *parent)
                && filter.name.as_ref().is_none_or(|name| row.name == *name)
                && filter.after.as_ref().is_none_or(|after| row.id > *after)
        };
        Ok(state.rows.values().filter(wanted).take(filter.size()).map(|row| state.stored(row)).collect())
    }

    async fn row(&self, kind: RowKind, id: &str) -> Result<Option<StoredRow>, StoreError> {
        let state = self.catalog.lock().await;
        Ok(state.rows.get(id).filter(|row| row.kind == kind).map(|row| state.stored(row)))
    }

    async fn key(&self, id: KeyId) -> Result<Option<Key>, StoreError> {
        let state = self.catalog.lock().await;
        let found = state.rows.get(&id.to_string()).filter(|row| row.kind == RowKind::Key);
        found.map(|row| state.key(row)).transpose()
    }

    async fn audit_page(&self, filter: &AuditFilter) -> Result<Vec<(AuditPosition, AuditEvent)>, StoreError> {
        let state = self.catalog.lock().await;
        let mut lines: Vec<(AuditPosition, &AuditEvent)> = Vec::with_capacity(state.audit.len());
        for event in &state.audit {
            let same = lines.last().filter(|(last, _)| last.revision == event.revision);
            let position = same.map_or(0, |(last, _)| last.position + 1);
            lines.push((AuditPosition { revision: event.revision, position }, event));
        }
        let wanted = |(place, event): &(AuditPosition, &AuditEvent)| {
            filter.kind.is_none_or(|kind| event.kind == kind)
                && filter.id.as_ref().is_none_or(|id| event.id == *id)
                && filter.name.as_ref().is_none_or(|name| event.name == *name)
                && filter.has_actor(&event.actor)
                && filter.has_time(event.at)
                && filter.before.is_none_or(|before| *place < before)
        };
        let found = lines.into_iter().rev().filter(wanted).take(filter.limit.min(1_001) as usize);
        Ok(found.map(|(place, event)| (place, event.clone())).collect())
    }

    async fn admin_key(&self, hash: &KeyHash, now: Timestamp) -> Result<Option<AdminKey>, StoreError> {
        let state = self.catalog.lock().await;
        let has_hash = |row: &&CatalogRow| {
            row.kind == RowKind::AdminKey && matches!(&row.secret, RowSecret::Key(secret) if secret.hash == *hash)
        };
        let found = state.live().find(has_hash).map(AdminKey::of).transpose()?;
        Ok(found.filter(|key| key.is_valid(now)))
    }
}
