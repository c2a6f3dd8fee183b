//! Every admin mutation as one enum: one function authorises it, one transaction writes it with its revision and
//! audit rows, one rule invalidates caches. Console, CLI and catalog file all speak it.

use std::fmt;

use serde::{Deserialize, Serialize};
use tollgate_core::{AdminKeyId, Budget, KeyId, KeyStatus, MemberStatus, ModelMapping, Owner, Revision, Secret, Timestamp};

use crate::{AccountSpec, AdminKeySpec, AdminScope, ChannelSpec, GroupSpec, KeyHash, KeySpec, MemberSpec, ModelSpec};

/// One mutation. `Put…` writes a row by name, whole: it is made when it is not there. Removing is soft: names stay
/// resolvable in usage records.
#[derive(Clone, Debug)]
pub enum Change {
    /// A precondition: the batch is refused when the catalog has another revision.
    Expect(Revision),
    /// A precondition: the batch is refused when the row was changed after this revision.
    ExpectRow {
        /// Kind of row.
        kind: RowKind,
        /// Its id in the shown form.
        id: String,
        /// Its last change that is known.
        revision: Revision,
    },
    /// A precondition: the batch is refused when a live row of this name is there.
    ExpectNew {
        /// Kind of row.
        kind: RowKind,
        /// Name of the channel of an account, of the member of a key (empty: the member `owner`); empty for others.
        parent: String,
        /// Its name.
        name: String,
    },
    /// Makes a batch happen once, however often it is sent within a day: a repetition is refused and names the row
    /// that the first one wrote.
    Once {
        /// What its sender calls it, together with who sends it.
        key: String,
        /// Hash of what was asked for; another one under the same name is a mistake.
        fingerprint: [u8; 32],
    },
    /// Writes a channel with what it serves; its accounts stay.
    PutChannel(Box<ChannelSpec>),
    /// Switches a channel on or off by hand.
    SwitchChannel {
        /// Channel name.
        channel: String,
        /// On or off.
        to: Toggle,
    },
    /// Removes a channel and its accounts.
    RemoveChannel {
        /// Channel name.
        channel: String,
    },
    /// Writes an account. `credential: None` keeps the one it has; a new account needs one.
    PutAccount {
        /// Channel name.
        channel: String,
        /// The account.
        account: AccountSpec,
        /// Its credential, sealed when stored.
        credential: Option<Secret>,
    },
    /// Switches an account on or off by hand.
    SwitchAccount {
        /// Channel name.
        channel: String,
        /// Account name.
        account: String,
        /// On or off.
        to: Toggle,
    },
    /// Removes an account.
    RemoveAccount {
        /// Channel name.
        channel: String,
        /// Account name.
        account: String,
    },
    /// Writes one model that a channel serves.
    PutModelMapping {
        /// Channel name.
        channel: String,
        /// The model.
        mapping: Box<ModelMapping>,
    },
    /// Ends serving a model.
    RemoveModelMapping {
        /// Channel name.
        channel: String,
        /// Public name.
        model: String,
    },
    /// Writes a model's prices and facts.
    PutModel(Box<ModelSpec>),
    /// Removes a model's prices and facts; it stays callable, not priced, while a channel serves it.
    RemoveModel {
        /// Public name.
        model: String,
    },
    /// Writes a group.
    PutGroup(Box<GroupSpec>),
    /// Removes a group; keys that name only this group reach nothing.
    RemoveGroup {
        /// Group name.
        group: String,
    },
    /// Writes a member.
    PutMember(Box<MemberSpec>),
    /// Suspends a member or lets them back.
    SetMemberStatus {
        /// Member name.
        member: String,
        /// New status.
        status: MemberStatus,
    },
    /// Removes a member and revokes their keys.
    RemoveMember {
        /// Member name.
        member: String,
    },
    /// Writes a key. `secret: None` keeps the one it has; a new key needs one.
    PutKey {
        /// The key.
        key: Box<KeySpec>,
        /// Its secret, hashed.
        secret: Option<KeySecret>,
    },
    /// Disables a key or lets it work again. `Revoked` is the same as [`Change::RevokeKey`].
    SetKeyStatus {
        /// The key.
        key: KeyId,
        /// New status.
        status: KeyStatus,
    },
    /// Replaces a key's budgets.
    SetKeyBudgets {
        /// The key.
        key: KeyId,
        /// New budgets.
        budgets: Vec<Budget>,
    },
    /// Ends a key for good.
    RevokeKey {
        /// The key.
        key: KeyId,
    },
    /// Hands every row of a catalog file that is no longer served to the database.
    ReleaseFile,
    /// Makes an admin key; its name is not taken.
    MakeAdminKey {
        /// The key.
        key: Box<AdminKeySpec>,
        /// Its secret, hashed.
        secret: KeySecret,
    },
    /// Ends an admin key for good.
    RevokeAdminKey {
        /// The key.
        key: AdminKeyId,
    },
}

