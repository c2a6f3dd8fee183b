//! Changes of how members sign in, and why they are refused.

use std::fmt;

use tollgate_core::{Billing, InviteId, PasskeyId, Secret, SessionId, Timestamp};

use crate::{AdminScope, Invite, KeyHash, LinkKind, MemberPreferences, NewSession, Passkey, SecondFactor, UsedChallenge};

/// A change of how members sign in. Members are named.
#[derive(Clone, Debug)]
pub enum IdentityChange {
    SetEmail {
        member: String,
        email: Option<String>,
    },
    /// Ends the member's sessions and links.
    SetPassword {
        member: String,
        hash: Secret,
    },
    /// Ends the member's sessions. `step` is the time step of the code that proved the secret; its code cannot be
    /// used again.
    EnableTotp {
        member: String,
        secret: Secret,
        step: i64,
        recovery_codes: Vec<KeyHash>,
    },
    /// Ends the member's sessions.
    DisableTotp {
        member: String,
    },
    SetRecoveryCodes {
        member: String,
        recovery_codes: Vec<KeyHash>,
    },
    /// The passkey is of this member.
    AddPasskey {
        member: String,
        passkey: Box<Passkey>,
        challenge: UsedChallenge,
    },
    RenamePasskey {
        passkey: PasskeyId,
        name: String,
    },
    RemovePasskey {
        passkey: PasskeyId,
    },
    /// Removes all passkeys of a member and ends the member's sessions.
    RemovePasskeys {
        member: String,
    },
    /// Records a sign-in. A signature counter that has not advanced is refused, because the passkey may have been
    /// copied.
    UsePasskey {
        passkey: PasskeyId,
        sign_count: u32,
        is_backed_up: bool,
        challenge: UsedChallenge,
    },
    /// Records in the audit log that the signature counter of a passkey had not advanced.
    ReportPasskey {
        passkey: PasskeyId,
        sign_count: u32,
    },
    SetPreferences {
        member: String,
        preferences: MemberPreferences,
    },
    /// Without a subject: ends the member's sessions.
    SetSubject {
        member: String,
        subject: Option<String>,
    },
    OpenSession {
        member: String,
        session: Box<NewSession>,
        factor: SecondFactor,
    },
    EndSession {
        session: SessionId,
    },
    MakeInvite {
        invite: Box<Invite>,
        hash: KeyHash,
    },
    RevokeInvite {
        invite: InviteId,
    },
    /// Creates the member with the role and the groups of the invite.
    AcceptInvite {
        hash: KeyHash,
        member: String,
        email: Option<String>,
        password: Secret,
    },
    /// Creates a member without an invite: active, with the role `member`, and otherwise only these values.
    Register {
        member: String,
        /// Granted to the member, and used by keys that name none.
        group: Option<String>,
        billing: Billing,
        email: Option<String>,
        password: Secret,
    },
    /// Precondition: the member has no link that is still valid.
    ExpectNoLink {
        member: String,
    },
    /// Replaces the member's link.
    MakeLink {
        member: String,
        kind: LinkKind,
        hash: KeyHash,
        expires_at: Timestamp,
    },
    /// Sets the password of the member that the link is for. With another name, a link of the set-up makes an admin of that name
    /// instead, because names do not change; other links refuse one.
    UseLink {
        hash: KeyHash,
        password: Secret,
        name: Option<String>,
    },
}

impl IdentityChange {
    /// The lowest scope that permits this change. Routes ensure that members change only their own login.
    pub(crate) const fn needs(&self) -> AdminScope {
        match self {
            Self::SetPassword { .. }
            | Self::EnableTotp { .. }
            | Self::DisableTotp { .. }
            | Self::SetRecoveryCodes { .. }
            | Self::SetPreferences { .. }
            | Self::AddPasskey { .. }
            | Self::RenamePasskey { .. }
            | Self::RemovePasskey { .. }
            | Self::OpenSession { .. }
            | Self::EndSession { .. } => AdminScope::Member,
            Self::SetEmail { .. }
            | Self::SetSubject { .. }
            | Self::RemovePasskeys { .. }
            | Self::UsePasskey { .. }
            | Self::ReportPasskey { .. }
            | Self::MakeInvite { .. }
            | Self::RevokeInvite { .. }
            | Self::AcceptInvite { .. }
            | Self::Register { .. }
            | Self::ExpectNoLink { .. }
            | Self::MakeLink { .. }
            | Self::UseLink { .. } => AdminScope::Admin,
        }
    }
}

/// Why a change of how members sign in was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityRefusal {
    EmailTaken,
    SubjectTaken,
    /// The one-time or recovery code was used before.
    CodeUsed,
    LinkInvalid,
    /// A link is still valid, contrary to [`IdentityChange::ExpectNoLink`].
    LinkExists,
    InviteInvalid,
    TooManyInvites,
    /// The authenticator's passkey already belongs to a member.
    PasskeyTaken,
    TooManyPasskeys,
    /// The signature counter of a passkey has not advanced.
    PasskeyCounter,
    /// The challenge was answered before.
    ChallengeUsed,
}

impl fmt::Display for IdentityRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EmailTaken => "the e-mail address belongs to another member",
            Self::SubjectTaken => "the account of the OpenID provider belongs to another member",
            Self::CodeUsed => "the code was used before; wait for the next one",
            Self::LinkInvalid => "the link is not valid: it was used, was replaced, or is too old; ask for a new one",
            Self::LinkExists => "the member has a link that is still valid",
            Self::InviteInvalid => "the invite is not valid: it was accepted, was revoked, or is too old; ask for a new one",
            Self::TooManyInvites => "there are too many open invites; revoke some of them first",
            Self::PasskeyTaken => "the passkey was added already",
            Self::TooManyPasskeys => "the member has as many passkeys as can be; remove one first",
            Self::PasskeyCounter => "the signature counter of the passkey has not advanced: it may have been copied",
            Self::ChallengeUsed => "the challenge was answered before; begin again",
        })
    }
}
