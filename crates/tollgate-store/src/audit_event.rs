//! Events of the audit log.

use tollgate_core::{Revision, Timestamp};

use crate::RowKind;

/// The action of an event of the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditAction {
    Accept,
    AddPasskey,
    Budgets,
    Cancel,
    DisableTotp,
    EnableTotp,
    End,
    Make,
    MakeLink,
    Price,
    Put,
    Read,
    RefusePasskey,
    Register,
    Release,
    Remove,
    RemovePasskey,
    RenamePasskey,
    ReplaceRecoveryCodes,
    Revoke,
    Rotate,
    RotateMasterKey,
    Serve,
    SetEmail,
    SetPassword,
    SetPreferences,
    SetSubject,
    SignIn,
    Start,
    Status,
    Switch,
    Unserve,
    UseLink,
}

impl AuditAction {
    pub const ALL: [Self; 33] = [
        Self::Accept,
        Self::AddPasskey,
        Self::Budgets,
        Self::Cancel,
        Self::DisableTotp,
        Self::EnableTotp,
        Self::End,
        Self::Make,
        Self::MakeLink,
        Self::Price,
        Self::Put,
        Self::Read,
        Self::RefusePasskey,
        Self::Register,
        Self::Release,
        Self::Remove,
        Self::RemovePasskey,
        Self::RenamePasskey,
        Self::ReplaceRecoveryCodes,
        Self::Revoke,
        Self::Rotate,
        Self::RotateMasterKey,
        Self::Serve,
        Self::SetEmail,
        Self::SetPassword,
        Self::SetPreferences,
        Self::SetSubject,
        Self::SignIn,
        Self::Start,
        Self::Status,
        Self::Switch,
        Self::Unserve,
        Self::UseLink,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::AddPasskey => "add_passkey",
            Self::Budgets => "budgets",
            Self::Cancel => "cancel",
            Self::DisableTotp => "disable_totp",
            Self::EnableTotp => "enable_totp",
            Self::End => "end",
            Self::Make => "make",
            Self::MakeLink => "make_link",
            Self::Price => "price",
            Self::Put => "put",
            Self::Read => "read",
            Self::RefusePasskey => "refuse_passkey",
            Self::Register => "register",
            Self::Release => "release",
            Self::Remove => "remove",
            Self::RemovePasskey => "remove_passkey",
            Self::RenamePasskey => "rename_passkey",
            Self::ReplaceRecoveryCodes => "replace_recovery_codes",
            Self::Revoke => "revoke",
            Self::Rotate => "rotate",
            Self::RotateMasterKey => "rotate_master_key",
            Self::Serve => "serve",
            Self::SetEmail => "set_email",
            Self::SetPassword => "set_password",
            Self::SetPreferences => "set_preferences",
            Self::SetSubject => "set_subject",
            Self::SignIn => "sign_in",
            Self::Start => "start",
            Self::Status => "status",
            Self::Switch => "switch",
            Self::Unserve => "unserve",
            Self::UseLink => "use_link",
        }
    }
}

/// Subject of an event of the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditKind {
    Row(RowKind),
    Job,
    /// How a member signs in.
    Login,
    Session,
    Invite,
    /// Stored contents of a request.
    Contents,
}

impl AuditKind {
    const OTHERS: [Self; 5] = [Self::Job, Self::Login, Self::Session, Self::Invite, Self::Contents];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Row(kind) => kind.as_str(),
            Self::Job => "job",
            Self::Login => "login",
            Self::Session => "session",
            Self::Invite => "invite",
            Self::Contents => "contents",
        }
    }

    /// Parses the name of [`AuditKind::as_str`].
    pub fn parse(word: &str) -> Option<Self> {
        let other = Self::OTHERS.into_iter().find(|kind| kind.as_str() == word);
        other.or_else(|| RowKind::parse(word).map(Self::Row))
    }
}

/// One event of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    pub revision: Revision,
    /// Time of the change.
    pub at: Timestamp,
    /// Interface the change came through: a name of [`crate::ChangeOrigin::as_str`].
    pub origin: String,
    /// Name of the [`crate::Actor`].
    pub actor: String,
    /// A word of [`AuditAction::as_str`].
    pub action: String,
    pub kind: AuditKind,
    /// Id of the row, job, session, invite or request; of a login: of the member.
    pub id: String,
    /// Name of the row at that time; the kind of a job; the member of a login, session or request.
    pub name: String,
    /// The row before and after the change as JSON, without secrets.
    pub detail: String,
    /// Address of the [`crate::Actor`].
    pub address: Option<String>,
}
