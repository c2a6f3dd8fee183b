//! How members sign in, in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tollgate_core::{InviteId, MemberId, MemberStatus, PasskeyId, Role, SessionId, Timestamp};

use super::{MemoryStore, State};
use crate::{
    IdentityStore, IdleTimes, Invite, InviteState, KeyHash, LoginMember, MAX_MAILED_MEMBERS, MailedMember, MemberSpec, Passkey,
    PasswordLink, RowKind, SavedView, Session, SessionFilter, SortOrder, StoreError, UsedChallenge,
    identity_rows::{IdentityTransaction, InviteRow, LinkRow, LoginRow, SessionRow, mailed_member, shared_views},
    rows::CatalogRow,
    seal::Sealer,
};

#[derive(Clone, Debug, Default)]
pub(super) struct MemoryIdentity {
    /// By the id of the member.
    logins: BTreeMap<String, LoginRow>,
    sessions: BTreeMap<SessionId, SessionRow>,
    invites: BTreeMap<InviteId, InviteRow>,
    /// By the id of the member.
    links: BTreeMap<String, LinkRow>,
    passkeys: BTreeMap<PasskeyId, Passkey>,
    /// The subjects that members were notified of by mail, by the id of the member.
    notified: BTreeMap<String, Vec<String>>,
    /// Expiry of each challenge that was answered.
    used_challenges: BTreeMap<[u8; 32], Timestamp>,
}

impl MemoryIdentity {
    /// The e-mail address that a member signs in with.
    pub(super) fn email_of(&self, member: &str) -> Option<&str> {
        self.logins.get(member)?.email.as_deref()
    }
}

impl State {
    fn live_member(&self, id: &str) -> Option<&CatalogRow> {
        self.rows.get(id).filter(|row| row.kind == RowKind::Member && row.removed_at.is_none())
    }

    fn login_member(&self, row: &CatalogRow, sealer: &Sealer) -> Result<LoginMember, StoreError> {
        let login = self.identity.logins.get(&row.id).cloned().unwrap_or_default().open(sealer)?;
        let id = MemberId::parse(&row.id).ok_or_else(|| row.broken("its id is malformed"))?;
        Ok(LoginMember::of(id, &row.read::<MemberSpec>()?, login))
    }
}

#[async_trait]
impl IdentityStore for MemoryStore {
    async fn login(&self, member: MemberId) -> Result<Option<LoginMember>, StoreError> {
        let state = self.catalog.lock().await;
        state.live_member(&member.to_string()).map(|row| state.login_member(row, &self.sealer)).transpose()
    }

    async fn find_login(&self, text: &str) -> Result<Option<LoginMember>, StoreError> {
        let state = self.catalog.lock().await;
        let email = text.to_lowercase();
        let linked = state.identity.logins.values().find(|login| login.email.as_deref() == Some(email.as_str()));
        let named = state.live().find(|row| row.kind == RowKind::Member && row.name == text);
        let found = named.or_else(|| linked.and_then(|login| state.live_member(&login.member)));
        found.map(|row| state.login_member(row, &self.sealer)).transpose()
    }

    async fn shared_views(&self) -> Result<Vec<(MemberId, SavedView)>, StoreError> {
        let state = self.catalog.lock().await;
        let sharing = |login: &&LoginRow| login.state.preferences.views.iter().any(|view| view.is_shared);
        Ok(shared_views(state.identity.logins.values().filter(sharing)))
    }

    async fn find_subject(&self, subject: &str) -> Result<Option<LoginMember>, StoreError> {
        let state = self.catalog.lock().await;
        let linked = state.identity.logins.values().find(|login| login.subject.as_deref() == Some(subject));
        let found = linked.and_then(|login| state.live_member(&login.member));
        found.map(|row| state.login_member(row, &self.sealer)).transpose()
    }

    async fn session(&self, hash: &KeyHash, now: Timestamp, idle: IdleTimes) -> Result<Option<(Session, LoginMember)>, StoreError> {
        let state = self.catalog.lock().await;
        let found = state.identity.sessions.values().find(|row| row.hash == *hash);
        let Some(session) = found.map(|row| row.session.clone()) else { return Ok(None) };
        let Some(row) = state.live_member(&session.member.to_string()) else { return Ok(None) };
        let member = state.login_member(row, &self.sealer)?;
        Ok(Some((session, member)).filter(|(session, member)| session.is_valid(member, now, idle)))
    }

    async fn touch_session(&self, session: &Session, now: Timestamp, address: &str) -> Result<(), StoreError> {
        if let Some(row) = self.catalog.lock().await.identity.sessions.get_mut(&session.id) {
            row.session.seen_at = row.session.seen_at.max(now);
            address.clone_into(&mut row.session.spec.client.address);
        }
        Ok(())
    }

