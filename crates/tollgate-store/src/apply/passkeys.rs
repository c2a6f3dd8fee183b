//! Changes of the passkeys of members.

use serde_json::json;
use tollgate_core::PasskeyId;

use super::{Batch, identity::identity_refused, refused};
use crate::{
    AuditAction, AuditKind, ChangeRefusal, IdentityRefusal, MAX_PASSKEYS, Passkey, RowKind, StoreError, UsedChallenge,
    rows::CatalogRow,
};

impl Batch<'_> {
    pub(super) async fn add_passkey(
        &mut self,
        member: &str,
        passkey: &Passkey,
        challenge: &UsedChallenge,
    ) -> Result<(), StoreError> {
        let row = self.need(RowKind::Member, "", member).await?;
        if passkey.member.to_string() != row.id {
            return Err(refused(RowKind::Member, member, ChangeRefusal::NotFound));
        }
        self.answer_challenge(member, challenge).await?;
        if self.rows.has_credential(&passkey.credential).await? {
            return Err(identity_refused(member, IdentityRefusal::PasskeyTaken));
        }
        if self.rows.passkeys_of(&row.id).await?.len() >= MAX_PASSKEYS {
            return Err(identity_refused(member, IdentityRefusal::TooManyPasskeys));
        }
        self.rows.put_passkey(passkey).await?;
        let detail = json!({"passkey": passkey.spec.name});
        self.record_identity(AuditKind::Login, AuditAction::AddPasskey, &row.id, member, &detail);
        Ok(())
    }

    pub(super) async fn rename_passkey(&mut self, id: PasskeyId, name: &str) -> Result<(), StoreError> {
        let (mut passkey, member) = self.need_passkey(id).await?;
        if passkey.spec.name == name {
            return Ok(());
        }
        let before = std::mem::replace(&mut passkey.spec.name, name.to_owned());
        self.rows.put_passkey(&passkey).await?;
        let detail = json!({"before": before, "after": name});
        self.record_identity(AuditKind::Login, AuditAction::RenamePasskey, &member.id, &member.name, &detail);
        Ok(())
    }

    pub(super) async fn remove_passkey(&mut self, id: PasskeyId) -> Result<(), StoreError> {
        let (passkey, member) = self.need_passkey(id).await?;
        self.rows.delete_passkey(id).await?;
        let detail = json!({"passkey": passkey.spec.name});
        self.record_identity(AuditKind::Login, AuditAction::RemovePasskey, &member.id, &member.name, &detail);
        Ok(())
    }

    pub(super) async fn remove_passkeys(&mut self, member: &str) -> Result<(), StoreError> {
        let row = self.need(RowKind::Member, "", member).await?;
        let passkeys = self.rows.passkeys_of(&row.id).await?;
        let mut login = self.login_of(&row).await?;
        self.end_sessions(&mut login).await?;
        self.rows.put_login(&login).await?;
        self.rows.delete_passkeys(&row.id).await?;
        for passkey in passkeys {
            let detail = json!({"passkey": passkey.spec.name});
            self.record_identity(AuditKind::Login, AuditAction::RemovePasskey, &row.id, member, &detail);
        }
        Ok(())
    }

    pub(super) async fn use_passkey(
        &mut self,
        id: PasskeyId,
        sign_count: u32,
        is_backed_up: bool,
        challenge: &UsedChallenge,
    ) -> Result<(), StoreError> {
        let (mut passkey, member) = self.need_passkey(id).await?;
        self.answer_challenge(&member.name, challenge).await?;
        // WebAuthn Level 3, section 7.2, step 22: authenticators without a counter always send 0.
        let has_advanced = sign_count > passkey.spec.sign_count || (sign_count == 0 && passkey.spec.sign_count == 0);
        if !has_advanced {
            return Err(identity_refused(&member.name, IdentityRefusal::PasskeyCounter));
        }
        passkey.spec.sign_count = sign_count;
        passkey.spec.is_backed_up = is_backed_up;
        passkey.spec.used_at = Some(self.now);
        self.rows.put_passkey(&passkey).await
    }

    pub(super) async fn report_passkey(&mut self, id: PasskeyId, sign_count: u32) -> Result<(), StoreError> {
        let (passkey, member) = self.need_passkey(id).await?;
        let detail = json!({"passkey": passkey.spec.name, "counter": sign_count, "counter_before": passkey.spec.sign_count});
        self.record_identity(AuditKind::Login, AuditAction::RefusePasskey, &member.id, &member.name, &detail);
        Ok(())
    }

    /// The passkey and its member.
    async fn need_passkey(&mut self, id: PasskeyId) -> Result<(Passkey, CatalogRow), StoreError> {
        let missing = || refused(RowKind::Member, "", ChangeRefusal::NotFound);
        let passkey = self.rows.passkey_row(id).await?.ok_or_else(missing)?;
        let member = self.rows.by_id(RowKind::Member, &passkey.member.to_string()).await?;
        let member = member.filter(|row| row.removed_at.is_none()).ok_or_else(missing)?;
        Ok((passkey, member))
    }

    async fn answer_challenge(&mut self, member: &str, challenge: &UsedChallenge) -> Result<(), StoreError> {
        if challenge.ends_at <= self.now || self.rows.is_challenge_used(challenge).await? {
            return Err(identity_refused(member, IdentityRefusal::ChallengeUsed));
        }
        self.rows.use_challenge(challenge, self.now).await
    }
}
