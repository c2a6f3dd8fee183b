//! Changes of service keys and admin keys, preconditions of single rows, and batches that happen once.

use tollgate_core::{AdminKeyId, Budget, KeyId, KeyStatus, MemberStatus, Revision, Role, Timestamp};

use super::{Batch, SecretInput, SecretRequirement, checked, refused};
use crate::{
    AdminKeySpec, AdminScope, AuditAction, ChangeRefusal, FieldProblem, KeySecret, KeySpec, MemberSpec, PreviousSecret, RowKind,
    StoreError,
    fields::{KeyInput, check_row},
    rows::{CatalogRow, RowSecret},
};

/// The member that keys without one belong to.
pub(crate) const OWNER: &str = "owner";

fn check_key(spec: &KeySpec) -> Vec<FieldProblem> {
    check_row(&KeyInput { spec: spec.clone(), secret: None })
}

impl Batch<'_> {
    pub(super) async fn set_key_status(&mut self, key: KeyId, status: KeyStatus) -> Result<(), StoreError> {
        if status == KeyStatus::Revoked {
            let row = self.need_key(key).await?;
            return self.revoke(row).await;
        }
        let row = self.need_live_key(key).await?;
        self.edit_row::<KeySpec>(row, AuditAction::Status, |spec| spec.status = status).await
    }

    pub(super) async fn set_key_budgets(&mut self, key: KeyId, budgets: &[Budget]) -> Result<(), StoreError> {
        let row = self.need_live_key(key).await?;
        let spec = KeySpec { budgets: budgets.to_vec(), ..row.read()? };
        checked(RowKind::Key, &spec.name, check_key(&spec))?;
        self.edit_row::<KeySpec>(row, AuditAction::Budgets, |before| *before = spec).await
    }

    pub(super) async fn rotate_key(&mut self, key: KeyId, new: &KeySecret, until: Timestamp) -> Result<(), StoreError> {
        let mut row = self.need_live_key(key).await?;
        if self.rows.by_hash(&new.hash).await?.is_some() {
            return Err(refused(RowKind::Key, &row.name, ChangeRefusal::SecretTaken));
        }
        let RowSecret::Key(old) = &row.secret else { return Err(row.broken("it has no secret")) };
        let previous = PreviousSecret { hash: old.hash, until };
        row.secret = RowSecret::Key(KeySecret { previous: Some(previous).filter(|_| until > self.now), ..new.clone() });
        self.rows.put(&row).await?;
        let spec = row.spec.clone();
        self.changed(&row, AuditAction::Rotate, Some(&spec), &format!("the secret before is valid until {until}"));
        Ok(())
    }

    pub(super) async fn put_key(&mut self, given: &KeySpec, secret: Option<&KeySecret>) -> Result<(), StoreError> {
        let mut spec = given.clone();
        if spec.member.is_empty() {
            spec.member = self.first_admin().await?;
        }
        let shown = format!("{}/{}", spec.member, spec.name);
        checked(RowKind::Key, &shown, check_key(&spec))?;
        let Some(member) = self.rows.by_name(RowKind::Member, "", &spec.member).await? else {
            return Err(refused(RowKind::Key, &spec.name, ChangeRefusal::Unknown { kind: RowKind::Member, name: spec.member }));
        };
        if let Some(secret) = secret
            && let Some(taken) = self.rows.by_hash(&secret.hash).await?
            && (taken.parent != member.id || taken.name != spec.name)
        {
            return Err(refused(RowKind::Key, &shown, ChangeRefusal::SecretTaken));
        }
        self.names(RowKind::Key, &shown, RowKind::Group, &spec.groups);
        let given = secret.map_or(SecretInput::Keep(SecretRequirement::NeedsSecret), SecretInput::Key);
        self.put(RowKind::Key, &member.id, &spec.name, &spec, given).await
    }

    /// The member `owner`, or else the oldest admin.
    async fn first_admin(&mut self) -> Result<String, StoreError> {
        let mut first: Option<CatalogRow> = None;
        for row in self.rows.list(RowKind::Member, None).await? {
            let spec: MemberSpec = row.read()?;
            let admin = spec.role == Role::Admin && spec.status == MemberStatus::Active;
            if row.name == OWNER {
                return Ok(row.name);
            }
            if admin && first.as_ref().is_none_or(|first| row.created_at < first.created_at) {
                first = Some(row);
            }
        }
        first.map(|row| row.name).ok_or_else(|| refused(RowKind::Member, OWNER, ChangeRefusal::NotFound))
    }

    async fn need_key(&mut self, id: KeyId) -> Result<CatalogRow, StoreError> {
        let shown = id.to_string();
        let row =
            self.rows.by_id(RowKind::Key, &shown).await?.ok_or_else(|| refused(RowKind::Key, &shown, ChangeRefusal::NotFound))?;
        self.may_write(&row, &row.name)?;
        Ok(row)
    }

    async fn need_live_key(&mut self, id: KeyId) -> Result<CatalogRow, StoreError> {
        let row = self.need_key(id).await?;
        if row.removed_at.is_some() {
            return Err(refused(RowKind::Key, &row.name, ChangeRefusal::Revoked));
        }
        Ok(row)
    }

    /// Does nothing if the key is revoked already.
    pub(super) async fn revoke(&mut self, mut row: CatalogRow) -> Result<(), StoreError> {
        if row.removed_at.is_some() {
            return Ok(());
        }
        let mut spec: KeySpec = row.read()?;
        spec.status = KeyStatus::Revoked;
        row.write(&spec);
        self.remove_row(row, AuditAction::Revoke).await
    }
}

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
            RowKind::Channel
            | RowKind::Model
            | RowKind::Group
            | RowKind::Member
            | RowKind::AdminKey
            | RowKind::Setting
            | RowKind::AlertDestination => None,
        };
        // Names that differ only in case are easily confused in logs and ledgers.
        if kind == RowKind::Member {
            let lower = name.to_lowercase();
            if self.rows.list(kind, None).await?.iter().any(|member| member.name.to_lowercase() == lower) {
                return Err(refused(kind, name, ChangeRefusal::Exists));
            }
        }
        let parent = match above {
            None => String::new(),
            // The change itself reports a missing parent.
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

    pub(super) async fn expect_fewer_keys(&mut self, member: &str, than: u32) -> Result<(), StoreError> {
        let row = self.need(RowKind::Member, "", member).await?;
        let keys = self.rows.list(RowKind::Key, Some(&row.id)).await?.len();
        if keys < than as usize { Ok(()) } else { Err(refused(RowKind::Member, member, ChangeRefusal::TooManyKeys { most: than })) }
    }

    pub(super) async fn once(&mut self, key: &str, fingerprint: &[u8; 32]) -> Result<(), StoreError> {
        match self.rows.idempotent_batch(key).await? {
            Some(existing) if existing.fingerprint != *fingerprint => {
                Err(refused(existing.kind, &existing.id, ChangeRefusal::IdempotencyKeyReused))
            }
            Some(existing) => {
                Err(refused(existing.kind, &existing.id, ChangeRefusal::Repeated { kind: existing.kind, id: existing.id.clone() }))
            }
            None => {
                self.once = Some((key.to_owned(), *fingerprint));
                Ok(())
            }
        }
    }

    pub(super) async fn make_admin_key(&mut self, spec: &AdminKeySpec, secret: &KeySecret) -> Result<(), StoreError> {
        checked(RowKind::AdminKey, &spec.name, check_row(spec))?;
        if spec.scope == AdminScope::Member && spec.member.is_none() {
            let message = "is needed for the scope `member`".to_owned();
            let problem = FieldProblem { field: "member", message };
            return Err(refused(RowKind::AdminKey, &spec.name, ChangeRefusal::Invalid(vec![problem])));
        }
        if self.rows.list(RowKind::AdminKey, None).await?.iter().any(|row| row.name == spec.name) {
            return Err(refused(RowKind::AdminKey, &spec.name, ChangeRefusal::Exists));
        }
        let parent = match &spec.member {
            None => String::new(),
            Some(member) => {
                let unknown = || ChangeRefusal::Unknown { kind: RowKind::Member, name: member.clone() };
                let row = self.rows.by_name(RowKind::Member, "", member).await?;
                row.ok_or_else(|| refused(RowKind::AdminKey, &spec.name, unknown()))?.id
            }
        };
        self.put(RowKind::AdminKey, &parent, &spec.name, spec, SecretInput::Key(secret)).await
    }

    /// Does nothing if the key is revoked already.
    pub(super) async fn revoke_admin_key(&mut self, key: AdminKeyId) -> Result<(), StoreError> {
        let shown = key.to_string();
        match self.rows.by_id(RowKind::AdminKey, &shown).await? {
            None => Err(refused(RowKind::AdminKey, &shown, ChangeRefusal::NotFound)),
            Some(row) if row.removed_at.is_some() => Ok(()),
            Some(row) => self.remove_row(row, AuditAction::Revoke).await,
        }
    }
}
