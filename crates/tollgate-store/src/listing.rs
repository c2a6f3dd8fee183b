//! Rows and the audit log page by page, as the admin API lists them, and the look-up of admin keys.

use std::{collections::HashMap, fmt};

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use tollgate_core::{AdminKeyId, Key, KeyId, MemberId, MemberStatus, Owner, Revision, Timestamp};

use crate::{
    AdminKeySpec, AdminScope, AuditEvent, AuditKind, ImportedPrice, KeyHash, MemberSpec, PriceChange, PriceHistoryFilter,
    PriceHistoryPosition, RowKind, StoreError,
    rows::{CatalogRow, RowSecret},
};

/// The objects that a principal may see. Every query takes the scope, so that other objects cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectScope {
    Everything,
    /// Only objects of this member.
    Member(MemberId),
    Nothing,
}

impl ObjectScope {
    /// Whether an object of this member is visible.
    pub fn contains(self, member: MemberId) -> bool {
        match self {
            Self::Everything => true,
            Self::Member(own) => own == member,
            Self::Nothing => false,
        }
    }

    /// Whether a row is visible. Only keys, admin keys and the member itself belong to a member.
    pub(crate) fn contains_row(self, row: &CatalogRow) -> bool {
        let Some(own) = self.member_text() else { return true };
        match row.kind {
            RowKind::Key | RowKind::AdminKey => row.parent == own,
            RowKind::Member => row.id == own,
            RowKind::Channel
            | RowKind::Account
            | RowKind::Model
            | RowKind::Group
            | RowKind::Setting
            | RowKind::AlertDestination => false,
        }
    }

    /// Id of the member that a visible object must belong to; `None`: any.
    pub(crate) fn member_text(self) -> Option<String> {
        match self {
            Self::Everything => None,
            Self::Member(own) => Some(own.to_string()),
            // No member has this id.
            Self::Nothing => Some("none".to_owned()),
        }
    }
}

/// Reads rows and the audit log page by page.
#[async_trait]
pub trait ListingStore: Send + Sync + fmt::Debug {
    /// Rows ordered by id, which is the order of their creation.
    async fn page(&self, filter: &RowFilter) -> Result<Vec<StoredRow>, StoreError>;

    /// Search and sort data of at most `limit` keys of the filter, in the order of their ids. The filter's own limit, name and
    /// search do not apply.
    async fn key_entries(&self, filter: &RowFilter, limit: u32) -> Result<Vec<KeyEntry>, StoreError>;

    /// Members and service keys of the groups, by name of the group. Groups without any are left out.
    async fn group_users(&self) -> Result<HashMap<String, GroupUsers>, StoreError>;

    /// Rows with these ids, removed ones included, in no order. Ids that no visible row has are left out.
    async fn rows(&self, kind: RowKind, ids: Vec<String>, scope: ObjectScope) -> Result<Vec<StoredRow>, StoreError>;

    /// One row by id, removed or not.
    async fn row(&self, kind: RowKind, id: &str, scope: ObjectScope) -> Result<Option<StoredRow>, StoreError>;

    /// The names of rows with these ids, removed ones included. Ids that no visible row has are left out.
    async fn names(&self, kind: RowKind, ids: Vec<String>, scope: ObjectScope) -> Result<Vec<RowName>, StoreError>;

    /// One service key with its member, in any status.
    async fn key(&self, id: KeyId) -> Result<Option<Key>, StoreError>;

    /// Events of the audit log, newest first.
    async fn audit_page(&self, filter: &AuditFilter) -> Result<Vec<(AuditPosition, AuditEvent)>, StoreError>;

    /// Changes of the prices of a model, newest first.
    async fn price_history(&self, filter: &PriceHistoryFilter) -> Result<Vec<(PriceHistoryPosition, PriceChange)>, StoreError>;

    /// The prices whose last change was an import, by model and channel.
    async fn imported_prices(&self) -> Result<Vec<ImportedPrice>, StoreError>;

    /// The disk space of the database, and its schema.
    async fn database_size(&self) -> Result<DatabaseSize, StoreError>;

