//! [`ChangeTransaction`] on a copy of the state, which replaces the original if the batch succeeds, and the [`ListingStore`].

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use tollgate_core::{Key, KeyId, Owner, Revision, Timestamp};

use super::{MemoryStore, State};
use crate::{
    AdminKey, AuditEvent, AuditFilter, AuditPosition, DatabaseSize, GroupUsers, ImportedPrice, KeyEntry, KeyHash, ListingStore,
    ObjectScope, PriceChange, PriceHistoryFilter, PriceHistoryPosition, RowFilter, RowKind, RowName, StoreError, StoredRow,
    group_users::{GroupCount, GroupUserRow},
    rows::{BatchRecord, CatalogRow, ChangeTransaction, IdempotentBatch, RowSecret},
    sql::newest_schema,
};

#[async_trait]
impl ChangeTransaction for State {
    fn id_for(&self, kind: RowKind, parent: &str, name: &str) -> Option<String> {
        self.ids.as_ref().map(|ids| ids.id(kind, parent, name))
    }

    async fn by_name(&mut self, kind: RowKind, parent: &str, name: &str) -> Result<Option<CatalogRow>, StoreError> {
        Ok(self.live().find(|row| row.kind == kind && row.parent == parent && row.name == name).cloned())
    }

    async fn by_id(&mut self, kind: RowKind, id: &str) -> Result<Option<CatalogRow>, StoreError> {
        Ok(self.rows.get(id).filter(|row| row.kind == kind).cloned())
    }

    async fn by_hash(&mut self, hash: &KeyHash) -> Result<Option<CatalogRow>, StoreError> {
        let has_hash = |row: &&CatalogRow| {
            row.kind == RowKind::Key && matches!(&row.secret, RowSecret::Key(secret) if secret.hashes().any(|it| it == *hash))
        };
        Ok(self.live().find(has_hash).cloned())
    }

    async fn list(&mut self, kind: RowKind, parent: Option<&str>) -> Result<Vec<CatalogRow>, StoreError> {
        let wanted = |row: &&CatalogRow| row.kind == kind && parent.is_none_or(|parent| row.parent == parent);
        let mut rows: Vec<CatalogRow> = self.live().filter(wanted).cloned().collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(rows)
    }

    async fn of_file(&mut self, kind: RowKind) -> Result<Vec<CatalogRow>, StoreError> {
        Ok(self.live().filter(|row| row.kind == kind && row.owner == Owner::File).cloned().collect())
    }

    async fn row_revision(&mut self, id: &str) -> Result<Revision, StoreError> {
        Ok(self.last_change(id))
    }

    async fn idempotent_batch(&mut self, key: &str) -> Result<Option<IdempotentBatch>, StoreError> {
        Ok(self.idempotent.get(key).cloned())
    }

    async fn put_idempotent_batch(&mut self, batch: &IdempotentBatch) -> Result<(), StoreError> {
        self.idempotent.retain(|_, old| old.at.plus_ms(IdempotentBatch::LIFE_MS) > batch.at);
        self.idempotent.insert(batch.key.clone(), batch.clone());
        Ok(())
    }

    async fn put(&mut self, row: &CatalogRow) -> Result<(), StoreError> {
        self.rows.insert(row.id.clone(), row.clone());
        Ok(())
    }

    async fn revision(&mut self) -> Result<Revision, StoreError> {
        Ok(self.revision)
    }

    async fn imported_from(&mut self, model: &str, channel: Option<&str>) -> Result<Option<String>, StoreError> {
        let last = self.prices.iter().rev().find(|price| price.is_of(model, channel));
        Ok(last.and_then(|price| price.source.clone()))
    }

