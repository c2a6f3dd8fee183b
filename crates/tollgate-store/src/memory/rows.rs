//! [`ChangeTransaction`] on a copy of the state, which replaces the original if the batch succeeds.

use async_trait::async_trait;
use tollgate_core::{Owner, Revision};

use super::State;
use crate::{
    AuditEvent, ChangedRow, KeyHash, RowKind, StoreError,
    rows::{CatalogRow, ChangeTransaction, IdempotentBatch, RowSecret},
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
        let has_hash =
            |row: &&CatalogRow| row.kind == RowKind::Key && matches!(&row.secret, RowSecret::Key(secret) if secret.hash == *hash);
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

    async fn record(&mut self, revision: Revision, changed: &[ChangedRow], audit: &[AuditEvent]) -> Result<(), StoreError> {
        self.revision = revision;
        self.changed.extend_from_slice(changed);
        self.audit.extend_from_slice(audit);
        Ok(())
    }
}