    async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<Session>, StoreError> {
        let state = self.catalog.lock().await;
        let wanted = |session: &&Session| {
            filter.after.is_none_or(|after| session.id > after)
                && session.ends_at > filter.now
                && !session.is_idle(filter.now, filter.idle)
                && filter.member.is_none_or(|member| session.member == member)
                && filter.scope.contains(session.member)
                && filter.id.is_none_or(|id| session.id == id)
        };
        let sessions = state.identity.sessions.values().map(|row| &row.session);
        Ok(sessions.filter(wanted).take(filter.limit.min(1_001) as usize).cloned().collect())
    }

    async fn invites(&self, after: Option<InviteId>, order: SortOrder, limit: u32) -> Result<Vec<Invite>, StoreError> {
        let state = self.catalog.lock().await;
        let invites = state.identity.invites.values().map(|row| &row.invite);
        let limit = limit.min(1_001) as usize;
        Ok(match order {
            SortOrder::Oldest => {
                invites.filter(|invite| after.is_none_or(|after| invite.id > after)).take(limit).cloned().collect()
            }
            SortOrder::Newest => {
                invites.rev().filter(|invite| after.is_none_or(|after| invite.id < after)).take(limit).cloned().collect()
            }
        })
    }

    async fn invite(&self, id: InviteId) -> Result<Option<Invite>, StoreError> {
        Ok(self.catalog.lock().await.identity.invites.get(&id).map(|row| row.invite.clone()))
    }

    async fn find_invite(&self, hash: &KeyHash) -> Result<Option<Invite>, StoreError> {
        let state = self.catalog.lock().await;
        Ok(state.identity.invites.values().find(|row| row.hash == *hash).map(|row| row.invite.clone()))
    }

    async fn find_link(&self, hash: &KeyHash) -> Result<Option<PasswordLink>, StoreError> {
        let state = self.catalog.lock().await;
        let found = state.identity.links.values().find(|row| row.hash == *hash);
        Ok(found.and_then(|row| {
            let member = MemberId::parse(&row.member)?;
            Some(PasswordLink { kind: row.kind, member, expires_at: row.expires_at })
        }))
    }

    async fn passkeys(&self, member: MemberId) -> Result<Vec<Passkey>, StoreError> {
        let state = self.catalog.lock().await;
        Ok(state.identity.passkeys.values().filter(|passkey| passkey.member == member).cloned().collect())
    }

    async fn find_passkey(&self, credential: &[u8]) -> Result<Option<(Passkey, LoginMember)>, StoreError> {
        let state = self.catalog.lock().await;
        let found = state.identity.passkeys.values().find(|passkey| passkey.credential == credential);
        let Some(passkey) = found else { return Ok(None) };
        let Some(row) = state.live_member(&passkey.member.to_string()) else { return Ok(None) };
        Ok(Some((passkey.clone(), state.login_member(row, &self.sealer)?)))
    }

    async fn mailed_members(&self) -> Result<Vec<MailedMember>, StoreError> {
        let state = self.catalog.lock().await;
        let wanted = state.identity.logins.values().filter(|login| login.state.preferences.notice_mail);
        let notified = |login: &LoginRow| state.identity.notified.get(&login.member).cloned().unwrap_or_default();
        Ok(wanted.filter_map(|login| mailed_member(login, notified(login))).take(MAX_MAILED_MEMBERS).collect())
    }

    async fn record_notified(&self, member: MemberId, notified: &[String]) -> Result<(), StoreError> {
        self.catalog.lock().await.identity.notified.insert(member.to_string(), notified.to_vec());
        Ok(())
    }

    async fn admins(&self) -> Result<Vec<LoginMember>, StoreError> {
        let state = self.catalog.lock().await;
        let members = state.live().filter(|row| row.kind == RowKind::Member);
        let members = members.map(|row| state.login_member(row, &self.sealer)).collect::<Result<Vec<_>, _>>()?;
        let is_admin = |member: &LoginMember| member.role == Role::Admin && member.status == MemberStatus::Active;
        Ok(members.into_iter().filter(is_admin).take(100).collect())
    }
}

#[async_trait]
impl IdentityTransaction for State {
    async fn login_row(&mut self, member: &str) -> Result<Option<LoginRow>, StoreError> {
        Ok(self.identity.logins.get(member).cloned())
    }

    async fn member_of_email(&mut self, email: &str) -> Result<Option<String>, StoreError> {
        let found = self.identity.logins.values().find(|login| login.email.as_deref() == Some(email));
        Ok(found.map(|login| login.member.clone()))
    }

    async fn member_of_subject(&mut self, subject: &str) -> Result<Option<String>, StoreError> {
        let found = self.identity.logins.values().find(|login| login.subject.as_deref() == Some(subject));
        Ok(found.map(|login| login.member.clone()))
    }