    /// The admin key with this hash, unless it is revoked or expired, or its member is suspended.
    async fn admin_key(&self, hash: &KeyHash, now: Timestamp) -> Result<Option<AdminKey>, StoreError>;
}

/// The size of a database, and the version of its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseSize {
    /// `sqlite`, `postgresql` or `memory`.
    pub kind: &'static str,
    /// Bytes on disk, with those of the write-ahead log of SQLite; 0 in memory.
    pub bytes: u64,
    /// The part of `bytes` in the write-ahead log, which checkpoints move into the database; `None`: unknown.
    pub log_bytes: Option<u64>,
    pub schema: i64,
}

/// Id and name of a row that a list refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowName {
    pub id: String,
    pub name: String,
    /// The id of the row that it belongs to: the member of a key, the channel of an account; else empty.
    pub parent: String,
}

/// The numbers of members and service keys that have a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupUsers {
    /// Members who were granted it or whose default group it is.
    pub members: u64,
    /// Keys that name it, without revoked ones.
    pub keys: u64,
    /// Keys that name no group and whose member's default group it is.
    pub default_keys: u64,
}

/// Search and sort data of a key. Ten thousand of these are read in the time of some hundred [`StoredRow`]s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    pub id: String,
    /// The id of its member.
    pub member: String,
    pub name: String,
    /// The last characters of its secret.
    pub suffix: String,
    pub created_at: Timestamp,
}

/// Selects rows of a kind, in the order of their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFilter {
    pub kind: RowKind,
    pub scope: ObjectScope,
    /// Only rows under the row with this id: accounts of a channel, keys of a member.
    pub parent: Option<String>,
    pub name: Option<String>,
    pub search: Option<RowSearch>,
    pub removed: bool,
    pub after: Option<String>,
    /// Maximum number of rows; capped at 1,001, one more than the largest page.
    pub limit: u32,
}

impl RowFilter {
    pub const fn of(kind: RowKind, limit: u32) -> Self {
        Self { kind, scope: ObjectScope::Everything, parent: None, name: None, search: None, removed: false, after: None, limit }
    }

    pub(crate) const fn size(&self) -> usize {
        if self.limit > 1_001 { 1_001 } else { self.limit as usize }
    }
}

/// Selects rows by a part of their name. ASCII letters match in either case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSearch {
    pub part: String,
    /// Members are also found by a part of the e-mail address that they sign in with.
    pub in_emails: bool,
}

impl RowSearch {
    pub(crate) fn finds(&self, name: &str, email: Option<&str>) -> bool {
        let part = self.part.to_ascii_lowercase();
        let contains = |text: &str| text.to_ascii_lowercase().contains(&part);
        contains(name) || self.in_emails && email.is_some_and(contains)
    }

    /// The pattern of `LIKE … ESCAPE '!'`.
    pub(crate) fn pattern(&self) -> String {
        let mut pattern = "%".to_owned();
        for letter in self.part.chars() {
            if matches!(letter, '%' | '_' | '!') {
                pattern.push('!');
            }
            pattern.push(letter);
        }
        pattern + "%"
    }
}

/// Selects events of the audit log, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub kind: Option<AuditKind>,
    pub id: Option<String>,
    /// Only events about rows of this name.
    pub name: Option<String>,
    /// Only changes by this author: the whole text, or an admin key's name without its id.
    pub actor: Option<String>,
    /// Only changes from this address.
    pub address: Option<String>,
    /// Only events at or after this time.
    pub since: Option<Timestamp>,
    /// Only events before this time.
    pub until: Option<Timestamp>,
    pub before: Option<AuditPosition>,
    /// Maximum number of events; capped at 1,001.
    pub limit: u32,
}

impl AuditFilter {
    /// Whether the filter selects this author.
    #[must_use]
    pub fn has_actor(&self, actor: &str) -> bool {
        let is_key = |name: &str| actor.strip_prefix(name).is_some_and(|rest| rest.starts_with(" ("));
        self.actor.as_ref().is_none_or(|wanted| wanted == actor || is_key(wanted))
    }