    async fn record(&mut self, revision: Revision, batch: &BatchRecord<'_>) -> Result<(), StoreError> {
        self.revision = revision;
        self.changed.extend_from_slice(batch.changed);
        self.audit.extend_from_slice(batch.audit);
        self.prices.extend_from_slice(batch.prices);
        self.offers.extend_from_slice(batch.offers);
        Ok(())
    }
}

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
                && filter.scope.contains_row(row)
                && (filter.removed || row.removed_at.is_none())
                && filter.parent.as_ref().is_none_or(|parent| row.parent == *parent)
                && filter.name.as_ref().is_none_or(|name| row.name == *name)
                && filter.search.as_ref().is_none_or(|search| search.finds(&row.name, state.identity.email_of(&row.id)))
                && filter.after.as_ref().is_none_or(|after| row.id > *after)
        };
        Ok(state.rows.values().filter(wanted).take(filter.size()).map(|row| state.stored(row)).collect())
    }

    async fn key_entries(&self, filter: &RowFilter, limit: u32) -> Result<Vec<KeyEntry>, StoreError> {
        let state = self.catalog.lock().await;
        let wanted = |row: &&CatalogRow| {
            row.kind == RowKind::Key
                && filter.scope.contains_row(row)
                && (filter.removed || row.removed_at.is_none())
                && filter.parent.as_ref().is_none_or(|parent| row.parent == *parent)
                && filter.after.as_ref().is_none_or(|after| row.id > *after)
        };
        let entry = |row: StoredRow| KeyEntry {
            id: row.id,
            member: row.parent,
            name: row.name,
            suffix: row.shown.unwrap_or_default().1,
            created_at: row.created_at,
        };
        let found = state.rows.values().filter(wanted).take(limit as usize);
        Ok(found.map(|row| entry(state.stored(row))).collect())
    }

    async fn group_users(&self) -> Result<HashMap<String, GroupUsers>, StoreError> {
        let state = self.catalog.lock().await;
        let of = |kind| state.live().filter(move |row: &&CatalogRow| row.kind == kind);
        let user = |row: &CatalogRow| GroupUserRow { id: row.id.clone(), parent: row.parent.clone(), spec: row.spec.clone() };
        let mut count = GroupCount::default();
        for row in of(RowKind::Member) {
            count.add_member(user(row))?;
        }
        for row in of(RowKind::Key) {
            count.add_key(&user(row))?;
        }
        Ok(count.finish())
    }

    async fn rows(&self, kind: RowKind, ids: Vec<String>, scope: ObjectScope) -> Result<Vec<StoredRow>, StoreError> {
        let state = self.catalog.lock().await;
        let rows = ids.iter().filter_map(|id| state.rows.get(id)).filter(|row| row.kind == kind && scope.contains_row(row));
        Ok(rows.map(|row| state.stored(row)).collect())
    }

    async fn row(&self, kind: RowKind, id: &str, scope: ObjectScope) -> Result<Option<StoredRow>, StoreError> {
        let state = self.catalog.lock().await;
        Ok(state.rows.get(id).filter(|row| row.kind == kind && scope.contains_row(row)).map(|row| state.stored(row)))
    }

    async fn names(&self, kind: RowKind, ids: Vec<String>, scope: ObjectScope) -> Result<Vec<RowName>, StoreError> {
        let state = self.catalog.lock().await;
        let rows = ids.iter().filter_map(|id| state.rows.get(id)).filter(|row| row.kind == kind && scope.contains_row(row));
        Ok(rows.map(|row| RowName { id: row.id.clone(), name: row.name.clone(), parent: row.parent.clone() }).collect())
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
        let wanted = |(position, event): &(AuditPosition, &AuditEvent)| {
            filter.kind.is_none_or(|kind| event.kind == kind)
                && filter.id.as_ref().is_none_or(|id| event.id == *id)
                && filter.name.as_ref().is_none_or(|name| event.name == *name)
                && filter.has_actor(&event.actor)
                && filter.has_address(event.address.as_deref())
                && filter.has_time(event.at)
                && filter.before.is_none_or(|before| *position < before)
        };
        let found = lines.into_iter().rev().filter(wanted).take(filter.limit.min(1_001) as usize);
        Ok(found.map(|(position, event)| (position, event.clone())).collect())
    }

    async fn price_history(&self, filter: &PriceHistoryFilter) -> Result<Vec<(PriceHistoryPosition, PriceChange)>, StoreError> {
        let state = self.catalog.lock().await;
        let mut found: Vec<(PriceHistoryPosition, PriceChange)> = Vec::new();
        let mut position = PriceHistoryPosition { revision: Revision(0), position: 0 };
        for change in &state.prices {
            let next = if change.revision == position.revision { position.position + 1 } else { 0 };
            position = PriceHistoryPosition { revision: change.revision, position: next };
            if filter.selects(change) && filter.before.is_none_or(|before| position < before) {
                found.push((position, change.clone()));
            }
        }
        found.reverse();
        found.truncate(filter.size());
        Ok(found)
    }

    async fn database_size(&self) -> Result<DatabaseSize, StoreError> {
        Ok(DatabaseSize { kind: "memory", bytes: 0, log_bytes: None, schema: newest_schema() })
    }

    async fn imported_prices(&self) -> Result<Vec<ImportedPrice>, StoreError> {
        let state = self.catalog.lock().await;
        let last: BTreeMap<_, _> = state.prices.iter().map(|change| ((&change.model, &change.channel), change)).collect();
        Ok(last.values().filter_map(|change| change.imported()).collect())
    }

    async fn admin_key(&self, hash: &KeyHash, now: Timestamp) -> Result<Option<AdminKey>, StoreError> {
        let state = self.catalog.lock().await;
        let has_hash = |row: &&CatalogRow| {
            row.kind == RowKind::AdminKey && matches!(&row.secret, RowSecret::Key(secret) if secret.hash == *hash)
        };
        let Some(found) = state.live().find(has_hash) else { return Ok(None) };
        AdminKey::of(found, state.rows.get(&found.parent), now)
    }
}
