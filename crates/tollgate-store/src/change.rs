//! Every mutation of the catalog as one enum, used by the admin API, the command line and the catalog file. A batch of changes is
//! written in one transaction together with its revision, its audit events and the rows that caches must drop.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};
use tollgate_core::{
    AccountSpec, AdminKeyId, Budget, ChannelSpec, KeyId, KeyStatus, MemberStatus, ModelMapping, ModelSpec, Owner, PriceSchedule,
    RequestId, Revision, Secret, Timestamp,
};

use crate::{
    AdminKeySpec, AdminScope, AuditAction, GroupSpec, IdentityChange, KeySpec, MemberSpec, fields::DestinationInput,
    keys::KeySecret,
};

/// One mutation. `Put…` replaces the row of that name or creates it. Removal is soft: names stay resolvable in usage records.
#[derive(Clone, Debug)]
pub enum Change {
    /// Precondition: the catalog has this revision.
    Expect(Revision),
    /// Precondition: the row was not changed after this revision.
    ExpectRow { kind: RowKind, id: String, revision: Revision },
    /// Precondition: no live row has this name. `parent` is the channel of an account or the member of a key (empty: the member
    /// `owner`), and empty for other kinds.
    ExpectNew { kind: RowKind, parent: String, name: String },
    /// Precondition: the member has fewer keys than this that are not revoked.
    ExpectFewerKeys { member: String, than: u32 },
    /// Makes the batch idempotent for a day: a repetition is refused with [`crate::ChangeRefusal::Repeated`], which names the
    /// row that the first batch wrote. The sender qualifies the key; another fingerprint (the hash of the request) under the same
    /// key is refused.
    Idempotent { key: String, fingerprint: [u8; 32] },
    /// Writes a channel and the models it serves; its accounts are unchanged.
    PutChannel(Box<ChannelSpec>),
    /// Switches a channel on or off.
    SwitchChannel { channel: String, to: Toggle },
    /// Removes a channel and its accounts.
    RemoveChannel { channel: String },
    /// Writes an account. `credential: None` keeps the stored one; a new account needs one.
    PutAccount { channel: String, account: AccountSpec, credential: Option<Secret> },
    /// Switches an account on or off.
    SwitchAccount { channel: String, account: String, to: Toggle },
    /// Removes an account.
    RemoveAccount { channel: String, account: String },
    /// Adds or replaces one model that a channel serves.
    PutModelMapping { channel: String, mapping: Box<ModelMapping> },
    /// Removes one model from a channel.
    RemoveModelMapping { channel: String, model: String },
    /// Writes a model's prices and properties.
    PutModel(Box<ModelSpec>),
    /// Removes a model's prices and properties. While a channel serves it, the model remains callable without a price.
    RemoveModel { model: String },
    /// Sets the sale price of a model, and creates its row if there is none. `source`: the list that the price is imported from;
    /// `None`: set by hand.
    SetPrice { model: String, price: Option<PriceSchedule>, source: Option<String> },
    /// Sets the costs of models that the channel serves. `source` as for [`Change::SetPrice`].
    SetCosts { channel: String, costs: Vec<(String, Option<PriceSchedule>)>, source: Option<String> },
    /// Writes a group.
    PutGroup(Box<GroupSpec>),
    /// Adds a channel to those that a group offers, or removes it. The rest of the group is unchanged.
    SetGroupChannel { group: String, channel: String, is_offered: bool },
    /// Removes a group; keys with only this group can no longer reach any model.
    RemoveGroup { group: String },
    /// Writes a member.
    PutMember(Box<MemberSpec>),
    /// Suspends or reactivates a member.
    SetMemberStatus { member: String, status: MemberStatus },
    /// Removes a member and revokes the member's keys.
    RemoveMember { member: String },
    /// Writes a key. `secret: None` keeps the stored one; a new key needs one.
    PutKey { key: Box<KeySpec>, secret: Option<KeySecret> },
    /// Disables or enables a key. `Revoked` is the same as [`Change::RevokeKey`].
    SetKeyStatus { key: KeyId, status: KeyStatus },
    /// Replaces a key's secret. The previous secret stays valid until `until`; one that was replaced earlier becomes invalid immediately.
    RotateKey { key: KeyId, secret: KeySecret, until: Timestamp },
    /// Replaces a key's budgets.
    SetKeyBudgets { key: KeyId, budgets: Vec<Budget> },
    /// Revokes a key permanently.
    RevokeKey { key: KeyId },
    /// Makes the database the owner of every row owned by a catalog file that is no longer served.
    ReleaseFile,
    /// Creates an admin key under a free name.
    MakeAdminKey { key: Box<AdminKeySpec>, secret: KeySecret },
    /// Revokes an admin key permanently.
    RevokeAdminKey { key: AdminKeyId },
    /// Stores a destination of alerts. Secrets that are not given are kept.
    PutAlertDestination(Box<DestinationInput>),
    /// Removes a destination of alerts.
    RemoveAlertDestination { destination: String },
    /// Changes how a member signs in.
    Identity(Box<IdentityChange>),
    /// Stores the value of a setting. The caller has checked that the setting exists, is not a secret and takes the value.
    SetSetting { name: String, value: String },
    /// Removes the stored value of a setting.
    UnsetSetting { name: String },
    /// Records an action on a job in the audit log. Changes no row. `name` is the kind of the job.
    RecordJob { id: String, name: &'static str, action: JobAction },
    /// Records an action on the stored contents of a request in the audit log. Changes no row. `member`: the member of the request.
    RecordContents { request: RequestId, member: String, action: ContentAction },
}

/// An action on stored contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentAction {
    /// An admin read those of another member.
    Read,
    Remove,
}

