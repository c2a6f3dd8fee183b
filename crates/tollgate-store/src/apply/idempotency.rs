//! Preconditions of single rows, batches that happen once, and admin keys.

use tollgate_core::{AdminKeyId, Revision};

use super::{Batch, SecretInput, checked, keys::OWNER, refused};
use crate::{AdminKeySpec, ChangeRefusal, KeySecret, RowKind, StoreError, fields::check_row};

impl Batch<'_> {
    pub(super) async fn expect_row(&mut self, kind: RowKind, id: &str, expected: Revision) -> Result<(), StoreError> {
        let Some(row) = self.rows.by_id(kind, id).await? else { return Err(refused(kind, id, ChangeRefusal::NotFound)) };
        let found = self.rows.row_revision(id).await?;
        if found == expected { Ok(()) } else { Err(refused(kind, &row.name, ChangeRefusal::RowStale { expected, found })) }
    }

    pub(super) async fn expect_new(&mut self, kind: RowKind, parent: &str, name: &str) -> Result<(), StoreError> {
        let above = match kind {
            RowKind::Account => Some((RowKind::Channel, parent)),
            RowKind::Key => Some((RowKind::Member, if parent.is_empty() { OWNER } else { parent })),
            RowKind::Channel | RowKind::Model | RowKind::Group | RowKind::Member | RowKind::AdminKey => None,
        };
        let parent = match above {
            None => String::new(),
            // A parent that is not there is for the change itself to say.
            Some((kind, parent)) => match self.rows.by_name(kind, "", parent).await? {
                Some(row) => row.id,
                None => return Ok(()),
            },
        };
        match self.rows.by_name(kind, &parent, name).await? {
            Some(_) => Err(refused(kind, name, ChangeRefusal::Exists)),
            None => Ok(()),
        }
    }

    pub(super) async fn once(&mut self, key: &str, fingerprint: &[u8; 32]) -> Result<(), StoreError> {
        match self.rows.idempotent_batch(key).await? {
            Some(there) if there.fingerprint != *fingerprint => {
                Err(refused(there.kind, &there.id, ChangeRefusal::IdempotencyKeyReused))
            }
            Some(there) => Err(refused(there.kind, &there.id, ChangeRefusal::Repeated { kind: there.kind, id: there.id.clone() })),
            None => {
                self.once = Some((key.to_owned(), *fingerprint));
                Ok(())
            }
        }
    }

    pub(super) async fn make_admin_key(&mut self, spec: &AdminKeySpec, secret: &KeySecret) -> Result<(), StoreError> {
        checked(RowKind::AdminKey, &spec.name, check_row(spec))?;
        self.expect_new(RowKind::AdminKey, "", &spec.name).await?;
        self.put(RowKind::AdminKey, "", &spec.name, spec, SecretInput::Key(secret)).await
    }

    /// Ends an admin key; one that is revoked stays as it is.
    pub(super) async fn revoke_admin_key(&mut self, key: AdminKeyId) -> Result<(), StoreError> {
        let shown = key.to_string();
        match self.rows.by_id(RowKind::AdminKey, &shown).await? {
            None => Err(refused(RowKind::AdminKey, &shown, ChangeRefusal::NotFound)),
            Some(row) if row.removed_at.is_some() => Ok(()),
            Some(row) => self.remove_row(row, "revoke").await,
        }
    }
}
