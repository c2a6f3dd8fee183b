//! Rows of logins, sessions, invites and links as backends store them, and the operations that a change of them needs.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tollgate_core::{InviteId, MemberId, PasskeyId, Secret, SessionId, Timestamp};

use crate::{
    Invite, KeyHash, LinkKind, Login, MAX_SHARING_MEMBERS, MailedMember, MemberPreferences, Passkey, SavedView, Session,
    StoreError, UsedChallenge,
    seal::{SealContext, Sealer},
};

/// A login as stored. The sealed secret and the values used in look-ups are columns; everything else is `state`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoginRow {
    /// Id of the member, with its prefix.
    pub(crate) member: String,
    pub(crate) email: Option<String>,
    pub(crate) subject: Option<String>,
    /// Sealed.
    pub(crate) totp: Option<Vec<u8>>,
    pub(crate) state: LoginState,
}

/// A login whose member is notified by mail, with the alerts that were mailed; `None` without an address.
pub(crate) fn mailed_member(login: &LoginRow, notified: Vec<String>) -> Option<MailedMember> {
    let (member, email) = (MemberId::parse(&login.member)?, login.email.clone()?);
    Some(MailedMember { member, email, preferences: login.state.preferences.clone(), notified })
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoginState {
    /// Hash of the password in PHC form.
    pub(crate) password: Option<String>,
    /// Time step of the last one-time code that was used.
    pub(crate) totp_step: i64,
    /// Hashes of recovery codes in hexadecimal digits.
    pub(crate) recovery_codes: Vec<String>,
    pub(crate) version: i64,
    pub(crate) signed_in_at: Option<Timestamp>,
    #[serde(default)]
    pub(crate) preferences: MemberPreferences,
}

impl std::fmt::Debug for LoginState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginState").field("version", &self.version).finish_non_exhaustive()
    }
}

/// The views of these logins that others see.
pub(crate) fn shared_views<'a>(logins: impl Iterator<Item = &'a LoginRow>) -> Vec<(MemberId, SavedView)> {
    let of_login = |login: &'a LoginRow| {
        let shared = login.state.preferences.views.iter().filter(|view| view.is_shared);
        MemberId::parse(&login.member).into_iter().flat_map(move |member| shared.clone().map(move |view| (member, view.clone())))
    };
    logins.take(MAX_SHARING_MEMBERS).flat_map(of_login).collect()
}

/// Context of a sealed secret of one-time codes; `row` is the member's id.
pub(crate) const fn totp_context(row: &str) -> SealContext<'_> {
    SealContext { table: "logins", column: "totp", row }
}

impl LoginRow {
    pub(crate) fn of(member: &str) -> Self {
        Self { member: member.to_owned(), ..Self::default() }
    }

    pub(crate) fn open(self, sealer: &Sealer) -> Result<Login, StoreError> {
        let totp = match &self.totp {
            None => None,
            Some(sealed) => {
                let text = sealer.open(totp_context(&self.member), sealed)?;
                let text = String::from_utf8(text.to_vec()).map_err(|_| self.broken("its one-time secret is not a text"))?;
                Some(Secret::new(text))
            }
        };
        let hash = |text: &String| {
            let bytes = hex::decode(text).ok().and_then(|bytes| bytes.try_into().ok());
            bytes.map(KeyHash).ok_or_else(|| self.broken("the hash of a recovery code does not have 32 bytes"))
        };
        let recovery_codes = self.state.recovery_codes.iter().map(hash).collect::<Result<_, _>>()?;
        let LoginState { password, signed_in_at, version, preferences, .. } = self.state;
        Ok(Login {
            email: self.email,
            subject: self.subject,
            password: password.map(Secret::new),
            totp,
            recovery_codes,
            signed_in_at,
            version,
            preferences,
        })
    }

    pub(crate) fn broken(&self, detail: &str) -> StoreError {
        StoreError::Row { kind: "login", row: self.member.clone(), detail: detail.to_owned() }
    }
}

/// A stored session with the hash of its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionRow {
    pub(crate) hash: KeyHash,
    pub(crate) session: Session,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InviteRow {
    pub(crate) hash: KeyHash,
    pub(crate) invite: Invite,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkRow {
    pub(crate) hash: KeyHash,
    pub(crate) kind: LinkKind,
    /// Id of the member.
    pub(crate) member: String,
    pub(crate) expires_at: Timestamp,
}

/// The operations on logins that a backend provides to a batch of changes.
#[async_trait]
pub(crate) trait IdentityTransaction: Send {
    async fn login_row(&mut self, member: &str) -> Result<Option<LoginRow>, StoreError>;

    /// The id of the member that has this e-mail address.
    async fn member_of_email(&mut self, email: &str) -> Result<Option<String>, StoreError>;

    /// The id of the member that is linked to this subject.
    async fn member_of_subject(&mut self, subject: &str) -> Result<Option<String>, StoreError>;

    async fn put_login(&mut self, row: &LoginRow) -> Result<(), StoreError>;

    /// Deletes the login, the passkeys, the sessions and the links of a member.
    async fn delete_login(&mut self, member: &str) -> Result<(), StoreError>;

    /// The sessions of a member, in the order in which they were opened.
    async fn sessions_of(&mut self, member: &str) -> Result<Vec<Session>, StoreError>;

    async fn session_row(&mut self, id: SessionId) -> Result<Option<Session>, StoreError>;

    async fn put_session(&mut self, row: &SessionRow) -> Result<(), StoreError>;

    /// Deletes all sessions of a member.
    async fn delete_sessions(&mut self, member: &str) -> Result<(), StoreError>;

    async fn delete_session(&mut self, id: SessionId) -> Result<(), StoreError>;

    async fn invite_by_hash(&mut self, hash: &KeyHash) -> Result<Option<InviteRow>, StoreError>;

    async fn invite_by_id(&mut self, id: InviteId) -> Result<Option<InviteRow>, StoreError>;

    /// Number of invites that expire after this time and are open.
    async fn open_invites(&mut self, now: Timestamp) -> Result<usize, StoreError>;

    async fn put_invite(&mut self, row: &InviteRow) -> Result<(), StoreError>;

    async fn link_of(&mut self, member: &str) -> Result<Option<LinkRow>, StoreError>;

    async fn link_row(&mut self, hash: &KeyHash) -> Result<Option<LinkRow>, StoreError>;

    async fn put_link(&mut self, row: &LinkRow) -> Result<(), StoreError>;

    async fn delete_links(&mut self, member: &str) -> Result<(), StoreError>;

    /// The passkeys of a member, in the order in which they were added.
    async fn passkeys_of(&mut self, member: &str) -> Result<Vec<Passkey>, StoreError>;

    async fn passkey_row(&mut self, id: PasskeyId) -> Result<Option<Passkey>, StoreError>;

    /// Whether any member has a passkey with this credential id.
    async fn has_credential(&mut self, credential: &[u8]) -> Result<bool, StoreError>;

    async fn put_passkey(&mut self, passkey: &Passkey) -> Result<(), StoreError>;

    async fn delete_passkey(&mut self, id: PasskeyId) -> Result<(), StoreError>;

    async fn delete_passkeys(&mut self, member: &str) -> Result<(), StoreError>;

    /// Whether the challenge was answered before.
    async fn is_challenge_used(&mut self, challenge: &UsedChallenge) -> Result<bool, StoreError>;

    /// Stores a challenge as used, and deletes expired ones.
    async fn use_challenge(&mut self, challenge: &UsedChallenge, now: Timestamp) -> Result<(), StoreError>;
}