    /// Whether the filter selects this address.
    #[must_use]
    pub fn has_address(&self, address: Option<&str>) -> bool {
        self.address.is_none() || self.address.as_deref() == address
    }

    /// Whether a time is within the range.
    #[must_use]
    pub fn has_time(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at < until)
    }
}

/// The position of an event in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditPosition {
    pub revision: Revision,
    pub position: i64,
}

/// One row, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    /// Id with its prefix.
    pub id: String,
    /// Id of an account's channel, or of the member of a key or admin key; empty if there is none.
    pub parent: String,
    pub name: String,
    pub owner: Owner,
    /// First and last characters of a key's secret.
    pub shown: Option<(String, String)>,
    /// Until when the secret that a key had before its rotation is valid, too.
    pub previous_until: Option<Timestamp>,
    /// Whether a sealed secret is stored with the row: an account's credential, or the password of a channel's proxy.
    pub keeps_secret: bool,
    pub created_at: Timestamp,
    pub removed_at: Option<Timestamp>,
    pub revision: Revision,
    kind: RowKind,
    spec: String,
}

impl StoredRow {
    /// A row that does not exist yet: its id is all zeros, its revision 0.
    pub fn draft(kind: RowKind, prefix: &str, name: &str, now: Timestamp) -> Self {
        Self {
            id: format!("{prefix}{}", "0".repeat(26)),
            parent: String::new(),
            name: name.to_owned(),
            owner: Owner::Database,
            shown: None,
            previous_until: None,
            keeps_secret: false,
            created_at: now,
            removed_at: None,
            revision: Revision(0),
            kind,
            spec: String::new(),
        }
    }

    pub(crate) fn of(row: &CatalogRow, revision: Revision) -> Self {
        let secret = match &row.secret {
            RowSecret::Key(secret) => Some(secret),
            RowSecret::None | RowSecret::Sealed(_) => None,
        };
        Self {
            id: row.id.clone(),
            parent: row.parent.clone(),
            name: row.name.clone(),
            owner: row.owner,
            shown: secret.map(|secret| (secret.prefix.clone(), secret.suffix.clone())),
            previous_until: secret.and_then(|secret| secret.previous).map(|previous| previous.until),
            keeps_secret: matches!(row.secret, RowSecret::Sealed(_)),
            created_at: row.created_at,
            removed_at: row.removed_at,
            revision,
            kind: row.kind,
            spec: row.spec.clone(),
        }
    }

    pub fn read<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_str(&self.spec).map_err(|error| StoreError::Row {
            kind: self.kind.as_str(),
            row: self.id.clone(),
            detail: error.to_string(),
        })
    }
}

/// An admin key that was looked up by its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminKey {
    pub id: AdminKeyId,
    pub name: String,
    /// No wider than the role of its member.
    pub scope: AdminScope,
    /// The member it belongs to: id and name.
    pub member: Option<(MemberId, String)>,
    pub expires_at: Option<Timestamp>,
}

impl AdminKey {
    /// The key of a row and its member's row, if it is valid.
    pub(crate) fn of(row: &CatalogRow, member: Option<&CatalogRow>, now: Timestamp) -> Result<Option<Self>, StoreError> {
        let spec: AdminKeySpec = row.read()?;
        let id = AdminKeyId::parse(&row.id).ok_or_else(|| row.broken("its id is malformed"))?;
        let mut key = Self { id, name: spec.name, scope: spec.scope, member: None, expires_at: spec.expires_at };
        if key.expires_at.is_some_and(|end| end <= now) {
            return Ok(None);
        }
        if !row.parent.is_empty() {
            let Some(member) = member.filter(|member| member.removed_at.is_none()) else { return Ok(None) };
            let spec: MemberSpec = member.read()?;
            if spec.status != MemberStatus::Active {
                return Ok(None);
            }
            let id = MemberId::parse(&member.id).ok_or_else(|| member.broken("its id is malformed"))?;
            key.scope = key.scope.min(spec.role.into());
            key.member = Some((id, spec.name));
        }
        Ok(Some(key))
    }
}