    async fn put_login(&mut self, row: &LoginRow) -> Result<(), StoreError> {
        self.identity.logins.insert(row.member.clone(), row.clone());
        Ok(())
    }

    async fn delete_login(&mut self, member: &str) -> Result<(), StoreError> {
        self.identity.logins.remove(member);
        self.identity.notified.remove(member);
        self.identity.links.remove(member);
        self.delete_passkeys(member).await?;
        self.delete_sessions(member).await
    }

    async fn sessions_of(&mut self, member: &str) -> Result<Vec<Session>, StoreError> {
        let sessions = self.identity.sessions.values().map(|row| &row.session);
        Ok(sessions.filter(|session| session.member.to_string() == member).cloned().collect())
    }

    async fn session_row(&mut self, id: SessionId) -> Result<Option<Session>, StoreError> {
        Ok(self.identity.sessions.get(&id).map(|row| row.session.clone()))
    }

    async fn put_session(&mut self, row: &SessionRow) -> Result<(), StoreError> {
        self.identity.sessions.insert(row.session.id, row.clone());
        Ok(())
    }

    async fn delete_sessions(&mut self, member: &str) -> Result<(), StoreError> {
        self.identity.sessions.retain(|_, row| row.session.member.to_string() != member);
        Ok(())
    }

    async fn delete_session(&mut self, id: SessionId) -> Result<(), StoreError> {
        self.identity.sessions.remove(&id);
        Ok(())
    }

    async fn invite_by_hash(&mut self, hash: &KeyHash) -> Result<Option<InviteRow>, StoreError> {
        Ok(self.identity.invites.values().find(|row| row.hash == *hash).cloned())
    }

    async fn invite_by_id(&mut self, id: InviteId) -> Result<Option<InviteRow>, StoreError> {
        Ok(self.identity.invites.get(&id).cloned())
    }

    async fn open_invites(&mut self, now: Timestamp) -> Result<usize, StoreError> {
        let is_open = |row: &&InviteRow| row.invite.spec.state == InviteState::Open && row.invite.expires_at > now;
        Ok(self.identity.invites.values().filter(is_open).count())
    }

    async fn put_invite(&mut self, row: &InviteRow) -> Result<(), StoreError> {
        self.identity.invites.insert(row.invite.id, row.clone());
        Ok(())
    }

    async fn link_of(&mut self, member: &str) -> Result<Option<LinkRow>, StoreError> {
        Ok(self.identity.links.get(member).cloned())
    }

    async fn link_row(&mut self, hash: &KeyHash) -> Result<Option<LinkRow>, StoreError> {
        Ok(self.identity.links.values().find(|row| row.hash == *hash).cloned())
    }

    async fn put_link(&mut self, row: &LinkRow) -> Result<(), StoreError> {
        self.identity.links.insert(row.member.clone(), row.clone());
        Ok(())
    }

    async fn delete_links(&mut self, member: &str) -> Result<(), StoreError> {
        self.identity.links.remove(member);
        Ok(())
    }

    async fn passkeys_of(&mut self, member: &str) -> Result<Vec<Passkey>, StoreError> {
        Ok(self.identity.passkeys.values().filter(|passkey| passkey.member.to_string() == member).cloned().collect())
    }

    async fn passkey_row(&mut self, id: PasskeyId) -> Result<Option<Passkey>, StoreError> {
        Ok(self.identity.passkeys.get(&id).cloned())
    }

    async fn has_credential(&mut self, credential: &[u8]) -> Result<bool, StoreError> {
        Ok(self.identity.passkeys.values().any(|passkey| passkey.credential == credential))
    }

    async fn put_passkey(&mut self, passkey: &Passkey) -> Result<(), StoreError> {
        self.identity.passkeys.insert(passkey.id, passkey.clone());
        Ok(())
    }

    async fn delete_passkey(&mut self, id: PasskeyId) -> Result<(), StoreError> {
        self.identity.passkeys.remove(&id);
        Ok(())
    }

    async fn delete_passkeys(&mut self, member: &str) -> Result<(), StoreError> {
        self.identity.passkeys.retain(|_, passkey| passkey.member.to_string() != member);
        Ok(())
    }

    async fn is_challenge_used(&mut self, challenge: &UsedChallenge) -> Result<bool, StoreError> {
        Ok(self.identity.used_challenges.contains_key(&challenge.hash.0))
    }

    async fn use_challenge(&mut self, challenge: &UsedChallenge, now: Timestamp) -> Result<(), StoreError> {
        self.identity.used_challenges.retain(|_, ends_at| *ends_at > now);
        self.identity.used_challenges.insert(challenge.hash.0, challenge.ends_at);
        Ok(())
    }
}
