//! Reading and writing single rows within a batch, each change with its entry in the audit log.

use serde::{Serialize, de::DeserializeOwned};
use subtle::ConstantTimeEq as _;
use tollgate_core::{Owner, Revision, Secret};

use super::{Batch, new_id, refused};
use crate::{
    AuditAction, AuditEvent, AuditKind, Change, ChangeOrigin, ChangeRefusal, ChangedRow, KeySecret, RowKind, StoreError,
    credential,
    rows::{CatalogRow, RowSecret, spec_text},
};

/// The secret of a written row.
pub(super) enum SecretInput<'a> {
    /// An existing row keeps its secret.
    Keep(SecretRequirement),
    /// An existing secret is removed.
    NoSecret,
    Credential(&'a Secret),
    Key(&'a KeySecret),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretRequirement {
    NeedsSecret,
    NeedsNone,
}

impl Batch<'_> {
    pub(super) async fn need(&mut self, kind: RowKind, parent: &str, name: &str) -> Result<CatalogRow, StoreError> {
        self.rows.by_name(kind, parent, name).await?.ok_or_else(|| refused(kind, name, ChangeRefusal::NotFound))
    }

    /// Rows owned by a served catalog file are changed in the file only.
    pub(super) fn may_write(&self, row: &CatalogRow, name: &str) -> Result<(), StoreError> {
        if row.owner == Owner::File && self.actor.origin != ChangeOrigin::File {
            return Err(refused(row.kind, name, ChangeRefusal::OwnedByFile));
        }
        Ok(())
    }

    /// Writes a row by name. Does nothing if the stored row is the same.
    pub(super) async fn put(
        &mut self,
        kind: RowKind,
        parent: &str,
        name: &str,
        spec: &impl Serialize,
        given: SecretInput<'_>,
    ) -> Result<(), StoreError> {
        let owner = self.actor.origin.owner();
        let spec = spec_text(spec);
        let existing = self.rows.by_name(kind, parent, name).await?;
        let before = existing.as_ref().map(|row| row.spec.clone());
        let (mut row, fresh) = match existing {
            Some(row) => {
                self.may_write(&row, name)?;
                (row, false)
            }
            None if matches!(given, SecretInput::Keep(SecretRequirement::NeedsSecret)) => {
                return Err(refused(kind, name, ChangeRefusal::NeedsSecret));
            }
            None => (self.new_row(kind, parent, name), true),
        };
        let replaced = match given {
            SecretInput::Keep(_) => None,
            SecretInput::NoSecret => Some(RowSecret::None).filter(|none| *none != row.secret),
            SecretInput::Credential(secret) if self.has_credential(&row, secret) => None,
            SecretInput::Credential(secret) => {
                Some(RowSecret::Sealed(self.sealer.seal(credential::context(&row.id), secret.expose().as_bytes())))
            }
            SecretInput::Key(secret) => Some(RowSecret::Key(secret.clone())).filter(|secret| *secret != row.secret),
        };
        let note = match &replaced {
            None => "",
            Some(RowSecret::None) => "secret removed",
            Some(_) => "secret replaced",
        };
        if let Some(secret) = replaced {
            row.secret = secret;
        }
        if !fresh && note.is_empty() && row.spec == spec && row.owner == owner {
            return Ok(());
        }
        row.spec = spec;
        row.owner = owner;
        self.rows.put(&row).await?;
        self.changed(&row, AuditAction::Put, before.as_ref(), note);
        Ok(())
    }

    pub(super) async fn edit<T: Serialize + DeserializeOwned>(
        &mut self,
        kind: RowKind,
        parent: &str,
        name: &str,
        action: AuditAction,
        change: impl FnOnce(&mut T) + Send,
    ) -> Result<(), StoreError> {
        let row = self.need(kind, parent, name).await?;
        self.may_write(&row, name)?;
        self.edit_row(row, action, change).await
    }

    pub(super) async fn edit_row<T: Serialize + DeserializeOwned>(
        &mut self,
        mut row: CatalogRow,
        action: AuditAction,
        change: impl FnOnce(&mut T) + Send,
    ) -> Result<(), StoreError> {
        let before = row.spec.clone();
        let mut spec: T = row.read()?;
        change(&mut spec);
        row.write(&spec);
        if row.spec != before {
            self.rows.put(&row).await?;
            self.changed(&row, action, Some(&before), "");
        }
        Ok(())
    }

    pub(super) async fn remove_row(&mut self, mut row: CatalogRow, action: AuditAction) -> Result<(), StoreError> {
        let name = row.name.clone();
        self.may_write(&row, &name)?;
        row.removed_at = Some(self.now);
        let before = row.spec.clone();
        self.rows.put(&row).await?;
        self.changed(&row, action, Some(&before), "");
        Ok(())
    }

    pub(super) fn new_row(&self, kind: RowKind, parent: &str, name: &str) -> CatalogRow {
        let at = self.now;
        let id = self.rows.id_for(kind, parent, name).unwrap_or_else(|| new_id(kind, at, self.random.bytes()));
        CatalogRow {
            id,
            kind,
            parent: parent.to_owned(),
            name: name.to_owned(),
            owner: self.actor.origin.owner(),
            spec: String::new(),
            secret: RowSecret::None,
            created_at: at,
            removed_at: None,
        }
    }

    pub(super) fn changed(&mut self, row: &CatalogRow, action: AuditAction, before: Option<&String>, note: &str) {
        let revision = Revision(self.revision.0 + 1);
        self.changed.push(ChangedRow { revision, kind: row.kind, id: row.id.clone() });
        let json = |spec: &String| serde_json::from_str(spec).unwrap_or(serde_json::Value::Null);
        let after = if row.removed_at.is_some() { None } else { Some(&row.spec) };
        self.note_prices(row, before.map(String::as_str), after.map(String::as_str));
        self.changed_offers.note(row, before.map(String::as_str), after.map(String::as_str));
        let mut detail = serde_json::json!({ "before": before.map(json), "after": after.map(json), "owner": row.owner });
        let note = self.price_source.as_ref().map_or_else(|| note.to_owned(), |source| format!("imported from {source}"));
        if !note.is_empty() {
            detail["note"] = note.into();
        }
        self.audit.push(AuditEvent {
            revision,
            at: self.now,
            origin: self.actor.origin.as_str().to_owned(),
            actor: self.actor.name.clone(),
            action: action.as_str().to_owned(),
            kind: AuditKind::Row(row.kind),
            id: row.id.clone(),
            name: row.name.clone(),
            detail: detail.to_string(),
            address: self.actor.address_text(),
        });
    }

    /// Records an event that changes no row.
    pub(super) fn record_event(&mut self, change: &Change) {
        let (kind, action, id, name) = if let Change::RecordJob { id, name, action } = change {
            (AuditKind::Job, action.as_str(), id.clone(), *name)
        } else if let Change::RecordContents { request, member, action } = change {
            (AuditKind::Contents, action.as_str(), request.to_string(), member.as_str())
        } else {
            return;
        };
        self.audit.push(AuditEvent {
            revision: Revision(self.revision.0 + 1),
            at: self.now,
            origin: self.actor.origin.as_str().to_owned(),
            actor: self.actor.name.clone(),
            action: action.to_owned(),
            kind,
            id,
            name: name.to_owned(),
            detail: "{}".to_owned(),
            address: self.actor.address_text(),
        });
    }

    fn has_credential(&self, row: &CatalogRow, secret: &Secret) -> bool {
        let RowSecret::Sealed(sealed) = &row.secret else { return false };
        let opened = self.sealer.open(credential::context(&row.id), sealed);
        opened.is_ok_and(|existing| existing.as_slice().ct_eq(secret.expose().as_bytes()).into())
    }
}
