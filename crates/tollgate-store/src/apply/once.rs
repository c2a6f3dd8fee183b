//! Preconditions of single rows, batches that happen once, and admin keys.

use tollgate_core::{AdminKeyId, Revision};

use super::{Batch, Check as _, Given, checked, keys::OWNER, refused};
use crate::{AdminKeySpec, KeySecret, Kind, Refused, StoreError};

impl Batch<'_> {
    pub(super) async fn expect_row(&mut self, kind: Kind, id: &str, expected: Revision) -> Result<(), StoreError> {
        let Some(row) = self.rows.by_id(kind, id).await? else { return Err(refused(kind, id, Refused::NotFound)) };
        let found = self.rows.row_revision(id).await?;
        if found == expected { Ok(()) } else { Err(refused(kind, &row.name, Refused::RowStale { expected, found })) }
    }

    pub(super) async fn expect_new(&mut self, kind: Kind, parent: &str, name: &str) -> Result<(), StoreError> {
        let above = match kind {
            Kind::Account => Some((Kind::Channel, parent)),
            Kind::Key => Some((Kind::Member, if parent.is_empty() { OWNER } else { parent })),
            Kind::Channel | Kind::Model | Kind::Group | Kind::Member | Kind::AdminKey => None,
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
            Some(_) => Err(refused(kind, name, Refused::Exists)),
            None => Ok(()),
        }
    }

    pub(super) async fn once(&mut self, key: &str, fingerprint: &[u8; 32]) -> Result<(), StoreError> {
        match self.rows.once(key).await? {
            Some(there) if there.fingerprint != *fingerprint => Err(refused(there.kind, &there.id, Refused::OnceTaken)),
            Some(there) => Err(refused(there.kind, &there.id, Refused::Repeated { kind: there.kind, id: there.id.clone() })),
            None => {
                self.once = Some((key.to_owned(), *fingerprint));
                Ok(())
            }
        }
    }

    pub(super) async fn make_admin_key(&mut self, spec: &AdminKeySpec, secret: &KeySecret) -> Result<(), StoreError> {
        checked(Kind::AdminKey, &spec.name, spec.check())?;
        self.expect_new(Kind::AdminKey, "", &spec.name).await?;
        self.put(Kind::AdminKey, "", &spec.name, spec, Given::Key(secret)).await
    }

    /// Ends an admin key; one that is revoked stays as it is.
    pub(super) async fn revoke_admin_key(&mut self, key: AdminKeyId) -> Result<(), StoreError> {
        let shown = key.to_string();
        match self.rows.by_id(Kind::AdminKey, &shown).await? {
            None => Err(refused(Kind::AdminKey, &shown, Refused::NotFound)),
            Some(row) if row.removed_at.is_some() => Ok(()),
            Some(row) => self.remove_row(row, "revoke").await,
        }
    }
}