impl ContentAction {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => AuditAction::Read.as_str(),
            Self::Remove => AuditAction::Remove.as_str(),
        }
    }
}

/// The action on a job that the audit log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAction {
    Start,
    Cancel,
}

impl JobAction {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => AuditAction::Start.as_str(),
            Self::Cancel => AuditAction::Cancel.as_str(),
        }
    }
}

impl Change {
    /// The lowest scope of an admin key that permits this change.
    pub const fn needs(&self) -> AdminScope {
        match self {
            Self::Expect(_)
            | Self::ExpectRow { .. }
            | Self::ExpectNew { .. }
            | Self::ExpectFewerKeys { .. }
            | Self::Idempotent { .. }
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
            | Self::SetPrice { .. }
            | Self::SetCosts { .. }
            | Self::PutGroup(_)
            | Self::SetGroupChannel { .. }
            | Self::RemoveGroup { .. }
            | Self::PutKey { .. }
            | Self::SetKeyStatus { .. }
            | Self::RotateKey { .. }
            | Self::SetKeyBudgets { .. }
            | Self::RevokeKey { .. }
            | Self::RecordJob { .. } => AdminScope::Operator,
            Self::RecordContents { .. } => AdminScope::Member,
            Self::PutMember(_)
            | Self::SetMemberStatus { .. }
            | Self::RemoveMember { .. }
            | Self::ReleaseFile
            | Self::MakeAdminKey { .. }
            | Self::RevokeAdminKey { .. }
            | Self::SetSetting { .. }
            | Self::UnsetSetting { .. }
            | Self::PutAlertDestination(_)
            | Self::RemoveAlertDestination { .. } => AdminScope::Admin,
            Self::Identity(change) => change.needs(),
        }
    }
}

/// Manual switch of a channel or an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Toggle {
    On,
    /// Off until switched on again.
    Off,
}

/// The author of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Interface the change came through.
    pub origin: ChangeOrigin,
    /// Name in the audit log: the member, the admin key, or the path of the catalog file.
    pub name: String,
    /// Address of the sender. `None` for a change made on this machine, or if a trusted proxy reports no address.
    pub address: Option<IpAddr>,
}

impl Actor {
    /// An author on this machine.
    #[must_use]
    pub fn local(origin: ChangeOrigin, name: impl Into<String>) -> Self {
        Self { origin, name: name.into(), address: None }
    }

    /// The sender's address as the audit log stores it.
    pub(crate) fn address_text(&self) -> Option<String> {
        self.address.map(|address| address.to_canonical().to_string())
    }
}

/// Interface a change came through. It decides the owner of the written rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeOrigin {
    /// The served catalog file, which becomes the owner of the rows.
    File,
    /// The command line, `apply` included.
    Cli,
    Console,
    Api,
    /// The gateway itself, at its first start.
    Gateway,
}

impl ChangeOrigin {
    /// Owner of rows written through this interface.
    pub const fn owner(self) -> Owner {
        match self {
            Self::File => Owner::File,
            Self::Cli | Self::Console | Self::Api | Self::Gateway => Owner::Database,
        }
    }

    /// The name in the audit log.
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

/// The kinds of rows that the admin API lists and changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    Channel,
    Account,
    Model,
    Group,
    Member,
    Key,
    #[serde(rename = "admin_key")]
    AdminKey,
    /// The stored value of a setting.
    Setting,
    #[serde(rename = "alert_destination")]
    AlertDestination,
}

impl RowKind {
    /// Every kind; a kind comes after those its rows refer to.
    pub const ALL: [Self; 9] = [
        Self::Channel,
        Self::Account,
        Self::Model,
        Self::Group,
        Self::Member,
        Self::Key,
        Self::AdminKey,
        Self::Setting,
        Self::AlertDestination,
    ];

    /// The name in plans and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Channel => "channel",
            Self::Account => "account",
            Self::Model => "model",
            Self::Group => "group",
            Self::Member => "member",
            Self::Key => "key",
            Self::AdminKey => "admin_key",
            Self::Setting => "setting",
            Self::AlertDestination => "alert_destination",
        }
    }

    /// Parses the name of [`RowKind::as_str`].
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// The indefinite article of the kind in messages.
    pub(crate) const fn article(self) -> &'static str {
        match self {
            Self::Account | Self::AdminKey => "an",
            Self::Channel | Self::Model | Self::Group | Self::Member | Self::Key | Self::Setting | Self::AlertDestination => "a",
        }
    }
}

impl fmt::Display for RowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AdminKey => "admin key",
            Self::AlertDestination => "destination",
            Self::Channel | Self::Account | Self::Model | Self::Group | Self::Member | Self::Key | Self::Setting => self.as_str(),
        })
    }
}

/// A changed row, which caches must drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRow {
    pub revision: Revision,
    pub kind: RowKind,
    /// Id of the row, with its prefix (`key_…`).
    pub id: String,
}
