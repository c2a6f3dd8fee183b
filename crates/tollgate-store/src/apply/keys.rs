//! Changes of keys: they belong to a member, have a secret of their own, and end for good.

use tollgate_core::{Budget, KeyId, KeyStatus, MemberStatus, Role};

use super::{Batch, SecretInput, SecretRequirement, checked, refused};
use crate::{
    ChangeRefusal, FieldProblem, KeySecret, KeySpec, MemberSpec, RowKind, StoreError,
    fields::{KeyInput, check_row},
    rows::CatalogRow,
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
        self.edit_row::<KeySpec>(row, "status", |spec| spec.status = status).await
    }

    pub(super) async fn set_key_budgets(&mut self, key: KeyId, budgets: &[Budget]) -> Result<(), StoreError> {
        let row = self.need_live_key(key).await?;
        let spec = KeySpec { budgets: budgets.to_vec(), ..row.read()? };
        checked(RowKind::Key, &spec.name, check_key(&spec))?;
        self.edit_row::<KeySpec>(row, "budgets", |before| *before = spec).await
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

    /// The member `owner`, or else the first admin there was.
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

    /// Ends a key; a revoked one stays as it is.
    pub(super) async fn revoke(&mut self, mut row: CatalogRow) -> Result<(), StoreError> {
        if row.removed_at.is_some() {
            return Ok(());
        }
        let mut spec: KeySpec = row.read()?;
        spec.status = KeyStatus::Revoked;
        row.write(&spec);
        self.remove_row(row, "revoke").await
    }
}
