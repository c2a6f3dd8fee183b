//! How members sign in: logins, passkeys, sessions, invites and one-time links. Secrets are stored as hashes, except those of one-time
//! codes, which are sealed. Writes are [`crate::Change::Identity`], so that each has its entry in the audit log.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tollgate_core::{InviteId, MemberId, MemberStatus, Role, Secret, SessionId, Timestamp};

use crate::{KeyHash, MailedMember, MemberPreferences, MemberSpec, ObjectScope, Passkey, SavedView, SortOrder, StoreError};

/// Sessions of one member; a further one ends the oldest.
pub const MAX_SESSIONS: usize = 50;
/// Invites that can be accepted at the same time.
pub const MAX_INVITES: usize = 1_000;

/// Part of the JSON of every session that browsers keep when they are closed.
pub(crate) const REMEMBERED: &str = "\"remembered\":true";

/// The ways in which a member can sign in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// In lower case.
    pub email: Option<String>,
    /// Issuer and subject at an OpenID provider, separated by a blank.
    pub subject: Option<String>,
    /// Hash of the password: argon2id in PHC form.
    pub password: Option<Secret>,
    /// Shared secret of one-time codes, in base32.
    pub totp: Option<Secret>,
    /// Hashes of the recovery codes that are not used yet.
    pub recovery_codes: Vec<KeyHash>,
    pub signed_in_at: Option<Timestamp>,
    /// Changes with the password and the one-time codes; ends the sessions that began before.
    pub version: i64,
    pub preferences: MemberPreferences,
}

/// A member together with the login, which is empty if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginMember {
    pub id: MemberId,
    pub name: String,
    pub role: Role,
    pub status: MemberStatus,
    pub login: Login,
}

/// The proof of a member's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignInMethod {
    Password,
    /// A one-time link or an invite.
    Link,
    Oidc,
    /// A passkey. It verifies the person, so that no second factor is required.
    Passkey,
}

impl SignInMethod {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Link => "link",
            Self::Oidc => "oidc",
            Self::Passkey => "passkey",
        }
    }
}

/// The second factor with which a session is opened; opening the session uses it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondFactor {
    /// Not required: the member has no second factor, or the OpenID provider is responsible for it.
    None,
    /// The time step of a one-time code.
    TotpStep(i64),
    RecoveryCode(KeyHash),
}

/// A session that is to be opened. It gets the member's role and the login's version of that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    pub id: SessionId,
    pub hash: KeyHash,
    pub method: SignInMethod,
    pub is_remembered: bool,
    pub ends_at: Timestamp,
    pub client: SessionClient,
}

/// The client of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionClient {
    /// Address of the last request; empty if it is unknown.
    pub address: String,
    /// `User-Agent` of the sign-in, cut to 200 characters.
    pub agent: String,
}

/// A session that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub member: MemberId,
    pub created_at: Timestamp,
    /// Time of the last request, to about a minute.
    pub seen_at: Timestamp,
    pub ends_at: Timestamp,
    pub spec: SessionSpec,
}

/// The stored facts about a session besides its ids and times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSpec {
    pub method: SignInMethod,
    /// Whether the browser keeps the session when it is closed, as the member chose at the sign-in.
    #[serde(default, rename = "remembered")]
    pub is_remembered: bool,
    /// The member's role when it was opened.
    pub role: Role,
    /// [`Login::version`] when it was opened.
    pub version: i64,
    pub client: SessionClient,
}

impl Session {
    /// Whether it is still valid: it has not expired and was not idle for too long, and the member still has the role and the
    /// password of the time when it was opened.
    pub(crate) fn is_valid(&self, member: &LoginMember, now: Timestamp, idle: IdleTimes) -> bool {
        self.ends_at > now
            && !self.is_idle(now, idle)
            && member.status == MemberStatus::Active
            && member.role == self.spec.role
            && member.login.version == self.spec.version
    }

    /// Whether it has ended because there was no request for too long.
    pub(crate) fn is_idle(&self, now: Timestamp, idle: IdleTimes) -> bool {
        self.seen_at.plus_ms(idle.of(&self.spec)) <= now
    }
}

/// Times without a request after which sessions end, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleTimes {
    /// For sessions that end with the browser.
    pub idle_ms: i64,
    /// For sessions that the browser keeps.
    pub remembered_ms: i64,
}

impl IdleTimes {
    /// The time that applies to a session.
    pub const fn of(self, spec: &SessionSpec) -> i64 {
        if spec.is_remembered { self.remembered_ms } else { self.idle_ms }
    }
}

