//! Changes of how members sign in: logins, sessions, invites and one-time links. Those of passkeys are in [`super::passkeys`].

use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;
use tollgate_core::{InviteId, MemberId, MemberStatus, Revision, Role, Secret, SessionId, Timestamp};

use super::{Batch, refused};
use crate::{
    AuditAction, AuditEvent, AuditKind, ChangeRefusal, FieldProblem, IdentityChange, IdentityRefusal, Invite, InviteState, KeyHash,
    LinkKind, MAX_INVITES, MAX_SESSIONS, MemberPreferences, MemberSpec, NewSession, RowKind, SecondFactor, Session, SessionSpec,
    StoreError,
    identity_rows::{InviteRow, LinkRow, LoginRow, SessionRow, totp_context},
    rows::CatalogRow,
};

const MAX_EMAIL: usize = 254;

pub(super) fn identity_refused(name: &str, reason: IdentityRefusal) -> StoreError {
    refused(RowKind::Member, name, ChangeRefusal::Identity(reason))
}

/// Whether sessions outlive a change of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoginEdit {
    KeepsSessions,
    EndsSessions,
}

impl Batch<'_> {
    pub(super) async fn change_identity(&mut self, change: &IdentityChange) -> Result<(), StoreError> {
        match change {
            IdentityChange::SetEmail { member, email } => {
                let row = self.need(RowKind::Member, "", member).await?;
                self.set_email(&row, email.as_deref()).await
            }
            IdentityChange::SetPassword { member, hash } => {
                let row = self.need(RowKind::Member, "", member).await?;
                self.set_password(&row, hash, AuditAction::SetPassword).await
            }
            IdentityChange::EnableTotp { member, secret, step, recovery_codes } => {
                self.enable_totp(member, secret, *step, recovery_codes).await
            }
            IdentityChange::DisableTotp { member } => {
                let disable = |login: &mut LoginRow| {
                    login.totp = None;
                    login.state.recovery_codes.clear();
                };
                self.edit_login(member, AuditAction::DisableTotp, LoginEdit::EndsSessions, disable).await
            }
            IdentityChange::SetRecoveryCodes { member, recovery_codes } => {
                let codes = recovery_codes.iter().map(|hash| hex::encode(hash.0)).collect();
                let replace = |login: &mut LoginRow| login.state.recovery_codes = codes;
                self.edit_login(member, AuditAction::ReplaceRecoveryCodes, LoginEdit::KeepsSessions, replace).await
            }
            IdentityChange::AddPasskey { member, passkey, challenge } => self.add_passkey(member, passkey, challenge).await,
            IdentityChange::RenamePasskey { passkey, name } => self.rename_passkey(*passkey, name).await,
            IdentityChange::RemovePasskey { passkey } => self.remove_passkey(*passkey).await,
            IdentityChange::RemovePasskeys { member } => self.remove_passkeys(member).await,
            IdentityChange::UsePasskey { passkey, sign_count, is_backed_up, challenge } => {
                self.use_passkey(*passkey, *sign_count, *is_backed_up, challenge).await
            }
            IdentityChange::ReportPasskey { passkey, sign_count } => self.report_passkey(*passkey, *sign_count).await,
            IdentityChange::SetPreferences { member, preferences } => self.set_preferences(member, preferences).await,
            IdentityChange::SetSubject { member, subject } => self.set_subject(member, subject.as_deref()).await,
            IdentityChange::OpenSession { member, session, factor } => self.open_session(member, session, *factor).await,
            IdentityChange::EndSession { session } => self.end_session(*session).await,
            IdentityChange::MakeInvite { invite, hash } => self.make_invite(invite, hash).await,
            IdentityChange::RevokeInvite { invite } => self.revoke_invite(*invite).await,
            IdentityChange::AcceptInvite { hash, member, email, password } => {
                self.accept_invite(hash, member, email.as_deref(), password).await
            }
            IdentityChange::Register { member, group, billing, email, password } => {
                let groups = group.iter().cloned().collect();
                let (default_group, billing) = (group.clone(), *billing);
                let spec = MemberSpec { name: member.clone(), groups, default_group, billing, ..MemberSpec::default() };
                let made = self.make_login(&spec, email.as_deref(), password).await?;
                self.record_identity(AuditKind::Login, AuditAction::Register, &made.id, member, &json!({}));
                Ok(())
            }
            IdentityChange::ExpectNoLink { member } => self.expect_no_link(member).await,
            IdentityChange::MakeLink { member, kind, hash, expires_at } => self.make_link(member, *kind, hash, *expires_at).await,
            IdentityChange::UseLink { hash, password, name } => self.use_link(hash, password, name.as_deref()).await,
        }
    }

    // === logins ===

    pub(super) async fn login_of(&mut self, row: &CatalogRow) -> Result<LoginRow, StoreError> {
        Ok(self.rows.login_row(&row.id).await?.unwrap_or_else(|| LoginRow::of(&row.id)))
    }

    async fn edit_login(
        &mut self,
        member: &str,
        action: AuditAction,
        edit: LoginEdit,
        change: impl FnOnce(&mut LoginRow) + Send,
    ) -> Result<(), StoreError> {
        let row = self.need(RowKind::Member, "", member).await?;
        let mut login = self.login_of(&row).await?;
        change(&mut login);
        if edit == LoginEdit::EndsSessions {
            self.end_sessions(&mut login).await?;
        }
        self.rows.put_login(&login).await?;
        self.record_identity(AuditKind::Login, action, &row.id, &row.name, &json!({}));
        Ok(())
    }

    async fn set_email(&mut self, row: &CatalogRow, email: Option<&str>) -> Result<(), StoreError> {
        let email = email.map(str::to_lowercase);
        if let Some(email) = &email {
            if !is_email(email) {
                let message = "is not an e-mail address such as name@example.com".to_owned();
                let problem = FieldProblem { field: "email", message };
                return Err(refused(RowKind::Member, &row.name, ChangeRefusal::Invalid(vec![problem])));
            }
            // Names are looked up before addresses, so an address that is the name of another member would never be
            // found.
            let named = self.rows.by_name(RowKind::Member, "", email).await?.map(|row| row.id);
            let taken = self.rows.member_of_email(email).await?;
            if named.iter().chain(&taken).any(|member| *member != row.id) {
                return Err(identity_refused(&row.name, IdentityRefusal::EmailTaken));
            }
        }
        let mut login = self.login_of(row).await?;
        if login.email == email {
            return Ok(());
        }
        let before = std::mem::replace(&mut login.email, email);
        let detail = json!({"before": before, "after": login.email});
        self.rows.put_login(&login).await?;
        self.record_identity(AuditKind::Login, AuditAction::SetEmail, &row.id, &row.name, &detail);
        Ok(())
    }

    async fn set_preferences(&mut self, member: &str, preferences: &MemberPreferences) -> Result<(), StoreError> {
        let row = self.need(RowKind::Member, "", member).await?;
        let mut login = self.login_of(&row).await?;
        if login.state.preferences == *preferences {
            return Ok(());
        }
        let before = std::mem::replace(&mut login.state.preferences, preferences.clone());
        self.rows.put_login(&login).await?;
        let detail = json!({"before": before, "after": preferences});
        self.record_identity(AuditKind::Login, AuditAction::SetPreferences, &row.id, &row.name, &detail);
        Ok(())
    }

    async fn set_password(&mut self, row: &CatalogRow, hash: &Secret, action: AuditAction) -> Result<(), StoreError> {
        let mut login = self.login_of(row).await?;
        login.state.password = Some(hash.expose().to_owned());
        self.end_sessions(&mut login).await?;
        self.rows.put_login(&login).await?;
        self.rows.delete_links(&row.id).await?;
        self.record_identity(AuditKind::Login, action, &row.id, &row.name, &json!({}));
        Ok(())
    }

    async fn enable_totp(&mut self, member: &str, secret: &Secret, step: i64, recovery: &[KeyHash]) -> Result<(), StoreError> {
        let row = self.need(RowKind::Member, "", member).await?;
        let sealed = self.sealer.seal(totp_context(&row.id), secret.expose().as_bytes());
        let codes = recovery.iter().map(|hash| hex::encode(hash.0)).collect();
        let enable = |login: &mut LoginRow| {
            login.totp = Some(sealed);
            login.state.totp_step = step;
            login.state.recovery_codes = codes;
        };
        self.edit_login(member, AuditAction::EnableTotp, LoginEdit::EndsSessions, enable).await
    }

    async fn set_subject(&mut self, member: &str, subject: Option<&str>) -> Result<(), StoreError> {
        let row = self.need(RowKind::Member, "", member).await?;
        if let Some(subject) = subject
            && self.rows.member_of_subject(subject).await?.is_some_and(|member| member != row.id)
        {
            return Err(identity_refused(member, IdentityRefusal::SubjectTaken));
        }
        let mut login = self.login_of(&row).await?;
        if login.subject.as_deref() == subject {
            return Ok(());
        }
        let detail = json!({"before": login.subject, "after": subject});
        login.subject = subject.map(str::to_owned);
        if subject.is_none() {
            self.end_sessions(&mut login).await?;
        }
        self.rows.put_login(&login).await?;
        self.record_identity(AuditKind::Login, AuditAction::SetSubject, &row.id, &row.name, &detail);
        Ok(())
    }

    // === sessions ===

    /// Ends all sessions of a member, and the challenges between password and one-time code.
    pub(super) async fn end_sessions(&mut self, login: &mut LoginRow) -> Result<(), StoreError> {
        login.state.version += 1;
        self.rows.delete_sessions(&login.member).await
    }

    /// Ends the sessions of a member unless it had this role and status before. A session is not restored when the role is.
    pub(super) async fn end_sessions_unless(
        &mut self,
        before: &CatalogRow,
        role: Role,
        status: MemberStatus,
    ) -> Result<(), StoreError> {
        let had: MemberSpec = before.read()?;
        if (had.role, had.status) == (role, status) { Ok(()) } else { self.rows.delete_sessions(&before.id).await }
    }

    async fn open_session(&mut self, member: &str, new: &NewSession, factor: SecondFactor) -> Result<(), StoreError> {
        let row = self.need(RowKind::Member, "", member).await?;
        let spec: MemberSpec = row.read()?;
        let Some(id) = MemberId::parse(&row.id).filter(|_| spec.status == MemberStatus::Active) else {
            return Err(refused(RowKind::Member, member, ChangeRefusal::NotFound));
        };
        let mut login = self.login_of(&row).await?;
        use_factor(&mut login, factor).map_err(|reason| identity_refused(member, reason))?;
        login.state.signed_in_at = Some(self.now);
        self.rows.put_login(&login).await?;
        self.end_oldest(&row.id).await?;
        let session = Session {
            id: new.id,
            member: id,
            created_at: new.id.time(),
            seen_at: self.now,
            ends_at: new.ends_at,
            spec: SessionSpec {
                method: new.method,
                is_remembered: new.is_remembered,
                role: spec.role,
                version: login.state.version,
                client: new.client.clone(),
            },
        };
        let detail = json!({"method": new.method, "address": new.client.address, "second_factor": factor.as_str()});
        self.rows.put_session(&SessionRow { hash: new.hash, session }).await?;
        self.record_identity(AuditKind::Session, AuditAction::SignIn, &new.id.to_string(), member, &detail);
        Ok(())
    }

    /// Deletes the ended sessions of a member, and as many of the oldest ones as needed to open another.
    async fn end_oldest(&mut self, member: &str) -> Result<(), StoreError> {
        let sessions = self.rows.sessions_of(member).await?;
        let (over, running): (Vec<_>, Vec<_>) = sessions.into_iter().partition(|session| session.ends_at <= self.now);
        let surplus = (running.len() + 1).saturating_sub(MAX_SESSIONS);
        for session in over.iter().chain(running.iter().take(surplus)) {
            self.rows.delete_session(session.id).await?;
        }
        Ok(())
    }

    async fn end_session(&mut self, id: SessionId) -> Result<(), StoreError> {
        let Some(session) = self.rows.session_row(id).await? else { return Ok(()) };
        self.rows.delete_session(id).await?;
        let member = self.rows.by_id(RowKind::Member, &session.member.to_string()).await?;
        let name = member.map_or_else(String::new, |member| member.name);
        self.record_identity(AuditKind::Session, AuditAction::End, &id.to_string(), &name, &json!({}));
        Ok(())
    }

    // === invites and links ===

    async fn make_invite(&mut self, invite: &Invite, hash: &KeyHash) -> Result<(), StoreError> {
        if self.rows.open_invites(self.now).await? >= MAX_INVITES {
            return Err(identity_refused("", IdentityRefusal::TooManyInvites));
        }
        for group in &invite.spec.groups {
            if self.rows.by_name(RowKind::Group, "", group).await?.is_none() {
                return Err(refused(RowKind::Member, "", ChangeRefusal::Unknown { kind: RowKind::Group, name: group.clone() }));
            }
        }
        self.rows.put_invite(&InviteRow { hash: *hash, invite: invite.clone() }).await?;
        let detail = json!({"role": invite.spec.role, "groups": invite.spec.groups, "note": invite.spec.note});
        self.record_identity(AuditKind::Invite, AuditAction::Make, &invite.id.to_string(), "", &detail);
        Ok(())
    }

    async fn revoke_invite(&mut self, id: InviteId) -> Result<(), StoreError> {
        let Some(mut row) = self.rows.invite_by_id(id).await? else {
            return Err(identity_refused("", IdentityRefusal::InviteInvalid));
        };
        match row.invite.spec.state {
            InviteState::Open => {}
            InviteState::Revoked => return Ok(()),
            InviteState::Accepted(_) => return Err(identity_refused("", IdentityRefusal::InviteInvalid)),
        }
        row.invite.spec.state = InviteState::Revoked;
        self.rows.put_invite(&row).await?;
        self.record_identity(AuditKind::Invite, AuditAction::Revoke, &id.to_string(), "", &json!({}));
        Ok(())
    }

    async fn accept_invite(
        &mut self,
        hash: &KeyHash,
        member: &str,
        email: Option<&str>,
        password: &Secret,
    ) -> Result<(), StoreError> {
        let found = self.rows.invite_by_hash(hash).await?.filter(|row| row.invite.is_open(self.now));
        let Some(mut row) = found else { return Err(identity_refused(member, IdentityRefusal::InviteInvalid)) };
        // Groups may have been removed since the invite was made.
        let mut groups = Vec::new();
        for group in &row.invite.spec.groups {
            if self.rows.by_name(RowKind::Group, "", group).await?.is_some() {
                groups.push(group.clone());
            }
        }
        let spec = MemberSpec { name: member.to_owned(), role: row.invite.spec.role, groups, ..MemberSpec::default() };
        self.make_login(&spec, email, password).await?;
        row.invite.spec.state = InviteState::Accepted(member.to_owned());
        self.rows.put_invite(&row).await?;
        self.record_identity(AuditKind::Invite, AuditAction::Accept, &row.invite.id.to_string(), member, &json!({}));
        Ok(())
    }

    /// Creates a member who signs in with a password. Neither the name nor the address may be the name or the address of another one.
    async fn make_login(&mut self, spec: &MemberSpec, email: Option<&str>, password: &Secret) -> Result<CatalogRow, StoreError> {
        self.expect_new(RowKind::Member, "", &spec.name).await?;
        if self.rows.member_of_email(&spec.name.to_lowercase()).await?.is_some() {
            return Err(identity_refused(&spec.name, IdentityRefusal::EmailTaken));
        }
        self.put_member(spec).await?;
        let made = self.need(RowKind::Member, "", &spec.name).await?;
        self.set_email(&made, email).await?;
        self.set_password(&made, password, AuditAction::SetPassword).await?;
        Ok(made)
    }

    async fn expect_no_link(&mut self, member: &str) -> Result<(), StoreError> {
        let row = self.need(RowKind::Member, "", member).await?;
        match self.rows.link_of(&row.id).await?.filter(|link| link.expires_at > self.now) {
            Some(_) => Err(identity_refused(member, IdentityRefusal::LinkExists)),
            None => Ok(()),
        }
    }

    async fn make_link(&mut self, member: &str, kind: LinkKind, hash: &KeyHash, expires_at: Timestamp) -> Result<(), StoreError> {
        let row = self.need(RowKind::Member, "", member).await?;
        self.rows.put_link(&LinkRow { hash: *hash, kind, member: row.id.clone(), expires_at }).await?;
        self.record_identity(AuditKind::Login, AuditAction::MakeLink, &row.id, member, &json!({"kind": kind.as_str()}));
        Ok(())
    }

    async fn use_link(&mut self, hash: &KeyHash, password: &Secret, name: Option<&str>) -> Result<(), StoreError> {
        let invalid = || identity_refused("", IdentityRefusal::LinkInvalid);
        let link = self.rows.link_row(hash).await?.filter(|link| link.expires_at > self.now).ok_or_else(invalid)?;
        let row = self.rows.by_id(RowKind::Member, &link.member).await?;
        let row = row.filter(|row| row.removed_at.is_none()).ok_or_else(invalid)?;
        let Some(name) = name.filter(|name| *name != row.name) else {
            return self.set_password(&row, password, AuditAction::UseLink).await;
        };
        if link.kind != LinkKind::SetUp {
            return Err(invalid());
        }
        let spec = MemberSpec { name: name.to_owned(), role: Role::Admin, ..MemberSpec::default() };
        let made = self.make_login(&spec, None, password).await?;
        self.rows.delete_links(&row.id).await?;
        self.record_identity(AuditKind::Login, AuditAction::UseLink, &made.id, name, &json!({}));
        Ok(())
    }

    pub(super) fn record_identity(&mut self, kind: AuditKind, action: AuditAction, id: &str, name: &str, detail: &Value) {
        self.audit.push(AuditEvent {
            revision: Revision(self.revision.0 + 1),
            at: self.now,
            origin: self.actor.origin.as_str().to_owned(),
            actor: self.actor.name.clone(),
            action: action.as_str().to_owned(),
            kind,
            id: id.to_owned(),
            name: name.to_owned(),
            detail: detail.to_string(),
            address: self.actor.address_text(),
        });
    }
}