impl Change {
    /// The least scope of an admin key that may make it. Members, admin keys and what a file owned are the admins'.
    #[must_use]
    pub const fn needs(&self) -> AdminScope {
        match self {
            Self::Expect(_)
            | Self::ExpectRow { .. }
            | Self::ExpectNew { .. }
            | Self::Once { .. }
            | Self::PutChannel(_)
            | Self::SwitchChannel { .. }
            | Self::RemoveChannel { .. }
            | Self::PutAccount { .. }
            | Self::SwitchAccount { .. }
            | Self::RemoveAccount { .. }
            | Self::PutModelMapping { .. }
            | Self::RemoveModelMapping { .. }
            | Self::PutModel(_)
            | Self::RemoveModel { .. }
            | Self::PutGroup(_)
            | Self::RemoveGroup { .. }
            | Self::PutKey { .. }
            | Self::SetKeyStatus { .. }
            | Self::SetKeyBudgets { .. }
            | Self::RevokeKey { .. } => AdminScope::Operator,
            Self::PutMember(_)
            | Self::SetMemberStatus { .. }
            | Self::RemoveMember { .. }
            | Self::ReleaseFile
            | Self::MakeAdminKey { .. }
            | Self::RevokeAdminKey { .. } => AdminScope::Admin,
        }
    }
}

/// On or off by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Toggle {
    /// In use.
    On,
    /// Off until switched on again.
    Off,
}

/// What is stored of a key's secret. Made by [`crate::NewKey`] or [`crate::KeyHasher::import`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySecret {
    /// Keyed hash.
    pub hash: KeyHash,
    /// First 10 characters; fewer of a short imported secret.
    pub prefix: String,
    /// Last 4 characters.
    pub suffix: String,
}

/// Who makes a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Through which door.
    pub door: ChangeOrigin,
    /// A name for the audit log: the member, the admin key, the file's path.
    pub name: String,
}

/// Through which door a change comes. It decides who owns the rows that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeOrigin {
    /// The served catalog file: rows become the file's.
    File,
    /// The command line, `apply` included.
    Cli,
    /// The console.
    Console,
    /// The admin API.
    Api,
    /// The gateway itself, at a first start.
    Gateway,
}

impl ChangeOrigin {
    /// Who owns rows written through it.
    #[must_use]
    pub const fn owner(self) -> Owner {
        match self {
            Self::File => Owner::File,
            Self::Cli | Self::Console | Self::Api | Self::Gateway => Owner::Database,
        }
    }

    /// The word in the audit log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Cli => "cli",
            Self::Console => "console",
            Self::Api => "api",
            Self::Gateway => "gateway",
        }
    }
}

/// A kind of row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    /// Channel.
    Channel,
    /// Account.
    Account,
    /// Model.
    Model,
    /// Group.
    Group,
    /// Member.
    Member,
    /// Service key.
    Key,
    /// Admin key.
    #[serde(rename = "admin_key")]
    AdminKey,
}

impl RowKind {
    /// All of them, in the order in which rows refer to each other.
    pub const ALL: [Self; 7] = [Self::Channel, Self::Account, Self::Model, Self::Group, Self::Member, Self::Key, Self::AdminKey];

    /// The word in messages, plans and tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Channel => "channel",
            Self::Account => "account",
            Self::Model => "model",
            Self::Group => "group",
            Self::Member => "member",
            Self::Key => "key",
            Self::AdminKey => "admin_key",
        }
    }

    /// Reads the word of [`RowKind::as_str`].
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl RowKind {
    /// What stands before its word.
    pub(crate) const fn article(self) -> &'static str {
        match self {
            Self::Account | Self::AdminKey => "an",
            Self::Channel | Self::Model | Self::Group | Self::Member | Self::Key => "a",
        }
    }
}

impl fmt::Display for RowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::AdminKey { "admin key" } else { self.as_str() })
    }
}

/// One row that changed: what caches drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRow {
    /// With which revision.
    pub revision: Revision,
    /// What kind of row.
    pub kind: RowKind,
    /// Its id in the shown form (`key_…`).
    pub id: String,
}

/// One line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// With which revision.
    pub revision: Revision,
    /// When.
    pub at: Timestamp,
    /// Through which door.
    pub door: String,
    /// Who.
    pub actor: String,
    /// What was done: `put`, `remove`, `switch`, `revoke` and so on.
    pub action: String,
    /// To what kind of row.
    pub kind: RowKind,
    /// Its id.
    pub id: String,
    /// Its name at that time.
    pub name: String,
    /// Before and after as JSON, without secrets.
    pub detail: String,
}