/// Selection of sessions that are not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionFilter {
    pub scope: ObjectScope,
    pub id: Option<SessionId>,
    pub member: Option<MemberId>,
    pub after: Option<SessionId>,
    pub now: Timestamp,
    pub idle: IdleTimes,
    /// Maximum number of sessions; capped at 1,001.
    pub limit: u32,
}

/// An invite to become a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invite {
    pub id: InviteId,
    pub expires_at: Timestamp,
    pub spec: InviteSpec,
}

/// The stored facts about an invite besides its id and its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InviteSpec {
    pub role: Role,
    pub groups: Vec<String>,
    pub note: String,
    /// Author, as in the audit log.
    pub created_by: String,
    pub state: InviteState,
}

/// Whether an invite can still be accepted. Expiry is separate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InviteState {
    #[default]
    Open,
    Revoked,
    /// Accepted by the member of this name.
    Accepted(String),
}

impl Invite {
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.spec.state == InviteState::Open && self.expires_at > now
    }

    /// The time it was made.
    pub fn created_at(&self) -> Timestamp {
        self.id.time()
    }
}

/// Purpose of a one-time link. A link of either kind sets a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// For the first admin.
    SetUp,
    Reset,
}

impl LinkKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SetUp => "set_up",
            Self::Reset => "reset",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::SetUp, Self::Reset].into_iter().find(|kind| kind.as_str() == word)
    }
}

/// A one-time link, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordLink {
    pub kind: LinkKind,
    pub member: MemberId,
    pub expires_at: Timestamp,
}

/// Reads how members sign in.
#[async_trait]
pub trait IdentityStore: Send + Sync + fmt::Debug {
    /// The member with this id, unless it was removed.
    async fn login(&self, member: MemberId) -> Result<Option<LoginMember>, StoreError>;

    /// The member of this name, or else with this e-mail address.
    async fn find_login(&self, text: &str) -> Result<Option<LoginMember>, StoreError>;

    /// Views that members share with others, by the member's id; of at most [`crate::MAX_SHARING_MEMBERS`].
    async fn shared_views(&self) -> Result<Vec<(MemberId, SavedView)>, StoreError>;

    /// The member linked to this issuer and subject.
    async fn find_subject(&self, subject: &str) -> Result<Option<LoginMember>, StoreError>;

    /// The session with this hash and its member, if it is valid.
    async fn session(&self, hash: &KeyHash, now: Timestamp, idle: IdleTimes) -> Result<Option<(Session, LoginMember)>, StoreError>;

    /// Notes the last use of a session.
    async fn touch_session(&self, session: &Session, now: Timestamp, address: &str) -> Result<(), StoreError>;

    /// Sessions that are not over, in the order in which they were opened.
    async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<Session>, StoreError>;

    /// Invites in the order in which they were made, or the newest first; at most 1,001. `after`: those that come after it in this order.
    async fn invites(&self, after: Option<InviteId>, order: SortOrder, limit: u32) -> Result<Vec<Invite>, StoreError>;

    async fn invite(&self, id: InviteId) -> Result<Option<Invite>, StoreError>;

    async fn find_invite(&self, hash: &KeyHash) -> Result<Option<Invite>, StoreError>;

    async fn find_link(&self, hash: &KeyHash) -> Result<Option<PasswordLink>, StoreError>;

    /// The passkeys of a member, in the order in which they were added.
    async fn passkeys(&self, member: MemberId) -> Result<Vec<Passkey>, StoreError>;

    /// The passkey to which an authenticator gave this id, and its member, unless that was removed.
    async fn find_passkey(&self, credential: &[u8]) -> Result<Option<(Passkey, LoginMember)>, StoreError>;

    /// Members with an e-mail address who are notified by mail, at most [`crate::MAX_MAILED_MEMBERS`].
    async fn mailed_members(&self) -> Result<Vec<MailedMember>, StoreError>;

    /// Records what a member was notified of by mail. Replaces the previous record.
    async fn record_notified(&self, member: MemberId, notified: &[String]) -> Result<(), StoreError>;

    /// The active admins, oldest first; at most 100.
    async fn admins(&self) -> Result<Vec<LoginMember>, StoreError>;
}

impl LoginMember {
    pub(crate) fn of(id: MemberId, spec: &MemberSpec, login: Login) -> Self {
        Self { id, name: spec.name.clone(), role: spec.role, status: spec.status, login }
    }

    /// Whether the member can sign in at all.
    pub fn can_sign_in(&self) -> bool {
        self.login.password.is_some() || self.login.subject.is_some()
    }
}