/// Uses up the second factor of a sign-in.
fn use_factor(login: &mut LoginRow, factor: SecondFactor) -> Result<(), IdentityRefusal> {
    match factor {
        SecondFactor::None => {}
        SecondFactor::TotpStep(step) if step <= login.state.totp_step => return Err(IdentityRefusal::CodeUsed),
        SecondFactor::TotpStep(step) => login.state.totp_step = step,
        SecondFactor::RecoveryCode(hash) => {
            let digits = hex::encode(hash.0);
            let before = login.state.recovery_codes.len();
            login.state.recovery_codes.retain(|code| !bool::from(code.as_bytes().ct_eq(digits.as_bytes())));
            if login.state.recovery_codes.len() == before {
                return Err(IdentityRefusal::CodeUsed);
            }
        }
    }
    Ok(())
}

impl SecondFactor {
    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::TotpStep(_) => "totp",
            Self::RecoveryCode(_) => "recovery_code",
        }
    }
}

/// Whether a text has the form of an e-mail address. Nothing is sent to it.
fn is_email(text: &str) -> bool {
    let Some((name, host)) = text.rsplit_once('@') else { return false };
    text.len() <= MAX_EMAIL
        && !name.is_empty()
        && host.contains('.')
        && text.chars().all(|c| !c.is_whitespace() && !c.is_control())
        && host.split('.').all(|part| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn email_addresses_are_distinguished_from_names() {
        for good in ["a@example.com", "first.last+tag@mail.example.co"] {
            assert!(is_email(good), "{good}");
        }
        for bad in ["", "a", "a@b", "@example.com", "a@.com", "a b@example.com", "a@exa mple.com", "a@example.com\n", "a@b@"] {
            assert!(!is_email(bad), "{bad}");
        }
    }
}
