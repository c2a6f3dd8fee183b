//! The [`IdentityStore`] of a database with a cache: without the database no member can sign in.

use async_trait::async_trait;
use tollgate_core::{InviteId, MemberId, Timestamp};

use super::{CachedStore, QUERY_TIMEOUT};
use crate::{
    IdentityStore, IdleTimes, Invite, KeyHash, LoginMember, MailedMember, Passkey, PasswordLink, SavedView, Session, SessionFilter,
    SortOrder, StoreError,
};

#[async_trait]
impl IdentityStore for CachedStore {
    async fn login(&self, member: MemberId) -> Result<Option<LoginMember>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.login(member)).await
    }

    async fn shared_views(&self) -> Result<Vec<(MemberId, SavedView)>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.shared_views()).await
    }

    async fn find_login(&self, text: &str) -> Result<Option<LoginMember>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.find_login(text)).await
    }

    async fn find_subject(&self, subject: &str) -> Result<Option<LoginMember>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.find_subject(subject)).await
    }

    async fn session(&self, hash: &KeyHash, now: Timestamp, idle: IdleTimes) -> Result<Option<(Session, LoginMember)>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.session(hash, now, idle)).await
    }

    async fn touch_session(&self, session: &Session, now: Timestamp, address: &str) -> Result<(), StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.touch_session(session, now, address)).await
    }

    async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<Session>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.sessions(filter)).await
    }

    async fn invites(&self, after: Option<InviteId>, order: SortOrder, limit: u32) -> Result<Vec<Invite>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.invites(after, order, limit)).await
    }

    async fn invite(&self, id: InviteId) -> Result<Option<Invite>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.invite(id)).await
    }

    async fn find_invite(&self, hash: &KeyHash) -> Result<Option<Invite>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.find_invite(hash)).await
    }

    async fn find_link(&self, hash: &KeyHash) -> Result<Option<PasswordLink>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.find_link(hash)).await
    }

    async fn passkeys(&self, member: MemberId) -> Result<Vec<Passkey>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.passkeys(member)).await
    }

    async fn find_passkey(&self, credential: &[u8]) -> Result<Option<(Passkey, LoginMember)>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.find_passkey(credential)).await
    }

    async fn mailed_members(&self) -> Result<Vec<MailedMember>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.mailed_members()).await
    }

    async fn record_notified(&self, member: MemberId, notified: &[String]) -> Result<(), StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.record_notified(member, notified)).await
    }

    async fn admins(&self) -> Result<Vec<LoginMember>, StoreError> {
        self.within(QUERY_TIMEOUT, self.sql()?.admins()).await
    }
}
